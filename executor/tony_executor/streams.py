"""Streams of clients into this container: shells, commands, and connections to its Jupyter.

The master passes on what an authenticated client of the job sends (``tony_core/protocol/tunnel.py``
has the theory). A stream lives no longer than the program beside which it was opened, nor than
the connection to the master that opened it. Each of its ends reads no more than the other end has
room for, so a shell that prints without end is stopped by the kernel, and not by our memory.

Loaded when the first stream is opened: most executors have none.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import (
    CloseStream,
    Message,
    OpenStream,
    ResizeTerminal,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.reactor import GuardedReactor, Reactor, Timer
from tony_core.protocol.tunnel import (
    MAX_STREAMS,
    PIECE,
    WINDOW,
    Refused,
    StreamKind,
    StreamWindow,
    pack_data,
    unpack_data,
)
from tony_executor.launch.shell_process import (
    ShellProcess,
    resize,
    shell_environment,
    start_shell,
)
from tony_executor.launch.spawn import NotExecuted

LAUNCHER = "tony_notebook"  # in the command of a notebook's task
NOTEBOOK_FILE = "notebook.json"  # of the launcher, in the working folder
LARGEST_NOTEBOOK_FILE = 4096
CONNECT_US = 200_000  # for Jupyter to take a connection
#: From a shell's end to the end of its output, which a stray process may hold open. The time that
#: the client needs to take some does not count.
DRAIN_S = 2.0
BASH = "/bin/bash"


class ProgramPlace(NamedTuple):
    """Where the program runs, and with what."""

    task: str
    env: Mapping[str, str]
    folder: str
    command: str


class Streams:
    """All streams of this container."""

    def __init__(
        self,
        reactor: Reactor,
        send: Callable[[Message], None],
        place: Callable[[], Optional[ProgramPlace]],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._send = send
        self._place = place
        self._log = log
        self._allowed: Dict[str, bool] = {}
        self._streams: Dict[int, _Stream] = {}

    def configure(self, shell: bool, notebook: bool) -> None:
        """Apply what the site allows."""
        self._allowed = {StreamKind.SHELL.value: shell, StreamKind.NOTEBOOK.value: notebook}

    def handle(self, message: Message) -> None:
        """Take a message of the master's."""
        if isinstance(message, OpenStream):
            guarded = GuardedReactor(self._reactor, lambda error: self._not_opened(message, error))
            guarded.call(self._open, message)
            return
        stream = self._streams.get(getattr(message, "stream", -1))
        if stream is not None:  # else it has ended, and the master does not know yet
            stream.reactor.call(self._pass_on, stream, message)

    def _pass_on(self, stream: _Stream, message: Message) -> None:
        try:
            if isinstance(message, StreamData):
                stream.write(unpack_data(message.data), message.end)
            elif isinstance(message, StreamTaken):
                stream.taken(message.size)
            elif isinstance(message, ResizeTerminal):
                stream.resize(message.rows, message.columns)
            elif isinstance(message, CloseStream):
                stream.close("")
        except ProtocolError as error:
            stream.close(str(error))

    @property
    def pids(self) -> Set[int]:
        """The processes that keep the shells."""
        return {stream.pid for stream in self._streams.values() if stream.pid is not None}

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was a stream's."""
        for stream in list(self._streams.values()):
            if stream.pid == pid:
                stream.reactor.call(stream.exited, exit_code)
                return True
        return False

    def close_all(self, reason: str) -> None:
        """End all of them, for this reason."""
        for stream in list(self._streams.values()):
            stream.reactor.call(stream.close, reason)

    def _open(self, message: OpenStream) -> None:
        number = message.stream
        try:
            place = self._admit(message)
            if message.kind == StreamKind.NOTEBOOK.value:
                sock, note = connect_notebook(place)
                ends: Tuple[Tuple[int, bool], ...] = ((sock.fileno(), False),)
                stream = _Stream(
                    self._reactor, number, self._send, self._forget, sock.fileno(), ends, sock=sock
                )
            else:
                shell, note = _start(message, place), ""
                self._log(f"{'a shell' if not message.command else 'a command'} of the owner's")
                stream = _Stream(
                    self._reactor, number, self._send, self._forget, shell.input, shell.outputs,
                    shell=shell,
                )  # fmt: skip
        except Refusal as error:
            self._send(StreamClosed(number, None, str(error), error.refused.value))
            return
        self._streams[number] = stream
        self._send(StreamOpened(number, note))
        stream.reactor.call(stream.begin)

    def _not_opened(self, message: OpenStream, error: Exception) -> bool:
        """Refuse it over a fault of ours: the program is worth more than a shell."""
        if message.stream not in self._streams:
            self._send(StreamClosed(message.stream, None, _describe_fault(error)))
        return True

    def _admit(self, message: OpenStream) -> ProgramPlace:
        if not self._allowed.get(message.kind, False):
            raise Refusal(f"this site allows no {message.kind}s (tony.{message.kind}.enabled)")
        if message.stream in self._streams or len(self._streams) >= MAX_STREAMS:
            raise Refusal("there are too many streams into this container", Refused.NOT_READY)
        place = self._place()
        if place is None:
            raise Refusal(f"{message.task} runs no program (any more)", Refused.NO_PROGRAM)
        if message.task != place.task:
            text = f"this container runs {place.task} now, and no more {message.task}"
            raise Refusal(text, Refused.NO_PROGRAM)
        return place

    def _forget(self, number: int) -> None:
        self._streams.pop(number, None)


def _describe_fault(error: Exception) -> str:
    """Name a fault of ours to the user."""
    return f"a fault of tony's own: {type(error).__name__}: {error}"


class Refusal(Exception):
    """The stream is not opened, for the reason in the text."""

    def __init__(self, reason: str, refused: Refused = Refused.FINAL) -> None:
        super().__init__(reason)
        self.refused = refused


def _start(message: OpenStream, place: ProgramPlace) -> ShellProcess:
    env = shell_environment(place.env, message.term if message.terminal else "dumb")
    argv = [BASH, "-c", 'exec "$@"', "bash", *message.command] if message.command else [BASH]
    if not message.command and message.terminal:
        argv.append("-i")
    size = (message.rows, message.columns) if message.terminal else None
    try:
        return start_shell(argv, env, place.folder, size)
    except (OSError, ValueError, NotExecuted) as error:
        raise Refusal(f"the shell cannot be started: {error}") from None


def connect_notebook(program: ProgramPlace) -> Tuple[socket.socket, str]:
    """A connection to the Jupyter of this container, and its token."""
    folder = program.folder
    try:
        found = json.loads(_read_small(os.path.join(folder, NOTEBOOK_FILE)))
        name, token = os.path.basename(str(found["socket"])), str(found["token"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        if LAUNCHER not in program.command:
            raise Refusal(f"{program.task} runs no notebook") from None
        raise Refusal(f"{program.task} runs no notebook yet", Refused.NOT_READY) from None
    try:
        return _connect(folder, name), token
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = f"the notebook of {program.task} does not listen (yet): {reason}"
        raise Refusal(text, Refused.NOT_READY) from None


def _connect(folder: str, name: str) -> socket.socket:
    # The folder's own path may be longer than a socket's may be.
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock = socket.socket(socket.AF_UNIX)
        try:
            # Its queue may be full for a moment; one that accepts nothing must not hold us up.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, CONNECT_US))
            sock.connect(f"/proc/self/fd/{place}/{name}")
        except (OSError, ValueError):
            sock.close()
            raise
    finally:
        os.close(place)
    sock.setblocking(False)
    return sock


def _read_small(path: str) -> bytes:
    """What a program has written into a plain file; it may have made anything else of it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", 0) as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", path)
        return file.read(LARGEST_NOTEBOOK_FILE) or b""


class _Stream:
    """One stream: descriptors here, messages there."""

    def __init__(
        self,
        reactor: Reactor,
        number: int,
        send: Callable[[Message], None],
        forget: Callable[[int], None],
        input_fd: int,
        outputs: Tuple[Tuple[int, bool], ...],
        shell: Optional[ShellProcess] = None,
        sock: Optional[socket.socket] = None,
    ) -> None:
        self.pid = shell.pid if shell is not None else None
        self.reactor = self._reactor = GuardedReactor(reactor, self._failed)
        self._number = number
        self._send = send
        self._forget = forget
        self._input: Optional[int] = input_fd
        self._outputs: Dict[int, bool] = dict(outputs)
        self._shell = shell
        self._sock = sock
        self._is_terminal = shell is not None and shell.is_terminal
        self._unwritten = bytearray()
        self._input_ended = False
        self._window = StreamWindow()
        self._exit_code: Optional[int] = None
        self._message = ""
        self._closed = False
        self._drain: Optional[Timer] = None

    def _failed(self, error: Exception) -> bool:
        """End it over a fault of ours, too."""
        if self._closed:
            self._forget(self._number)
        else:
            self.close(_describe_fault(error))
        return True

    def begin(self) -> None:
        """Read its output from now on."""
        self._watch()

    def write(self, data: bytes, end: bool) -> None:
        """Take bytes for it."""
        if not data and not end:
            raise ProtocolError("a stream sends a message without bytes")
        if self._input is None or self._input_ended:
            if not data:
                return
            self._send(StreamTaken(self._number, len(data)))  # nothing reads them any more
            return
        if len(self._unwritten) + len(data) > WINDOW:
            raise ProtocolError("a stream sends more than its window")
        self._unwritten += data
        self._input_ended = end
        self._flush()

    def taken(self, count: int) -> None:
        """Note that the client has taken output."""
        self._window.taken(count)
        if not self._closed:
            self._limit_drain()
            self._watch()

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size."""
        if self._is_terminal and self._input is not None and not self._closed:
            resize(self._input, rows, columns)

    def exited(self, exit_code: int) -> None:
        """Note the end of its process; what it has written may still be to come."""
        self.pid = None
        self._exit_code = exit_code
        if not self._outputs or self._closed:
            self._finish()
        else:
            self._limit_drain()

    def _limit_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        if self._exit_code is not None and self._window.left > 0:
            self._drain = self._reactor.call_later(DRAIN_S, self._finish)

    def close(self, reason: str) -> None:
        """End it; its process follows."""
        if self._closed:
            return
        self._closed = True
        self._message = reason
        self._close_descriptors()
        if self._shell is not None:
            os.close(self._shell.control)
        if self.pid is None:
            self._finish()

    # ------------------------------------------------------------------ descriptors

    def _watch(self) -> None:
        """Watch what can be read or written now."""
        wanted: Dict[int, List[bool]] = {}
        reads = self._window.left > 0
        for fd in self._outputs:
            wanted.setdefault(fd, [False, False])[0] = reads
        if self._input is not None:
            wanted.setdefault(self._input, [False, False])[1] = bool(self._unwritten)
        for fd, (readable, writable) in wanted.items():
            self._reactor.watch(
                fd,
                (lambda fd=fd: self._read(fd)) if readable else None,
                self._flush if writable else None,
            )

    def _read(self, fd: int) -> None:
        if fd not in self._outputs or self._window.left <= 0:
            return
        try:
            data = os.read(fd, min(PIECE, self._window.left))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""  # EIO: a terminal whose last process has gone
        if data:
            self._window.send(len(data))
            self._send(StreamData(self._number, pack_data(data), error=self._outputs[fd]))
            if self._window.left <= 0:
                self._limit_drain()
                self._watch()
            return
        del self._outputs[fd]
        if fd == self._input:
            self._watch_input_only(fd)
        else:
            self._reactor.unwatch(fd)
            if self._sock is None:  # a socket's has two directions, and is closed at the end
                os.close(fd)
        if self._outputs:
            return
        if self._sock is not None:
            self._send(StreamData(self._number, "", end=True))
            if self._input_ended and not self._unwritten:
                self._finish()
        elif self.pid is None:
            self._finish()

    def _watch_input_only(self, fd: int) -> None:
        if self._sock is None or not self._unwritten:
            self._reactor.unwatch(fd)
        else:
            self._reactor.watch(fd, None, self._flush)

    def _flush(self) -> None:
        if self._input is None:
            return
        count = 0
        try:
            while self._unwritten:
                written = os.write(self._input, self._unwritten[:PIECE])
                del self._unwritten[:written]
                count += written
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ECONNRESET):
                raise
            count += len(self._unwritten)  # it reads no more
            self._unwritten.clear()
            self._input_ended = True
        if count:
            self._send(StreamTaken(self._number, count))
        if self._input_ended and not self._unwritten:
            self._end_input()
        self._watch()

    def _end_input(self) -> None:
        fd = self._input
        if self._sock is not None:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the other end has gone
            self._input = None
            if not self._outputs:
                self._finish()
        elif not self._is_terminal and fd is not None:
            self._input = None
            self._reactor.unwatch(fd)
            os.close(fd)

    def _close_descriptors(self) -> None:
        open_ones = set(self._outputs)
        if self._input is not None:
            open_ones.add(self._input)
        if self._sock is not None:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
        else:
            for fd in open_ones:
                self._reactor.unwatch(fd)
                os.close(fd)
        self._outputs.clear()
        self._input = None

    def _finish(self) -> None:
        """Report the end, once."""
        if self._drain is not None:
            self._drain.cancel()
        if not self._closed:
            self._closed = True
            self._close_descriptors()
            if self._shell is not None:
                os.close(self._shell.control)
        self._forget(self._number)
        self._send(StreamClosed(self._number, self._exit_code, self._message))
