"""A framework's server in the master: one listening socket, one thread, one session.

What the servers of several frameworks share: the thread and how it ends, which callers are
admitted, and the deadlines. The protocol is the server's own (:class:`SessionServer`'s abstract
methods, all called by that thread). Callers prove no secret: an exception over what one of them
sends closes that connection, is logged, and ends nothing else.

The protocols served here have little or no secret, so where a connection comes from decides: from
this machine the kernel must name the job's own user (or root), from elsewhere the address must be
that of a node where an executor of this job is. On such a node every user gets through.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any, Callable, Iterable, List, Optional, Sequence

from tony_core.frameworks.base import ServiceContext
from tony_core.protocol import socket_owners

_FULL_S = 0.5  # how long to accept nothing when the process has no descriptor left
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_MAX_TRACEBACKS = 100  # tracebacks that are logged
_MAX_REFUSED_PORTS = 64  # ports of earlier sessions that the kernel may offer again


class SessionServer(ABC):
    """Serves until :meth:`close`. Connections are known by numbers, which are never used twice."""

    def __init__(
        self,
        name: str,
        context: ServiceContext,
        avoid: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._log = context.log
        self._faults = 0
        self._last = 0
        self._context = context
        self._sockets = socket_owners.SocketTable()
        self._users = (0, os.geteuid())
        self._listener = _listen(context.listen_host, avoid)
        self.port: int = self._listener.getsockname()[1]
        self._is_listening = True
        self._full_until: Optional[float] = None
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def close(self) -> None:
        """End the thread and every connection; idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError):  # the thread may break at this moment
                self._wake_write.send(b"x")
            self._thread.join()

    # ------------------------------------------------------------------ the server's own

    @abstractmethod
    def _on_connected(self, number: int, sock: socket.socket) -> None:
        """Begin with a connection; from here on the socket is read."""

    @abstractmethod
    def _serve(self, number: int, mask: int) -> None:
        """Read or write a connection; it may have been closed in this very turn."""

    @abstractmethod
    def _close(self, number: int) -> None:
        """Close this connection, if it is still there."""

    @abstractmethod
    def _close_all(self) -> None:
        """Close every connection: the server ends."""

    @abstractmethod
    def _deadlines(self) -> Iterable[Optional[float]]:
        """When :meth:`_on_deadline` is due."""

    @abstractmethod
    def _on_deadline(self, now: float) -> None:
        """Do what is due."""

    @abstractmethod
    def _on_failure(self, error: Exception) -> None:
        """Report that the server has failed and ends."""

    def _has_room(self) -> bool:
        """Whether to accept another connection now; callers wait in the kernel meanwhile."""
        return True

    def _receive(self, number: int, sock: socket.socket) -> bytes:
        """Read what has come; empty when nothing has, or the connection ended and is closed."""
        try:
            data = sock.recv(65536)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._close(number)
        return data

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                for key, mask in self._selector.select(self._select_timeout()):
                    if key.fileobj is self._wake_read:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._guard(key.data, self._serve, mask)
                now = self._clock()
                if self._full_until is not None and self._full_until <= now:
                    self._full_until = None
                self._on_deadline(now)
                self._update_listening()
        except Exception as error:
            self._on_failure(error)
        finally:
            self._close_all()
            self._selector.close()
            for sock in (self._listener, self._wake_read, self._wake_write):
                sock.close()
            self._sockets.close()

    def _guard(self, number: int, handle: Callable[[int, Any], None], what: Any) -> bool:
        """Handle something of a connection; where that fails the connection ends, and no more."""
        try:
            handle(number, what)
            return True
        except Exception:
            self._faults += 1
            if self._faults <= _MAX_TRACEBACKS:
                name = self._thread.name
                self._log(
                    f"{name}: closed a connection that made our own code fail:\n"
                    f"{traceback.format_exc().rstrip()}"
                )
            self._close(number)
            return False

    def _select_timeout(self) -> Optional[float]:
        due = [at for at in (*self._deadlines(), self._full_until) if at is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def _accept(self) -> None:
        if not self._has_room():
            return  # another that came in this turn has taken the last place
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _FULL:  # the listener would stay readable
                self._full_until = self._clock() + _FULL_S
            return  # else the caller has closed it already
        if not self._is_admitted(sock):
            sock.close()
            return
        sock.setblocking(False)
        self._last += 1
        if self._guard(self._last, self._on_connected, sock):
            self._selector.register(sock, selectors.EVENT_READ, self._last)
        else:
            sock.close()

    def _is_admitted(self, sock: socket.socket) -> bool:
        """Whether it comes from this job."""
        try:
            here, there = (
                socket_owners.packed(each()[0]) for each in (sock.getsockname, sock.getpeername)
            )
        except OSError:
            return False  # it was closed already
        if here != there and not socket_owners.is_loopback(sock.getpeername()[0]):
            return there in {socket_owners.packed(node) for node in self._context.nodes()}
        try:
            owner = self._sockets.owner_of_peer(sock)
        except socket_owners.Unavailable as error:
            self._on_failure(error)  # to go on without an answer would be to admit everyone
            return False
        return owner is not None and owner.uid in self._users

    def _update_listening(self) -> None:
        listens = self._full_until is None and self._has_room()
        if listens and not self._is_listening:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        elif self._is_listening and not listens:
            self._selector.unregister(self._listener)
        self._is_listening = listens


def _listen(host: str, avoid: Sequence[int]) -> socket.socket:
    """Listen there, or on all interfaces where that is not an address here; not at those ports."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    refused: List[socket.socket] = []
    try:
        while True:
            try:
                made = socket.create_server((host, 0), family=family, backlog=4096)
            except OSError:
                made = socket.create_server(("", 0), backlog=4096)
            if made.getsockname()[1] not in avoid or len(refused) >= _MAX_REFUSED_PORTS:
                return made
            refused.append(made)
    finally:
        for sock in refused:
            sock.close()
