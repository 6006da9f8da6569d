"""Which executors are alive: heartbeat bookkeeping, without a clock or a socket.

A container's executor is in one of two lists, each ordered by time, since every entry of a
list has the same allowance: *heard* (a connection stands; ordered by its last frame) and
*away* (its connection closed; ordered by when). So a frame costs one move to the end of a
dictionary, whatever the number of executors, and only the head of each list is ever looked
at. A frame or a new connection within the allowance is no loss, and nobody hears of it; a
connection that closes is noticed at once, and gets the shorter allowance, because an
executor that lives calls again at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import List, Optional, Tuple

from tony_core.dataclass import dataclass

#: How long an executor whose connection closed has to call again, at most.
RECONNECT_S = 10.0


@dataclass(frozen=True)
class Lost:
    """An executor that used up its allowance."""

    container_id: str
    reason: str


class Liveness:
    """Who was heard when. Times are the caller's."""

    def __init__(self, heartbeat_s: float, max_missed: int) -> None:
        self.silence_s = heartbeat_s * max_missed
        self.reconnect_s = min(self.silence_s, RECONNECT_S)
        self._setting = (
            f"tony.task.max-missed-heartbeats={max_missed}"
            f" x tony.task.heartbeat-interval-ms={heartbeat_s * 1000:g}"
        )
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._away: OrderedDict[str, Tuple[float, str]] = OrderedDict()

    def heard(self, container_id: str, now: float) -> None:
        """A frame came, the first one of a connection included."""
        self._away.pop(container_id, None)
        self._heard[container_id] = now
        self._heard.move_to_end(container_id)

    def closed(self, container_id: str, now: float, reason: str) -> None:
        """Its connection is gone; silence when it is not known (it ended, or never called)."""
        if self._heard.pop(container_id, None) is not None:
            self._away[container_id] = (now, reason)

    def expect(self, container_id: str, now: float, reason: str) -> None:
        """It should call (an earlier master's executor); its allowance runs from now."""
        if container_id not in self._heard:
            self._away[container_id] = (now, reason)
            self._away.move_to_end(container_id)

    def forget(self, container_id: str) -> None:
        """Its container ended, or its loss is known."""
        self._heard.pop(container_id, None)
        self._away.pop(container_id, None)

    def is_connected(self, container_id: str) -> bool:
        """Whether a connection of it stands."""
        return container_id in self._heard

    def expired(self, now: float) -> List[Lost]:
        """Take out those whose allowance has passed."""
        out: List[Lost] = []
        while self._heard:
            container_id, at = next(iter(self._heard.items()))
            if now - at < self.silence_s:
                break
            del self._heard[container_id]
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
        """When the next allowance passes if nothing is heard until then."""
        times = []
        if self._heard:
            times.append(next(iter(self._heard.values())) + self.silence_s)
        if self._away:
            times.append(next(iter(self._away.values()))[0] + self.reconnect_s)
        return min(times, default=None)
