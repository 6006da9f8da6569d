"""Waits for many jobs of one scheduler on one event loop, with one call for all of them.

Theory of operation
===================

A triggerer runs hundreds of triggers on one event loop. If each asked for its own job, a
ResourceManager would get hundreds of calls every few seconds. So the triggers of one loop and one
scheduler share a :class:`JobPoller`, which asks **once per interval for all of them**. A trigger
enters :func:`polled` with a :class:`Subscription`, whose queue the poller fills with updates, and
leaves when it has what it waits for or is cancelled; the last one to leave stops the poller.
Nothing blocks the loop: calls to the scheduler run in threads of the source's, reads of pages in
other threads, so a page that hangs delays no job's end.

**A read of the job's page** shows its tasks and TensorBoard's address, and renews the lease with
which the job was submitted (``tony.client.lease``), unless the job is another's: a sensor only
looks. The poller reads often enough for the lease, less often the more jobs there are, and never so
often that it costs much.

**A scheduler that does not answer** is asked again, at growing intervals, until a subscription's
own limit has passed. A ticket that has expired is waited for as long. A scheduler that refuses this
client for another reason is asked again for as long as a watch does (``REFUSED_S``). If the answer
lacks a job, the poller asks for that one by its id, since lists are cut; the job is gone when the
scheduler has twice answered that it does not exist.

A subscription may also search for its job, until the scheduler's list has it.

The poller runs in a context of its own: otherwise what it logged would stand in the log of the task
that came first. It logs nothing; each trigger logs its own updates.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    MutableMapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

from tony_core.client.errors import PageError, UsageError
from tony_core.client.merge import from_page
from tony_core.client.outage import LEASE_SHARE, REFUSED_S, PageOutage, SchedulerOutage
from tony_core.client.page import JobPage
from tony_core.hadoop.web import WebAccess
from tony_core.schedulers.port import (
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
)
from tony_core.view import JobView

PAGE_THREADS = 4
PAGE_S = 15.0  # between two reads of one page
FIRST_PAGE_S = 3.0  # until the page shows TensorBoard's address, or FIRST_PAGES_FOR_S have passed
FIRST_PAGES_FOR_S = 60.0
EACH_S = 0.1  # at the least between two reads of any page
SLOWEST_S = 30.0  # between two calls to a scheduler that does not answer
GATHER_S = 0.2  # triggers start in crowds: their first call is one
MISSES = 2
REFUSALS = (NoSuchScheduler, UsageError)
"""Errors that another call cannot mend: most often this machine's configuration is wrong."""


class JobSource(Protocol):
    """The calls to one scheduler that a poller needs."""

    def web(self) -> Optional[WebAccess]:
        """Who reads the jobs' pages; None for the process's own user. Blocks."""

    async def a_status(self, app_id: str) -> AppStatus:
        """One application."""

    async def a_statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        """Those of the applications that the scheduler knows, by id."""

    async def a_list(self) -> List[AppStatus]:
        """All applications that the scheduler knows."""

    async def a_user(self) -> str:
        """The user that the scheduler takes the caller for."""

    def read_output(
        self, view: JobView, position: Mapping[str, int]
    ) -> Tuple[List[str], Dict[str, int]]:
        """The chief's new output; blocks, for a thread of the caller's."""

    def close(self) -> None:
        """Close threads and connections."""


class JobFound(NamedTuple):
    """The search has found this application; updates of it follow."""

    status: AppStatus


class JobSeen(NamedTuple):
    """The job runs; its newest view, and the chief's new output."""

    view: JobView
    output: Sequence[str] = ()


class JobEnded(NamedTuple):
    """The scheduler says that the job has ended."""

    status: AppStatus


class JobLost(NamedTuple):
    """The scheduler knows no such job (any more)."""

    why: str


class AccessRefused(NamedTuple):
    """This machine cannot ask for the job, now or later."""

    why: str


class SchedulerUnreachable(NamedTuple):
    """The scheduler has not answered for longer than the subscription waits."""

    why: str
    silent_s: float


class LoginLost(NamedTuple):
    """This process has been without a valid login for longer than the subscription waits."""

    why: str
    seconds: float


class Retrying(NamedTuple):
    """The scheduler does not answer now; once for each outage."""

    why: str
    is_login: bool = False
    """Whether that is because this process has no valid login."""


class PageUnreadable(NamedTuple):
    """No read of the job's page has worked for a part of its lease; once for each outage."""

    warning: str


Update = Union[
    JobFound,
    JobSeen,
    JobEnded,
    JobLost,
    AccessRefused,
    SchedulerUnreachable,
    LoginLost,
    Retrying,
    PageUnreadable,
]
Search = Callable[[Iterable[AppStatus], str], Optional[AppStatus]]


class Subscription:
    """The wait for one job: one that ``app_id`` names, or that ``search`` finds in a list."""

    def __init__(
        self,
        app_id: str,
        poll_s: float,
        unreachable_s: float,
        lease_s: Optional[float] = None,
        get_logs: bool = False,
        search: Optional[Search] = None,
        refused_s: float = REFUSED_S,
        renews_lease: bool = True,
    ) -> None:
        self.app_id = app_id
        self.poll_s = poll_s
        self.lease_s = lease_s
        self.renews_lease = renews_lease
        self.get_logs = get_logs
        self.search = search
        self.position: Dict[str, int] = {}  # in the chief's output
        self.updates: asyncio.Queue[Update] = asyncio.Queue()
        self.since = time.monotonic()
        self.search_at = 0.0
        self.read_at = 0.0
        self.is_reading = False
        self.wants_links = True
        self.misses = 0
        self.outage = SchedulerOutage(unreachable_s, refused_s, login_s=unreachable_s)
        self.page = PageOutage(lease_s)

    async def next(self) -> Update:
        """Wait for the next update."""
        return await self.updates.get()


class JobPoller:
    """Polls the jobs of one scheduler, on one event loop."""

    def __init__(self, source: JobSource) -> None:
        self._source = source
        self._pages = ThreadPoolExecutor(PAGE_THREADS, thread_name_prefix="tony-page")
        self._subscriptions: List[Subscription] = []
        self._joined = asyncio.Event()
        self._task: Optional[asyncio.Task[None]] = None
        self._reads: set[asyncio.Task[None]] = set()
        self._statuses: Dict[str, AppStatus] = {}
        self.calls = 0  # to the scheduler, for a benchmark
        self.closed = False

    def add(self, subscription: Subscription) -> None:
        """Poll for one more job."""
        self._subscriptions.append(subscription)
        self._joined.set()
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = contextvars.Context().run(loop.create_task, self._run())

    def remove(self, subscription: Subscription) -> bool:
        """Poll for one job less; True when it was the last, and the poller is closed."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        if not self._subscriptions and not self.closed:
            self.closed = True
            if self._task is not None:
                self._task.cancel()
            for read in self._reads:
                read.cancel()
            self._source.close()
            self._pages.shutdown(wait=False, cancel_futures=True)
        return self.closed

    # ------------------------------------------------------------------ the scheduler

    async def _run(self) -> None:
        pause = 0.0
        while True:
            await self._pause(pause)
            began = time.monotonic()
            due = [each for each in self._subscriptions if each.app_id or began >= each.search_at]
            try:
                found = await self._fetch_statuses(due) if due else {}
            except Exception as error:
                for subscription in due:
                    self._failed(subscription, error, began)
                pause = min(SLOWEST_S, max(pause, 0.5) * 1.5)
            else:
                missing = []
                for subscription in due:
                    if subscription.app_id in found:
                        self._answered(subscription, found[subscription.app_id])
                    elif subscription.app_id:
                        missing.append(subscription)
                await asyncio.gather(*map(self._fetch_status, missing))
                pause = min((each.poll_s for each in self._subscriptions), default=1.0)
            self._start_reads()

    async def _pause(self, seconds: float) -> None:
        """Wait until the next call is due, or a new subscription needs one."""
        due = time.monotonic() + seconds
        while True:
            left = due - time.monotonic()
            if left <= 0:
                break
            try:
                # In short steps: reads of pages are due meanwhile.
                await asyncio.wait_for(self._joined.wait(), min(left, 1.0))
                break
            except asyncio.TimeoutError:
                self._start_reads()
        if self._joined.is_set():
            await asyncio.sleep(GATHER_S)
            self._joined.clear()

    async def _fetch_statuses(self, due: Sequence[Subscription]) -> Dict[str, AppStatus]:
        """Ask once for all of them."""
        self.calls += 1
        searching = [each for each in due if not each.app_id]
        if not searching:
            return await self._source.a_statuses([each.app_id for each in due])
        listed = await self._source.a_list()
        user = await self._source.a_user()
        for each in searching:
            each.outage.answered()
            each.search_at = time.monotonic() + each.poll_s
            status = each.search(listed, user) if each.search is not None else None
            if status is not None:
                each.app_id = status.app_id
                each.updates.put_nowait(JobFound(status))
        return {status.app_id: status for status in listed}

    async def _fetch_status(self, subscription: Subscription) -> None:
        """Ask for a job that the answer lacks; an error concerns this job only."""
        began = time.monotonic()
        try:
            self.calls += 1
            status = await self._source.a_status(subscription.app_id)
        except NoSuchApplication as error:
            subscription.outage.answered()
            subscription.misses += 1
            if subscription.misses >= MISSES:
                subscription.updates.put_nowait(JobLost(str(error)))
        except Exception as error:
            self._failed(subscription, error, began)
        else:
            self._answered(subscription, status)

    def _answered(self, subscription: Subscription, status: AppStatus) -> None:
        subscription.misses = 0
        subscription.outage.answered()
        self._statuses[subscription.app_id] = status
        if status.state.ended:
            subscription.updates.put_nowait(JobEnded(status))

    @staticmethod
    def _failed(subscription: Subscription, error: Exception, began: float) -> None:
        """A call for the subscription's job was not answered."""
        why = _text_of(error)
        updates = subscription.updates
        if isinstance(error, REFUSALS):
            updates.put_nowait(AccessRefused(why))
            return
        is_login = subscription.outage.is_lost_login(error)
        failure = subscription.outage.failed(error, max(began, subscription.since))
        if failure.is_first:
            updates.put_nowait(Retrying(why, is_login))
        if not failure.has_expired:
            return
        if is_login:
            updates.put_nowait(LoginLost(why, failure.seconds))
        elif isinstance(error, LastingRefusal):
            updates.put_nowait(AccessRefused(why))
        else:
            updates.put_nowait(SchedulerUnreachable(why, failure.seconds))

    # ------------------------------------------------------------------ the jobs' pages

    def _start_reads(self) -> None:
        """Start the reads of pages that are due."""
        now = time.monotonic()
        for subscription in self._subscriptions:
            status = self._statuses.get(subscription.app_id)
            if subscription.is_reading or now < subscription.read_at or status is None:
                continue
            if status.state.ended or not status.page_url:
                continue
            subscription.is_reading = True
            subscription.read_at = now + self._read_interval_s(subscription, now)
            read = asyncio.get_running_loop().create_task(self._read(subscription, status))
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)

    def _read_interval_s(self, subscription: Subscription, now: float) -> float:
        """The time between two reads of a subscription's page."""
        is_new = subscription.wants_links and now - subscription.since < FIRST_PAGES_FOR_S
        pause = max(FIRST_PAGE_S if is_new else PAGE_S, len(self._subscriptions) * EACH_S)
        if subscription.lease_s is not None:
            pause = min(pause, subscription.lease_s / LEASE_SHARE)
        return pause

    async def _read(self, subscription: Subscription, status: AppStatus) -> None:
        loop = asyncio.get_running_loop()
        try:
            view = await loop.run_in_executor(self._pages, self._read_page, subscription, status)
        except (PageError, OSError, RuntimeError) as error:
            # The scheduler decides how the job is; but reads of the page keep the lease.
            warning = subscription.page.failed(_text_of(error))
            if warning:
                subscription.updates.put_nowait(PageUnreadable(warning))
            return
        finally:
            subscription.is_reading = False
        subscription.page.answered()
        if "tensorboard" in view.links:
            subscription.wants_links = False
        subscription.updates.put_nowait(JobSeen(view))
        if subscription.get_logs:
            await self._read_output(subscription, view)

    def _read_page(self, subscription: Subscription, status: AppStatus) -> JobView:
        return read_page(status, self._source.web(), subscription.renews_lease)

    async def _read_output(self, subscription: Subscription, view: JobView) -> None:
        loop = asyncio.get_running_loop()
        read, position = self._source.read_output, subscription.position
        try:
            lines, position = await loop.run_in_executor(self._pages, read, view, position)
        except Exception:
            return  # the next read may work, or the task reads it at the end
        subscription.position = position
        if lines:
            subscription.updates.put_nowait(JobSeen(view, lines))


def read_page(
    status: AppStatus, access: Optional[WebAccess] = None, renews_lease: bool = True
) -> JobView:
    """Read a running job's page; PageError when it does not answer."""
    page = JobPage(str(status.page_url), access=access, renews_lease=renews_lease)
    try:
        return from_page(page.job(), page.tasks(), status, app_id=status.app_id)
    finally:
        page.close()


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


_pollers: MutableMapping[asyncio.AbstractEventLoop, Dict[str, JobPoller]] = (
    weakref.WeakKeyDictionary()
)


@asynccontextmanager
async def polled(
    key: str, open_source: Callable[[], Any], subscription: Subscription
) -> AsyncIterator[Subscription]:
    """Have a job polled inside the block, by the poller of this event loop and ``key``.

    ``key`` names the scheduler; ``open_source`` opens a :class:`JobSource` for its first poller.
    """
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    poller = pollers.get(key)
    if poller is None or poller.closed:
        poller = pollers[key] = JobPoller(open_source())
    poller.add(subscription)
    try:
        yield subscription
    finally:
        if poller.remove(subscription) and pollers.get(key) is poller:
            del pollers[key]
