"""What can happen to an executor. ``at`` is seconds on its own monotonic clock."""

from __future__ import annotations

from tony_core.light import TYPE_CHECKING, Record
from tony_core.protocol.messages import Message

if TYPE_CHECKING:
    from typing import Dict, List, Union


class Began(Record):
    """The process stands and has begun to call its master."""

    at: float


class Linked(Record):
    """A peer that knows the job's secret is connected; it may be a master of any attempt."""

    at: float
    link: int


class Heard(Record):
    """A message arrived on a link."""

    at: float
    link: int
    message: Message


class Unlinked(Record):
    """A link is gone."""

    at: float
    link: int
    reason: str


class Prepared(Record):
    """The session's folder stands and its ports are held."""

    at: float
    session: int
    host: str
    ports: Dict[str, int]


class NotPrepared(Record):
    """It could not be laid out; ``cause`` as in messages.Ended."""

    at: float
    session: int
    cause: str
    message: str


class ChildStarted(Record):
    """The program was exec'd."""

    at: float
    session: int
    pid: int
    offsets: Dict[str, int] = {}  # log -> its size before
    gpus: List[str] = []  # as in messages.Running


class ChildNotStarted(Record):
    """It could not be; ``exit_code`` is what a shell would say."""

    at: float
    session: int
    exit_code: int
    cause: str
    message: str


class ChildEnded(Record):
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


class PortsTaken(Record):
    """Another process listens at ports of the program that runs."""

    at: float
    session: int
    names: List[str]


class Cleared(Record):
    """The sweep is over: of the program's descendants these are left."""

    at: float
    survivors: List[int]


class Observed(Record):
    """Something to pass on: Measured, Reported, Serving, Noted."""

    at: float
    message: Message


class NoMasterWillCome(Record):
    """The application has ended, or its masters' attempts are used up."""

    at: float
    reason: str


class Tick(Record):
    """Time has passed."""

    at: float


if TYPE_CHECKING:
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
else:  # what all of them are
    Event = tuple
