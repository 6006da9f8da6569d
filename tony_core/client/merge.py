"""One view of a job from what its scheduler, its page and its history say of it. Pure.

The scheduler's state wins over the page's and over history's, because a master may have died
before it could report.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional, Tuple
from urllib.parse import urlsplit

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

    It was lost with the master, or killed with the job; what had not begun stays pending.
    """
    if state in TASK_ENDS or state == "pending" or job is AppState.SUCCEEDED:
        return state
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
        finished=status.finished or view.finished,
        diagnostics=status.diagnostics or view.diagnostics,
        links=lasting_links(view.links),
    )
