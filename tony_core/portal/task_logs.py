"""Logs of a job's containers, through the scheduler that ran it.

A log is read only of a container that the scheduler itself holds to be this job's, and only where
the job's owner is, by the scheduler, the owner of the history files. No address out of a page or a
history is asked: a node is asked where the ResourceManager reports it
(:meth:`~tony_core.schedulers.port.LogReader.verified`), else the logs are looked for among the
aggregated ones. A job that its scheduler knows no more has only those left that lie in its owner's
own folder."""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from tony_core.client.logs import STREAMS
from tony_core.files.local import user_name
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_source import LogChunk, LogProblem
from tony_core.portal.schedulers import EMBEDDED, SchedulerPool
from tony_core.schedulers.port import (
    AppStatus,
    LogReader,
    LogRef,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
)

LOG_S = 12.0  # for a part of a log, wherever it is
MOST_OF_LOG = 1 << 20  # bytes of a part
LISTED_CONTAINERS = 10  # of a task, the newest, whose files are listed
USUAL = STREAMS["both"]

T = TypeVar("T")


class TaskLogs:
    """The logs of one job, as one viewer may read them."""

    def __init__(self, pool: SchedulerPool, row: JobRow, viewer: str, scheduler: str) -> None:
        """``scheduler`` that lists the job as running; empty where none does."""
        self._pool = pool
        self._row = row
        self._viewer = viewer
        self._names = (scheduler,) if scheduler else pool.names

    def streams(self, refs: Sequence[LogRef]) -> Tuple[Tuple[str, str], ...]:
        """Container and name of each log, the newest container first."""
        newest = refs[-LISTED_CONTAINERS:][::-1]

        def ask(reader: LogReader) -> List[Tuple[str, str]]:
            found: List[Tuple[str, str]] = []
            for ref in newest:
                names: List[str] = []
                try:
                    names = reader.list_logs(self._row.app_id, reader.verified(ref))
                except SchedulerError:
                    pass  # to read one of the usual ones says why
                found += [(ref.container_id, name) for name in names or USUAL]
            return found

        try:
            return tuple(self._ask(ask, "the list of logs"))
        except LogProblem:
            return tuple((ref.container_id, name) for ref in newest for name in USUAL)

    def read(self, ref: LogRef, name: str, offset: int, limit: int, is_last: bool) -> LogChunk:
        """A part of a log; ``is_last``: what is there now is all. Raises LogProblem."""
        limit = max(1, min(limit, MOST_OF_LOG))

        def ask(reader: LogReader) -> LogChunk:
            return read_part(reader, self._row.app_id, ref, name, offset, limit, is_last)

        return self._ask(ask, f"the log {name} of {ref.container_id or 'its master'}")

    def application_urls(self) -> Dict[str, str]:
        """The application in the schedulers' own pages, by scheduler."""
        found: Dict[str, str] = {}
        for name in self._names:
            try:
                url = self._call(
                    name, lambda scheduler: scheduler.application_url(self._row.app_id), "links"
                )
            except SchedulerError:
                continue  # a link less
            if url:
                found[name] = url
        return found

    # ------------------------------------------------------------------ which scheduler

    def _ask(self, ask: Callable[[LogReader], T], what: str) -> T:
        """Ask the scheduler whose job this is; raises LogProblem."""
        problems: List[str] = []
        unknown: List[str] = []
        for name in self._names:
            try:
                found = self._call(name, lambda scheduler: self._of_owner(scheduler, ask), what)
            except SchedulerError as error:
                problems.append(str(error))
                continue
            if found:
                return found[0]
            unknown.append(name)
        gone: List[str] = []
        for name in unknown:
            if name == EMBEDDED and self._row.owner != user_name(os.geteuid()):
                gone.append(
                    "the embedded scheduler keeps a job's logs in its owner's own folder:"
                    f" {self._owner_reads()}"
                )
                continue
            try:
                return self._call(name, lambda scheduler: self._of_forgotten(scheduler, ask), what)
            except SchedulerError as error:
                gone.append(str(error))
        if not self._names:
            raise LogProblem(
                "this portal reads no logs, as its settings name no scheduler to read them from"
                f" ([portal] schedulers): {self._owner_reads()}"
            )
        raise LogProblem("; ".join(problems or gone))

    def _owner_reads(self) -> str:
        return f"its owner, {self._row.owner}, reads them by: tony logs {self._row.app_id}"

    def _of_owner(self, scheduler: Scheduler, ask: Callable[[LogReader], T]) -> Tuple[T, ...]:
        """The answer, where the scheduler has this job and its owner is that of the files."""
        status = owned_status(scheduler, self._row.app_id, self._row.owner)
        if status is None:
            return ()
        if status.view_refusal:
            raise SchedulerError(status.view_refusal)
        return (ask(scheduler.log_reader),)

    def _of_forgotten(self, scheduler: Scheduler, ask: Callable[[LogReader], T]) -> T:
        return ask(scheduler.log_reader.of_forgotten(self._row.app_id, self._row.owner))

    def _call(self, name: str, ask: Callable[[Scheduler], T], what: str) -> T:
        user = self._pool.user_for(name, self._viewer)
        return self._pool.call(name, ask, user=user, within_s=LOG_S, what=what)


def owned_status(scheduler: Scheduler, app_id: str, owner: str) -> Optional[AppStatus]:
    """The scheduler's status of that owner's job; None where it has no such job of his."""
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        return None
    return status if scheduler.owner_of(status) == owner else None


def read_part(
    reader: LogReader,
    app_id: str,
    ref: LogRef,
    name: str,
    offset: int,
    limit: int,
    is_last: bool,
) -> LogChunk:
    """A part of a log; a negative ``offset`` counts from its end."""
    ref = reader.verified(ref)
    size: Optional[int] = None
    if offset < 0:
        size = reader.log_size(app_id, ref, name)
        offset = max(0, (size or 0) + offset)
    data = reader.read_log(app_id, ref, name, offset, limit)
    reached = offset + len(data)
    if 0 < len(data) < limit:
        size = max(reached, size or 0)
    else:  # there may be more, or less than was asked for
        size = reader.log_size(app_id, ref, name)
    return LogChunk(data, offset, -1 if size is None else size, is_last and reached >= (size or 0))
