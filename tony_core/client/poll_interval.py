"""How often to ask, from what asking costs.

A look at a file may be taken many times a second, a call over a network to a busy resource
manager may not. So the pause is a multiple of what the last calls took, within bounds: what
is cheap is asked often, and nobody is asked for more than a small part of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_S = 0.1
MOST_S = 2.0
SHARE = 0.02  # of the time may be spent asking
FAILING_MOST_S = 5.0


@dataclass
class Pace:
    """The pause between two calls. No clock inside: costs are the caller's."""

    least_s: float = LEAST_S
    most_s: float = MOST_S
    share: float = SHARE
    _cost_s: float = 0.0
    _failures: int = 0

    def answered(self, cost_s: float) -> None:
        """A call took so long."""
        self._failures = 0
        # Half of the old word: one slow answer is no reason for a long silence.
        self._cost_s = cost_s if not self._cost_s else (self._cost_s + cost_s) / 2

    def failed(self) -> None:
        """A call was not answered."""
        self._failures += 1

    @property
    def pause_s(self) -> float:
        """How long to wait before the next call."""
        if self._failures:
            return min(FAILING_MOST_S, 0.25 * 2.0 ** min(self._failures - 1, 10))
        return min(self.most_s, max(self.least_s, self._cost_s / self.share))
