"""From a job to a running application, all or nothing.

In this order: ask the scheduler whether the job can ever run there, find out what travels
(nothing is written yet), build the request, stage, send. Whatever fails, or interrupts,
leaves nothing behind but content in the store, which the next submit finds or ``tony gc``
takes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

from tony_core import frameworks, schedulers
from tony_core.bundle import Plan, jobfolder, plan, stage
from tony_core.client import tlskey
from tony_core.job.limits import check_limits
from tony_core.job.problems import JobError, Problem, Severity, errors, problem_at, warnings
from tony_core.job.spec import Job
from tony_core.schedulers.port import Scheduler, SchedulerError, Submission

SECRET_BYTES = 32


@dataclass(frozen=True)
class Prepared:
    """Everything that would be sent; nothing has been written."""

    app_id: str
    job: Job
    root: str
    plan: Plan
    submission: Submission
    warnings: Tuple[Problem, ...] = ()


def prepare(scheduler: Scheduler, job: Job) -> Prepared:
    """Check a job against a scheduler and plan what travels; JobError with every problem."""
    problems = list(check_limits(job))
    problems += [Problem(text) for text in scheduler.check(job)]
    problems += [Problem(text, severity=Severity.WARNING) for text in scheduler.warnings(job)]
    root = scheduler.staging_root(job)
    plugins = [found for found in (frameworks.plugin_of(job.framework),) if found]
    try:
        pool = schedulers.plugin_of(scheduler.name)
        plugins += [pool] if pool else []
    except SchedulerError as error:
        problems.append(problem_at(job, "tony.scheduler", str(error)))
    if job.network.tls and tlskey.missing():
        problems.append(problem_at(job, tlskey.KEY, tlskey.missing()))
    planned = plan(job, root, plugins=plugins)
    problems += planned.problems
    if errors(problems):
        raise JobError(list(dict.fromkeys(problems)))
    app_id = scheduler.new_app_id(job)
    submission = scheduler.dry_run(app_id, job, planned.artifacts)
    return Prepared(app_id, job, root, planned, submission, tuple(warnings(problems)))


def send(
    scheduler: Scheduler, prepared: Prepared, before_start: Optional[Callable[[], None]] = None
) -> str:
    """Stage and start; the application's id.

    ``before_start`` is called when everything is staged: from then on the application may
    exist, and an interrupt must end it instead of this call.
    """
    secret = os.urandom(SECRET_BYTES)
    app_id, job, root = prepared.app_id, prepared.job, prepared.root
    if job.network.tls:
        try:
            secret = tlskey.with_tls(secret)
        except tlskey.NoKey as error:
            raise JobError([problem_at(job, tlskey.KEY, str(error))]) from None
    artifacts = stage(prepared.plan, root, app_id, job, secret)
    try:
        submission = scheduler.dry_run(app_id, job, artifacts)
        if before_start is not None:
            before_start()
        scheduler.submit(app_id, submission, secret)
    except BaseException:
        jobfolder.remove(root, app_id)
        raise
    return app_id
