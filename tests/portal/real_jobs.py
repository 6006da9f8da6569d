"""A real job on a real scheduler, as the portal shows it while it runs and afterwards."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from tests.cluster.yarn.jobs import Running, until
from tony_core.files.location import join
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory, read_config, read_job
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_source import LogProblem
from tony_core.portal.live_jobs import LiveJobs
from tony_core.portal.schedulers import SchedulerPool
from tony_core.portal.sources import PortalJob, Sources
from tony_core.portal.viewer import Viewer

PROGRAM = """
import os, sys, time
print("first line", flush=True)
print("to stderr", file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("x" * 1500000)
print("last line", flush=True)
sys.exit(int(sys.argv[2]))
"""


class Folder:
    """A history folder, without the portal's rules."""

    def __init__(self, root: str, app_id: str, owner: str) -> None:
        self.owner = owner
        self._root, self._app_id = root, app_id

    def record(
        self,
        events: bool = True,
        metrics: Wanted | None = None,
        known: JobHistory | None = None,
    ) -> JobHistory:
        return read_job(self._root, self._app_id, events)

    def metrics_json(self) -> Optional[bytes]:
        return None

    def config(self) -> Optional[bytes]:
        return read_config(self._root, self._app_id)


class RealPortal:
    """What a service puts together, over one scheduler and one history location."""

    def __init__(
        self, scheduler: str, env: Mapping[str, str], root: str, *, is_for_many: bool = False
    ) -> None:
        self._root = root
        self.pool = SchedulerPool((scheduler,), is_for_many=is_for_many, env=env)
        self.live = LiveJobs(self.pool)
        self.sources = Sources(self.pool, self.live, self._open)
        self.live.start()

    def close(self) -> None:
        self.live.close(30.0)
        self.sources.close()
        self.pool.close()

    def job(self, app_id: str, owner: str, viewer: str = "") -> PortalJob:
        """The job of that owner, as a row of the index would name it."""
        row = JobRow("main", app_id, owner, state="RUNNING")
        return self.sources.open(self.live.overlay([row])[0], Viewer(viewer or owner))

    @contextlib.contextmanager
    def _open(self, row: JobRow) -> Iterator[Folder]:
        yield Folder(self._root, row.app_id, row.owner)


def write_program(folder: Path) -> Path:
    """The program, which goes on when ``folder/go`` is there."""
    path = folder / "train.py"
    path.write_text(PROGRAM)
    return path


def look_while_running(portal: RealPortal, running: Running, owner: str) -> None:
    """From the submit on: listed, its page, its log as it grows."""
    app_id = running.app_id
    found = until(
        lambda: [job for job in portal.live.jobs() if job.status.app_id == app_id], "on the list"
    )
    assert found[0].owner == owner

    def page() -> Any:
        record = portal.job(app_id, owner).record(metrics=False)
        return record if not record.problems and record.tasks else None

    record = running.until(page, "its page's answer")
    assert record.job["user"] == owner
    assert record.tasks[0]["task"] == "worker:0"

    def first_line() -> bool:
        with contextlib.suppress(LogProblem):
            return b"first line\n" in portal.job(app_id, owner).log(
                "worker:0", "stdout", "", 0, 100
            ).data  # fmt: skip
        return False

    running.until(first_line, "the first line")
    job = portal.job(app_id, owner)
    assert job.is_running
    chunk = job.log("worker:0", "stdout", "", -1000, 1000)
    assert (chunk.data, chunk.offset, chunk.over) == (b"first line\n", 0, False)
    after = job.log("worker:0", "stdout", "", 11, 1000)
    assert (after.data, after.size, after.over) == (b"", 11, False), "followed"
    names = {name for _, name in job.streams("worker:0")}
    assert {"stdout", "stderr", "executor.log"} <= names
    assert job.events(0)[0]
    masters = job.streams("am")
    assert any(name.endswith("stderr") for _, name in masters), masters
    assert job.links()["page"].startswith("http")


def read_whole(job: PortalJob, task: str, name: str, part: int = 1 << 20) -> bytes:
    """A log by ranges, as a log viewer reads it."""
    found = b""
    for _ in range(100):
        chunk = job.log(task, name, "", len(found), part)
        assert chunk.offset == len(found)
        found += chunk.data
        if chunk.over:
            assert chunk.size == len(found)
            return found
        assert chunk.data, "an ended log that is not over has more"
    raise AssertionError("a log without end")


def look_when_ended(portal: RealPortal, app_id: str, owner: str, state: str) -> None:
    """From history, with logs by ranges."""
    until(lambda: not portal.job(app_id, owner).is_running, "it is not listed any more")
    record = until(lambda: _ended(portal.job(app_id, owner)), "its end in history")
    assert record.job["state"] == state
    job = portal.job(app_id, owner)
    # YARN moves logs when the application has ended: until then a node has them.
    whole = until(lambda: _complete(job), "its log", 120.0)
    assert whole == b"first line\n" + b"x" * 1500000 + b"\nlast line\n"
    assert job.log("worker:0", "stdout", "", -10, 100).data == b"last line\n"
    assert read_whole(job, "worker:0", "stderr") == b"to stderr\n"
    assert not any(name in job.links() for name in ("page", "tensorboard"))
    assert {entry.key for entry in job.config()} >= {"tony.worker.instances"}


def _ended(job: PortalJob) -> Optional[JobHistory]:
    record = job.record()
    return record if record.tasks and record.job["finished"] and not record.problems else None


def _complete(job: PortalJob) -> Optional[bytes]:
    try:
        found = read_whole(job, "worker:0", "stdout")
    except LogProblem:
        return None
    return found if found.endswith(b"last line\n") else None


def other_owner(portal: RealPortal, app_id: str) -> Tuple[List[Any], str]:
    """What a folder of another user with this job's id gives: its files, and nothing else."""
    eves = portal.job(app_id, "eve")
    assert not eves.is_running
    try:
        eves.log("worker:0", "stdout", "", 0, 100)
    except LogProblem as error:
        return list(eves.record().problems), str(error)
    raise AssertionError("another user's history read this job's log")


def history_root(home: Path) -> str:
    """The embedded scheduler's own."""
    return join(str(home), "history")
