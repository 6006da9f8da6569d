"""The master's side of the scheduler port: containers on request, and one stream of events.

A :class:`ContainerPool` lives in the job's master: it gets requests for containers and the commands
to run in them, and reports what happens to them. The master cannot tell which scheduler it runs on.

* *Requests* are absolute: :meth:`ContainerPool.request` replaces the request of the same (role,
  session); a count of zero withdraws it. A pool may grant more; the master releases the surplus.
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
from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from tony_core.exit_causes import ExitCause
from tony_core.files.artifact import Artifact
from tony_core.job.spec import Resources
from tony_core.schedulers.port import AppState, SchedulerError


class ContainerRequest(NamedTuple):
    """``count`` containers for one role of one session: an absolute number, zero withdraws.

    ``optional``: the job goes on without them; what other jobs need may be granted first.
    """

    role: str
    session: int
    count: int  # type: ignore[assignment]  # hides the tuple's method
    resources: Resources
    node_label: Optional[str] = None
    placement_spec: Optional[str] = None
    allocation_tags: Tuple[str, ...] = ()
    avoid_nodes: Tuple[str, ...] = ()
    optional: bool = False


class Container(NamedTuple):
    """A container that the scheduler granted."""

    id: str
    node: str  # host, or host:port where hosts share a name
    role: str  # of the request that it answers; empty if the scheduler cannot tell (takeover)
    resources: Resources
    gpu_ids: Tuple[str, ...] = ()
    log_url: str = ""


class Launch(NamedTuple):
    """The command of a container, with its environment and files."""

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
    """The scheduler will take these back, after so many seconds where it is known.

    Reported again for a container whose time begins anew.
    """

    container_ids: Tuple[str, ...]
    seconds: Optional[float] = None


class PreemptionWithdrawn(NamedTuple):
    """The scheduler does not take these back any more; not reported of those that have ended."""

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
    PreemptionWithdrawn,
]


class TokenDates(NamedTuple):
    """When a job's tokens were issued, and when the first of them ends: seconds of one clock."""

    issued: float
    ends: float

    @property
    def fetch_at(self) -> float:
        """When fresh ones are due: a quarter of the lifetime is left for what goes wrong."""
        return self.issued + 0.75 * (self.ends - self.issued)

    @property
    def end_at(self) -> float:
        """When a job without fresh ones is ended: its history is still to be written."""
        return self.ends - min(60.0, (self.ends - self.issued) / 20)


class FreshTokens(NamedTuple):
    """The answer to a fetch of fresh tokens."""

    content: bytes  # a file of Hadoop credentials
    ends: float  # when the first of them expires, in seconds since the epoch
    renewed: bool = False  # they are those of the fetch before, which expire later now

    def __repr__(self) -> str:  # without the tokens
        return f"FreshTokens(ends={self.ends!r})"


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
    ends_containers_at_finish: bool = False  # those that are left when finish() is called
    tokens: Optional[TokenDates] = None  # of the tokens that this master has; None without any
    fetches_tokens: bool = False  # whether fetch_tokens() can give fresh ones
    fetched: Optional[FreshTokens] = None  # before the registration: for executors, too
    token_warnings: Tuple[str, ...] = ()  # for the job's story
    scheduler: str = "the scheduler"  # its name for people, as the subject of a sentence


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

    def expect_ends(self) -> None:
        """Programs have ended, so containers' ends are expected soon. A hint to poll faster."""

    def renew_tokens(self, content: bytes) -> bytes:
        """Use fresh tokens of the user from now on, here and in containers that are launched later.

        ``content`` is a file of Hadoop credentials; tokens that it lacks stay as they are. Returns
        the content of a program's token file. Only a scheduler that gave tokens takes others.
        """
        raise SchedulerError("this scheduler gives its containers no tokens")

    def check_fetch(self) -> Optional[SchedulerError]:
        """Why fetch_tokens() cannot work here, where the job shipped a keytab; else None.

        A :class:`LastingRefusal` says why the job has to end, another :class:`SchedulerError` why
        the answer is not known now. Called once, before :meth:`start`; it may take a minute.
        """
        return None

    def fetch_tokens(self) -> FreshTokens:
        """Fetch fresh tokens of the user, by the keytab that the job shipped.

        It takes up to two minutes: call it on a thread of its own. Nothing uses them before
        :meth:`renew_tokens`. A :class:`SchedulerError` says in one sentence why there are none.
        """
        raise SchedulerError("the job shipped no keytab")

    @abstractmethod
    def report(self, progress: float, tracking_url: str, trouble: str = "") -> None:
        """Report the job's progress to the scheduler, and what is wrong, if that can be kept."""

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
    #: On a cluster with Kerberos, the names that the web servers give to users whom they do not
    #: authenticate; ``*`` where they believe any name. These users, and those without a name, may
    #: not look, whatever the list says. Empty on an open cluster.
    unauthenticated: Tuple[str, ...] = ()


class MasterContext(NamedTuple):
    """The parameters that the scheduler's launcher passes to the master process.

    ``state_dir``, ``history_dir`` and ``state_pointer`` may be URLs of the file-system port;
    ``job_dir``, ``work_dir``, ``localized_dir`` and ``store_root`` are folders of this machine.
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
    state_pointer: str = ""  # a file that tells clients of ``state_dir``, removed with it
    store_root: str = ""  # the user's TonY home, where the store is local
    localized_dir: str = ""  # where the scheduler has put the artifacts; empty: fetch them

    def __repr__(self) -> str:  # a traceback or a log does not show the secret
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields if name != "secret")
        return f"MasterContext({', '.join(shown)})"
