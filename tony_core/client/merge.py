"""One view of a job from what its scheduler, its page and its history say of it. Pure.

The scheduler's state wins over the page's and over history's, because a master may have died
before it could report. Where history lacks the end, :func:`with_end` adds the one that the
scheduler reports: every look shows it, and :mod:`tony_core.client.finalize` writes the same.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from tony_core.history.last_seen import last_seen
from tony_core.history.layout import ATTEMPT_GAP, StoryKind
from tony_core.history.reader import JobHistory
from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState, AppStatus, LogRef
from tony_core.view import (
    PAGE,
    SCHEDULER,
    TASK_ENDS,
    JobView,
    RunView,
    TaskView,
    read_job,
    read_task,
)

#: The states of a task on its way to an end.
_WAY = ("pending", "requested", "allocated", "launched", "registered", "ready", "running")


def from_status(status: AppStatus) -> JobView:
    """The view of a job of which only its scheduler knows."""
    links = {}
    if not status.state.ended and (status.tracking_url or status.page_url):
        links["page"] = str(status.tracking_url or status.page_url)
    return JobView(
        app_id=status.app_id,
        state=status.state,
        source=SCHEDULER,
        name=status.name,
        user=status.user,
        queue=status.queue,
        attempt=status.attempt,
        progress=status.progress,
        submitted=status.submitted or None,
        started=status.started,
        finished=status.finished,
        diagnostics=status.diagnostics,
        trouble=status.trouble,
        links=links,
        tags=status.tags,
    )


def from_page(
    job: Mapping[str, Any],
    tasks: Iterable[Mapping[str, Any]],
    status: Optional[AppStatus] = None,
    source: str = PAGE,
    app_id: str = "",
) -> JobView:
    """The view that the page's (or history's) JSON and the scheduler's status give together."""
    view = read_job(job, tasks, source, app_id)
    if status is None:
        return _with_state(view, view.state)
    base = from_status(status)
    links = {**base.links, **_reachable_links(view.links, base.links.get("page"))}
    view = view._replace(
        app_id=view.app_id or base.app_id,
        name=view.name or base.name,
        user=view.user or base.user,
        queue=view.queue or base.queue,
        attempt=view.attempt or base.attempt,
        progress=view.progress or base.progress,
        submitted=base.submitted or view.submitted,
        started=view.started or base.started,
        finished=view.finished or base.finished,
        diagnostics=view.diagnostics or base.diagnostics,
        tags=view.tags or base.tags,
        links=links,
    )
    state = base.state if base.state.ended or not view.state.ended else view.state
    return _with_state(view, state)


def _with_state(view: JobView, state: AppState) -> JobView:
    return view._replace(
        state=state,
        progress=1.0 if state is AppState.SUCCEEDED else view.progress,
        finished=view.finished if state.ended else None,
        waiting="" if state.ended else view.waiting,
        trouble="" if state.ended else view.trouble,
        stalled=0 if state.ended else view.stalled,
        links=lasting_links(view.links) if state.ended else view.links,
    )


def _reachable_links(found: Mapping[str, str], page: Optional[str]) -> Dict[str, str]:
    """The page's links; those to itself as the client reaches them, through a proxy maybe."""
    own = found.get("page")
    if not (page and own and page.endswith("/")):
        return dict(found)
    return {
        name: page + url[len(own) :] if url.startswith(own) else url for name, url in found.items()
    }


def lasting_links(links: Any) -> Dict[str, str]:
    """Without the links that end with the master: its page's, and its TensorBoard's."""
    pairs = links.items() if isinstance(links, dict) else ()
    found = {str(name): str(url) for name, url in pairs if url}
    page = found.pop("page", "")
    return {name: url for name, url in found.items() if not is_of_master(name, url, page)}


def is_of_master(name: str, url: str, page: str) -> bool:
    """Whether a job's master answers at its link ``name``, by where its page is.

    TensorBoard has a port of its own there, or is below the page.
    """
    if not page:
        return False
    beside = name == "tensorboard" and _host_of(url) == _host_of(page) != ""
    return beside or url.startswith(page)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def end_state(state: str, job: AppState) -> str:
    """The state of a task (or a run) in a job that ended so before the task's end was reported.

    It was lost with the master, or killed with the job; what had not begun stays pending. In a job
    that succeeded it has ended, and no record says how.
    """
    if state in TASK_ENDS or state == "pending":
        return state
    if job is AppState.SUCCEEDED:
        return "ended"
    return "killed" if job in (AppState.KILLED, AppState.TIMED_OUT) else "lost"


def end_tasks(view: JobView) -> JobView:
    """The same view; in a job that has ended, no task goes on."""
    if not view.state.ended:
        return view
    return view._replace(tasks=tuple(_end_task(task, view.state) for task in view.tasks))


def _end_task(task: TaskView, job: AppState) -> TaskView:
    state = end_state(task.state, job)
    if state == task.state:
        return task
    runs = tuple(run._replace(state=end_state(run.state, job)) for run in task.runs)
    return task._replace(state=state, runs=runs)


def with_containers(view: JobView, containers: Iterable[Tuple[str, LogRef]]) -> JobView:
    """The same view with the containers that only the scheduler knows of."""
    tasks = {task.task: task for task in view.tasks}
    known = {ref.container_id for task in view.tasks for ref in task.log_refs()}
    for name, ref in containers:
        if ref.container_id in known:
            continue
        task = tasks.get(name) or read_task({"task": name, "state": "launched"})
        run = RunView(task.session, ref.container_id, ref.node, ref.url)
        tasks[name] = task._replace(
            container=task.container or ref.container_id,
            node=task.node or ref.node,
            log_url=task.log_url or ref.url,
            runs=(*task.runs, run),
        )
    return view._replace(tasks=tuple(tasks.values()))


def under_status(view: JobView, status: AppStatus) -> JobView:
    """The same view under a newer status from the scheduler."""
    if not status.state.ended:
        return view
    return view._replace(
        state=status.state,
        waiting="",
        trouble="",
        stalled=0,
        finished=status.finished or view.finished,
        diagnostics=status.diagnostics or view.diagnostics,
        links=lasting_links(view.links),
    )


# ------------------------------------------------------------------ an end that no master wrote


def with_end(record: JobHistory, status: AppStatus, last: Optional[JobView] = None) -> JobHistory:
    """The history with the end that the scheduler reports, and that as the story's last line.

    ``last`` is the newest that the job's page showed: it may know more than was written. The
    scheduler may not know when the last master died: it was alive when it wrote the newest line.
    """
    page = last if last is not None and last.source == PAGE else None
    job, tasks = record.job, _newest_tasks(record, page)
    now = time.time()
    reported = status.finished or max(now, status.started or status.submitted)
    finished = round(max(reported, last_seen(record, until=now)), 3)
    ended = tuple(_end_record(task, status.state, finished) for task in tasks)
    progress = max(_number(job.get("progress")), page.progress if page else 0.0)
    counts: Dict[str, int] = {}
    for task in ended:
        state = str(task.get("state") or "pending")
        counts[state] = counts.get(state, 0) + 1
    job = {
        "app_id": status.app_id,
        "name": status.name,
        "user": status.user,
        "queue": status.queue,
        "submitted": status.submitted,
        "started": status.started,
        "tags": list(status.tags),
        **job,
        "state": status.state.value,
        "phase": "ended",
        "attempt": status.attempt or job.get("attempt", 0),
        "progress": 1.0 if status.state is AppState.SUCCEEDED else progress,
        "finished": finished,
        "buried": True,  # written by a client: others may know more of the job
        "waiting": "",
        "trouble": "",
        "stalled": 0,
        "diagnostics": status.diagnostics or job.get("diagnostics", ""),
        "counts": counts,
        "links": lasting_links(job.get("links")),
    }
    return record._replace(job=job, tasks=ended, events=_with_last_line(record.events, job))


def _newest_tasks(record: JobHistory, page: Optional[JobView]) -> Iterable[Mapping[str, Any]]:
    """The tasks by page and history: history may have got further since the page was asked."""
    known = {str(task.get("task")): task for task in record.tasks}
    for task in page.tasks if page is not None else ():
        recorded = known.get(task.task, {})
        if not recorded or _how_far(read_task(recorded)) <= _how_far(task):
            known[task.task] = {**recorded, **task.to_json()}
    return known.values()


def _how_far(task: TaskView) -> Tuple[int, int, int]:
    """What grows as a task goes on: its session, its restarts within it, its state."""
    state = len(_WAY) if task.has_ended else _WAY.index(task.state) if task.state in _WAY else 0
    return (task.session, task.restarts, state)


def _end_record(task: Mapping[str, Any], state: AppState, finished: float) -> Mapping[str, Any]:
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


def _with_last_line(
    story: Sequence[Mapping[str, Any]], job: Mapping[str, Any]
) -> Tuple[Mapping[str, Any], ...]:
    """The story with the line about the job's end, unless it has one already."""
    if story and story[-1].get("kind") == StoryKind.JOB_ENDED:
        return tuple(story)
    state, why = job["state"], job["diagnostics"]
    numbers = [int(event["n"]) for event in story if is_number(event.get("n"))]
    line = {
        # Behind all, with room for what a master may still write.
        "n": max(numbers, default=0) + ATTEMPT_GAP,
        "time": job["finished"],
        "kind": StoryKind.JOB_ENDED.value,
        "text": f"the job has ended: {state}" + (f": {why}" if why else ""),
        "weight": "error",
        "task": "",
        "session": job.get("session", -1),
        "fields": {"state": state, "buried": True},
    }
    return (*story, line)


def _number(value: Any) -> float:
    return float(value) if is_number(value) else 0.0
