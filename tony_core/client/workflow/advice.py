"""Advice on a job that has ended, for a log that others keep and beside other news of a job.

It is extra: it may take some seconds, and whatever fails in it costs these lines and nothing else.
"""

from __future__ import annotations

from typing import Callable, List, Optional

from tony_core.files.port import limited_wait
from tony_core.job.mask import mask_text
from tony_core.job.spec import Job
from tony_core.schedulers.port import Scheduler

WITHIN_S = 3.0  # for each answer of a file system
MOST_LINES = 10
MOST_TASKS = 200  # whose metrics take a second or two, and some 100 MB
FEW_TASKS = 100  # where the reader wants an answer at once


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
    """The lines on a job: how much advice there is, and the worst of it; none without advice.

    Control characters may be in them. ``debug`` gets why there are none after a failure.
    """
    try:
        # Rules and XML: only where a job has ended.
        from tony_core.advice.wording import log_lines
        from tony_core.client.advice import find_report

        with limited_wait(WITHIN_S):
            report = find_report(scheduler, app_id, job=job, history=history, most_tasks=most_tasks)
        if report is None:
            return []
        return [mask_text(text) for text in log_lines(report, f"tony advise {app_id}", most)]
    except Exception as error:  # of any kind: the job has ended, and its outcome counts
        debug(f"no advice on {app_id}: {type(error).__name__}: {error}")
        return []
