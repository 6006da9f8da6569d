"""As much of HTTP/1.1 as WebHDFS needs, on a socket, with a limit for every wait.

``http.client`` imports the parser for electronic mail and TLS: 19 ms and 3 MB in every process
that reads one small file on a node. It has a limit for each wait only, so it never gives up a
server that sends a byte now and then; here a call has a deadline too.

A :class:`Connection` serves one exchange at a time: :meth:`Connection.ask`, or a head, a body
in pieces and :meth:`Connection.answer`. Whatever goes wrong is an ``OSError``.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Tuple

CONNECT_S = 10.0
WAIT_S = 120.0  # for each piece; a DataNode may wait half as long for another one

_LONGEST_LINE = 64 << 10
_MOST_HEADERS = 200
_MOST_INTERIM = 20
_BUFFER = 128 << 10
_LISTS = ("set-cookie", "www-authenticate")  # may come several times

# What int() and isdigit() take is more than what a server may send.
_STATUS = re.compile(r"[1-5][0-9]{2}", re.ASCII)
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK = re.compile(r"[0-9A-Fa-f]{1,15}")
_PLACE = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z_-]{1,63}(?:\.[0-9A-Za-z_-]{1,63})*\.?))(?::([0-9]{1,5}))?"
)
_TARGET = re.compile(r"/[!-~]*")


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        host = "[%s]" % self.host if ":" in self.host else self.host
        return "%s:%d" % (host, self.port)


class ConnectionBroken(OSError):
    """The server closed the connection too early, or does not speak HTTP."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPROTO, text)


class Negotiation(Protocol):
    """The authentication of one connection (``hadoop.kerberos.spnego``)."""

    def fields(self) -> Dict[str, str]:
        """The header fields of the next request."""

    def check(self, status: int, headers: Mapping[str, str]) -> bool:
        """Check an answer; False: it was refused, ask once more."""


class Connection:
    """An open connection to a server."""

    def __init__(
        self,
        address: Address,
        tls: bool,
        deadline: float = float("inf"),
        wait_s: float = WAIT_S,
        connect_s: float = CONNECT_S,
        authorities: str = "",
    ) -> None:
        """``authorities`` (PEM) are trusted beside those of this machine."""
        self.address = address
        self.used = False  # has served an exchange, so the server may have closed it since
        self.negotiation: Optional[Negotiation] = None
        self._wait_s = wait_s
        self._deadline = deadline
        self._sock: Optional[Any] = None
        self._stream: Any = None
        limit = min(connect_s, self._left())
        sock = socket.create_connection((address.host, address.port), timeout=limit)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sock = _secured(sock, address.host, authorities) if tls else sock
            self._stream = self._sock.makefile("rb", _BUFFER)
        except BaseException:
            sock.close()
            raise

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        sock, self._sock = getattr(self, "_sock", None), None
        if sock is not None:
            if self._stream is not None:
                self._stream.close()
            sock.close()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._sock is None

    def until(self, deadline: float) -> None:
        """Set the deadline (of ``time.monotonic``) of what follows."""
        self._deadline = deadline

    def request(self, method: str, target: str) -> Response:
        """Send a request without a body; returns its answer."""
        length = "" if method == "GET" else "Content-Length: 0\r\n"
        if self.negotiation is None:
            self.head(method, target, length)
            return self.response()
        while True:
            fields = self.negotiation.fields()
            self.head(method, target, length + "".join(f"{k}: {v}\r\n" for k, v in fields.items()))
            response = self.response()
            if self.negotiation.check(response.status, response.headers):
                return response
            response.read(_LONGEST_LINE)

    def head(self, method: str, target: str, fields: str) -> None:
        """The beginning of a request; ``fields`` are whole header lines."""
        host = str(self.address)
        text = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tony\r\n{fields}\r\n"
        self.send(text.encode("ascii"))

    def send(self, data: Any) -> None:
        """Send data."""
        sock = self._ready()
        sock.sendall(data)

    def send_file(self, file: Any, count: int) -> int:
        """Let the kernel send bytes of a file; how many there were."""
        sock = self._ready()
        return int(sock.sendfile(file, 0, count)) if count else 0

    def response(self) -> Response:
        """The beginning of the answer."""
        for _ in range(_MOST_INTERIM):
            words = self._line().split(None, 2)
            if (
                len(words) < 2
                or not words[0].startswith("HTTP/1.")
                or not _STATUS.fullmatch(words[1])
            ):
                raise ConnectionBroken("what answers there does not speak HTTP/1")
            status = int(words[1])
            headers = self._headers()
            if status >= 200:
                self.used = True
                return Response(self, status, words[0] == "HTTP/1.0", headers)
        raise ConnectionBroken(f"{_MOST_INTERIM} interim answers and no final one")

    # ------------------------------------------------------------------ bytes

    def read_into(self, view: memoryview) -> int:
        """Wait for some bytes; 0 at the end."""
        self._ready()
        return int(self._stream.readinto1(view))

    def _headers(self) -> Dict[str, str]:
        headers: Dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                return headers
            name, _, value = line.partition(":")
            key, value = name.strip().lower(), value.strip()
            if key in _LISTS and key in headers:
                value = f"{headers[key]}, {value}"
            headers[key] = value
        raise ConnectionBroken(f"an answer of more than {_MOST_HEADERS} header lines")

    def _line(self) -> str:
        self._ready()
        line: bytes = self._stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionBroken(
                "the connection ended before the answer" if not line else "half a line"
            )
        return line.decode("latin-1").rstrip("\r\n")

    def _ready(self) -> Any:
        if self._sock is None:
            raise ConnectionBroken("the connection is closed")
        self._sock.settimeout(min(self._wait_s, self._left()))
        return self._sock

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        return left


class Response:
    """An answer; its body comes as it is read."""

    def __init__(
        self, connection: Connection, status: int, old: bool, headers: Dict[str, str]
    ) -> None:
        self.connection = connection
        self.status = status
        self.headers = headers
        self._keep = not old and headers.get("connection", "").lower() != "close"
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left: Optional[int] = None  # of the piece at hand; None: until it closes
        if self._chunked or status in (204, 304):
            self._left = 0
        elif "content-length" in headers:
            if not _LENGTH.fullmatch(headers["content-length"]):
                raise ConnectionBroken(f"a length of {headers['content-length'][:40]!r}")
            self._left = int(headers["content-length"])
        self._ended = not self._chunked and self._left == 0

    @property
    def reusable(self) -> bool:
        """Whether the connection can serve another request."""
        return self._keep and self._ended

    def read_into(self, view: memoryview) -> int:
        """Read some bytes; 0 at the end of a complete body."""
        if self._ended or not len(view):
            return 0
        if self._chunked and not self._left and not self._next_chunk():
            return 0
        if self._left is not None:
            view = view[: self._left]
        count = self.connection.read_into(view)
        if self._left is None:
            self._ended = not count
            return count
        if not count:
            raise ConnectionBroken("the connection ended in the middle of the answer")
        self._left -= count
        if self._chunked and not self._left:
            self.connection._line()
        self._ended = not self._chunked and not self._left
        return count

    def read(self, limit: int) -> bytes:
        """Read the whole body, up to a length."""
        parts: List[bytes] = []
        total = 0
        buffer = memoryview(bytearray(min(limit + 1, _BUFFER)))
        while True:
            count = self.read_into(buffer)
            if not count:
                return b"".join(parts)
            total += count
            if total > limit:
                raise ConnectionBroken(f"an answer of more than {limit} bytes")
            parts.append(bytes(buffer[:count]))

    def _next_chunk(self) -> bool:
        size = self.connection._line().partition(";")[0].strip()
        if not _CHUNK.fullmatch(size):
            raise ConnectionBroken(f"a chunk of length {size[:40]!r}")
        self._left = int(size, 16)
        if not self._left:
            self.connection._headers()
            self._ended = True
        return not self._ended


def _secured(sock: socket.socket, host: str, authorities: str) -> Any:
    import ssl  # only here: it is large, and most clusters are without

    context = ssl.create_default_context()
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context.wrap_socket(sock, server_hostname=host)


def split_url(url: str, *, from_tls: bool = False) -> Tuple[bool, Address, str]:
    """A URL's TLS, address and the rest; :class:`Broken` for one that is not used.

    ``from_tls``: a server that was asked by https redirects to it; it may not lead to http.
    """
    scheme, mark, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    tls = scheme.lower() == "https"
    found, target = _PLACE.fullmatch(place), slash + path or "/"
    port = int((found[3] if found else None) or (443 if tls else 80))
    shown = url.partition("?")[0][:200]  # what follows may be secret
    if not mark or scheme.lower() not in ("http", "https") or found is None or port > 0xFFFF:
        raise ConnectionBroken(f"{shown!r}, which is no http or https address")
    if not _TARGET.fullmatch(target):
        raise ConnectionBroken(f"{shown!r}, which holds what no URL can")
    if from_tls and not tls:
        raise ConnectionBroken(f"from https to http, which is not followed: {shown!r}")
    return tls, Address(found[1] or found[2], port), target


def describe_error(error: OSError) -> str:
    """The reason in a socket's error."""
    if isinstance(error, socket.timeout):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "no such host is known"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "its certificate is not trusted here; SSL_CERT_FILE, or tony.https.ca-file in the"
            " site's core-site.xml, may name a file (PEM) with the authorities to trust"
        )
    return error.strerror or str(error) or type(error).__name__
