"""What a person reads when a job has ended: the outcome, whose fault, where to look next.

Everything needed to act stands here: the task that failed first, where it ran, how it ended,
the last lines it wrote, and the command that shows the rest.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Iterator, List, Mapping, Optional, TextIO

from tony_core.cli.output import duration, paint, paint_state, pairs, safe
from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState
from tony_core.view import JobView, TaskView

MOST_TASKS = 40  # whose logs are named one by one
MOST_LINES = 20


def lines(
    view: JobView,
    exit_code: int,
    stream: Optional[TextIO] = None,
    pages_last: bool = True,
    fault_last: bool = False,
) -> List[str]:
    """All of its lines; ``pages_last`` as :meth:`LogReader.urls_outlive_job`.

    ``fault_last``: for a log that is read from its end, with what went wrong below the rest.
    """
    out = stream or sys.stdout
    places = [*links(view), *_logs(view, out, pages_last), *_next(view)]
    outcome = list(_outcome(view, exit_code, out))
    return [*places, *outcome] if fault_last else [*outcome, *places]


def _outcome(view: JobView, exit_code: int, out: TextIO) -> Iterator[str]:
    took = duration(view.duration_s(time.time()))
    name = f" {safe(view.name)}" if view.name else ""
    yield (
        f"{paint_state(view.state.value, out)}{name} ({view.app_id}) after {took},"
        f" exit code {exit_code}"
    )
    if view.state is not AppState.SUCCEEDED:
        yield from _fault(view, out)


def links(view: JobView) -> Iterator[str]:
    """Where to look with a browser."""
    for name, url in view.links.items():
        yield f"  {name}: {safe(url)}"


def _fault(view: JobView, out: TextIO) -> Iterator[str]:
    root = view.root_cause
    if root.get("task"):
        first, *rest = root_lines(root)
        yield f"  root cause: {paint(first, 'red', out)}"
        yield from (f"    {text}" for text in rest)
        tail = _tail(root)
        if tail:
            yield "  the last lines of its stderr:"
            yield from (f"    | {safe(text)}" for text in tail[-MOST_LINES:])
        more = _beyond_root_cause(view.diagnostics, root)
    else:
        more = view.diagnostics.splitlines()
    yield from (f"  {safe(text)}" for text in more[:MOST_LINES])


def _tail(root: Mapping[str, Any]) -> List[str]:
    found = root.get("stderr_tail")
    return [str(text) for text in found] if isinstance(found, (list, tuple)) else []


def root_lines(root: Mapping[str, Any]) -> List[str]:
    """``worker:1 on node7: exit code 3``; more lines when its message has them."""
    where = f" on {root['node']}" if root.get("node") else ""
    signal, code, cause = root.get("signal"), root.get("exit_code"), root.get("cause")
    if cause and cause not in ("exited", "aborted"):
        how = str(cause)  # a signal is TonY's own then, and no cause
        how += f", exit code {code}" if not signal and code not in (None, 0, -1) else ""
    elif signal:
        how = f"ended by signal {signal} (exit code {code})"
    elif code is not None:
        how = f"exit code {code}"
    else:
        how = "failed"
    ran = root.get("ran_s")
    after = f" after {duration(float(ran))}" if is_number(ran) else ""
    message = f": {root['message']}" if root.get("message") else ""
    text = f"{root['task']}{where}: {how}{after}{message}"
    return [safe(each) for each in text.splitlines()[:MOST_LINES]]


def _beyond_root_cause(diagnostics: str, root: Mapping[str, Any]) -> List[str]:
    """The diagnostics without what is shown already: peers, why the job was not retried."""
    shown = {text.strip() for text in _tail(root)}
    out = []
    for number, text in enumerate(diagnostics.splitlines()):
        repeats = number == 0 and text.startswith(str(root.get("task")))
        if repeats or text.startswith("last lines of its stderr") or text.strip() in shown:
            continue
        out.append(text)
    return out


def _logs(view: JobView, out: TextIO, pages_last: bool) -> Iterator[str]:
    if not view.tasks:
        return
    yield "  logs:"
    ranked = sorted(view.tasks, key=lambda task: task.state in ("succeeded", "pending"))
    shown = ranked[:MOST_TASKS] if len(ranked) > MOST_TASKS else list(view.tasks)
    width = max(len(task.task) for task in shown)
    for task in shown:
        state = paint_state(task.state, out) + " " * max(0, 9 - len(task.state))
        yield f"    {task.task:<{width}}  {state}  {safe(task_log(view, task, pages_last))}"
    if len(view.tasks) > len(shown):
        yield f"    ... and {len(view.tasks) - len(shown)} more (tony describe {view.app_id})"


def task_log(view: JobView, task: TaskView, pages_last: bool = True) -> str:
    """Where a task's log is, or why there is none.

    A node forgets an application that has ended, and its web page with it; the command still
    finds the log.
    """
    if view.state.ended and not pages_last and _is_page(task.log_url):
        return f"tony logs {view.app_id} -t {task.task}"
    return task.log_url or ("no container" if not task.container else f"in {task.container}")


def _is_page(url: str) -> bool:
    return url.startswith(("http://", "https://", "//"))


def _next(view: JobView) -> Iterator[str]:
    failed = view.state is not AppState.SUCCEEDED
    task = view.root_cause.get("task") if failed else None
    known = {one.task for one in view.tasks}
    option = f" --task {task}" if task in known else ""
    yield f"  all logs: tony logs {view.app_id}{option}"
    if failed:
        yield f"  the story: tony describe {view.app_id}"


def progress_line(view: JobView, state: str = "") -> str:
    """One line on a running job: state, how far, tasks by state, metrics."""
    parts = [state or view.state.value]
    if view.progress:
        parts.append(f"{100 * view.progress:.0f} %")
    if view.tasks:
        parts.append(", ".join(f"{count} {state}" for state, count in view.counts.items()))
    for task in view.tasks:
        if task.reported and task.state == "running":
            parts.append(f"{task.task}: {pairs(task.reported)}")
            break
    if view.waiting:
        parts.append(f"waiting: {view.waiting}")
    elif waits_for_master(view):
        parts.append(waits_for_master(view))
    if view.trouble:
        parts.append(f"trouble: {view.trouble}")
    return safe("; ".join(parts))


def waits_for_master(view: JobView) -> str:
    """Why a job has no master yet, where its scheduler reports it."""
    early = view.state in (AppState.SUBMITTED, AppState.ACCEPTED)
    return safe(view.diagnostics) if early and view.diagnostics.startswith("waits") else ""
