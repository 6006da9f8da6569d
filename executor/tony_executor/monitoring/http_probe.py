"""Whether a web server answers HTTP, and the one that the program itself opens at ``TB_PORT``.

:class:`HttpProbe` asks a port for a page until one comes. :class:`ProgramServerWatch` asks the
kernel at growing pauses whether the program (or a process below it) listens at TensorBoard's port;
what another process opened is not the program's. A server that answers where the master will ask
is reported, as one that the executor runs beside the program is. For one that listens at another
address of the node a warning says what to change.
"""

from __future__ import annotations

import socket
from typing import Callable, Optional

from tony_core.protocol.link import Dial, dial
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor.network.ports import serves

_RETRY_S = 0.25
LONGEST_PAGE = 1 << 20  # of what a probe reads
PAGE_S = 2.0  # for it to end
FIRST_CHECK_S = 1.0
LONGEST_PAUSE_S = 10.0
ANSWERS_WITHIN_S = 5.0


class HttpProbe:
    """Call back once: True when a server answers HTTP at the address, False when time is up.

    It reads the page to its end: a server whose page is cut off writes that into its log.
    """

    def __init__(
        self, reactor: Reactor, address: str, seconds: float, done: Callable[[bool], None]
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._done = done
        self._dial: Optional[Dial] = None
        self._sock: Optional[socket.socket] = None
        self._retry_timer: Optional[Timer] = None
        self._read = 0  # bytes of a page
        self._deadline = reactor.call_later(seconds, self._finish, False)
        self._probe()

    def cancel(self) -> None:
        """Stop asking; ``done`` is not called any more."""
        for timer in (self._deadline, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if self._dial is not None:
            self._dial.cancel()
        self._close_socket()

    def _probe(self) -> None:
        self._close_socket()
        self._retry_timer = None
        self._dial = dial(self._reactor, self._address, self._connected, self._probe_later, 5.0)

    def _probe_later(self, reason: str = "") -> None:
        self._dial = None
        self._close_socket()
        if self._retry_timer is None:
            self._retry_timer = self._reactor.call_later(_RETRY_S, self._probe)

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        self._sock = sock
        try:
            sock.send(b"GET / HTTP/1.0\r\n\r\n")
        except OSError:
            self._probe_later()
            return
        self._reactor.watch(sock, self._answered)
        self._retry_timer = self._reactor.call_later(10.0, self._probe)

    def _answered(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            data = b""
        if self._read:
            self._read += len(data)
            if not data or self._read > LONGEST_PAGE:
                self._finish(True)
            return
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if data.startswith(b"HTTP/"):
            self._read = len(data)
            self._deadline.cancel()
            self._deadline = self._reactor.call_later(PAGE_S, self._finish, True)
        else:
            self._probe_later()

    def _finish(self, ready: bool) -> None:
        self.cancel()
        self._done(ready)

    def _close_socket(self) -> None:
        if self._sock is not None:
            self._reactor.unwatch(self._sock)
            self._sock.close()
            self._sock = None


class ProgramServerWatch:
    """Watches one program, until :meth:`close`. ``serving(port, message)``; port 0 is no more."""

    def __init__(
        self,
        reactor: Reactor,
        pid: int,
        host: str,
        port: int,
        serving: Callable[[int, str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._pid = pid
        self._host = host
        self._port = port
        self._serving = serving
        self._warn = warn
        self._pause = FIRST_CHECK_S
        self._served = False
        self._warned = False
        self._probe: Optional[HttpProbe] = None
        self._timer = reactor.call_later(FIRST_CHECK_S, self._check)

    def close(self) -> None:
        """Stop: the program has ended."""
        self._timer.cancel()
        if self._probe is not None:
            self._probe.cancel()
        self._report(False)

    def _check(self) -> None:
        listens = serves(self._pid, self._port)
        if not listens:
            self._report(False)
        elif not self._served:
            address = f"{self._host}:{self._port}"
            self._probe = HttpProbe(self._reactor, address, ANSWERS_WITHIN_S, self._on_probed)
            return
        self._check_later()

    def _check_later(self) -> None:
        self._timer = self._reactor.call_later(self._pause, self._check)
        self._pause = min(LONGEST_PAUSE_S, self._pause * 1.5)

    def _on_probed(self, answers: bool) -> None:
        self._probe = None
        listens = serves(self._pid, self._port)  # another process may have answered
        self._report(answers and listens)
        if listens and not answers and not self._warned:
            self._warned = True
            self._warn(
                f"the program listens at TB_PORT ({self._port}), but does not answer HTTP at"
                f" {self._host}: TensorBoard needs --host {self._host}, or --bind_all"
            )
        self._check_later()

    def _report(self, served: bool) -> None:
        if self._served != served:
            self._served = served
            self._serving(self._port if served else 0, "")
