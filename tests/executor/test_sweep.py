"""The sweep over a process table that a test writes, and over processes that die slowly."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from typing import AbstractSet, List, Set

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Stopped
from tony_core.protocol.reactor import Reactor
from tony_executor import processes, sweep
from tony_executor.sweep import Sweep


class Table:
    """What /proc shows below us, and what waitpid has not given yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.below: Set[int] = set()
        self.unreaped: Set[int] = set()
        self.sent: List[tuple[int, int]] = []
        self.looks = 0
        monkeypatch.setattr(sweep, "descendants", self._below)
        monkeypatch.setattr(os, "kill", lambda pid, number: self.sent.append((pid, number)))

    def _below(
        self, root: int, without: AbstractSet[int] = frozenset(), sure: bool = False
    ) -> List[processes.Process]:
        return [processes.Process(pid, "p", "S", root, 0.0, 1, 1.0) for pid in self.below - without]

    def look(self) -> Set[int]:
        """Reap what can be reaped; what cannot."""
        self.looks += 1
        return set(self.unreaped)


def swept(table: Table, reactor: Reactor, grace_s: float, within: float) -> List[List[int]]:
    """Sweep; returns what the callback got."""
    done: List[List[int]] = []

    def finish(survivors: List[int]) -> None:
        done.append(survivors)
        reactor.stop()

    Sweep(reactor, grace_s, lambda: frozenset(), table.look, finish)
    reactor.call_later(within, reactor.stop)
    reactor.run()
    return done


def test_a_child_that_cannot_be_waited_for_yet_is_not_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, reactor = Table(monkeypatch), Reactor()
    table.unreaped = {4711}  # its threads still die: /proc says Z, waitpid says not yet
    reactor.call_later(0.2, table.unreaped.clear)
    began = time.monotonic()
    assert swept(table, reactor, 5.0, 3.0) == [[]]
    assert time.monotonic() - began >= 0.19
    assert table.looks > 2
    assert not table.sent, "what is dying needs no signal within the grace"


def test_one_that_never_can_be_waited_for_is_killed_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "_KILLING_S", 0.2)
    table, reactor = Table(monkeypatch), Reactor()
    table.unreaped = {4711}
    assert swept(table, reactor, 0.1, 3.0) == [[4711]]
    assert (4711, signal.SIGKILL) in table.sent


def test_nothing_is_cleared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, reactor = Table(monkeypatch), Reactor()
    assert swept(table, reactor, 5.0, 1.0) == [[]]


# The first thread ends, the process does not: /proc shows its state as Z.
HEADLESS = (
    "import ctypes, os, threading, time\n"
    "def rest():\n"
    "    while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z':\n"
    "        time.sleep(0.01)\n"
    "    os.write(1, b'headless\\n')\n"
    "    time.sleep(60)\n"
    "threading.Thread(target=rest).start()\n"
    "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread only
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers")
class TestAProcessWithoutItsFirstThread:
    def test_it_is_not_dead(self) -> None:
        with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == b"headless\n"
                found = processes.read_process(process.pid)
                assert found is not None and found.state == "Z" and not found.dead
                assert process.poll() is None
            finally:
                process.kill()

    def test_it_is_ended_before_the_next_session(self, master: Master, executor: Executor) -> None:
        (executor.work / "tony-src").mkdir()
        (executor.work / "tony-src" / "headless.py").write_text(HEADLESS)
        master.prepare(source="tony-src")
        master.start(f"exec {sys.executable} headless.py")
        master.until(lambda: "headless" in executor.log("stdout"))
        master.prepare(session=1, source="tony-src")
        assert master.expect(Ended, session=0).cause == "stopped"
        assert not master.received(Stopped, clean=False)
        assert executor.process.poll() is None
