"""The client's lease: where the client asked for one, its job ends with the client.

Airflow and Azkaban set ``tony.client.lease``: their operator looks at the job's page every
few seconds, and each look renews the lease; the looks of others (a browser, ``tony status``, the
portal) do not. A look that waits for news (a long poll) is a client that is there: while one is
open, the lease does not run. Pure: times are the caller's.

A client may be gone before its first look: Airflow's task is deferred, and marked failed before any
trigger has run. So until that look a shorter lease counts (``tony.client.first-lease``).
"""

from __future__ import annotations

from typing import Optional

from tony_core.job.spec import Timeouts

FIRST = "tony.client.first-lease"


class Lease:
    """``None`` seconds is no lease: it never passes.

    :param first_s: the lease until a client contacts the master, where it is shorter.
    """

    def __init__(
        self, seconds: Optional[float], now: float, first_s: Optional[float] = None
    ) -> None:
        self.seconds = seconds
        self._first_s = first_s if seconds is not None and (first_s or seconds) < seconds else None
        self._renewed = now
        self._passed = False
        self._waiting = 0  # clients that wait for an answer

    @classmethod
    def of(cls, times: Timeouts, now: float, attempt: int) -> Lease:
        """The job's lease; after a takeover the first lease does not apply, because a client may
        have contacted the job before.
        """
        first_s = times.client_first_lease_s if attempt == 1 else None
        return cls(times.client_lease_s, now, first_s)

    def hold(self) -> None:
        """A client waits for an answer: it is there until :meth:`let_go`."""
        self._first_s = None
        self._waiting += 1

    def let_go(self, now: float) -> None:
        """It waits no more: it got its answer, or it hung up just now."""
        self._waiting -= 1
        self.renew(now)

    def renew(self, now: float) -> None:
        """Renew the lease: the client sent a request."""
        self._first_s = None
        self._renewed = now

    def next_deadline(self) -> Optional[float]:
        """When it passes unless the client renews it; None when it never does (again)."""
        if self.seconds is None or self._passed or self._waiting:
            return None
        return self._renewed + (self.seconds if self._first_s is None else self._first_s)

    def check(self, now: float) -> Optional[str]:
        """Return, once, why the job must end; None while the lease holds."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return None
        self._passed = True
        if self._first_s is not None:
            return (
                f"no client contacted the master within {self._first_s:g} s of its start"
                f" ({FIRST}={self._first_s:g}s)"
            )
        return (
            f"no client has contacted the master for {self.seconds:g} s"
            f" (tony.client.lease={self.seconds:g}s)"
        )
