"""Asking the NameNodes of one file system: kept connections, the active one, bounded patience.

Of a pair of NameNodes one is active; the other refuses (``StandbyException``) or is away. Then
the next one is asked at once, and when all were, after a pause, until patience has run out.
Patience is short until one has answered, ever: what is refused at the very first contact is
more often a wrong address than a failover. Where it has run out, it is not spent again: for some
seconds every other call gets the same error at once, so a verb that asks five things waits once.
A server that takes the connection and never answers has a minute, and what only looks
(:func:`tony_core.files.port.looking`) shares less than that among the servers.

Every call can be repeated. Where a lost answer makes a difference (was it our first request
that removed the file?), :attr:`Reply.unsure` says that an earlier one may have been obeyed.

Connections wait in a pool, from which each call takes one, so threads never wait for each
other; the servers close them after some minutes, and the next call takes a new one.
"""

from __future__ import annotations

import threading
import time
from typing import List, Optional, Tuple
from urllib.parse import quote, urlencode

from tony_core.dataclass import dataclass
from tony_core.files.port import look_limit
from tony_core.files.webhdfs_errors import refusal, words
from tony_core.files.webhdfs_http import CONNECT_S, Connection
from tony_core.hadoop.errors import HadoopError, RemoteError, Unreachable
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.failover import Failover

PATIENCE_S = 30.0
FIRST_PATIENCE_S = 5.0  # for a server to take the connection, too
REMEMBERED_S = 5.0
CALL_S = 60.0

_PREFIX = "/webhdfs/v1"
_MOST_IDLE = 8
_LED = ("OPEN", "CREATE", "GETFILECHECKSUM")  # where a NameNode may send us to a DataNode
_LONGEST_ANSWER = 64 << 20
_FAILURE = 64 << 10


@dataclass(frozen=True)
class Reply:
    """What a NameNode answered: a body, or where to go on."""

    body: bytes
    location: str = ""
    unsure: bool = False


class Refused(Exception):
    """A NameNode's no, which asking again will not change."""

    def __init__(self, error: RemoteError, unsure: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.unsure = unsure


class NameNodes:
    """One file system's. Any thread may call."""

    def __init__(
        self, web: Endpoints, identity: Tuple[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        self.web = web
        self._identity = identity
        self._patience_s = patience_s
        self._active = 0
        self._answered = False
        self._gave_up: Tuple[float, str] = (0.0, "")  # until when that is the answer
        self._idle: List[Connection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """The connections that wait; those in use go when their call ends."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, method: str, path: str, operation: str, **more: str) -> Reply:
        """One operation on one path; raises :class:`Refused` or :class:`Unreachable`."""
        query = urlencode({"op": operation, **dict([self._identity]), **more}, quote_via=quote)
        target = f"{_PREFIX}{quote(path)}?{query}"
        choice = Failover(len(self.web.addresses))
        choice.current = self._active
        unsure = False
        begun = time.monotonic()
        until, why = self._gave_up
        if begun < until:
            raise Unreachable(why)
        looks = look_limit.get()
        call_s = CALL_S if looks is None else min(CALL_S, looks / len(self.web.addresses))
        while True:
            address = self.web.addresses[choice.current]
            try:
                reply = self._exchange(address, method, target, operation, call_s)
            except HadoopError as error:
                sent = isinstance(error, Unreachable) and error.sent
                unsure = unsure or sent
                pause = choice.failed(error)
                if isinstance(error, RemoteError):
                    self._answered = True
                    if pause is None or error.short_class == "SafeModeException":
                        raise Refused(error, unsure) from None
                if pause is None:
                    raise
                if pause and time.monotonic() + pause >= begun + self._patience(looks):
                    given_up = self._given_up(error, time.monotonic() - begun)
                    remembered = max(REMEMBERED_S, looks or 0.0)
                    self._gave_up = (time.monotonic() + remembered, str(given_up))
                    raise given_up from None
                time.sleep(pause)
                continue
            self._active = choice.current
            self._answered = True
            return Reply(reply.body, reply.location, unsure)

    # ------------------------------------------------------------------ one server

    def _exchange(
        self, address: Address, method: str, target: str, operation: str, call_s: float
    ) -> Reply:
        """With a connection that was kept, and when that was closed meanwhile, a new one."""
        deadline = time.monotonic() + call_s
        sent = False
        while True:
            connection = None
            try:
                connection = self._take(address, deadline)
                kept = connection.used
                sent = True
                answer = connection.ask(method, target)
                most = _LONGEST_ANSWER if answer.status < 300 else _FAILURE
                body = answer.read(most)
            except OSError as error:
                if connection is not None:
                    connection.close()
                    if kept and time.monotonic() < deadline:
                        continue
                raise Unreachable(f"{address}: {words(error)}", sent=sent) from None
            if answer.reusable:
                self._give_back(connection)
            else:
                connection.close()
            is_led = operation in _LED and 300 <= answer.status < 400
            if is_led and answer.headers.get("location"):
                return Reply(b"", answer.headers["location"])
            if not 200 <= answer.status < 300:
                raise refusal(answer.status, body, operation, str(address))
            return Reply(body)

    def _take(self, address: Address, deadline: float) -> Connection:
        with self._lock:
            found = None
            for connection in reversed(self._idle):
                if connection.address == address:
                    found = connection
                    self._idle.remove(connection)
                    break
        if found is None:
            connect_s = CONNECT_S if self._answered else FIRST_PATIENCE_S
            return Connection(address, self.web.tls, deadline, CALL_S, connect_s)
        found.until(deadline)
        return found

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if len(self._idle) > _MOST_IDLE else None
        if surplus is not None:
            surplus.close()

    def _patience(self, looks: Optional[float]) -> float:
        most = self._patience_s if looks is None else min(looks, self._patience_s)
        return most if self._answered else min(FIRST_PATIENCE_S, most)

    def _given_up(self, error: HadoopError, seconds: float) -> Unreachable:
        names = " and ".join(str(address) for address in self.web.addresses)
        return Unreachable(
            f"{self.web.service} ({names}) did not serve us for {seconds:.0f} s: {error}"
        )
