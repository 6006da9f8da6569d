"""Calls to a service of Hadoop, with retries, failover and a kept connection.

A call has one id through all its attempts, and says how often it was tried before, so that a
server that remembers its answers can give the same one again. Every call has a time in which
all attempts must come to an end; the error then says what each server answered last.
"""

from __future__ import annotations

import os
import random
import threading
from typing import (
    Callable,
    Dict,
    Generic,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from tony_core.hadoop.errors import (
    AuthenticationError,
    Closed,
    CredentialRefused,
    DeadlineExceeded,
    HadoopError,
    KdcUnreachable,
    LoginError,
    ProtocolError,
    Remedy,
    Unreachable,
)
from tony_core.hadoop.rpc.connection import Address, Connection, Deadline, Endpoints
from tony_core.hadoop.rpc.protobuf import DecodeError, Message
from tony_core.hadoop.rpc.sasl import STRENGTH
from tony_core.hadoop.rpc.wire import Identity

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

_CLOSE_S = 5.0  # for a call under way to notice that its connection was ended


class Method(Generic[Request, Response]):
    """A method of a protocol.

    ``repeatable``: repeating it has no effect; so it may be sent again when it is unknown
    whether it arrived.
    """

    def __init__(
        self, name: str, request: Type[Request], response: Type[Response], repeatable: bool = True
    ) -> None:
        self.name = name
        self.request = request
        self.response = response
        self.repeatable = repeatable


class CallTimeouts(NamedTuple):
    """Time limits in seconds."""

    connect_s: float = 5.0  # to one server
    answer_s: float = 20.0  # one attempt, handshake included
    total_s: float = 30.0  # all attempts of a call, unless it says otherwise


class Service:
    """A service on one server, or on several of which one is active.

    Safe to use from several threads; their calls go one after the other.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        protocol: str,
        identity: Identity,
        *,
        allowed: Sequence[str] = STRENGTH,
        limits: CallTimeouts = CallTimeouts(),
        failover: Optional[Failover] = None,
    ) -> None:
        self.name = endpoints.service
        self.addresses = endpoints.addresses
        self._principals = dict(zip(endpoints.addresses, endpoints.principals))
        self.protocol = protocol
        self._identity = identity
        self._allowed = tuple(allowed)
        self._limits = limits
        self._note = endpoints.note
        self._principal_note = endpoints.principal_note
        self._failover = failover or Failover(len(self.addresses))
        self._client_id = os.urandom(16)
        self._calls = 0
        self._connection: Optional[Connection] = None
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def address(self) -> Address:
        """The server that answered last; the next call tries it first."""
        return self.addresses[self._failover.current]

    def use(self, identity: Identity) -> None:
        """Use a new token from the next call on, by a new connection."""
        self._identity = identity

    def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        within_s: Optional[float] = None,
    ) -> Response:
        """Make a call; raises the error of the last attempt."""
        total = self._limits.total_s if within_s is None else within_s
        deadline = Deadline(total, f"{method.name} of {self.name}")
        if not self._lock.acquire(timeout=min(total, threading.TIMEOUT_MAX)):
            raise deadline.timeout_error("another call is still under way")
        try:
            return self._attempts(method, request, deadline)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Refuse further calls; one under way ends with :class:`Closed`."""
        self._closing.set()
        connection = self._connection
        if connection is not None:
            connection.abort()
        if self._lock.acquire(timeout=_CLOSE_S):
            self._drop()
            self._lock.release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- attempts

    def _attempts(
        self, method: Method[Request, Response], request: Request, deadline: Deadline
    ) -> Response:
        call_id = self._calls
        self._calls = (self._calls + 1) & 0x7FFFFFFF
        seen: Dict[Address, str] = {}
        attempt = 0
        while True:
            address = self.address
            try:
                body = self._attempt(address, method, request, deadline, call_id, attempt)
                answer = method.response.decode(body)
            except DecodeError as error:
                self._drop()
                raise ProtocolError(f"{address} answered to {method.name}: {error}") from None
            except HadoopError as error:
                if self._closing.is_set():
                    raise Closed(f"{self.name} was closed during {method.name}") from None
                seen[address] = str(error)
                pause = self._failover.record_failure(error, repeatable=method.repeatable)
                if pause is None or error.remedy is Remedy.FAILOVER:
                    self._drop_if_fatal(error)
                if pause is None:
                    raise self._add_note(error) from None
                if pause >= deadline.remaining():
                    raise self._final_error(method, deadline, error, seen, attempt + 1) from None
                if pause and self._closing.wait(pause):
                    raise Closed(f"{self.name} was closed during {method.name}") from None
                attempt += 1
            else:
                self._failover.record_success()
                return answer

    def _attempt(
        self,
        address: Address,
        method: Method[Request, Response],
        request: Request,
        deadline: Deadline,
        call_id: int,
        attempt: int,
    ) -> bytes:
        if self._closing.is_set():
            raise Closed(f"{self.name} is closed")
        connection = self._connection
        if (
            connection is None
            or connection.address != address
            or connection.identity != self._identity
            or connection.is_stale()
        ):
            self._drop()
            connect = deadline.shortened(self._limits.connect_s, f"connecting to {self.name}")
            connection = self._connection = Connection(
                address,
                self.protocol,
                self._client_id,
                self._identity,
                connect,
                principal=self._principals.get(address, ""),
                allowed=self._allowed,
            )
            if self._closing.is_set():
                self._drop()
                raise Closed(f"{self.name} is closed")
        one = deadline.shortened(self._limits.answer_s, f"{method.name} of {self.name}")
        return connection.call(call_id, method.name, request, one, retry=attempt)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop_if_fatal(self, error: HadoopError) -> None:
        if isinstance(error, Unreachable) or getattr(error, "fatal", False):
            self._drop()

    def _add_note(self, error: HadoopError) -> HadoopError:
        # A note is about this service's address, or about who the server has to be.
        note = self._note
        if isinstance(error, (CredentialRefused, LoginError)):
            is_named = any(name in str(error) for name in self._principals.values())
            note = self._principal_note if is_named else ""
        elif isinstance(error, KdcUnreachable) or not isinstance(error, Unreachable):
            note = ""
        if note:
            error.args = (f"{error}. {note}",)
        return error

    def _final_error(
        self,
        method: Method[Request, Response],
        deadline: Deadline,
        error: HadoopError,
        seen: Dict[Address, str],
        attempts: int,
    ) -> HadoopError:
        if not isinstance(error, Unreachable) and len(self.addresses) == 1:
            return error
        words = "; ".join(dict.fromkeys(seen.values()))
        many = f" ({attempts} attempts)" if attempts > 1 else ""
        note = f". {self._note}" if self._note else ""
        sent = isinstance(error, Unreachable) and error.sent
        kinds: Tuple[Type[Unreachable], ...] = (DeadlineExceeded, AuthenticationError)
        kind = next((kind for kind in kinds if isinstance(error, kind)), Unreachable)
        return kind(
            f"{self.name} cannot be reached for {method.name}{many}: {words}{note}", sent=sent
        )


Self = TypeVar("Self", bound=Service)


FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class Failover:
    """Chooses among ``count`` servers; remembers the one that answered."""

    def __init__(
        self,
        count: int,
        *,
        first_pause: float = FIRST_PAUSE_S,
        longest_pause: float = LONGEST_PAUSE_S,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if count < 1:
            raise ValueError("there is no server to choose")
        self._count = count
        self._first = first_pause
        self._longest = longest_pause
        self._jitter = jitter
        self._pauses = 0
        self._tried = 0
        self._failures = 0  # since the last answer
        self.current = 0

    def record_success(self) -> None:
        """Record that the current server answered: pauses are short again."""
        self._pauses = 0
        self._tried = 0
        self._failures = 0

    def record_failure(self, error: HadoopError, *, repeatable: bool = True) -> Optional[float]:
        """Record a failure; the seconds to wait before trying :attr:`current`, which may change.

        ``None``: trying again cannot help, or might do the same thing twice.
        """
        if error.remedy is Remedy.NONE:
            return None
        if isinstance(error, Unreachable) and error.sent and not repeatable:
            return None
        if error.remedy is Remedy.RETRY:
            return self._pause()
        self._failures += 1
        if isinstance(error, CredentialRefused) and self._failures >= self._count:
            self._failures = 0
            return None
        self.current = (self.current + 1) % self._count
        self._tried += 1
        if self._tried < self._count:
            return 0.0
        self._tried = 0
        return self._pause()

    def _pause(self) -> float:
        pause = min(self._first * (1 << min(self._pauses, 16)), self._longest)
        self._pauses += 1
        return pause * (0.5 + self._jitter() / 2)
