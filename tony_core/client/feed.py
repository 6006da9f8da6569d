"""Reads the job's page on a thread of its own, so that a silent page holds nobody up.

What it reads goes into a queue as small messages; whoever watches takes them from there, on
its own thread. The feed keeps the number of the newest event it has seen, and goes on from
there whichever master answers: it is told the page's address anew after a takeover.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple, Union

from tony_core.client.errors import PageError
from tony_core.client.lookup import event_number
from tony_core.client.page import LONGEST_PAUSE_S, Page
from tony_core.client.poll_interval import Pace
from tony_core.unexpected_errors import UnexpectedErrors

POLL_S = 2.0  # tasks and metrics change without an event
JOIN_S = 2.0
SHARE = 0.2  # of the time may go into reading tasks: the page is the job's own
JOB_ENDED = "job-ended"  # the story's last line; what the page says after it is final


class Story(NamedTuple):
    """Events that are new, oldest first."""

    events: Tuple[Mapping[str, Any], ...]


class Facts(NamedTuple):
    """What the page says of the job and its tasks."""

    job: Mapping[str, Any]
    tasks: Tuple[Mapping[str, Any], ...]


class Silence(NamedTuple):
    """The page stopped answering."""

    reason: str


class Wake(NamedTuple):
    """Somebody wants the watcher to look around."""


Told = Union[Story, Facts, Silence, Wake]
Inbox = "SimpleQueue[Told]"


class Feed:
    """One job's page, read until :meth:`close`."""

    def __init__(self, inbox: SimpleQueue[Told], poll_s: float = POLL_S, user: str = "") -> None:
        self._inbox = inbox
        self._user = user
        self._poll_s = poll_s
        self._changed = threading.Condition()
        self._url: Optional[str] = None
        self._closed = False
        self._page: Optional[Page] = None
        self._thread: Optional[threading.Thread] = None
        self.newest = 0  # number of the newest event told
        self.faults = UnexpectedErrors(lambda text: None)  # the watcher shows the line

    def at(self, url: Optional[str]) -> None:
        """Where the page is now; ``None`` while nobody knows."""
        with self._changed:
            if url == self._url or self._closed:
                return
            self._url = url
            if self._page is not None:
                self._page.abort()
            if url is not None and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="page-feed", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop reading; nothing is told afterwards."""
        with self._changed:
            self._closed = True
            if self._page is not None:
                self._page.abort()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(JOIN_S)  # its socket was shut: it is on its way out

    @property
    def closed(self) -> bool:
        """Whether nobody wants to hear any more."""
        return self._closed

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        pace = Pace(share=SHARE)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._url is not None)
                url = self._url
                if url is None or self.closed:
                    return
                page = self._page = Page(url, user=self._user)
            try:
                self._read(page, pace)
            except Exception as error:
                # Another answer may be sound: what cannot be read must not end the thread.
                known = isinstance(error, PageError)
                text = str(error) if known else self.faults.record("reading the job's page")
                pace.failed()
                if self._url == url and not self.closed:
                    self._inbox.put(Silence(text))
            finally:
                page.close()
            with self._changed:
                if not self._closed and self._url == url:
                    self._changed.wait(pace.pause_s)

    def _read(self, page: Page, pace: Pace) -> None:
        wait_s = 0.0  # the first look is at what there is
        allowed = due = 0.0  # when the facts may, and must, be read again
        changed = first = True
        while not self.closed:
            events, following = page.events(self.newest, wait_s)
            if first and following < self.newest:
                # This master counts anew (a next one normally counts on, with a gap): what
                # it has told so far was told before, or is in history.
                self.newest = following
            first = False
            fresh = self._fresh(events)
            if fresh:
                changed = True
                self._inbox.put(Story(tuple(fresh)))
            over = any(event.get("kind") == JOB_ENDED for event in fresh)
            began = time.monotonic()
            if over or began >= due or (changed and began >= allowed):
                self._inbox.put(Facts(page.job(), tuple(page.tasks())))
                now = time.monotonic()
                pace.answered(now - began)
                # The tasks of a large job are dear: not at every event.
                poll_s = max(self._poll_s, LONGEST_PAUSE_S if page.proxied else 0.0)
                allowed, due = now + pace.pause_s, now + max(poll_s, pace.pause_s)
                changed = False
            wait_s = max(0.05, (allowed if changed else due) - time.monotonic())

    def _fresh(self, events: List[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
        fresh = [event for event in events if event_number(event) > self.newest]
        self.newest = max([self.newest, *(event_number(event) for event in fresh)])
        return fresh
