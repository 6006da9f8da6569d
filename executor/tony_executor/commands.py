"""What an executor's life wants done. The shell does each, and reports back by events."""

from __future__ import annotations

from tony_core.light import TYPE_CHECKING, Record
from tony_core.protocol.messages import Message, Prepare, Start, Welcome

if TYPE_CHECKING:
    from typing import Union


class Say(Record):
    """Send this on that link."""

    link: int
    message: Message


class Drop(Record):
    """Close a link that is not obeyed."""

    link: int
    reason: str


class Seek(Record):
    """Look for the master: its file, its successor, its address, again and again."""

    succeed: bool  # it was there before: help the next one to start


class StopSeeking(Record):
    """It is found."""


class Configure(Record):
    """How this master wants things."""

    link: int
    welcome: Welcome


class LayOut(Record):
    """Make the session's folder and hold its ports; Prepared or NotPrepared follows."""

    prepare: Prepare


class StartChild(Record):
    """Run the program; ChildStarted or ChildNotStarted follows."""

    task: str
    start: Start


class Clear(Record):
    """End every descendant of the program: TERM, KILL after the grace; Cleared follows.

    Said again with a shorter grace it becomes shorter.
    """

    grace_s: float
    everything: bool  # TensorBoard beside the program too


class Log(Record):
    """A line for the executor's own log."""

    text: str


class Exit(Record):
    """The end of the process, when what was said has left; always the last command."""

    code: int
    reason: str


if TYPE_CHECKING:
    Command = Union[Say, Drop, Seek, StopSeeking, Configure, LayOut, StartChild, Clear, Log, Exit]
else:  # what all of them are
    Command = tuple
