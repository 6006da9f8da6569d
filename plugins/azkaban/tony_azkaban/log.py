"""The job's log, which Azkaban shows on a page and keeps.

Azkaban puts a time before every line. It makes a link of a plain address up to a blank or the end
of the line, so nothing follows an address. The page of an old server (2.5) cuts an address at a
``-``, ``:`` or ``%`` in its path. Of our addresses only a task's log on YARN can have one, since it
ends with the user's name: such a server cuts that of a user like ``etl-prod``. For a log on this
machine the line has its path, since its address on the job's page has a ``:`` in every task; the
link to the page leads there too. The failure comes last, where Azkaban's page scrolls to.
"""

from __future__ import annotations

import sys
import time
from typing import Dict, Mapping, Optional, Sequence, Tuple

from tony_core.cli import outcome
from tony_core.cli.output import discard_output, line, safe
from tony_core.cli.presenters import QUIET_S, event_lines, worth_showing
from tony_core.client.errors import UsageError
from tony_core.client.tails import LINES, Tails
from tony_core.client.watch import ENDING_KINDS, Callbacks, Event
from tony_core.view import JobView, TaskView

LAST_LINES = "tony_azkaban.last_lines"
MOST_LINES = 200
HERE = "azkaban_log"  # the link to this very log, for the job's page and history


def lines_wanted(props: Mapping[str, str]) -> int:
    """How many last lines of each stream of a task the job wants; UsageError for a wrong number."""
    text = props.get(LAST_LINES, "").strip()
    if not text:
        return LINES
    if not (text.isascii() and text.isdigit() and len(text) < 9) or int(text) > MOST_LINES:
        raise UsageError(f"{LAST_LINES}: expected 0 to {MOST_LINES}")
    return int(text)


class Log:
    """Writes one application's progress, line by line."""

    def __init__(self, pages_last: bool = True) -> None:
        self._pages_last = pages_last
        self._state = ""
        self.links: Dict[str, str] = {}  # all that were ever known
        self._logs: Dict[str, str] = {}
        self._view: Optional[JobView] = None
        self._tenth = 0
        self._last = time.monotonic()
        self._ending = False

    def callbacks(self) -> Callbacks:
        """The callbacks for a watch."""
        return Callbacks(
            on_event=self._event,
            on_links=self._on_links,
            on_tasks=self._on_tasks,
            on_progress=self._on_tasks,
            on_view=self._on_view,
            on_unreachable=lambda why: self.write(f"the scheduler does not answer: {safe(why)}"),
            on_tick=self._tick,
        )

    def started(self, app_id: str, links: Mapping[str, str]) -> None:
        """Write the first lines: the application's id, and the links known already."""
        self.write(f"application {app_id}")
        self._on_links(links)

    def write(self, text: str) -> None:
        """Write one line."""
        self._last = time.monotonic()
        self._write_all([text])

    def finished(
        self,
        view: JobView,
        exit_code: int,
        history: str,
        tails: Tails,
        page: str,
        advice: Sequence[str] = (),
    ) -> None:
        """Write the tasks' last lines, the advice, links and logs, then how the job ended and why.

        ``page`` is the cluster's own page of the application.
        """
        links = {name: url for name, url in view.links.items() if name != HERE}
        if page and page not in links.values():
            links["application"] = page
        view = view._replace(links=links)
        root = view.root_cause
        if root.get("stderr_tail"):  # the outcome has them
            kept = [t for t in tails.tails if (t.task, t.stream) != (root.get("task"), "stderr")]
            tails = tails._replace(tails=tuple(kept))
        self._write_all([safe(text) for text in (*tails.text(view.app_id), *advice)])
        if history and "portal" not in view.links:
            self.write(f"history: {safe(history)}")
        self._write_all(
            outcome.lines(view, exit_code, pages_last=self._pages_last, fault_last=True)
        )

    @staticmethod
    def _write_all(texts: Sequence[str]) -> None:
        try:
            for text in texts:
                line(text)
            sys.stdout.flush()
        except OSError:
            discard_output()  # the server is gone and reads no log; the training goes on

    def _event(self, event: Event) -> None:
        if event.get("kind") in ENDING_KINDS:
            self._ending = True
        if worth_showing(event, self._view):
            for text in event_lines(event):
                self.write(text)

    def _on_links(self, links: Mapping[str, str]) -> None:
        for name, url in links.items():
            if self.links.get(name) != url and name != HERE:
                self.links[name] = url
                self.write(f"{name.replace('_', ' ')}: {safe(url)}")

    def _on_tasks(self, tasks: Tuple[TaskView, ...]) -> None:
        for task in tasks:
            if task.log_url and self._logs.get(task.task) != task.log_url:
                self._logs[task.task] = task.log_url
                self.write(f"log of {task.task}: {safe(task.log_url)}")

    def _on_view(self, view: JobView) -> None:
        self._view = view
        if view.state.value != self._state and not view.state.ended:
            self._state = view.state.value
            where = f" in queue {view.queue}" if view.queue else ""
            self.write(f"{self._state}{where}")
        tenth = int(view.progress * 10)
        if tenth > self._tenth and not view.state.ended and not self._ending:
            self._tenth = tenth
            self.write(outcome.progress_line(view))

    def _tick(self) -> None:
        if self._view is not None and time.monotonic() - self._last >= QUIET_S:
            self.write(outcome.progress_line(self._view, "ending" if self._ending else ""))
