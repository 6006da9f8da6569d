"""What the session machine wants done. The shell does each, and reports back by events."""

from __future__ import annotations

from enum import Enum
from typing import Any, Mapping, Optional, Tuple

from tony_core.dataclass import dataclass, field
from tony_core.schedulers.port import AppState, Ask


@dataclass(frozen=True)
class Command:
    """Base of all commands."""


@dataclass(frozen=True)
class RunPreprocess(Command):
    """Run ``tony.am.command`` once; :class:`PreprocessEnded` follows."""

    command: str


@dataclass(frozen=True)
class RequestContainers(Command):
    """Set what is wanted from the scheduler; zero counts withdraw."""

    asks: Tuple[Ask, ...]
    gang: bool


@dataclass(frozen=True)
class ReleaseContainer(Command):
    """Give back a container in which nothing was launched."""

    container_id: str


@dataclass(frozen=True)
class LaunchExecutor(Command):
    """Start our executor in a container."""

    container_id: str
    task: str


@dataclass(frozen=True)
class StopContainer(Command):
    """End a launched container: first by a word to its executor, then by the scheduler.

    ``ContainerCompleted`` follows in any case.
    """

    container_id: str
    grace_s: float
    reason: str


@dataclass(frozen=True)
class PrepareTask(Command):
    """Tell an executor which task it is in this session.

    ``restart`` says how often the task was started again alone, and ``same_ports`` whether the
    executor is to hold those that it held for it before.
    """

    container_id: str
    task: str
    session: int
    restart: int = 0
    same_ports: bool = False


@dataclass(frozen=True)
class Member:
    """One task of a cluster spec."""

    role: str
    index: int
    container_id: str
    node: str
    host: str
    ports: Mapping[str, int]


@dataclass(frozen=True)
class StartTasks(Command):
    """The barrier is passed: run these tasks over this cluster spec.

    ``members`` is the whole spec (earlier stages' tasks included), ``tasks`` those to start, and
    ``gang`` those that belong together, some of which may run already. ``restart`` is of a task
    that is started alone.
    """

    session: int
    tasks: Tuple[str, ...]
    members: Tuple[Member, ...]
    parameters: Optional[str] = None  # of the preprocess step
    gang: Tuple[str, ...] = ()
    restart: int = 0


@dataclass(frozen=True)
class StopTask(Command):
    """End the program in a container that stays; ``TaskStopped`` follows."""

    container_id: str
    session: int
    grace_s: float
    reason: str


@dataclass(frozen=True)
class AcknowledgeEnd(Command):
    """Tell an executor that its program's end is written down."""

    container_id: str
    session: int
    restart: int = 0


@dataclass(frozen=True)
class EndSession(Command):
    """A session is over: stop what the framework runs for it in the master."""

    session: int


@dataclass(frozen=True)
class WriteJournal(Command):
    """Write this ahead of everything that follows it (the whole record, replacing)."""

    record: Mapping[str, Any]


class Weight(str, Enum):
    """How loud a line of the story is."""

    INFO = "info"
    WARNING = "warning"
    DECISION = "decision"  # history is flushed at these
    ERROR = "error"


@dataclass(frozen=True)
class Tell(Command):
    """One line of the job's story, with its fields: the page, the history, the error."""

    kind: str  # "task-state", "session-started", "root-cause", ...
    text: str
    weight: Weight = Weight.INFO
    task: str = ""
    session: int = -1
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finish(Command):
    """The job has ended and holds nothing any more; always the last command."""

    state: AppState
    diagnostics: str
    root_cause: Mapping[str, Any] = field(default_factory=dict)
