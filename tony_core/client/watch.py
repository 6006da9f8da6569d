"""Watches one application to its end.

Theory of operation
===================

Two sources, in this order. The **scheduler** says whether the application still runs, where its
page is and how it ended; it is asked again and again on the caller's own thread, as often as its
answers are cheap (:class:`PollInterval`). The **page** has the story, the tasks and the links; a
thread of its own (:mod:`page_reader`) reads it into a queue. So a master that is dead, hangs or is
being replaced never delays the watch: the scheduler's answer ends it.

The queue is also what the caller's thread waits on between two questions to the scheduler. A page
that stops answering, or an event that announces the job's end, makes it ask at once; that is why
the end of a job is seen right away even where asking is expensive. Where the page showed the whole
end before the scheduler reported it, history is not read.

All callbacks run on the thread that called :meth:`Watch.run`, one at a time; what one raises
ends the watch and reaches its caller.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

from tony_core.client.finalize import finalize
from tony_core.client.lookup import story_after
from tony_core.client.merge import from_page, from_status, under_status
from tony_core.client.outage import REFUSED_S, UNREACHABLE_S, SchedulerOutage
from tony_core.client.page_reader import (
    NewEvents,
    PageLost,
    PageReader,
    PageState,
    PollInterval,
    Update,
    WakeUp,
)
from tony_core.history.layout import StoryKind, event_number
from tony_core.job.spec import Job
from tony_core.schedulers.port import (
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NotLoggedIn,
    Scheduler,
    SchedulerError,
)
from tony_core.view import HISTORY, JobView, TaskView

TICK_S = 0.25
ENDING_KINDS = (StoryKind.ENDING, StoryKind.JOB_ENDED)
#: For how long the scheduler is asked often after the page announced the job's end.
EAGER_S = 5.0

Event = Mapping[str, Any]


class Callbacks(NamedTuple):
    """What a program that embeds the client may want to be called for."""

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
    on_refused_page: Optional[Callable[[str], None]] = None  # once: the page is not for this user
    on_tick: Optional[Callable[[], None]] = None  # several times a second, for a display


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
        refused_s: float = REFUSED_S,
        login_s: float = REFUSED_S,
    ) -> None:
        self.app_id = app_id
        self.view: Optional[JobView] = None  # the newest
        self._scheduler = scheduler
        self._callbacks = callbacks
        self._job = job
        self._history = history
        self._outage = SchedulerOutage(unreachable_s, refused_s, login_s)
        self._inbox: SimpleQueue[Update] = SimpleQueue()
        self._status: Optional[AppStatus] = None
        self._stopped = False
        self._eager_until = 0.0
        self._page_refused = False
        self._story_complete = False  # to its last line
        self._final_state: Optional[PageState] = None  # what the page showed after that

    def stop(self) -> None:
        """Make :meth:`run` return soon; from any thread, or a signal handler."""
        self._stopped = True
        self.wake()

    def wake(self) -> None:
        """Make the watcher look (and tick) now; from any thread or signal handler."""
        self._inbox.put(WakeUp())

    def run(self, timeout_s: Optional[float] = None) -> Optional[JobView]:
        """Watch to the end; ``None`` when stopped, or the time was over, before that."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        reader = PageReader(self._inbox, access=self._scheduler.web)
        try:
            status = self._watch(reader, deadline)
        finally:
            reader.close()
        if status is None:
            return None
        self._drain()
        final = self._final_state
        if final is not None and self._story_complete:
            # In the very form of history, which the master completed after it had shown this.
            view = from_page(final.job, final.tasks, status, HISTORY, self.app_id)
        else:
            view = finalize(
                self._scheduler, status, last=self.view, job=self._job, history=self._history
            )
        if not self._story_complete:
            self._catch_up(reader.newest)
        self._publish(view)
        if self._callbacks.on_finished is not None:
            self._callbacks.on_finished(view)
        return view

    # ------------------------------------------------------------------ the loop

    def _watch(self, reader: PageReader, deadline: Optional[float]) -> Optional[AppStatus]:
        interval = PollInterval()
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
                    self._bear(error, now)
                    interval.failed()
                else:
                    self._outage.answered()
                    interval.answered(time.monotonic() - now)
                    self._take_status(status, reader)
                    if status.state.ended:
                        return status
                pause = interval.least_s if now < self._eager_until else interval.pause_s
                next_look = time.monotonic() + pause
            if self._take_update(next_look, deadline):
                next_look = 0.0
            if self._callbacks.on_tick is not None:
                self._callbacks.on_tick()
        return None

    def _bear(self, error: SchedulerError, asked: float) -> None:
        """Report that the scheduler gives no answer, or end the watch when that has lasted."""
        failure = self._outage.failed(error, asked)
        if failure.is_first and self._callbacks.on_unreachable is not None:
            self._callbacks.on_unreachable(str(error))
        if not failure.has_expired:
            return
        if isinstance(error, LastingRefusal):
            text = (
                f"{error}. This concerns the watch and not the job, which may still run. Resume"
                f" with: tony attach {self.app_id}"
            )
            is_login = isinstance(error, NotLoggedIn)
            raise (NotLoggedIn if is_login else LastingRefusal)(text) from error
        raise SchedulerError(
            f"the scheduler has not answered for {failure.seconds:.0f} s: {error}; the job may"
            f" still run. Resume with: tony attach {self.app_id}"
        ) from error

    def _take_status(self, status: AppStatus, reader: PageReader) -> None:
        changed = status != self._status
        self._status = status
        reader.set_url(None if status.state.ended else status.page_url)
        if self.view is None:
            self._publish(from_status(status))
        elif changed:
            # The page knows more of a running job than the scheduler.
            view = under_status(self.view, status)
            if self.view.source == "scheduler":
                view = from_status(status)
            self._publish(view)

    def _take_update(self, next_look: float, deadline: Optional[float]) -> bool:
        """Wait for the page's next update until the next look; whether to look at once."""
        until = min(next_look, time.monotonic() + TICK_S)
        if deadline is not None:
            until = min(until, deadline)
        try:
            update = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return False
        if not isinstance(update, PageLost):
            self._page_refused = False  # a ticket that ends once more is worth another line
        if isinstance(update, NewEvents):
            ending = self._pass_on(update)
            if ending:
                self._eager_until = time.monotonic() + EAGER_S
            return ending
        if isinstance(update, PageState):
            self._keep_final(update)
            self._publish(from_page(update.job, update.tasks, self._status, app_id=self.app_id))
            return False
        if isinstance(update, PageLost):
            if update.refused and not self._page_refused:
                self._page_refused = True
                if self._callbacks.on_refused_page is not None:
                    self._callbacks.on_refused_page(update.reason)
            if self._callbacks.on_silent_page is not None:
                self._callbacks.on_silent_page(update.reason)
            return True
        return False

    # ------------------------------------------------------------------ updates

    def _pass_on(self, new: NewEvents) -> bool:
        """Call back for each event; whether the job is ending."""
        ending = False
        for event in new.events:
            self._event(event)
            ending = ending or event.get("kind") in ENDING_KINDS
            self._story_complete = event.get("kind") == StoryKind.JOB_ENDED
        return ending

    def _keep_final(self, state: PageState) -> None:
        # A master that died over the end may be followed by one that goes on with the job.
        ended = self._story_complete and state.job.get("finished")
        self._final_state = state if ended else None

    def _event(self, event: Event) -> None:
        if self._callbacks.on_event is not None:
            self._callbacks.on_event(event)

    def _drain(self) -> None:
        """Take what was still in the queue when the end came."""
        while True:
            try:
                update = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(update, NewEvents):
                self._pass_on(update)
            elif isinstance(update, PageState):
                self._keep_final(update)

    def _catch_up(self, newest: int) -> None:
        """Call back for the events that the page did not get to show."""
        if self._callbacks.on_event is None:
            return
        for event in story_after(
            self._scheduler, self.app_id, newest, job=self._job, history=self._history
        ):
            if event_number(event) > newest:
                self._event(event)

    def _publish(self, view: JobView) -> None:
        before, self.view = self.view, view
        if self._callbacks.on_links is not None and view.links != (before.links if before else {}):
            self._callbacks.on_links(view.links)
        if view.tasks:
            known = before.tasks if before is not None else ()
            on_tasks, on_progress = self._callbacks.on_tasks, self._callbacks.on_progress
            if on_tasks is not None and _differ(_state_mark, view.tasks, known):
                on_tasks(view.tasks)
            if on_progress is not None and _differ(_progress_mark, view.tasks, known):
                on_progress(view.tasks)
        if self._callbacks.on_view is not None:
            self._callbacks.on_view(view)


Tasks = Tuple[TaskView, ...]


def _differ(mark: Callable[[TaskView], object], now: Tasks, before: Tasks) -> bool:
    return [mark(task) for task in now] != [mark(task) for task in before]


def _state_mark(task: TaskView) -> object:
    return (task.task, task.state, task.session, task.node, task.exit_code)


def _progress_mark(task: TaskView) -> object:
    percent = None if task.progress is None else int(task.progress * 100)
    return (task.task, percent, task.container, task.log_url)
