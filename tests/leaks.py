"""What a test may not leave behind: threads, processes, sockets.

A :class:`Watch` notes what is there when it is made; :meth:`Watch.left_behind` gives what
has come since and does not go within a grace, in words. Processes of a job are often no
descendants of the test any more (a master is detached), so a process also counts when the
test's own folder, in which its TonY home lies, stands in its environment, its working folder
or its command line. Processes left behind are killed, so that the next test starts clean.

Works with several test processes at once: each looks at its own children and its own folders.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Container, Dict, FrozenSet, List, Optional, Pattern

GRACE = 20.0
"""Seconds that what is on its way out gets to go."""

_EVER_THERE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python itself keeps until it exits."""


@dataclass(frozen=True)
class Process:
    """One process, by pid and start time: pids come round again."""

    pid: int
    started: str
    parent: int
    state: str
    command: str


def processes(without: Container[str] = ()) -> Dict[int, Process]:
    """All that this user may see, by pid; without those of certain pids, which are not read."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and entry not in without:
            process = _process(int(entry))
            if process is not None:
                found[process.pid] = process
    return found


def descendants(root: int, among: Dict[int, Process]) -> List[Process]:
    """The children of a process, their children, and so on."""
    children: Dict[int, List[Process]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process)
    found: List[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child.pid)
    return found


def belonging_to(folder: Path, among: Dict[int, Process]) -> List[Process]:
    """The processes that carry a folder's name, other than this one."""
    needle = re.compile(re.escape(os.fsencode(str(folder))) + rb"(?![\w.-])")
    return [
        process
        for process in among.values()
        if process.pid != os.getpid() and process.state != "Z" and _carries(process.pid, needle)
    ]


class Watch:
    """Notes what there is; see the module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = frozenset(threading.enumerate())
        # By pid alone: to read all of a machine's processes takes longer than most tests.
        self._before = frozenset(os.listdir("/proc"))
        self._sockets = _sockets()

    def left_behind(self, grace: float = GRACE) -> List[str]:
        """What came since and stays after the grace; processes among it are killed."""
        deadline = time.monotonic() + grace
        pause = 0.005
        collected = False
        while True:
            threads = [
                thread
                for thread in threading.enumerate()
                if thread not in self._threads and not thread.daemon
            ]
            stray = self._stray()
            sockets = _sockets() - self._sockets
            if not (threads or stray or sockets):
                return []
            if not collected:
                collected = True
                gc.collect()
                continue
            if time.monotonic() >= deadline:
                break
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
        words = [f"thread {thread.name!r}" for thread in threads]
        words += [f"process {p.pid} ({p.state}): {p.command or '?'}" for p in stray]
        words += [f"open {name}" for name in sorted(sockets)]
        self._kill(stray)
        return words

    def _stray(self) -> List[Process]:
        among = processes(without=self._before)
        folders = {process.pid for process in belonging_to(self._folder, among)}
        return [
            process
            for pid, process in sorted(among.items())
            if (pid in folders or _descends_from(os.getpid(), process))
            and not any(word in process.command for word in _EVER_THERE)
        ]

    def _kill(self, stray: List[Process]) -> None:
        # What is killed may be starting others, so look again until there are none.
        for _ in range(50):
            for process in stray:
                current = _process(process.pid)
                if current is not None and current.started == process.started:
                    try:
                        os.kill(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                if process.parent == os.getpid():
                    try:
                        os.waitpid(process.pid, os.WNOHANG)
                    except ChildProcessError:
                        pass
            stray = self._stray()
            if not stray:
                return
            time.sleep(0.02)


def _process(pid: int) -> Optional[Process]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    command = raw.replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, fields[19], int(fields[1]), fields[0], command or f"[{name}]")


def _descends_from(root: int, process: Optional[Process]) -> bool:
    while process is not None and process.parent != root:
        process = _process(process.parent)
    return process is not None


def _carries(pid: int, needle: Pattern[bytes]) -> bool:
    folder = f"/proc/{pid}"
    try:
        return bool(
            needle.search(Path(folder, "cmdline").read_bytes())
            or needle.search(Path(folder, "environ").read_bytes())
            or needle.match(os.fsencode(os.readlink(f"{folder}/cwd")))
        )
    except OSError:
        return False


def _sockets() -> FrozenSet[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return frozenset(found)
