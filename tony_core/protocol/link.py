"""A channel on a socket: dialling, listening, writing without waiting, noticing the end.

A :class:`Link` ends once, with a reason in words, however it ends. It has three deadlines: the
handshake's (a peer that sends nothing, or sends it slowly, holds nothing for longer), the silence
that :meth:`Link.limit_silence` allows, and the time that :meth:`Link.flush_then_close` gives the
last bytes.

What a peer sends before it has authenticated can end its own link only, even where it meets a bug
of ours (:class:`~tony_core.protocol.reactor.GuardedReactor`).

:class:`PlainTransport` is all that touches the socket; TLS is another class with its methods
(``tls.py``). ``handshake_limiter.py`` bounds how many peers of a listener are not authenticated.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Tuple

from tony_core.protocol.channel import Channel
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import Message
from tony_core.protocol.reactor import GuardedReactor, Reactor, Timer

if TYPE_CHECKING:
    from tony_core.protocol.resolver import Address, Lookup

HANDSHAKE_S = 10.0
FLUSH_S = 5.0
MAX_UNWRITTEN = 64 * 1024 * 1024
_READ_SIZE = 64 * 1024
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EFAULT)  # our own mistakes


class PlainTransport:
    """A non-blocking TCP socket, read and written as it is."""

    def __init__(self, sock: socket.SocketType) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock

    def read(self) -> Optional[bytes]:
        """The bytes that are there; None when there are none yet, empty at the end."""
        try:
            return self.sock.recv(_READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, data: bytes) -> int:
        """Write; returns how many of the bytes were taken."""
        try:
            return self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def flush(self) -> None:
        """Do nothing: no bytes wait here."""

    def blocked(self, unwritten: bool) -> bool:
        """Whether the socket is waited for; ``unwritten``: there is what it did not take."""
        return unwritten

    def close(self) -> None:
        """Close it."""
        self.sock.close()


class Link:
    """A channel on a connected socket.

    ``on_closed`` is called exactly once, unless :meth:`close` was.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: Any,  # a connected socket, or something like PlainTransport
        channel: Channel,
        on_message: Callable[[Link, Message], None],
        on_closed: Callable[[Link, str], None],
        on_established: Optional[Callable[[Link], None]] = None,
        *,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self.received_at = reactor.now()
        self.closed = False
        self._reactor = reactor = GuardedReactor(reactor, self._failed)
        self._transport = PlainTransport(sock) if isinstance(sock, socket.SocketType) else sock
        self._channel = channel
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_established = on_established
        self._unwritten = bytearray()
        self._waits_to_write = False
        self._closing = False
        self._silence_s = 0.0
        self._silence: Optional[Timer] = None
        self._deadline: Optional[Timer] = reactor.call_later(
            handshake_s, self._end, f"the peer did not authenticate within {handshake_s:g} s"
        )
        self.peer = _peer_of(self._transport.sock)
        reactor.watch(self._transport.sock, self._readable)
        # Not now: the owner has not even got this object yet, and the write may fail.
        self._first = reactor.call_later(0, self._write)

    @property
    def established(self) -> bool:
        """Whether the peer has proved who it is."""
        return self._channel.established

    def speaks_for(self, container_id: str) -> bool:
        """Whether the peer has proved to be the executor in this container."""
        return self._channel.speaks_for(container_id)

    def send(self, message: Message, raw: Mapping[str, bytes] = {}) -> None:
        """Send, as soon as the peer is authenticated; does nothing on a closed link."""
        if self.closed or self._closing:
            return
        self._channel.send(message, raw)
        self._write()

    def limit_silence(self, seconds: float) -> None:
        """End the link when nothing is received for so long; 0 is never."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._silence_s = seconds
        if seconds > 0 and not self.closed:
            self._silence = self._reactor.call_later(seconds, self._check_silence)

    def close(self) -> None:
        """End it now; ``on_closed`` is not called."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._deadline, self._silence, self._first):
            if timer is not None:
                timer.cancel()
        self._reactor.unwatch(self._transport.sock)
        self._transport.close()

    def flush_then_close(self, seconds: float = FLUSH_S) -> None:
        """End it when what was sent has left, or after so long; ``on_closed`` is called."""
        if self.closed or self._closing:
            return
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._reactor.call_later(
            seconds, self._end, f"the peer did not take the last message within {seconds:g} s"
        )
        self._write()

    # ------------------------------------------------------------------ what happens

    def _readable(self) -> None:
        try:
            data = self._transport.read()
        except OSError as error:
            self._end(f"the connection broke: {error.strerror or error}")
            return
        if data is None:
            self.received_at = self._reactor.now()
            self._write()  # a handshake below may be done now
            return
        if not data:
            self._end("the peer closed the connection")
            return
        self._received(data)

    def _received(self, data: bytes) -> None:
        before = self._channel.established
        self.received_at = self._reactor.now()
        try:
            found = self._channel.receive(data)
        except ProtocolError as error:
            self._send_proof()
            self._end(str(error))
            return
        if self._channel.established and not before:
            if self._deadline is not None and not self._closing:
                self._deadline.cancel()
                self._deadline = None
            if self._on_established is not None:
                self._on_established(self)
        for message in found:
            if self.closed:
                return
            self._on_message(self, message)
        if self.closed:
            return
        if self._channel.failure is not None:
            self._end(str(self._channel.failure))
            return
        self._write()

    def _write(self) -> None:
        if self.closed:
            return
        self._unwritten += self._channel.outgoing()
        try:
            self._transport.flush()
            while self._unwritten:
                taken = self._transport.write(bytes(self._unwritten[:_READ_SIZE]))
                if not taken:
                    break
                del self._unwritten[:taken]
        except OSError as error:
            # Not inside the owner's send(): it may be in the middle of something.
            reason = f"the connection broke: {error.strerror or error}"
            self._unwritten.clear()
            self._reactor.call_later(0, self._end, reason)
            return
        blocked = self._transport.blocked(bool(self._unwritten))
        if len(self._unwritten) > MAX_UNWRITTEN:
            self._unwritten.clear()
            self._reactor.call_later(0, self._end, "the peer does not read what it is sent")
        elif blocked != self._waits_to_write:
            self._waits_to_write = blocked
            self._reactor.watch(
                self._transport.sock,
                self._readable,
                self._write if self._waits_to_write else None,
            )
        if self._closing and not (self._unwritten or blocked) and self._channel.established:
            self._reactor.call_later(0, self._end, "closed by us")

    def _send_proof(self) -> None:
        """Send our own proof, which may not have left yet: the peer learns from it why we close."""
        try:
            self._transport.write(bytes(self._unwritten) + self._channel.outgoing())
        except OSError:
            pass  # the peer has closed it already

    def _check_silence(self) -> None:
        silent = self._reactor.now() - self.received_at
        if silent >= self._silence_s:
            self._end(f"nothing was received for {silent:.1f} s")
        else:
            self._silence = self._reactor.call_later(self._silence_s - silent, self._check_silence)

    def _failed(self, error: Exception) -> bool:
        if self.closed or self.established:
            return False  # our own doing, or an authenticated peer's
        self._end(f"what it sent made our own code fail: {type(error).__name__}")
        return True

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._on_closed(self, reason)


class Listener:
    """A listening socket; ``port`` is the one it got."""

    def __init__(
        self, reactor: Reactor, sock: socket.socket, on_socket: Callable[[socket.socket], None]
    ) -> None:
        self.port: int = sock.getsockname()[1]
        self._reactor = reactor
        self._sock = sock
        self._on_socket = on_socket
        self._closed = False
        self._resume: Optional[Timer] = None
        self._paused = False
        reactor.watch(sock, self._accept)

    def _accept(self) -> None:
        for _ in range(64):  # others want their turn too
            if self._closed or self._paused:
                return
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _BROKEN:
                    raise
                if error.errno not in _FULL:
                    continue  # that connection's trouble, which accept passes on
                # Out of descriptors: a readable listener would spin. Look again in a moment.
                self._reactor.unwatch(self._sock)
                self._resume = self._reactor.call_later(0.5, self._watch_again)
                return
            try:
                self._on_socket(sock)
            except OSError:
                sock.close()  # it had gone, or the system has no room for it
            except Exception as error:
                sock.close()
                self._reactor.report(error)

    def _watch_again(self) -> None:
        self._resume = None
        if not (self._closed or self._paused):
            self._reactor.watch(self._sock, self._accept)

    def pause(self) -> None:
        """Leave callers in the kernel's backlog, until :meth:`resume`."""
        if not (self._closed or self._paused):
            self._paused = True
            self._reactor.unwatch(self._sock)

    def resume(self) -> None:
        """Accept callers again."""
        if self._paused:
            self._paused = False
            if self._resume is None:
                self._watch_again()

    def close(self) -> None:
        """Stop listening; what was accepted stays."""
        if not self._closed:
            self._closed = True
            if self._resume is not None:
                self._resume.cancel()
            self._reactor.unwatch(self._sock)
            self._sock.close()


def listen(
    reactor: Reactor,
    host: str,
    port: int,
    on_socket: Callable[[socket.socket], None],
    backlog: int = 1024,
) -> Listener:
    """Listen; port 0 is any. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return Listener(reactor, sock, on_socket)


class Dial:
    """A connection being made; see :func:`dial`."""

    def __init__(
        self,
        reactor: Reactor,
        address: str,
        on_socket: Callable[[socket.socket], None],
        on_failed: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._on_socket = on_socket
        self._on_failed = on_failed
        self._sock: Optional[socket.socket] = None
        self._done = False
        self._reason = "it has no address"
        self._candidates: List[Tuple[int, Any]] = []
        self._lookup: Optional[Lookup] = None
        self._timer = reactor.call_later(timeout_s, self._fail, f"no answer within {timeout_s:g} s")
        self._start = reactor.call_later(0, self._resolve)

    def cancel(self) -> None:
        """Give up; neither callback is called any more."""
        self._done = True
        self._timer.cancel()
        self._start.cancel()
        if self._lookup is not None:
            self._lookup.cancel()
        self._drop()

    def _resolve(self) -> None:
        try:
            host, port = split_address(self._address)
        except ValueError as error:
            self._fail(str(error))
            return

        def found(addresses: List[Address]) -> None:
            self._candidates = [(kind, (at[0], port, *at[2:])) for kind, at in addresses]
            self._next()

        addresses = numeric_addresses(host)
        if addresses:
            found(addresses)
        else:
            from tony_core.protocol.resolver import RESOLVER  # its threads: 0.4 MB

            self._lookup = RESOLVER.addresses(self._reactor, host, found, self._fail)

    def _next(self) -> None:
        self._drop()
        while self._candidates and not self._done:
            family, where = self._candidates.pop(0)
            try:
                self._sock = socket.socket(family, socket.SOCK_STREAM)
                self._sock.setblocking(False)
                code = self._sock.connect_ex(where)
            except OSError as error:
                self._reason = error.strerror or str(error)
                self._drop()
                continue
            if code in (0, errno.EINPROGRESS):
                self._reactor.watch(self._sock, None, self._connected)
                return
            self._reason = os.strerror(code)
            self._drop()
        if not self._done:
            self._fail(self._reason)

    def _connected(self) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and _is_itself(sock):
            # A free port below the ephemeral range can connect to itself.
            code = errno.ECONNREFUSED
        if code:
            self._reason = os.strerror(code)
            self._next()
            return
        self._reactor.unwatch(sock)
        self._sock = None
        self.cancel()
        self._on_socket(sock)

    def _drop(self) -> None:
        if self._sock is not None:
            self._reactor.unwatch(self._sock)
            self._sock.close()
            self._sock = None

    def _fail(self, reason: str) -> None:
        if not self._done:
            self.cancel()
            self._on_failed(f"cannot connect to {self._address}: {reason}")


def dial(
    reactor: Reactor,
    address: str,
    on_socket: Callable[[socket.socket], None],
    on_failed: Callable[[str], None],
    timeout_s: float = 10.0,
) -> Dial:
    """Connect to ``host:port``; exactly one of the callbacks is called, unless cancelled."""
    return Dial(reactor, address, on_socket, on_failed, timeout_s)


def split_address(address: str) -> Tuple[str, int]:
    """``host:port`` or ``[v6]:port``; raises ValueError."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not host or not is_number or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def numeric_addresses(host: str) -> List[Address]:
    """The address that is written in digits, as (family, socket address with port 0).

    Empty when it is a name. Does not block.
    """
    try:
        # As bytes: a str would bring in the tables of international names, 1 MB.
        found = socket.getaddrinfo(
            host.encode(), 0, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST
        )
    except (OSError, ValueError):
        return []
    return [(entry[0], entry[4]) for entry in found]


def _is_itself(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:
        return False


def _peer_of(sock: Any) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return "?"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
