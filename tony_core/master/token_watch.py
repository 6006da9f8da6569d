"""The shell of :mod:`tony_core.master.token_lifetime`: performs its commands in a master.

A fetch blocks, so each has a thread of its own. Its answer comes back to the reactor's thread,
where the tokens are distributed before the machine hears of them: what it orders then needs them.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Optional

from tony_core.history.layout import StoryKind
from tony_core.job.spec import TokenRefresh
from tony_core.master import token_lifetime
from tony_core.master.executors.server import ExecutorServer, distribute_tokens
from tony_core.master.session.events import Event, GangRestartRequested, TokensExpiring
from tony_core.master.token_lifetime import TokenLifetime
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.container_pool import ContainerPool, FreshTokens, PoolInfo
from tony_core.schedulers.port import SchedulerError

LONGEST_PAUSE_S = 3600.0
"""An earlier look than the machine needs does no harm; a wait of months no system call takes."""


class TokenWatch:
    """Watches the end of a job's tokens, on the reactor's thread.

    :param feed: takes events of the session machine.
    :param warn: adds a warning to the job's story.
    """

    def __init__(
        self,
        reactor: Reactor,
        pool: ContainerPool,
        executors: ExecutorServer,
        feed: Callable[[Event], object],
        warn: Callable[[StoryKind, str], object],
    ) -> None:
        self._reactor = reactor
        self._pool = pool
        self._executors = executors
        self._feed_session = feed
        self._warn = warn
        self._machine: Optional[TokenLifetime] = None
        self._timer: Optional[Timer] = None
        self._distributed = b""  # the newest tokens that executors have
        self._newest = 0  # fetches begun; the answer to an older one is too late

    def begin(self, info: Optional[PoolInfo], refresh: TokenRefresh) -> None:
        """Start with the tokens that the scheduler gave; without any, there is nothing to watch."""
        if info is None or info.tokens is None:
            return
        for text in info.token_warnings:
            self._warn(StoryKind.TOKENS, text)
        self._machine = TokenLifetime(info.fetches_tokens, refresh is TokenRefresh.RESTART)
        issued, ends = (self._to_clock(date) for date in info.tokens)
        self._feed(token_lifetime.Started(issued, ends, info.fetched is not None))
        if info.fetched is not None:
            # A next master's programs have those of the master before.
            self._hand_on(self._newest, info.fetched, known=info.attempt == 1)

    def close(self) -> None:
        """Decide nothing any more."""
        self._machine = None
        if self._timer is not None:
            self._timer.cancel()

    def next_deadline(self) -> Optional[float]:
        """When the machine decides next."""
        return None if self._machine is None else self._machine.next_deadline()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.next_deadline()
        if deadline is not None:
            pause = min(LONGEST_PAUSE_S, deadline - self._reactor.now())
            self._timer = self._reactor.call_later(pause, self._feed, token_lifetime.Tick())

    def _to_clock(self, date: float) -> float:
        """The reactor's clock at a date in seconds since the epoch."""
        return self._reactor.now() + date - time.time()

    def _feed(self, event: token_lifetime.Event) -> None:
        if self._machine is None:
            return
        for command in self._machine.handle(event, self._reactor.now()):
            if isinstance(command, token_lifetime.Fetch):
                self._start_fetch()
            elif isinstance(command, token_lifetime.Warn):
                self._warn(StoryKind.TOKENS, command.text)
            elif isinstance(command, token_lifetime.RestartGang):
                self._feed_session(GangRestartRequested(command.reason))
            else:
                self._feed_session(TokensExpiring(command.reason))
        self._arm()

    def _start_fetch(self) -> None:
        self._newest += 1
        threading.Thread(
            target=self._fetch, args=(self._newest,), name="fetch-tokens", daemon=True
        ).start()

    def _fetch(self, number: int) -> None:
        try:
            fresh = self._pool.fetch_tokens()
        except SchedulerError as error:
            reason = str(error)
            self._reactor.call_soon_threadsafe(self._note_failure, number, reason)
        except Exception as error:  # a fault of ours: the next fetch may do better
            reason = f"a fault of tony's own ({type(error).__name__}: {error})"
            self._reactor.call_soon_threadsafe(self._note_failure, number, reason)
        else:
            self._reactor.call_soon_threadsafe(self._note_fetched, number, fresh)

    def _note_failure(self, number: int, reason: str) -> None:
        if number == self._newest:
            self._feed(token_lifetime.FetchFailed(reason))

    def _note_fetched(self, number: int, fresh: FreshTokens) -> None:
        if number != self._newest or self._machine is None:
            return
        known = fresh.renewed and fresh.content == self._distributed
        self._hand_on(number, fresh, known)

    def _hand_on(self, number: int, fresh: FreshTokens, known: bool) -> None:
        """Give tokens to what needs them; ``known``: programs have these already."""
        try:
            distribute_tokens(fresh.content, self._pool, self._executors)
        except Exception as error:
            self._note_failure(number, f"they cannot be handed on ({error})")
            return
        self._distributed = fresh.content
        self._feed(token_lifetime.Fetched(self._to_clock(fresh.ends), known))
