"""The user's tokens in a master's process: how long they last, and where others come from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Optional

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import shortest_lifetime
from tony_core.schedulers.container_pool import FreshTokens, PoolInfo, TokenDates
from tony_core.schedulers.port import SchedulerError

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.master.token_fetcher import TokenFetcher


class UserTokens:
    """What a pool knows of its user's tokens.

    :param renew: gives fresh tokens to what uses them in this process.
    :param dates: of the tokens that the master started with.
    :param fetcher: None for a job that ships no keytab.
    :param fetched: the answer to a fetch before there was a pool.
    """

    def __init__(
        self,
        renew: Callable[[Credentials], object] = lambda tokens: None,
        dates: Optional[TokenDates] = None,
        fetcher: Optional[TokenFetcher] = None,
        fetched: Optional[FreshTokens] = None,
    ) -> None:
        self.renew = renew
        self._dates = dates
        self._fetcher = fetcher
        self._fetched = fetched
        self._warnings = [fetcher.warning] if fetcher is not None and fetcher.warning else []

    def check(self) -> None:
        """See :meth:`ContainerPool.check_fetch`."""
        if self._fetcher is None or self._fetched is not None:
            return
        try:
            self._fetcher.check()
        except SchedulerError as error:
            self._warnings.append(f"no login by the shipped keytab: {error}")
            raise

    def fetch(self) -> FreshTokens:
        """See :meth:`ContainerPool.fetch_tokens`."""
        if self._fetcher is None:
            raise SchedulerError("the job ships no keytab")
        return self._fetcher.fetch()

    def describe(self, info: PoolInfo) -> PoolInfo:
        """The scheduler's answer to a registration, with what is known of the tokens."""
        return info._replace(
            tokens=self._dates,
            fetches_tokens=self._fetcher is not None,
            fetched=self._fetched,
            token_warnings=tuple(self._warnings),
        )


def token_dates(held: Credentials, fetched: Optional[FreshTokens] = None) -> Optional[TokenDates]:
    """How long a job has its tokens: the first, which YARN renews, or those just fetched."""
    if fetched is not None:
        return TokenDates(time.time(), fetched.ends)
    found = shortest_lifetime(held.tokens.values())
    return None if found is None else TokenDates(found.issued_s, found.ends_s)
