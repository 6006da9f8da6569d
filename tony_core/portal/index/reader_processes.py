"""Processes that read many jobs, or large ones, for the index.

A history of hundreds of megabytes, or a hundred thousand of them after an update, would keep the
portal's own interpreter from its pages, and leave it with the memory that the largest one took. So
such work is done by processes that live as long as the work. A job that ends its process (the
kernel lacked memory) is a job with a problem.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from typing import Any, Deque, Iterator, List, Tuple

from tony_core.portal.index import reading
from tony_core.portal.index.build import problem_row, words_of
from tony_core.portal.index.entries import AGAIN, Entry
from tony_core.portal.index.reading import Outcome, Request
from tony_core.portal.job_folders import Fingerprint
from tony_core.portal.settings import HistoryLocation

PROCESSES = 2
CHUNK = 40
"""Jobs of one request."""

CHUNK_S = 300.0
"""How long a process may take for one; then it is ended."""

_IN_FLIGHT = 2  # chunks that a process has, so that it never waits for the next


class ReaderProcess:
    """One process, and the chunks that it has not answered."""

    def __init__(self, location: HistoryLocation) -> None:
        path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
        self._process = subprocess.Popen(
            [sys.executable, "-m", reading.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        self._answer = bytearray()
        self.chunks: Deque[List[Request]] = deque()
        self._since = time.monotonic()
        self._send(location._asdict())

    def _send(self, data: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data).encode() + b"\n")
        except BrokenPipeError:
            pass  # it has ended: reading its answer finds that

    def fileno(self) -> int:
        """What can be read when there is an answer."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ask(self, chunk: List[Request]) -> None:
        """Hand over a chunk."""
        if not self.chunks:
            self._since = time.monotonic()
        self.chunks.append(chunk)
        self._send(chunk)

    def is_late(self) -> bool:
        """Whether it has taken too long for a chunk."""
        return bool(self.chunks) and time.monotonic() - self._since > CHUNK_S

    def read(self) -> Iterator[List[Outcome]]:
        """The answers that are there; raises OSError of a location, EOFError of the process."""
        block = os.read(self.fileno(), 1 << 20)
        if not block:
            raise EOFError
        self._answer += block
        while b"\n" in self._answer:
            line, _, rest = self._answer.partition(b"\n")
            self._answer = rest
            answer = json.loads(line)
            self._since = time.monotonic()
            if "problem" in answer:
                raise OSError(*answer["problem"])
            self.chunks.popleft()
            yield [reading.outcome_from_json(each) for each in answer["outcomes"]]

    def close(self) -> str:
        """End it; returns how it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        if self.chunks:
            self._process.kill()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        return f"exit code {self._process.returncode}"


class ReaderProcesses:
    """Jobs of one location that are to be read by processes. For one thread."""

    def __init__(self, location: HistoryLocation) -> None:
        self._location = location
        self._waiting: Deque[List[Request]] = deque()
        self._running: List[ReaderProcess] = []

    def __len__(self) -> int:
        """How many jobs wait or are being read."""
        chunks = [*self._waiting, *(chunk for each in self._running for chunk in each.chunks)]
        return sum(len(chunk) for chunk in chunks)

    def add(self, requests: List[Request]) -> None:
        """Read these, after those before."""
        for at in range(0, len(requests), CHUNK):
            self._waiting.append(requests[at : at + CHUNK])

    def results(self, timeout_s: float) -> List[Outcome]:
        """What has been read, within a time.

        Raises the OSError of a location; then :meth:`close` forgets what was to be read.
        """
        self._hand_over()
        if not self._running:
            return []
        ready: Tuple[List[ReaderProcess], Any, Any]
        ready = select.select(self._running, [], [], timeout_s)
        found: List[Outcome] = []
        for process in ready[0]:
            try:
                for outcomes in process.read():
                    found += outcomes
            except EOFError:
                found += self._lost(process)
        for process in [each for each in self._running if each.is_late()]:
            found += self._lost(process)
        if not len(self):
            self.close()
        return found

    def _hand_over(self) -> None:
        wanted = min(PROCESSES, len(self._waiting))
        while len(self._running) < wanted:
            self._running.append(ReaderProcess(self._location))
        for process in sorted(self._running, key=lambda each: len(each.chunks)):
            # One that may end its process is read without others that could be taken for it.
            while self._waiting and len(process.chunks) < (
                1 if len(self._waiting[0]) == 1 else _IN_FLIGHT
            ):
                process.ask(self._waiting.popleft())

    def _lost(self, process: ReaderProcess) -> List[Outcome]:
        """A process has ended over a chunk: its jobs are read one by one, to find out which."""
        self._running.remove(process)
        how = process.close()
        chunks = list(process.chunks)
        if not chunks:
            return []
        if len(chunks[0]) == 1:
            self._waiting.extendleft(reversed(chunks[1:]))
            return [self._refuse(chunks[0][0], how)]
        self._waiting.extendleft([request] for chunk in chunks for request in reversed(chunk))
        return []

    def _refuse(self, request: Request, how: str) -> Outcome:
        why = f"reading it ended the process that did ({how}): it needs too much memory or time"
        row = problem_row(self._location.name, request.app_id, "", why, time.time())
        made = Fingerprint(AGAIN, row.submitted)
        return Outcome(request.app_id, made, Entry(row, words_of(row), made))

    def close(self) -> None:
        """End the processes; what waits is forgotten."""
        self._waiting.clear()
        while self._running:
            self._running.pop().close()
