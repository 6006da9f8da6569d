"""How much memory a container's processes use, and when that is too much.

The measure is the NodeManager's: the sum of the resident memory of the whole process tree
against the container's limit. A process that has just been forked counts its parent's pages
as its own until it calls exec; so what is over the limit must still be so one look later,
counting only processes that were there at the look before. Over twice the limit is over.

Light, standard library only, Python 3.8: the shim imports it.
"""

from __future__ import annotations

import os
from typing import Callable, FrozenSet, List, NamedTuple, Optional

from tony_core.schedulers.local import processes

MB = 1 << 20
CALM_S = 0.25  # between two looks
NEAR_S = 0.05  # ... when four fifths of the limit are in use


class Measure(NamedTuple):
    """One process at one look."""

    pid: int
    rss: int


class MemoryWatch:
    """Looks at the descendants of this process, or whom else ``whose`` tells.

    ``limit_mb`` 0 is no limit.
    """

    def __init__(self, limit_mb: int, whose: Optional[Callable[[], List[int]]] = None) -> None:
        self._limit = limit_mb * MB
        self._whose = whose or (lambda: processes.descendants(os.getpid()))
        self._before: FrozenSet[int] = frozenset()
        self.peak = 0

    def look(self) -> Optional[str]:
        """Why the container must end, in words with the numbers; None while it may go on."""
        return self.judge([Measure(pid, processes.rss_bytes(pid)) for pid in self._whose()])

    def judge(self, found: List[Measure]) -> Optional[str]:
        """The decision of :meth:`look` about what it found."""
        everything = sum(item.rss for item in found)
        grown_up = sum(item.rss for item in found if item.pid in self._before)
        self.peak = max(self.peak, grown_up)
        self._before = frozenset(item.pid for item in found)
        self.near = bool(self._limit) and everything > self._limit * 0.8
        if not self._limit or (grown_up <= self._limit and everything <= 2 * self._limit):
            return None
        self.peak = max(self.peak, everything)
        return self._words(found, everything)

    near = False

    @property
    def pause_s(self) -> float:
        """How long until the next look."""
        return NEAR_S if self.near else CALM_S

    def _words(self, found: List[Measure], total: int) -> str:
        found = sorted(found, key=lambda item: -item.rss)
        count = len(found)
        shown = "; ".join(
            "pid %d: %d MB, %s" % (item.pid, item.rss // MB, processes.command(item.pid))
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
