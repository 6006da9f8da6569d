"""The client's lease: a job whose client is gone ends, when the client asked for that.

Airflow and Azkaban set ``tony.client.lease``: their operator looks at the job's page every
few seconds, and each look renews the lease. A look that waits for news (a long poll) is a
client that is there: while one is open, the lease does not run. Pure: times are the caller's.
"""

from __future__ import annotations

from typing import Optional


class Lease:
    """``None`` seconds is no lease: it never passes."""

    def __init__(self, seconds: Optional[float], now: float) -> None:
        self.seconds = seconds
        self._renewed = now
        self._passed = False
        self._waiting = 0  # clients that wait for an answer

    def hold(self) -> None:
        """A client waits for an answer: it is there until :meth:`let_go`."""
        self._waiting += 1

    def let_go(self, now: float) -> None:
        """It waits no more: it got its answer, or it hung up just now."""
        self._waiting -= 1
        self.renew(now)

    def renew(self, now: float) -> None:
        """The client was heard of."""
        self._renewed = now

    def next_deadline(self) -> Optional[float]:
        """When it passes if the client stays silent; None when it never does (again)."""
        if self.seconds is None or self._passed or self._waiting:
            return None
        return self._renewed + self.seconds

    def check(self, now: float) -> Optional[str]:
        """Why the job must end, said once; None while the lease holds."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return None
        self._passed = True
        return (
            f"its client was not heard of for {self.seconds:g} s"
            f" (tony.client.lease={self.seconds:g}s)"
        )
