"""The scheduler port: what a cluster must do for a job, and nothing more.

The **client side** (:class:`Scheduler`) lives in the process that submits: it prints what it would
send, sends it, and answers for any application by its id, from any process. A scheduler that keeps
logs, or leaves files behind, adds a :class:`LogReader` and a :class:`Cleaner`. The **master side**
(:class:`ContainerPool`) lives in the job's master: it gets requests for containers, and commands to
run in them, and reports in one stream of events. The master cannot tell which scheduler it runs on.

* *Requests* are absolute: :meth:`ContainerPool.request` replaces that of the same role and session;
  a count of zero withdraws it. A pool may grant more; the master releases the surplus.
* *A gang* is granted whole or not at all where the scheduler can promise that; elsewhere
  containers arrive one by one, and the master keeps the allocation deadline.
* *Ends* come with a :class:`ExitCause`, mapped once from the scheduler's own codes. Unknown stays
  unknown.
* *Events* reach the ``sink`` given to :meth:`ContainerPool.start` from any thread; never before
  ``start`` has returned its :class:`PoolInfo`, and never after :meth:`ContainerPool.close`.
* Every call may be repeated: to stop what has ended, or to release what was never granted, does
  nothing.

The same contract suite (``tests/schedulers/contract.py``) runs on every implementation.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import (
    Any,
    Callable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from tony_core.exit_causes import ExitCause
from tony_core.files.artifact import Artifact
from tony_core.job.spec import Job, Resources

# --------------------------------------------------------------------------- client side


class AppState(str, Enum):
    """The state of an application; every scheduler's own states are mapped to these."""

    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"  # waiting for the master's own container
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    TIMED_OUT = "TIMED_OUT"

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


class Submission(NamedTuple):
    """Exactly what would be sent; printable, and what :meth:`Scheduler.submit` takes."""

    scheduler: str
    job: Job
    artifacts: Tuple[Artifact, ...]
    details: Mapping[str, Any] = {}  # the scheduler's own request


class LogRef(NamedTuple):
    """The log files of a container, as history and the page name them."""

    container_id: str
    node: str = ""
    url: str = ""


class Verdict(str, Enum):
    """The result of one examination."""

    OK = "ok"
    NOTE = "note"  # works, and is worth knowing
    WRONG = "wrong"
    SKIPPED = "skipped"  # not examined: something before it is wrong, or it was not requested


class Finding(NamedTuple):
    """The result of one check (``tony doctor``)."""

    what: str
    verdict: Verdict
    detail: str = ""
    advice: str = ""  # what to do, and who


class SchedulerError(Exception):
    """The scheduler could not be reached, or refused the request (exit code 3)."""


class LastingRefusal(SchedulerError):
    """A refusal by configuration, here or on the cluster: to try again cannot help."""


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

    @abstractmethod
    def status(self, app_id: str) -> AppStatus:
        """The state of one application; raises :class:`NoSuchApplication`."""

    @abstractmethod
    def list(self) -> List[AppStatus]:
        """Every application that is still known, the newest first."""

    @abstractmethod
    def kill(self, app_id: str, reason: str) -> None:
        """End it, with everything that belongs to it; does nothing when it has ended already."""

    def warnings(self, job: Job) -> List[str]:
        """What the job asks for that has no effect here; worth a line each, no more."""
        return []

    def history_root(self, job: Optional[Job] = None) -> Optional[str]:
        """The folder of ended jobs' history when the job names none."""
        try:
            return f"{self.staging_root(job)}/history"
        except SchedulerError:
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


# --------------------------------------------------------------------------- master side


class ContainerRequest(NamedTuple):
    """``count`` containers for one role of one session: an absolute number, zero withdraws.

    ``spare``: the job goes on without them; what other jobs need may be granted first.
    """

    role: str
    session: int
    count: int  # type: ignore[assignment]  # hides the tuple's method
    resources: Resources
    node_label: Optional[str] = None
    placement_spec: Optional[str] = None
    allocation_tags: Tuple[str, ...] = ()
    avoid_nodes: Tuple[str, ...] = ()
    spare: bool = False


class Container(NamedTuple):
    """A container that the scheduler granted."""

    id: str
    node: str  # host, or host:port where hosts share a name
    role: str  # of the request that it answers; empty if the scheduler cannot tell (takeover)
    resources: Resources
    gpu_ids: Tuple[str, ...] = ()
    log_url: str = ""


class Launch(NamedTuple):
    """What runs in a container."""

    argv: Tuple[str, ...]
    env: Mapping[str, str]
    artifacts: Tuple[Artifact, ...]
    secret: bytes = b""  # reaches the process as the file TONY_SECRET_FILE names, 0600
    task: str = ""  # its first task: finds its logs when no master recorded them


class Allocated(NamedTuple):
    """Containers were granted."""

    containers: Tuple[Container, ...]


class Started(NamedTuple):
    """A launched container's process runs."""

    container_id: str


class Completed(NamedTuple):
    """A container ended; reported exactly once for each."""

    container_id: str
    exit_code: int
    cause: ExitCause
    diagnostics: str = ""


class NodeLost(NamedTuple):
    """A node went away; ``Completed(LOST)`` follows for each of its containers."""

    node: str


class PreemptionRequested(NamedTuple):
    """The scheduler will take these back soon."""

    container_ids: Tuple[str, ...]


class ShutdownRequested(NamedTuple):
    """The scheduler (or a person, through it) ends this application."""

    reason: str
    by_user: bool = True


class PreviousContainers(NamedTuple):
    """Containers that a previous attempt left running; always the first event of a takeover."""

    containers: Tuple[Container, ...]


class AllocationPending(NamedTuple):
    """Why a request is not granted yet, in words for a person."""

    reason: str


class RequestRejected(NamedTuple):
    """A request that can never be granted."""

    role: str
    reason: str


#: What a pool reports. (Events of different types with equal fields compare equal: their
#: type tells them apart.)
PoolEvent = Union[
    Allocated,
    Started,
    Completed,
    NodeLost,
    PreemptionRequested,
    ShutdownRequested,
    PreviousContainers,
    AllocationPending,
    RequestRejected,
]


class PoolInfo(NamedTuple):
    """The scheduler's answer to the master's registration."""

    app_id: str
    attempt: int  # of the master, from 1
    user: str
    queue: str
    max_resources: Optional[Resources] = None
    master_lost_s: float = 1200.0  # how long executors wait for a next master by default
    settle_s: float = 3.0  # how long a session settles after its first failure
    can_restart_master: bool = True  # whether another attempt follows if this one dies
    ends_rest: bool = False  # whether it ends containers that are left when finish() is called


class ContainerPool(ABC):
    """The master's side of a scheduler."""

    @abstractmethod
    def start(self, sink: Callable[[PoolEvent], None], page_url: str) -> PoolInfo:
        """Register. Events go to ``sink`` from any thread once this has returned."""

    @abstractmethod
    def request(self, requests: Sequence[ContainerRequest], gang: bool) -> None:
        """Replace the requests; ``gang``: grant these whole or not at all, if possible."""

    @abstractmethod
    def release(self, container_id: str) -> None:
        """Give back a container that was never launched."""

    @abstractmethod
    def launch(self, container: Container, launch: Launch) -> None:
        """Start a process in it; ``Started`` or ``Completed(LAUNCH)`` follows."""

    @abstractmethod
    def stop(self, container_id: str) -> None:
        """End a launched container and all that runs in it; ``Completed`` follows."""

    def look_closely(self) -> None:
        """Programs have ended, so containers' ends are expected soon. A hint to poll faster."""

    @abstractmethod
    def report(self, progress: float, tracking_url: str) -> None:
        """Report the job's progress to the scheduler."""

    @abstractmethod
    def finish(self, state: AppState, diagnostics: str, tracking_url: str = "") -> None:
        """The job has ended; the scheduler will not start another master."""

    @abstractmethod
    def close(self) -> None:
        """Give back threads and connections; no event follows."""


class WebProxy(NamedTuple):
    """The cluster's web proxy, behind which a master serves its page.

    The page answers the proxy alone, and only some of the users that it names
    (:mod:`tony_core.master.web.proxy_gate`).
    """

    hosts: Tuple[str, ...]  # of the proxies, as this node resolves them
    public_url: str  # where people and clients find the page through the proxy
    #: The user in whose name the proxy asks when the cluster's web pages authenticate no user
    #: (``hadoop.http.staticuser.user``, ``dr.who``); empty where they do.
    static_user: str = ""
    #: Who besides the owner may look: ``user,user group,group`` as Hadoop writes it, or ``*``.
    view_acl: str = ""


class MasterContext(NamedTuple):
    """What the scheduler's launcher passes to the master process.

    ``state_dir``, ``history_dir`` and ``pointer`` may be URLs of the file-system port; ``job_dir``,
    ``work_dir``, ``localized_dir`` and ``store_root`` are folders of this machine.
    """

    app_id: str
    attempt: int
    job_dir: str  # the staged job folder (file-system port)
    work_dir: str  # a local folder of the master's own, with its logs
    state_dir: str  # where the journal and master.json are: survives the master
    history_dir: str
    secret: bytes = b""
    python: str = ""  # the interpreter for executors; empty: the job's own setting
    host: str = ""  # the name or address by which others reach this master; empty: loopback
    bind: str = ""  # the address to listen at; empty: that of ``host``
    proxy: Optional[WebProxy] = None
    submitted: Optional[float] = None  # seconds since the epoch
    clock_offset: Optional[float] = None  # from the monotonic clock to that, at least
    kill_file: str = ""  # where the reason for a kill is left; empty: kill.json in ``state_dir``
    pointer: str = ""  # a file that tells clients of ``state_dir``, removed with it
    store_root: str = ""  # the user's TonY home, where the store is local
    localized_dir: str = ""  # where the scheduler has put the artifacts; empty: fetch them

    def __repr__(self) -> str:  # a traceback or a log does not show the secret
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields if name != "secret")
        return f"MasterContext({', '.join(shown)})"
