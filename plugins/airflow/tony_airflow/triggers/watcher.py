"""One watcher for all the jobs of a site that one event loop waits for.

Theory of operation
===================

A triggerer runs hundreds of triggers on one event loop. Each asking for its own job would mean
hundreds of calls to a ResourceManager every few seconds; so the triggers of one loop and one site
share a :class:`SiteWatcher`, which asks **once per interval for all of them**. A trigger joins with
a :class:`Waiter`, an inbox that the watcher puts news into, and leaves when it has what it
waited for or is cancelled; the last to leave ends the watcher. Nothing blocks the loop: calls run
in a few threads of the hook's, looks at pages in a few others, so a page that hangs delays no end.

**A look at the job's page** says how its tasks are and where TensorBoard is, and renews the lease
that the job is submitted with (``tony.client.lease``). It is taken now and then: often enough for
the lease, more seldom the more jobs there are, never so often that it costs much.

**A cluster that does not answer** is asked again, ever more seldom, until a waiter's own patience
is over. One job that the answer leaves out is asked for by its id, since lists are cut; only when
that says that there is none, twice, it is gone.

The watcher runs in a context of its own: what it would log would otherwise stand in the log of
whichever task came first. It logs nothing; each trigger tells its own news.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Sequence, Union

from tony_airflow.connection import Site, SiteError
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.lease import SHARE, UnseenPage
from tony_core.client.errors import PageError
from tony_core.client.page import Page
from tony_core.client.view import JobView, from_page
from tony_core.schedulers.port import (
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
)

LOOKS = 4  # at once
LOOK_S = 15.0  # between two looks at one page
FIRST_LOOKS_S = 3.0  # until the page has said where TensorBoard is, or for a while
FIRST_LOOKS_FOR_S = 60.0
EACH_S = 0.1  # at the least between two looks at any page
SLOWEST_S = 30.0  # between two questions to a cluster that does not answer
GATHER_S = 0.2  # triggers start in crowds: their first question is one
MISSES = 2
REFUSALS = (LastingRefusal, NoSuchScheduler, SiteError)
"""What asking again cannot mend: most often how this very machine is set up."""


@dataclass(frozen=True)
class Seen:
    """The job goes on; this is how it looks, and what its chief has written."""

    view: JobView
    output: Sequence[str] = ()


@dataclass(frozen=True)
class Ended:
    """The scheduler's word."""

    status: AppStatus


@dataclass(frozen=True)
class Lost:
    """There is no such job (any more)."""

    why: str


@dataclass(frozen=True)
class Refused:
    """From here it cannot be asked for, however often."""

    why: str


@dataclass(frozen=True)
class Unreachable:
    """The cluster has not answered for longer than the waiter waits."""

    why: str
    silent_s: float


@dataclass(frozen=True)
class Trouble:
    """The cluster does not answer for now; said once for each time that it begins."""

    why: str


@dataclass(frozen=True)
class Unseen:
    """No look at the job's page has worked for a good part of its lease; once each time."""

    why: str


News = Union[Seen, Ended, Lost, Refused, Unreachable, Trouble, Unseen]


@dataclass(eq=False)
class Waiter:
    """Somebody who waits for one job."""

    app_id: str
    poll_s: float
    unreachable_s: float
    lease_s: Optional[float] = None
    get_logs: bool = False
    position: Dict[str, int] = field(default_factory=dict)  # of the chief's output
    inbox: asyncio.Queue[News] = field(default_factory=asyncio.Queue)
    since: float = field(default_factory=time.monotonic)
    look_at: float = 0.0
    looking: bool = False
    wants_links: bool = True
    misses: int = 0
    silent_since: Optional[float] = None
    page: UnseenPage = field(init=False)

    def __post_init__(self) -> None:
        self.page = UnseenPage(self.lease_s)

    async def next(self) -> News:
        """What is new."""
        return await self.inbox.get()


class SiteWatcher:
    """Waits for the jobs of one site, on one event loop."""

    def __init__(self, site: Mapping[str, Any]) -> None:
        self._hook = TonyAsyncHook(Site.from_dict(site))
        self._user = self._hook.site.user or ""
        self._pages = ThreadPoolExecutor(LOOKS, thread_name_prefix="tony-page")
        self._waiters: List[Waiter] = []
        self._joined = asyncio.Event()
        self._task: Optional[asyncio.Task[None]] = None
        self._looks: set[asyncio.Task[None]] = set()
        self._statuses: Dict[str, AppStatus] = {}
        self.calls = 0  # questions to the scheduler, for whoever counts them
        self.closed = False

    # ------------------------------------------------------------------ coming and going

    def join(self, waiter: Waiter) -> None:
        """Wait for one more job."""
        self._waiters.append(waiter)
        self._joined.set()
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = contextvars.Context().run(loop.create_task, self._run())

    def leave(self, waiter: Waiter) -> bool:
        """Wait for one less; whether it was the last, and all has ended."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not self._waiters and not self.closed:
            self.closed = True
            if self._task is not None:
                self._task.cancel()
            for look in self._looks:
                look.cancel()
            self._hook.close()
            self._pages.shutdown(wait=False, cancel_futures=True)
        return self.closed

    # ------------------------------------------------------------------ asking

    async def _run(self) -> None:
        pause = 0.0
        while True:
            await self._pause(pause)
            asked = list(self._waiters)
            began = time.monotonic()
            try:
                self.calls += 1
                found = await self._hook.a_statuses([waiter.app_id for waiter in asked])
            except Exception as error:
                for waiter in asked:
                    self._failed(waiter, error, began)
                pause = min(SLOWEST_S, max(pause, 0.5) * 1.5)
            else:
                left_out = []
                for waiter in asked:
                    if waiter.app_id in found:
                        self._tell(waiter, found[waiter.app_id])
                    else:
                        left_out.append(waiter)
                await asyncio.gather(*map(self._ask_for_one, left_out))
                pause = min((waiter.poll_s for waiter in self._waiters), default=1.0)
            self._look_around()

    async def _pause(self, seconds: float) -> None:
        """Until the next question; sooner when somebody has come who was not asked for yet."""
        due = time.monotonic() + seconds
        while True:
            left = due - time.monotonic()
            if left <= 0:
                break
            try:
                # In short steps: looks at pages are due meanwhile.
                await asyncio.wait_for(self._joined.wait(), min(left, 1.0))
                break
            except asyncio.TimeoutError:
                self._look_around()
        if self._joined.is_set():
            await asyncio.sleep(GATHER_S)
            self._joined.clear()

    async def _ask_for_one(self, waiter: Waiter) -> None:
        """Of one that the list leaves out. What goes wrong with it is no other job's trouble."""
        began = time.monotonic()
        try:
            self.calls += 1
            status = await self._hook.a_status(waiter.app_id)
        except NoSuchApplication as error:
            waiter.silent_since = None
            waiter.misses += 1
            if waiter.misses >= MISSES:
                waiter.inbox.put_nowait(Lost(str(error)))
        except Exception as error:
            self._failed(waiter, error, began)
        else:
            self._tell(waiter, status)

    def _tell(self, waiter: Waiter, status: AppStatus) -> None:
        waiter.misses = 0
        waiter.silent_since = None
        self._statuses[waiter.app_id] = status
        if status.state.ended:
            waiter.inbox.put_nowait(Ended(status))

    @staticmethod
    def _failed(waiter: Waiter, error: Exception, began: float) -> None:
        """A question about the waiter's job was not answered."""
        why = _words(error)
        if isinstance(error, REFUSALS):
            waiter.inbox.put_nowait(Refused(why))
            return
        if waiter.silent_since is None:
            waiter.silent_since = max(began, waiter.since)
            waiter.inbox.put_nowait(Trouble(why))
        silent_s = time.monotonic() - waiter.silent_since
        if silent_s >= waiter.unreachable_s:
            waiter.inbox.put_nowait(Unreachable(why, silent_s))

    # ------------------------------------------------------------------ looking at pages

    def _look_around(self) -> None:
        """Start the looks that are due."""
        now = time.monotonic()
        for waiter in self._waiters:
            status = self._statuses.get(waiter.app_id)
            if waiter.looking or now < waiter.look_at or status is None:
                continue
            if status.state.ended or not status.page_url:
                continue
            waiter.looking = True
            waiter.look_at = now + self._look_s(waiter, now)
            look = asyncio.get_running_loop().create_task(self._look(waiter, status))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    def _look_s(self, waiter: Waiter, now: float) -> float:
        """How long until the next look at a waiter's page."""
        fresh = waiter.wants_links and now - waiter.since < FIRST_LOOKS_FOR_S
        pause = max(FIRST_LOOKS_S if fresh else LOOK_S, len(self._waiters) * EACH_S)
        if waiter.lease_s is not None:
            pause = min(pause, waiter.lease_s / SHARE)
        return pause

    async def _look(self, waiter: Waiter, status: AppStatus) -> None:
        loop = asyncio.get_running_loop()
        try:
            view = await loop.run_in_executor(self._pages, look_at_page, status, self._user)
        except (PageError, OSError, RuntimeError) as error:
            # The page is the second word, the scheduler's is the first; but looks keep the lease.
            warning = waiter.page.failed(_words(error))
            if warning:
                waiter.inbox.put_nowait(Unseen(warning))
            return
        finally:
            waiter.looking = False
        waiter.page.seen()
        if "tensorboard" in view.links:
            waiter.wants_links = False
        waiter.inbox.put_nowait(Seen(view))
        if waiter.get_logs:
            await self._read_output(waiter, view)

    async def _read_output(self, waiter: Waiter, view: JobView) -> None:
        loop = asyncio.get_running_loop()
        read = self._hook.read_output
        try:
            lines, position = await loop.run_in_executor(self._pages, read, view, waiter.position)
        except Exception:
            return  # the next look, or the task at the end, may read it
        waiter.position = position
        if lines:
            waiter.inbox.put_nowait(Seen(view, lines))


def look_at_page(status: AppStatus, user: str = "") -> JobView:
    """What a running job's page says to a user; PageError when it does not answer."""
    page = Page(str(status.page_url), user=user)
    try:
        return from_page(page.job(), page.tasks(), status, app_id=status.app_id)
    finally:
        page.close()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


_watchers: MutableMapping[asyncio.AbstractEventLoop, Dict[str, SiteWatcher]] = (
    weakref.WeakKeyDictionary()
)


class Watching:
    """``async with Watching(site, waiter)``: a place at the watcher of the site."""

    def __init__(self, site: Mapping[str, Any], waiter: Waiter) -> None:
        self._site = site
        self._key = json.dumps(site, sort_keys=True, default=str)
        self._waiter = waiter
        self._mine: Optional[SiteWatcher] = None

    async def __aenter__(self) -> Waiter:
        known = _watchers.setdefault(asyncio.get_running_loop(), {})
        watcher = known.get(self._key)
        if watcher is None or watcher.closed:
            watcher = known[self._key] = SiteWatcher(self._site)
        self._mine = watcher
        watcher.join(self._waiter)
        return self._waiter

    async def __aexit__(self, *error: object) -> None:
        assert self._mine is not None
        if self._mine.leave(self._waiter):
            known = _watchers.get(asyncio.get_running_loop(), {})
            if known.get(self._key) is self._mine:
                del known[self._key]
