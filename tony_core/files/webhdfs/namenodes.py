"""Calls to the NameNodes of a file system: kept connections, failover, retries with a time limit.

Of a pair of NameNodes one is active; the other refuses (``StandbyException``) or is away. Then
the next one is tried at once, and after all of them, following a pause, until the time limit. The
limit is short until a server has answered once: a failure of the very first contact is more often
a wrong address than a failover. After the limit every further call gets the same error at once for
some seconds, so that a verb with five calls waits once. A server that
takes the connection and never answers has a minute, and a caller that only looks shares less than
that among the servers.

Every call can be repeated. Where a lost answer makes a difference (was it our first request
that removed the file?), ``unsure`` says that an earlier one may have been obeyed.

The identity is asked for with each call. Where a server refuses a token as dead, it is asked for
once more: a call that was retried for long may have begun with the token of before.

Connections wait in a pool, from which each call takes one, so threads never wait for each
other; the servers close them after some minutes, and the next call takes a new one. A forked
process makes its own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

from .connection import CONNECT_S, Address, Connection, Negotiation, describe_error
from .responses import NO_NODE, RemoteException, parse_remote_exception, refuses_token

RETRY_S = 30.0
FIRST_RETRY_S = 5.0  # for a server to take the connection, too
REMEMBERED_S = 5.0
CALL_S = 60.0

_PREFIX = "/webhdfs/v1"
_MOST_IDLE = 8
_REDIRECTED = ("OPEN", "CREATE", "GETFILECHECKSUM")  # a NameNode may lead to a DataNode
LONGEST_RESPONSE = 64 << 20
_LONGEST_ERROR = 64 << 10
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0

_STANDBY = ("StandbyException", "ObserverRetryOnActiveException")  # another server is active
_LATER = ("RetriableException", "CallQueueOverflowException", "ServerNotRunningYetException")
_MUCH_LATER = ("SafeModeException", "IOException")


class RetryLimits(NamedTuple):
    """How long a call is retried."""

    seconds: float = RETRY_S
    first_s: float = FIRST_RETRY_S  # until a server has answered
    call_s: Optional[float] = None  # for one answer; None: CALL_S
    thorough: bool = False  # safe mode, and failures that a server does not explain, are waited for


class Service(NamedTuple):
    """The NameNodes' web servers, and their name in messages."""

    addresses: Sequence[Address]
    tls: bool = False
    name: str = "WebHDFS"
    note: str = ""  # which configuration they are from
    authorities: str = ""  # to trust beside this machine's, as PEM


class NameNodeResponse(NamedTuple):
    """A NameNode's response: a body, or a redirect's location."""

    body: bytes
    location: str = ""
    unsure: bool = False


class RequestRefused(Exception):
    """A NameNode refused the request; a retry would not help."""

    def __init__(self, refusal: RemoteException, unsure: bool) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.unsure = unsure


class NameNodeUnreachable(Exception):
    """No NameNode answered; ``sent``: one may have received the request."""

    def __init__(self, message: str, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class _RetryLater(Exception):
    """A NameNode refused the request; later, or at another one, it may succeed."""

    def __init__(self, refusal: RemoteException) -> None:
        super().__init__(
            f"{refusal.server} answered: {refusal.text or 'no reason given'} ({refusal.name})"
        )
        self.refusal = refusal


class NameNodes:
    """The NameNodes of a file system; safe to use from several threads."""

    def __init__(
        self,
        service: Service,
        identity: Callable[[], Mapping[str, str]],
        limits: RetryLimits = RetryLimits(),
        limit_s: Callable[[], Optional[float]] = lambda: None,
        negotiate: Optional[Callable[[str], Negotiation]] = None,
    ) -> None:
        self.service = service
        self._identity = identity
        self._negotiate = negotiate
        self._limits = limits
        self._limit_s = limit_s
        self._active = 0
        self._has_answered = False
        self._failed_until: Tuple[float, str] = (0.0, "")  # until then calls fail with this text
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

    def call(self, method: str, path: str, operation: str, **more: str) -> NameNodeResponse:
        """Call an operation on a path.

        Raises :class:`RequestRefused` or :class:`NameNodeUnreachable`.
        """
        identity = self._identity()
        target = _target(path, {"op": operation, **identity, **more})
        is_renewed = False
        started = time.monotonic()
        until, why = self._failed_until
        if started < until:
            raise NameNodeUnreachable(why)
        count = len(self.service.addresses)
        limit_s = self._limit_s()
        call_s = CALL_S if self._limits.call_s is None else self._limits.call_s
        if limit_s is not None:
            call_s = min(call_s, limit_s / count)
        current, failures, pauses, unsure = self._active, 0, 0, False
        while True:
            try:
                reply = self._exchange(
                    self.service.addresses[current], method, target, operation, call_s
                )
            except (NameNodeUnreachable, _RetryLater) as error:
                another = True
                if isinstance(error, NameNodeUnreachable):
                    unsure = unsure or error.sent
                else:
                    self._has_answered = True
                    if refuses_token(error.refusal) and not is_renewed:
                        newest = self._identity()  # it may have been replaced since we took it
                        if newest != identity:
                            target = _target(path, {"op": operation, **newest, **more})
                            is_renewed = True
                            continue
                    another = error.refusal.name in _STANDBY
                    if not another and not self._may_recover(error.refusal):
                        raise RequestRefused(error.refusal, unsure) from None
                if another:
                    current = (current + 1) % count
                    failures += 1
                    if failures % count:
                        continue
                pause = min(_FIRST_PAUSE_S * (1 << min(pauses, 16)), _LONGEST_PAUSE_S)
                pause *= 0.5 + random.random() / 2
                pauses += 1
                if time.monotonic() + pause >= started + self._seconds(limit_s):
                    raise self._give_up(error, time.monotonic() - started, limit_s) from None
                time.sleep(pause)
                continue
            self._active = current
            self._has_answered = True
            return NameNodeResponse(reply.body, reply.location, unsure)

    def _may_recover(self, refusal: RemoteException) -> bool:
        """Whether the same server may serve the request later."""
        if refusal.name in _LATER:
            return True
        if not self._limits.thorough or 300 <= refusal.status < 400:
            return False
        if any(words in refusal.text for words in NO_NODE):
            return False  # the caller tries again with any node
        return not refusal.name or refusal.status >= 500 or refusal.name in _MUCH_LATER

    # ------------------------------------------------------------------ one server

    def _exchange(
        self, address: Address, method: str, target: str, operation: str, call_s: float
    ) -> NameNodeResponse:
        """Send a request by a kept connection, or by a new one if the server has closed that."""
        deadline = time.monotonic() + call_s
        sent = False
        while True:
            connection = None
            try:
                connection = self._take(address, deadline)
                kept = connection.used
                sent = True
                response = connection.request(method, target)
                most = LONGEST_RESPONSE if response.status < 300 else _LONGEST_ERROR
                body = response.read(most)
            except OSError as error:
                if connection is not None:
                    connection.close()
                    if kept and time.monotonic() < deadline:
                        continue
                raise NameNodeUnreachable(
                    f"{address}: {describe_error(error)}", sent=sent
                ) from None
            except BaseException:  # of the authentication
                if connection is not None:
                    connection.close()
                raise
            if response.reusable:
                self._give_back(connection)
            else:
                connection.close()
            redirected = operation in _REDIRECTED and 300 <= response.status < 400
            if redirected and response.headers.get("location"):
                return NameNodeResponse(b"", response.headers["location"])
            if not 200 <= response.status < 300:
                raise _RetryLater(parse_remote_exception(response.status, body, str(address)))
            return NameNodeResponse(body)

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
            connect_s = CONNECT_S if self._has_answered else self._limits.first_s
            service = self.service
            negotiation = self._negotiate(address.host) if self._negotiate is not None else None
            found = Connection(
                address, service.tls, deadline, CALL_S, connect_s, service.authorities
            )
            found.negotiation = negotiation
            return found
        found.until(deadline)
        return found

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if len(self._idle) > _MOST_IDLE else None
        if surplus is not None:
            surplus.close()

    def _seconds(self, limit_s: Optional[float]) -> float:
        most = self._limits.seconds if limit_s is None else min(limit_s, self._limits.seconds)
        return most if self._has_answered else min(self._limits.first_s, most)

    def _give_up(
        self, error: Exception, seconds: float, limit_s: Optional[float]
    ) -> NameNodeUnreachable:
        names = " and ".join(str(address) for address in self.service.addresses)
        why = f"{self.service.name} ({names}) did not serve us for {seconds:.0f} s: {error}"
        remembered = max(REMEMBERED_S, limit_s or 0.0)
        self._failed_until = (time.monotonic() + remembered, why)
        return NameNodeUnreachable(why)


def _target(path: str, words: Mapping[str, str]) -> str:
    return f"{_PREFIX}{quote(path)}?{urlencode(words, quote_via=quote)}"
