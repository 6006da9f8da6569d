"""How long a scheduler, or a job's page, has not answered, and when to say so."""

from __future__ import annotations

import time
from typing import Callable, Optional

Clock = Callable[[], float]

LEASE_SHARE = 3.0
"""Page reads within one lease; a warning is due when no read has worked for one such part."""


class Outage:
    """The time since a scheduler's first unanswered call.

    :param limit_s: how long the caller waits for an answer.
    """

    def __init__(self, limit_s: float, clock: Clock = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._since: Optional[float] = None

    def answered(self) -> None:
        """Record an answer: the outage is over."""
        self._since = None

    def failed(self, since: Optional[float] = None) -> bool:
        """Record a call without an answer, sent at ``since``; True for the first."""
        first = self._since is None
        if first:
            self._since = self._clock() if since is None else since
        return first

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def has_expired(self) -> bool:
        """Whether it has lasted for longer than the limit."""
        return self._since is not None and self.seconds >= self._limit_s


class PageOutage:
    """The time since a job's page was last read.

    Reading the page renews the job's lease (``tony.client.lease``). One failed read does no harm.
    But a page that cannot be read from here at all, behind a firewall, ends a job that a task still
    waits for; the log warns before that.

    :param lease_s: the job's lease; None for a job without one, for which no warning is due.
    """

    def __init__(self, lease_s: Optional[float], clock: Clock = time.monotonic) -> None:
        self._lease_s = lease_s
        self._outage = Outage((lease_s or 0.0) / LEASE_SHARE, clock)
        self._warned = False

    def answered(self) -> None:
        """Record a read that worked."""
        self._outage.answered()
        self._warned = False

    def failed(self, why: str) -> str:
        """Record a read that failed; the warning that is due, once for each outage, else empty."""
        self._outage.failed()
        if self._lease_s is None or self._warned or not self._outage.has_expired:
            return ""
        self._warned = True
        return (
            f"the job's page cannot be read from here for {self._outage.seconds:.0f} s ({why}): if"
            f" that goes on, the job's lease runs out and it ends ({self._lease_s:g} s after its"
            " page was last read)"
        )
