"""However Azkaban ends a job: its application ends too, and the log says so."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import List

import pytest

from tests.leaks import belonging_to, processes
from tests.tony_azkaban.jobs import Job, until
from tony_core.client import Client
from tony_core.schedulers.port import AppStatus

#: A server of Azkaban 2.5 kills after so long; ten times that here, on a loaded machine.
PATIENCE_S = 50.0


def status(app_id: str) -> AppStatus:
    with Client("local") as client:
        return client.scheduler.status(app_id)


def running(home: Path) -> List[str]:
    return [process.command for process in belonging_to(home, processes())]


def cancelled(job: Job) -> str:
    began = job.send()
    log = job.ends(143)
    assert time.monotonic() - began < PATIENCE_S
    assert "SIGTERM: the job is cancelled" in log
    # What a very slow machine has not ended in time goes on being asked.
    assert "KILLED" in log or "was asked to end" in log
    return log


def gone(app_id: str, home: Path) -> AppStatus:
    """Ended, and not a process of it left."""
    until(lambda: status(app_id).state.ended, "end of it")
    until(lambda: not running(home), "end of its processes")
    return status(app_id)


@pytest.mark.parametrize("what", ["sleep", "stubborn"])
def test_cancelled_while_it_runs(tmp_path: Path, tony_home: Path, what: str) -> None:
    job = Job(tmp_path, what).set({"tony.task.kill-grace": "100s"})
    with job.start():
        app_id = job.app_id
        job.until("worker:0 running")
        log = cancelled(job)
    assert f"SIGTERM: the job is cancelled; {app_id} is being ended" in log
    ended = gone(app_id, tony_home)
    assert ended.state.value == "KILLED"
    assert "cancelled: Azkaban ended the job" in ended.diagnostics


@pytest.mark.parametrize("pause", [0.02, 0.2, 0.35, 0.5, 0.7, 1.0])
def test_cancelled_at_any_time(tmp_path: Path, tony_home: Path, pause: float) -> None:
    job = Job(tmp_path, "sleep").set({"tony.task.kill-grace": "1s"})
    with job.start():
        time.sleep(pause)  # wherever it has got to by then
        job.send()
        assert job.process is not None
        # Before its first line of Python, the signal itself ends it.
        assert job.process.wait(PATIENCE_S) in (143, -signal.SIGTERM), job.log
    with Client("local") as client:
        left = client.list()
    for each in left:
        until(lambda each=each: status(each.app_id).state.ended, "end of it", job.log)  # type: ignore[misc]
    until(lambda: not running(tony_home), "end of its processes", job.log)
    if job.process.returncode == 143:
        assert "cancelled" in job.log


def test_cancelled_between_two_sessions(tmp_path: Path, tony_home: Path) -> None:
    job = Job(tmp_path, "fail").set({"tony.am.retry-count": "100"})
    with job.start():
        job.until("session 1 begins")
        cancelled(job)
        app_id = job.app_id
    assert gone(app_id, tony_home).state.value == "KILLED"


def test_killed_outright_it_ends_by_its_lease(tmp_path: Path, tony_home: Path) -> None:
    job = Job(tmp_path, "sleep").set({"tony.client.lease": "1s", "tony.task.kill-grace": "1s"})
    with job.start():
        app_id = job.app_id
        job.until("worker:0 running")
        job.send(signal.SIGKILL)
        job.ends(-signal.SIGKILL)
    assert "tony.client.lease" in gone(app_id, tony_home).diagnostics


def left_running(folder: Path) -> str:
    """An attempt that was killed outright; its application, which goes on."""
    job = Job(folder, "sleep").set({"tony.client.lease": "600s", "tony.task.kill-grace": "1s"})
    with job.start():
        app_id = job.app_id
        job.until("worker:0 running")
        job.send(signal.SIGKILL)
        job.ends(-signal.SIGKILL)
    assert not status(app_id).state.ended
    return app_id


def test_a_retry_ends_what_its_predecessor_left(tmp_path: Path, tony_home: Path) -> None:
    first = left_running(tmp_path)
    other = Job(tmp_path / "other", "show /dev/null").set({"azkaban.flow.execid": "13"})
    other.set({"azkaban.job.attempt": "1"}).run()
    assert not status(first).state.ended, "of another execution"
    log = Job(tmp_path, "show /dev/null").set({"azkaban.job.attempt": "1"}).run()
    assert f"an earlier attempt left {first} (RUNNING): it is ended" in log
    assert status(first).state.value == "KILLED"
    assert "attempt 1" in status(first).diagnostics


def test_a_retry_goes_on_with_what_its_predecessor_left(tmp_path: Path, tony_home: Path) -> None:
    first = left_running(tmp_path)
    job = Job(tmp_path, "show /dev/null", **{"tony_azkaban.retry": "attach"})
    job.set({"azkaban.job.attempt": "1"})
    with job.start():
        job.until(f"goes on with {first} (RUNNING)")
        assert job.app_id == first
        job.until("worker:0 running")
        cancelled(job)
    assert gone(first, tony_home).state.value == "KILLED"
    with Client("local") as client:
        assert [each.app_id for each in client.list()] == [first]


def test_a_retry_after_an_adoption_knows_what_was_adopted(tmp_path: Path, tony_home: Path) -> None:
    first = left_running(tmp_path)
    arguments = {
        "azkaban.flow.execid": "77",
        "azkaban.job.attempt": "1",
        "tony_azkaban.attach": first,
        "tony_azkaban.retry": "attach",
    }
    job = Job(tmp_path, "show /dev/null").set(arguments)
    with job.start():
        job.until(f"goes on with {first} (RUNNING)")
        job.until("worker:0 running")
        job.send(signal.SIGKILL)
        job.ends(-signal.SIGKILL)
    arguments.update({"azkaban.job.attempt": "2", "tony_azkaban.retry": "end"})
    log = Job(tmp_path, "show /dev/null").set(arguments).run()
    assert f"an earlier attempt left {first} (RUNNING): it is ended" in log
    assert status(first).state.value == "KILLED"


def test_a_new_execution_adopts_one(tmp_path: Path, tony_home: Path) -> None:
    first = left_running(tmp_path)
    arguments = {"azkaban.flow.execid": "77", "tony_azkaban.attach": first}
    other = Job(tmp_path / "other", "show /dev/null").set(arguments)
    other.env["JOB_NAME"] = "another"
    assert f"{first} is not an application of this job" in other.run()
    job = Job(tmp_path, "show /dev/null").set(arguments)
    with job.start():
        job.until(f"goes on with {first} (RUNNING)")
        job.until("worker:0 running")
        cancelled(job)
    assert gone(first, tony_home).state.value == "KILLED"
