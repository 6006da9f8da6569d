"""Reads the job's page on a thread of its own, so that a page that hangs delays nothing else.

What it reads goes into a queue as small updates, which the watcher takes on its own thread. The
reader keeps the number of the newest event and goes on from there with any master: the watcher
gives it the page's new address after a takeover.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple, Union

from tony_core.client.errors import PageError, PageRefused
from tony_core.client.page import LONGEST_PAUSE_S, JobPage
from tony_core.hadoop.web import WebAccess
from tony_core.history.layout import StoryKind, event_number
from tony_core.unexpected_errors import UnexpectedErrors

POLL_S = 2.0  # tasks and metrics change without an event
JOIN_S = 2.0
SHARE = 0.2  # of the time may go into reading tasks: the page is the job's own
FAILING_MOST_S = 5.0


class PollInterval:
    """The pause between two calls, from what the calls cost. No clock inside.

    A look at a file may be taken many times a second; a call to a busy ResourceManager may not. The
    pause is a multiple of what the last calls took, so that calls take only a small ``share`` of
    the time.
    """

    def __init__(self, least_s: float = 0.1, most_s: float = 2.0, share: float = 0.02) -> None:
        self.least_s, self.most_s, self.share = least_s, most_s, share
        self._cost_s = 0.0
        self._failures = 0

    def answered(self, cost_s: float) -> None:
        """Note what an answered call took."""
        self._failures = 0
        # Half of the old cost: one slow answer is no reason for a long pause.
        self._cost_s = cost_s if not self._cost_s else (self._cost_s + cost_s) / 2

    def failed(self) -> None:
        """Note a call that was not answered."""
        self._failures += 1

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next call."""
        if self._failures:
            return min(FAILING_MOST_S, 0.25 * 2.0 ** min(self._failures - 1, 10))
        return min(self.most_s, max(self.least_s, self._cost_s / self.share))


class NewEvents(NamedTuple):
    """The story's new events, oldest first."""

    events: Tuple[Mapping[str, Any], ...]


class PageState(NamedTuple):
    """The job and its tasks as the page has them."""

    job: Mapping[str, Any]
    tasks: Tuple[Mapping[str, Any], ...]


class PageLost(NamedTuple):
    """The page stopped answering, or refuses this reader."""

    reason: str
    refused: bool = False


class WakeUp(NamedTuple):
    """Asks the watcher to look at once."""


Update = Union[NewEvents, PageState, PageLost, WakeUp]


class PageReader:
    """Reads a job's page until :meth:`close`."""

    def __init__(
        self,
        inbox: SimpleQueue[Update],
        poll_s: float = POLL_S,
        access: Optional[WebAccess] = None,
    ) -> None:
        self._inbox = inbox
        self._access = access
        self._poll_s = poll_s
        self._changed = threading.Condition()
        self._url: Optional[str] = None
        self._closed = False
        self._page: Optional[JobPage] = None
        self._thread: Optional[threading.Thread] = None
        self.newest = 0  # number of the newest event read
        self.errors = UnexpectedErrors(lambda text: None)  # the watcher shows the line

    def set_url(self, url: Optional[str]) -> None:
        """Read the page at this address from now on; ``None`` while it has none."""
        with self._changed:
            if url == self._url or self._closed:
                return
            self._url = url
            if self._page is not None:
                self._page.abort()
            if url is not None and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="page-reader", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop reading; no update follows."""
        with self._changed:
            self._closed = True
            if self._page is not None:
                self._page.abort()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(JOIN_S)  # its socket was shut: it is about to end

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        interval = PollInterval(share=SHARE)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._url is not None)
                url = self._url
                if url is None or self._closed:
                    return
                page = self._page = JobPage(url, access=self._access)
            try:
                self._read(page, interval)
            except Exception as error:
                # Another answer may be sound: what cannot be read must not end the thread.
                known = isinstance(error, PageError)
                text = str(error) if known else self.errors.record("reading the job's page")
                interval.failed()
                if self._url == url and not self._closed:
                    self._inbox.put(PageLost(text, isinstance(error, PageRefused)))
            finally:
                page.close()
            with self._changed:
                if not self._closed and self._url == url:
                    self._changed.wait(interval.pause_s)

    def _read(self, page: JobPage, interval: PollInterval) -> None:
        wait_s = 0.0  # the first look is at what there is
        allowed = due = 0.0  # when the job and its tasks may, and must, be read again
        changed = first = True
        while not self._closed:
            events, following = page.events(self.newest, wait_s)
            if first and following < self.newest:
                # This master counts from zero again (a next one normally counts on, with a
                # gap): its events so far were read before, or are in history.
                self.newest = following
            first = False
            fresh = self._fresh(events)
            if fresh:
                changed = True
                self._inbox.put(NewEvents(tuple(fresh)))
            over = any(event.get("kind") == StoryKind.JOB_ENDED for event in fresh)
            began = time.monotonic()
            if over or began >= due or (changed and began >= allowed):
                self._inbox.put(PageState(page.job(), tuple(page.tasks())))
                now = time.monotonic()
                interval.answered(now - began)
                # The tasks of a large job cost much to read: not at every event.
                poll_s = max(self._poll_s, LONGEST_PAUSE_S if page.proxied else 0.0)
                allowed, due = now + interval.pause_s, now + max(poll_s, interval.pause_s)
                changed = False
            wait_s = max(0.05, (allowed if changed else due) - time.monotonic())

    def _fresh(self, events: List[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
        fresh = [event for event in events if event_number(event) > self.newest]
        self.newest = max([self.newest, *(event_number(event) for event in fresh)])
        return fresh
