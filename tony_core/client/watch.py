"""Watches one application to its end.

Theory of operation
===================

Two sources, in this order. The **scheduler** says whether the application still runs, where
its page is and how it ended; it is asked again and again on the caller's own thread, as
often as its answers are cheap (:mod:`pace`). The **page** tells the story, the tasks and the
links; it is read by a thread of its own (:mod:`feed`) into a queue. So a master that is
dead, silent or being replaced never holds anything up: the scheduler's word ends the watch.

The queue is also what the caller's thread waits on between two questions to the scheduler.
A page that falls silent, or an event that says the job is ending, makes it ask at once;
that is why the end of a job is seen right away even where asking is dear. Where the page told
the whole end before the scheduler did, nobody reads history for it.

All callbacks run on the thread that called :meth:`Watch.run`, one at a time; what one raises
ends the watch and reaches its caller.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Callable, Mapping, Optional, Tuple

from tony_core.client.feed import JOB_ENDED, Facts, Feed, Silence, Story, Told, Wake
from tony_core.client.finalize import final_view
from tony_core.client.lookup import event_number, story_after
from tony_core.client.merge import from_page, from_status, under_status
from tony_core.client.poll_interval import Pace
from tony_core.job.spec import Job
from tony_core.schedulers.port import AppStatus, NoSuchApplication, Scheduler, SchedulerError
from tony_core.view import HISTORY, JobView, TaskView

#: For how long a scheduler that stopped answering is asked again before that is an error.
UNREACHABLE_S = 120.0
TICK_S = 0.25
ENDING_KINDS = ("ending", JOB_ENDED)
#: After the page said that the job is ending, the scheduler is asked often for so long.
EAGER_S = 5.0

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Callbacks:
    """What a program that embeds the client may want to hear of."""

    on_application: Optional[Callable[[str], None]] = None  # its id, as soon as there is one
    #: Some task's state, node, exit code or session changed; all of them.
    on_tasks: Optional[Callable[[Tuple[TaskView, ...]], None]] = None
    #: Some task got a percent further, or its log got a place; all of them.
    on_progress: Optional[Callable[[Tuple[TaskView, ...]], None]] = None
    on_links: Optional[Callable[[Mapping[str, str]], None]] = None  # page, tensorboard...
    on_event: Optional[Callable[[Event], None]] = None  # a line of the story
    on_view: Optional[Callable[[JobView], None]] = None  # anything at all is newer
    on_finished: Optional[Callable[[JobView], None]] = None  # once, the last call
    on_unreachable: Optional[Callable[[str], None]] = None  # the scheduler, for now
    #: The page of the job did not answer just now, and why; each time.
    on_silent_page: Optional[Callable[[str], None]] = None
    on_tick: Optional[Callable[[], None]] = None  # some times a second, for a display


class Watch:
    """One application being watched."""

    def __init__(
        self,
        scheduler: Scheduler,
        app_id: str,
        callbacks: Callbacks = Callbacks(),
        *,
        job: Optional[Job] = None,
        history: Optional[str] = None,
        unreachable_s: float = UNREACHABLE_S,
    ) -> None:
        self.app_id = app_id
        self.view: Optional[JobView] = None  # the newest
        self._scheduler = scheduler
        self._tell = callbacks
        self._job = job
        self._history = history
        self._unreachable_s = unreachable_s
        self._inbox: SimpleQueue[Told] = SimpleQueue()
        self._status: Optional[AppStatus] = None
        self._stopped = False
        self._eager_until = 0.0
        self._told_all = False  # the story, to its last line
        self._last_facts: Optional[Facts] = None  # what the page said after that

    def stop(self) -> None:
        """Make :meth:`run` return soon; from any thread, or a signal handler."""
        self._stopped = True
        self.wake()

    def wake(self) -> None:
        """Make the watcher look around (and tick) now; from any thread or signal handler."""
        self._inbox.put(Wake())

    def run(self, timeout_s: Optional[float] = None) -> Optional[JobView]:
        """Watch to the end; ``None`` when stopped, or the time was over, before that."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        feed = Feed(self._inbox, user=self._scheduler.user)
        try:
            status = self._watch(feed, deadline)
        finally:
            feed.close()
        if status is None:
            return None
        self._drain()
        facts = self._last_facts
        if facts is not None and self._told_all:
            # In the very shapes of history, which the master completed after it had said this.
            view = from_page(facts.job, facts.tasks, status, HISTORY, self.app_id)
        else:
            view = final_view(
                self._scheduler, status, last=self.view, job=self._job, history=self._history
            )
        if not self._told_all:
            self._catch_up(feed.newest)
        self._newer(view)
        if self._tell.on_finished is not None:
            self._tell.on_finished(view)
        return view

    # ------------------------------------------------------------------ the loop

    def _watch(self, feed: Feed, deadline: Optional[float]) -> Optional[AppStatus]:
        pace = Pace()
        silent_since: Optional[float] = None
        next_look = 0.0
        while not self._stopped:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return None
            if now >= next_look:
                try:
                    status = self._scheduler.status(self.app_id)
                except NoSuchApplication:
                    raise
                except SchedulerError as error:
                    silent_since = self._silent(silent_since, now, error)
                    pace.failed()
                else:
                    silent_since = None
                    pace.answered(time.monotonic() - now)
                    self._heard(status, feed)
                    if status.state.ended:
                        return status
                pause = pace.least_s if now < self._eager_until else pace.pause_s
                next_look = time.monotonic() + pause
            if self._take(next_look, deadline):
                next_look = 0.0
            if self._tell.on_tick is not None:
                self._tell.on_tick()
        return None

    def _silent(self, since: Optional[float], now: float, error: SchedulerError) -> float:
        if since is None:
            if self._tell.on_unreachable is not None:
                self._tell.on_unreachable(str(error))
            return now
        if now - since >= self._unreachable_s:
            raise SchedulerError(
                f"the scheduler has not answered for {now - since:.0f} s: {error}; the job may"
                f" still run: tony attach {self.app_id} watches it again"
            ) from error
        return since

    def _heard(self, status: AppStatus, feed: Feed) -> None:
        changed = status != self._status
        self._status = status
        feed.at(None if status.state.ended else status.page_url)
        if self.view is None:
            self._newer(from_status(status))
        elif changed:
            # The page's word is the richer one where both speak of a running job.
            view = under_status(self.view, status)
            if self.view.source == "scheduler":
                view = from_status(status)
            self._newer(view)

    def _take(self, next_look: float, deadline: Optional[float]) -> bool:
        """Wait for the page's word until the next look; whether to look at once."""
        until = min(next_look, time.monotonic() + TICK_S)
        if deadline is not None:
            until = min(until, deadline)
        try:
            told = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return False
        if isinstance(told, Story):
            ending = self._story(told)
            if ending:
                self._eager_until = time.monotonic() + EAGER_S
            return ending
        if isinstance(told, Facts):
            self._facts(told)
            self._newer(from_page(told.job, told.tasks, self._status, app_id=self.app_id))
            return False
        if isinstance(told, Silence):
            if self._tell.on_silent_page is not None:
                self._tell.on_silent_page(told.reason)
            return True
        return False

    # ------------------------------------------------------------------ telling

    def _story(self, told: Story) -> bool:
        """Tell its lines on; whether the job is ending."""
        ending = False
        for event in told.events:
            self._event(event)
            ending = ending or event.get("kind") in ENDING_KINDS
            self._told_all = event.get("kind") == JOB_ENDED
        return ending

    def _facts(self, told: Facts) -> None:
        # A master that died over the end may be followed by one that goes on with the job.
        ended = self._told_all and told.job.get("finished")
        self._last_facts = told if ended else None

    def _event(self, event: Event) -> None:
        if self._tell.on_event is not None:
            self._tell.on_event(event)

    def _drain(self) -> None:
        """What was still in the queue when the end came."""
        while True:
            try:
                told = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(told, Story):
                self._story(told)
            elif isinstance(told, Facts):
                self._facts(told)

    def _catch_up(self, newest: int) -> None:
        """What the page never came to tell."""
        if self._tell.on_event is None:
            return
        for event in story_after(
            self._scheduler, self.app_id, newest, job=self._job, history=self._history
        ):
            if event_number(event) > newest:
                self._event(event)

    def _newer(self, view: JobView) -> None:
        before, self.view = self.view, view
        if self._tell.on_links is not None and view.links != (before.links if before else {}):
            self._tell.on_links(view.links)
        if view.tasks:
            known = before.tasks if before is not None else ()
            if self._tell.on_tasks is not None and _differ(_standing, view.tasks, known):
                self._tell.on_tasks(view.tasks)
            if self._tell.on_progress is not None and _differ(_advance, view.tasks, known):
                self._tell.on_progress(view.tasks)
        if self._tell.on_view is not None:
            self._tell.on_view(view)


Tasks = Tuple[TaskView, ...]


def _differ(mark: Callable[[TaskView], object], now: Tasks, before: Tasks) -> bool:
    return [mark(task) for task in now] != [mark(task) for task in before]


def _standing(task: TaskView) -> object:
    return (task.task, task.state, task.session, task.node, task.exit_code)


def _advance(task: TaskView) -> object:
    percent = None if task.progress is None else int(task.progress * 100)
    return (task.task, percent, task.container, task.log_url)
