"""The sockets and deadlines of Horovod's rendezvous server: one thread per session.

A rank opens a connection for each request and asks for a missing key a hundred times a second.
So a request for a missing key is kept for a moment, and answered as soon as a rank has put it: of a
thousand ranks nearly all wait at any time, and cost nothing.

Every wait has a deadline. A connection has some seconds for its request and for reading the answer;
where there are too many the oldest goes. Once one rank has begun the others have a deadline to do
so, too, or the session fails, naming them: they would wait for each other.

Horovod's protocol has no secret: an admitted caller (``session_server.py``) may put and delete.
Each session has a new port, never one of an earlier session.
"""

from __future__ import annotations

import selectors
import socket
import time
from typing import Callable, Dict, Iterable, Optional, Sequence, Set

from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.horovod_store import (
    MOST_HEAD,
    Head,
    HttpError,
    Name,
    Store,
    build_answer,
    parse_head,
)
from tony_core.frameworks.session_server import SessionServer

_REQUEST_S = 10.0  # to send a request whole, and to read its answer
_NOT_YET_S = 0.3  # how long a 404 waits for the key to come
_MOST_CONNECTIONS = 512  # and four for each rank
_GLOBAL = ("global", "global_")  # the scope of all ranks, by Horovod's version


class _Connection:
    """One request's socket, and its bytes that are not handled or not sent yet."""

    def __init__(self, sock: socket.socket, due: float) -> None:
        self.sock = sock
        self.due = due
        self.received = bytearray()
        self.head: Optional[Head] = None
        self.wants: Optional[Name] = None  # the key that it waits for
        self.unsent: Optional[bytes] = None  # its answer; from then on nothing is read


class RendezvousService(SessionServer):
    """Serves the ranks of one session until :meth:`close`."""

    def __init__(
        self,
        size: int,
        context: ServiceContext,
        join_timeout_s: float,
        avoid: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("tony-horovod", context, avoid, clock)
        #: Names by rank, as soon as they are known.
        self.tasks: Sequence[str] = ()
        self._join_timeout_s = join_timeout_s
        # Each rank puts the addresses of all others, in three scopes at first.
        self._store = Store(16 * 1024 * 1024 + 1024 * size * size)
        self._most = _MOST_CONNECTIONS + 4 * size
        self._begun: Set[int] = set()
        self._deadline: Optional[float] = None
        self._connections: Dict[int, _Connection] = {}  # the oldest first
        self._waiting: Dict[Name, Set[int]] = {}
        self._thread.start()

    def environment(self) -> Dict[str, str]:
        """The server's address."""
        return {"horovod_addr": self._context.host, "horovod_port": str(self.port)}

    # ------------------------------------------------------------------ the thread

    def _on_failure(self, error: Exception) -> None:
        # Whatever it is: without this server no rank gets through hvd.init().
        text = f"the master's Horovod rendezvous broke: {type(error).__name__}: {error}"
        self._context.failed(text, "", 1)

    def _close_all(self) -> None:
        for number in list(self._connections):
            self._close(number)

    def _deadlines(self) -> Iterable[Optional[float]]:
        yield self._deadline
        for connection in self._connections.values():
            yield connection.due

    def _on_deadline(self, now: float) -> None:
        for number, connection in list(self._connections.items()):
            if connection.due <= now:
                self._give_up(number, connection)
        if self._deadline is not None and self._deadline <= now:
            self._deadline = None
            missing = [rank for rank in range(len(self.tasks)) if rank not in self._begun]
            if missing:
                names = [self.tasks[rank] for rank in missing]
                named = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                self._context.failed(
                    f"{len(names)} of {len(self.tasks)} Horovod ranks ({named}) did not call"
                    f" hvd.init() within {self._join_timeout_s:g} s of the first"
                    " (tony.container.registration.timeout)",
                    names[0],
                    1,
                )

    def _give_up(self, number: int, connection: _Connection) -> None:
        if connection.wants is not None:
            self._answer(number, connection, build_answer(404))  # not yet
        else:
            self._close(number)

    def _on_connected(self, number: int, sock: socket.socket) -> None:
        if len(self._connections) >= self._most:
            oldest = next(iter(self._connections))
            self._give_up(oldest, self._connections[oldest])
            self._close(oldest)
        self._connections[number] = _Connection(sock, self._clock() + _REQUEST_S)

    def _serve(self, number: int, mask: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if mask & selectors.EVENT_WRITE:
            self._flush(number, connection)
            return
        data = self._receive(number, connection.sock)
        if not data or connection.wants is not None:
            return  # more than its request: the answer follows
        connection.received += data
        try:
            self._read(number, connection)
        except HttpError as refused:
            self._answer(number, connection, build_answer(refused.status))

    def _read(self, number: int, connection: _Connection) -> None:
        if connection.head is None:
            connection.head = parse_head(bytes(connection.received[: MOST_HEAD + 1]))
        head = connection.head
        if head is None or len(connection.received) < head.body_at + head.length:
            return
        name = Name(head.scope, head.key)
        if head.method == "GET":
            value = self._store.get(name)
            if value is None:
                connection.wants = name
                connection.due = min(connection.due, self._clock() + _NOT_YET_S)
                self._waiting.setdefault(name, set()).add(number)
                return
            self._answer(number, connection, build_answer(200, value))
            return
        if head.method == "PUT":
            value = bytes(connection.received[head.body_at : head.body_at + head.length])
            self._store.put(name, value)
            self._begins(name)
            for waiting in sorted(self._waiting.get(name, ())):
                self._answer(waiting, self._connections[waiting], build_answer(200, value))
        else:
            self._store.delete(name)
        self._answer(number, connection, build_answer(200))

    def _begins(self, name: Name) -> None:
        """Note which rank has begun; start or end the deadline for the others."""
        key = name.key
        if name.scope not in _GLOBAL or not (key.isascii() and key.isdigit()) or len(key) > 9:
            return
        self._begun.add(int(key))
        if self._begun.issuperset(range(len(self.tasks))):
            self._deadline = None
        elif len(self._begun) == 1:
            self._deadline = self._clock() + self._join_timeout_s

    # ------------------------------------------------------------------ answers

    def _answer(self, number: int, connection: _Connection, text: bytes) -> None:
        self._stop_waiting(number, connection)
        connection.unsent = text
        connection.received.clear()
        connection.due = self._clock() + _REQUEST_S
        self._flush(number, connection)

    def _flush(self, number: int, connection: _Connection) -> None:
        assert connection.unsent is not None
        try:
            sent = connection.sock.send(connection.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(number)
            return
        connection.unsent = connection.unsent[sent:]
        if connection.unsent:
            self._selector.modify(connection.sock, selectors.EVENT_WRITE, number)
        else:
            self._close(number)

    def _stop_waiting(self, number: int, connection: _Connection) -> None:
        if connection.wants is None:
            return
        others = self._waiting[connection.wants]
        others.discard(number)
        if not others:
            del self._waiting[connection.wants]
        connection.wants = None

    def _close(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        self._stop_waiting(number, connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()
