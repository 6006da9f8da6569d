"""How a job looks now: read-only.

The scheduler says whether the job runs, and where its page is. While it runs the page knows the
rest; history has it when the page does not answer, and after the end. What neither knows, the
scheduler's containers may show. History is where the job named it (``tony.history.location``), else
where the scheduler keeps it. An end that no master wrote is written elsewhere, by
:mod:`tony_core.client.finalize`.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Tuple

from tony_core.client.errors import NotFound, PageError
from tony_core.client.merge import end_tasks, from_page, from_status, with_containers
from tony_core.client.page import Page
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job
from tony_core.job.spec import Job
from tony_core.schedulers.port import AppState, AppStatus, Scheduler, SchedulerError
from tony_core.view import HISTORY, MASTER, SCHEDULER, JobView

PAGE_S = 2.0


def page_view(scheduler: Scheduler, status: AppStatus) -> Optional[JobView]:
    """The job as its page has it; None where that does not answer, or does not run any more."""
    if status.state.ended or not status.page_url:
        return None
    page = Page(status.page_url, PAGE_S, scheduler.user)
    try:
        return from_page(page.job(), page.tasks(), status, app_id=status.app_id)
    except PageError:
        return None  # a dead or busy master: what was written down is the next best
    finally:
        page.close()


def history_view(scheduler: Scheduler, status: AppStatus, record: Optional[JobHistory]) -> JobView:
    """The job as history has it under the scheduler's status."""
    if record is None or not record.job:
        return complete_view(scheduler, from_status(status))
    view = recorded_view(record, status)
    return view if is_complete(record) else complete_view(scheduler, view)


def recorded_view(record: JobHistory, status: Optional[AppStatus] = None) -> JobView:
    """The job as history alone has it, under the scheduler's status if that is known."""
    return from_page(record.job, record.tasks, status, HISTORY, record.app_id)


def is_complete(record: JobHistory) -> bool:
    """Whether the job's own master wrote down how it ended."""
    return bool(record.job.get("finished")) and not record.job.get("buried")


def complete_view(scheduler: Scheduler, view: JobView) -> JobView:
    """The view of a job whose master died: with all its containers, and no task that goes on."""
    try:
        found = scheduler.log_reader.list_containers(view.app_id)
        if view.tasks:  # the masters' are for a job of which nothing else is known
            found = [(name, ref) for name, ref in found if name != MASTER]
        view = with_containers(view, found)
    except SchedulerError:
        pass  # what is known otherwise is shown
    return end_tasks(view)


# ------------------------------------------------------------------ history


def history_root(
    scheduler: Scheduler, job: Optional[Job] = None, named: Optional[str] = None
) -> Optional[str]:
    """The folder below which the job's history is."""
    if named:
        return named
    if job is not None and job.history.location:
        return job.history.location
    return scheduler.history_root(job)


def read_job_history(root: Optional[str], app_id: str, events: bool = True) -> Optional[JobHistory]:
    """A job's history; None when there is none, or it cannot be read."""
    if not root:
        return None
    try:
        return read_job(root, app_id, events)
    except (NoHistory, OSError):
        return None


def find_history(
    scheduler: Scheduler,
    app_id: str,
    job: Optional[Job] = None,
    named: Optional[str] = None,
    events: bool = True,
) -> Tuple[Optional[JobHistory], str]:
    """A job's history and the root above it.

    Its master keeps it at the scheduler's place where the named one could not be written.
    """
    roots = dict.fromkeys((history_root(scheduler, job, named), scheduler.history_root(job)))
    found, where = None, ""
    for root in roots:
        record = read_job_history(root, app_id, events)
        if record is not None and (record.job or record.events):
            return record, root or ""
        if found is None and record is not None:
            found, where = record, root or ""
    return found, where


def find_job_history(root: str, text: Optional[str]) -> JobHistory:
    """The history of the job that ``text`` means: an id, its beginning or end, or the newest."""
    if text:
        try:
            return read_job(root, text)
        except NoHistory:
            pass
    ids = [str(job["app_id"]) for job in list_jobs(root)]
    found = match_ids(ids, text) if text else ids[:1]
    if len(found) == 1:
        return read_job(root, found[0])
    if found:
        raise NotFound(f"{text!r} is ambiguous; it matches {', '.join(found[:5])}", found)
    what = f"no job {text!r}" if text else "no job"
    raise NotFound(f"there is {what} in the history at {root}; tony history list shows all")


def match_ids(ids: List[str], text: str) -> List[str]:
    """The ids that begin with a text, else those that end with it.

    Ids of one scheduler begin alike; the end is what people read out.
    """
    return [i for i in ids if i.startswith(text)] or [i for i in ids if i.endswith(text)]


def explain_unknown(scheduler: Scheduler, view: JobView, history: Optional[str] = None) -> str:
    """Why nothing is known of the tasks of a job that has begun; empty where something is."""
    if view.source != SCHEDULER or view.state in (AppState.SUBMITTED, AppState.ACCEPTED):
        return ""
    page = "" if view.state.ended else "its page does not answer, and "
    root = history_root(scheduler, named=history)
    why = explain_unreadable(scheduler, view, history)
    where = (f" at {root}" if root else "") + (f" ({why})" if why else "")
    another = scheduler.user and view.user and view.user != scheduler.user
    whose = f" (the job is {view.user}'s)" if another else ""
    return (
        f"nothing is known of the tasks of {view.app_id}{whose}:"
        f" {page}there is no history of it that can be read{where}"
    )


def explain_unreadable(scheduler: Scheduler, view: JobView, history: Optional[str] = None) -> str:
    """Why a job's history cannot be read; empty where it can be, and where there is none."""
    root = history_root(scheduler, named=history)
    try:
        if root:
            read_job(root, view.app_id, events=False)
    except NoHistory:
        pass
    except OSError as error:
        return str(error)
    return ""


# ------------------------------------------------------------------ the story


def story_after(
    scheduler: Scheduler,
    app_id: str,
    newest: int,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> List[Mapping[str, Any]]:
    """The events that history has after that number."""
    record, _ = find_history(scheduler, app_id, job, history)
    return [event for event in record.events if event_number(event) > newest] if record else []


def whole_story(
    scheduler: Scheduler, status: AppStatus, history: Optional[str] = None
) -> Tuple[Mapping[str, Any], ...]:
    """Every event so far: the page's if it answers, else history's."""
    if not status.state.ended and status.page_url:
        page = Page(status.page_url, PAGE_S, scheduler.user)
        try:
            return tuple(page.events(0)[0])
        except PageError:
            pass
        finally:
            page.close()
    record, _ = find_history(scheduler, status.app_id, None, history)
    return record.events if record is not None else ()


def event_number(event: Mapping[str, Any]) -> int:
    """An event's place in the story; 0 when it has none."""
    number = event.get("n")
    return number if isinstance(number, int) else 0
