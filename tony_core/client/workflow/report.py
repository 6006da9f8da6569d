"""Reports a job's progress into the log of the workflow task that waits for it.

One reporter serves both ways to wait: a watch, which calls back for each change, and a trigger,
which reads the job's page now and then. It writes a line when something changes, never twice, and
one line for a whole role where many tasks change at once, since people read the log.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Tuple

from tony_core.client.outage import PageOutage
from tony_core.client.watch import ENDING_KINDS, Callbacks
from tony_core.client.workflow.results import metrics_of
from tony_core.job.mask import mask_text
from tony_core.view import PAGE, JobView, TaskView

Write = Callable[[str], None]
Event = Mapping[str, Any]

MANY = 8  # tasks of a role with the same change: one line for all of them
PERCENT = 10  # between two lines of progress
TASK_STATE = "task-state"
_FAILED = ("failed", "lost")


class Reporter:
    """Writes what has changed.

    :param info: writes a line.
    :param warn: writes a line about a failure.
    :param hidden: the names of links that the log need not show.
    """

    def __init__(
        self, info: Write, warn: Optional[Write] = None, hidden: Collection[str] = ()
    ) -> None:
        self._info = info
        self._warn = warn or info
        self._hidden = hidden
        self._tasks: Dict[str, Tuple[str, int, str]] = {}
        self._percent = 0
        self._session = -1
        self._reasons = 0  # of failed tasks, written since the last session began
        self._waiting = ""
        self._links: Dict[str, str] = {}
        self._logs: Dict[str, str] = {}
        self._endings: List[Tuple[Write, str]] = []

    def callbacks(
        self,
        *,
        story: bool,
        lease_s: Optional[float],
        on_view: Callable[[JobView], None],
        on_tick: Callable[[], None],
    ) -> Callbacks:
        """The callbacks with which a watch reports here.

        ``story`` says whether the log still needs the job's events and its tasks' states.
        ``lease_s`` is the job's lease, which reads of its page renew.
        """
        page = PageOutage(lease_s)

        def on_any_view(view: JobView) -> None:
            if view.source == PAGE:
                page.answered()
            if not view.state.ended:
                self.links(view.links)
                self.progress(view)
            on_view(view)

        def on_silent_page(why: str) -> None:
            warning = page.failed(why)
            if warning:
                self._warn(warning)

        return Callbacks(
            on_event=self.event if story else None,
            on_tasks=self.tasks if story else None,
            on_view=on_any_view,
            on_unreachable=lambda why: self._warn(f"the scheduler does not answer: {why}"),
            on_silent_page=on_silent_page,
            on_tick=on_tick,
        )

    def view(self, view: JobView) -> None:
        """Write what is new in a view of the job."""
        if view.session > self._session:
            if view.session > 0:
                self._info(f"session {view.session}: the job's tasks start again")
            self._session = view.session
            self._reasons = 0
        if view.waiting and view.waiting != self._waiting:
            self._info(f"waiting: {mask_text(view.waiting)}")
        self._waiting = view.waiting
        self.links(view.links)
        self.tasks(view.tasks)
        self.progress(view)

    def event(self, event: Event) -> None:
        """Write an event of the job's story, other than a task's state (:meth:`tasks`).

        The reason of a task's failure stands only in the story, and later lines may refer to it.
        """
        kind, text = event.get("kind"), str(event.get("text") or "")
        is_warning = event.get("weight") in ("warning", "error")
        if not text:
            return
        if kind == TASK_STATE:
            if not is_warning or self._reasons >= MANY:
                return
            self._reasons += 1
        session = event.get("session")
        if isinstance(session, int):
            self._session = max(self._session, session)  # the story has an event for its start
        write = self._warn if is_warning else self._info
        if kind in ENDING_KINDS:  # the ends of the last tasks come after it, and led to it
            self._endings.append((write, mask_text(text)))
        else:
            write(mask_text(text))

    def end(self) -> None:
        """Write the events of the job's end, which were kept until the tasks' ends are written."""
        while self._endings:
            write, text = self._endings.pop(0)
            write(text)

    def tasks(self, tasks: Iterable[TaskView]) -> None:
        """Write each task's state, node and log when they change."""
        changed: Dict[Tuple[str, str], List[TaskView]] = {}
        for task in tasks:
            current = (task.state, task.session, task.node)
            if self._tasks.get(task.task) != current:
                self._tasks[task.task] = current
                if task.state != "pending":
                    changed.setdefault((task.role, task.state), []).append(task)
        for (role, state), group in changed.items():
            if len(group) > MANY and state not in _FAILED:
                self._info(f"{len(group)} tasks of {role}: {state}")
                continue
            write = self._warn if state in _FAILED else self._info
            for task in group[:MANY]:
                write(self._task_line(task))
            if len(group) > MANY:
                self._warn(f"and {len(group) - MANY} more tasks of {role}: {state}")

    def progress(self, view: JobView) -> None:
        """Write each tenth of the job's progress, with the chief's metrics."""
        percent = int(view.progress * 100) // PERCENT * PERCENT
        if view.state.ended or percent <= self._percent:
            return
        self._percent = percent
        metrics = list(metrics_of(view).items())[:MANY]
        shown = ", ".join(f"{name}={value:g}" for name, value in metrics)
        self._info(f"progress {percent} %" + (f": {shown}" if shown else ""))

    def links(self, links: Mapping[str, str]) -> None:
        """Write each address that is new."""
        for name, url in links.items():
            if url and name not in self._hidden and self._links.get(name) != url:
                self._links[name] = url
                self._info(f"{name}: {mask_text(url)}")

    def _task_line(self, task: TaskView) -> str:
        """With the address of its log when that is new, or when a reader will want it."""
        is_known = self._logs.get(task.task) == task.log_url
        self._logs[task.task] = task.log_url
        return task_line(task, log=not is_known or task.state in _FAILED)


def task_line(task: TaskView, log: bool = True) -> str:
    """``worker:0 running on node3, log http://...``"""
    line = f"{task.task} {task.state}"
    if task.node:
        line += f" on {task.node}"
    if task.exit_code is not None and task.state not in ("succeeded", "running"):
        line += f" with exit code {task.exit_code}"
    if task.cause and task.cause != "exited" and task.state in (*_FAILED, "killed"):
        line += f" ({task.cause})"
    if log and task.log_url:
        line += f", log {mask_text(task.log_url)}"
    return line
