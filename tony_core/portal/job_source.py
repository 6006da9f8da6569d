"""One job as the portal shows it: from its master's page while it runs, else from its history."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Protocol, Tuple

from tony_core.history.configuration import ConfigEntry
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory
from tony_core.portal.index.rows import JobRow
from tony_core.view import JobView


class LogChunk(NamedTuple):
    """A part of a log."""

    data: bytes
    offset: int  # of its first byte
    size: int  # of the whole log, as far as it is known now; -1: not known
    over: bool = False  # nothing will be added


class LogProblem(Exception):
    """A log cannot be read; the message says why and what to do."""


class JobSource(Protocol):
    """Everything a job's page shows. Calls may block; each has a deadline of its own."""

    row: JobRow
    is_running: bool

    def record(
        self, events: bool = True, metrics: Wanted = True, known: Optional[JobView] = None
    ) -> JobHistory:
        """The newest that is known: job, tasks, problems, and where asked for story and metrics.

        A time line needs both. Of tasks whose metrics are not wanted, points may be there too.
        ``known`` is the job as it was read before: of one that has ended it is not read again.
        """

    def view(self) -> JobView:
        """The job as the newest record has it; read where there is none yet."""

    def metrics_json(self) -> Optional[bytes]:
        """What ``api/metrics`` answers, made of a file of the job without parsing it; or None."""

    def events(self, since: int) -> Tuple[List[Mapping[str, Any]], int]:
        """The story's lines from ``since`` on, and the number to ask for next."""

    def config(self) -> Tuple[ConfigEntry, ...]:
        """The configuration that it ran with; empty where none was kept.

        Raises OSError where it may not be read, ValueError where it is damaged.
        """

    def config_file(self) -> Optional[bytes]:
        """The same as XML; None where none was kept. Raises OSError."""

    def streams(self, task: str) -> Tuple[Tuple[str, str], ...]:
        """Of each of a task's logs its container and name."""

    def sessions(self, task: str, name: str, container: str) -> Mapping[int, int]:
        """Of each session that wrote to a log the byte at which it begins; empty: not known.

        Raises LogProblem.
        """

    def log(self, task: str, name: str, container: str, offset: int, limit: int) -> LogChunk:
        """A part of a log; a negative ``offset`` counts from its end. Raises LogProblem."""

    def links(self) -> Mapping[str, str]:
        """Links by name: page, yarn, airflow, azkaban, tensorboard..."""
