"""What stands in the job's log, which Azkaban shows on a page and keeps.

Azkaban puts a time before every line. It makes a link of a plain address up to a blank or the
line's end, so each stands alone behind its name. The page of an old server (2.5) cuts an address
at a ``-``, ``:`` or ``%`` in its path. None of ours has these, but a task's log on YARN, which
ends with the name of the user: such a server cuts that of a user like ``etl-prod``. A log on this
machine is told as its path, not as its address on the job's page, which has a ``:`` in every
task; the page's own link leads there. What went wrong comes last: that is where
the page is scrolled to.
"""

from __future__ import annotations

import sys
import time
from typing import Dict, Mapping, Optional, Sequence, Tuple

from tony_core.cli import outcome
from tony_core.cli.output import line, safe, silence
from tony_core.cli.presenters import QUIET_S, event_lines, worth_showing
from tony_core.client.errors import UsageError
from tony_core.client.tails import LINES, Tails
from tony_core.client.view import JobView, TaskView
from tony_core.client.watch import ENDING_KINDS, Callbacks, Event
from tony_core.dataclass import replace

LAST_LINES = "tony_azkaban.last_lines"
MOST_LINES = 200
HERE = "azkaban_log"  # the link to this very log: for the job's page and history alone


def lines_wanted(props: Mapping[str, str]) -> int:
    """How many last lines of each stream of a task; UsageError for what is no such number."""
    text = props.get(LAST_LINES, "").strip()
    if not text:
        return LINES
    if not (text.isascii() and text.isdigit() and len(text) < 9) or int(text) > MOST_LINES:
        raise UsageError(f"{LAST_LINES}: expected 0 to {MOST_LINES}")
    return int(text)


class Log:
    """One application's story, line by line."""

    def __init__(self, pages_last: bool = True) -> None:
        self._pages_last = pages_last
        self._state = ""
        self.links: Dict[str, str] = {}  # all that there ever were
        self._logs: Dict[str, str] = {}
        self._view: Optional[JobView] = None
        self._tenth = 0
        self._last = time.monotonic()
        self._ending = False

    def callbacks(self) -> Callbacks:
        """What the watcher calls."""
        return Callbacks(
            on_event=self._event,
            on_links=self._on_links,
            on_tasks=self._on_tasks,
            on_progress=self._on_tasks,
            on_view=self._on_view,
            on_unreachable=lambda why: self.say(f"the scheduler does not answer: {safe(why)}"),
            on_tick=self._tick,
        )

    def started(self, app_id: str, links: Mapping[str, str]) -> None:
        """The first line of all, and what is known already."""
        self.say(f"application {app_id}")
        self._on_links(links)

    def say(self, text: str) -> None:
        """One line."""
        self._last = time.monotonic()
        self._write([text])

    def finished(
        self, view: JobView, exit_code: int, history: str, tails: Tails, page: str
    ) -> None:
        """The tasks' last lines, links and logs, then how it ended and why.

        ``page``: what the cluster shows of an application that has ended.
        """
        links = {name: url for name, url in view.links.items() if name != HERE}
        if page and page not in links.values():
            links["application"] = page
        view = replace(view, links=links)
        root = view.root_cause
        if root.get("stderr_tail"):  # they stand with the outcome
            kept = [t for t in tails.tails if (t.task, t.stream) != (root.get("task"), "stderr")]
            tails = replace(tails, tails=tuple(kept))
        self._write([safe(text) for text in tails.text(view.app_id)])
        if history and "portal" not in view.links:
            self.say(f"history: {safe(history)}")
        self._write(outcome.lines(view, exit_code, pages_last=self._pages_last, fault_last=True))

    @staticmethod
    def _write(texts: Sequence[str]) -> None:
        try:
            for text in texts:
                line(text)
            sys.stdout.flush()
        except OSError:
            silence()  # a server that has gone reads no log; the training goes on

    def _event(self, event: Event) -> None:
        if event.get("kind") in ENDING_KINDS:
            self._ending = True
        if worth_showing(event, self._view):
            for text in event_lines(event):
                self.say(text)

    def _on_links(self, links: Mapping[str, str]) -> None:
        for name, url in links.items():
            if self.links.get(name) != url and name != HERE:
                self.links[name] = url
                self.say(f"{name.replace('_', ' ')}: {safe(url)}")

    def _on_tasks(self, tasks: Tuple[TaskView, ...]) -> None:
        for task in tasks:
            if task.log_url and self._logs.get(task.task) != task.log_url:
                self._logs[task.task] = task.log_url
                self.say(f"log of {task.task}: {safe(task.log_url)}")

    def _on_view(self, view: JobView) -> None:
        self._view = view
        if view.state.value != self._state and not view.state.ended:
            self._state = view.state.value
            where = f" in queue {view.queue}" if view.queue else ""
            self.say(f"{self._state}{where}")
        tenth = int(view.progress * 10)
        if tenth > self._tenth and not view.state.ended and not self._ending:
            self._tenth = tenth
            self.say(outcome.progress_line(view))

    def _tick(self) -> None:
        if self._view is not None and time.monotonic() - self._last >= QUIET_S:
            self.say(outcome.progress_line(self._view, "ending" if self._ending else ""))
