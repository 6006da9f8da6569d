"""The messages between the master and an executor.

Theory of operation
===================

There is one connection per executor. Normally the executor calls the master; after a master's
death the next master calls the executors at the journalled addresses. The roles stay: which
messages an end sends does not depend on who dialled.

A task's messages, in their order::

    executor                             master
    Register(container, state)    ->
                                  <-     Welcome(attempt, ...)
                                  <-     Prepare(task, session, ports)
    Ready(session, ports)         ->                                 # the barrier (*)
                                  <-     Start(session, command, env, shared)
    Running(session, pid)         ->
    Heartbeat / Measured / Reported / Serving / Stalled ->
                                  <-     Preemption(session, seconds)  # perhaps
                                  <-     DumpStacks(session, reason)  # where another one stalls
    StacksDumped(session, ...)    ->
                                  <-     EndProgram(session, cause)  # a stall that is to end it
    Ended(session, ...)           ->
                                  <-     Acknowledge(session)
                                  <-     Stop(session, grace)        # a new session comes
    Stopped(session, clean)       ->
                                  <-     Prepare(task, session + 1, ports) ...
                                  <-     Shutdown(grace)
    Stopped(session, clean)       ->     and the executor exits

(*) Up to Ready the executor has a clock of its own (``Welcome.registry_timeout_s``, from its
start to its first Prepare, and from each Prepare to Ready). From Ready on the waiting is the
master's: how long the rest of a gang may take only it knows. Its silence is covered by
``silence_s`` and ``master_lost_s``.

A single task may be restarted within its session: ``Prepare`` then carries how often that was done
(``restart``), and so do the messages about the program that follows, in both directions. Together
with the session it tells one program of the task from the next.

Everything that matters can be repeated: after a reconnect ``Register`` carries the whole
state (task, session, phase, its end), and the master answers from there.
``Ended`` is sent again until acknowledged. An executor obeys only the highest master
attempt it has seen. ``Start`` names values that are the same for all tasks once, in
``shared`` (already encoded JSON text); an environment value refers to one by
:func:`shared_reference`, and the executor puts it in.

*Streams* (``tunnel.py``) belong to no session either: terminals, commands and connections inside a
container, which a client of the job has opened. The client sends the same messages to the master,
by a tunnel; the master passes them on under a number of its own, and the answers back::

    executor                             master
                                  <-     OpenStream(stream, kind, ...)
    StreamOpened(stream)          ->
    StreamData / StreamTaken      <->    StreamData / StreamTaken, ResizeTerminal
                                  <-     CloseStream(stream)
    StreamClosed(stream, ...)     ->     once, whatever ended it

``Tokens`` belongs to no session. A master that follows another has nothing newer than what its
executors hold until it has fetched tokens itself, and sends none before.

Python 3.8.
"""

# Annotations are evaluated here: the codec checks values by them.
from enum import Enum
from typing import Any, Dict, List, NamedTuple, Optional, Union

PROTOCOL_VERSION = 4


#: The shared value that the executor itself knows: the program's working folder.
WORKING_FOLDER = "working-folder"


def shared_reference(name: str) -> str:
    """The text that stands for a shared value in an environment value."""
    return "\x00" + name + "\x00"


# ------------------------------------------------------------------ executor -> master


class Register(NamedTuple):
    """The first message on every connection: which container, and the state of its task."""

    container_id: str
    host: str  # the address peers reach this node by
    listen_port: int  # where a next master may call
    pid: int
    runtime: str  # version of our code
    task: str = ""  # "worker:0" once known
    session: int = -1
    phase: str = "idle"  # idle, ready, running, ended
    ports: Dict[str, int] = {}
    ended: Optional[Dict[str, Any]] = None  # this session's Ended: a next master does not know it
    gpus: List[str] = []  # as in Running: a next master does not know it
    offsets: Dict[str, int] = {}  # as in Running: a next master does not know it
    ran_s: float = 0.0  # how long the program has run: a next master cannot know
    restart: int = 0  # as in Prepare
    listen_host: str = ""  # where it listens, if not at ``host``
    stalled: Optional[Dict[str, Any]] = None  # the Stalled that holds now


class Ready(NamedTuple):
    """The working folder stands and the ports are held."""

    session: int
    host: str
    ports: Dict[str, int]
    restart: int = 0


class Running(NamedTuple):
    """The program was started."""

    session: int
    pid: int
    offsets: Dict[str, int] = {}  # log -> the byte at which this session's output begins in it
    restart: int = 0
    gpus: List[str] = []  # those it may use, as CUDA names them; empty: none, or not known


class Ended(NamedTuple):
    """The program ended: its own exit code, or the signal that ended it."""

    session: int
    exit_code: int  # tony_core/exit_causes.py
    signal: int = 0
    cause: str = "exited"  # the value of an ExitCause
    message: str = ""  # for a person: what it was and what to do
    stderr_tail: List[str] = []
    duration_s: float = 0.0
    usage: Dict[str, float] = {}  # peak_rss_mb, cpu_s, ...
    restart: int = 0
    preempted: bool = False  # it was warned (Preemption), noticed it, and then exited by itself


class Stopped(NamedTuple):
    """Answer to Stop: which processes of that session's program are left."""

    session: int
    clean: bool
    survivors: List[int] = []


class Heartbeat(NamedTuple):
    """The executor is alive."""

    session: int = -1


class Measured(NamedTuple):
    """The executor's measurements of the program's process tree and its GPUs."""

    session: int
    values: Dict[str, float]


class Reported(NamedTuple):
    """The values that the program gave to report() and result()."""

    session: int
    progress: Optional[float]
    metrics: Dict[str, float]
    step: Optional[int] = None
    result: str = ""  # JSON text; empty when there is none
    saved: Optional[int] = None  # the step of its last checkpoint


class Serving(NamedTuple):
    """A web server beside the program (TensorBoard) answers at this port; 0: no longer."""

    name: str
    port: int
    message: str = ""


class Noted(NamedTuple):
    """A line for the job's story."""

    level: str  # info, warning
    text: str
    once: str = ""  # a subject: of all lines with the same one, the first is enough


class StallKind(str, Enum):
    """What has stopped where a program stands still: the values of ``Stalled.kind``."""

    STEPS = "steps"  # its steps
    QUIET = "quiet"  # its logs and processors, before its first step or after its work
    SUSPENDED = "suspended"  # all of it, by a signal

    def __str__(self) -> str:
        return str(self.value)


class Stalled(NamedTuple):
    """The program stands still, or (``kind`` is empty) it moves again.

    Sent when it is seen, once more with what the stacks of its processes show (``looked``), and in
    Register while it holds.
    """

    session: int
    restart: int = 0
    kind: str = ""  # a StallKind
    still_s: float = 0.0  # for so long
    step: Optional[int] = None  # the last one
    cpu_percent: float = 0.0  # of one core, since it stands still
    looked: bool = False  # whether its stacks were looked at
    frame: str = ""  # where its main thread stands; empty: not known
    in_collective: Optional[bool] = None  # whether that is in a collective operation, if known


class StacksDumped(NamedTuple):
    """Answer to DumpStacks: what the stacks of the program's processes show."""

    session: int
    restart: int = 0
    cpu_percent: float = 0.0  # of one core, lately
    frame: str = ""  # as in Stalled
    in_collective: Optional[bool] = None  # as in Stalled


# ------------------------------------------------------------------ master -> executor


class Welcome(NamedTuple):
    """The executor is accepted; its settings."""

    attempt: int  # the master's
    heartbeat_s: float
    silence_s: float  # no frame for so long: the connection is dead
    master_lost_s: float
    metrics_interval_s: float
    gpu_metrics: bool
    error_lines: int
    registry_timeout_s: float  # for a Prepare to come, and for what it asks to be Ready
    gpu_exec_path: str = ""  # tony.gpu-exec-path
    shell_enabled: bool = False  # tony.shell.enabled
    notebook_enabled: bool = False  # tony.notebook.enabled


class Prepare(NamedTuple):
    """Be this task of this session: make the folder, hold the ports."""

    task: str
    session: int
    ports: List[str]  # names; "main" always, more by framework ("tensorboard", ...)
    port_range: Optional[List[int]] = None
    source: str = ""  # folder (beside the executor's cwd) whose content is the working folder
    gpus: int = 0  # as many must be there, or the task fails; 0 does not look
    hadoop_classpath: str = ""  # tony.application.hadoop.classpath, inside the job's Hadoop
    skip_hadoop: bool = False  # SKIP_HADOOP_PATH: nothing of Hadoop for CLASSPATH
    restart: int = 0  # how often this task was restarted within the session
    same_ports: bool = False  # hold the same ports as before: peers know them


class Start(NamedTuple):
    """Run the program."""

    session: int
    command: str  # for /bin/bash -c
    env: Dict[str, str]  # may hold shared references
    shared: Dict[str, str] = {}
    unset: List[str] = []
    release_ports: List[str] = []  # closed just before exec: the program cannot share them
    execution_timeout_s: Optional[float] = None
    tensorboard: Optional[Dict[str, Any]] = None  # {log_dir, pythons: [...], port: name}
    files: Dict[str, str] = {}  # small files for the working folder's side: name -> text
    restart: int = 0
    stall_timeout_s: Optional[float] = None  # None: not watched
    sending_interval_s: float = 0.0  # between two Measured, and between two Reported, at least


class Acknowledge(NamedTuple):
    """The end of that session's program is in the journal."""

    session: int
    restart: int = 0


class Stop(NamedTuple):
    """End the program (TERM, then KILL after the grace); the executor stays."""

    session: int
    grace_s: float
    reason: str = ""


class Shutdown(NamedTuple):
    """End everything and exit."""

    grace_s: float
    reason: str = ""


class Tokens(NamedTuple):
    """Fresh tokens for the container's token file; sent and taken over TLS only.

    Sent when the master has fetched them, and after each Welcome that follows. It has no answer:
    one that is taken replaces all that came before.
    """

    content: str  # a file of Hadoop credentials, in base64

    def __repr__(self) -> str:  # no log shows them
        return f"Tokens({len(self.content)} characters)"


class Preemption(NamedTuple):
    """Warn the running program that containers which it needs are taken back, or are not.

    The program learns it from ``import tony``, and by a signal if the job wants one.
    """

    session: int
    restart: int = 0
    seconds: Optional[float] = None  # until then; None: not known
    own: bool = True  # this container, and not only that of a peer
    withdrawn: bool = False
    signal: str = ""  # its name; to the processes that handle it
    signal_all: bool = False  # to all processes of the program


class DumpStacks(NamedTuple):
    """Write the stacks of the running program into its log; StacksDumped follows.

    For the stall of another task of the gang: which one lags may show in the stacks of this one.
    """

    session: int
    restart: int = 0
    reason: str = ""  # for the log


class EndProgram(NamedTuple):
    """End the program as one that failed, for this cause; Ended follows. The executor stays."""

    session: int
    restart: int
    grace_s: float
    cause: str
    message: str = ""


class Ping(NamedTuple):
    """Shows that an idle connection is alive."""


# ------------------------------------------------------------------ streams, of both directions


class OpenStream(NamedTuple):
    """Open a stream in a container whose program runs."""

    stream: int  # chosen by the sender, and not used again
    task: str  # "worker:0"
    kind: str  # a value of tunnel.StreamKind
    command: List[str] = []  # empty: a shell
    terminal: bool = False  # whether it runs on a terminal, of this size
    rows: int = 0
    columns: int = 0
    term: str = ""  # TERM


class StreamOpened(NamedTuple):
    """The process runs, or the connection stands."""

    stream: int
    note: str = ""  # of a notebook: its token


class StreamData(NamedTuple):
    """Bytes of a stream."""

    stream: int
    data: str  # in base64
    end: bool = False  # none follow in this direction
    error: bool = False  # of a command: its standard error


class StreamTaken(NamedTuple):
    """So many bytes were taken; the peer may send so many more."""

    stream: int
    size: int


class ResizeTerminal(NamedTuple):
    """The user's terminal has this size now."""

    stream: int
    rows: int
    columns: int


class CloseStream(NamedTuple):
    """End it, with all processes of its own."""

    stream: int


class StreamClosed(NamedTuple):
    """Nothing of it is left."""

    stream: int
    exit_code: Optional[int] = None  # of its process
    message: str = ""  # why it ended before its process did, or could not begin
    refused: str = ""  # where it did not begin: a value of tunnel.Refused


STREAM_TO_MASTER = (StreamOpened, StreamData, StreamTaken, StreamClosed)
STREAM_TO_EXECUTOR = (OpenStream, StreamData, StreamTaken, ResizeTerminal, CloseStream)

TO_MASTER = (
    Register, Ready, Running, Ended, Stopped, Heartbeat, Measured, Reported, Serving, Noted,
    Stalled, StacksDumped, *STREAM_TO_MASTER,
)  # fmt: skip
TO_EXECUTOR = (
    Welcome, Prepare, Start, Acknowledge, Stop, Shutdown, Tokens, Ping, Preemption, EndProgram,
    DumpStacks, *STREAM_TO_EXECUTOR,
)  # fmt: skip

ToMaster = Union[
    Register, Ready, Running, Ended, Stopped, Heartbeat, Measured, Reported, Serving, Noted,
    Stalled, StacksDumped, StreamOpened, StreamData, StreamTaken, StreamClosed,
]  # fmt: skip
ToExecutor = Union[
    Welcome, Prepare, Start, Acknowledge, Stop, Shutdown, Tokens, Ping, Preemption, EndProgram,
    DumpStacks, OpenStream, StreamData, StreamTaken, ResizeTerminal, CloseStream,
]  # fmt: skip
Message = Union[ToMaster, ToExecutor]
