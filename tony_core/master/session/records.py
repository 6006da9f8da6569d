"""The records the session machine keeps of tasks and containers, and the tables of their moves.

A task's way::

    pending -> requested -> allocated -> launched -> registered -> ready -> running
                                                             \\-> succeeded | failed | killed | lost

*pending*: its wave is not released. *requested*: the scheduler was asked for a container.
*allocated*: there is one. *launched*: our executor was started in it. *registered*: the
executor has. *ready*: the working folder stands, the ports are held; it waits for the
barrier. *running*: the program runs. The four ends are final within a session; a new
session takes every task that must run again back to pending, and so does a restart of one
task (:mod:`tony_core.master.session.task_restart`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Role, Tracking
from tony_core.master.session.budgets import FailureSignature
from tony_core.schedulers.port import Container


class InvalidTransition(Exception):
    """A bug in the machine: a move that is in no table. Carries the story of what moved."""

    def __init__(self, what: str, old: Enum, new: Enum, story: Sequence[str]) -> None:
        lines = "\n  ".join(story)
        super().__init__(f"{what}: {old.value} -> {new.value}\n  {lines}")


# ------------------------------------------------------------------ the job


class Phase(str, Enum):
    """Where the job stands.

    *new* -> *preprocessing* -> *active* (a session starts up and runs) -> *settling* (after
    its first failure) -> *clearing* (its programs are ended) -> *backoff* -> *active* again;
    or *ending* (everything is ended) -> *ended*. *adopting* is a new master's *new* in a takeover.
    """

    NEW = "new"
    PREPROCESSING = "preprocessing"
    ADOPTING = "adopting"
    ACTIVE = "active"
    SETTLING = "settling"
    CLEANUP = "clearing"
    BACKOFF = "backoff"
    ENDING = "ending"
    ENDED = "ended"


P = Phase
PHASE_MOVES: Mapping[Phase, FrozenSet[Phase]] = {
    P.NEW: frozenset({P.PREPROCESSING, P.ADOPTING, P.ACTIVE, P.ENDING}),
    P.PREPROCESSING: frozenset({P.ACTIVE, P.ENDING}),
    P.ADOPTING: frozenset({P.PREPROCESSING, P.ACTIVE, P.ENDING}),
    P.ACTIVE: frozenset({P.SETTLING, P.CLEANUP, P.ENDING}),
    P.SETTLING: frozenset({P.CLEANUP, P.ENDING}),
    P.CLEANUP: frozenset({P.BACKOFF, P.ACTIVE, P.ENDING}),
    P.BACKOFF: frozenset({P.ACTIVE, P.ENDING}),
    P.ENDING: frozenset({P.ENDED}),
    P.ENDED: frozenset(),
}


# ------------------------------------------------------------------ containers


class ContainerState(str, Enum):
    """Where one of our containers stands."""

    LAUNCHED = "launched"  # our executor was started in it
    LIVE = "live"  # the executor has registered
    CLEANUP = "clearing"  # the executor ends a session's program; the container stays
    STOPPING = "stopping"  # being ended
    ENDED = "ended"


C = ContainerState
CONTAINER_MOVES: Mapping[ContainerState, FrozenSet[ContainerState]] = {
    C.LAUNCHED: frozenset({C.LIVE, C.STOPPING, C.ENDED}),
    C.LIVE: frozenset({C.CLEANUP, C.STOPPING, C.ENDED}),
    C.CLEANUP: frozenset({C.LIVE, C.STOPPING, C.ENDED}),
    C.STOPPING: frozenset({C.ENDED}),
    C.ENDED: frozenset(),
}


@dataclass
class ContainerRecord:
    """What the machine knows of one container."""

    container: Container
    state: ContainerState = ContainerState.LAUNCHED
    task: Optional[str] = None  # whose it is, over warm sessions too
    inherited: bool = False
    register_by: Optional[float] = None  # when its executor must have registered, whatever its task

    @property
    def id(self) -> str:
        """The scheduler's id."""
        return self.container.id


# ------------------------------------------------------------------ tasks


class TaskState(str, Enum):
    """Where a task stands; see the module's docstring for the way through."""

    PENDING = "pending"
    REQUESTED = "requested"
    ALLOCATED = "allocated"
    LAUNCHED = "launched"
    REGISTERED = "registered"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"


S = TaskState
TERMINAL: FrozenSet[TaskState] = frozenset({S.SUCCEEDED, S.FAILED, S.KILLED, S.LOST})
HOLDS_CONTAINER: FrozenSet[TaskState] = frozenset(
    {S.ALLOCATED, S.LAUNCHED, S.REGISTERED, S.READY, S.RUNNING}
)
#: What the job still waits for.
OPEN: Tuple[TaskState, ...] = (S.PENDING, S.REQUESTED, *sorted(HOLDS_CONTAINER))

_AGAIN = frozenset({S.PENDING})  # a new session, or a task's next attempt
_OUT = TERMINAL | _AGAIN
TASK_MOVES: Mapping[TaskState, FrozenSet[TaskState]] = {
    # ready and running: a takeover finds a task so
    S.PENDING: _OUT | {S.REQUESTED, S.LAUNCHED, S.REGISTERED, S.READY, S.RUNNING},
    S.REQUESTED: _OUT | {S.ALLOCATED},
    S.ALLOCATED: _OUT | {S.LAUNCHED},
    S.LAUNCHED: _OUT | {S.REGISTERED},
    S.REGISTERED: _OUT | {S.READY},
    S.READY: _OUT | {S.RUNNING},
    S.RUNNING: _OUT,
    S.SUCCEEDED: _AGAIN,
    S.FAILED: _AGAIN,
    S.KILLED: _AGAIN,
    S.LOST: _AGAIN,
}


@dataclass(frozen=True)
class ContainerRun:
    """One container that ran a task in one session: where its logs are, how it ended."""

    session: int
    container: str
    node: str
    log_url: str
    state: str = field(default="", compare=False)  # empty until it has ended
    exit_code: Optional[int] = field(default=None, compare=False)
    #: log -> the byte at which its output begins: a warm session appends to the same files
    offsets: Mapping[str, int] = field(default_factory=dict, compare=False)


LONG_MESSAGE = 80


@dataclass
class TaskRecord:
    """What the machine knows of one task."""

    role: Role
    index: int
    state: TaskState = TaskState.PENDING
    session: int = 0
    container: Optional[str] = None
    host: str = ""
    ports: Dict[str, int] = field(default_factory=dict)
    pid: int = 0
    gpus: Tuple[str, ...] = ()  # those its program may use, as CUDA names them
    started: Optional[float] = None
    ended: Optional[float] = None
    exit_code: Optional[int] = None
    signal: int = 0
    cause: str = ""
    container_cause: Optional[ExitCause] = None  # when its container's end decided
    message: str = ""
    stderr_tail: Tuple[str, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    progress: Optional[float] = None
    step: Optional[int] = None
    saved: Optional[int] = None  # the furthest checkpoint that it saved in this job
    reported: Dict[str, float] = field(default_factory=dict)
    restarts: int = 0  # how often it was started again; with the session, its attempt
    new_ports: bool = False  # its next attempt must not have those of the last
    last_signature: Optional[FailureSignature] = None  # its last failure, if that came soon
    runs: List[ContainerRun] = field(default_factory=list)
    story: List[str] = field(default_factory=list)
    shown: str = ""  # the last long message of it that the job's story holds

    @property
    def name(self) -> str:
        """``worker:0``."""
        return f"{self.role.name}:{self.index}"

    def shorten(self, text: str) -> str:
        """A line about its end; a long message that the story holds already is left out."""
        message = f": {self.message}"
        if len(message) <= LONG_MESSAGE or message not in text:
            return text
        if self.shown == self.message:
            return text.replace(message, " (the message stands above)")
        self.shown = self.message
        return text

    @property
    def is_sidecar(self) -> bool:
        """Whether its failure is ignored."""
        return self.role.tracking is Tracking.SIDECAR

    @property
    def is_tracked(self) -> bool:
        """Whether the job waits for it."""
        return self.role.tracking is Tracking.TRACKED

    def update_run(self, **changes: Any) -> None:
        """Change the record of the run in its container and session, if there is one."""
        for at in range(len(self.runs) - 1, -1, -1):
            run = self.runs[at]
            if (run.session, run.container) == (self.session, self.container):
                self.runs[at] = replace(run, **changes)
                return

    @property
    def attempt(self) -> Tuple[int, int]:
        """Its session and restarts: a report that names others is of another attempt, and late."""
        return (self.session, self.restarts)

    def forget_address(self) -> None:
        """Drop host and ports: its next program runs elsewhere."""
        self.host = ""
        self.ports = {}

    def forget_end(self) -> None:
        """Reset what its last program left, for a new session or attempt; its address may stay."""
        self.pid = 0
        self.gpus = ()
        self.started = self.ended = None
        self.exit_code = None
        self.signal = 0
        self.cause = self.message = ""
        self.container_cause = None
        self.stderr_tail = ()
        self.usage = {}


@dataclass(frozen=True)
class Failure:
    """One observed failure, as data for the verdict."""

    task: str
    role: str
    node: str
    at: float
    exit_code: int
    signal: int
    cause: str  # protocol.messages.Ended.cause, or the container's ExitCause value, or ours
    container_cause: Optional[ExitCause] = None
    message: str = ""
    stderr_tail: Tuple[str, ...] = ()
    ran_s: Optional[float] = None  # how long the program had run
