"""Staging, and what is left when it fails."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import List

import pytest

from tests.bundle.jobs import job, ref, snapshot
from tony_core.bundle import jobfolder
from tony_core.bundle.client import planning, staging, staging_errors
from tony_core.bundle.local.leases import read_leases
from tony_core.bundle.local.store import Store, StoreError
from tony_core.files.artifact import Artifact
from tony_core.job.jsonfile import job_from_json
from tony_core.job.problems import JobError
from tony_core.job.spec import Setting


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    return folder


def files_below(folder: Path) -> List[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_staged_job(tmp_path: Path, src: Path) -> None:
    root = tmp_path / "root"
    before = snapshot(src)
    what = job(src).replace(
        settings=(Setting("tony.execution.envs", "A=1", "--conf"), Setting("x.password", "pw", "-"))
    )
    plan = planning.plan(what, str(root))
    artifacts = staging.stage(plan, str(root), "app-1", what, b"\x01secret")
    folder = root / "apps" / "app-1" / "job"
    assert sorted(path.name for path in folder.iterdir()) == [
        "artifacts.json",
        "job.json",
        "secret",
        "tony-final.xml",
    ]
    assert (folder / "secret").read_bytes() == b"\x01secret"
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "job.json").stat().st_mode) == 0o600
    for path in (root, root / "store", root / "apps", folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert job_from_json((folder / "job.json").read_text()) == what
    assert "pw" not in (folder / "tony-final.xml").read_text()
    read = [
        Artifact.from_json(item) for item in json.loads((folder / "artifacts.json").read_text())
    ]
    assert tuple(read) == artifacts
    for item in artifacts:
        assert Path(item.uri).exists()
    staged = next(item for item in artifacts if item.name == "tony-src")
    assert (Path(staged.uri) / "empty").is_dir()
    assert snapshot(src) == before
    assert set(read_leases(Store(str(root)).leases)[0].digests) == {i.digest for i in artifacts}
    # Twice: nothing is put again.
    again = planning.plan(what, str(root))
    assert again.upload_bytes == 0
    staging.stage(again, str(root), "app-2", what, b"")
    jobfolder.remove(str(root), "app-1")
    assert not (root / "apps" / "app-1").exists()
    assert [lease.app_id for lease in read_leases(Store(str(root)).leases)] == ["app-2"]
    jobfolder.remove(str(root), "app-1")


def test_a_plan_with_errors_stages_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    wrong = job(tmp_path / "none")
    with pytest.raises(JobError, match="none does not exist"):
        staging.stage(planning.plan(wrong, str(root)), str(root), "app-1", wrong, b"")
    assert not root.exists()


def test_a_failure_leaves_nothing_of_the_job(tmp_path: Path, src: Path) -> None:
    root = tmp_path / "root"
    (src / "later.py").write_text("x")
    what = job(src)
    plan = planning.plan(what, str(root))
    (src / "later.py").write_text("changed")
    with pytest.raises(JobError, match=r"later.py was changed while it was being staged"):
        staging.stage(plan, str(root), "app-1", what, b"")
    assert read_leases(Store(str(root)).leases) == []
    assert files_below(root / "store" / "tmp") == []
    assert not (root / "apps" / "app-1").exists()


def test_an_interrupt_leaves_nothing_of_the_job(tmp_path: Path, src: Path) -> None:
    root = tmp_path / "root"
    plan = planning.plan(job(src), str(root))

    def interrupted(path: str) -> None:
        Path(path).mkdir()
        raise KeyboardInterrupt

    plan.uploads = (*plan.uploads[:-1], plan.uploads[-1]._replace(make=interrupted))
    with pytest.raises(KeyboardInterrupt):
        staging.stage(plan, str(root), "app-1", job(src), b"")
    assert read_leases(Store(str(root)).leases) == []
    assert files_below(root / "store" / "tmp") == []
    assert not (root / "apps" / "app-1").exists()
    assert not Store(str(root)).has(plan.uploads[-1].digest)


def test_an_application_is_staged_once(tmp_path: Path, src: Path) -> None:
    root = str(tmp_path / "root")
    staging.stage(planning.plan(job(src), root), root, "app-1", job(src), b"first")
    (tmp_path / "root" / "apps" / "app-1" / "app.json").write_text("{}")
    with pytest.raises(staging_errors.StagingError, match="staged already"):
        staging.stage(planning.plan(job(src), root), root, "app-1", job(src), b"second")


def test_an_application_id_cannot_lead_elsewhere(tmp_path: Path, src: Path) -> None:
    root = str(tmp_path / "root")
    for app_id in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="not an application id"):
            staging.stage(planning.plan(job(src), root), root, app_id, job(src), b"")


def test_a_place_that_cannot_be_written(tmp_path: Path, src: Path) -> None:
    (tmp_path / "file").write_text("")
    root = str(tmp_path / "file" / "root")
    with pytest.raises(staging_errors.StagingError, match="TONY_HOME"):
        staging.stage(planning.plan(job(src), root), root, "app-1", job(src), b"")


def test_a_loose_store_is_closed(tmp_path: Path) -> None:
    (tmp_path / "root" / "store").mkdir(parents=True)
    os.chmod(tmp_path / "root" / "store", 0o777)
    Store(str(tmp_path / "root")).prepare()
    assert stat.S_IMODE((tmp_path / "root" / "store").stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root" / "store").mkdir(parents=True)
    os.chown(tmp_path / "root" / "store", 12345, -1)
    with pytest.raises(StoreError, match="belongs to another user"):
        Store(str(tmp_path / "root")).prepare()


def test_what_is_remembered_is_saved_by_staging_only(tmp_path: Path, src: Path) -> None:
    os.utime(src / "train.py", (1, 1))
    root = tmp_path / "root"
    plan = planning.plan(job(src, files=(ref(sys.executable, "py"),)), str(root))
    assert not root.exists()
    staging.stage(plan, str(root), "app-1", job(src), b"")
    assert files_below(root / "store" / "digests")
