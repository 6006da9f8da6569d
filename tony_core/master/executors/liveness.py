"""Which executors are alive: heartbeat bookkeeping, without a clock or a socket.

An executor is in one of two lists, each ordered by time, since all entries of a list have the same
allowance: *connected* (ordered by the last message) and *away* (its connection closed; ordered by
when). So a message costs one move to the end of a dictionary, whatever the number of executors,
and only the head of each list is ever looked at. An executor that sends a message or connects again
within its allowance is not lost, and no other part learns of it. A closed connection gets the
shorter allowance, because an executor that lives reconnects at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, List, NamedTuple, Optional, Tuple

#: How long an executor whose connection closed has to call again, at most.
RECONNECT_S = 10.0
#: The part of the allowance from which a gap between two messages is worth a record.
NOTABLE_GAP = 0.2


class Lost(NamedTuple):
    """An executor that used up its allowance."""

    container_id: str
    reason: str


class Liveness:
    """When each executor was last active. Times are the caller's."""

    def __init__(self, heartbeat_s: float, max_missed: int) -> None:
        self.silence_s = heartbeat_s * max_missed
        self.reconnect_s = min(self.silence_s, RECONNECT_S)
        self._notable_s = self.silence_s * NOTABLE_GAP
        self._longest_gap: Dict[str, float] = {}  # of those that had a notable one
        self._setting = (
            f"tony.task.max-missed-heartbeats={max_missed}"
            f" x tony.task.heartbeat-interval-ms={heartbeat_s * 1000:g}"
        )
        self._last_message: OrderedDict[str, float] = OrderedDict()
        self._away: OrderedDict[str, Tuple[float, str]] = OrderedDict()

    def note_message(self, container_id: str, now: float) -> Optional[float]:
        """Note a message, or a new connection.

        Returns the time since the one before, where that is a notable part of the allowance and
        the longest of this executor.
        """
        self._away.pop(container_id, None)
        gap = now - self._last_message.get(container_id, now)
        self._last_message[container_id] = now
        self._last_message.move_to_end(container_id)
        if gap < self._notable_s or gap <= self._longest_gap.get(container_id, 0.0):
            return None
        self._longest_gap[container_id] = gap
        return gap

    def closed(self, container_id: str, now: float, reason: str) -> None:
        """Note a closed connection; no effect if it is not known (it ended, or never called)."""
        if self._last_message.pop(container_id, None) is not None:
            self._away[container_id] = (now, reason)

    def expect(self, container_id: str, now: float, reason: str) -> None:
        """Start the allowance of an executor of the previous attempt, which should call."""
        if container_id not in self._last_message:
            self._away[container_id] = (now, reason)
            self._away.move_to_end(container_id)

    def forget(self, container_id: str) -> None:
        """Remove an executor whose container has ended or whose loss is known."""
        self._last_message.pop(container_id, None)
        self._away.pop(container_id, None)
        self._longest_gap.pop(container_id, None)

    def is_connected(self, container_id: str) -> bool:
        return container_id in self._last_message

    def expired(self, now: float) -> List[Lost]:
        """Remove and return those whose allowance has passed."""
        out: List[Lost] = []
        while self._last_message:
            container_id, at = next(iter(self._last_message.items()))
            if now - at < self.silence_s:
                break
            del self._last_message[container_id]
            reason = f"no word from its executor for {self.silence_s:g} s ({self._setting})"
            out.append(Lost(container_id, reason))
        while self._away:
            container_id, (at, why) = next(iter(self._away.items()))
            if now - at < self.reconnect_s:
                break
            del self._away[container_id]
            reason = f"{why}, and its executor did not call again within {self.reconnect_s:g} s"
            out.append(Lost(container_id, reason))
        return out

    def next_deadline(self) -> Optional[float]:
        """When the next allowance passes without a message."""
        times = []
        if self._last_message:
            times.append(next(iter(self._last_message.values())) + self.silence_s)
        if self._away:
            times.append(next(iter(self._away.values()))[0] + self.reconnect_s)
        return min(times, default=None)
