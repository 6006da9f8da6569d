"""The user's tokens in a master's process: how long they last, and where others come from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, List, Optional

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import shortest_lifetime
from tony_core.schedulers.container_pool import FreshTokens, PoolInfo, TokenDates
from tony_core.schedulers.port import LastingRefusal, SchedulerError

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.master.token_fetcher import TokenFetcher


class UserTokens:
    """What a pool knows of its user's tokens.

    :param dates: of the tokens that the master started with.
    :param fetcher: None for a job that ships no keytab.
    :param fetched: the answer to a fetch before there was a pool.
    :param refusal: why there was none, and never will be.
    """

    def __init__(
        self,
        dates: Optional[TokenDates] = None,
        fetcher: Optional[TokenFetcher] = None,
        fetched: Optional[FreshTokens] = None,
        refusal: Optional[LastingRefusal] = None,
    ) -> None:
        self._dates = dates
        self._fetcher = fetcher
        self._fetched = fetched
        self._refusal = refusal
        self._listeners: List[Callable[[Credentials], object]] = []

    def on_renewal(self, listener: Callable[[Credentials], object]) -> None:
        """Call what uses tokens in this process, with all that the job has, when they change."""
        self._listeners.append(listener)

    def renew(self, tokens: Credentials) -> None:
        """Give fresh tokens to what uses them in this process."""
        for listener in self._listeners:
            listener(tokens)

    def check(self, logs_in: bool) -> Optional[SchedulerError]:
        """See :meth:`ContainerPool.check_fetch`; ``logs_in``: a login may have to show it.

        In a takeover it has not: programs run, and the next fetch warns of what is wrong.
        """
        if self._refusal is None and self._fetcher and self._fetched is None and logs_in:
            try:
                self._fetcher.check()
            except SchedulerError as error:
                return error
        return self._refusal

    def fetch(self) -> FreshTokens:
        """See :meth:`ContainerPool.fetch_tokens`."""
        if self._fetcher is None:
            raise SchedulerError("the job ships no keytab")
        return self._fetcher.fetch()

    def describe(self, info: PoolInfo) -> PoolInfo:
        """The scheduler's answer to a registration, with what is known of the tokens."""
        warning = self._fetcher.warning if self._fetcher is not None else ""
        return info._replace(
            tokens=self._dates,
            fetches_tokens=self._fetcher is not None,
            fetched=self._fetched,
            token_warnings=(warning,) if warning else (),
        )


def token_dates(held: Credentials, fetched: Optional[FreshTokens] = None) -> Optional[TokenDates]:
    """How long a job has its tokens: the first, which YARN renews, or those just fetched."""
    if fetched is not None:
        return TokenDates(time.time(), fetched.ends)
    found = shortest_lifetime(held.tokens.values())
    return None if found is None else TokenDates(found.issued_s, found.ends_s)
