"""Jobs that have ended, from history alone: no scheduler needs to know them any more.

Where one does, it is asked about those without an end: their masters may have died.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from tony_core.client.ended_jobs import ended_unheard, past_view
from tony_core.client.errors import NotFound
from tony_core.client.finalize import as_buried
from tony_core.client.view import HISTORY, JobView, closed, from_page
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job
from tony_core.schedulers.port import Scheduler, SchedulerError


def ended_jobs(root: str, scheduler: Optional[Scheduler] = None) -> Iterator[JobView]:
    """Every job in a history, the newest first."""
    for job in list_jobs(root):
        status = None
        if scheduler is not None:
            try:
                status = ended_unheard(scheduler, root, job)
            except SchedulerError:
                scheduler = None  # what was written down has to do
        yield from_page(job, (), status, HISTORY)


def ended_job(
    root: str, text: Optional[str], scheduler: Optional[Scheduler] = None
) -> Tuple[JobHistory, JobView]:
    """The history of the job that ``text`` means, and the job as the other verbs show it."""
    past = find_job(root, text)
    status = None
    if scheduler is not None:
        try:
            status = ended_unheard(scheduler, root, {**past.job, "app_id": past.app_id})
        except SchedulerError:
            pass  # what was written down has to do
    if status is not None:
        past = read_job(root, past.app_id)
        if not past.job.get("finished"):
            past = as_buried(past, status)  # a master may still write it down itself
    return past, closed(past_view(past, status))


def find_job(root: str, text: Optional[str]) -> JobHistory:
    """The history of the job that ``text`` means: an id, its beginning or end, or the newest."""
    if text:
        try:
            return read_job(root, text)
        except NoHistory:
            pass
    ids = [str(job["app_id"]) for job in list_jobs(root)]
    found = ids[:1] if not text else _matching(ids, text)
    if len(found) == 1:
        return read_job(root, found[0])
    if found:
        raise NotFound(f"{text!r} may be {', '.join(found[:5])}: say more of it", found)
    what = f"no job {text!r}" if text else "no job"
    raise NotFound(f"there is {what} in the history at {root}; tony history list shows all")


def _matching(ids: List[str], text: str) -> List[str]:
    return [i for i in ids if i.startswith(text)] or [i for i in ids if i.endswith(text)]
