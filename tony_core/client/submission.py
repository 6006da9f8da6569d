"""From a submit's arguments to a running application, all or nothing.

:func:`load` reads and checks the job. :func:`prepare` asks the scheduler whether it can ever run
there, finds out what travels (nothing is written yet) and builds the request; :func:`send` stages
and starts it. Whatever fails, or interrupts, leaves nothing behind but content in the store, which
the next submit finds or ``tony gc`` takes.
"""

from __future__ import annotations

import os
from typing import Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core import frameworks, schedulers
from tony_core.bundle import jobfolder
from tony_core.bundle.client.login_files import LoginFiles
from tony_core.bundle.client.planning import Plan, plan
from tony_core.bundle.client.staging import stage
from tony_core.client import tls_key_pair
from tony_core.files.registry import filesystem
from tony_core.frameworks.base import FrameworkProblem, refuse_task_restart
from tony_core.job.limits import check_limits
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.problems import JobError, Problem, Severity, errors, problem_at, warnings
from tony_core.job.spec import Job
from tony_core.job.validate import missing_sources
from tony_core.schedulers.port import Scheduler, SchedulerError, Submission

SECRET_BYTES = 32
Check = Callable[[Job], Sequence[FrameworkProblem]]


class Frameworks(Mapping[str, Check]):
    """Every framework's own check by name; loads none before it is asked for."""

    def __getitem__(self, name: str) -> Check:
        try:
            framework = frameworks.find_framework(name)
        except frameworks.UnknownFramework:
            raise KeyError(name) from None
        return lambda job: [*framework.validate(job), *refuse_task_restart(job, framework)]

    def __iter__(self) -> Iterator[str]:
        return iter(frameworks.framework_names())

    def __len__(self) -> int:
        return len(frameworks.framework_names())


def load(
    arguments: JobArguments,
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    conf_dir: Optional[str] = None,
    finds_job_file: bool = True,
) -> Loaded:
    """The job, or JobError with every problem, missing local files included.

    ``finds_job_file``: whether a ``tony.xml`` in the working folder is the job file of a job that
    names none.
    """
    program = None if finds_job_file or arguments.conf_file else ()
    loaded = load_job(
        arguments,
        env=env,
        cwd=cwd,
        conf_dir=conf_dir,
        frameworks=Frameworks(),
        program=program,
        read_bytes=lambda location: filesystem(location).get(location),
    )
    wrong = missing_sources(loaded.job)
    unavailable = schedulers.missing(loaded.job.scheduler)
    if unavailable:
        wrong.append(problem_at(loaded.job, "tony.scheduler", unavailable))
    if wrong:
        raise JobError([*wrong, *loaded.warnings])
    return loaded


class Prepared(NamedTuple):
    """Everything that would be sent; nothing has been written."""

    app_id: str
    job: Job
    root: str
    plan: Plan
    submission: Submission
    warnings: Tuple[Problem, ...] = ()


def prepare(scheduler: Scheduler, job: Job, *, refuse_logins: bool = False) -> Prepared:
    """Check a job against a scheduler and plan what travels; JobError with every problem.

    With ``refuse_logins`` the job takes along no keytab or ticket cache of this machine at all;
    else not those of this client.
    """
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
    if job.network.tls and tls_key_pair.missing():
        problems.append(problem_at(job, tls_key_pair.KEY, tls_key_pair.missing()))
    try:
        login_files = LoginFiles(scheduler.login_files, refuse_logins)
    except OSError as error:
        raise SchedulerError(f"{error.filename}: {error.strerror or error}") from None
    planned = plan(job, root, plugins=plugins, login_files=login_files)
    problems += planned.problems
    if errors(problems):
        raise JobError(list(dict.fromkeys(problems)))
    app_id = scheduler.new_app_id(job)
    submission = scheduler.dry_run(app_id, job, planned.artifacts)
    problems += [Problem(text, severity=Severity.WARNING) for text in submission.warnings]
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
            secret = tls_key_pair.with_tls(secret)
        except tls_key_pair.NoKeyPair as error:
            raise JobError([problem_at(job, tls_key_pair.KEY, str(error))]) from None
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
