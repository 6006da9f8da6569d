"""The executor machine's commands. The shell performs each, and reports back by events."""

# Annotations are evaluated here: NamedTuple would compile each of them as text.
from typing import NamedTuple, Union

from tony_core.protocol.messages import Message, Preemption, Prepare, Start, Welcome


class SendMessage(NamedTuple):
    """Send this message on that link."""

    link: int
    message: Message


class CloseLink(NamedTuple):
    """Close a link whose peer is not, or no longer, our master."""

    link: int
    reason: str


class FindMaster(NamedTuple):
    """Try the master's known address, its file, and its successor until :class:`StopFinding`."""

    start_successor: bool  # there was a master before: help the next one to start


class StopFinding(NamedTuple):
    """The master is found."""


class Configure(NamedTuple):
    """Apply the settings of the master that welcomed us."""

    link: int
    welcome: Welcome


class PrepareTask(NamedTuple):
    """Make the session's folder and hold its ports; Prepared or NotPrepared follows."""

    prepare: Prepare


class StartProgram(NamedTuple):
    """Run the program; ProgramStarted or ProgramNotStarted follows."""

    task: str
    start: Start


class WarnProgram(NamedTuple):
    """Give the running program notice of a preemption, or that it is withdrawn."""

    preemption: Preemption


class DumpStacks(NamedTuple):
    """Write the running program's stacks into its log; StacksDumped is observed."""

    reason: str


class EndProcesses(NamedTuple):
    """End every descendant of the program: TERM, KILL after the grace; ProcessesEnded follows.

    Sent again with a shorter grace, it shortens the sweep.
    """

    grace_s: float
    everything: bool  # TensorBoard beside the program too


class WriteTokens(NamedTuple):
    """Replace the container's token file; TokensNotWritten follows where that fails."""

    content: bytes

    def __repr__(self) -> str:  # no log shows them
        return f"WriteTokens({len(self.content)} bytes)"


class WriteLog(NamedTuple):
    """A line for the executor's own log."""

    text: str


class Exit(NamedTuple):
    """End the process once the last messages have left; always the last command."""

    code: int
    reason: str


Command = Union[
    SendMessage, CloseLink, FindMaster, StopFinding, Configure, PrepareTask, StartProgram,
    EndProcesses, WriteTokens, WriteLog, Exit, WarnProgram,
    DumpStacks,
]  # fmt: skip
