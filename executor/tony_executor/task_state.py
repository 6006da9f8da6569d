"""The executor's task: its phases, the transitions between them, and its Register message."""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Set

from tony_core.exit_causes import ExitCause
from tony_core.protocol.messages import Ended, Preemption, Prepare, Register, Stalled
from tony_executor.events import ProgramEnded
from tony_executor.monitoring.diagnosis import diagnose_end


class TaskPhase(Enum):
    """Where the task of this session stands.

    IDLE until the first Prepare; PREPARING while its folder is made and its ports are taken; READY
    until the master's Start; STARTING until the program is exec'd; RUNNING until it ends; ENDED
    until the next Prepare.
    """

    IDLE = "idle"
    PREPARING = "preparing"
    READY = "ready"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


TRANSITIONS: Dict[TaskPhase, Set[TaskPhase]] = {
    TaskPhase.IDLE: {TaskPhase.PREPARING},
    TaskPhase.PREPARING: {TaskPhase.READY, TaskPhase.ENDED},
    TaskPhase.READY: {TaskPhase.STARTING, TaskPhase.ENDED},
    TaskPhase.STARTING: {TaskPhase.RUNNING, TaskPhase.ENDED},
    TaskPhase.RUNNING: {TaskPhase.ENDED},
    TaskPhase.ENDED: {TaskPhase.PREPARING},
}
SAME_TIME_S = 1.0  # two warnings of ends that are so near to each other are one
HAS_PROGRAM = (TaskPhase.STARTING, TaskPhase.RUNNING)

#: As messages.Register.phase names them.
ON_THE_WIRE = {
    TaskPhase.IDLE: "idle",
    TaskPhase.PREPARING: "idle",
    TaskPhase.READY: "ready",
    TaskPhase.STARTING: "running",
    TaskPhase.RUNNING: "running",
    TaskPhase.ENDED: "ended",
}


class InvalidTransition(Exception):
    """A fault of ours; carries what happened before."""


class ContainerIdentity(NamedTuple):
    """The fields of Register that never change."""

    container_id: str
    host: str
    listen_port: int
    pid: int
    runtime: str
    listen_host: str = ""


class Ending(NamedTuple):
    """Why we end the program ourselves."""

    cause: ExitCause
    message: str


class PendingLoss(NamedTuple):
    """Containers that the program needs are taken back."""

    own: bool
    until: Optional[float]  # None: not known


def _is_same(one: Optional[PendingLoss], other: Optional[PendingLoss]) -> bool:
    if one is None or other is None or one.own != other.own:
        return one is other
    if one.until is None or other.until is None:
        return one.until is other.until
    return abs(one.until - other.until) < SAME_TIME_S


class ExecutorTask:
    """The task of the newest session."""

    def __init__(self, host: str) -> None:
        self.name = ""
        self.session = -1
        self.restart = 0  # how often this task was restarted within the session
        self.phase = TaskPhase.IDLE
        self.host = host
        self.ports: Dict[str, int] = {}
        self.gpus: List[str] = []  # as in messages.Running
        self.offsets: Dict[str, int] = {}  # where this session's output begins in the logs
        self.started_at: Optional[float] = None
        self.last: Optional[Ended] = None  # this session's end, for the next master
        self.warning: Optional[PendingLoss] = None  # of the running program
        self.stalled: Optional[Stalled] = None  # while its program stands still
        self._history: List[str] = []

    def begin(self, message: Prepare, at: float) -> None:
        """Be this task of this session."""
        self.last = None
        if message.session != self.session:
            self.offsets = {}  # a restart in the same session goes on where the first began
        self.name = message.task
        self.session = message.session
        self.restart = message.restart
        self.move(TaskPhase.PREPARING, at)

    def move(self, phase: TaskPhase, at: float) -> None:
        """Go to that phase; raises :class:`InvalidTransition` where no transition leads there."""
        step = f"{at:.3f} {self.phase.value} -> {phase.value} (session {self.session})"
        self._history = [*self._history[-30:], step]
        if phase not in TRANSITIONS[self.phase]:
            raise InvalidTransition(self.story())
        self.phase = phase
        if phase not in HAS_PROGRAM:
            self.warning = None
        if phase is not TaskPhase.RUNNING:
            self.stalled = None

    def is_running(self, session: int, restart: int) -> bool:
        """Whether it is this program that runs."""
        is_ours = (session, restart) == (self.session, self.restart)
        return is_ours and self.phase is TaskPhase.RUNNING

    def note_stalled(self, message: Stalled) -> bool:
        """Keep that the program stands still, or moves again; returns whether it is this one."""
        if not self.is_running(message.session, message.restart):
            return False
        self.stalled = message if message.kind else None
        return True

    def stall_changes(self, registered: Register) -> List[Stalled]:
        """What has changed of its stall since it was registered so."""
        now = self.stalled
        if (dict(now._asdict()) if now is not None else None) == registered.stalled:
            return []
        return [now or Stalled(self.session, self.restart)]

    def story(self) -> str:
        """The phase and the transitions that led to it, in one line."""
        return "; ".join([f"{self.phase.value}, session {self.session}", *self._history])

    def ran_s(self, now: float) -> float:
        """How long the program has run."""
        return now - self.started_at if self.started_at is not None else 0.0

    def diagnose(self, event: ProgramEnded, now: float) -> Ending:
        """Why the program ended, when we did not end it."""
        cause, message = diagnose_end(
            event.exit_code,
            event.signal,
            event.stderr_tail,
            self.ran_s(now),
            list(self.ports.values()),
            event.ports_taken,
            event.disk_free_mb,
            event.stderr_before,
        )
        return Ending(cause, message)

    def take_warning(self, message: Preemption, now: float) -> bool:
        """Keep whether the running program is warned; return whether it is to be given notice.

        Not of what it knows: a master repeats a warning when a connection was lost.
        """
        if not self.is_running(message.session, message.restart):
            return False
        before = self.warning
        until = None if message.seconds is None else now + message.seconds
        self.warning = None if message.withdrawn else PendingLoss(message.own, until)
        return not _is_same(before, self.warning)

    def describe_end(
        self,
        exit_code: int,
        signal: int,
        ending: Ending,
        event: Optional[ProgramEnded],
        now: float,
    ) -> Ended:
        """The end of this session's program, or of the task before it had one."""
        by_itself = ending.cause is ExitCause.EXITED
        return Ended(
            session=self.session,
            exit_code=exit_code,
            signal=signal,
            cause=ending.cause.value,
            message=ending.message,
            stderr_tail=list(event.stderr_tail) if event is not None else [],
            duration_s=round(self.ran_s(now), 3),
            usage=dict(event.usage) if event is not None else {},
            restart=self.restart,
            preempted=by_itself
            and self.warning is not None
            and event is not None
            and event.noticed,
        )

    def register(self, who: ContainerIdentity, now: float) -> Register:
        """The first message to a master."""
        return Register(
            container_id=who.container_id,
            host=who.host,
            listen_port=who.listen_port,
            pid=who.pid,
            runtime=who.runtime,
            task=self.name,
            session=self.session,
            phase=ON_THE_WIRE[self.phase],
            ports=dict(self.ports),
            ended=dict(self.last._asdict()) if self.last is not None else None,
            gpus=list(self.gpus),
            offsets=dict(self.offsets),
            ran_s=self.last.duration_s if self.last is not None else round(self.ran_s(now), 3),
            restart=self.restart,
            listen_host=who.listen_host,
            stalled=dict(self.stalled._asdict()) if self.stalled is not None else None,
        )
