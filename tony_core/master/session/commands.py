"""The commands of the session machine. The shell performs each, and reports back by events."""

from __future__ import annotations

from enum import Enum
from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

from tony_core.history.layout import StoryKind
from tony_core.schedulers.container_pool import ContainerRequest
from tony_core.schedulers.port import AppState


class RunPreprocess(NamedTuple):
    """Run ``tony.am.command`` once; :class:`PreprocessEnded` follows."""

    command: str


class RequestContainers(NamedTuple):
    """Set how many containers the scheduler is to grant; zero counts withdraw."""

    requests: Tuple[ContainerRequest, ...]
    gang: bool


class ReleaseContainer(NamedTuple):
    """Release a container in which nothing was launched."""

    container_id: str


class LaunchExecutor(NamedTuple):
    """Start our executor in a container."""

    container_id: str
    task: str


class StopContainer(NamedTuple):
    """End a launched container: first by a message to its executor, then by the scheduler.

    ``Completed`` follows in any case.
    """

    container_id: str
    grace_s: float
    reason: str


class PrepareTask(NamedTuple):
    """Tell an executor which task it runs in this session.

    ``restart`` is how often the task was started again in this session, and ``same_ports``
    whether the executor is to hold those that it held for it before.
    """

    container_id: str
    task: str
    session: int
    restart: int = 0
    same_ports: bool = False


class Member(NamedTuple):
    """One task of a cluster spec."""

    role: str
    index: int  # type: ignore[assignment]  # hides the tuple's method
    container_id: str
    node: str
    host: str
    ports: Mapping[str, int]


class StartTasks(NamedTuple):
    """Run these tasks over this cluster spec: their barrier is passed.

    ``members`` is the whole spec (tasks of waves before included), ``tasks`` those to start, and
    ``gang`` those that belong together, some of which may run already. ``restart`` is of a task
    that is started again.
    """

    session: int
    tasks: Tuple[str, ...]
    members: Tuple[Member, ...]
    parameters: Optional[str] = None  # of the preprocess step
    gang: Tuple[str, ...] = ()
    restart: int = 0


class WarnProgram(NamedTuple):
    """Warn a task's program that containers which it needs are taken back, or that they are not.

    ``is_own``: its own container, and not only that of a task whose loss ends the session.
    """

    container_id: str
    session: int
    restart: int
    seconds: Optional[float]  # None: the scheduler gives no time
    is_own: bool
    withdrawn: bool = False


class StopTask(NamedTuple):
    """End the program in a container that stays; ``Stopped`` follows."""

    container_id: str
    session: int
    grace_s: float
    reason: str


class EndProgram(NamedTuple):
    """End the running program of a task as one that failed; its end is reported."""

    container_id: str
    session: int
    restart: int
    grace_s: float
    cause: str
    message: str


class DumpStacks(NamedTuple):
    """Have a task's executor write its program's stacks into its log; it reports what they show."""

    container_id: str
    session: int
    restart: int
    reason: str


class AcknowledgeEnd(NamedTuple):
    """Acknowledge to an executor that the journal holds its program's end."""

    container_id: str
    session: int
    restart: int = 0


class EndSession(NamedTuple):
    """Stop what the framework runs in the master for a session that is over."""

    session: int


class WriteJournal(NamedTuple):
    """Replace the journal's record, before any command that follows runs."""

    record: Mapping[str, Any]


class Level(str, Enum):
    """How much a line of the story matters, as in a log."""

    INFO = "info"
    WARNING = "warning"
    DECISION = "decision"  # history is flushed at these
    ERROR = "error"


class AddStoryLine(NamedTuple):
    """One line of the job's story, with its fields: the page, the history, the error."""

    kind: StoryKind
    text: str
    level: Level = Level.INFO
    task: str = ""
    session: int = -1
    fields: Mapping[str, Any] = {}


class Finish(NamedTuple):
    """Finish the application: the job has ended and holds nothing; always the last command."""

    state: AppState
    diagnostics: str
    root_cause: Mapping[str, Any] = {}


Command = Union[
    RunPreprocess, RequestContainers, ReleaseContainer, LaunchExecutor, StopContainer, PrepareTask,
    StartTasks, StopTask, AcknowledgeEnd, EndSession, WriteJournal, AddStoryLine, Finish,
    WarnProgram,
    EndProgram,
    DumpStacks,
]  # fmt: skip
