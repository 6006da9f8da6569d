"""What an executor's life wants done. The shell does each, and reports back by events."""

# Annotations are evaluated here: NamedTuple would compile each of them as text.
from typing import NamedTuple, Union

from tony_core.protocol.messages import Message, Prepare, Start, Welcome


class Say(NamedTuple):
    """Send this on that link."""

    link: int
    message: Message


class Drop(NamedTuple):
    """Close a link that is not obeyed."""

    link: int
    reason: str


class Seek(NamedTuple):
    """Look for the master: its file, its successor, its address, again and again."""

    succeed: bool  # it was there before: help the next one to start


class StopSeeking(NamedTuple):
    """It is found."""


class Configure(NamedTuple):
    """How this master wants things."""

    link: int
    welcome: Welcome


class LayOut(NamedTuple):
    """Make the session's folder and hold its ports; Prepared or NotPrepared follows."""

    prepare: Prepare


class StartChild(NamedTuple):
    """Run the program; ChildStarted or ChildNotStarted follows."""

    task: str
    start: Start


class Clear(NamedTuple):
    """End every descendant of the program: TERM, KILL after the grace; Cleared follows.

    Said again with a shorter grace it becomes shorter.
    """

    grace_s: float
    everything: bool  # TensorBoard beside the program too


class Log(NamedTuple):
    """A line for the executor's own log."""

    text: str


class Exit(NamedTuple):
    """The end of the process, when what was said has left; always the last command."""

    code: int
    reason: str


Command = Union[Say, Drop, Seek, StopSeeking, Configure, LayOut, StartChild, Clear, Log, Exit]
