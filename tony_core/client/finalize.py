"""The end of a job whose master could not write it down.

A job that its scheduler ended, or whose masters all died, would stay RUNNING in history for
ever. So whoever of its owner's clients sees the scheduler's word that it is over, and a history
without an end, writes the end in the master's place, and has what the master would have removed
taken away. It is written as it would be seen anyway (:func:`tony_core.client.view.closed`), and
the story gets a last line with the reason: two clients that do it at once write the same. A
master that was still writing wins by coming later.

Nobody does that for another's job, and what may not be written stays as it is, in silence.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any, Dict, Mapping, Optional, Sequence

from tony_core.client.view import PAGE, JobView, end_of, lasting
from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.history.access import file_mode
from tony_core.history.layout import ATTEMPT_GAP, SUMMARY, segment_name, segment_number
from tony_core.history.reader import JobHistory, read_events, segments
from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState, AppStatus

ENDED = "job-ended"  # the last line of every story


def buried(
    past: JobHistory, root: str, status: AppStatus, last: Optional[JobView] = None
) -> JobHistory:
    """The history with the end that the scheduler tells; written down if that can be done."""
    ended = _with_end(past, status, last if last is not None and last.source == PAGE else None)
    line = _last_line(ended.job)
    summary = {"job": ended.job, "tasks": ended.tasks, "metrics": ended.metrics}
    data = json.dumps(summary, separators=(",", ":"), default=str).encode()
    location = join(root, past.app_id, SUMMARY)
    folder = join(root, past.app_id)
    try:
        files = filesystem(folder)
        mode = file_mode(files, folder)
        _append(folder, line, mode)
        files.put(location, data, mode)
    except OSError:
        pass  # it is seen like this all the same
    return ended


def as_buried(past: JobHistory, status: AppStatus) -> JobHistory:
    """The history as it would be then, story and all; nothing is written."""
    ended = _with_end(past, status, None)
    if past.events and past.events[-1].get("kind") == ENDED:
        return ended
    line = {"n": _next(past.events), **_last_line(ended.job)}
    return replace(ended, events=(*past.events, line))


def _last_line(job: Mapping[str, Any]) -> Dict[str, Any]:
    state, why = job["state"], job["diagnostics"]
    return {
        "time": job["finished"],
        "kind": ENDED,
        "text": f"the job has ended: {state}" + (f": {why}" if why else ""),
        "weight": "error",
        "task": "",
        "session": job.get("session", -1),
        "fields": {"state": state, "buried": True},
    }


def _append(folder: str, line: Mapping[str, Any], mode: int) -> None:
    """A segment of its own with that line, unless the story has its end already."""
    story, _ = read_events(folder)
    if story and story[-1].get("kind") == ENDED:
        return
    segment = max(map(segment_number, segments(folder)), default=0) + 1
    location = join(folder, segment_name(segment))
    text = json.dumps({"n": _next(story), **line}, separators=(",", ":"), default=str)
    filesystem(location).put(location, text.encode() + b"\n", mode)


def _next(story: Sequence[Mapping[str, Any]]) -> int:
    """A number behind all, with room for what a master may still write."""
    numbers = [event.get("n") for event in story]
    known = (int(number) for number in numbers if is_number(number))
    return max(known, default=0) + ATTEMPT_GAP


def _with_end(past: JobHistory, status: AppStatus, last: Optional[JobView]) -> JobHistory:
    finished = round(status.finished or max(time.time(), status.started or status.submitted), 3)
    known = {str(task.get("task")): task for task in past.tasks}
    if last is not None:  # the page told more than was written down
        for task in last.tasks:
            newest = {**known.get(task.task, {}), **asdict(task)}
            known[task.task] = newest
    tasks = tuple(_task(task, status.state, finished) for task in known.values())
    progress = max(_number(past.job.get("progress")), last.progress if last else 0.0)
    job: Dict[str, Any] = {
        "app_id": status.app_id,
        "name": status.name,
        "user": status.user,
        "queue": status.queue,
        "submitted": status.submitted,
        "started": status.started,
        "tags": list(status.tags),
        **past.job,
        "state": status.state.value,
        "phase": "ended",
        "attempt": status.attempt or past.job.get("attempt", 0),
        "progress": 1.0 if status.state is AppState.SUCCEEDED else progress,
        "finished": finished,
        "buried": True,  # who reads it may know more of it than its master told
        "waiting": "",
        "trouble": "",
        "diagnostics": status.diagnostics or past.job.get("diagnostics", ""),
        "counts": _counts(tasks),
        "links": lasting(past.job.get("links")),
    }
    return replace(past, job=job, tasks=tasks)


def _task(task: Mapping[str, Any], state: AppState, finished: float) -> Mapping[str, Any]:
    """A task that was going on has ended with the job."""
    before = str(task.get("state") or "pending")
    now = end_of(before, state)
    if now == before:
        return task
    runs = [
        {**run, "state": end_of(str(run.get("state") or ""), state)}
        for run in (task["runs"] if isinstance(task.get("runs"), list) else ())
        if isinstance(run, dict)
    ]
    out = {**task, "state": now, "runs": runs}
    started = task.get("started")
    if is_number(started) and task.get("ended") is None:
        out["ended"] = max(finished, started)
        out["duration_s"] = round(out["ended"] - started, 3)
    return out


def _counts(tasks: Any) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for task in tasks:
        state = str(task.get("state") or "pending")
        found[state] = found.get(state, 0) + 1
    return found


def _number(value: Any) -> float:
    return float(value) if is_number(value) else 0.0
