"""The view of one application now, or as history keeps it.

History stands where the job said (``tony.history.location``), else where the scheduler
keeps it. A job's history is complete when its summary says that the job has ended; the
master writes it before it tells the scheduler of the end, so waiting for it is the
exception, and short. An end that no master wrote down is written here (:mod:`burying`).
"""

from __future__ import annotations

import time
from typing import Any, List, Mapping, Optional, Tuple

from tony_core.client.errors import PageError
from tony_core.client.finalize import buried
from tony_core.client.page import Page
from tony_core.client.view import (
    HISTORY,
    MASTER,
    SCHEDULER,
    JobView,
    closed,
    from_page,
    from_status,
    under_status,
    with_containers,
)
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job
from tony_core.job.spec import Job
from tony_core.jsontext import is_number
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
)

#: How long a job that has just ended is given to complete its history. A master that YARN kills
#: hears of it with its node's next heartbeat (1 s), and has a quarter of a second.
SETTLE_S = 1.5
SKEW_S = 60.0  # that a scheduler's clock may be ahead of ours
PAGE_S = 2.0
#: How old the newest that is known of a job must be to believe a scheduler that knows it no more.
FORGOTTEN_S = 3600.0


def history_root(
    scheduler: Scheduler, job: Optional[Job] = None, named: Optional[str] = None
) -> Optional[str]:
    """Where a job's history stands."""
    if named:
        return named
    if job is not None and job.history.location:
        return job.history.location
    return scheduler.history_root(job)


def read_past(root: Optional[str], app_id: str, events: bool = True) -> Optional[JobHistory]:
    """A job's history; ``None`` when there is none (or it cannot be read)."""
    if not root:
        return None
    try:
        return read_job(root, app_id, events)
    except (NoHistory, OSError):
        return None


def _read(
    scheduler: Scheduler,
    app_id: str,
    job: Optional[Job],
    named: Optional[str],
    events: bool = True,
) -> Optional[JobHistory]:
    """A job's history, also where its master kept it when the named place could not be written."""
    return _find(scheduler, app_id, job, named, events)[0]


def _find(
    scheduler: Scheduler,
    app_id: str,
    job: Optional[Job],
    named: Optional[str],
    events: bool = True,
) -> Tuple[Optional[JobHistory], str]:
    """The same, and below which root it is."""
    roots = dict.fromkeys((history_root(scheduler, job, named), scheduler.history_root(job)))
    found, where = None, ""
    for root in roots:
        past = read_past(root, app_id, events)
        if past is not None and (past.job or past.events):
            return past, root or ""
        if found is None and past is not None:
            found, where = past, root or ""
    return found, where


def past_view(past: JobHistory, status: Optional[AppStatus] = None) -> JobView:
    """History as a view."""
    return from_page(past.job, past.tasks, status, HISTORY, past.app_id)


def current_view(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """What is known now: from the page while it runs, from history afterwards."""
    if not status.state.ended and status.page_url:
        page = Page(status.page_url, PAGE_S, scheduler.user)
        try:
            return from_page(page.job(), page.tasks(), status, app_id=status.app_id)
        except PageError:
            pass  # a dead or busy master: what was written down is the next best
        finally:
            page.close()
    past = settle(scheduler, status, job, history)
    if past is not None and _told(past):
        return past_view(past, status)
    known = past_view(past, status) if past is not None and past.job else from_status(status)
    return _untold(scheduler, known)


def settle(
    scheduler: Scheduler,
    status: AppStatus,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> Optional[JobHistory]:
    """A job's history; with its end when it has ended and no master will tell any more."""
    past, root = _find(scheduler, status.app_id, job, history, events=False)
    if not status.state.ended or (past is not None and past.job.get("finished")):
        return past
    # Clocks differ, and one may be set back: what ended in the far future has settled too.
    ago = time.time() - (status.finished or 0.0)
    may_come = past is not None and -SKEW_S < ago < SETTLE_S
    if not may_come and scheduler.cleaner.remove_leftovers(status, job) and past is not None:
        return buried(past, root, status)
    return past


def _told(past: JobHistory) -> bool:
    """Whether its own master wrote down how it ended."""
    return bool(past.job.get("finished")) and not past.job.get("buried")


def final_view(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    last: Optional[JobView] = None,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """How an application that has ended looks for good."""
    deadline = time.monotonic() + SETTLE_S
    pause = 0.02
    while True:
        past, root = _find(scheduler, status.app_id, job, history, events=False)
        if past is not None and _told(past):
            return past_view(past, status)
        # A master that died has left what it had.
        if past is None or past.job.get("buried") or time.monotonic() >= deadline:
            break
        time.sleep(pause)
        pause = min(0.2, pause * 2)
    buries = past is None or not past.job.get("buried")
    if buries and scheduler.cleaner.remove_leftovers(status, job) and past is not None:
        past = buried(past, root, status, last)
        return _untold(scheduler, past_view(past, status))
    if last is not None and last.tasks:
        return _untold(scheduler, under_status(last, status))
    known = past_view(past, status) if past is not None and past.job else from_status(status)
    return _untold(scheduler, known)


def complete(scheduler: Scheduler, root: str) -> None:
    """Have an end written down for every job in a history that has ended without one."""
    for job in list_jobs(root):
        try:
            ended_unheard(scheduler, root, job)
        except SchedulerError:
            return  # another time


def ended_unheard(scheduler: Scheduler, root: str, job: Mapping[str, Any]) -> Optional[AppStatus]:
    """The scheduler's word on a job that has ended, and has no end in a history; it gets one.

    At once what is shown, and written down as soon as no master can come to it any more.
    """
    if job.get("finished"):
        return None
    app_id = str(job["app_id"])
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        # Nobody can say any more what became of it. In a history that several clusters
        # share it may be another's.
        return _forgotten(root, app_id) if root == scheduler.history_root(None) else None
    settle(scheduler, status, history=root)
    return status if status.state.ended else None


def _forgotten(root: str, app_id: str) -> Optional[AppStatus]:
    """The end of a job that its scheduler does not know any more, and nobody wrote down."""
    past = read_past(root, app_id, events=False)
    if past is None or not past.job or past.job.get("finished"):
        return None
    submitted: Any = past.job.get("submitted")
    said = [submitted, *(task.get("started") for task in past.tasks)]
    newest = max((float(at) for at in said if is_number(at)), default=0.0)
    if time.time() - newest < FORGOTTEN_S:
        return None  # a scheduler that has only just lost its memory: its clients say more
    status = AppStatus(
        app_id=app_id,
        name=str(past.job.get("name") or ""),
        user=str(past.job.get("user") or ""),
        queue=str(past.job.get("queue") or ""),
        state=AppState.FAILED,
        submitted=float(submitted) if is_number(submitted) else 0.0,
        finished=newest or None,
        diagnostics="the scheduler has forgotten it, and no record says how it ended",
    )
    buried(past, root, status)
    return status


def _untold(scheduler: Scheduler, view: JobView) -> JobView:
    """With what its master died over: containers it had, and tasks that have ended with it."""
    try:
        found = scheduler.log_reader.list_containers(view.app_id)
        if view.tasks:  # the masters' are for a job of which nothing else is known
            found = [(name, ref) for name, ref in found if name != MASTER]
        view = with_containers(view, found)
    except SchedulerError:
        pass  # what is known otherwise is shown
    return closed(view)


def unknown(scheduler: Scheduler, view: JobView, history: Optional[str] = None) -> str:
    """Why nothing is known of the tasks of a job that has begun; empty where something is."""
    if view.source != SCHEDULER or view.state in (AppState.SUBMITTED, AppState.ACCEPTED):
        return ""
    page = "" if view.state.ended else "its page does not answer, and "
    root = history_root(scheduler, named=history)
    why = unread(scheduler, view, history)
    where = (f" at {root}" if root else "") + (f" ({why})" if why else "")
    another = scheduler.user and view.user and view.user != scheduler.user
    whose = f" (the job is {view.user}'s)" if another else ""
    return (
        f"nothing is known of the tasks of {view.app_id}{whose}:"
        f" {page}there is no history of it that can be read{where}"
    )


def unread(scheduler: Scheduler, view: JobView, history: Optional[str] = None) -> str:
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


def story_after(
    scheduler: Scheduler,
    app_id: str,
    newest: int,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> List[Mapping[str, Any]]:
    """The events that history has after that number."""
    past = _read(scheduler, app_id, job, history)
    if past is None:
        return []
    return [event for event in past.events if _number(event) > newest]


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
    past = _read(scheduler, status.app_id, None, history)
    return past.events if past is not None else ()


def _number(event: Mapping[str, Any]) -> int:
    number = event.get("n")
    return number if isinstance(number, int) else 0
