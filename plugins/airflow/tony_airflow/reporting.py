"""What a task says of its job: lines for its log, the text of its failure, what it returns.

One reporter for both ways to wait: the operator hears of the job by callbacks, the trigger by a
look now and then. Lines are told as things change, never again for what was told, and by the role
where many tasks change at once: a log is for people.
"""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from tony_airflow.hooks.tony import metrics_of
from tony_airflow.links.addresses import links_of
from tony_airflow.output import chief_of, is_whole, without_control
from tony_airflow.tags import LINK
from tony_core.client.errors import ClientError
from tony_core.client.view import JobView, TaskView
from tony_core.client.watch import ENDING_KINDS
from tony_core.dataclass import replace
from tony_core.job.mask import KnownSecrets, mask_text
from tony_core.schedulers.port import AppState, SchedulerError

Say = Callable[[str], None]
Event = Mapping[str, Any]

MANY = 8  # tasks of a role that change alike: one line for all of them
PERCENT = 10  # a line of progress for each so many
TAIL_LINES = 20
MOST_METRICS = 100
TASK_STATE = "task-state"


class Reporter:
    """Tells a log what has changed. ``say`` is one line's, ``warn`` of what went wrong."""

    def __init__(self, say: Say, warn: Optional[Say] = None) -> None:
        self._say = say
        self._warn = warn or say
        self._known: Dict[str, Tuple[str, int, str]] = {}
        self._percent = 0
        self._session = -1
        self._reasons = 0  # of failed tasks, logged since the last session began
        self._waiting = ""
        self._links: Dict[str, str] = {}
        self._logs: Dict[str, str] = {}
        self._endings: List[Tuple[Say, str]] = []

    def view(self, view: JobView) -> None:
        """The job as it was seen just now, whoever told it."""
        if view.session > self._session:
            if view.session > 0:
                self._say(f"session {view.session}: the job's tasks start again")
            self._session = view.session
            self._reasons = 0
        if view.waiting and view.waiting != self._waiting:
            self._say(f"waiting: {mask_text(view.waiting)}")
        self._waiting = view.waiting
        self.links(view.links)
        self.tasks(view.tasks)
        self.progress(view)

    def event(self, event: Event) -> None:
        """A line of the job's story; what tasks do is logged by :meth:`tasks`.

        Why a task failed is in the story only, and later lines may refer to it.
        """
        kind, text = event.get("kind"), str(event.get("text") or "")
        loud = event.get("weight") in ("warning", "error")
        if not text:
            return
        if kind == TASK_STATE:
            if not loud or self._reasons >= MANY:
                return
            self._reasons += 1
        session = event.get("session")
        if isinstance(session, int):
            self._session = max(self._session, session)  # the story has told of it
        tell = self._warn if loud else self._say
        if kind in ENDING_KINDS:  # the last tasks' ends, which led to it, are seen after it
            self._endings.append((tell, mask_text(text)))
        else:
            tell(mask_text(text))

    def end(self) -> None:
        """Nothing follows: say how the job has ended, which was kept until now."""
        while self._endings:
            tell, text = self._endings.pop(0)
            tell(text)

    def tasks(self, tasks: Iterable[TaskView]) -> None:
        """Each task's state, place and log as it changes."""
        changed: Dict[Tuple[str, str], List[TaskView]] = {}
        for task in tasks:
            mark = (task.state, task.session, task.node)
            if self._known.get(task.task) != mark:
                self._known[task.task] = mark
                if task.state != "pending":
                    changed.setdefault((task.role, task.state), []).append(task)
        for (role, state), group in changed.items():
            if len(group) > MANY and state not in ("failed", "lost"):
                self._say(f"{len(group)} tasks of {role}: {state}")
                continue
            for task in group[:MANY]:
                tell = self._warn if state in ("failed", "lost") else self._say
                tell(self._task_line(task))
            if len(group) > MANY:
                self._warn(f"and {len(group) - MANY} more tasks of {role}: {state}")

    def _task_line(self, task: TaskView) -> str:
        """With the place of its log when that is new, or somebody will want to read it."""
        known = self._logs.get(task.task) == task.log_url
        self._logs[task.task] = task.log_url
        return task_line(task, log=not known or task.state in ("failed", "lost"))

    def progress(self, view: JobView) -> None:
        """How far it is, for each ten percent, with what the chief reports."""
        percent = int(view.progress * 100) // PERCENT * PERCENT
        if view.state.ended or percent <= self._percent:
            return
        self._percent = percent
        said = ", ".join(
            f"{name}={value:g}" for name, value in list(metrics_of(view).items())[:MANY]
        )
        self._say(f"progress {percent} %" + (f": {said}" if said else ""))

    def links(self, links: Mapping[str, str]) -> None:
        """Addresses as they come."""
        for name, url in links.items():
            if url and name != LINK and self._links.get(name) != url:  # that is this very log
                self._links[name] = url
                self._say(f"{name}: {mask_text(url)}")


class OutputReader:
    """What a job's tasks have written, as its task's log has it.

    :param hook: the :class:`~tony_airflow.hooks.tony.TonyHook` of the job's site.
    """

    def __init__(self, hook: Any) -> None:
        self.position: Dict[str, int] = {}  # of the chief's output
        self._hook = hook

    def new_lines(self, view: JobView, last: bool = False) -> List[str]:
        """What the chief has written since; none where that cannot be read just now."""
        try:
            lines, self.position = self._hook.output(view, self.position, last)
        except (SchedulerError, ClientError, OSError):
            return []
        return list(lines)

    def last_lines(self, view: JobView, follow: bool = True) -> List[str]:
        """What is left of the chief's output, and the last lines of every other task.

        Without ``follow`` the chief counts as one of these: how much of its output the log has
        is not known.
        """
        found = self.new_lines(view, last=True) if follow else []
        chief = chief_of(view)
        if chief is not None and is_whole(view, self.position):
            view = replace(view, tasks=tuple(task for task in view.tasks if task != chief))
        try:
            lines = self._hook.tails(view).text(view.app_id)
        except (SchedulerError, ClientError, OSError) as error:
            lines = [f"the logs of its tasks cannot be read ({error}): tony logs {view.app_id}"]
        known = KnownSecrets(self._hook.secrets)
        return found + [without_control(line, known) for line in lines]

    def tail(self, view: JobView) -> List[str]:
        """The last lines of the failing task's stderr, when its master could not tell them."""
        task = failing_task(view)
        if failing_tail(view) or not task or view.state is not AppState.FAILED:
            return []
        try:
            lines = self._hook.logs(view.app_id, tasks=[task], stream="stderr", tail=TAIL_LINES)
            return [line.text for line in lines]
        except (SchedulerError, ClientError, OSError):
            return []  # the failure itself is what matters


def task_line(task: TaskView, log: bool = True) -> str:
    """``worker:0 running on node3, log http://...``"""
    line = f"{task.task} {task.state}"
    if task.node:
        line += f" on {task.node}"
    if task.exit_code is not None and task.state not in ("succeeded", "running"):
        line += f" with exit code {task.exit_code}"
    if task.cause and task.cause != "exited" and task.state in ("failed", "lost", "killed"):
        line += f" ({task.cause})"
    if log and task.log_url:
        line += f", log {mask_text(task.log_url)}"
    return line


def final_line(view: JobView) -> str:
    """How it ended, in one line."""
    took = view.duration_s(time.time())
    attempts = attempts_of(view)
    line = f"{view.app_id} {view.state.value}"
    if took is not None:
        line += f" after {took:.1f} s"
    return line + (f" and {attempts} sessions" if attempts > 1 else "")


def failure_text(view: JobView, tail: Iterable[str] = ()) -> str:
    """Why the job did not succeed: the cause and the last lines of the failing task's stderr.

    ``tail`` are lines that somebody read from its log, for a job whose master could not tell any.
    """
    said = mask_text(view.diagnostics.strip()) or "no reason given"
    ended = {
        AppState.KILLED: "was killed",
        AppState.TIMED_OUT: "ran longer than it may",
    }.get(view.state, "failed")
    text = f"the job {view.app_id} {ended}: {said}"
    lines = [mask_text(line) for line in failing_tail(view) or tuple(tail)]
    shown = [line for line in lines if line.strip()]
    if shown and not all(line in said for line in shown[-2:]):
        task = failing_task(view) or "the task that failed"
        text += f"\nlast lines of the stderr of {task}:\n" + "\n".join(f"  {x}" for x in lines)
    return text


def failing_task(view: JobView) -> str:
    """The task that the job failed by; empty when nobody knows."""
    named = str(view.root_cause.get("task") or "")
    if named:
        return named
    failed = [task for task in view.tasks if task.state in ("failed", "lost")]
    failed.sort(key=lambda task: task.ended or float("inf"))
    return failed[0].task if failed else ""


def failing_tail(view: JobView) -> Tuple[str, ...]:
    """The last lines of its stderr, where the master told them."""
    told = view.root_cause.get("stderr_tail")
    if isinstance(told, (list, tuple)) and told:
        return tuple(str(line) for line in told)[-TAIL_LINES:]
    name = failing_task(view)
    for task in view.tasks:
        if task.task == name:
            return task.stderr_tail[-TAIL_LINES:]
    return ()


def attempts_of(view: JobView) -> int:
    """How many times its programs were started: the first, and each restart."""
    sessions = [task.session for task in view.tasks]
    return max([view.session, *sessions, -1]) + 1


def result_of(view: JobView, links: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """What the operator returns: plain JSON.

    ``links`` are those that were seen while it ran: some lead nowhere when it has ended, but
    say where it was.
    """
    found = {**(links or {}), **{n: u for n, u in links_of(view).items() if ":" not in n}}
    # JSON has no word for the others, and who reads an XCom may be strict.
    finite = {name: value for name, value in metrics_of(view).items() if math.isfinite(value)}
    metrics = dict(list(finite.items())[:MOST_METRICS])
    took = view.duration_s(time.time())
    result: Dict[str, Any] = {
        "application_id": view.app_id,
        "outcome": view.state.value,
        "attempts": attempts_of(view),
        "duration_s": None if took is None else round(took, 3),
        "metrics": metrics,
        "links": found,
    }
    if view.result is not None:
        result["result"] = view.result
    return result
