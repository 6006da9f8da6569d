"""The advice on a job that a scheduler or a history knows: whole, or in lines beside other news.

The metrics of all tasks are read for it, so it has limits where its reader did not ask for it: see
the numbers below. ``tony advise`` and an export have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, NamedTuple, Optional

from tony_core.client.lookup import find_history, is_finished, is_shared
from tony_core.files.port import limited_wait
from tony_core.history.reader import JobHistory, read_config, read_job
from tony_core.job.mask import mask_text
from tony_core.job.spec import Job
from tony_core.schedulers.port import Scheduler

if TYPE_CHECKING:
    from tony_core.advice.report import Report

FEW_TASKS = 100  # of a job at most, where the reader wants an answer at once
MOST_TASKS = 200  # elsewhere: a second or two, and some 100 MB (of 1000 tasks: 7 s and 500 MB)
MOST_LINES = 10
WITHIN_S = 3.0  # for each answer of a file system, where advice is only extra


class Advised(NamedTuple):
    """A job with the advice on it."""

    record: JobHistory
    config: bytes  # empty: it was not kept
    report: Report


def advise_on(root: str, record: JobHistory) -> Advised:
    """The advice on a job whose history below ``root`` was read. Raises OSError."""
    # Rules and XML: only where advice is wanted.
    from tony_core.advice.report import report_on

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

    Raises OSError.
    """
    record, root = find_history(scheduler, app_id, job, history, events=False)
    if record is None or not is_finished(record) or len(record.tasks) > most_tasks:
        return None
    by_owner = is_shared(scheduler, root)
    return advise_on(root, read_job(root, app_id, by_owner=by_owner)).report


def advice_lines(
    scheduler: Scheduler,
    app_id: str,
    *,
    job: Optional[Job] = None,
    history: Optional[str] = None,
    most: int = MOST_LINES,
    most_tasks: int = MOST_TASKS,
    debug: Callable[[str], None] = lambda text: None,
) -> List[str]:
    """The lines on a job that has ended, for a log that others keep; none without advice.

    How much advice there is, and the worst of it. Control characters may be in them. They are
    extra: they may take some seconds, and whatever fails in them costs these lines and nothing
    else. ``debug`` gets why there are none after a failure.
    """
    try:
        with limited_wait(WITHIN_S):
            report = find_report(scheduler, app_id, job=job, history=history, most_tasks=most_tasks)
        if report is None:
            return []
        from tony_core.advice.wording import log_lines

        return [mask_text(text) for text in log_lines(report, f"tony advise {app_id}", most)]
    except Exception as error:  # of any kind: the job has ended, and its outcome counts
        debug(f"no advice on {app_id}: {type(error).__name__}: {error}")
        return []
