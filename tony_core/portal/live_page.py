"""A running job's own page, read once for all who look at the job in the portal.

Theory of operation
===================

Each look at a job in the portal asks for the newest; the master gets one request a second all the
same, for what was just read is given to the next reader in whose name the same is asked. In a
portal for many, on a cluster, that is each viewer: the cluster decides what he may read. The story
is kept, and only what is new is asked for.

What answers is a job, and may be anything: slow, endless, of another job, or a redirect to a server
that the portal can reach and its viewers cannot. So an answer has a deadline for all of it (the
connection is shut when it is over) and a size; only addresses that the scheduler names for this job
are asked, redirects included (:meth:`Scheduler.page_problem`); what comes is read as
:mod:`tony_core.view` reads it, and the id and owner in it are the scheduler's.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.history.layout import event_number
from tony_core.portal.schedulers import TooLate, call_within

FIRST_S = 1.0  # for the job; who does not answer by then is shown from history
REST_S = 4.0  # for its tasks and story
METRICS_S = 4.0
FRESH_S = 1.0
METRICS_FRESH_S = 5.0  # they are large, and a point is added every few seconds
FAILED_S = 3.0  # until a page that did not answer is asked again
MOST_BYTES = 16 << 20
MOST_EVENTS = 20_000
MOST_PAGES = 64  # that are kept open, beside those in use
IN_USE_S = 30.0  # since it was asked for last; an open page of the portal asks every few seconds
MOST_LATE = 2  # requests to one page that go on behind their deadline

T = TypeVar("T")


class PageRead(NamedTuple):
    """What a page answered last."""

    job: Mapping[str, Any]
    tasks: Tuple[Mapping[str, Any], ...]
    events: Tuple[Mapping[str, Any], ...]


class LivePage:
    """One job's page as one user may read it. Any thread may ask."""

    def __init__(self, open_page: Callable[[], JobPage]) -> None:
        """``open_page`` opens the page anew, after a failure too; it raises PageError."""
        self._open = open_page
        self._lock = threading.Lock()  # one request at a time
        self._page: Optional[JobPage] = None
        self._read: Optional[PageRead] = None
        self._read_at = 0.0
        self._failure: Optional[PageError] = None
        self._failed_at = 0.0
        self._newest = 0
        self._late: List[_Request] = []
        self._metrics: Optional[Mapping[str, Any]] = None
        self._metrics_at = 0.0

    def read(self) -> PageRead:
        """The job, its tasks and story, at most :data:`FRESH_S` old; raises PageError."""
        self._enter(FIRST_S + REST_S)
        try:
            now = time.monotonic()
            if self._read is not None and now - self._read_at < FRESH_S:
                return self._read
            job = self._within(FIRST_S, lambda page: page.job())
            tasks, events = self._within(REST_S, lambda page: (page.tasks(), self._story(page)))
            self._read = PageRead(job, tuple(one for one in tasks if isinstance(one, dict)), events)
            self._read_at = time.monotonic()
            return self._read
        finally:
            self._lock.release()

    def metrics(self) -> Mapping[str, Any]:
        """The job's metrics, at most :data:`METRICS_FRESH_S` old; raises PageError."""
        self._enter(METRICS_S)
        try:
            now = time.monotonic()
            if self._metrics is None or now - self._metrics_at >= METRICS_FRESH_S:
                self._metrics = self._within(METRICS_S, lambda page: page.metrics())
                self._metrics_at = time.monotonic()
            return self._metrics
        finally:
            self._lock.release()

    def close(self) -> None:
        """Give back the connection; a request that waits fails."""
        page, self._page = self._page, None
        if page is not None:
            page.abort()
            page.close()

    # ------------------------------------------------------------------ one request

    def _enter(self, within_s: float) -> None:
        if not self._lock.acquire(timeout=within_s):
            raise PageError("the job's page is being read by others, and does not answer")
        if self._failure is not None and time.monotonic() - self._failed_at < FAILED_S:
            self._lock.release()
            raise self._failure

    def _within(self, seconds: float, ask: Callable[[JobPage], T]) -> T:
        self._abort_late()
        request = _Request(self._page, self._open)
        try:
            found = call_within(lambda: request.perform(ask), seconds, "the job's page")
        except TooLate as error:
            self._late.append(request)
            self._abort_late()
            raise self._failed(PageError(str(error))) from None
        except PageError as error:
            raise self._failed(error) from error
        except Exception as error:
            # What a page answers must not end what shows it.
            raise self._failed(PageError(f"{type(error).__name__}: {error}")) from error
        self._page, self._failure = request.page, None
        return found

    def _abort_late(self) -> None:
        """Have late requests end, whatever comes byte by byte; raises PageError for too many."""
        self._late = [request for request in self._late if not request.done]
        for request in self._late:
            request.abort()
        if len(self._late) > MOST_LATE:
            raise self._failed(PageError("the job's page has not answered earlier requests yet"))

    def _failed(self, error: PageError) -> PageError:
        self._page = None
        self._failure, self._failed_at = error, time.monotonic()
        return error

    def _story(self, page: JobPage) -> Tuple[Mapping[str, Any], ...]:
        known = self._read.events if self._read is not None else ()
        events, following = page.events(self._newest)
        if following < self._newest:  # a next master that counts anew
            known, self._newest = (), 0
            events, following = page.events(0)
        fresh = [
            event
            for event in events
            if isinstance(event, dict) and event_number(event) > self._newest
        ]
        self._newest = max([self._newest, *(event_number(event) for event in fresh)])
        return (*known, *fresh)[-MOST_EVENTS:]


class _Request:
    """A request that may come too late: its thread closes the page."""

    def __init__(self, page: Optional[JobPage], open_page: Callable[[], JobPage]) -> None:
        self.page = page
        self._open = open_page
        self._aborted = False
        self.done = False

    def perform(self, ask: Callable[[JobPage], T]) -> T:
        try:
            if self.page is None:
                self.page = self._open()
            if self._aborted:
                raise PageError("too late")
            return ask(self.page)
        except BaseException:
            if self.page is not None:
                self.page.close()
            raise
        finally:
            self.done = True

    def abort(self) -> None:
        self._aborted = True
        if self.page is not None:
            self.page.abort()


class LivePages:
    """The pages that are being looked at; of those not in use, few are kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pages: OrderedDict[Tuple[str, ...], Tuple[LivePage, float]] = OrderedDict()

    def get(self, key: Tuple[str, ...], open_page: Callable[[], JobPage]) -> LivePage:
        """The page of a key: scheduler, job, address, and the user who asks."""
        surplus: List[LivePage] = []
        with self._lock:
            now = self._clock()
            known = self._pages.pop(key, None)
            page = known[0] if known is not None else LivePage(open_page)
            self._pages[key] = page, now
            while len(self._pages) > MOST_PAGES:
                oldest, (one, asked_at) = next(iter(self._pages.items()))
                if now - asked_at < IN_USE_S:
                    break  # to close one that is being read would fail its reader
                del self._pages[oldest]
                surplus.append(one)
        for one in surplus:
            one.close()
        return page

    def close(self) -> None:
        """Close all."""
        with self._lock:
            pages = [page for page, _ in self._pages.values()]
            self._pages.clear()
        for page in pages:
            page.close()
