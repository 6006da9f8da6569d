"""A shell in a container, on this process's terminal or pipes.

The user's terminal is raw while the shell runs, so each key, Ctrl-C included, goes to the shell.
Without a terminal, bytes are passed on as they are, and our standard input's end, too.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
from typing import Any, Callable, List, Optional, Tuple

from tony_core.client.errors import TunnelError
from tony_core.client.exit_codes import ExitCode
from tony_core.client.tunnel import ClientStream, OpenStream, StreamKind, Tunnel
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.tunnel import PIECE

STDIN, STDOUT, STDERR = 0, 1, 2


def terminal_size(fd: int) -> Tuple[int, int]:
    """(rows, columns)."""
    try:
        rows, columns = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))[:2]
    except OSError:
        return 24, 80
    return rows or 24, columns or 80


class Output:
    """One of our standard outputs, written when it takes something.

    So a reader that is stopped stops the shell, and neither our signals nor the tunnel.
    """

    def __init__(self, reactor: Reactor, fd: int, on_written: Callable[[int], None]) -> None:
        self._reactor = reactor
        self._fd = fd
        self._on_written = on_written
        self._unwritten = bytearray()
        self._written = 0  # and not reported

    @property
    def is_empty(self) -> bool:
        """Whether all is written."""
        return not self._unwritten

    def write(self, data: bytes) -> None:
        """Write bytes, now or later."""
        if not data:
            return
        was_empty = self.is_empty
        self._unwritten += data
        if was_empty:
            try:
                self._reactor.watch(self._fd, on_write=self._flush)
            except PermissionError:  # a file: it can always be written
                while self._unwritten:
                    self._flush(PIECE)

    def _flush(self, most: int = select.PIPE_BUF) -> None:
        # What can be written at all takes so much without waiting.
        try:
            written = os.write(self._fd, self._unwritten[:most])
        except BlockingIOError:
            return  # another process has made it so
        del self._unwritten[:written]
        self._written += written
        if not self._unwritten:
            self._reactor.unwatch(self._fd)
        if not self._unwritten or self._written >= PIECE:
            count, self._written = self._written, 0
            self._on_written(count)


class ShellStream(ClientStream):
    """Connects the shell with our standard streams; :meth:`run` returns its exit code."""

    def __init__(self, reactor: Reactor, task: str, command: List[str], terminal: bool) -> None:
        super().__init__()
        self._reactor = reactor
        self._terminal = terminal
        self._outputs = [Output(reactor, fd, self._written) for fd in (STDOUT, STDERR)]
        self._is_open = self._was_open = False
        self._is_over = False
        self._reads = False
        self._exit_code: Optional[int] = None
        self._message = ""
        self._interrupt: Optional[int] = None
        self._attributes: Optional[List[Any]] = None
        rows, columns = terminal_size(STDIN) if terminal else (0, 0)
        term = os.environ.get("TERM", "")
        self._request = OpenStream(
            0, task, StreamKind.SHELL.value, command, terminal, rows, columns, term
        )

    def run(self, tunnel: Tunnel) -> int:
        """Run until its end; raises :class:`TunnelError` where it cannot be opened.

        The exit code of a shell that was ended is not its own, which would say how it was ended,
        but 137: a pipe that was cut short must not look like one that is complete.
        """
        before: Any = None
        if self._terminal:
            before = signal.signal(signal.SIGWINCH, self._resized)
        try:
            tunnel.open(self, self._request)
            self._reactor.run()
        finally:
            if self._terminal:
                signal.signal(signal.SIGWINCH, before)
            self._restore()
        if self._interrupt is not None:
            return 128 + self._interrupt
        if not self._was_open:
            raise TunnelError(self._message or "the shell was closed")
        if self._message or self._exit_code is None:
            return int(ExitCode.KILLED)
        return self._exit_code

    @property
    def message(self) -> str:
        """Why it ended before its process did; may be empty."""
        return self._message

    def interrupted(self, number: int) -> None:
        """End it because of a signal to this process."""
        self._interrupt = number
        self._reactor.stop()

    def lost(self, reason: str) -> None:
        """Take the end of the tunnel."""
        self._message = f"the connection to the job was lost: {reason}"
        self._finish()

    # ------------------------------------------------------------------ from the tunnel

    def opened(self, note: str) -> None:
        self._is_open = self._was_open = True
        if self._terminal:
            self._attributes = termios.tcgetattr(STDIN)
            _make_raw(STDIN, self._attributes)
        self._watch(True)

    def received(self, data: bytes, error: bool, end: bool) -> None:
        self._outputs[error].write(data)

    def writable(self) -> None:
        if self._is_open:
            self._watch(True)

    def ended(self, exit_code: Optional[int], message: str) -> None:
        self._exit_code = exit_code
        self._message = message
        self._finish()

    def _written(self, count: int) -> None:
        self.take(count)
        if self._is_over:
            self._finish()

    def _finish(self) -> None:
        """Leave :meth:`run` once all output is written."""
        self._is_over = True
        self._watch(False)
        if all(output.is_empty for output in self._outputs):
            self._reactor.stop()

    # ------------------------------------------------------------------ our standard input

    def _watch(self, reads: bool) -> None:
        if reads == self._reads:
            return
        self._reads = reads
        if not reads:
            self._reactor.unwatch(STDIN)
            return
        try:
            self._reactor.watch(STDIN, self._read)
        except PermissionError:  # a file: it can always be read
            self._reactor.call_later(0, self._read_file)

    def _read_file(self) -> None:
        if self._reads:
            self._read()
            self._reactor.call_later(0, self._read_file)

    def _read(self) -> None:
        try:
            data = os.read(STDIN, min(PIECE, self.window.left))
        except InterruptedError:
            return
        except OSError:
            data = b""  # the terminal is gone
        self.write(data, end=not data)
        if not data:
            self._watch(False)
            self._is_open = False  # nothing more is read
        elif self.window.left <= 0:
            self._watch(False)

    def _resized(self, number: int, frame: object) -> None:
        self._reactor.call_soon_threadsafe(lambda: self.resize(*terminal_size(STDIN)))

    def _restore(self) -> None:
        if self._attributes is not None:
            termios.tcsetattr(STDIN, termios.TCSADRAIN, self._attributes)
            self._attributes = None


def _make_raw(fd: int, attributes: List[Any]) -> None:
    raw: List[Any] = [*attributes[:6], list(attributes[6])]
    raw[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    raw[1] &= ~termios.OPOST
    raw[2] = (raw[2] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    raw[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSADRAIN, raw)
