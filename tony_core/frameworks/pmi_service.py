"""The sockets and the clock of the PMI server: one thread in the master for one session.

Every wait has an end. Once one rank has called MPI_Init the others have a deadline to do so
too, or the session fails, naming them: they would wait for each other for ever. A connection
that has not said which rank it is within some seconds is closed, and one that said a wrong
number is left waiting before it is; while too many are, nobody else is let in. So guessing
31 bits takes years.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import selectors
import socket
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.pmi import Aborted, Complete, Drop, Joined, Outcome, PmiServer, Send

_UNNAMED_S = 10.0  # to say which rank it is
_FULL_S = 0.5  # how long nobody is let in where the process has no descriptor left
_PENALTY_S = 2.0  # how long a wrong number waits for its answer, which is none
_MOST_STRANGERS = 64  # connections at a time that have not said who they are
_MOST_UNREAD = 1 << 20  # answers that a rank asked for and does not read


class _Connection:
    """One rank's socket and what is half read and half written of it."""

    def __init__(self, sock: socket.socket, closes_at: float) -> None:
        self.sock = sock
        self.closes_at: Optional[float] = closes_at
        self.punished = False
        self.incoming = b""
        self.outgoing = b""


class PmiService:
    """Serves one session's ranks until :meth:`close`."""

    def __init__(
        self,
        tasks: Sequence[str],
        context: ServiceContext,
        join_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = list(tasks)  # names by rank
        self._context = context
        self._join_timeout_s = join_timeout_s
        self._clock = clock
        ids: List[int] = []
        while len(ids) < len(self._tasks):
            number = secrets.randbelow(2**31 - 1) + 1
            if number not in ids:
                ids.append(number)
        self._ids = ids
        self._server = PmiServer(ids, f"tony-{secrets.token_hex(8)}")
        self._deadline: Optional[float] = None
        self._connections: Dict[int, _Connection] = {}
        self._numbers = 0
        self._failed = False
        self._accepting = True
        self._full_until: Optional[float] = None
        self._listener = _listen(context.listen_host)
        #: PMI_PORT.
        self.address = f"{context.host}:{self._listener.getsockname()[1]}"
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="tony-pmi", daemon=True)
        self._thread.start()

    def environment(self) -> Dict[str, str]:
        """Where the server is, and the ranks' secret numbers in their order."""
        return {"pmi_port": self.address, "pmi_ids": ",".join(map(str, self._ids))}

    def close(self) -> None:
        """End the thread and every connection; idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError):  # the thread may break at this moment
                self._wake_write.send(b"x")
            self._thread.join()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                for key, mask in self._selector.select(self._patience()):
                    if key.fileobj is self._wake_read:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._serve(key.data, mask)
                self._watch_the_clock()
        except Exception as error:
            # Whatever it is: without this server no rank gets through MPI_Init.
            self._fail(f"the master's PMI server broke: {type(error).__name__}: {error}", "", 1)
        finally:
            for number in list(self._connections):
                self._close(number)
            self._selector.close()
            for sock in (self._listener, self._wake_read, self._wake_write):
                sock.close()

    def _patience(self) -> Optional[float]:
        times = [each.closes_at for each in self._connections.values()]
        due = [at for at in [*times, self._deadline, self._full_until] if at is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def _watch_the_clock(self) -> None:
        now = self._clock()
        for number, connection in list(self._connections.items()):
            if connection.closes_at is not None and connection.closes_at <= now:
                self._close(number)
        if self._full_until is not None and self._full_until <= now:
            self._full_until = None
            self._accept_again()
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

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                self._full_until = self._clock() + _FULL_S  # it would be readable all the time
                self._stop_accepting()
            return  # else it went away again before we looked
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._numbers += 1
        self._connections[self._numbers] = _Connection(sock, self._clock() + _UNNAMED_S)
        self._selector.register(sock, selectors.EVENT_READ, self._numbers)
        if self._strangers() >= _MOST_STRANGERS:
            self._stop_accepting()

    def _serve(self, number: int, mask: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if mask & selectors.EVENT_WRITE:
            self._flush(number, connection)
        if not mask & selectors.EVENT_READ or number not in self._connections:
            return
        try:
            data = connection.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(number)
            return
        if connection.punished:
            return
        connection.incoming += data
        while b"\n" in connection.incoming and not connection.punished:
            line, connection.incoming = connection.incoming.split(b"\n", 1)
            if len(line) > self._server.limit(number):
                self._close(number)
                return
            self._perform(self._server.received(number, line.decode("latin-1")))
            if number not in self._connections:
                return
        if len(connection.incoming) > self._server.limit(number):
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
                said = f": {outcome.message}" if outcome.message else ""
                self._fail(
                    f"rank {outcome.rank} ({task}) called MPI_Abort with code"
                    f" {outcome.exit_code}{said}",
                    task,
                    outcome.exit_code,
                )
            elif isinstance(outcome, Drop):
                self._dropped(outcome)

    def _joined(self, number: int) -> None:
        self._connections[number].closes_at = None
        self._accept_again()
        if self._deadline is None and self._server.missing():
            self._deadline = self._clock() + self._join_timeout_s

    def _dropped(self, drop: Drop) -> None:
        connection = self._connections.get(drop.connection)
        if connection is None:
            return
        if drop.stranger:
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
        self._accept_again()
        self._perform(self._server.closed(number))

    def _strangers(self) -> int:
        return sum(each.closes_at is not None for each in self._connections.values())

    def _stop_accepting(self) -> None:
        self._selector.unregister(self._listener)
        self._accepting = False

    def _accept_again(self) -> None:
        if self._accepting or self._full_until is not None:
            return
        if self._strangers() < _MOST_STRANGERS:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            self._accepting = True

    def _fail(self, reason: str, task: str, exit_code: int) -> None:
        # The first failure is the cause; peers that abort because of it are not.
        if not self._failed:
            self._failed = True
            self._context.failed(reason, task, exit_code)


def _listen(host: str) -> socket.socket:
    """Listens there; on all interfaces where that is no address here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family, backlog=4096)
    except OSError:
        return socket.create_server(("", 0), backlog=4096)
