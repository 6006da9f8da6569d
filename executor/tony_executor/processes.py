"""The processes below this one, from /proc.

Theory of operation
===================

We are subreaper: whatever our descendants leave behind, setsid'd or not, becomes our own child. So
what is below us is all there is of the program, whichever process started it.

The quick way goes down the ``children`` files: its cost is that of the program's own tree, not of
the node's. It may miss what forks meanwhile, so a caller that has to be sure looks again, and at
last with ``sure=True``. Then the kernel is asked whether we have any child: a subreaper without
children has no descendants. Only where it has children (or is no subreaper) the whole of /proc is
read, which on a big node costs more than all the rest of an executor's end. A kernel without those
files leaves the second way only.
"""

from __future__ import annotations

import os
import signal
from typing import (
    AbstractSet,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Tuple,
)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1024.0 * 1024.0)
_subreaper = 0  # which process has become one: what we fork has not
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process, as /proc/PID/stat describes it."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_s: float  # its own and that of the children it has waited for
    threads: int
    rss_mb: float
    started: int = 0  # in ticks since the machine's start: with the pid it is no other process

    @property
    def dead(self) -> bool:
        """Nothing of it is left but its exit code.

        A first thread that has ended shows Z while others of its process still run (or still
        die): such a one cannot be waited for yet, and goes on by itself.
        """
        return self.state in "ZX" and self.threads <= 1


def be_subreaper(on: bool) -> bool:
    """Whether orphans among our descendants become our children; False if it cannot be set."""
    global _subreaper
    done = _prctl(_PR_SET_CHILD_SUBREAPER, int(on))
    if done:
        _subreaper = os.getpid() if on else 0
    return done


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> bool:
    """Get this signal when the parent dies; False when it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, int(number))
    return os.getppid() == parent


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes  # some Pythons are built without it

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def read_process(pid: int) -> Optional[Process]:
    """The process, or None when it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            text = file.read(1024)
    except OSError:
        return None
    # The name may hold blanks and brackets.
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    if len(fields) < 22:
        return None
    return Process(
        pid=pid,
        name=name.decode("utf-8", "replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        cpu_s=sum(int(each) for each in fields[11:15]) * _TICK_S,
        threads=int(fields[17]),
        rss_mb=int(fields[21]) * _PAGE_MB,
        started=int(fields[19]),
    )


def find_again(process: Process) -> Optional[Process]:
    """The process as it is now; None when it has ended, even if another has its pid."""
    now = read_process(process.pid)
    return now if now is not None and now.started == process.started and not now.dead else None


def descendants(
    root: int, without: AbstractSet[int] = frozenset(), sure: bool = False
) -> List[Process]:
    """The living descendants, without the subtrees of ``without``."""
    if sure or not _has_children_files():
        if root == os.getpid() == _subreaper and _has_no_child():
            return []
        found = _by_parents(root, without)
    else:
        found = _by_children(root, without)
    return [process for process in found if not process.dead]


def handles_signal(pid: int, number: int) -> bool:
    """Whether the process handles, blocks or ignores the signal."""
    return _is_in_mask(pid, number, (b"SigCgt", b"SigIgn", b"SigBlk"))


def catches_signal(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for the signal."""
    return _is_in_mask(pid, number, (b"SigCgt",))


def _is_in_mask(pid: int, number: int, names: Tuple[bytes, ...]) -> bool:
    bit = 1 << (number - 1)
    try:
        with open(f"/proc/{pid}/status", "rb", 0) as file:
            rows = file.readall().splitlines()
    except OSError:
        return False
    masks = (row.split()[1] for row in rows if row.startswith(names))
    return any(int(mask, 16) & bit for mask in masks)


def send(processes: Iterable[Process], number: int) -> None:
    """Send each the signal; skip those that are gone or another user's."""
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_now(root: int, without: AbstractSet[int] = frozenset(), rounds: int = 50) -> None:
    """Kill all descendants at once: freeze first, so that none forks away."""
    for _ in range(rounds):
        frozen = descendants(root, without, sure=not _has_children_files())
        if not frozen:
            frozen = descendants(root, without, sure=True)
            if not frozen:
                return
        send(frozen, signal.SIGSTOP)
        known = {process.pid for process in frozen}
        while True:
            newer = [p for p in descendants(root, without) if p.pid not in known]
            if not newer:
                break
            send(newer, signal.SIGSTOP)
            known.update(process.pid for process in newer)
            frozen += newer
        send(frozen, signal.SIGKILL)
        while True:  # a dead child stays until it is waited for
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def _has_no_child() -> bool:
    """Whether we have no child at all, not even a dead one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _by_children(root: int, without: AbstractSet[int]) -> List[Process]:
    found: List[Process] = []
    seen = {root}
    todo = [root]
    while todo:
        for pid in _children(todo.pop()):
            if pid in without or pid in seen:
                continue
            seen.add(pid)
            process = read_process(pid)
            if process is not None:
                found.append(process)
                todo.append(pid)
    return found


def _children(pid: int) -> List[int]:
    folder = f"/proc/{pid}/task"
    found: List[int] = []
    try:
        threads = os.listdir(folder)
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"{folder}/{thread}/children", "rb", 0) as file:
                found.extend(int(each) for each in file.readall().split())
        except OSError:
            continue
    return found


def _by_parents(root: int, without: AbstractSet[int]) -> List[Process]:
    children: Dict[int, List[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            process = read_process(int(entry))
            if process is not None:
                children.setdefault(process.parent, []).append(process)
    found: List[Process] = []
    todo = [root]
    while todo:
        for process in children.get(todo.pop(), ()):
            if process.pid not in without:
                found.append(process)
                todo.append(process.pid)
    return found


def _has_children_files() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
