"""Processes of this machine, as /proc shows them: identity, descent, memory.

A pid is given again sooner or later; with the start time and the boot's id it names one
process for good. All that asks "does it still run" asks by such an :class:`ProcessIdentity`.

Light, standard library only, Python 3.8: the shim beside every container imports it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
)

from tony_core.exit_causes import SHELL_KEEPER

PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 1 << 20
CALM_S = 0.25  # between two measurements
NEAR_S = 0.05  # ... when four fifths of the limit are in use
SHELL_WORDS = "a process of tony shell"


def boot_id() -> str:
    """The id of this boot of the machine."""
    return _text("/proc/sys/kernel/random/boot_id").strip()


def host() -> str:
    """This machine's host name."""
    return os.uname().nodename


def start_time(pid: int) -> Optional[int]:
    """When it started, in ticks since boot; None when it does not run (any more)."""
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


class ProcessIdentity(NamedTuple):
    """A process, identified for good: its pid may be used again."""

    pid: int
    start: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Optional[ProcessIdentity]:
        """The process that has this pid now, if one has."""
        start = start_time(pid)
        return None if start is None else cls(pid, start, boot_id())

    @classmethod
    def mine(cls) -> ProcessIdentity:
        """This process."""
        return cls(os.getpid(), start_time(os.getpid()) or 0, boot_id())

    @classmethod
    def from_json(cls, data: Optional[Mapping[str, object]]) -> Optional[ProcessIdentity]:
        """Read what :meth:`to_json` wrote; None when it names no process."""
        if not data or "pid" not in data:
            return None
        try:
            return cls(int(str(data["pid"])), int(str(data["start"])), str(data["boot"]))
        except (KeyError, ValueError):
            return None

    def to_json(self) -> Dict[str, object]:
        """Plain data."""
        return {"pid": self.pid, "start": self.start, "boot": self.boot}

    def alive(self, boot: Optional[str] = None) -> bool:
        """Whether it still runs; ``boot`` spares reading the boot's id once more."""
        if self.boot != (boot_id() if boot is None else boot):
            return False
        return start_time(self.pid) == self.start

    def send(self, number: int) -> bool:
        """Send it a signal; False when it does not run any more."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def all_pids() -> List[int]:
    """Every pid of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> List[int]:
    """Children, their children, and so on; zombies included.

    A process that starts meanwhile may be missed: to kill all, list again until none is left.
    """
    found: List[int] = []
    todo = [root]
    while todo:
        children = _children(todo.pop())
        if children is None:
            return _descendants_by_parent([root])
        found += children
        todo += children
    return found


def has_mark(pid: int, mark: bytes) -> bool:
    """Whether it has this ``NAME=value`` in its environment."""
    return mark in _bytes("/proc/%d/environ" % pid).split(b"\0")


def list_container_pids(container_id: str) -> List[int]:
    """The processes of a container, whatever their parents are now.

    By the mark in the environment that every process of a container inherits, and, for those
    that threw their environment away, by descent and session.
    """
    mark = b"TONY_CONTAINER_ID=" + os.fsencode(container_id)
    found: Set[int] = set()
    sessions: Set[int] = set()
    for pid in all_pids():
        if has_mark(pid, mark):
            fields = _stat(pid)
            if fields is None or fields[0] in ("Z", "X"):
                continue
            found.add(pid)
            sessions.add(int(fields[3]))
    # Only a session that began inside the container is the container's own.
    sessions &= found
    for pid in all_pids():
        fields = _stat(pid)
        if fields is not None and fields[0] not in ("Z", "X") and int(fields[3]) in sessions:
            found.add(pid)
    found.update(pid for pid in _descendants_by_parent(found) if start_time(pid) is not None)
    found.discard(os.getpid())
    return sorted(found)


def kill_container(container_id: str, deadline_s: float = 5.0) -> List[int]:
    """Kill all that :func:`list_container_pids` finds; returns what is left."""
    end = time.monotonic() + deadline_s
    while True:
        left = list_container_pids(container_id)
        if not left or time.monotonic() > end:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(0.01)


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 when it has ended."""
    fields = _text("/proc/%d/statm" % pid).split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0


def command(pid: int, limit: int = 120) -> str:
    """The command line of a process, cut to ``limit`` characters; never the words of a shell."""
    if _is_of_shell(pid):
        return SHELL_WORDS
    words = _bytes("/proc/%d/cmdline" % pid).replace(b"\0", b" ").decode("utf-8", "replace")
    text = words.strip() or "[%s]" % _text("/proc/%d/comm" % pid).strip()
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _is_of_shell(pid: int) -> bool:
    """Whether it keeps a shell of ``tony shell``, or descends from one that does."""
    seen: Set[int] = set()
    while pid > 1 and pid not in seen:
        if _text("/proc/%d/comm" % pid).strip() == SHELL_KEEPER:
            return True
        seen.add(pid)
        fields = _stat(pid)
        if fields is None:
            return False
        pid = int(fields[1])
    return False


def state(pid: int) -> str:
    """The state letter of /proc; empty when there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def set_subreaper(enabled: bool = True) -> bool:
    """Make orphans among our descendants our children (or no longer); False if that fails."""
    try:
        # The ctypes package on top of this costs a megabyte and a half.
        import _ctypes

        # PR_SET_CHILD_SUBREAPER is 36.
        everything: Any = None  # the libraries that this process has loaded
        prctl = _ctypes.dlsym(_ctypes.dlopen(everything, 0), "prctl")
        result: int = _ctypes.call_function(prctl, (36, int(enabled), 0, 0, 0))
        return result == 0
    except (ImportError, OSError, AttributeError):
        return False


class Measure(NamedTuple):
    """The memory of one process."""

    pid: int
    rss: int


class MemoryWatch:
    """Compares the memory of a process tree with a limit, as a NodeManager does.

    The measure is the sum of the resident memory of the whole tree. A process that has just been
    forked counts its parent's pages as its own until it calls exec; so what is over the limit must
    still be so at the next measurement, counting only processes that were there at the one before.
    Over twice the limit is over at once. ``limit_mb`` 0 is no limit; ``list_pids`` is by default
    the descendants of this process.
    """

    def __init__(self, limit_mb: int, list_pids: Optional[Callable[[], List[int]]] = None) -> None:
        self._limit = limit_mb * MB
        self._list_pids = list_pids or (lambda: descendants(os.getpid()))
        self._before: FrozenSet[int] = frozenset()
        self.peak = 0

    def check(self) -> Optional[str]:
        """Why the container must end, with the numbers; None while it may go on."""
        return self.evaluate([Measure(pid, rss_bytes(pid)) for pid in self._list_pids()])

    def evaluate(self, found: List[Measure]) -> Optional[str]:
        """Decide about one measurement."""
        total = sum(item.rss for item in found)
        settled = sum(item.rss for item in found if item.pid in self._before)
        self.peak = max(self.peak, settled)
        self._before = frozenset(item.pid for item in found)
        self.near = bool(self._limit) and total > self._limit * 0.8
        if not self._limit or (settled <= self._limit and total <= 2 * self._limit):
            return None
        self.peak = max(self.peak, total)
        return self._message(found, total)

    near = False

    @property
    def pause_s(self) -> float:
        """How long until the next measurement."""
        return NEAR_S if self.near else CALM_S

    def _message(self, found: List[Measure], total: int) -> str:
        found = sorted(found, key=lambda item: -item.rss)
        count = len(found)
        shown = "; ".join(
            "pid %d: %d MB, %s" % (item.pid, item.rss // MB, command(item.pid))
            for item in found[:5]
        )
        return "over the memory limit: %d MB used of %d MB by %d process%s (%s%s)" % (
            total // MB,
            self._limit // MB,
            count,
            "" if count == 1 else "es",
            shown,
            "; ..." if count > 5 else "",
        )


def _descendants_by_parent(roots: Iterable[int]) -> List[int]:
    children: Dict[int, List[int]] = {}
    for pid in all_pids():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found: List[int] = []
    todo = list(roots)
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _children(pid: int) -> Optional[List[int]]:
    """The children of all its threads; None when this kernel does not list children."""
    folder = "/proc/%d/task" % pid
    try:
        threads = os.listdir(folder)
    except OSError:
        return []
    found: List[int] = []
    for thread in threads:
        try:
            with open("%s/%s/children" % (folder, thread), "rb") as stream:
                found += [int(word) for word in stream.read().split()]
        except FileNotFoundError:
            if os.path.exists("%s/%s" % (folder, thread)):
                return None
        except OSError:
            pass
    return found


def _stat(pid: int) -> Optional[List[str]]:
    """The fields of /proc/PID/stat from the state on (field 3 of proc(5) is number 0)."""
    text = _text("/proc/%d/stat" % pid)
    return text.rpartition(")")[2].split() if text else None


def _text(path: str) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
