"""The sockets and deadlines of the PMI server: one thread in the master for one session.

Every wait has a deadline. Once one rank has called MPI_Init the others have a deadline to do so
too, or the session fails, naming them: they would wait for each other for ever. A connection that
has not named its rank within some seconds is closed; one that named a wrong number waits before it
is closed; and while too many wait, no other is accepted. So guessing 31 bits takes years.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from typing import Callable, Dict, Iterable, List, Optional, Sequence

from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.pmi import Aborted, Complete, Drop, Joined, Outcome, PmiServer, Send
from tony_core.frameworks.session_server import SessionServer

_INTRODUCTION_S = 10.0  # to name its rank
_PENALTY_S = 2.0  # how long a connection with a wrong number waits before it is closed
_MAX_UNKNOWN = 64  # connections at a time that have not named their rank
_MOST_UNREAD = 1 << 20  # bytes of answers that a rank does not read


class _Connection:
    """One rank's socket, and its bytes that are not handled or not sent yet."""

    def __init__(self, sock: socket.socket, closes_at: float) -> None:
        self.sock = sock
        self.closes_at: Optional[float] = closes_at
        self.punished = False
        self.incoming = b""
        self.outgoing = b""


class PmiService(SessionServer):
    """Serves one session's ranks until :meth:`close`."""

    def __init__(
        self,
        tasks: Sequence[str],
        context: ServiceContext,
        join_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("tony-pmi", context, clock=clock)
        self._tasks = list(tasks)  # names by rank
        self._join_timeout_s = join_timeout_s
        ids: List[int] = []
        while len(ids) < len(self._tasks):
            number = secrets.randbelow(2**31 - 1) + 1
            if number not in ids:
                ids.append(number)
        self._ids = ids
        self._server = PmiServer(ids, f"tony-{secrets.token_hex(8)}")
        self._deadline: Optional[float] = None
        self._connections: Dict[int, _Connection] = {}
        self._failed = False
        #: PMI_PORT.
        self.address = f"{context.host}:{self.port}"
        self._thread.start()

    def environment(self) -> Dict[str, str]:
        """Where the server is, and the ranks' secret numbers in their order."""
        return {"pmi_port": self.address, "pmi_ids": ",".join(map(str, self._ids))}

    # ------------------------------------------------------------------ the thread

    def _on_failure(self, error: Exception) -> None:
        # Any error: without this server no rank gets through MPI_Init.
        self._fail(f"the master's PMI server failed: {type(error).__name__}: {error}", "", 1)

    def _close_all(self) -> None:
        for number in list(self._connections):
            self._close(number)

    def _has_room(self) -> bool:
        unknown = sum(each.closes_at is not None for each in self._connections.values())
        return unknown < _MAX_UNKNOWN

    def _deadlines(self) -> Iterable[Optional[float]]:
        yield self._deadline
        for connection in self._connections.values():
            yield connection.closes_at

    def _on_deadline(self, now: float) -> None:
        for number, connection in list(self._connections.items()):
            if connection.closes_at is not None and connection.closes_at <= now:
                self._close(number)
        if self._deadline is not None and self._deadline <= now:
            self._deadline = None
            missing = [self._tasks[rank] for rank in self._server.missing()]
            if missing:
                named = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
                self._fail(
                    f"{len(missing)} of {len(self._tasks)} MPI ranks ({named}) did not call"
                    f" MPI_Init within {self._join_timeout_s:g} s of the first"
                    " (tony.container.registration.timeout): does their program use MPICH,"
                    " or another MPI that speaks PMI-1? Open MPI does not",
                    missing[0],
                    1,
                )

    def _on_connected(self, number: int, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections[number] = _Connection(sock, self._clock() + _INTRODUCTION_S)

    def _serve(self, number: int, mask: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if mask & selectors.EVENT_WRITE:
            self._flush(number, connection)
        if not mask & selectors.EVENT_READ or number not in self._connections:
            return
        data = self._receive(number, connection.sock)
        if not data or connection.punished:
            return
        connection.incoming += data
        while b"\n" in connection.incoming and not connection.punished:
            line, connection.incoming = connection.incoming.split(b"\n", 1)
            if len(line) > self._server.line_limit(number):
                self._close(number)
                return
            self._perform(self._server.received(number, line.decode("latin-1")))
            if number not in self._connections:
                return
        if len(connection.incoming) > self._server.line_limit(number):
            self._close(number)

    def _perform(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Send):
                connection = self._connections.get(outcome.connection)
                if connection is not None:
                    connection.outgoing += outcome.line.encode("latin-1") + b"\n"
                    self._flush(outcome.connection, connection)
            elif isinstance(outcome, Joined):
                self._joined(outcome.connection)
            elif isinstance(outcome, Complete):
                self._deadline = None
            elif isinstance(outcome, Aborted):
                task = self._tasks[outcome.rank]
                text = f": {outcome.message}" if outcome.message else ""
                self._fail(
                    f"rank {outcome.rank} ({task}) called MPI_Abort with code"
                    f" {outcome.exit_code}{text}",
                    task,
                    outcome.exit_code,
                )
            elif isinstance(outcome, Drop):
                self._dropped(outcome)

    def _joined(self, number: int) -> None:
        self._connections[number].closes_at = None
        if self._deadline is None and self._server.missing():
            self._deadline = self._clock() + self._join_timeout_s

    def _dropped(self, drop: Drop) -> None:
        connection = self._connections.get(drop.connection)
        if connection is None:
            return
        if drop.is_unknown:
            connection.punished = True
            connection.closes_at = self._clock() + _PENALTY_S
        else:
            self._close(drop.connection)

    def _flush(self, number: int, connection: _Connection) -> None:
        try:
            sent = connection.sock.send(connection.outgoing) if connection.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(number)
            return
        connection.outgoing = connection.outgoing[sent:]
        if len(connection.outgoing) > _MOST_UNREAD:
            self._close(number)
            return
        wanted = selectors.EVENT_READ
        if connection.outgoing:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(connection.sock, wanted, number)

    def _close(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._perform(self._server.closed(number))

    def _fail(self, reason: str, task: str, exit_code: int) -> None:
        # The first failure is the cause; peers that abort because of it are not.
        if not self._failed:
            self._failed = True
            self._context.failed(reason, task, exit_code)
