"""Ends that no master wrote: the index has a job under the end that its scheduler reports.

The scanner asks for it where a job's history has no end and has not changed for a while, and puts
the job with its end into the index. So lists, filters, counts and sums agree on it, also after the
scheduler has forgotten the job.
"""

from __future__ import annotations

from typing import Optional, Protocol

from tony_core.client.merge import with_end
from tony_core.history.layout import ENDED
from tony_core.history.reader import JobHistory
from tony_core.portal.index.rows import JobRow
from tony_core.schedulers.port import AppState, AppStatus


class Ends(Protocol):
    """What schedulers know of jobs that they do not list as running."""

    def ended_status(self, app_id: str, owner: str) -> Optional[AppStatus]:
        """The end of the job of that id and owner; None where none is known."""

    def ask_end(self, app_id: str, owner: str) -> bool:
        """Have it asked for; whether there is an answer to an earlier call."""


class NoEnds:
    """No scheduler is asked."""

    def ended_status(self, app_id: str, owner: str) -> Optional[AppStatus]:
        """None."""
        return None

    def ask_end(self, app_id: str, owner: str) -> bool:
        """There is nothing to wait for."""
        return True


def end_of(row: JobRow) -> Optional[AppStatus]:
    """The end that the index has of a job; None of one that goes on."""
    if row.state not in ENDED or row.finished is None:
        return None
    return AppStatus(
        app_id=row.app_id,
        name=row.name,
        user=row.owner,
        queue=row.queue,
        state=AppState(row.state),
        submitted=row.submitted,
        started=row.started,
        finished=row.finished,
        progress=row.progress,
        diagnostics=row.error,
        tags=row.tags,
    )


def ended_record(record: JobHistory, status: Optional[AppStatus]) -> JobHistory:
    """The history with the end that is known elsewhere, unless it has its own."""
    if status is None or not status.state.ended or record.job.get("finished"):
        return record
    return with_end(record, status)
