"""The records of the session machine, of tasks, containers and rules, and the tables of moves.

A task's way::

    pending -> requested -> allocated -> launched -> registered -> ready -> running
                                                             \\-> succeeded | failed | killed | lost

*pending*: its wave has not begun. *requested*: the scheduler was asked for a container.
*allocated*: there is one. *launched*: our executor was started in it. *registered*: the
executor has. *ready*: the working folder stands, the ports are held; it waits for the
barrier. *running*: the program runs. The four ends are final within a session; a new
session takes every task that must run again back to pending, and so does a restart of one
task (:mod:`tony_core.master.session.task_restart`).
"""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from typing import (
    Any,
    Deque,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Role, Tracking
from tony_core.master.session.budgets import FailureSignature
from tony_core.protocol.messages import StacksDumped, Stalled, StallKind
from tony_core.schedulers.container_pool import Container, ContainerRequest


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


class ContainerRecord:
    """What the machine knows of one container."""

    __slots__ = ("container", "inherited", "register_by", "state", "task")

    def __init__(
        self, container: Container, task: Optional[str] = None, inherited: bool = False
    ) -> None:
        self.container = container
        self.state = ContainerState.LAUNCHED
        self.task = task  # whose it is, over warm sessions too
        self.inherited = inherited  # from the previous attempt
        #: When its executor must have registered, whatever its task.
        self.register_by: Optional[float] = None

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


class ContainerRun(NamedTuple):
    """One container that ran a task in one session: where its logs are, how it ended."""

    session: int
    container: str
    node: str
    log_url: str
    state: str = ""  # empty until it has ended
    exit_code: Optional[int] = None
    #: log -> the byte at which its output begins: a warm session appends to the same files
    offsets: Mapping[str, int] = {}


LONG_MESSAGE = 80


class TaskRecord:
    """What the machine knows of one task."""

    __slots__ = (
        "cause", "container", "container_cause", "ended", "exit_code", "gpus", "host", "index",
        "last_signature", "long_message", "message", "name", "new_ports", "pid", "ports",
        "progress", "ready", "reported", "restarts", "role", "runs", "saved", "session", "signal",
        "started", "state", "stderr_tail", "step", "story", "usage",
    )  # fmt: skip

    def __init__(self, role: Role, index: int) -> None:
        self.role = role
        self.index = index
        self.name = f"{role.name}:{index}"
        self.state = TaskState.PENDING
        self.session = 0
        self.restarts = 0  # how often it was started again; with the session, its attempt
        self.container: Optional[str] = None
        self.forget_address()
        self.forget_end()
        self.progress: Optional[float] = None
        self.step: Optional[int] = None
        self.saved: Optional[int] = None  # the furthest checkpoint that it saved in this job
        self.reported: Dict[str, float] = {}
        self.new_ports = False  # its next attempt must not have those of the last
        self.last_signature: Optional[FailureSignature] = None  # of a failure soon after its start
        self.runs: List[ContainerRun] = []
        self.story: List[str] = []
        self.long_message = ""  # the last one that the job's story holds

    def forget_address(self) -> None:
        """Drop host and ports: its next program runs elsewhere."""
        self.host = ""
        self.ports: Dict[str, int] = {}

    def forget_end(self) -> None:
        """Reset what its last program left, for a new session or attempt; its address may stay."""
        self.pid = 0
        self.gpus: Tuple[str, ...] = ()  # those its program may use, as CUDA names them
        self.ready: Optional[float] = None  # since when; the story has it for the time line
        self.started: Optional[float] = None
        self.ended: Optional[float] = None
        self.exit_code: Optional[int] = None
        self.signal = 0
        self.cause = ""
        self.container_cause: Optional[ExitCause] = None  # when its container's end decided
        self.message = ""
        self.stderr_tail: Tuple[str, ...] = ()
        self.usage: Mapping[str, float] = {}

    def shorten(self, text: str) -> str:
        """A line about its end; a long message that the story holds already is left out."""
        message = f": {self.message}"
        if len(message) <= LONG_MESSAGE or message not in text:
            return text
        if self.long_message == self.message:
            return text.replace(message, " (the message stands above)")
        self.long_message = self.message
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
                self.runs[at] = run._replace(**changes)
                return

    @property
    def attempt(self) -> Tuple[int, int]:
        """Its session and restarts: a report that names others is of another attempt, and late."""
        return (self.session, self.restarts)


class Failure(NamedTuple):
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


# ------------------------------------------------------------------ parts of the state


class ElasticRounds:
    """Which tasks take part in the round, and when it grows (see :mod:`.elastic`)."""

    def __init__(self) -> None:
        self.outside_round: Set[str] = set()  # tasks that are not in this round
        self.regrouping = False  # programs are ended for a round, not for a failure
        self.losses: Dict[str, int] = {}  # role -> how many of its containers went away lately
        self.lost_at: Dict[str, float] = {}
        self.barrier_since: Dict[int, float] = {}  # wave -> since when it waits for more
        self.last_barrier_at = 0.0  # when the session's last barrier was passed
        self.growing_since = 0.0  # since when executors outside wait for others
        self.growth_stopped = False  # the job comes to its end: it does not grow any more


class TaskRestarts:
    """The restarts of single tasks (see :mod:`.task_restart`)."""

    def __init__(self) -> None:
        self.pending: Set[str] = set()  # pending tasks whose next attempt is to follow
        self.begun = 0  # see State.begin_restart()
        self.running = 0  # how many of their programs have started: see State.move()
        self.cancelled = False  # tasks that were to restart are to be ended


class DeferredEnds:
    """Ends that a new master judges once it has taken the session over."""

    def __init__(self, ended: Deque[TaskRecord], lost: List[Tuple[TaskRecord, Failure]]) -> None:
        self.ended = ended  # while executors were registering
        self.lost: Optional[List[Tuple[TaskRecord, Failure]]] = lost  # None once judged


class Takeover:
    """How far a new master is with what the previous attempt left (see :mod:`.takeover`)."""

    def __init__(self) -> None:
        self.discards_inherited = False  # nothing is taken over: all that was left ends first
        self.registered: Set[str] = set()  # inherited containers whose executors have
        self.unregistered_stopped = False  # executors that did not register are being ended
        #: Containers whose end must come first: they may run programs that are to begin again.
        self.awaited_containers: Set[str] = set()
        self.deferred: Optional[DeferredEnds] = None  # ends to judge once the session goes on


class StalledProgram(NamedTuple):
    """A running program that stands still, as its executor reports."""

    report: Stalled
    since: float
    seen: float  # when the first report of it came


class Episode(NamedTuple):
    """A stall that has begun, and not ended yet."""

    since: Optional[float]  # None: it began before a takeover
    text: str = ""
    facts: str = ""  # the text without its times
    reviewed: float = 0.0  # when the text was made
    named: str = ""  # who lags, as the story's last line about it says
    lines: int = 0  # how many the story has about it, without its end


class Stalls:
    """Programs that stand still (see :mod:`.stalls`); what is counted here is cheap to ask."""

    def __init__(self, by_task: bool = False) -> None:
        self.by_task = by_task  # each task's stall is its own, not the gang's
        self.still: Dict[str, StalledProgram] = {}  # by task
        self.kinds: Counter[str] = Counter()  # of those
        self.unlooked: Set[str] = set()  # of those: their stacks are still to be looked at
        self.episodes: Dict[str, Episode] = {}  # by task, or the gang's under an empty name
        self.begun: Counter[str] = Counter()  # how many episodes each has had
        #: Of those: to be acted upon, since they last, or are from the previous attempt.
        self.unhandled: Set[str] = set()
        #: What the stacks of programs show that report no step and move.
        self.stacks: Dict[str, StacksDumped] = {}
        self.unanswered: Set[str] = set()  # tasks whose executors were asked for that
        self.asked: Counter[str] = Counter()  # how often each was, while its program runs
        self.asked_at: Optional[float] = None  # a gang's silent ones, together
        self.why_ended: Dict[str, str] = {}  # task -> why its program is to be ended
        self.changes = 0  # how many lines the story has of episodes
        self.stale: Set[str] = set()  # whose programs have changed since that was judged
        self.due: Set[str] = set()  # by task: to be judged, together

    def add(self, task: str, program: StalledProgram) -> None:
        """Note that a program stands still, or what is new of it."""
        self._discard(task)
        self.still[task] = program
        self.kinds[program.report.kind] += 1
        if not program.report.looked and program.report.kind != StallKind.SUSPENDED:
            self.unlooked.add(task)
        self.stacks.pop(task, None)
        self.unanswered.discard(task)
        self.stale.add(self.group_of(task))

    def remove(self, task: str) -> Optional[StalledProgram]:
        """Note that a program moves again, or has ended; returns what was known of it."""
        before = self._discard(task)
        if before is not None:
            self.stale.add(self.group_of(task))
        return before

    def _discard(self, task: str) -> Optional[StalledProgram]:
        before = self.still.pop(task, None)
        if before is not None:
            self.kinds[before.report.kind] -= 1
            self.unlooked.discard(task)
        return before

    def group_of(self, task: str) -> str:
        """Whose stall it is when this task stands still."""
        return task if self.by_task else ""

    def forget(self, task: str) -> None:
        """Drop a task whose program does not run any more."""
        self.remove(task)
        self.stacks.pop(task, None)
        self.unanswered.discard(task)
        self.asked.pop(task, None)
        self.why_ended.pop(task, None)
        if self.still or self.episodes:  # fewer are waited for
            self.stale.add(self.group_of(task))

    def to_json(self) -> Mapping[str, Tuple[str, int]]:
        """What the story has of the episodes that last."""
        found = self.episodes.items()
        return {group: (each.named, each.lines) for group, each in found if each.lines}

    def forget_stacks(self) -> None:
        """Drop what silent programs' stacks showed: it is not true any more."""
        self.stacks.clear()
        self.unanswered.clear()


class Unhandled:
    """What has happened, and no rule of :mod:`.machine` has handled yet."""

    def __init__(self) -> None:
        self.granted: Deque[Container] = deque()
        self.registered: Deque[ContainerRecord] = deque()  # their executors
        self.ready: Deque[TaskRecord] = deque()
        self.ended_tasks: Deque[TaskRecord] = deque()
        self.ended_containers: Deque[ContainerRecord] = deque()
        self.service_failures: Deque[Failure] = deque()
        self.completion_changed = False  # a task has ended, or the job no longer waits for it


class SentWarning(NamedTuple):
    """What a program was sent of containers that are taken back."""

    attempt: Tuple[int, int]
    until: Optional[float]  # None: not known
    is_own: bool


class Preemptions:
    """The containers that the scheduler asks for, and who was warned (see :mod:`.preemption`)."""

    def __init__(self) -> None:
        self.asked: Dict[str, Optional[float]] = {}  # container -> until when it lasts, if known
        self.sent: Dict[str, SentWarning] = {}  # by task
        self.is_stale = False  # programs may not know what is so now

    def forget(self, container_id: str) -> bool:
        """Note that a container is not asked for, or ends; return whether it was asked for."""
        if container_id not in self.asked:
            return False
        del self.asked[container_id]
        self.is_stale = True
        return True

    def repeat(self, task: str) -> None:
        """Send a task's program what it should know once more: it may be lost."""
        if self.sent.pop(task, None) is not None:
            self.is_stale = True


class Reconciled:
    """What the scheduler and the journal were last given (see :mod:`.reconcile`)."""

    def __init__(self) -> None:
        self.requests: Dict[str, ContainerRequest] = {}  # by role, less what was granted
        self.is_stale = False  # the requests may differ from what is needed now
        self.journal_key: Optional[Tuple[Any, ...]] = None
