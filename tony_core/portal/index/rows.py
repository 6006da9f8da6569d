"""What the index knows of a job, and what is asked of it."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

from tony_core.history.layout import ENDED


class JobRow(NamedTuple):
    """One job of one location."""

    location: str  # its name in the portal's settings
    app_id: str
    owner: str  # of its files
    name: str = ""
    queue: str = ""
    framework: str = ""
    state: str = ""
    submitted: float = 0.0
    started: Optional[float] = None
    finished: Optional[float] = None
    progress: float = 0.0
    tasks: int = 0
    error: str = ""  # the beginning of its diagnostics or root cause
    tags: Tuple[str, ...] = ()
    pipeline: str = ""  # "airflow:DAG.task", "azkaban:project/flow.job"; empty: none
    figures: Mapping[str, float] = {}  # tony_core.history.figures
    readers: Tuple[str, ...] = ()  # tony_core.portal.viewer.readers
    problem: str = ""  # why its files could not be read

    @property
    def has_ended(self) -> bool:
        """Whether the job says that it is over, and when."""
        return self.state in ENDED and self.finished is not None


class Query(NamedTuple):
    """A view of the list: every field is a parameter of its URL, by the same name."""

    q: str = ""  # words; each must begin a word of name, id, tag, user, queue, framework or error
    state: Tuple[str, ...] = ()
    user: str = ""
    queue: str = ""
    framework: str = ""
    tag: str = ""
    pipeline: str = ""
    location: str = ""
    since: Optional[float] = None  # submitted, seconds since the epoch
    until: Optional[float] = None
    sort: str = "-submitted"  # a column; with "-" the largest first
    after: str = ""  # the cursor of the page before
    limit: int = 50


class JobPage(NamedTuple):
    """One page of a list."""

    rows: Tuple[JobRow, ...]
    next: str = ""  # the cursor of the next page; empty: this is the last
    total: int = 0  # of the whole list


class Usage(NamedTuple):
    """What the jobs of one user (queue, framework, ...) have used."""

    key: str
    jobs: int
    states: Mapping[str, int]  # how many jobs are in which state
    figures: Mapping[str, float]  # sums, of tony_core.portal.index.schema.FIGURES
    last: float = 0.0  # when the newest was submitted


class LocationState(NamedTuple):
    """How far the portal has read one history location."""

    name: str
    root: str
    jobs: int = 0
    problem: str = ""  # why it cannot be read now; empty: it can
    waiting: int = 0  # histories that are found and not read yet
    notes: Tuple[str, ...] = ()  # what an administrator should know, e.g. of retention
