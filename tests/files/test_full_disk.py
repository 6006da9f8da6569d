"""Folders without room: what fails, and with which advice."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

import pytest

from tests.bundle.jobs import job
from tests.job.loading import load
from tests.second_user import needs_root
from tony_core.bundle.client import contents, planning, staging
from tony_core.bundle.client.staging_errors import StagingError
from tony_core.cli.errors import report_error
from tony_core.client import tls_key_pair
from tony_core.schedulers.local import host_checks


@pytest.fixture
def no_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    """No place for temporary files takes one: /tmp is full, or is not there."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere/at/all"])


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk without a byte left."""
    folder = tmp_path / "full"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(folder)],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("this machine does not allow mounting a small disk")
    with open(folder / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_job_is_read_where_no_temporary_file_can_be_made(no_temporary: None) -> None:
    assert load().job.name


def test_the_error_of_a_full_temporary_folder_has_advice(
    no_temporary: None, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = host_checks.check_tmpdir({})
    assert (finding.verdict.value, "set TMPDIR" in finding.advice) == ("wrong", True)
    with pytest.raises(tls_key_pair.NoKeyPair, match=r"No usable temporary directory.*set TMPDIR"):
        tls_key_pair.with_tls(b"secret")
    aside = contents._temporary_tree(lambda target: None)
    with (
        pytest.raises(StagingError, match=r"cannot be written.*make room.*TMPDIR"),
        aside,
    ):
        pass
    try:
        tempfile.mkstemp()
    except FileNotFoundError as error:
        report_error(error, False)
    printed = capsys.readouterr().err
    assert "set TMPDIR" in printed and "fault in tony" not in printed


@needs_root
def test_a_full_disk_below_tony_home_is_one_message_at_submit(full: Path) -> None:
    what = job()
    plan = planning.plan(what, str(full))
    with pytest.raises(StagingError, match=r"No space left.*make room there \(tony gc\)"):
        staging.stage(plan, str(full), "app-1", what, b"s")
    assert not os.path.exists(full / "apps")


@needs_root
def test_a_full_tmp_is_named_where_a_runtime_is_packed(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(full))

    def make(target: str) -> None:
        Path(target).write_bytes(bytes(4096))

    aside = contents._temporary_tree(make)
    with pytest.raises(StagingError, match=r"No space left on device.*TMPDIR"), aside:
        pass
    assert os.listdir(full) == ["filler"]


@needs_root
def test_a_read_only_disk_below_tony_home_is_one_message(full: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    what = job()
    with pytest.raises(StagingError, match="set TONY_HOME to a folder that you can write"):
        staging.stage(planning.plan(what, str(full)), str(full), "app-1", what, b"s")
