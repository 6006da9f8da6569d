"""Thousands of executors round a real master, and the gang of both.

:class:`Master` is a process of its own (``simulated_master.py``). :class:`Executors` are the other
end: one thread that speaks the protocol over TCP for all of them, each on a connection of its own.
:class:`Gang` brings both up, and to their end.
"""

from __future__ import annotations

import json
import math
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, Any, Callable, Deque, Dict, List, Tuple

from measuring import rss_kb, until
from simulated_master import HEARTBEAT_S, SECRET  # puts tony_core on the path

from tony_core.measures import CPU_PERCENT, GPU_MEMORY_MB, GPU_PERCENT, RSS_MB
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

MASTER = str(Path(__file__).with_name("simulated_master.py"))
AGAIN_S = 0.5  # until an executor whose connection was lost calls again
PORTS = {"main": 30000}
SPREAD = 100  # heartbeats leave in so many portions a second
SPARE_FILES = 100  # besides the connections
WITHIN_S = 300.0


class Master:
    """The master's process, and what it says."""

    def __init__(self, folder: Path, framework: str, count: int, *options: str) -> None:
        words = [MASTER, str(folder), framework, str(count), *options]
        self.process, self._out = start_bare(words, folder)
        self.granted = self.finished = 0.0
        self._launched: Deque[str] = deque()
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: (folder / "state" / "master.json").exists(), "the master's port")
        address = json.loads((folder / "state" / "master.json").read_text())
        self.address: Tuple[str, int] = (address["host"], int(address["port"]))
        self.page_url = str(address["page_url"])

    def _read(self) -> None:
        # A thread of its own: a master whose output is not read would block.
        for line in self._out:
            verb, *words = line.decode().split()
            if verb == "granted":
                self.granted = float(words[0])
            elif verb == "launched":
                self._launched.append(words[0])
            elif verb == "finished":
                self.finished = float(words[1])

    def receive(self) -> List[str]:
        """Some executors that are to be started now."""
        return [self._launched.popleft() for _ in range(min(32, len(self._launched)))]

    def gone(self, container_id: str) -> None:
        """An executor has exited."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"ended {container_id}\n".encode())

    def has_ended(self) -> bool:
        """Whether its job has ended."""
        assert self.process.stdin is not None
        self.process.stdin.flush()
        return bool(self.finished) or self.process.poll() is not None

    def kill(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # what was still to be written


def start_bare(words: List[str], folder: Path) -> Tuple[subprocess.Popen[bytes], IO[bytes]]:
    """A Python process as a node's, and its output; its errors are in the folder."""
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=1 << 16,
        )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout


def enough_files(count: int) -> None:
    """Raise the limit for us and those we start, as far as it can be."""
    wanted = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(f"{count} connections need {wanted} open files, the limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Executor:
    """One of them: a connection, and how far it is."""

    __slots__ = (
        "channel", "container_id", "phase", "sends_every", "session", "sock", "task", "unsent",
    )  # fmt: skip

    def __init__(self, container_id: str) -> None:
        self.container_id = container_id
        self.task = ""
        self.session = -1
        self.phase = "idle"
        self.sends_every = 1  # heartbeats, its measures and reports, as the master says

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
                    if self.measures_every:
                        self._measure(executor, self._round + number // SPREAD)
                    self._send(executor, Heartbeat())
                    self.beats += 1

    def _measure(self, executor: _Executor, beat: int) -> None:
        """What an executor measures and a program reports, four metrics and three.

        As seldom as the master says: of many tasks it hears less often.
        """
        if beat % max(self.measures_every, executor.sends_every, 1):
            return
        now, session = time.monotonic(), executor.session
        executor.channel.send(
            Measured(session, {CPU_PERCENT: now % 800, RSS_MB: now % 999,
                               GPU_PERCENT: now % 100, GPU_MEMORY_MB: now % 40_000})
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
                executor.sends_every = math.ceil(message.sending_interval_s / HEARTBEAT_S)
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


class Gang:
    """A master and all its executors, up while it is a context."""

    def __init__(self, framework: str, count: int, *options: str) -> None:
        self.count = count
        self._folder = tempfile.TemporaryDirectory(prefix="simulated-")
        self.folder = Path(self._folder.name)
        self.master = Master(self.folder, framework, count, *options)
        self.pid = self.master.process.pid
        self.empty_kb = rss_kb(self.pid)  # of the master, before its first container
        self.executors = Executors(self.master.address, self.master.gone)

    def __enter__(self) -> Gang:
        try:
            self._bring_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _bring_up(self) -> None:
        executors, end = self.executors, time.monotonic() + WITHIN_S
        while len(executors.specs) < self.count:
            if time.monotonic() > end or self.master.process.poll() is not None:
                output = (self.folder / "stderr").read_text()[-3000:]
                sys.exit(
                    f"{len(executors.specs)} of {self.count} are ready, {executors.calls_again}"
                    f" called again; the master:\n{output}"
                )
            for container_id in self.master.receive():
                executors.start(container_id)
            executors.turn(beating=True)

    def __exit__(self, *_error: object) -> None:
        self.executors.close()
        self.master.kill()
        self._folder.cleanup()

    def beat(self, seconds: float) -> None:
        """Let all of them beat for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executors.turn(beating=True)

    def end(self) -> float:
        """End every program well; the seconds from the last one's end to the job's."""
        ended = time.monotonic()
        self.executors.end_all()
        self.executors.run_until(self.master.has_ended, WITHIN_S, why="the job's end")
        self.master.process.wait(60)
        return self.master.finished - ended
