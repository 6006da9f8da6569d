"""Which job is meant, and how it looks now: read-only.

The scheduler says whether the job runs, and where its page is. While it runs the page knows the
rest; history has it when the page does not answer, and after the end. What neither knows, the
scheduler's containers may show. History is where the job named it (``tony.history.location``), else
where the scheduler keeps it.

A job that its scheduler ended, or whose masters all died, has no end in history. It is shown with
the end that the scheduler reports (:func:`tony_core.client.merge.with_end`), whether or not
:mod:`tony_core.client.finalize` has written that already.
"""

from __future__ import annotations

import time
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from tony_core.client.errors import NotFound, PageError
from tony_core.client.merge import (
    end_tasks,
    from_page,
    from_status,
    under_status,
    with_containers,
    with_end,
)
from tony_core.files.location import masked
from tony_core.history.last_seen import last_seen
from tony_core.history.layout import event_number
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job
from tony_core.job.spec import Job
from tony_core.jsontext import is_number
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
)
from tony_core.view import HISTORY, MASTER, SCHEDULER, JobView

if TYPE_CHECKING:
    from tony_core.client.page import JobPage

PAGE_S = 2.0
#: How long a job that has just ended is given to complete its history. A master that YARN kills
#: learns of it by its node's next heartbeat (1 s), and has a quarter of a second.
SETTLE_S = 1.5
#: How old the newest that is known of a job must be to believe a scheduler that knows it no more.
FORGOTTEN_S = 3600.0
MOST_NAMED = 5  # ids in a message


def look_up(scheduler: Scheduler, app_id: str, history: Optional[str] = None) -> JobView:
    """The :func:`view_of` an application, also of one that only history still knows."""
    try:
        return view_of(scheduler, scheduler.status(app_id), history=history)
    except NoSuchApplication:
        record = forgotten_history(scheduler, app_id, history, events=False)
        if record is None:
            raise NotFound(f"no application {app_id} on {scheduler.name}") from None
        return recorded_view(record)


def view_of(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """How a job looks now; raises :class:`LastingRefusal` for one that the caller may not see."""
    require_view(status)
    view = page_view(scheduler, status)
    if view is not None:
        return view
    record, _ = find_history(scheduler, status.app_id, job, history, events=False)
    return history_view(scheduler, status, record)


def require_view(status: AppStatus) -> None:
    """Raise :class:`LastingRefusal` where the scheduler does not show the job to this user."""
    if status.view_refusal:
        raise LastingRefusal(status.view_refusal)


def final_view(
    scheduler: Scheduler,
    status: AppStatus,
    record: Optional[JobHistory],
    last: Optional[JobView] = None,
) -> JobView:
    """How a job that has ended looks for good; ``last`` is the newest that its page showed."""
    unknown = record is None or (is_finished(record) and not has_masters_end(record))
    if unknown and last is not None and last.tasks:
        return add_containers(scheduler, under_status(last, status))
    return history_view(scheduler, status, record, last)


def await_end(
    scheduler: Scheduler,
    app_id: str,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> Tuple[Optional[JobHistory], str]:
    """The :func:`find_history` of a job that has just ended; its master gets a moment to end it."""
    deadline = time.monotonic() + SETTLE_S
    pause = 0.02
    while True:
        record, root = find_history(scheduler, app_id, job, history, events=False)
        if record is None or is_finished(record) or time.monotonic() >= deadline:
            return record, root
        time.sleep(pause)
        pause = min(0.2, pause * 2)


def _open_page(url: str, scheduler: Scheduler) -> JobPage:
    from tony_core.client.page import JobPage  # and HTTP, mail, TLS: 19 ms, for jobs that run

    return JobPage(url, PAGE_S, scheduler.web, renews_lease=False)


def page_view(scheduler: Scheduler, status: AppStatus) -> Optional[JobView]:
    """The job as its page has it; None where that does not answer, or does not run any more."""
    if status.state.ended or not status.page_url:
        return None
    page = _open_page(status.page_url, scheduler)
    try:
        return from_page(page.job(), page.tasks(), status, app_id=status.app_id)
    except PageError:
        return None  # a dead or busy master: what was written down is the next best
    finally:
        page.close()


def history_view(
    scheduler: Scheduler,
    status: AppStatus,
    record: Optional[JobHistory],
    last: Optional[JobView] = None,
) -> JobView:
    """The job as history has it under the scheduler's status."""
    if record is not None and status.state.ended and not is_finished(record):
        record = with_end(record, status, last)
    if record is None or not record.job:
        return add_containers(scheduler, from_status(status))
    view = recorded_view(record, status)
    return view if has_masters_end(record) else add_containers(scheduler, view)


def recorded_view(record: JobHistory, status: Optional[AppStatus] = None) -> JobView:
    """The job as history alone has it, under the scheduler's status if that is known."""
    # Without a summary that can be read, no state is known.
    job = record.job or {"state": AppState.UNKNOWN.value}
    return from_page(job, record.tasks, status, HISTORY, record.app_id)


def is_finished(record: JobHistory) -> bool:
    """Whether history has the job's end."""
    return bool(record.job.get("finished"))


def has_masters_end(record: JobHistory) -> bool:
    """Whether the job's own master wrote down how it ended."""
    return is_finished(record) and not record.job.get("buried")


def add_containers(scheduler: Scheduler, view: JobView) -> JobView:
    """The view of a job whose master died: with all its containers, and no task that goes on."""
    try:
        found = scheduler.log_reader.list_containers(view.app_id)
        if view.tasks:  # the masters' are for a job of which nothing else is known
            found = [(name, ref) for name, ref in found if name != MASTER]
        view = with_containers(view, found)
    except SchedulerError:
        pass  # what is known otherwise is shown
    return end_tasks(view)


# ------------------------------------------------------------------ which job


class Resolved(NamedTuple):
    """The application; ``how`` says how it was found where the id was not given whole."""

    app_id: str
    how: str = ""
    status: Optional[AppStatus] = None  # where the scheduler was asked for this one


def resolve(
    scheduler: Scheduler,
    text: Optional[str],
    wanted: Callable[[AppStatus], bool] = lambda status: True,
    kind: str = "application",
    history: Optional[str] = None,
) -> Resolved:
    """The application that ``text`` names; without a text the newest of those ``wanted``."""
    if text is not None:
        _refuse_empty(text)
        return _by_text(scheduler, text, history)
    found = [each for each in only_own(scheduler, scheduler.list()) if wanted(each)]
    if not found:
        raise _none(scheduler, kind)
    newest = max(found, key=lambda status: status.submitted).app_id
    return Resolved(newest, f"{newest}, the newest {kind}")


def _refuse_empty(text: str) -> None:
    """Refuse a script's empty variable: it is a mistake, and never "the newest"."""
    if not text.strip():
        raise NotFound("the application's id is empty")


def only(
    scheduler: Scheduler, wanted: Callable[[AppStatus], bool], kind: str, action: str
) -> Resolved:
    """The one application that is wanted; an error when there are several."""
    found = [each.app_id for each in only_own(scheduler, scheduler.list()) if wanted(each)]
    if not found:
        raise _none(scheduler, kind)
    if len(found) > 1:
        text = f"there are {len(found)} {kind}s; name the one to {action}: {_several(found)}"
        raise NotFound(text, found)
    return Resolved(found[0], f"{found[0]}, the only {kind}")


def only_own(scheduler: Scheduler, found: List[AppStatus]) -> List[AppStatus]:
    """Only the caller's own: a cluster lists all users', and may let any user end them."""
    return [status for status in found if scheduler.user in ("", status.user)]


def _none(scheduler: Scheduler, kind: str) -> NotFound:
    whose = f" of {scheduler.user}'s" if scheduler.user else ""
    return NotFound(f"there is no {kind}{whose} on the scheduler {scheduler.name}")


def _by_text(scheduler: Scheduler, text: str, history: Optional[str]) -> Resolved:
    try:
        status = scheduler.status(text)
        return Resolved(status.app_id, status=status)
    except NoSuchApplication:
        pass
    found = match_ids([status.app_id for status in scheduler.list()], text)
    if len(found) == 1:
        return Resolved(found[0], found[0])
    if found:
        raise NotFound(f"{text!r} is ambiguous; it matches {_several(found)}", found)
    root = history or scheduler.history_root(None)
    if read_job_history(root, text, events=False) is not None:
        return Resolved(text)
    raise NotFound(
        f"no application {text!r} on the scheduler {scheduler.name}; tony list --scheduler"
        f" {scheduler.name} shows those it knows, tony history list those that have ended"
    )


def _several(ids: List[str]) -> str:
    shown = ", ".join(ids[:MOST_NAMED])
    return shown if len(ids) <= MOST_NAMED else f"{shown} or {len(ids) - MOST_NAMED} more"


def match_ids(ids: List[str], text: str) -> List[str]:
    """The ids that begin with a text, else those that end with it.

    Ids of one scheduler begin alike; the end is what people read out.
    """
    return [i for i in ids if i.startswith(text)] or [i for i in ids if i.endswith(text)]


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


def is_shared(scheduler: Optional[Scheduler], root: Optional[str]) -> bool:
    """Whether a root is another than the scheduler's own, so that other users may write to it.

    There a job's user is the owner of its folder.
    """
    return scheduler is None or root != scheduler.history_root(None)


def read_job_history(
    root: Optional[str], app_id: str, events: bool = True, by_owner: bool = False
) -> Optional[JobHistory]:
    """A job's history; None when there is none, or it cannot be read."""
    if not root:
        return None
    try:
        return read_job(root, app_id, events, by_owner)
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
        record = read_job_history(root, app_id, events, is_shared(scheduler, root))
        if record is not None and (record.job or record.events):
            return record, root or ""
        if found is None and record is not None:
            found, where = record, root or ""
    return found, where


def forgotten_history(
    scheduler: Scheduler, app_id: str, history: Optional[str] = None, events: bool = True
) -> Optional[JobHistory]:
    """The history of a job that its scheduler knows no more; with its end, once that is sure."""
    root = history or scheduler.history_root(None)
    shared = is_shared(scheduler, root)
    record = read_job_history(root, app_id, events, shared)
    # In a history that several clusters share it may be another's.
    status = forgotten_status(record) if record is not None and not shared else None
    return with_end(record, status) if record is not None and status is not None else record


def forgotten_status(record: JobHistory) -> Optional[AppStatus]:
    """The end of a job that its scheduler knows no more; None where its history has one.

    And where it is too new: a scheduler may have restarted just now; its clients know more.
    """
    submitted: Any = record.job.get("submitted")
    newest = last_seen(record)
    if not record.job or is_finished(record) or time.time() - newest < FORGOTTEN_S:
        return None
    return AppStatus(
        app_id=record.app_id,
        name=str(record.job.get("name") or ""),
        user=str(record.job.get("user") or ""),
        queue=str(record.job.get("queue") or ""),
        state=AppState.FAILED,
        submitted=float(submitted) if is_number(submitted) else 0.0,
        finished=newest or None,
        diagnostics="the scheduler has forgotten it, and no record says how it ended",
    )


def find_job_history(
    root: str, text: Optional[str], scheduler: Optional[Scheduler] = None
) -> JobHistory:
    """The history of the job that ``text`` means: an id, its beginning or end, or the newest."""
    by_owner = is_shared(scheduler, root)
    if text is not None:
        _refuse_empty(text)
        try:
            return read_job(root, text, by_owner=by_owner)
        except NoHistory:
            pass
    ids = [str(job["app_id"]) for job in list_history(root, scheduler)]
    found = ids[:1] if text is None else match_ids(ids, text)
    if len(found) == 1:
        return read_job(root, found[0], by_owner=by_owner)
    if found:
        raise NotFound(f"{text!r} is ambiguous; it matches {', '.join(found[:5])}", found)
    what = "no job" if text is None else f"no job {text!r}"
    raise NotFound(f"there is {what} in the history at {root}; tony history list shows all")


def list_history(
    root: str,
    scheduler: Optional[Scheduler] = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Mapping[str, Any]]:
    """The summary of every job in a history, the newest first.

    In a place that only a portal may list, of the caller's own that the scheduler still knows;
    some may have been written to the scheduler's place instead. ``tell`` gets that in words;
    where there are none, it is an error.
    """
    try:
        yield from list_jobs(root, is_shared(scheduler, root))
    except PermissionError as error:
        own = [] if scheduler is None else list(_own_jobs(root, scheduler))
        if scheduler is None or not own:
            raise NotFound(f"{explain_unlisted(root)}: {error.strerror or error}") from None
        tell(f"{explain_unlisted(root)}; shown are yours that {scheduler.name} knows")
        yield from own


def _own_jobs(root: str, scheduler: Scheduler) -> Iterator[Mapping[str, Any]]:
    """The summary of every job of the caller's own that the scheduler knows, the newest first."""
    for status in sorted(only_own(scheduler, scheduler.list()), key=lambda each: -each.submitted):
        for place in (root, scheduler.history_root(None)):
            record = read_job_history(place, status.app_id, False, is_shared(scheduler, place))
            if record is not None:
                yield {"submitted": status.submitted, **record.job, "app_id": status.app_id}
                break


def explain_unlisted(root: str) -> str:
    """What a user can do where he may not list a history."""
    return (
        f"you may not list {masked(root)} (a place for a portal, perhaps); a job of yours in it is"
        " shown by: tony history show ID"
    )


def explain_unknown(scheduler: Scheduler, view: JobView, history: Optional[str] = None) -> str:
    """Why nothing is known of the tasks of a job that has begun; empty where something is."""
    if view.source != SCHEDULER or view.state in (AppState.SUBMITTED, AppState.ACCEPTED):
        return ""
    root = history_root(scheduler, named=history)
    why = explain_unreadable(scheduler, view, history)
    where = (f" at {root}" if root else "") + (f" ({why})" if why else "")
    whose, page = "", "its page does not answer, and "
    if scheduler.user and view.user and view.user != scheduler.user:
        page = f"its page does not answer, or not {scheduler.user}, and "
        whose = (
            f" (the job is {view.user}'s, whose tony.yarn.acl.view names its other readers; a"
            f" service acts for {view.user} by --proxy-user)"
        )
    return (
        f"nothing is known of the tasks of {view.app_id}{whose}:"
        f" {'' if view.state.ended else page}there is no history of it that can be read{where}"
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
    scheduler: Scheduler, app_id: str, history: Optional[str] = None
) -> Tuple[Mapping[str, Any], ...]:
    """Every event so far: the page's if it answers, else history's."""
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        record = forgotten_history(scheduler, app_id, history)
        return record.events if record is not None else ()
    if not status.state.ended and status.page_url:
        page = _open_page(status.page_url, scheduler)
        try:
            return tuple(page.events(0)[0])
        except PageError:
            pass
        finally:
            page.close()
    record, _ = find_history(scheduler, app_id, None, history)
    if record is not None and status.state.ended and not is_finished(record):
        record = with_end(record, status)
    return record.events if record is not None else ()
