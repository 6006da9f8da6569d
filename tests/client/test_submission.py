"""From a job to a running application, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

import pytest

from tests.client.scripted import Scripted
from tests.hadoop.kerberos.test_files import KEYTAB
from tony_core.bundle import jobfolder
from tony_core.client.submission import load, prepare, send
from tony_core.job.load import JobArguments
from tony_core.job.problems import JobError
from tony_core.job.spec import Job
from tony_core.schedulers.port import SchedulerError


def job(tmp_path: Path, *conf: str) -> Job:
    source = tmp_path / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text("print('hello')\n")
    words = ["tony.application.framework=standalone", *conf]
    arguments = JobArguments(executes="python train.py", src_dir=str(source), conf=words)
    return load(arguments, cwd=str(tmp_path)).job


def files_below(root: Path) -> List[str]:
    return sorted(
        str(Path(folder, name).relative_to(root))
        for folder, _, names in os.walk(root)
        for name in names
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tony-home"


def test_everything_is_there_when_the_master_starts(tmp_path: Path, root: Path) -> None:
    scheduler = Scripted(str(root))
    prepared = prepare(scheduler, job(tmp_path))
    assert not root.exists()  # nothing was written to find out
    app_id = send(scheduler, prepared)
    ((submitted, submission, secret),) = scheduler.submitted
    folder = Path(jobfolder.path(str(root), app_id))
    assert submitted == app_id
    assert len(secret) == 32
    assert (folder / "secret").read_bytes() == secret
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert {item.name for item in submission.artifacts} >= {"tony-runtime", "tony-src"}
    assert all(Path(item.uri).exists() for item in submission.artifacts)


def test_the_files_of_the_clients_login_stay_here(tmp_path: Path, root: Path) -> None:
    """And all others of the kind, if the caller wants that."""
    scheduler, one = Scripted(str(root)), job(tmp_path)
    (tmp_path / "src" / "mine").write_bytes(KEYTAB)
    prepare(scheduler, one)
    with pytest.raises(JobError, match="mine is a keytab of this machine"):
        prepare(scheduler, one, refuse_logins=True)
    scheduler.login_files = (str(tmp_path / "src" / "mine"), str(tmp_path / "none"))
    with pytest.raises(JobError, match="and no job takes that along"):
        prepare(scheduler, one)
    assert not root.exists()


def test_two_submits_have_two_secrets(tmp_path: Path, root: Path) -> None:
    scheduler = Scripted(str(root))
    for _ in range(2):
        send(scheduler, prepare(scheduler, job(tmp_path)))
    assert scheduler.submitted[0][2] != scheduler.submitted[1][2]


@pytest.mark.parametrize("error", [SchedulerError("no"), KeyboardInterrupt(), OSError("disk")])
def test_a_submit_that_fails_leaves_content_only(
    tmp_path: Path, root: Path, error: BaseException
) -> None:
    scheduler = Scripted(str(root))
    scheduler.refusal = error
    with pytest.raises(type(error)):
        send(scheduler, prepare(scheduler, job(tmp_path)))
    left = [name for name in files_below(root) if "/objects/" not in f"/{name}"]
    assert not [name for name in left if "secret" in name or "job" in name or "lease" in name], left
    assert not (root / "apps" / "app_1_0001").exists()


def test_the_job_is_refused_with_every_reason_and_nothing_written(
    tmp_path: Path, root: Path
) -> None:
    scheduler = Scripted(str(root))
    scheduler.problems = ["worker wants 4 GPUs, this machine has none", "no queue ml"]
    with pytest.raises(JobError, match=r"(?s)4 GPUs.*no queue ml"):
        prepare(scheduler, job(tmp_path))
    assert not root.exists()


def test_missing_files_are_found_before_anything(tmp_path: Path) -> None:
    words = ["tony.containers.resources=/not/there/data.bin", "tony.worker.instances=1"]
    arguments = JobArguments(executes="x", src_dir="/not/there/src", conf=words)
    with pytest.raises(JobError) as caught:
        load(arguments, cwd=str(tmp_path))
    assert {problem.key for problem in caught.value.problems} == {
        "tony.client.src-dir",
        "tony.containers.resources",
    }


def test_a_framework_that_is_none(tmp_path: Path) -> None:
    arguments = JobArguments(executes="x", conf=["tony.application.framework=pytroch"])
    with pytest.raises(JobError, match=r"pytroch.*did you mean pytorch"):
        load(arguments, cwd=str(tmp_path))


def test_before_start_comes_when_all_is_staged(tmp_path: Path, root: Path) -> None:
    scheduler = Scripted(str(root))
    seen: List[bool] = []

    def before() -> None:
        seen.append(Path(jobfolder.path(str(root), "app_1_0001"), "job.json").exists())
        seen.append(bool(scheduler.submitted))

    send(scheduler, prepare(scheduler, job(tmp_path)), before)
    assert seen == [True, False]
