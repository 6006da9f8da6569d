"""Asking the NameNodes of one file system: kept connections, the active one, bounded patience.

Of a pair of NameNodes one is active; the other refuses (``StandbyException``) or is away. Then
the next one is asked at once, and when all were, after a pause, until the patience has run out.
It is short until one has answered, ever: what is refused at the very first contact is more often a
wrong address than a failover. Where it has run out, it is not spent again: for some seconds every
other call gets the same error at once, so a verb that asks five things waits once. A server that
takes the connection and never answers has a minute, and a caller that only looks shares less than
that among the servers.

Every call can be repeated. Where a lost answer makes a difference (was it our first request
that removed the file?), ``unsure`` says that an earlier one may have been obeyed.

Connections wait in a pool, from which each call takes one, so threads never wait for each
other; the servers close them after some minutes, and the next call takes a new one. A forked
process makes its own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

from .answers import NO_NODE, Refusal, parse_refusal
from .connection import CONNECT_S, Address, Connection, describe

PATIENCE_S = 30.0
FIRST_PATIENCE_S = 5.0  # for a server to take the connection, too
REMEMBERED_S = 5.0
CALL_S = 60.0

_PREFIX = "/webhdfs/v1"
_MOST_IDLE = 8
_REDIRECTED = ("OPEN", "CREATE", "GETFILECHECKSUM")  # a NameNode may lead to a DataNode
LONGEST_ANSWER = 64 << 20
_LONGEST_REFUSAL = 64 << 10
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0

_STANDBY = ("StandbyException", "ObserverRetryOnActiveException")  # another server is active
_LATER = ("RetriableException", "CallQueueOverflowException", "ServerNotRunningYetException")
_MUCH_LATER = ("SafeModeException", "IOException")


class Patience(NamedTuple):
    """How long calls are tried."""

    seconds: float = PATIENCE_S
    first_s: float = FIRST_PATIENCE_S  # until a server has answered
    call_s: Optional[float] = None  # for one answer; None: CALL_S
    thorough: bool = False  # safe mode, and failures that a server does not explain, are waited for


class Service(NamedTuple):
    """The NameNodes' web servers, and what messages say of them."""

    addresses: Sequence[Address]
    tls: bool = False
    name: str = "WebHDFS"
    note: str = ""  # which configuration they are from


class Reply(NamedTuple):
    """What a NameNode answered: a body, or where to go on."""

    body: bytes
    location: str = ""
    unsure: bool = False


class RequestRefused(Exception):
    """A NameNode's refusal that asking again will not change."""

    def __init__(self, refusal: Refusal, unsure: bool) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.unsure = unsure


class Unreachable(Exception):
    """No answer of a NameNode. ``sent``: it may have got the request."""

    def __init__(self, message: str, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class _NotNow(Exception):
    """A refusal that may be another one a little later, or at another server."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(
            f"{refusal.server} answered: {refusal.text or 'no reason given'} ({refusal.name})"
        )
        self.refusal = refusal


class NameNodes:
    """Those of one file system, for any number of threads."""

    def __init__(
        self,
        service: Service,
        identity: Tuple[str, str],
        patience: Patience = Patience(),
        limit_s: Callable[[], Optional[float]] = lambda: None,
    ) -> None:
        self.service = service
        self._identity = identity
        self._patience = patience
        self._limit_s = limit_s
        self._active = 0
        self._answered = False
        self._gave_up: Tuple[float, str] = (0.0, "")  # until when that is the answer
        self._idle: List[Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def close(self) -> None:
        """Close the connections that wait; those in use are closed when their call ends."""
        self._check_process()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, method: str, path: str, operation: str, **more: str) -> Reply:
        """Do one operation on one path; raises :class:`RequestRejected` or :class:`Unreachable`."""
        query = urlencode({"op": operation, **dict([self._identity]), **more}, quote_via=quote)
        target = f"{_PREFIX}{quote(path)}?{query}"
        begun = time.monotonic()
        until, why = self._gave_up
        if begun < until:
            raise Unreachable(why)
        count = len(self.service.addresses)
        limit_s = self._limit_s()
        call_s = CALL_S if self._patience.call_s is None else self._patience.call_s
        if limit_s is not None:
            call_s = min(call_s, limit_s / count)
        current, failures, pauses, unsure = self._active, 0, 0, False
        while True:
            try:
                reply = self._exchange(
                    self.service.addresses[current], method, target, operation, call_s
                )
            except (Unreachable, _NotNow) as error:
                another = True
                if isinstance(error, Unreachable):
                    unsure = unsure or error.sent
                else:
                    self._answered = True
                    another = error.refusal.name in _STANDBY
                    if not another and not self._comes_back(error.refusal):
                        raise RequestRefused(error.refusal, unsure) from None
                if another:
                    current = (current + 1) % count
                    failures += 1
                    if failures % count:
                        continue
                pause = min(_FIRST_PAUSE_S * (1 << min(pauses, 16)), _LONGEST_PAUSE_S)
                pause *= 0.5 + random.random() / 2
                pauses += 1
                if time.monotonic() + pause >= begun + self._seconds(limit_s):
                    raise self._give_up(error, time.monotonic() - begun, limit_s) from None
                time.sleep(pause)
                continue
            self._active = current
            self._answered = True
            return Reply(reply.body, reply.location, unsure)

    def _comes_back(self, refusal: Refusal) -> bool:
        """Whether the same server may answer a little later."""
        if refusal.name in _LATER:
            return True
        if not self._patience.thorough or 300 <= refusal.status < 400:
            return False
        if any(words in refusal.text for words in NO_NODE):
            return False  # the caller asks again for any node
        return not refusal.name or refusal.status >= 500 or refusal.name in _MUCH_LATER

    # ------------------------------------------------------------------ one server

    def _exchange(
        self, address: Address, method: str, target: str, operation: str, call_s: float
    ) -> Reply:
        """Ask with a connection that was kept, and when it was closed meanwhile, with a new one."""
        deadline = time.monotonic() + call_s
        sent = False
        while True:
            connection = None
            try:
                connection = self._take(address, deadline)
                kept = connection.used
                sent = True
                answer = connection.request(method, target)
                most = LONGEST_ANSWER if answer.status < 300 else _LONGEST_REFUSAL
                body = answer.read(most)
            except OSError as error:
                if connection is not None:
                    connection.close()
                    if kept and time.monotonic() < deadline:
                        continue
                raise Unreachable(f"{address}: {describe(error)}", sent=sent) from None
            if answer.reusable:
                self._give_back(connection)
            else:
                connection.close()
            redirected = operation in _REDIRECTED and 300 <= answer.status < 400
            if redirected and answer.headers.get("location"):
                return Reply(b"", answer.headers["location"])
            if not 200 <= answer.status < 300:
                raise _NotNow(parse_refusal(answer.status, body, str(address)))
            return Reply(body)

    def _check_process(self) -> None:
        """Leave to the parent, after a fork, its connections and a lock that it may hold."""
        if self._process != os.getpid():
            self._process, self._lock, self._idle = os.getpid(), threading.Lock(), []

    def _take(self, address: Address, deadline: float) -> Connection:
        self._check_process()
        with self._lock:
            found = None
            for connection in reversed(self._idle):
                if connection.address == address:
                    found = connection
                    self._idle.remove(connection)
                    break
        if found is None:
            connect_s = CONNECT_S if self._answered else self._patience.first_s
            return Connection(address, self.service.tls, deadline, CALL_S, connect_s)
        found.until(deadline)
        return found

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if len(self._idle) > _MOST_IDLE else None
        if surplus is not None:
            surplus.close()

    def _seconds(self, limit_s: Optional[float]) -> float:
        most = self._patience.seconds if limit_s is None else min(limit_s, self._patience.seconds)
        return most if self._answered else min(self._patience.first_s, most)

    def _give_up(self, error: Exception, seconds: float, limit_s: Optional[float]) -> Unreachable:
        names = " and ".join(str(address) for address in self.service.addresses)
        why = f"{self.service.name} ({names}) did not serve us for {seconds:.0f} s: {error}"
        remembered = max(REMEMBERED_S, limit_s or 0.0)
        self._gave_up = (time.monotonic() + remembered, why)
        return Unreachable(why)
