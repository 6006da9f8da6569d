"""Thousands of executors and a scheduler that gives at once, round a real master.

    python -I -S benchmarks/simulated.py master FOLDER FRAMEWORK COUNT [without-history]

is a master as every scheduler starts it: ``tony_core.master.main.serve``, with the journal,
history, page and session machine of any job. Only the pool is played: it grants what is asked for
at once, writes ``launched ID`` to its output for each executor that is to be started, and reads
``ended ID`` from its input. ``without-history`` is a floor: nothing is recorded while the job runs.
:class:`Executors` are the other end: one thread that speaks the protocol over TCP for all of them,
each on a connection of its own.
"""

# ruff: noqa: E402 - nothing of ours is on the path before

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Sequence, Set, Tuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import socket

from tony_core.exit_causes import ExitCause
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job, Resources, Role, Timeouts
from tony_core.master.main import serve
from tony_core.master.recorder import Recorder
from tony_core.protocol.channel import Channel, container_key
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Heartbeat,
    Measured,
    Prepare,
    Ready,
    Register,
    Reported,
    Running,
    Shutdown,
    Start,
)
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
AGAIN_S = 0.5  # until an executor whose connection was lost calls again
PORTS = {"main": 30000}
SPREAD = 100  # heartbeats leave in so many portions a second


# ------------------------------------------------------------------ the master's process


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

    def report(self, progress: float, tracking_url: str) -> None:
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


def be_master(folder: str, framework: str, count: str, without: str = "") -> int:
    """Serve one job of that many workers."""
    if without == "without-history":
        Recorder.changed = Recorder.flush = Recorder.summarise = _nothing  # type: ignore
        Recorder.add_points = _nothing  # type: ignore[method-assign, assignment]
    role = Role("worker", int(count), Resources(), "true")
    times = Timeouts(heartbeat_s=HEARTBEAT_S)
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


# ------------------------------------------------------------------ the executors' process


class _Executor:
    """One of them: a connection, and how far it is."""

    __slots__ = ("channel", "container_id", "phase", "session", "sock", "task", "unsent")

    def __init__(self, container_id: str) -> None:
        self.container_id = container_id
        self.task = ""
        self.session = -1
        self.phase = "idle"

    def connect(self, sock: Any) -> None:
        """Speak over this socket from now on."""
        self.sock = sock
        key = container_key(SECRET, self.container_id)
        self.channel = Channel(key, dialler=True, container_id=self.container_id)
        self.unsent = b""


def address_of(number: int) -> str:
    """From where a connection calls: few of one address, or the kernel looks long for a port."""
    return f"127.0.{1 + number // 500}.1"


class Executors:
    """All of them, on the thread of :meth:`run_until`."""

    def __init__(self, address: Tuple[str, int], gone: Callable[[str], None]) -> None:
        self._address = address
        self._gone = gone
        self._poll = select.epoll()
        self._by_number: Dict[int, _Executor] = {}
        self._portion = 0
        self._beat_at = 0.0
        self.spec_bytes = 0
        self.specs: List[float] = []  # when each had what its program needs
        self.acknowledged = 0
        self.beats = 0
        self.measures_every = 0  # heartbeats, measures and a report of the program; 0: never
        self._round = 0
        self.calls_again = 0
        self._finalizer = False
        self._waiting: Deque[Tuple[float, _Executor]] = deque()  # to call again

    def __len__(self) -> int:
        return len(self._by_number)

    def start(self, container_id: str) -> None:
        """One more, which calls the master."""
        self._call(_Executor(container_id))

    def _call(self, executor: _Executor) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = sock.fileno()
        sock.bind((address_of(number), 0))
        sock.connect_ex(self._address)  # never waited for: the others must go on speaking
        executor.connect(sock)
        self._by_number[number] = executor
        self._poll.register(number, select.EPOLLIN | select.EPOLLOUT)
        first = Register(
            executor.container_id, "127.0.0.1", 40000, 1, "0",
            executor.task, executor.session, executor.phase, PORTS if executor.task else {},
        )  # fmt: skip
        self._send(executor, first)

    def run_until(
        self, what: Callable[[], object], within_s: float, beating: bool = False, why: str = ""
    ) -> None:
        """Speak for all of them until something is so."""
        end = time.monotonic() + within_s
        while not what():
            if time.monotonic() > end:
                sys.exit(f"waited {within_s:g} s for {why}: it did not come")
            self.turn(beating)

    def turn(self, beating: bool = False) -> None:
        """Hear what came; let those whose turn it is beat."""
        for number, events in self._poll.poll(1.0 / SPREAD, 1024):
            executor = self._by_number.get(number)
            if executor is None:
                continue
            if events & select.EPOLLOUT:
                self._poll.modify(number, select.EPOLLIN)
                self._write(executor)
            if events & ~select.EPOLLOUT:
                self._readable(executor)
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            self._call(self._waiting.popleft()[1])
        now = time.monotonic()
        self._beat_at = max(self._beat_at, now - HEARTBEAT_S)  # not more than once around
        while beating and now >= self._beat_at:
            self._beat_at += HEARTBEAT_S / SPREAD
            self._portion = (self._portion + 1) % SPREAD
            self._round += not self._portion
            for number in list(self._by_number):
                if number % SPREAD == self._portion:
                    executor = self._by_number[number]
                    every = self.measures_every
                    if every and (self._round + number // SPREAD) % every == 0:
                        self._measure(executor)
                    self._send(executor, Heartbeat())
                    self.beats += 1

    def _measure(self, executor: _Executor) -> None:
        """What an executor measures and a program reports, four metrics and three."""
        now, session = time.monotonic(), executor.session
        executor.channel.send(
            Measured(session, {"cpu": now % 8, "rss_mb": now % 999, "gpu_util": now % 100,
                               "gpu_mem_mb": now % 40_000})
        )  # fmt: skip
        executor.channel.send(Reported(session, now % 1, {"loss": 1 / now, "rate": now}, int(now)))

    def end_all(self) -> None:
        """Every program ends well."""
        self._finalizer = True
        for executor in list(self._by_number.values()):
            self._send(executor, Ended(executor.session, 0))

    def close(self) -> None:
        """Hang up."""
        self._finalizer = True
        for executor in list(self._by_number.values()):
            self._close(executor)
        self._poll.close()

    def _send(self, executor: _Executor, message: Any) -> None:
        executor.channel.send(message)
        self._write(executor)

    def _write(self, executor: _Executor) -> None:
        executor.unsent += executor.channel.outgoing()
        if executor.unsent:
            try:
                executor.unsent = executor.unsent[executor.sock.send(executor.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                pass  # reading tells it, too

    def _readable(self, executor: _Executor) -> None:
        try:
            data = executor.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._call_again(executor)
            return
        for message in executor.channel.receive(data):
            if isinstance(message, Prepare):
                executor.task, executor.session = message.task, message.session
                executor.phase = "ready"
                executor.channel.send(Ready(message.session, "10.11.12.13", PORTS))
            elif isinstance(message, Start):
                self.specs.append(time.monotonic())
                self.spec_bytes = max(map(len, message.shared.values()), default=0)
                executor.phase = "running"
                executor.channel.send(Running(message.session, 4711))
            elif isinstance(message, Acknowledge):
                self.acknowledged += 1
            elif isinstance(message, Shutdown):
                self._close(executor)
                return
        self._write(executor)

    def _call_again(self, executor: _Executor) -> None:
        """As an executor does whose connection was lost."""
        if self._by_number.pop(executor.sock.fileno(), None) is not None:
            executor.sock.close()
            self.calls_again += 1
            if not self._finalizer:
                self._waiting.append((time.monotonic() + AGAIN_S, executor))
            else:
                self._gone(executor.container_id)

    def _close(self, executor: _Executor) -> None:
        if self._by_number.pop(executor.sock.fileno(), None) is not None:
            executor.sock.close()
            self._gone(executor.container_id)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    sys.exit(be_master(*words) if verb == "master" else 2)
