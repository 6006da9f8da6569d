"""What can happen to an executor. ``at`` is seconds on its own monotonic clock."""

# Annotations are evaluated here: NamedTuple would compile each of them as text.
from typing import Dict, List, NamedTuple, Union

from tony_core.exit_causes import ExitCause
from tony_core.protocol.messages import Message


class Began(NamedTuple):
    """The process stands and has begun to call its master."""

    at: float


class Linked(NamedTuple):
    """A peer that knows the job's secret is connected; it may be a master of any attempt."""

    at: float
    link: int


class Heard(NamedTuple):
    """A message arrived on a link."""

    at: float
    link: int
    message: Message


class Unlinked(NamedTuple):
    """A link is gone."""

    at: float
    link: int
    reason: str


class Prepared(NamedTuple):
    """The session's folder stands and its ports are held."""

    at: float
    session: int
    host: str
    ports: Dict[str, int]


class NotPrepared(NamedTuple):
    """It could not be laid out."""

    at: float
    session: int
    cause: ExitCause
    message: str


class ChildStarted(NamedTuple):
    """The program was exec'd."""

    at: float
    session: int
    pid: int
    offsets: Dict[str, int] = {}  # log -> its size before
    gpus: List[str] = []  # as in messages.Running


class ChildNotStarted(NamedTuple):
    """It could not be; ``exit_code`` is what a shell would say."""

    at: float
    session: int
    exit_code: int
    cause: ExitCause
    message: str


class ChildEnded(NamedTuple):
    """The program ended; what is known about it, unjudged."""

    at: float
    session: int
    exit_code: int  # 128 + signal when a signal ended it
    signal: int
    stderr_tail: List[str]
    ports_taken: List[str]  # names of our ports that somebody else listens at
    disk_free_mb: float
    usage: Dict[str, float]
    stderr_before: List[str] = []  # lines before the tail


class PortsTaken(NamedTuple):
    """Another process listens at ports of the program that runs."""

    at: float
    session: int
    names: List[str]


class Cleared(NamedTuple):
    """The sweep is over: of the program's descendants these are left."""

    at: float
    survivors: List[int]


class Observed(NamedTuple):
    """Something to pass on: Measured, Reported, Serving, Noted."""

    at: float
    message: Message


class NoMasterWillCome(NamedTuple):
    """The application has ended, or its masters' attempts are used up."""

    at: float
    reason: str


class Tick(NamedTuple):
    """Time has passed."""

    at: float


Event = Union[
    Began,
    Linked,
    Heard,
    Unlinked,
    Prepared,
    NotPrepared,
    ChildStarted,
    ChildNotStarted,
    ChildEnded,
    PortsTaken,
    Cleared,
    Observed,
    NoMasterWillCome,
    Tick,
]
