"""A real master whose scheduler gives at once: the process that ``simulated.py`` starts.

    python -I -S benchmarks/simulated_master.py FOLDER FRAMEWORK COUNT [OPTION...]

is a master as every scheduler starts it: ``tony_core.master.main.serve``, with the journal,
history, page and session machine of any job. Only the pool is played: it grants what is asked for
at once, writes ``launched ID`` to its output for each executor that is to be started, and reads
``ended ID`` from its input. ``without-history`` is a floor: nothing is recorded while the job runs;
``stall-watch`` sets ``tony.task.stall-timeout``.
"""

# ruff: noqa: E402 - nothing of ours is on the path before

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Callable, List, Sequence, Set

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tony_core.exit_causes import ExitCause
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job, Resources, Role, Timeouts
from tony_core.master.main import serve
from tony_core.master.recorder import Recorder
from tony_core.schedulers.container_pool import (
    Allocated,
    Completed,
    Container,
    ContainerPool,
    ContainerRequest,
    Launch,
    MasterContext,
    PoolEvent,
    PoolInfo,
    Started,
)
from tony_core.schedulers.port import AppState

SECRET = b"a secret that is worth nothing.."
HEARTBEAT_S = 1.0
STALL_S = 600.0
WITHOUT_HISTORY, STALL_WATCH = "without-history", "stall-watch"


class GivingPool(ContainerPool):
    """Grants what is asked for, at once; others start what is to be started."""

    def __init__(self) -> None:
        self._sink: Callable[[PoolEvent], None] = lambda event: None
        self._given = 0
        self._open: Set[str] = set()
        self._launched: List[str] = []

    def start(self, sink: Callable[[PoolEvent], None], page_url: str) -> PoolInfo:
        self._sink = sink
        threading.Thread(target=self._read, daemon=True).start()
        return PoolInfo("simulated", 1, "user", "default")

    def request(self, requests: Sequence[ContainerRequest], gang: bool) -> None:
        given = []
        for request in requests:
            for _ in range(request.count):
                self._given += 1
                name = f"container_1700000000000_0001_01_{self._given:06}"
                node = f"node{self._given // 4:05}.example.com:45454"
                given.append(Container(name, node, request.role, request.resources))
        if given:
            _log("granted")
            self._sink(Allocated(tuple(given)))

    def launch(self, container: Container, launch: Launch) -> None:
        self._open.add(container.id)
        _log(f"launched {container.id}")
        self._sink(Started(container.id))

    def release(self, container_id: str) -> None:
        pass

    def stop(self, container_id: str) -> None:
        self._end(container_id, ExitCause.RELEASED)

    def report(self, progress: float, tracking_url: str, trouble: str = "") -> None:
        pass

    def finish(self, state: AppState, diagnostics: str, tracking_url: str = "") -> None:
        _log(f"finished {state.value}")

    def close(self) -> None:
        pass

    def _end(self, container_id: str, cause: ExitCause) -> None:
        if container_id in self._open:
            self._open.discard(container_id)
            self._sink(Completed(container_id, 0, cause))

    def _read(self) -> None:
        for line in sys.stdin:
            self._end(line.split()[1], ExitCause.EXITED)
        os._exit(1)  # the measuring process is gone


def _nothing(*args: object, **more: object) -> None:
    pass


def _log(text: str) -> None:
    os.write(1, f"{text} {time.monotonic()}\n".encode())


def be_master(folder: str, framework: str, count: str, *options: str) -> int:
    """Serve one job of that many workers."""
    if WITHOUT_HISTORY in options:
        Recorder.changed = Recorder.flush = Recorder.summarise = _nothing  # type: ignore[method-assign]
        Recorder.add_points = _nothing  # type: ignore[method-assign]
    role = Role("worker", int(count), Resources(), "true")
    stall_s = STALL_S if STALL_WATCH in options else None
    times = Timeouts(heartbeat_s=HEARTBEAT_S, stall_s=stall_s)
    job = Job("many", (role,), framework=framework, user="user", timeouts=times)
    root = Path(folder)
    for name in ("job", "work", "state", "history"):
        (root / name).mkdir()
    (root / "job" / "job.json").write_text(job_to_json(job))
    (root / "job" / "artifacts.json").write_text("[]")
    context = MasterContext(
        app_id="simulated",
        attempt=1,
        job_dir=str(root / "job"),
        work_dir=str(root / "work"),
        state_dir=str(root / "state"),
        history_dir=str(root / "history"),
        secret=SECRET,
    )
    return serve(context, GivingPool())


if __name__ == "__main__":
    sys.exit(be_master(*sys.argv[1:]))
