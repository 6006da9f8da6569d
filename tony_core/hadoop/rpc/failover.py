"""Which server of several to try next, and after what pause. Pure: no clock, no socket.

Hadoop's services come alone or as a pair of which one is active. The standby refuses, or does
not even listen. So an error that another server might not give leads to the next one at once;
when all were tried, there is a pause that doubles from round to round. An error that only time
can heal leads to the same server after a pause. Any other error is the answer.
"""

from __future__ import annotations

import random
from typing import Callable, Optional

from tony_core.hadoop.errors import HadoopError, Remedy, Unreachable

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class Failover:
    """The choice among ``count`` servers; remembers which one worked."""

    def __init__(
        self,
        count: int,
        *,
        first_pause: float = FIRST_PAUSE_S,
        longest_pause: float = LONGEST_PAUSE_S,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if count < 1:
            raise ValueError("there is no server to choose")
        self._count = count
        self._first = first_pause
        self._longest = longest_pause
        self._jitter = jitter
        self._pauses = 0
        self._tried = 0
        self.current = 0

    def worked(self) -> None:
        """The current one answered; the next trouble starts over with short pauses."""
        self._pauses = 0
        self._tried = 0

    def failed(self, error: HadoopError, *, repeatable: bool = True) -> Optional[float]:
        """Seconds to wait before trying :attr:`current` (which may have changed).

        ``None``: trying again cannot help, or might do the same thing twice.
        """
        if error.remedy is Remedy.NONE:
            return None
        if isinstance(error, Unreachable) and error.sent and not repeatable:
            return None
        if error.remedy is Remedy.RETRY:
            return self._pause()
        self.current = (self.current + 1) % self._count
        self._tried += 1
        if self._tried < self._count:
            return 0.0
        self._tried = 0
        return self._pause()

    def _pause(self) -> float:
        pause = min(self._first * (1 << min(self._pauses, 16)), self._longest)
        self._pauses += 1
        return pause * (0.5 + self._jitter() / 2)
