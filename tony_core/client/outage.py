"""How long a scheduler, or a job's page, has not answered, and when that is an error.

The machines here have no clock: their callers say when they asked. A watch, a poller and a
sensor bear the same with :class:`SchedulerOutage`.
"""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional

from tony_core.schedulers.port import LastingRefusal, NotLoggedIn

Clock = Callable[[], float]

UNREACHABLE_S = 120.0
"""For how long a scheduler that stopped answering is asked again."""

REFUSED_S = 10.0
"""For how long one that refuses this client is asked again: an expired ticket may just be written
anew."""

LEASE_SHARE = 3.0
"""Page reads within one lease; a warning is due when no read has worked for one such part."""


class Outage:
    """The time since the first of a row of calls without an answer.

    :param limit_s: how long the caller waits for an answer.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: Optional[float] = None

    def answered(self) -> None:
        """Record an answer: the outage is over."""
        self._since = None

    def failed(self, now: float) -> Failure:
        """Record a call without an answer."""
        is_first = self._since is None
        since = self._since = now if self._since is None else self._since
        return Failure(is_first, now - since, not is_first and now - since >= self._limit_s)


class Failure(NamedTuple):
    """One failed call, in the outage that it belongs to."""

    is_first: bool
    seconds: float
    """How long the outage has lasted."""
    has_expired: bool
    """Whether it has lasted for longer than the limit; never at the first."""


class SchedulerOutage:
    """A scheduler that does not answer, or refuses this client: each has its own limit.

    :param login_s: for how long a login that has worked is waited for when it no longer does. A
        ticket that has expired has worked; any other login only if the scheduler has answered.
    """

    def __init__(
        self,
        unreachable_s: float = UNREACHABLE_S,
        refused_s: float = REFUSED_S,
        login_s: float = REFUSED_S,
    ) -> None:
        self._silence = Outage(unreachable_s)
        self._refusal = Outage(refused_s)
        self._login = Outage(login_s)
        self._has_answered = False

    def answered(self) -> None:
        """Record an answer."""
        self._has_answered = True
        for outage in (self._silence, self._refusal, self._login):
            outage.answered()

    def failed(self, error: Exception, now: float) -> Failure:
        """Record a failed call that was sent at ``now``."""
        if self.is_lost_login(error):
            return self._login.failed(now)
        is_refusal = isinstance(error, LastingRefusal)
        return (self._refusal if is_refusal else self._silence).failed(now)

    def is_lost_login(self, error: Exception) -> bool:
        """Whether a login that has worked is what is missing."""
        return isinstance(error, NotLoggedIn) and (error.has_expired or self._has_answered)


class PageOutage:
    """The time since a job's page was last read.

    Reading the page renews the job's lease (``tony.client.lease``). One failed read does no harm.
    But a page that cannot be read from here at all, behind a firewall, ends a job that a task still
    waits for; the log warns before that.

    :param lease_s: the job's lease; None for a job without one, for which no warning is due.
    """

    def __init__(self, lease_s: Optional[float], clock: Clock = time.monotonic) -> None:
        self._lease_s = lease_s
        self._outage = Outage((lease_s or 0.0) / LEASE_SHARE)
        self._clock = clock
        self._warned = False

    def answered(self) -> None:
        """Record a read that worked."""
        self._outage.answered()
        self._warned = False

    def failed(self, why: str) -> str:
        """Record a read that failed; the warning that is due, once for each outage, else empty."""
        failure = self._outage.failed(self._clock())
        if self._lease_s is None or self._warned or not failure.has_expired:
            return ""
        self._warned = True
        return (
            f"the job's page cannot be read from here for {failure.seconds:.0f} s ({why}): if"
            f" that goes on, the job's lease runs out and it ends ({self._lease_s:g} s after its"
            " page was last read)"
        )
