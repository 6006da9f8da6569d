"""``/tensorboard/`` on the job's page: the chief's TensorBoard, through the master.

TensorBoard listens where the master can reach it and nobody else need. Each request opens
one connection to it, asks it to close after the answer, and passes the bytes on as they
come, so that no length or chunking has to be understood; reading stops while the reader's
backlog is high. What changes: hop-by-hop headers, cookies, and redirects, which become
relative so that they hold behind any proxy.
"""

from __future__ import annotations

import socket
from typing import List, Optional, Tuple
from urllib.parse import quote, urlsplit

from tony_core.master.webserver import HIGH_WATER, Answer, Exchange
from tony_core.protocol.link import Dial, dial
from tony_core.protocol.reactor import Reactor, Timer

CONNECT_S = 10.0
SILENT_S = 120.0  # TensorBoard may think about a large log folder
MAX_HEAD = 64 * 1024
_DROPPED = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "upgrade", "proxy-connection", "host", "cookie", "set-cookie", "authorization",
    "x-tony-client", "expect",
}  # fmt: skip


class Relay:
    """One request on its way to a web server and its answer on the way back."""

    def __init__(
        self, reactor: Reactor, exchange: Exchange, address: Tuple[str, int], path: str
    ) -> None:
        self._reactor = reactor
        self._exchange = exchange
        self._address = address
        self._path = path
        self._out = bytearray(_request_head(exchange, address, path))
        self._head = bytearray()
        self._streaming = False
        self._watching = False
        self._sock: Optional[socket.socket] = None
        self._timer: Optional[Timer] = None
        exchange.on_gone = self._close
        exchange.on_drain = self._resume
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        self._dial: Optional[Dial] = dial(
            reactor, f"{host}:{address[1]}", self._connected, self._fail, CONNECT_S
        )

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        self._sock = sock
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
            if not data:
                self._exchange.end()
                self._close()
            elif self._exchange.write(data) > HIGH_WATER:
                self._reactor.unwatch(self._sock)
                self._watching = False
                self._stop_clock()
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end >= 0:
            self._begin(bytes(self._head[:end]), bytes(self._head[end + 4 :]))
        elif not data or len(self._head) > MAX_HEAD:
            self._fail("it gave no answer")

    def _begin(self, head: bytes, rest: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[1].isdigit():
            self._fail("it does not speak HTTP")
            return
        headers = _answer_headers(lines[1:], self._path)
        self._streaming = True
        self._exchange.stream(int(words[1]), headers)
        if rest and not self._exchange.done:
            self._exchange.write(rest)

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
            self._exchange.answer(Answer(502, text.encode()))
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


def _request_head(exchange: Exchange, address: Tuple[str, int], path: str) -> bytes:
    request = exchange.request
    _, mark, query = request.target.partition("?")
    target = quote(path, safe="/:@!$&'()*+,;=-._~") + mark + query
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {host}:{address[1]}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _DROPPED]
    lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + request.body


def _answer_headers(lines: List[str], path: str) -> List[Tuple[str, str]]:
    out: List[Tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.strip().lower()
        if not colon or key in _DROPPED:
            continue
        value = value.strip()
        if key == "location":
            value = relative(value, path)
        out.append((name.strip(), value))
    return out


def relative(location: str, path: str) -> str:
    """A redirect as seen from ``path``, without host and root: it holds behind any proxy."""
    parts = urlsplit(location)
    target = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    if not target.startswith("/"):
        return target + query
    return "../" * (path.count("/") - 1) + "./" + target.lstrip("/") + query
