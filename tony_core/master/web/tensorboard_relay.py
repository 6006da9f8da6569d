"""The chief's TensorBoard, through the master.

TensorBoard listens where only the master needs to reach it. Each request opens
one connection to it, asks it to close after the answer, and passes the bytes on as they
come, so that no chunking has to be understood; reading stops while the reader's
backlog is high. What changes: hop-by-hop headers, cookies, and redirects, which become
relative so that they hold behind any proxy.

Nothing of it outlives the job in a browser: the port may be another job's page tomorrow. So no
service worker is handed out, and what has a port of its own is not taken from a cache unasked.

What answers there may be anything: a training chooses it. :func:`parse_answer` alone reads the
head of an answer, and refuses with an :class:`AnswerError` what is not exactly HTTP, so
that neither this process nor a reader behind it has to guess; the reader gets a 502.
"""

from __future__ import annotations

import re
import socket
from typing import Callable, List, NamedTuple, Optional, Set, Tuple
from urllib.parse import quote, urlsplit

from tony_core.master.web.request import BadRequest, Request
from tony_core.master.web.server import HIGH_WATER, Exchange, Response
from tony_core.protocol.link import Dial, dial
from tony_core.protocol.reactor import Timer

CONNECT_S = 10.0
SILENT_S = 120.0  # TensorBoard may think about a large log folder
MAX_HEAD = 64 * 1024
MAX_HEADERS = 100
MAX_INTERIM = 10  # answers of the kind "100 Continue" before the one that counts
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "upgrade", "proxy-connection",
}  # fmt: skip
_NOT_SENT = {"host", "cookie", "authorization", "x-tony-client", "expect", "content-length"}
# What would hold for the whole host, and not for TensorBoard alone.
_NOT_RETURNED = {
    "set-cookie", "set-cookie2", "clear-site-data", "alt-svc", "strict-transport-security",
    "service-worker-allowed",
}  # fmt: skip
_CACHING = {"cache-control", "expires", "pragma", "age"}
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_PATH_SAFE = "/:@!$&'()*+,;=-._~"
_QUERY_SAFE = _PATH_SAFE + '?%[]"<>\\^`{|}'


class AnswerError(Exception):
    """The answer cannot be passed on; the message has the reason."""


class AnswerHead(NamedTuple):
    """How an answer begins, as it is passed on."""

    status: int
    headers: List[Tuple[str, str]]
    length: Optional[int] = None  # bytes of the body that follow; None: until the connection ends

    @property
    def is_interim(self) -> bool:
        """Whether the answer that counts is still to come."""
        return self.status < 200


class Relay:
    """One request on its way to a web server and its answer on the way back."""

    def __init__(
        self,
        exchange: Exchange,
        address: Tuple[str, int],
        path: str,
        problem_of: Callable[[socket.socket], str] = lambda sock: "",
        may_cache: bool = False,
    ) -> None:
        """``problem_of`` a connection: why nothing may be sent there; empty when something may.

        ``may_cache``: the address that the reader uses will never be another job's.
        """
        self._reactor = exchange.reactor
        self._exchange = exchange
        self._address = address
        self._path = path
        self._problem_of = problem_of
        self._may_cache = may_cache
        self._out = bytearray()
        self._head = bytearray()
        self._interim = 0
        self._left: Optional[int] = None  # bytes of the body that are still to come, if known
        self._streaming = False
        self._watching = False
        self._sock: Optional[socket.socket] = None
        self._timer: Optional[Timer] = None
        self._dial: Optional[Dial] = None
        try:
            self._out += request_bytes(exchange.request, address, path)
        except BadRequest as error:
            exchange.answer(Response(error.status, f"{error}\n".encode()))
            return
        exchange.on_gone = self._close
        exchange.on_drain = self._resume
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        self._dial = dial(
            self._reactor, f"{host}:{address[1]}", self._connected, self._fail, CONNECT_S
        )

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        self._sock = sock
        problem = self._problem_of(sock)
        if problem:
            self._fail(problem)
            return
        self._expect(SILENT_S)
        self._watching = True
        self._reactor.watch(sock, on_write=self._write)

    def _write(self) -> None:
        assert self._sock is not None
        try:
            while self._out:
                sent = self._sock.send(self._out)
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._fail("the connection broke")
            return
        self._expect(SILENT_S)
        self._reactor.watch(self._sock, on_read=self._read)

    def _read(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._expect(SILENT_S)
        if self._streaming:
            self._pass_on(data)
            return
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", searched)
        while end >= 0 and not self._streaming:
            head, rest = bytes(self._head[:end]), bytes(self._head[end + 4 :])
            try:
                self._begin(head, rest)
            except AnswerError as error:
                self._fail(str(error))
                return
            end = self._head.find(b"\r\n\r\n")
        if not self._streaming and (not data or len(self._head) > MAX_HEAD):
            self._fail("it gave no answer" if not data else "its answer's head is too long")

    def _begin(self, head: bytes, rest: bytes) -> None:
        answer = parse_answer(head, self._path, self._exchange.request.method)
        self._head[:] = rest
        if answer.is_interim:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise AnswerError("it sends interim answers without end")
            return
        self._streaming = True
        self._left = answer.length
        headers = answer.headers
        if not self._may_cache:
            headers = [item for item in headers if item[0].lower() not in _CACHING]
            headers.append(("Cache-Control", "no-cache"))
        self._exchange.stream(answer.status, headers)
        if rest or answer.length == 0:
            self._pass_on(rest)

    def _pass_on(self, data: bytes) -> None:
        """Send more of the body, and no more than was announced."""
        if self._exchange.done:
            return
        over = not data
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            over = over or not self._left
        backlog = self._exchange.write(data) if data else 0
        if over:
            self._exchange.end()
            self._close()
        elif backlog > HIGH_WATER and self._sock is not None:  # None: the reader went away
            self._reactor.unwatch(self._sock)
            self._watching = False
            self._stop_clock()

    def _resume(self) -> None:
        waits = self._streaming and not self._watching and not self._exchange.done
        if waits and self._sock is not None:
            self._watching = True
            self._expect(SILENT_S)
            self._reactor.watch(self._sock, on_read=self._read)

    def _expect(self, seconds: float) -> None:
        self._stop_clock()
        self._timer = self._reactor.call_later(seconds, self._fail, "it went silent")

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fail(self, reason: str) -> None:
        if self._streaming:
            self._exchange.end()
        else:
            host, port = self._address
            text = f"TensorBoard at {host}:{port} does not answer: {reason}\n"
            self._exchange.on_gone = self._exchange.on_drain = None
            self._exchange.answer(Response(502, text.encode()))
        self._close()

    def _close(self) -> None:
        self._stop_clock()
        if self._dial is not None:
            self._dial.cancel()
            self._dial = None
        if self._sock is not None:
            if self._watching:
                self._reactor.unwatch(self._sock)
                self._watching = False
            self._sock.close()
            self._sock = None


def request_bytes(request: Request, address: Tuple[str, int], path: str) -> bytes:
    """A reader's request as TensorBoard gets it; BadRequest where it cannot be one request."""
    if "service-worker" in request.headers:
        raise BadRequest(403, "TensorBoard has no service workers")
    target = target_of(request, path)
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {host}:{address[1]}"]
    dropped = _NOT_SENT | _HOP_BY_HOP | _listed(request.headers.get("connection", ""))
    for name, value in request.headers.items():
        if name in dropped:
            continue
        line = f"{name}: {value}".encode("latin-1", "replace")
        if not _NAME.fullmatch(line[: len(name)]) or not _VALUE.fullmatch(line):
            raise BadRequest(400, "a header has characters that are not allowed")
        lines.append(line.decode("latin-1"))
    if request.body or request.method == "POST":
        lines.append(f"Content-Length: {len(request.body)}")
    lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body


def target_of(request: Request, path: str) -> str:
    """``path`` and the request's query, quoted (again): whatever is in them, they end no line."""
    _, mark, query = request.target.partition("?")
    query = quote(query.encode("latin-1", "replace"), safe=_QUERY_SAFE)
    return quote(path, safe=_PATH_SAFE) + mark + query


def parse_answer(head: bytes, path: str, method: str) -> AnswerHead:
    """The head of the answer to ``method path``, without the empty line; raises AnswerError."""
    first, *lines = head.split(b"\r\n")
    status_line = _STATUS_LINE.fullmatch(first)
    if status_line is None:
        raise AnswerError("it does not speak HTTP")
    status = int(status_line.group(1))
    if status == 101:
        raise AnswerError("it wants to change the protocol")
    if len(lines) > MAX_HEADERS:
        raise AnswerError(f"its answer has more than {MAX_HEADERS} headers")
    found: List[Tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise AnswerError("a header of its answer is not HTTP")
        found.append((name.decode("ascii"), value.decode("latin-1").strip(" \t")))
    dropped = _HOP_BY_HOP | _NOT_RETURNED | {"content-length", "transfer-encoding"}
    dropped |= _listed(",".join(value for name, value in found if name.lower() == "connection"))
    headers = [
        (name, relative(value, path) if name.lower() == "location" else value)
        for name, value in found
        if name.lower() not in dropped
    ]
    framing, length = _body_of(found)
    if status >= 200 and status not in (204, 304):
        headers += framing
    if method == "HEAD" or status in (204, 304):
        length = 0
    return AnswerHead(status, headers, length)


def _body_of(found: List[Tuple[str, str]]) -> Tuple[List[Tuple[str, str]], Optional[int]]:
    """The one header that gives the body's length, and that length where it is known."""
    lengths = {value for name, value in found if name.lower() == "content-length"}
    codings = [value.lower() for name, value in found if name.lower() == "transfer-encoding"]
    if codings:
        if codings != ["chunked"] or lengths:
            raise AnswerError("the length of its answer is not clear")
        return [("Transfer-Encoding", "chunked")], None
    if not lengths:
        return [], None
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise AnswerError("the length of its answer is not clear")
    return [("Content-Length", str(int(length)))], int(length)


def _listed(connection: str) -> Set[str]:
    """The headers that a Connection header declares to be of one hop only."""
    return {name.strip().lower() for name in connection.split(",")}


def relative(location: str, path: str) -> str:
    """A redirect as seen from ``path``, without host and root: it holds behind any proxy.

    Raises AnswerError.
    """
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise AnswerError("it redirects to something that is no address") from error
    target = quote(parts.path.encode("latin-1"), safe=_PATH_SAFE + "%") or "/"
    query = quote(parts.query.encode("latin-1"), safe=_QUERY_SAFE)
    query = f"?{query}" if query else ""
    if not target.startswith("/"):
        return target + query
    return "../" * (path.count("/") - 1) + "./" + target.lstrip("/") + query
