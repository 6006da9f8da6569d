"""The client for a program: submit a job, follow it, wait for it, end it.

    from tony_core.client import run
    result = run(JobArguments(executes="python train.py", src_dir="src"),
                 on_links=lambda links: print(links.get("tensorboard")))
    sys.exit(result.exit_code)

:func:`submit` returns as soon as the application was accepted; :meth:`Run.wait` watches and
calls back on the thread that called it. Used as a context manager, a :class:`Run` that is
left by an exception ends its application, unless it was submitted detached.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Type, Union

from tony_core.client.cluster_login import job_environment
from tony_core.client.exit_codes import exit_code_of_state
from tony_core.client.kill import ALLOWANCE_S, Killed, kill
from tony_core.client.logs import Line, read_logs
from tony_core.client.lookup import require_view, view_of
from tony_core.client.submission import Prepared, load, prepare, send
from tony_core.client.watch import Callbacks, Event, Watch
from tony_core.job.load import JobArguments
from tony_core.job.problems import Problem
from tony_core.job.spec import Job
from tony_core.schedulers import open_scheduler
from tony_core.schedulers.port import AppState, AppStatus, LifetimeLimit, Scheduler, Submission
from tony_core.view import JobView, TaskView


class Result(NamedTuple):
    """How an application ended."""

    app_id: str
    state: AppState
    exit_code: int
    diagnostics: str
    duration_s: float
    view: JobView

    @property
    def succeeded(self) -> bool:
        """Whether the job succeeded."""
        return self.state is AppState.SUCCEEDED


class Run:
    """One application, submitted or attached to."""

    def __init__(
        self,
        scheduler: Scheduler,
        app_id: str,
        callbacks: Callbacks = Callbacks(),
        *,
        job: Optional[Job] = None,
        detach: bool = False,
        warnings: Tuple[Problem, ...] = (),
        lifetime_limit: Optional[LifetimeLimit] = None,
    ) -> None:
        self.app_id = app_id
        self.job = job
        self.warnings = warnings
        self.lifetime_limit = lifetime_limit  # None where there is none, or it is not known
        self.owns_scheduler = False  # whether close() closes its connections
        self._scheduler = scheduler
        self._detach = detach
        self._watch = Watch(scheduler, app_id, callbacks, job=job)
        self._result: Optional[Result] = None

    def wait(self, timeout_s: Optional[float] = None) -> Optional[Result]:
        """Watch it to its end; ``None`` after a timeout or :meth:`stop`."""
        if self._result is None:
            view = self._watch.run(timeout_s)
            if view is None:
                return None
            self._result = result_of(view)
        return self._result

    def stop(self) -> None:
        """Make :meth:`wait` return; the application goes on. From any thread."""
        self._watch.stop()

    def status(self) -> AppStatus:
        """What the scheduler reports now."""
        status = self._scheduler.status(self.app_id)
        require_view(status)
        return status

    def view(self) -> JobView:
        """Everything known of the job now."""
        return view_of(self._scheduler, self.status(), job=self.job)

    def logs(self, **arguments: Any) -> Iterator[Line]:
        """Its tasks' lines; arguments as of :func:`tony_core.client.logs.read_logs`."""
        return read_logs(self._scheduler, self.app_id, **arguments)

    def kill(self, reason: str = "") -> Killed:
        """End it, and wait until it has ended."""
        grace = self.job.timeouts.kill_grace_s if self.job is not None else 10.0
        return kill(self._scheduler, self.app_id, reason, grace + ALLOWANCE_S)

    def close(self) -> None:
        """Close the scheduler's connections if they are this run's."""
        if self.owns_scheduler:
            self._scheduler.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if kind is not None and not self._detach and self._result is None:
                self.kill(f"its client ended by {kind.__name__}")
        finally:
            self.close()


class Client:
    """One scheduler, opened once; :meth:`close` closes its connections."""

    def __init__(
        self,
        scheduler: Union[str, Scheduler] = "local",
        env: Optional[Mapping[str, str]] = None,
        *,
        refuse_logins: bool = False,
    ) -> None:
        """With ``refuse_logins`` no job takes along a keytab or ticket cache of this machine."""
        self.scheduler = open_scheduler(scheduler, env) if isinstance(scheduler, str) else scheduler
        self._env = env
        self._refuse_logins = refuse_logins

    def submit(
        self,
        job: Union[Job, JobArguments],
        callbacks: Callbacks = Callbacks(),
        *,
        detach: bool = False,
        before_start: Optional[Callable[[], None]] = None,
    ) -> Run:
        """Start a job; JobError or SchedulerError if it cannot be."""
        job, warnings = self._job(job)
        prepared = prepare(self.scheduler, job, refuse_logins=self._refuse_logins)
        app_id = send(self.scheduler, prepared, before_start)
        started = Run(
            self.scheduler,
            app_id,
            callbacks,
            job=job,
            detach=detach,
            warnings=(*warnings, *prepared.warnings),
            lifetime_limit=self.scheduler.lifetime_limit(app_id),
        )
        if callbacks.on_application is not None:
            try:
                callbacks.on_application(app_id)
            except BaseException:
                if not detach:
                    started.kill("its client failed as it started")
                raise
        return started

    def dry_run(self, job: Union[Job, JobArguments]) -> Submission:
        """Exactly what :meth:`submit` would send; nothing is written."""
        return self.prepare(job).submission

    def prepare(self, job: Union[Job, JobArguments]) -> Prepared:
        """Check a job and plan what would be staged and sent, with warnings; nothing is written."""
        job, warnings = self._job(job)
        prepared = prepare(self.scheduler, job, refuse_logins=self._refuse_logins)
        return prepared._replace(warnings=(*warnings, *prepared.warnings))

    def attach(self, app_id: str, callbacks: Callbacks = Callbacks()) -> Run:
        """Watch an application that exists already; to stop watching never ends it."""
        if callbacks.on_application is not None:
            callbacks.on_application(app_id)
        return Run(self.scheduler, app_id, callbacks, detach=True)

    def list(self) -> List[AppStatus]:
        """Every application the scheduler knows, the newest first."""
        return self.scheduler.list()

    def close(self) -> None:
        """Close its connections."""
        self.scheduler.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _job(self, job: Union[Job, JobArguments]) -> Tuple[Job, Tuple[Problem, ...]]:
        if isinstance(job, Job):
            return job, ()
        loaded = load(job, env=self._env)
        return loaded.job, loaded.warnings


def submit(
    job: Union[Job, JobArguments],
    *,
    scheduler: Union[str, Scheduler, None] = None,
    on_application: Optional[Callable[[str], None]] = None,
    on_tasks: Optional[Callable[[Tuple[TaskView, ...]], None]] = None,
    on_progress: Optional[Callable[[Tuple[TaskView, ...]], None]] = None,
    on_links: Optional[Callable[[Mapping[str, str]], None]] = None,
    on_event: Optional[Callable[[Event], None]] = None,
    on_finished: Optional[Callable[[JobView], None]] = None,
    detach: bool = False,
    env: Optional[Mapping[str, str]] = None,
) -> Run:
    """Start a job. The callbacks beyond ``on_application`` come from :meth:`Run.wait`.

    Without ``scheduler`` it goes where the job says (``tony.scheduler``), else ``local``.
    """
    warnings: Tuple[Problem, ...] = ()
    if isinstance(job, JobArguments):
        loaded = load(job, env=env)
        job, warnings = loaded.job, loaded.warnings
    if scheduler is None:
        scheduler = job.scheduler
    client = Client(scheduler, job_environment(job, env))
    callbacks = Callbacks(
        on_application=on_application,
        on_tasks=on_tasks,
        on_progress=on_progress,
        on_links=on_links,
        on_event=on_event,
        on_finished=on_finished,
    )
    owns = client.scheduler is not scheduler
    try:
        started = client.submit(job, callbacks, detach=detach)
    except BaseException:
        if owns:
            client.close()
        raise
    started.warnings = (*warnings, *started.warnings)
    started.owns_scheduler = owns
    return started


def run(job: Union[Job, JobArguments], **arguments: Any) -> Result:
    """Submit a job and wait for its end; arguments as of :func:`submit`.

    An exception (a KeyboardInterrupt, one from a callback) ends the application.
    """
    with submit(job, **arguments) as started:
        result = started.wait()
        assert result is not None, "no call stops this watch"
        return result


def result_of(view: JobView) -> Result:
    """An ended application's view as a result."""
    return Result(
        app_id=view.app_id,
        state=view.state,
        exit_code=exit_code_of_state(view.state),
        diagnostics=view.diagnostics,
        duration_s=view.duration_s(time.time()) or 0.0,
        view=view,
    )
