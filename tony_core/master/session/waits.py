"""Every wait has a deadline, a reason, and the name of the setting that owns it."""

from __future__ import annotations

import heapq
from typing import Dict, List, Optional, Tuple

from tony_core.dataclass import dataclass


@dataclass(frozen=True)
class Wait:
    """One thing that is waited for."""

    key: Tuple[str, ...]  # what the wait is about: ("registration", "worker:0")
    until: float
    reason: str  # appears in the diagnostic when it passes
    setting: str = ""  # "tony.container.registration.timeout=300s"


class Waits:
    """The open waits, by key; a heap with lazy deletion, so that thousands are cheap."""

    def __init__(self) -> None:
        self._open: Dict[Tuple[str, ...], Wait] = {}
        self._heap: List[Tuple[float, Tuple[str, ...]]] = []

    def set(self, wait: Wait) -> None:
        """Open a wait; replaces one under the same key."""
        self._open[wait.key] = wait
        heapq.heappush(self._heap, (wait.until, wait.key))

    def cancel(self, *key: str) -> None:
        """It came, or does not matter any more."""
        self._open.pop(key, None)

    def cancel_kind(self, kind: str) -> None:
        """Cancel every wait of a kind."""
        for key in [key for key in self._open if key[0] == kind]:
            del self._open[key]

    def __contains__(self, key: Tuple[str, ...]) -> bool:
        return key in self._open

    def get(self, *key: str) -> Optional[Wait]:
        """The open wait under a key."""
        return self._open.get(key)

    def next(self) -> Optional[float]:
        """When the earliest deadline passes."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take_expired(self, now: float) -> Optional[Wait]:
        """Take out the earliest wait whose deadline has passed.

        One at a time: what follows from it may cancel the others.
        """
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        return self._open.pop(key)

    def _drop_stale(self) -> None:
        while self._heap:
            until, key = self._heap[0]
            wait = self._open.get(key)
            if wait is not None and wait.until == until:
                return
            heapq.heappop(self._heap)
