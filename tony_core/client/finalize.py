"""Writes the end of a job whose master could not, and removes what that master would have removed.

A job that its scheduler ended, or whose masters all died, would stay RUNNING in history for ever.
So its owner's clients write the end that the scheduler reports, where history has none: the
verbs that show a job call :func:`finalized_view`, ``tony history`` and ``tony gc`` call
:func:`finalize_listed` for each job. Reading (:mod:`tony_core.client.lookup`) writes nothing.

The end is written as it would be shown anyway (:func:`tony_core.client.merge.end_tasks`), and the
story gets a last line with the reason: two clients that do it at once write the same. A master that
was still writing wins by coming later. A client does this for its own user's jobs only; where it
may not write, the job is shown so all the same.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from tony_core.client.errors import NotFound
from tony_core.client.lookup import (
    complete_view,
    find_history,
    find_job_history,
    history_view,
    is_complete,
    page_view,
    read_job_history,
    recorded_view,
)
from tony_core.client.merge import end_state, end_tasks, from_page, lasting_links, under_status
from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.history.access import file_mode
from tony_core.history.layout import ATTEMPT_GAP, SUMMARY, segment_name, segment_number
from tony_core.history.reader import JobHistory, list_jobs, read_events, read_job, segments
from tony_core.job.spec import Job
from tony_core.jsontext import is_number
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
)
from tony_core.view import HISTORY, PAGE, JobView

ENDED = "job-ended"  # the last line of every story
#: How long a job that has just ended is given to complete its history. A master that YARN kills
#: learns of it by its node's next heartbeat (1 s), and has a quarter of a second.
SETTLE_S = 1.5
SKEW_S = 60.0  # that a scheduler's clock may be ahead of ours
#: How old the newest that is known of a job must be to believe a scheduler that knows it no more.
FORGOTTEN_S = 3600.0


def look_up(scheduler: Scheduler, app_id: str, history: Optional[str] = None) -> JobView:
    """The :func:`finalized_view` of an application, also of one that only history still knows."""
    try:
        return finalized_view(scheduler, scheduler.status(app_id), history=history)
    except NoSuchApplication:
        record = read_job_history(history or scheduler.history_root(None), app_id, events=False)
        if record is None:
            raise NotFound(f"no application {app_id} on {scheduler.name}") from None
        return recorded_view(record)


def finalized_view(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """How a job looks now, its end written first where its master could not."""
    view = page_view(scheduler, status)
    if view is not None:
        return view
    return history_view(scheduler, status, finalize(scheduler, status, job, history))


def finalize(
    scheduler: Scheduler,
    status: AppStatus,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> Optional[JobHistory]:
    """Write a job's end where it has ended and no master will write it; its history."""
    record, root = find_history(scheduler, status.app_id, job, history, events=False)
    if not status.state.ended or (record is not None and record.job.get("finished")):
        return record
    # Clocks differ, and one may be set back: what ended in the far future has settled too.
    ago = time.time() - (status.finished or 0.0)
    may_come = record is not None and -SKEW_S < ago < SETTLE_S
    if not may_come and scheduler.cleaner.remove_leftovers(status, job) and record is not None:
        return write_end(record, root, status)
    return record


def final_view(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    last: Optional[JobView] = None,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """How a job that has just ended looks for good.

    Its master gets a moment to write the end; then it is written here. ``last`` is the newest that
    its page showed.
    """
    deadline = time.monotonic() + SETTLE_S
    pause = 0.02
    while True:
        record, root = find_history(scheduler, status.app_id, job, history, events=False)
        if record is not None and is_complete(record):
            return recorded_view(record, status)
        # A master that died has left what it had.
        if record is None or record.job.get("buried") or time.monotonic() >= deadline:
            break
        time.sleep(pause)
        pause = min(0.2, pause * 2)
    written = record is not None and record.job.get("buried")
    if not written and scheduler.cleaner.remove_leftovers(status, job) and record is not None:
        record = write_end(record, root, status, last)
        return complete_view(scheduler, recorded_view(record, status))
    if last is not None and last.tasks:
        return complete_view(scheduler, under_status(last, status))
    return history_view(scheduler, status, record)


def ended_jobs(root: str, scheduler: Optional[Scheduler] = None) -> Iterator[JobView]:
    """Every job in a history, the newest first, its end written first where there is none."""
    for job in list_jobs(root):
        status = None
        if scheduler is not None:
            try:
                status = finalize_listed(scheduler, root, job)
            except SchedulerError:
                scheduler = None  # what was written down has to do
        yield from_page(job, (), status, HISTORY)


def ended_job(
    root: str, text: Optional[str], scheduler: Optional[Scheduler] = None
) -> Tuple[JobHistory, JobView]:
    """The history and the view of the job that ``text`` means, its end written first."""
    record = find_job_history(root, text)
    status = None
    if scheduler is not None:
        try:
            status = finalize_listed(scheduler, root, {**record.job, "app_id": record.app_id})
        except SchedulerError:
            pass  # what was written down has to do
    if status is not None:
        record = read_job(root, record.app_id)
        if not record.job.get("finished"):
            record = with_end(record, status)  # a master may still write it down itself
    return record, end_tasks(recorded_view(record, status))


def finalize_all(scheduler: Scheduler, root: str) -> None:
    """Write the end of every job in a history that has ended without one."""
    for job in list_jobs(root):
        try:
            finalize_listed(scheduler, root, job)
        except SchedulerError:
            return  # another time


def finalize_listed(scheduler: Scheduler, root: str, job: Mapping[str, Any]) -> Optional[AppStatus]:
    """Write the end of a job that history lists without one; its scheduler's status if it ended.

    The end is shown at once, and written as soon as no master can come to it any more.
    """
    if job.get("finished"):
        return None
    app_id = str(job["app_id"])
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        # In a history that several clusters share it may be another's.
        return _finalize_forgotten(root, app_id) if root == scheduler.history_root(None) else None
    finalize(scheduler, status, history=root)
    return status if status.state.ended else None


def _finalize_forgotten(root: str, app_id: str) -> Optional[AppStatus]:
    """Write the end of a job that its scheduler does not know any more."""
    record = read_job_history(root, app_id, events=False)
    if record is None or not record.job or record.job.get("finished"):
        return None
    submitted: Any = record.job.get("submitted")
    times = [submitted, *(task.get("started") for task in record.tasks)]
    newest = max((float(at) for at in times if is_number(at)), default=0.0)
    if time.time() - newest < FORGOTTEN_S:
        return None  # a scheduler that may have restarted just now; its clients know more
    status = AppStatus(
        app_id=app_id,
        name=str(record.job.get("name") or ""),
        user=str(record.job.get("user") or ""),
        queue=str(record.job.get("queue") or ""),
        state=AppState.FAILED,
        submitted=float(submitted) if is_number(submitted) else 0.0,
        finished=newest or None,
        diagnostics="the scheduler has forgotten it, and no record says how it ended",
    )
    write_end(record, root, status)
    return status


def write_end(
    record: JobHistory, root: str, status: AppStatus, last: Optional[JobView] = None
) -> JobHistory:
    """The history with the end that the scheduler reports, written if this client may."""
    ended = _add_end(record, status, last if last is not None and last.source == PAGE else None)
    line = _last_line(ended.job)
    summary = {"job": ended.job, "tasks": ended.tasks, "metrics": ended.metrics}
    data = json.dumps(summary, separators=(",", ":"), default=str).encode()
    location = join(root, record.app_id, SUMMARY)
    folder = join(root, record.app_id)
    try:
        files = filesystem(folder)
        mode = file_mode(files, folder)
        _append(folder, line, mode)
        files.put(location, data, mode)
    except OSError:
        pass  # it is shown like this all the same
    return ended


def with_end(record: JobHistory, status: AppStatus) -> JobHistory:
    """The history as :func:`write_end` would leave it, story and all; nothing is written."""
    ended = _add_end(record, status, None)
    if record.events and record.events[-1].get("kind") == ENDED:
        return ended
    line = {"n": _next(record.events), **_last_line(ended.job)}
    return ended._replace(events=(*record.events, line))


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


def _add_end(record: JobHistory, status: AppStatus, last: Optional[JobView]) -> JobHistory:
    finished = round(status.finished or max(time.time(), status.started or status.submitted), 3)
    known = {str(task.get("task")): task for task in record.tasks}
    if last is not None:  # the page showed more than was written
        for task in last.tasks:
            newest = {**known.get(task.task, {}), **task.to_json()}
            known[task.task] = newest
    tasks = tuple(_task(task, status.state, finished) for task in known.values())
    progress = max(_number(record.job.get("progress")), last.progress if last else 0.0)
    job: Dict[str, Any] = {
        "app_id": status.app_id,
        "name": status.name,
        "user": status.user,
        "queue": status.queue,
        "submitted": status.submitted,
        "started": status.started,
        "tags": list(status.tags),
        **record.job,
        "state": status.state.value,
        "phase": "ended",
        "attempt": status.attempt or record.job.get("attempt", 0),
        "progress": 1.0 if status.state is AppState.SUCCEEDED else progress,
        "finished": finished,
        "buried": True,  # written by a client: others may know more of the job
        "waiting": "",
        "trouble": "",
        "diagnostics": status.diagnostics or record.job.get("diagnostics", ""),
        "counts": _counts(tasks),
        "links": lasting_links(record.job.get("links")),
    }
    return record._replace(job=job, tasks=tasks)


def _task(task: Mapping[str, Any], state: AppState, finished: float) -> Mapping[str, Any]:
    """A task that was going on has ended with the job."""
    before = str(task.get("state") or "pending")
    now = end_state(before, state)
    if now == before:
        return task
    runs = [
        {**run, "state": end_state(str(run.get("state") or ""), state)}
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
