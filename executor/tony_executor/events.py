"""The executor machine's events. ``at`` is seconds on the executor's monotonic clock."""

# Annotations are evaluated here: NamedTuple would compile each of them as text.
from typing import Dict, List, NamedTuple, Union

from tony_core.exit_causes import ExitCause
from tony_core.protocol.messages import Message


class ExecutorStarted(NamedTuple):
    """The process has started and begins to call its master."""

    at: float


class LinkOpened(NamedTuple):
    """A peer that knows the job's secret is connected; it may be a master of any attempt."""

    at: float
    link: int


class MessageReceived(NamedTuple):
    """A message arrived on a link."""

    at: float
    link: int
    message: Message


class LinkClosed(NamedTuple):
    """A link is gone."""

    at: float
    link: int
    reason: str


class Prepared(NamedTuple):
    """The session's folder is made and its ports are held."""

    at: float
    session: int
    host: str
    ports: Dict[str, int]


class NotPrepared(NamedTuple):
    """The folder or the ports of the session could not be made."""

    at: float
    session: int
    cause: ExitCause
    message: str


class ProgramStarted(NamedTuple):
    """The program was exec'd."""

    at: float
    session: int
    pid: int
    offsets: Dict[str, int] = {}  # log -> its size before
    gpus: List[str] = []  # as in messages.Running


class ProgramNotStarted(NamedTuple):
    """The program could not be exec'd; ``exit_code`` is what a shell would report."""

    at: float
    session: int
    exit_code: int
    cause: ExitCause
    message: str


class ProgramEnded(NamedTuple):
    """The program ended; what is known about its end, unjudged."""

    at: float
    session: int
    exit_code: int  # tony_core/exit_causes.py
    signal: int
    stderr_tail: List[str]
    ports_taken: List[str]  # names of our ports at which another process listens
    disk_free_mb: float
    usage: Dict[str, float]
    stderr_before: List[str] = []  # lines before the tail
    noticed: bool = False  # it had noticed a preemption, whatever became of that


class PortsTaken(NamedTuple):
    """Another process listens at ports of the running program."""

    at: float
    session: int
    names: List[str]


class ProcessesEnded(NamedTuple):
    """The sweep is over; these descendants of the program are left."""

    at: float
    survivors: List[int]


class Observed(NamedTuple):
    """Telemetry for the master: Measured, Reported, Serving, Noted."""

    at: float
    message: Message


class TokensNotWritten(NamedTuple):
    """The container's token file could not be replaced."""

    at: float
    reason: str


class NoNextMaster(NamedTuple):
    """The application has ended, or no attempts of a master remain."""

    at: float
    reason: str


class Tick(NamedTuple):
    """Time has passed."""

    at: float


Event = Union[
    ExecutorStarted, LinkOpened, MessageReceived, LinkClosed, Prepared, NotPrepared,
    ProgramStarted, ProgramNotStarted, ProgramEnded, PortsTaken, ProcessesEnded, Observed,
    TokensNotWritten, NoNextMaster, Tick,
]  # fmt: skip
