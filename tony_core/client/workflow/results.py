"""How a job ended: as one line, as the text of a failure, and as plain JSON."""

from __future__ import annotations

import math
import time
from typing import Any, Dict, Iterable, Mapping, Tuple

from tony_core.job.mask import mask_text
from tony_core.schedulers.port import AppState
from tony_core.view import JobView

CHIEFS = ("chief:0", "worker:0", "master:0")
"""Tasks whose metrics and output count for the job where several tasks have some."""

TAIL_LINES = 20
MOST_METRICS = 100
_ENDED = {AppState.KILLED: "was killed", AppState.TIMED_OUT: "ran longer than it may"}


def metrics_of(view: JobView) -> Dict[str, float]:
    """The last value of each metric that a job's program reported; the chief's where several do."""
    found: Dict[str, float] = {}
    for task in sorted(view.tasks, key=lambda task: task.task in CHIEFS):
        found.update(task.reported)
    return found


def count_sessions(view: JobView) -> int:
    """How often its programs were started: the first time, and each restart."""
    sessions = [task.session for task in view.tasks]
    return max([view.session, *sessions, -1]) + 1


def summary_line(view: JobView) -> str:
    """``application_1_0001 SUCCEEDED after 3.5 s and 3 sessions``"""
    took = view.duration_s(time.time())
    sessions = count_sessions(view)
    line = f"{view.app_id} {view.state.value}"
    if took is not None:
        line += f" after {took:.1f} s"
    return line + (f" and {sessions} sessions" if sessions > 1 else "")


def result_of(view: JobView, links: Mapping[str, str]) -> Dict[str, Any]:
    """What a task returns for its job: plain JSON."""
    # JSON has no NaN and no infinity, and what reads the result may be strict.
    finite = {name: value for name, value in metrics_of(view).items() if math.isfinite(value)}
    took = view.duration_s(time.time())
    result: Dict[str, Any] = {
        "application_id": view.app_id,
        "outcome": view.state.value,
        "attempts": count_sessions(view),
        "duration_s": None if took is None else round(took, 3),
        "metrics": dict(list(finite.items())[:MOST_METRICS]),
        "links": dict(links),
    }
    if view.result is not None:
        result["result"] = view.result
    return result


def failure_text(view: JobView, tail: Iterable[str] = ()) -> str:
    """Why the job did not succeed: the cause and the last lines of the failed task's stderr.

    ``tail`` are lines that the caller read from its log, for a job whose master reported none.
    """
    cause = mask_text(view.diagnostics.strip()) or "no reason given"
    text = f"the job {view.app_id} {_ENDED.get(view.state, 'failed')}: {cause}"
    lines = [mask_text(line) for line in failed_task_tail(view) or tuple(tail)]
    shown = [line for line in lines if line.strip()]
    if shown and not all(line in cause for line in shown[-2:]):
        task = failed_task(view) or "the task that failed"
        text += f"\nlast lines of the stderr of {task}:\n" + "\n".join(f"  {x}" for x in lines)
    return text


def failed_task(view: JobView) -> str:
    """The task whose failure ended the job; empty when that is unknown."""
    named = str(view.root_cause.get("task") or "")
    if named:
        return named
    failed = [task for task in view.tasks if task.state in ("failed", "lost")]
    failed.sort(key=lambda task: task.ended or float("inf"))
    return failed[0].task if failed else ""


def failed_task_tail(view: JobView) -> Tuple[str, ...]:
    """The last lines of that task's stderr, where the master reported them."""
    reported = view.root_cause.get("stderr_tail")
    if isinstance(reported, (list, tuple)) and reported:
        return tuple(str(line) for line in reported)[-TAIL_LINES:]
    name = failed_task(view)
    for task in view.tasks:
        if task.task == name:
            return task.stderr_tail[-TAIL_LINES:]
    return ()
