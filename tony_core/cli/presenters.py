"""What is shown of a job while it is watched: plain lines, or JSON lines for a program.

A presenter makes the :class:`Callbacks` that the watcher calls, and shows the outcome when the job
has ended. The one for terminals is in :mod:`live`.
"""

from __future__ import annotations

import errno
import sys
import time
from typing import Callable, List, Mapping, Optional, Tuple

from tony_core.cli import outcome
from tony_core.cli.output import (
    application_data,
    discard_output,
    line,
    note,
    print_json,
    safe,
)
from tony_core.client.merge import is_of_master
from tony_core.client.watch import ENDING_KINDS, Callbacks, Event
from tony_core.schedulers.port import LifetimeLimit
from tony_core.view import PAGE, JobView, TaskView

WAITS_S, WAITS_AGAIN_S = 3.0, 30.0  # until the scheduler's reason for no master is shown, and again
QUIET_S = 60.0  # a line says that it still runs after so long without another
#: In a job of more tasks than this, a task's every step is too much for a log.
FEW_TASKS = 16
TENSORBOARD = "tensorboard"
LOUD = ("warning", "decision", "error")


class Presenter:
    """Base: shows nothing."""

    def callbacks(self) -> Callbacks:
        """The functions that the watcher calls."""
        return Callbacks()

    def started(self, app_id: str, limit: Optional[LifetimeLimit] = None) -> None:
        """Show that the application exists."""

    def show_note(self, text: str) -> None:
        """Show a message of the client's own."""
        note(text)

    def finished(self, view: JobView, exit_code: int) -> None:
        """Show the outcome."""

    def close(self) -> None:
        """Show nothing more."""


class GuardedPresenter(Presenter):
    """Wraps another presenter, and discards its output when the reader has gone.

    A closed terminal or a pipe whose reader went away is no reason for a job to end, nor for
    its watcher: a closed terminal sends a signal, which is handled elsewhere.
    """

    def __init__(self, inner: Presenter) -> None:
        self._inner = inner

    def callbacks(self) -> Callbacks:
        return Callbacks(*map(self._guard, self._inner.callbacks()))

    def started(self, app_id: str, limit: Optional[LifetimeLimit] = None) -> None:
        self._try(lambda: self._inner.started(app_id, limit))

    def show_note(self, text: str) -> None:
        self._try(lambda: self._inner.show_note(text))

    def finished(self, view: JobView, exit_code: int) -> None:
        self._try(lambda: self._inner.finished(view, exit_code))

    def close(self) -> None:
        self._try(self._inner.close)

    def _guard(self, call: Optional[Callable[..., None]]) -> Optional[Callable[..., None]]:
        if call is None:
            return None
        known = call
        return lambda *arguments: self._try(lambda: known(*arguments))

    @staticmethod
    def _try(call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            discard_output()  # later lines go nowhere, without an error


class PlainPresenter(Presenter):
    """One line after another, each with its time: for a CI's log, a file, a pipe."""

    def __init__(self, pages_last: bool = True) -> None:
        self._pages_last = pages_last
        self._view: Optional[JobView] = None
        self._links: Mapping[str, str] = {}
        self._last = time.monotonic()
        self._shown_tenth = -1.0
        self._is_ending = False  # from then on progress is not worth a line
        self._page_answered = False  # until then only the scheduler is known
        self._why = ""  # what the scheduler gave as a reason for waiting
        self._why_at = time.monotonic() + WAITS_S

    def callbacks(self) -> Callbacks:
        return Callbacks(
            on_event=self._event,
            on_links=self._on_links,
            on_view=self._on_view,
            on_tick=self._tick,
            on_unreachable=lambda why: self._line(f"the scheduler does not answer: {why}"),
        )

    def started(self, app_id: str, limit: Optional[LifetimeLimit] = None) -> None:
        self._line(f"application {app_id}")

    def show_note(self, text: str) -> None:
        self._line(text)

    def finished(self, view: JobView, exit_code: int) -> None:
        for text in outcome.lines(view, exit_code, pages_last=self._pages_last):
            line(text)
        sys.stdout.flush()

    def _event(self, event: Event) -> None:
        self._page_answered = True
        if event.get("kind") in ENDING_KINDS:
            self._is_ending = True
        if worth_showing(event, self._view):
            first, *more = event_lines(event)
            self._line(first, event.get("time"))
            for text in more:
                line(f"         {text}")

    def _on_links(self, links: Mapping[str, str]) -> None:
        for name, url in links.items():
            in_story = name == TENSORBOARD and is_of_master(name, url, links.get("page", ""))
            if self._links.get(name) != url and not in_story:
                self._line(f"{name}: {safe(url)}")
        self._links = dict(links)

    def _on_view(self, view: JobView) -> None:
        self._view = view
        self._page_answered = self._page_answered or view.source == PAGE
        if not self._page_answered:
            return  # the story has older lines: they come first
        tenth = int(view.progress * 10)
        if tenth > self._shown_tenth and not view.state.ended and not self._is_ending:
            if self._shown_tenth >= 0 or tenth:
                self._line(outcome.progress_line(view))
            self._shown_tenth = tenth

    def _tick(self) -> None:
        if self._view is not None and not self._page_answered and time.monotonic() >= self._why_at:
            why = outcome.waits_for_master(self._view)
            if why and why != self._why:
                self._why, self._why_at = why, time.monotonic() + WAITS_AGAIN_S
                self._line(why)
        if self._view is not None and time.monotonic() - self._last >= QUIET_S:
            state = "ending" if self._is_ending else ""
            self._line(outcome.progress_line(self._view, state))

    def _line(self, text: str, at: object = None) -> None:
        clock = time.localtime(at if isinstance(at, (int, float)) else None)
        line(f"{time.strftime('%H:%M:%S', clock)} {text}")
        sys.stdout.flush()
        self._last = time.monotonic()


class JsonPresenter(Presenter):
    """One JSON object a line, of the ``type`` that docs/json.md lists."""

    def __init__(self) -> None:
        self._rows: List[Mapping[str, object]] = []

    def callbacks(self) -> Callbacks:
        return Callbacks(
            on_event=lambda event: print_json({"type": "event", **event}, None),
            on_links=lambda links: print_json({"type": "links", "links": dict(links)}, None),
            on_tasks=self._tasks,
            on_progress=self._tasks,
            on_unreachable=note,
        )

    def started(self, app_id: str, limit: Optional[LifetimeLimit] = None) -> None:
        print_json(application_data(app_id, limit), None)

    def finished(self, view: JobView, exit_code: int) -> None:
        print_json({"type": "finished", "exit_code": exit_code, "job": view.to_json()}, None)

    def _tasks(self, tasks: Tuple[TaskView, ...]) -> None:
        rows: List[Mapping[str, object]] = [
            {
                "task": task.task,
                "state": task.state,
                "session": task.session,
                "node": task.node,
                "container": task.container,
                "log_url": task.log_url,
                "exit_code": task.exit_code,
                "progress": task.progress,
            }
            for task in tasks
        ]
        if rows != self._rows:  # a change of state that is progress too is printed once
            print_json({"type": "tasks", "tasks": rows}, None)
        self._rows = rows


def worth_showing(event: Event, view: Optional[JobView]) -> bool:
    """Whether a watching person should see an event of the story."""
    if event.get("kind") != "task-state" or event.get("weight") in LOUD:
        return True
    return view is None or len(view.tasks) <= FEW_TASKS


def event_lines(event: Event) -> List[str]:
    """An event's text, line by line; of the end only the first, as the outcome follows."""
    found = [safe(text) for text in str(event.get("text", "")).splitlines()] or [""]
    return found[:1] if event.get("kind") == "ending" else found
