"""The client's side of the scheduler port: what a cluster must do for a job, and nothing more.

:class:`Scheduler` lives in the process that submits: it prints what it would send, sends it, and
answers for any application by its id, from any process. A scheduler that keeps logs, or leaves
files behind, adds a :class:`LogReader` and a :class:`Cleaner`. The master's side is
:mod:`tony_core.schedulers.container_pool`.

Every call may be repeated: to kill what has ended does nothing. The same contract suite
(``tests/schedulers/contract.py``) runs on every implementation.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

if TYPE_CHECKING:  # a client that only asks for a status needs none of a job's records
    from tony_core.files.artifact import Artifact
    from tony_core.hadoop.web import WebAccess
    from tony_core.job.spec import Job


class AppState(str, Enum):
    """The state of an application; every scheduler's own states are mapped to these."""

    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"  # waiting for the master's own container
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    TIMED_OUT = "TIMED_OUT"
    UNKNOWN = "UNKNOWN"  # of history only: what says it is damaged

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self in (
            AppState.SUCCEEDED,
            AppState.FAILED,
            AppState.KILLED,
            AppState.TIMED_OUT,
        )


class AppStatus(NamedTuple):
    """The state of one application, as its scheduler reports it."""

    app_id: str
    name: str
    user: str
    queue: str
    state: AppState
    type: str = "TONY"
    tags: Tuple[str, ...] = ()
    submitted: float = 0.0  # seconds since the epoch
    started: Optional[float] = None
    finished: Optional[float] = None
    progress: float = 0.0
    attempt: int = 0  # of the master, from 1
    page_url: Optional[str] = None  # the job's page, while it runs
    tracking_url: Optional[str] = None  # the URL for people
    diagnostics: str = ""
    trouble: str = ""  # of a job that goes on, where the scheduler keeps it
    view_refusal: str = ""  # why this user may not look at it; empty if he may


class Submission(NamedTuple):
    """Exactly what would be sent; printable, and what :meth:`Scheduler.submit` takes."""

    scheduler: str
    job: Job
    artifacts: Tuple[Artifact, ...]
    details: Mapping[str, Any] = {}  # the scheduler's own request
    warnings: Tuple[str, ...] = ()  # what the user should know before it starts


class LifetimeLimit(NamedTuple):
    """Until when an application can live at most, whatever its program does."""

    ends: float  # seconds since the epoch
    text: str  # one line for its user: why, and what to do


class LogRef(NamedTuple):
    """The log files of a container, as history and the page name them."""

    container_id: str
    node: str = ""
    url: str = ""


class CheckResult(str, Enum):
    """The result of one examination."""

    OK = "ok"
    NOTE = "note"  # works, and is worth knowing
    WRONG = "wrong"
    SKIPPED = "skipped"  # not examined: something before it is wrong, or it was not requested


class Finding(NamedTuple):
    """The result of one check (``tony doctor``)."""

    what: str
    verdict: CheckResult
    detail: str = ""
    advice: str = ""  # what to do, and who


class SchedulerError(Exception):
    """The scheduler could not be reached, or refused the request (exit code 3)."""


class LastingRefusal(SchedulerError):
    """A refusal by configuration, here or on the cluster: to try again cannot help."""


class NotLoggedIn(LastingRefusal):
    """This client has no valid ticket now; a new one may come (:class:`NoTicket`)."""

    def __init__(self, message: str, *, has_expired: bool = False) -> None:
        super().__init__(message)
        self.has_expired = has_expired  # the one that it had


class BadEnvironment(LastingRefusal):
    """A variable of the client's environment has an invalid value (exit code 2)."""


class NoSuchScheduler(SchedulerError):
    """No scheduler of that name (exit code 2)."""


class NoSuchApplication(SchedulerError):
    """No application of that id."""


class Scheduler(ABC):
    """Runs jobs: the client's side of a scheduler, for any process at any time.

    Eight methods have to be written. What else a client may ask for (logs, cleaning up, an
    examination) has a default: none.
    """

    name: str = ""
    user: str = ""  # the user that the scheduler takes us for, where it goes by names
    real_user: str = ""  # who acts for that user, where it is another
    login_files: Tuple[str, ...] = ()  # that prove who we are; no job takes them along

    @abstractmethod
    def staging_root(self, job: Optional[Job] = None) -> str:
        """Where content and job folders are staged: a path or URL of the file-system port.

        Without a job: where they are when a job names no place of its own.
        """

    @abstractmethod
    def new_app_id(self, job: Job) -> str:
        """An id of this scheduler for an application about to be submitted."""

    @abstractmethod
    def check(self, job: Job) -> List[str]:
        """Why this job can never run here (too large, unknown resource...); empty if it can."""

    @abstractmethod
    def dry_run(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Submission:
        """The request, without sending it."""

    @abstractmethod
    def submit(self, app_id: str, submission: Submission, secret: bytes) -> None:
        """Start the master. All artifacts are staged already. On failure nothing is left."""

    def lifetime_limit(self, app_id: str) -> Optional[LifetimeLimit]:
        """The limit of an application that this object has submitted; None where there is none."""
        return None

    @abstractmethod
    def status(self, app_id: str) -> AppStatus:
        """The state of one application; raises :class:`NoSuchApplication`."""

    @abstractmethod
    def list(self) -> List[AppStatus]:
        """Every application that is still known and this user may look at, the newest first."""

    def list_running(self) -> List[AppStatus]:
        """Every application that has not ended; one with a ``view_refusal`` is among them."""
        return [status for status in self.list() if not status.state.ended]

    def owner_of(self, status: AppStatus) -> str:
        """The user whom the scheduler itself takes for the owner, whatever the job says.

        Empty where it cannot tell.
        """
        return status.user

    def owner_folder(self, app_id: str) -> str:
        """Where a running application of the caller's own has what only its owner may read.

        Raises :class:`SchedulerError` where it is another user's, or this scheduler has no such
        place.
        """
        raise SchedulerError(f"the scheduler {self.name} keeps no keys for the owners of its jobs")

    def application_url(self, app_id: str) -> str:
        """Where people find an application in the scheduler's own pages; empty without any."""
        return ""

    def page_problem(self, status: AppStatus, url: str) -> str:
        """Why a service may not ask at an address for the job's page; empty if it may.

        The first address is the scheduler's, but what answers there is a job, which may redirect
        to any other.
        """
        from urllib.parse import urlsplit  # of services only

        same = urlsplit(url)[:2] == urlsplit(status.page_url or "")[:2]
        return "" if same else f"{url} is not where {self.name} says that the job's page is"

    @abstractmethod
    def kill(self, app_id: str, reason: str) -> None:
        """End it, with everything that belongs to it; does nothing when it has ended already."""

    def warnings(self, job: Job) -> List[str]:
        """A line for each of the job's settings that has no effect here."""
        return []

    def history_root(self, job: Optional[Job] = None) -> Optional[str]:
        """The folder of ended jobs' history when the job names none."""
        try:
            return f"{self.staging_root(job)}/history"
        except SchedulerError:
            return None

    @property
    def web(self) -> Optional[WebAccess]:
        """Who we are to the web servers in front of jobs' pages; None: pages are asked directly."""
        return None

    @property
    def log_reader(self) -> LogReader:
        """Reads the logs of containers."""
        return LogReader()

    @property
    def cleaner(self) -> Cleaner:
        """Removes what ended applications leave."""
        return Cleaner()

    def examine(
        self, job: Job, stage: Optional[Callable[[Job, str], Tuple[Artifact, ...]]] = None
    ) -> Iterator[Finding]:
        """Examine whether jobs like this one can run here; yields each finding at once.

        ``stage`` (a job, an application's id) brings our own code to where containers find it.
        Without it only questions are asked: no container is started, no file written.
        """
        return iter(())

    def close(self) -> None:
        """Give back connections."""


class LogReader:
    """Reads what containers wrote. This one is for a scheduler that keeps no logs."""

    urls_outlive_job = True  # whether a container's log URL answers after the application's end

    def list_containers(self, app_id: str) -> List[Tuple[str, LogRef]]:
        """(task, container) of what was launched, as the scheduler itself remembers it.

        For a job whose master died before it could record them; empty where nothing is kept.
        """
        return []

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        """The log files of one container (``stdout``, ``stderr``, ``executor.log``...)."""
        return []

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        """Bytes of a log file from ``offset`` on; empty when there is nothing more (yet)."""
        return b""

    def log_size(self, app_id: str, ref: LogRef, name: str) -> Optional[int]:
        """Return the length of a log file now; ``None`` where only reading it would tell."""
        return None

    def verified(self, ref: LogRef) -> LogRef:
        """The same reference, without an address that only the job names.

        For a service: histories and pages are written by others, who may name any server.
        """
        return LogRef(ref.container_id, ref.node)

    def of_forgotten(self, app_id: str, owner: str) -> LogReader:
        """Reads what is kept of a user's application that the scheduler knows no more.

        Only what lies in that user's own place: nothing else says whose it was. Raises
        :class:`SchedulerError` where nothing is kept.
        """
        raise SchedulerError(f"the scheduler knows {app_id} no more, and keeps no logs of it")


class Cleaner:
    """Removes what ended applications leave. This one is for a scheduler that keeps nothing."""

    def remove_leftovers(self, status: AppStatus, job: Optional[Job] = None) -> bool:
        """Remove what the master of an ended application would have removed at its end.

        Returns whether the application is the caller's own; another user's is left as it is.
        """
        return False

    def collect_garbage(self, older_than_s: float, dry_run: bool = False) -> Iterator[str]:
        """Remove what ended applications left here; yields a line for each thing removed."""
        return iter(())

    def list_damaged(self) -> List[str]:
        """A line for each application that :meth:`Scheduler.list` cannot show as it is."""
        return []
