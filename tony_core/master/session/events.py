"""What can happen to a job: the events its session machine is fed, in one vocabulary.

Every event carries ``at``, seconds on the master's own clock (monotonic within an
attempt). The machine has no clock of its own: :class:`Tick` says that time has passed.

Tasks are named ``role:index``. A container is named by the scheduler's id.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

from tony_core.dataclass import dataclass, field
from tony_core.schedulers.port import Cause, Container


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    at: float


# ------------------------------------------------------------------ time and people


@dataclass(frozen=True)
class Begin(Event):
    """The master stands and the scheduler knows it: the job may start."""


@dataclass(frozen=True)
class Tick(Event):
    """Time has passed; some deadline may have."""


@dataclass(frozen=True)
class KillAsked(Event):
    """Somebody wants the job to end: a person, the scheduler, a lost client."""

    reason: str
    by_user: bool = True


@dataclass(frozen=True)
class PreprocessEnded(Event):
    """``tony.am.command`` ended; ``parameters`` is what it wrote for every task."""

    exit_code: int
    parameters: Optional[str] = None
    stderr_tail: Tuple[str, ...] = ()


# ------------------------------------------------------------------ from the scheduler


@dataclass(frozen=True)
class ContainersAllocated(Event):
    """Containers were granted."""

    containers: Tuple[Container, ...]


@dataclass(frozen=True)
class ContainersInherited(Event):
    """An earlier master's containers are still there (a takeover)."""

    containers: Tuple[Container, ...]
    journal: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ContainerStarted(Event):
    """The executor's process runs."""

    container_id: str


@dataclass(frozen=True)
class ContainerCompleted(Event):
    """A container ended, for this cause."""

    container_id: str
    exit_code: int
    cause: Cause
    diagnostics: str = ""


@dataclass(frozen=True)
class NodeWentAway(Event):
    """A node was lost; its containers' ends follow."""

    node: str


@dataclass(frozen=True)
class PreemptionWarned(Event):
    """The scheduler will take these containers back."""

    container_ids: Tuple[str, ...]


@dataclass(frozen=True)
class AllocationWaits(Event):
    """Why what was asked for is not granted yet."""

    reason: str


@dataclass(frozen=True)
class AllocationRefused(Event):
    """What was asked for can never be granted."""

    role: str
    reason: str


# ------------------------------------------------------------------ from the executors


@dataclass(frozen=True)
class ExecutorRegistered(Event):
    """An executor said who it is, for the first time or again after a lost connection."""

    container_id: str
    address: str  # host:port where a next master may call it
    task: str = ""  # what it already is, if a master told it before
    session: int = -1
    phase: str = "idle"  # idle, ready, running, ended
    host: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)  # see TaskRunning
    ran_s: float = 0.0  # how long its program has run
    restart: int = 0  # as in TaskReady
    gpus: Tuple[str, ...] = ()  # see TaskRunning


@dataclass(frozen=True)
class ExecutorLost(Event):
    """Its connection is gone, or silent, for longer than the heartbeats allow."""

    container_id: str
    reason: str


@dataclass(frozen=True)
class TaskReady(Event):
    """The task's folder stands and its ports are held.

    ``restart``, here and below: how often it was started again alone in this session.
    """

    container_id: str
    session: int
    host: str
    ports: Mapping[str, int]
    restart: int = 0


@dataclass(frozen=True)
class TaskRunning(Event):
    """The program was started."""

    container_id: str
    session: int
    pid: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)  # log -> where its output begins
    restart: int = 0
    gpus: Tuple[str, ...] = ()  # those it may use, as CUDA names them


@dataclass(frozen=True)
class TaskEnded(Event):
    """The program ended, in the executor's word."""

    container_id: str
    session: int
    exit_code: int
    signal: int = 0
    cause: str = "exited"  # see protocol.messages.Ended
    message: str = ""
    stderr_tail: Tuple[str, ...] = ()
    duration_s: float = 0.0
    usage: Mapping[str, float] = field(default_factory=dict)
    restart: int = 0


@dataclass(frozen=True)
class TaskStopped(Event):
    """Nothing of that session's program is left in the container (clean), or something is."""

    container_id: str
    session: int
    clean: bool


@dataclass(frozen=True)
class TaskReported(Event):
    """The program reported progress, metrics, a saved checkpoint, or its result (JSON text)."""

    container_id: str
    session: int
    progress: Optional[float] = None
    step: Optional[int] = None
    metrics: Dict[str, float] = field(default_factory=dict)
    result: str = ""
    saved: Optional[int] = None


@dataclass(frozen=True)
class ServiceFailed(Event):
    """A service of the framework in the master (a rendezvous) ended the session.

    ``task`` is the task that asked for it (an MPI abort), if one did.
    """

    session: int
    reason: str
    task: str = ""
    exit_code: int = 1
