"""A job's folder speaks for its owner alone: links, strangers' files, pipes, paths, sizes."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.portal.histories import app, write_job
from tests.second_user import UID, as_second_user, needs_root, open_folder
from tony_core.history.reader import NoHistory
from tony_core.portal import job_folders
from tony_core.portal.index.build import build_row, words_of
from tony_core.portal.job_folders import UnsafeHistory, open_local
from tony_core.portal.locations import open_job
from tony_core.portal.settings import HistoryLocation

__all__ = ["open_folder"]

ME = pwd.getpwuid(os.geteuid()).pw_name


def test_a_job_is_read_from_its_folder(tmp_path: Path) -> None:
    write_job(tmp_path, app(1), events=[{"n": 1, "kind": "note"}], config="<configuration/>")
    with open_job(HistoryLocation("here", str(tmp_path)), app(1)) as folder:
        record = folder.record()
        assert record.job["name"] == "mnist" and len(record.events) == 1
        assert record.problems == () and folder.owner == ME
        assert folder.record(events=False).events == ()
        assert folder.config() == b"<configuration/>"
        made = folder.fingerprint()
        assert made.is_history and made.size > 100
        (tmp_path / app(1) / "metrics-0001.jsonl").write_text("{}\n")
        assert folder.fingerprint().digest == made.digest
        (tmp_path / app(1) / "summary.json").write_text("{}")
        assert folder.fingerprint().digest != made.digest


def test_a_folder_that_is_renamed_meanwhile_is_still_the_same(tmp_path: Path) -> None:
    write_job(tmp_path, app(1))
    with open_local(str(tmp_path), app(1)) as folder:
        (tmp_path / app(1)).rename(tmp_path / "old")
        write_job(tmp_path, app(1), name="another")
        assert folder.record().job["name"] == "mnist"


def test_what_was_not_kept_is_none(tmp_path: Path) -> None:
    write_job(tmp_path, app(1))
    with open_local(str(tmp_path), app(1)) as folder:
        assert folder.config() is None
    with pytest.raises(NoHistory, match="no history of"):
        open_local(str(tmp_path), app(2))


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/b", ".hidden", "", "a\0b", "x" * 300, "-x", "/etc"]
)
def test_what_is_no_id_opens_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoHistory, match="not the id of an application"):
        open_local(str(tmp_path), name)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    other = write_job(tmp_path / "other", app(1), config="<configuration/>")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / app(1)).symlink_to(other)
    with pytest.raises(UnsafeHistory, match="is a symbolic link") as error:
        open_local(str(tmp_path / "here"), app(1))
    assert error.value.owner == ME
    folder = write_job(tmp_path / "here", app(2))
    for name in ("summary.json", "events-0001.jsonl", "tony-final.xml"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(other / "tony-final.xml")
    with open_local(str(tmp_path / "here"), app(2)) as opened:
        record = opened.record()
        assert record.job == {} and record.events == ()
        assert all("symbolic link" in problem for problem in record.problems)
        assert len(record.problems) == 3 and "tony-final.xml" in record.problems[-1]
        with pytest.raises(UnsafeHistory, match="symbolic link"):
            opened.config()


def test_pipes_and_folders_do_not_hold_the_reader(tmp_path: Path) -> None:
    folder = write_job(tmp_path, app(1))
    os.mkfifo(folder / "tony-final.xml")
    (folder / "events-0001.jsonl").mkdir()
    with open_local(str(tmp_path), app(1)) as opened:
        with pytest.raises(UnsafeHistory, match="plain file"):
            opened.config()
        record = opened.record()
        assert record.job["name"] == "mnist" and "plain file" in record.problems[-1]
    (tmp_path / app(2)).write_text("a file")
    with pytest.raises(UnsafeHistory, match="is not a folder"):
        open_local(str(tmp_path), app(2))


def test_files_and_folders_that_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_job(tmp_path, app(1))
    with open(folder / "tony-final.xml", "wb") as file:
        file.truncate(job_folders.LARGEST + 1)
    monkeypatch.setattr(job_folders, "MOST_FILES", 5)
    with open_local(str(tmp_path), app(1)) as opened:
        with pytest.raises(OSError, match="larger than"):
            opened.config()
        for number in range(5):
            (folder / f"x{number}").touch()
        with pytest.raises(UnsafeHistory, match="more than 5 files"):
            opened.fingerprint()


def test_a_summary_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write_job(tmp_path, app(1), events=[{"n": 1, "kind": "note"}])
    (folder / "summary.json").unlink()
    for events in (True, False):
        with open_local(str(tmp_path), app(1)) as opened:
            (problem,) = opened.record(events=events).problems
            assert problem.startswith("summary.json: is missing")


def test_no_other_folders_files_are_read(tmp_path: Path) -> None:
    write_job(tmp_path, app(1))
    secret = tmp_path / "secret"
    secret.write_text("s")
    with open_local(str(tmp_path), app(1)) as opened:
        files: Any = opened._files  # type: ignore[attr-defined]
        for location in (str(secret), f"{opened.location}/../secret", f"{opened.location}/.."):
            with pytest.raises(UnsafeHistory, match="is not in"):
                files.get(location)
        with pytest.raises(PermissionError, match="only reads"):
            files.put(f"{opened.location}/new", b"")


@needs_root
def test_one_users_file_never_speaks_for_anothers_job(tmp_path: Path) -> None:
    folder = write_job(tmp_path, app(1), config="<configuration/>")
    os.chown(folder / "summary.json", UID, UID)
    os.chown(folder / "tony-final.xml", UID, UID)
    with open_local(str(tmp_path), app(1)) as opened:
        record = opened.record()
        assert opened.owner == ME and record.job == {}
        assert f"belongs to '{UID}', and the job's folder to '{ME}'" in record.problems[0]
        with pytest.raises(UnsafeHistory, match="belongs to"):
            opened.config()
    os.chown(folder, UID, UID)
    with open_local(str(tmp_path), app(1)) as opened:
        assert opened.owner == str(UID) and opened.record().job["name"] == "mnist"


@needs_root
def test_a_folder_that_the_portal_may_not_read_is_named(open_folder: Path) -> None:
    write_job(open_folder, app(1)).chmod(0o700)
    with as_second_user(), pytest.raises(UnsafeHistory, match="portal, may not read it") as error:
        open_local(str(open_folder), app(1))
    assert error.value.owner == ME and str(UID) in str(error.value)


SAMPLE = json.dumps(
    {
        "job": {"name": "n", "state": "FAILED", "submitted": 1.0, "started": 2.0, "tags": ["a:b"],
                "finished": 9.0, "view_acl": "u g", "queue": "q", "diagnostics": "why",
                "root_cause": {"task": "worker:0", "message": "it failed"}, "progress": 0.5,
                "roles": {"worker": {"instances": 1, "memory_mb": 1, "vcores": 1, "gpus": 1}},
                "result": {"loss": 0.5}},
        "tasks": [{"task": "worker:0", "state": "failed", "started": 2.0, "ended": 8.0}],
        "metrics": {"task": {"worker:0": {"rss_mb": [[3.0, 100.0]]}}},
    }
).encode()  # fmt: skip
EVENT = (
    b'{"n":1,"time":2.0,"kind":"task-state","task":"worker:0","session":0,'
    b'"fields":{"state":"running"}}\n'
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("fuzz"), app(1))


@fuzz(seconds=10, summary=mutations(SAMPLE), events=mutations(EVENT), owner=st.just("ann"))
def test_a_row_is_made_of_any_files(place: Path, summary: bytes, events: bytes, owner: str) -> None:
    (place / "summary.json").write_bytes(summary)
    (place / "events-0001.jsonl").write_bytes(events)
    with open_local(str(place.parent), app(1)) as folder:
        record = folder.record()
    row = build_row("here", app(1), owner, record, 5.0)
    assert (row.location, row.app_id, row.owner) == ("here", app(1), "ann")
    assert "user:ann" in row.readers and row.submitted > 0 and 0.0 <= row.progress <= 1.0
    assert all(isinstance(value, float) for value in row.figures.values())
    words_of(row).encode()
    json.dumps(row).encode()
