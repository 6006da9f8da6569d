"""A small HTTP/1.1 server on the master's one thread.

The job's page has a handful of readers: a client that polls, a browser or two, a proxy. The
standard library's server would need a thread for each reader and 8 MB of modules; this one is a
parser, a connection and a table of limits on the reactor that is there anyway.

A connection reads one request at a time, hands it to the *handler* with an
:class:`Exchange`, and reads on once that was answered; the answer may come at any time (a
long poll), in one piece or as a stream that ends with the connection (a relay). Limits: a
request's head and body, the number of connections, how long one may be idle or refuse to
take what is sent, how long a request may take to come, and what all the unread bodies may
hold together. How large a body may be, the page says by the request's head, so a stranger's is
refused before it comes. A connection with several pipelined requests gets one answer per reactor
turn, and the next when the peer has taken the answer. Only GET, HEAD, POST and PUT are read at
all; the handler decides what may be posted, except that a page of another site posts nothing
here, by a browser's own account of where the request comes from. A handler may raise
:class:`BadRequest`, too.

The server checks each peer once, when it accepts the connection (:class:`Admission`). Connections
that are not trusted share few places and are the first to make room, so they cannot keep out
those that are; a refused connection gets one answer with the reason.

Whatever belongs to a request waits on :attr:`Exchange.reactor`, so that an exception in it ends
the connection and nothing else.
"""

from __future__ import annotations

import resource
import socket
from types import MappingProxyType
from typing import Callable, List, Mapping, NamedTuple, Optional, Set, Tuple

from tony_core.master.web.request import MAX_BODY, MAX_HEAD, BadRequest, Head, Request, parse_head
from tony_core.protocol.link import Listener, listen
from tony_core.protocol.reactor import GuardedReactor, Reactor, Timer

MAX_BODIES = 4 * MAX_BODY  # of all bodies but the small ones, while they have not come whole
SMALL_BODY = 4096  # anybody may send one
MAX_CONNECTIONS = 128
MAX_UNTRUSTED = 32  # of them, and an eighth of what files this process may open
IDLE_S = 70.0  # longer than a long poll
REQUEST_S = 30.0  # from a request's first byte to its last
HIGH_WATER = 1 << 20

_REASONS = {
    200: "OK", 302: "Found", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 410: "Gone", 413: "Content Too Large",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}  # fmt: skip


_TEXT_ONLY = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = MappingProxyType({})


class Admission(NamedTuple):
    """The other end of a connection, as known when the server accepts it."""

    trusted: bool
    refusal: str = ""  # answered to every request, if there is one


class Exchange:
    """Takes the answer to one request. The first answer counts."""

    def __init__(self, connection: _Connection, request: Request) -> None:
        self._connection = connection
        self.request = request
        self.done = False
        self.streams = False  # an answer has begun
        self.on_gone: Optional[Callable[[], None]] = None  # the reader went away
        self.on_drain: Optional[Callable[[], None]] = None  # a stream's backlog was taken

    def trust(self) -> None:
        """The handler has found out who asks, and lets the connection keep its place."""
        self._connection.trusted = True

    def handle(self, handler: Handler) -> None:
        """Let this handler answer, now or later; what it raises becomes the answer."""
        self._connection.handle(self, handler)

    def close_after(self) -> None:
        """Let the answer be the connection's last."""
        self.request = self.request._replace(keep_alive=False)

    def peer(self) -> str:
        return self._connection.peer

    @property
    def reactor(self) -> GuardedReactor:
        """What waits for anything on behalf of this request: trouble ends its connection only."""
        return self._connection.reactor

    def answer(self, answer: Response) -> None:
        if self.done:
            return
        headers = {"Content-Type": answer.content_type, **answer.headers}
        if answer.status != 304:
            headers["Content-Length"] = str(len(answer.body))
        keep = self.request.keep_alive
        body = b"" if self.request.method == "HEAD" else answer.body
        head = _head(answer.status, headers, keep)
        self.done = True
        self._connection.send(head + body)
        self._connection.answered(keep)

    def stream(self, status: int, headers: List[Tuple[str, str]]) -> None:
        """Begin an answer whose end is the connection's."""
        self.streams = True
        self._connection.send(_head(status, headers, keep=False))

    def write(self, data: bytes) -> int:
        """Send more of a stream; returns how many bytes wait to be taken."""
        if not self.done:
            self._connection.send(data)
        return self._connection.backlog

    def end(self) -> None:
        """End the stream: it is complete."""
        if not self.done:
            self.done = True
            self._connection.answered(keep=False)


Handler = Callable[[Exchange], None]
BodyLimit = Callable[[Request], int]  # by a request's head
Screen = Callable[[socket.socket], Admission]


def _head(status: int, headers: Mapping[str, str] | List[Tuple[str, str]], keep: bool) -> bytes:
    pairs = headers if isinstance(headers, list) else list(headers.items())
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in pairs]
    lines.append(f"Connection: {'keep-alive' if keep else 'close'}")
    text = "\r\n".join(lines)
    if any(mark in f"{name}{value}" for name, value in pairs for mark in "\r\n"):
        raise ValueError("a line break in an answer's head")
    return text.encode("latin-1", "replace") + b"\r\n\r\n"


class _Connection:
    def __init__(
        self,
        server: WebServer,
        sock: socket.socket,
        peer: str,
        admission: Admission,
        handler: Handler,
    ) -> None:
        self._server = server
        self._handler = handler
        self._sock = sock
        self.reactor = GuardedReactor(server.reactor, self._failed)
        self.peer = peer
        self.trusted = admission.trusted
        self._refusal = admission.refusal
        self._in = bytearray()
        self._out = bytearray()
        self._current: Optional[Exchange] = None
        self._closing = False
        self._closed = False
        self.active = server.reactor.now()  # when a byte last moved
        self.request_began_at: Optional[float] = None  # while a request has not come whole
        self.held = 0  # of what all bodies may hold
        self._head: Optional[Head] = None
        self._to_go_on: Optional[Timer] = None
        self._watch()

    @property
    def backlog(self) -> int:
        """Bytes that the reader has not taken yet."""
        return len(self._out)

    @property
    def waits(self) -> bool:
        """Whether an answer is still owed."""
        return self._current is not None

    def send(self, data: bytes) -> None:
        """Queue bytes, and send what the socket takes at once."""
        if self._closed:
            return
        self._out += data
        self._flush()

    def answered(self, keep: bool) -> None:
        """Go on after the current request got its answer."""
        self._current = None
        self._closing = self._closing or not keep
        if self._closing and not self._out:
            self.close()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """With the next request, in a later turn: others are waiting, too."""
        if self._to_go_on is None or not self._to_go_on.active:
            self._to_go_on = self.reactor.call_later(0, self._next)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._in.clear()
        self._head = None
        self._hold()
        self.reactor.unwatch(self._sock)
        self._sock.close()
        self._server.forget(self)
        current, self._current = self._current, None
        if current is not None:
            current.done = True
            if current.on_gone is not None:
                self.reactor.call(current.on_gone)

    def _failed(self, error: Exception) -> bool:
        self.close()
        return True

    def finish(self) -> None:
        """Close the connection once what is queued was sent."""
        self._closing = True
        if not self._out and self._current is None:
            self.close()

    def _watch(self) -> None:
        on_write = self._flush if self._out else None
        self.reactor.watch(self._sock, on_read=self._read, on_write=on_write)

    def _read(self) -> None:
        try:
            data = self._sock.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.active = self.reactor.now()
        self._in += data
        self._next()
        if self._head is None and len(self._in) > MAX_HEAD + 65536:
            self.close()  # it asks without end, faster than it can be answered

    def _hold(self) -> None:
        """Count a body while it comes. A small one is bounded by the number of connections."""
        is_large = self._head is not None and self._head.length > SMALL_BODY
        held = len(self._in) if is_large else 0
        self._server.held += held - self.held
        self.held = held

    def _next(self) -> None:
        """Handle one request, if it is there, and the answer before it was taken."""
        if self._closed or self._closing or self._current is not None:
            return
        if len(self._out) > HIGH_WATER:
            return  # _flush comes back
        try:
            if self._head is None:
                self._head = parse_head(self._in)
                if self._head is not None:
                    self._check(self._head)
        except BadRequest as error:
            self._refuse(error)
            return
        request = None if self._head is None else self._head.take(self._in)
        if request is None:
            if self._in and self.request_began_at is None:
                self.request_began_at = self.reactor.now()
            self._hold()
            if self._server.held > MAX_BODIES:
                self._refuse(BadRequest(503, "too many bytes are posted at once; try again"))
            return
        self._head = self.request_began_at = None
        self._hold()
        self._current = exchange = Exchange(self, request)
        self.handle(exchange, self._handler)

    def _check(self, head: Head) -> None:
        """Refuse a request by its head, before its body is taken."""
        request = head.request
        if self._refusal:
            raise BadRequest(403, self._refusal)
        if request.method not in ("GET", "HEAD") and request.is_cross_site():
            raise BadRequest(403, "a page of another site may not post here")
        if head.length > SMALL_BODY:
            largest = self._server.body_limit(request)
            if head.length > largest:
                text = f"the body has {head.length} bytes; at most {largest} are taken of you here"
                raise BadRequest(413, text)

    def handle(self, exchange: Exchange, handler: Handler) -> None:
        try:
            handler(exchange)
        except BadRequest as error:
            exchange.answer(Response(error.status, f"{error}\n".encode(), headers=_TEXT_ONLY))
        except Exception as error:  # a reader's page is not worth the job's master
            self._server.on_error(exchange.request, error)
            self.reactor.report(error)
            if exchange.streams:
                self.close()
                return
            exchange.answer(Response(500, b"the page failed; the job is still running\n"))

    def _refuse(self, error: BadRequest) -> None:
        if self._current is not None:
            self.close()
            return
        self._in.clear()
        self._head = None
        self._hold()
        refused = Request("GET", "/", "/", {}, {}, keep_alive=False)
        self._current = Exchange(self, refused)
        self._current.answer(Response(error.status, f"{error}\n".encode(), headers=_TEXT_ONLY))

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            while self._out:
                sent = self._sock.send(memoryview(self._out)[:262144])
                del self._out[:sent]
                self.active = self.reactor.now()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if not self._out and self._closing and self._current is None:
            self.close()
            return
        self._watch()
        if self._in and self._current is None and len(self._out) <= HIGH_WATER:
            self._go_on()
        current = self._current
        if len(self._out) < HIGH_WATER // 2 and current is not None and current.on_drain:
            current.on_drain()


class WebServer:
    """Listens, and owns the connections."""

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        handler: Handler,
        on_error: Callable[[Request, Exception], None] = lambda request, error: None,
        screen: Screen = lambda sock: Admission(trusted=True),
        body_limit: BodyLimit = lambda request: MAX_BODY,
    ) -> None:
        self.reactor = reactor
        self.on_error = on_error
        self.body_limit = body_limit
        self._screen = screen
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most_untrusted = max(4, min(MAX_UNTRUSTED, soft // 8)) if soft > 0 else MAX_UNTRUSTED
        self.held = 0  # bytes of large bodies that have not come whole
        self._connections: Set[_Connection] = set()
        self._closed = False
        self._listeners: List[Listener] = []
        self.port = self.open(host, port, handler)
        self._sweeper = reactor.call_later(IDLE_S / 10, self._sweep)

    def open(self, host: str, port: int, handler: Handler) -> int:
        """Listen at one more port, with a handler of its own; returns the port. Raises OSError."""
        listener = listen(self.reactor, host, port, lambda sock: self._accepted(sock, handler))
        self._listeners.append(listener)
        return listener.port

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def stop_listening(self) -> None:
        """Take no further connections."""
        if not self._closed:
            self._closed = True
            self._sweeper.cancel()
            for listener in self._listeners:
                listener.close()

    def finish(self) -> int:
        """Close every connection once its answer is out; returns how many are left."""
        self.stop_listening()
        for connection in list(self._connections):
            connection.finish()
        return len(self._connections)

    def close(self) -> None:
        self.stop_listening()
        for connection in list(self._connections):
            connection.close()

    def _accepted(self, sock: socket.socket, handler: Handler) -> None:
        admission = self._screen(sock)
        if not self._make_room(admission.trusted):
            sock.close()
            return
        peer = sock.getpeername()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.add(_Connection(self, sock, str(peer[0]), admission, handler))

    def _make_room(self, trusted: bool) -> bool:
        """Whether there is room for one more; the connection that was idle longest may go."""
        strangers = [connection for connection in self._connections if not connection.trusted]
        if len(self._connections) < MAX_CONNECTIONS and (
            trusted or len(strangers) < self._most_untrusted
        ):
            return True
        idle = strangers
        if trusted and not idle:
            idle = [connection for connection in self._connections if not connection.waits]
        if not idle:
            return False
        min(idle, key=lambda connection: connection.active).close()
        return True

    def _sweep(self) -> None:
        """Close those that are silent, do not take their answer, or ask for ever."""
        now = self.reactor.now()
        oldest = now - IDLE_S
        for connection in list(self._connections):
            asks_for_ever = (connection.request_began_at or now) < now - REQUEST_S
            silent = connection.active < oldest and (connection.backlog or not connection.waits)
            if asks_for_ever or silent:
                connection.close()
        self._sweeper = self.reactor.call_later(IDLE_S / 10, self._sweep)
