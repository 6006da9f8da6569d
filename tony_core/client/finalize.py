"""Writes the end of a job that no master wrote, and removes what that master would have removed.

A job that its scheduler ended, or whose masters all died, would stay RUNNING in history for ever.
So its owner's clients write the end that the scheduler reports, where history has none:
:func:`finalize` at the end of a watch and of a kill, ``tony history`` and ``tony gc`` for each job
(:func:`finalize_listed`). Looking (:mod:`tony_core.client.lookup`) writes nothing, and shows the
same end before it is written.

Two clients that write it at once write the same. A master that was still writing wins by coming
later. A client does this for its own user's jobs only, and where it may write.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple

from tony_core.client import lookup
from tony_core.client.lookup import (
    await_end,
    final_view,
    find_history,
    find_job_history,
    forgotten_status,
    is_finished,
    is_shared,
    list_history,
    read_job_history,
    recorded_view,
)
from tony_core.client.merge import end_tasks, from_page, with_end
from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.history.access import file_mode
from tony_core.history.folder import segments
from tony_core.history.layout import METRICS, SUMMARY, segment_name, segment_number
from tony_core.history.metric_file import encode_series
from tony_core.history.reader import JobHistory, NoHistory, list_jobs, read_job
from tony_core.job.spec import Job
from tony_core.jsontext import write_value
from tony_core.schedulers.port import AppStatus, NoSuchApplication, Scheduler, SchedulerError
from tony_core.view import HISTORY, JobView

SKEW_S = 60.0  # that a scheduler's clock may be ahead of ours


def finalize(
    scheduler: Scheduler,
    status: AppStatus,
    *,
    last: Optional[JobView] = None,
    job: Optional[Job] = None,
    history: Optional[str] = None,
) -> JobView:
    """Write the end of a job that has just ended, if its master does not; how it looks for good.

    ``last`` is the newest that its page showed.
    """
    record, root = await_end(scheduler, status.app_id, job, history)
    if record is None or not is_finished(record):
        _clean_up_and_write_end(scheduler, status, record, root, job, last)
    return final_view(scheduler, status, record, last)


def finalize_and_list(
    root: str,
    scheduler: Optional[Scheduler] = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[JobView]:
    """Every job in a history, the newest first, its end written first where there is none."""
    for job in list_history(root, scheduler, tell):
        status = None
        if scheduler is not None:
            try:
                status = finalize_listed(scheduler, root, job)
            except SchedulerError:
                scheduler = None  # what was written down has to do
        yield from_page(job, (), status, HISTORY)


def finalize_and_read(
    root: str, text: Optional[str], scheduler: Optional[Scheduler] = None
) -> Tuple[JobHistory, JobView]:
    """The history and the view of the job that ``text`` means, its end written first."""
    record = find_job_history(root, text, scheduler)
    status = None
    if scheduler is not None:
        try:
            status = finalize_listed(scheduler, root, {**record.job, "app_id": record.app_id})
        except SchedulerError:
            pass  # what was written down has to do
    if status is not None:
        record = read_job(root, record.app_id, by_owner=is_shared(scheduler, root))
        if not is_finished(record):
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

    It is written as soon as no master can come to it any more.
    """
    if job.get("finished"):
        return None
    app_id = str(job["app_id"])
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        # In a history that several clusters share it may be another's.
        own = not is_shared(scheduler, root)
        record = read_job_history(root, app_id, events=False) if own else None
        forgotten = forgotten_status(record) if record is not None else None
        if forgotten is not None:
            write_end(root, forgotten)
        return forgotten
    if not status.state.ended:
        return None
    record, where = find_history(scheduler, app_id, None, root, events=False)
    # Clocks differ, and one may be set back: what ended in the far future has settled too.
    ago = time.time() - (status.finished or 0.0)
    may_come = record is not None and -SKEW_S < ago < lookup.SETTLE_S
    if not may_come and (record is None or not is_finished(record)):
        _clean_up_and_write_end(scheduler, status, record, where)
    return status


def _clean_up_and_write_end(
    scheduler: Scheduler,
    status: AppStatus,
    record: Optional[JobHistory],
    root: str,
    job: Optional[Job] = None,
    last: Optional[JobView] = None,
) -> None:
    """Remove what the master left, and write the end, of a job of the caller's own."""
    if scheduler.cleaner.remove_leftovers(status, job) and record is not None:
        write_end(root, status, last)


def write_end(root: str, status: AppStatus, last: Optional[JobView] = None) -> None:
    """Write the end that the scheduler reports, and the story's last line, if this client may."""
    folder = join(root, status.app_id)
    try:
        record = read_job(root, status.app_id)
        if is_finished(record):
            return  # meanwhile, by its master or another client
        ended = with_end(record, status, last)
        files = filesystem(folder)
        mode = file_mode(files, folder)
        if len(ended.events) > len(record.events):
            segment = max(map(segment_number, segments(folder)), default=0) + 1
            line = write_value(ended.events[-1]).encode() + b"\n"
            files.put(join(folder, segment_name(segment)), line, mode)
        if ended.metrics:
            files.put(join(folder, METRICS), encode_series(ended.metrics), mode)
        summary = write_value({"job": ended.job, "tasks": ended.tasks})
        files.put(join(folder, SUMMARY), summary.encode(), mode)
    except (OSError, NoHistory):
        pass  # it is shown like this all the same
