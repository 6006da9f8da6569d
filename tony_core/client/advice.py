"""The advice on a job that a scheduler or a history knows: reads its history and configuration."""

from __future__ import annotations

from typing import NamedTuple, Optional

from tony_core.advice.report import Report, report_on
from tony_core.client.lookup import find_history, is_finished, is_shared
from tony_core.history.reader import JobHistory, read_config, read_job
from tony_core.job.spec import Job
from tony_core.schedulers.port import Scheduler


class Advised(NamedTuple):
    """A job with the advice on it."""

    record: JobHistory
    config: bytes  # empty: it was not kept
    report: Report


def advise_on(root: str, record: JobHistory) -> Advised:
    """The advice on a job whose history below ``root`` was read. Raises OSError."""
    config = read_config(root, record.app_id) or b""
    return Advised(record, config, report_on(record, config))


def find_report(
    scheduler: Scheduler,
    app_id: str,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
    most_tasks: int,
) -> Optional[Report]:
    """The advice on a job that has ended; None without its history, or with more tasks than these.

    The metrics of all tasks are read for it. Raises OSError.
    """
    record, root = find_history(scheduler, app_id, job, history, events=False)
    if record is None or not is_finished(record) or len(record.tasks) > most_tasks:
        return None
    by_owner = is_shared(scheduler, root)
    return advise_on(root, read_job(root, app_id, by_owner=by_owner)).report
