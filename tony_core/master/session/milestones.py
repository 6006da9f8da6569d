"""What a reader must find in history even if this master is gone the next second.

The first launch and the first running program of a session are such milestones: from then on
a reader may ask for logs. History is written a moment later, so that the rest of a gang that
gets as far at the same time is in it too.
"""

from __future__ import annotations

from typing import Callable, Set, Tuple

from tony_core.protocol.reactor import Reactor

PAUSE_S = 0.1  # for the rest of a gang to get as far


class Milestones:
    """Calls ``keep`` once for each milestone of each session."""

    def __init__(self, reactor: Reactor, keep: Callable[[], None]) -> None:
        self._reactor = reactor
        self._keep = keep
        self._reached: Set[Tuple[int, str]] = set()

    def reached(self, session: int, what: str) -> None:
        """It happened in this session, perhaps not for the first time."""
        if (session, what) not in self._reached:
            self._reached.add((session, what))
            self._reactor.call_later(PAUSE_S, self._keep)
