"""One job as the portal shows it: from its master's page, its scheduler and its history.

Theory of operation
===================

A job that its scheduler lists as running, with the owner of the files, is shown from its page while
that answers; else from history, under the scheduler's state. A job that has ended is shown from
history; where that has no end, with the one that its scheduler reports. What is missing is named in
``problems``.
"""

from __future__ import annotations

from typing import Any, Callable, ContextManager, List, Mapping, Optional, Tuple

from tony_core.client.errors import PageError
from tony_core.client.merge import from_page, lasting_links
from tony_core.client.page import JobPage
from tony_core.hadoop.web import WebAccess
from tony_core.history.configuration import ConfigEntry, parse_config
from tony_core.history.layout import ENDED, event_number
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory
from tony_core.portal.index.ends import end_of, ended_record
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_folders import JobFolder
from tony_core.portal.job_source import LogChunk, LogProblem
from tony_core.portal.live_jobs import LIVE, LiveJob, LiveJobs
from tony_core.portal.live_page import FIRST_S, MOST_BYTES, LivePage, LivePages
from tony_core.portal.schedulers import SchedulerPool
from tony_core.portal.task_logs import TaskLogs
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import AppStatus, LogRef, Scheduler, SchedulerError
from tony_core.view import HISTORY, MASTER, PAGE, JobView, TaskView, read_task, web_links

OpenFolder = Callable[[JobRow], ContextManager[JobFolder]]


class Sources:
    """Opens jobs for viewers who may see them; whether they may is the caller's to know."""

    def __init__(self, pool: SchedulerPool, live: LiveJobs, open_folder: OpenFolder) -> None:
        """``open_folder`` of a row of the index; raises LookupError or OSError with the reason."""
        self.pool = pool
        self.live = live
        self._open_folder = open_folder
        self._pages = LivePages()

    def open(self, row: JobRow, viewer: Viewer) -> PortalJob:
        """The job of a row, of the index or of a scheduler alone.

        One whose history has its end has ended: a list of running jobs may be some seconds old.
        """
        job = None if row.state in ENDED else self.live.job(row.app_id, row.owner)
        return PortalJob(self, row, viewer, job)

    def close(self) -> None:
        """Close what is open to jobs' pages."""
        self._pages.close()

    def history(
        self, row: JobRow, events: bool, metrics: Wanted, known: Optional[JobHistory] = None
    ) -> JobHistory:
        """What the files say; where they cannot be read, why."""
        try:
            with self._folder(row) as folder:
                return folder.record(events, metrics, known)
        except (LookupError, OSError) as error:
            return JobHistory(row.app_id, problems=(_reason(error),))

    def config(self, row: JobRow) -> Optional[bytes]:
        """The configuration's file; None where there is none. Raises OSError."""
        try:
            with self._folder(row) as folder:
                return folder.config()
        except LookupError:
            return None  # there is no history, which its record's problems say

    def metrics_json(self, row: JobRow) -> Optional[bytes]:
        """The file of its metrics."""
        try:
            with self._folder(row) as folder:
                return folder.metrics_json()
        except (LookupError, OSError):
            return None

    def page(self, job: LiveJob, viewer: Viewer) -> LivePage:
        """A running job's page, as this viewer may read it."""
        user = self.pool.user_for(job.scheduler, viewer.name)
        status = job.status
        key = (job.scheduler, status.app_id, job.owner, status.page_url or "", user)

        def open_page() -> JobPage:
            def ask(scheduler: Scheduler) -> Tuple[Optional[WebAccess], Callable[[str], str]]:
                # A copy of what it knows: the object is another caller's after this.
                return scheduler.web, lambda url: scheduler.page_problem(status, url)

            try:
                access, problem_of = self.pool.call(job.scheduler, ask, user=user, what="its login")
            except SchedulerError as error:
                raise PageError(str(error)) from None
            return JobPage(
                status.page_url or "", FIRST_S, access, problem_of=problem_of,
                most_bytes=MOST_BYTES, renews_lease=False,
            )  # fmt: skip

        return self._pages.get(key, open_page)

    def _folder(self, row: JobRow) -> ContextManager[JobFolder]:
        if row.location.startswith(LIVE):
            raise LookupError(f"there is no history of {row.app_id} yet")
        return self._open_folder(row)


class PortalJob:
    """The :class:`~tony_core.portal.job_source.JobSource` of a job. For one request."""

    def __init__(
        self, sources: Sources, row: JobRow, viewer: Viewer, job: Optional[LiveJob]
    ) -> None:
        self.row = row
        self._sources = sources
        self._viewer = viewer
        self._job = job
        self.is_running = job is not None  # as its scheduler lists it
        self._record: Optional[JobHistory] = None
        self._view: Optional[JobView] = None
        self._read_tasks: Optional[Tuple[Mapping[str, Any], ...]] = None

    # ------------------------------------------------------------------ what is known

    def record(
        self, events: bool = True, metrics: Wanted = True, known: Optional[JobView] = None
    ) -> JobHistory:
        """The newest that is known: job, tasks, metrics, story, problems."""
        if known is not None and not self.is_running and self.row.finished:
            tasks = tuple(task.to_json() for task in known.tasks)
            state = JobHistory(self.row.app_id, known.to_page_json(), tasks)
            return self._sources.history(self.row, events, metrics, state)
        record, source = self._read(events, metrics)
        self._view = _view_of(record, self.row, self._status(), source)
        self._record = _shown(record, self._view)
        return self._record

    def view(self) -> JobView:
        """The job as the newest record has it."""
        self._known()
        assert self._view is not None
        return self._view

    def _read(self, events: bool, metrics: Wanted) -> Tuple[JobHistory, str]:
        """The newest as page or files have it, and which of them."""
        page_problem = ""
        if self._job is not None and self._job.status.page_url:
            try:
                return self._of_page(self._job, bool(metrics)), PAGE
            except PageError as error:
                page_problem = f"the job's page does not answer, this is its history: {error}"
        record = self._sources.history(self.row, events, metrics)
        status = self._status()
        record = ended_record(record, status or end_of(self.row))
        problems = list(record.problems)
        if page_problem:
            problems.insert(0, page_problem)
        return record._replace(problems=tuple(problems)), HISTORY

    def metrics_json(self) -> Optional[bytes]:
        """The metrics of a job that has ended as its file has them."""
        return None if self.is_running else self._sources.metrics_json(self.row)

    def events(self, since: int) -> Tuple[List[Mapping[str, Any]], int]:
        """The story's lines after number ``since``, and the number to ask for next."""
        found = self._read(True, False)[0].events
        fresh = [event for event in found if event_number(event) > since]
        newest = max((event_number(event) for event in found), default=0)
        # A number that no line has yet is of another master, or made up.
        return fresh, max((event_number(event) for event in fresh), default=min(since, newest))

    def config(self) -> Tuple[ConfigEntry, ...]:
        """The configuration that it ran with; empty where none was kept.

        Raises OSError where it may not be read, ValueError where it is damaged.
        """
        data = self.config_file()
        if data is None:
            return ()
        return parse_config(data)

    def config_file(self) -> Optional[bytes]:
        """The same as XML; None where none was kept. Raises OSError."""
        return self._sources.config(self.row)

    def links(self) -> Mapping[str, str]:
        """Links by name; http and https only, for the job's author writes them."""
        record = self._known()
        links, without = record.job.get("links"), ["portal"]
        if self._job is None:
            links = lasting_links(links)
            without.append("tensorboard")
        return {**web_links(links, *without), **self._logs().application_urls()}

    # ------------------------------------------------------------------ logs

    def streams(self, task: str) -> Tuple[Tuple[str, str], ...]:
        """Of each of a task's logs its container and name; the newest container first."""
        return self._logs().streams(self._refs(task))

    def sessions(self, task: str, name: str, container: str) -> Mapping[int, int]:
        """Of each session that wrote to a log the byte at which it begins; empty: not known."""
        if task == MASTER:
            return {}
        found = self._task(task)
        where = container or self._refs(task)[-1].container_id
        if not any(name in run.offsets for run in found.runs if run.container == where):
            return {}
        parts = {one: found.part_of(where, name, one) for one in found.sessions_in(where)}
        return {one: part.begin for one, part in parts.items() if part is not None}

    def log(self, task: str, name: str, container: str, offset: int, limit: int) -> LogChunk:
        """A part of a log; a negative ``offset`` counts from its end. Raises LogProblem."""
        refs = self._refs(task)
        ref = next((one for one in refs if one.container_id == container), None)
        if ref is None and not container:
            ref = refs[-1]
        if ref is None:
            raise LogProblem(f"{container!r} is no container of the task {task}")
        is_last = not self.is_running or ref != refs[-1]
        return self._logs().read(ref, name, offset, limit, is_last)

    def _logs(self) -> TaskLogs:
        scheduler = "" if self._job is None else self._job.scheduler
        return TaskLogs(self._sources.pool, self.row, self._viewer.name, scheduler)

    def _refs(self, task: str) -> Tuple[LogRef, ...]:
        """The containers that ran a task, the newest last; at least one."""
        if task == MASTER:
            return (LogRef(""),)
        refs = self._task(task).log_refs()
        if not refs:
            raise LogProblem(f"the task {task} has no container yet")
        return refs

    def _task(self, task: str) -> TaskView:
        if self._record is None and self._read_tasks is None:
            self._read_tasks = self._read(False, False)[0].tasks  # one of them is looked for
        for entry in self._read_tasks or self._known().tasks:
            if entry.get("task") == task:
                return read_task(entry)
        raise LogProblem(f"the job {self.row.app_id} has no task {task!r}")

    # ------------------------------------------------------------------ of page and scheduler

    def _of_page(self, job: LiveJob, metrics: bool) -> JobHistory:
        page = self._sources.page(job, self._viewer)
        read = page.read()
        found: Mapping[str, Any] = {}
        problems: Tuple[str, ...] = ()
        if metrics:
            try:
                found = page.metrics()
            except PageError as error:
                problems = (f"the job's page does not give its metrics: {error}",)
        return JobHistory(self.row.app_id, read.job, read.tasks, found, read.events, problems)

    def _known(self) -> JobHistory:
        if self._record is None:
            self._record = self.record(events=False, metrics=False)
        return self._record

    def _status(self) -> Optional[AppStatus]:
        if self._job is not None:
            return self._job.status
        return self._sources.live.ended_status(self.row.app_id, self.row.owner)


def _shown(record: JobHistory, view: JobView) -> JobHistory:
    """The record in the shapes of :mod:`tony_core.view`, whatever was in it."""
    tasks = tuple(task.to_json() for task in view.tasks)
    return record._replace(app_id=view.app_id, job=view.to_page_json(), tasks=tasks)


def _view_of(record: JobHistory, row: JobRow, status: Optional[AppStatus], source: str) -> JobView:
    """The job of a record.

    Id and owner are those of the row: what a page or a file says of them is text.
    """
    known = {
        "state": row.state,
        "name": row.name,
        "queue": row.queue,
        "submitted": row.submitted or None,
        "started": row.started,
        "tags": list(row.tags),
        **record.job,
        "app_id": row.app_id,
        "user": row.owner,
    }
    return from_page(known, record.tasks, status, source, row.app_id)


def _reason(error: Exception) -> str:
    return f"its history cannot be read: {str(error) or type(error).__name__}"
