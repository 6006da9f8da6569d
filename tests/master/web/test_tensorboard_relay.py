"""The relay to TensorBoard, between a real HTTP client and a real HTTP server."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations, pieces
from tests.master.reactors import Running
from tony_core.master.web.request import BadRequest, Request
from tony_core.master.web.server import Exchange, WebServer
from tony_core.master.web.tensorboard_relay import (
    AnswerError,
    Relay,
    parse_answer,
    relative,
    request_bytes,
)

BIG = bytes(range(256)) * 20_000


class Backend(BaseHTTPRequestHandler):
    """What TensorBoard does that matters here."""

    protocol_version = "HTTP/1.1"
    seen: List[Tuple[str, str, Dict[str, str], bytes]] = []

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.seen.append((self.command, self.path, dict(self.headers), body))
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/to/here?a=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"one ", b"two"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
                time.sleep(0.02)
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/silent":
            self.close_connection = True
        else:
            data = BIG if self.path == "/big" else b"scalars:" + body
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Set-Cookie", "spy=1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    do_GET = do_POST = _answer

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def backend() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    server.daemon_threads = False
    Backend.seen.clear()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def relayed(backend: int) -> Iterator[int]:
    with Running() as running:

        def handle(exchange: Exchange) -> None:
            path = exchange.request.path[len("/tensorboard") :]
            Relay(exchange, ("localhost", backend), path)

        server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, handle))
        yield server.port
        running.do(server.close)


def fetch(
    port: int, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> Tuple[int, bytes, Dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body=body or None, headers=headers)
    answer = connection.getresponse()
    found = (answer.status, answer.read(), dict(answer.getheaders()))
    connection.close()
    return found


def test_a_get_and_a_post_pass_through(relayed: int, backend: int) -> None:
    status, body, headers = fetch(relayed, "/tensorboard/data/run%20a?tag=x%2Fy&b=1")
    assert (status, body) == (200, b"scalars:")
    assert headers["Content-Type"] == "application/json"
    assert fetch(relayed, "/tensorboard/data/scalars", "POST", b"runs=1")[1] == b"scalars:runs=1"
    assert [(seen[0], seen[1]) for seen in Backend.seen] == [
        ("GET", "/data/run%20a?tag=x%2Fy&b=1"),
        ("POST", "/data/scalars"),
    ]
    assert Backend.seen[0][2]["Host"] == f"localhost:{backend}"


def test_what_belongs_to_the_connection_or_to_others_stays_behind(relayed: int) -> None:
    secret = {"Cookie": "session=1", "Authorization": "Basic x", "Accept": "text/html"}
    _, _, headers = fetch(relayed, "/tensorboard/", **secret)
    assert "Set-Cookie" not in headers
    sent = Backend.seen[0][2]
    assert "Cookie" not in sent and "Authorization" not in sent
    assert sent["accept"] == "text/html"


def test_redirects_become_relative(relayed: int) -> None:
    assert fetch(relayed, "/tensorboard/moved")[2]["Location"] == "./to/here?a=1"
    assert fetch(relayed, "/tensorboard/moved/deep/er")[2]["Location"] == "../.././to/here?a=1"


def test_relative() -> None:
    assert relative("/", "/") == "./"
    assert relative("/x", "/a") == "./x"
    assert relative("x/y", "/a/b") == "x/y"
    assert relative("http://h:1/x?q", "/a/b/") == "../.././x?q"


def test_streams_and_large_answers_are_whole(relayed: int) -> None:
    assert fetch(relayed, "/tensorboard/chunked")[1] == b"one two"
    assert fetch(relayed, "/tensorboard/big")[1] == BIG


def test_a_slow_reader_holds_nothing_but_its_own_answer(relayed: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", relayed, timeout=60)
    connection.request("GET", "/tensorboard/big")
    answer = connection.getresponse()
    time.sleep(0.1)
    assert fetch(relayed, "/tensorboard/x")[0] == 200
    assert answer.read() == BIG
    connection.close()


def test_a_server_that_sends_nothing_is_a_bad_gateway(relayed: int) -> None:
    status, body, _ = fetch(relayed, "/tensorboard/silent")
    assert status == 502
    assert b"TensorBoard at localhost" in body


def test_no_server_is_a_bad_gateway() -> None:
    with Running() as running:

        def handle(exchange: Exchange) -> None:
            Relay(exchange, ("127.0.0.1", 1), "/")

        server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, handle))
        status, body, _ = fetch(server.port, "/")
        running.do(server.close)
    assert status == 502
    assert b"127.0.0.1:1 does not answer" in body


# ------------------------------------------------------------------ answers of any kind


class AnswersAnything:
    """A server whose answer to every request is these bytes, in these parts, and the end."""

    def __init__(self) -> None:
        self.parts: List[bytes] = []
        self.request = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            with sock, contextlib.suppress(OSError):
                self.request = b""
                while b"\r\n\r\n" not in self.request:
                    data = sock.recv(65536)
                    if not data:
                        return
                    self.request += data
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for part in self.parts:
                    sock.sendall(part)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(65536)  # until the relay has hung up

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(60)
        self._listener.close()


class Relayed:
    """A relay to such a server, as a reader sees it."""

    def __init__(self, running: Running, server: AnswersAnything) -> None:
        self.running, self.server = running, server
        self.may_cache = True

        def handle(exchange: Exchange) -> None:
            address = ("127.0.0.1", server.port)
            Relay(exchange, address, exchange.request.path, may_cache=self.may_cache)

        self.web = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, handle))

    def fetch(self, *parts: bytes, method: bytes = b"GET", path: bytes = b"/a/b") -> bytes:
        """All that the reader gets until the connection ends."""
        self.server.parts = list(parts)
        with socket.create_connection(("127.0.0.1", self.web.port), timeout=60) as sock:
            sock.sendall(
                method + b" " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            with sock.makefile("rb") as answer:
                found: bytes = answer.read()
        assert self.running.error is None, "the master's thread ended"
        return found


@pytest.fixture(scope="module")
def odd() -> Iterator[Relayed]:
    server = AnswersAnything()
    try:
        with Running() as running:
            made = Relayed(running, server)
            yield made
            running.do(made.web.close)
    finally:
        server.close()


ODD = {
    "a status that is a digit to Python only": "HTTP/1.1 ²²² OK\r\n\r\n".encode("latin-1"),
    "a status of 5,000 digits": b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "a status out of range": b"HTTP/1.1 999 OK\r\n\r\n",
    "a status with a sign": b"HTTP/1.1 +200 OK\r\n\r\n",
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "another HTTP": b"HTTP/2 200\r\n\r\n",
    "a control character in the reason": b"HTTP/1.1 200 O\x1b[2J\r\n\r\n",
    "a bare line feed in a header": b"HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: c\r\n\r\n",
    "a bare carriage return in a header": b"HTTP/1.1 200 OK\r\nA: b\rSet-Cookie: c\r\n\r\n",
    "a zero byte in a header": b"HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n",
    "a line feed in a name": b"HTTP/1.1 200 OK\r\nA\nSet-Cookie: c\r\n\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nA: b\r\n Set-Cookie: c\r\n\r\n",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nSet-Cookie : c\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
    "a name that is no token": b"HTTP/1.1 200 OK\r\nA(b): c\r\n\r\n",
    "a thousand headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000,
    "a redirect to no address": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "a length in other digits": "HTTP/1.1 200 OK\r\nContent-Length: ²\r\n\r\n".encode("latin-1"),
    "a length of 5,000 digits": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "two codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nbytes",
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 2000,
    "an interim answer alone": b"HTTP/1.1 100 Continue\r\n\r\n",
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD.keys())
def test_an_odd_answer_is_a_bad_gateway_and_ends_nothing_else(odd: Relayed, answer: bytes) -> None:
    found = odd.fetch(answer)
    assert found.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"does not answer: " in found and b"Set-Cookie" not in found
    assert odd.fetch(b"HTTP/1.1 200 OK\r\n\r\nwell").endswith(b"\r\n\r\nwell")


def test_an_interim_answer_is_passed_over(odd: Relayed) -> None:
    found = odd.fetch(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200",
        b" OK\r\n\r\nwell",
    )
    assert found == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwell"


def test_no_more_of_a_body_than_was_announced(odd: Relayed) -> None:
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    found = odd.fetch(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell" + forged)
    assert found.endswith(b"\r\n\r\nwell")
    assert odd.fetch(b"HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\n", forged).endswith(
        b"close\r\n\r\n"
    )
    assert odd.fetch(b"HTTP/1.1 304 Same\r\n\r\n", forged).endswith(b"close\r\n\r\n")
    head = odd.fetch(b"HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n", forged, method=b"HEAD")
    assert b"Content-Length: 46\r\n" in head and head.endswith(b"close\r\n\r\n")


def test_headers_of_one_hop_and_those_for_the_whole_host_stay_behind(odd: Relayed) -> None:
    found = odd.fetch(
        b"HTTP/1.1 200 OK\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nX-Stays: 2\r\n"
        b"Service-Worker-Allowed: /\r\nClear-Site-Data: *\r\nAlt-Svc: h3\r\n"
        b"Set-Cookie2: a\r\nKeep-Alive: 1\r\n\r\n"
    )
    assert found == b"HTTP/1.1 200 OK\r\nX-Stays: 2\r\nConnection: close\r\n\r\n"


def test_nothing_is_cached_for_a_port_that_may_be_another_job_s_tomorrow(odd: Relayed) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\ncache-control: max-age=31536000, immutable\r\nExpires: x\r\nAge: 1\r\n"
        b"ETag: a\r\n\r\n"
    )
    assert b"max-age" in odd.fetch(answer)
    odd.may_cache = False
    try:
        found = odd.fetch(answer)
    finally:
        odd.may_cache = True
    assert found == (
        b"HTTP/1.1 200 OK\r\nETag: a\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n"
    )


def test_no_script_becomes_a_service_worker() -> None:
    request = Request("GET", "/w.js", "/w.js", {}, {"service-worker": "script"})
    with pytest.raises(BadRequest) as caught:
        request_bytes(request, ("127.0.0.1", 1), "/w.js")
    assert caught.value.status == 403


def test_a_path_and_a_query_cannot_become_lines_of_the_request(odd: Relayed) -> None:
    odd.fetch(b"HTTP/1.1 200 OK\r\n\r\n", path=b"/a%0d%0aX-Evil:%201?c=%0d%0aX-Evil:3")
    lines = odd.server.request.split(b"\n")
    assert not [line for line in lines if line.startswith(b"X-Evil")]
    assert lines[0] == b"GET /a%0D%0AX-Evil:%201?c=%0d%0aX-Evil:3 HTTP/1.1\r"
    # What the page's own parser refuses is no line here either.
    request = Request("GET", "/a?b\nX-Evil:2", "/a\r\nX-Evil:1", {}, {})
    (first, *_) = request_bytes(request, ("127.0.0.1", 1), request.path).split(b"\r\n")
    assert first == b"GET /a%0D%0AX-Evil:1?b%0AX-Evil:2 HTTP/1.1"


@pytest.mark.parametrize(
    ("name", "value"), [("x", "a\nb: c"), ("x", "a\rb"), ("x", "a\0"), ("x\ny", "a"), ("x y", "a")]
)
def test_a_header_that_would_become_another_is_refused(name: str, value: str) -> None:
    request = Request("GET", "/", "/", {}, {name: value})
    with pytest.raises(BadRequest):
        request_bytes(request, ("127.0.0.1", 1), "/")


def test_a_connection_header_does_not_take_the_body_s_length_away() -> None:
    headers = {"connection": "content-length, x-hop", "content-length": "3", "x-hop": "1"}
    request = Request("POST", "/d?a b", "/d", {}, headers, b"GET")
    assert request_bytes(request, ("::1", 6006), "/d") == (
        b"POST /d?a%20b HTTP/1.1\r\nHost: [::1]:6006\r\nContent-Length: 3\r\n"
        b"Connection: close\r\n\r\nGET"
    )


def test_a_redirect_leads_to_no_other_host() -> None:
    for location in ("//evil/x", "http:////evil/x", "\\\\evil\\x", "/\\evil", "////evil"):
        found = relative(location, "/a/b")
        assert not found.startswith(("//", "\\")) and "\\" not in found and "://" not in found


SAMPLES = (
    b"HTTP/1.1 200 OK\r\nServer: TensorBoard\r\nContent-Type: text/html; charset=utf-8\r\n"
    b"Content-Security-Policy: default-src 'self'\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    b"3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:6006/path/?a=b#c\r\nConnection: close, x\r\n"
    b"\r\n",
    b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n',
)


@fuzz(data=mutations(*SAMPLES), method=st.sampled_from(["GET", "HEAD", "POST"]))
def test_the_head_of_an_answer_is_read_or_refused(data: bytes, method: str) -> None:
    try:
        answer = parse_answer(data.partition(b"\r\n\r\n")[0], "/a/b/", method)
    except AnswerError as error:
        assert str(error).isprintable()
        return
    assert 100 <= answer.status < 600 and answer.status != 101
    for name, value in answer.headers:
        assert re.fullmatch(r"[^\x00-\x20\x7f-\xff:]+", name)
        assert re.fullmatch(r"[\t\x20-\x7e\x80-\xff]*", value)
    names = [name.lower() for name, _ in answer.headers]
    assert names.count("content-length") + names.count("transfer-encoding") <= 1


@fuzz(by_day=100, data=mutations(*SAMPLES), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_whatever_answers_the_reader_gets_one_answer(
    odd: Relayed, data: bytes, cuts: List[int]
) -> None:
    found = odd.fetch(*pieces(data, cuts))
    head, _, body = found.partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1\.1 [2-5]\d\d ", head)
    assert head.endswith(b"\r\nConnection: close")
    if b" 502 " not in head.split(b"\r\n")[0]:
        assert not body or body in data


@fuzz(query=st.binary(max_size=40), name=st.binary(max_size=8), value=st.binary(max_size=40))
def test_a_request_stays_one_request(query: bytes, name: bytes, value: bytes) -> None:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1")}
    path = query.decode("latin-1")
    request = Request("GET", f"/?{path}", "/", {}, headers)
    try:
        found = request_bytes(request, ("127.0.0.1", 6006), f"/{path}")
    except BadRequest:
        return
    assert found.endswith(b"\r\n\r\n") and found.count(b"\r\n\r\n") == 1
    lines = found[:-4].split(b"\r\n")
    assert len(lines) <= 4
    assert re.fullmatch(rb"GET [\x21-\x7e]+ HTTP/1.1", lines[0])
    assert not any(re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line) for line in lines)
