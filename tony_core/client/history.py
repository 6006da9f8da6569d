"""Jobs that have ended, from history alone: no scheduler needs to know them any more."""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional

from tony_core.client.errors import NotFound
from tony_core.client.past import past_view
from tony_core.client.view import JobView, from_page
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job


def ended_jobs(root: str) -> Iterator[JobView]:
    """Every job in a history, the newest first."""
    for job in list_jobs(root):
        yield from_page(job, (), None, "history")


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


def view_of(past: JobHistory) -> JobView:
    """As the other verbs show a job."""
    return past_view(past)


def story_of(past: JobHistory) -> List[Mapping[str, object]]:
    """Its events, in order."""
    return list(past.events)


def _matching(ids: List[str], text: str) -> List[str]:
    return [i for i in ids if i.startswith(text)] or [i for i in ids if i.endswith(text)]
