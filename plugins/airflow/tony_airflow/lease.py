"""Whether a job that is waited for knows that it is: its page has to be seen for that.

Looks at the page renew the lease that the job is submitted with (``tony.client.lease``). One that
fails harms nothing; but a page that cannot be reached from here at all, behind a firewall, ends a
job that somebody waits for, and the log is to say why before that.
"""

from __future__ import annotations

import time
from typing import Callable, Optional

SHARE = 3.0  # of the lease: looks within its time, and the part of it that may pass unseen


class UnseenPage:
    """How long no look at one job's page has worked.

    :param lease_s: the job's lease; None for one that has none, of which nothing is to be told.
    """

    def __init__(
        self, lease_s: Optional[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._since: Optional[float] = None
        self._told = False

    def seen(self) -> None:
        """A look has worked."""
        self._since = None
        self._told = False

    def failed(self, why: str) -> str:
        """A look has not. What to warn of: once each time, when it has lasted; else empty."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if self._lease_s is None or self._told or now - self._since < self._lease_s / SHARE:
            return ""
        self._told = True
        return (
            f"the job's page cannot be read from here for {now - self._since:.0f} s ({why}): if"
            f" that goes on, the job's lease runs out and it ends ({self._lease_s:g} s after its"
            " page was last read)"
        )
