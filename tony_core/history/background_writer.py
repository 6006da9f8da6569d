"""Writes files by a thread of its own, so that a slow history never delays a master.

The file-system port may block (a name node that does not answer), and the master has one
thread for everything. So files are handed over here, whole or the next bytes of one that grows; of
several versions of one file that wait, only the newest is put, and bytes that wait are put
together. A put that fails, by whatever exception, is tried again while there
is time; what could not be put in the end is returned, not raised: a job does not fail for its
history. At the end two files are put at a time, since the client waits.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from tony_core.unexpected_errors import UnexpectedErrors

RETRY_S = 1.0
BROKEN_S = 2.0  # at the end, for a place that has just refused: one more try


class Change(NamedTuple):
    """What is to be done to a file."""

    data: bytes
    offset: Optional[int] = None  # where the bytes go in a file that grows; None: the whole file
    sync: bool = True  # whether the bytes must survive a power cut
    removes: Tuple[str, ...] = ()  # files that it replaces: removed after it

    def followed_by(self, later: Change) -> Change:
        """Both as one."""
        removes = (*self.removes, *later.removes)
        if later.offset is None:
            return later._replace(removes=removes)
        return Change(self.data + later.data, self.offset, self.sync or later.sync, removes)


Put = Callable[[str, Change], None]


class BackgroundWriter:
    """Puts files in the order they were first handed over."""

    def __init__(self, put: Put, log: Callable[[str], None] = lambda text: None) -> None:
        self._put = put
        self.faults = UnexpectedErrors(log)
        self._waiting: Dict[str, Change] = {}
        self._busy: Set[str] = set()  # being put
        self._closing = False
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._second: Optional[threading.Thread] = None
        self.problems: List[str] = []  # of the last round only

    def put(self, name: str, change: Change) -> None:
        """Queue a change; joined with one of the same file that still waits."""
        with self._changed:
            if self._closing:
                return
            before = self._waiting.get(name)
            self._waiting[name] = change if before is None else before.followed_by(change)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="history", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def discard(self, name: str) -> None:
        """Drop what still waits for a file that will not be needed."""
        with self._changed:
            self._waiting.pop(name, None)

    def close(self, timeout_s: float) -> List[str]:
        """Put what waits, within a time; returns what could not be put and why."""
        began = time.monotonic()
        with self._changed:
            if self._waiting and len(self._waiting) + len(self._busy) > 1:
                self._second = threading.Thread(target=self._run, name="history-2", daemon=True)
                self._second.start()
            while self._waiting or self._busy:
                limit = min(timeout_s, BROKEN_S) if self.problems else timeout_s
                left = began + limit - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._closing = True
            spent = time.monotonic() - began
            left_over = dict.fromkeys([*self._busy, *self._waiting])
            missing = [f"{name}: not written after {spent:.1f} s" for name in left_over]
            self._changed.notify_all()
            problems = self.problems if missing else []
        for thread in (self._thread, self._second):
            if thread is not None and not self._busy:
                thread.join(1.0)
        return [*problems, *missing]

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing:
                    free = [name for name in self._waiting if name not in self._busy]
                    if free:
                        break
                    self._changed.wait()
                if self._closing:
                    return
                name = free[0]
                change = self._waiting.pop(name)
                self._busy.add(name)
            problem = None
            try:
                self._put(name, change)
            except OSError as error:
                problem = f"{name}: {error}"
            except Exception:
                problem = f"{name}: {self.faults.record(f'history, {name}')}"
            with self._changed:
                self._busy.discard(name)
                self.problems = [problem] if problem else []
                if problem is not None:
                    later = self._waiting.get(name)
                    self._waiting[name] = change if later is None else change.followed_by(later)
                    self._changed.wait(0 if self._closing else RETRY_S)
                self._changed.notify_all()
