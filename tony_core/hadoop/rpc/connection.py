"""A connection over a blocking socket, with a deadline for each operation.

A connection serves one call at a time; who wants more at a time opens more connections.
Whatever goes wrong ends it: the next call takes a new one.
"""

from __future__ import annotations

import select
import socket
import time
from typing import NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.errors import (
    AuthenticationError,
    DeadlineExceeded,
    HadoopError,
    ProtocolError,
    Unreachable,
    remote_error,
)
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.rpc.sasl import STRENGTH
from tony_core.hadoop.rpc.wire import CallFailed, CallResult, Identity, Wire

PING_S = 30.0
"""While we wait, the server hears from us this often, and we notice when it is gone."""

_CHUNK = 256 << 10


class Address(NamedTuple):
    """Host and port of a server, as configured."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Endpoints(NamedTuple):
    """The addresses of a service, and a note for the error when none of them answers."""

    service: str  # its name in messages
    addresses: Tuple[Address, ...]
    note: str = ""
    tls: bool = False  # of a web address
    principals: Tuple[str, ...] = ()  # of the servers, as many as addresses; with Kerberos only
    principal_note: str = ""  # which property names them

    @property
    def urls(self) -> Tuple[str, ...]:
        """The base URLs of a web service."""
        scheme = "https" if self.tls else "http"
        return tuple(f"{scheme}://{address}" for address in self.addresses)


class Deadline:
    """A time limit for an operation, which error messages name."""

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self.what = what

    def remaining(self) -> float:
        """The seconds left; 0 when it has expired."""
        return max(0.0, self._end - time.monotonic())

    def shortened(self, seconds: float, what: str) -> Deadline:
        """A deadline for a step of the operation, which ends with this one at the latest."""
        return Deadline(min(seconds, self.remaining()), what)

    def timeout_error(self, detail: str = "", *, sent: bool = False) -> DeadlineExceeded:
        """The error to raise when it has expired."""
        tail = f": {detail}" if detail else ""
        return DeadlineExceeded(
            f"{self.what} took more than {self._seconds:.3g} s{tail}", sent=sent
        )


class Connection:
    """An open connection to a server of Hadoop."""

    def __init__(
        self,
        address: Address,
        protocol: str,
        client_id: bytes,
        identity: Identity,
        deadline: Deadline,
        *,
        principal: str = "",
        allowed: Sequence[str] = STRENGTH,
    ) -> None:
        self.address = address
        self.identity = identity
        self._wire = Wire(protocol, client_id, identity, principal=principal, allowed=allowed)
        self._closed = False
        self._sock = self._open(deadline)

    def call(
        self, call_id: int, method: str, request: Message, deadline: Deadline, *, retry: int = 0
    ) -> bytes:
        """Make a call; returns the encoded response."""
        sent = False
        try:
            self._wire.call(call_id, method, request, retry=retry)
            while True:
                self._send_all(deadline)
                sent = sent or self._wire.ready
                data = self._receive(deadline)
                for event in self._wire.receive(data):
                    if isinstance(event, CallResult) and event.call_id == call_id:
                        return event.body
                    if isinstance(event, CallFailed) and (event.fatal or event.call_id == call_id):
                        if event.fatal:
                            self.close()
                        raise remote_error(
                            event.remote_class,
                            event.message,
                            method=method,
                            server=str(self.address),
                            fatal=event.fatal,
                        )
        except OSError as error:
            self.close()
            raise Unreachable(f"{self.address}: {_words(error)}", sent=sent) from None
        except HadoopError as error:
            raise self._failure(error, sent) from None

    def _failure(self, error: HadoopError, sent: bool) -> HadoopError:
        """Complete a call's error; closes the connection if it cannot be used any more."""
        if isinstance(error, ProtocolError) and not self._wire.ready:
            error = AuthenticationError(str(error))
        if isinstance(error, Unreachable):
            error.sent = sent
        if isinstance(error, Unreachable) or self._wire.broken:
            self.close()
        if not error.args or str(self.address) not in str(error):
            error.args = (f"{self.address}: {error}", *error.args[1:])
        return error

    def is_stale(self) -> bool:
        """Whether the server has closed it meanwhile (it never sends unrequested data)."""
        if self._closed:
            return True
        try:
            readable, _, _ = select.select([self._sock], [], [], 0)
        except (OSError, ValueError):
            return True
        return bool(readable)

    def abort(self) -> None:
        """Abort a :meth:`call` with :class:`Unreachable`; from any thread."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # not connected any more

    def close(self) -> None:
        """Close the socket; only from the calling thread."""
        self._closed = True
        self._sock.close()

    # ---------------------------------------------------------------- the socket

    def _open(self, deadline: Deadline) -> socket.socket:
        try:
            sock = socket.create_connection(
                (self.address.host, self.address.port), timeout=max(deadline.remaining(), 0.001)
            )
        except socket.timeout:
            raise deadline.timeout_error(f"no connection to {self.address}") from None
        except OSError as error:
            raise Unreachable(f"{self.address}: {_words(error)}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock

    def _send_all(self, deadline: Deadline) -> None:
        data = self._wire.outgoing()
        if data:
            self._sock.settimeout(max(deadline.remaining(), 0.001))
            try:
                self._sock.sendall(data)
            except socket.timeout:
                raise deadline.timeout_error(f"{self.address} takes no more bytes") from None

    def _receive(self, deadline: Deadline) -> bytes:
        while True:
            left = deadline.remaining()
            if not left:
                raise deadline.timeout_error(f"no answer from {self.address}")
            self._sock.settimeout(min(left, PING_S))
            try:
                data = self._sock.recv(_CHUNK)
            except socket.timeout:
                if self._wire.ready and deadline.remaining():
                    self._wire.ping()
                    self._send_all(deadline)
                continue
            if not data:
                raise Unreachable(f"{self.address}: the server closed the connection")
            return data


def _words(error: OSError) -> str:
    """The reason in a socket's error."""
    if isinstance(error, socket.gaierror):
        return f"this name is not known ({error.strerror})"
    text: Optional[str] = error.strerror
    return (text or str(error) or type(error).__name__).lower()
