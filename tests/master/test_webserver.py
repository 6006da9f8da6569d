"""The HTTP server: recorded bytes into the parser, real sockets into the server."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
import time
from typing import Callable, Iterator, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.master.reactors import Running
from tony_core.master import webserver
from tony_core.master.webserver import Answer, BadRequest, Exchange, Request, WebServer, parse

WHOLE = b"POST /a%20b/c?x=1&y=%26&x=2 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\nabc"


def test_a_request_is_read_whole() -> None:
    data = bytearray(WHOLE + b"GET")
    request = parse(data)
    assert request is not None
    assert (request.method, request.path) == ("POST", "/a b/c")
    assert request.query == {"x": "2", "y": "&"}
    assert request.headers["host"] == "h:1"
    assert request.body == b"abc"
    assert request.keep_alive
    assert data == b"GET", "what follows stays"


@given(st.lists(st.integers(1, len(WHOLE) - 1), unique=True))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: List[int]) -> None:
    data = bytearray()
    found = []
    edges = [0, *sorted(cuts), len(WHOLE)]
    for first, last in itertools.pairwise(edges):
        data += WHOLE[first:last]
        request = parse(data)
        if request is not None:
            found.append(request)
    assert [item.body for item in found] == [b"abc"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20000, 431),
    ],
)
def test_what_is_wrong_is_refused(text: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(bytearray(text))
    assert caught.value.status == status


def test_keep_alive_follows_the_version_and_the_wish() -> None:
    def keep(text: bytes) -> bool:
        request = parse(bytearray(text))
        assert request is not None
        return request.keep_alive

    assert keep(b"GET / HTTP/1.1\r\n\r\n")
    assert not keep(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n")
    assert not keep(b"GET / HTTP/1.0\r\n\r\n")
    assert keep(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")


# ------------------------------------------------------------------ over sockets


class Site:
    """A server whose handler the test sets."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.seen: List[Request] = []
        self.handler: Callable[[Exchange], None] = lambda ex: ex.answer(Answer(200, b"hello"))
        self.server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, self._handle))

    def _handle(self, exchange: Exchange) -> None:
        self.seen.append(exchange.request)
        self.handler(exchange)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=10)

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = self.connect()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.data = answer.read()  # type: ignore[attr-defined]
        connection.close()
        return answer


@pytest.fixture
def site() -> Iterator[Site]:
    with Running() as running:
        made = Site(running)
        yield made
        running.do(made.server.close)


def read_all(sock: socket.socket) -> bytes:
    out = b""
    while True:
        data = sock.recv(65536)
        if not data:
            return out
        out += data


def test_many_requests_on_one_connection(site: Site) -> None:
    connection = site.connect()
    for number in range(5):
        connection.request("GET", f"/{number}")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"hello")
    connection.close()
    assert [request.path for request in site.seen] == [f"/{number}" for number in range(5)]


def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    site.handler = lambda ex: ex.answer(Answer(200, ex.request.path.encode()))
    with site.raw() as sock:
        many = b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(200))
        sock.sendall(many + b"GET /end HTTP/1.1\r\nConnection: close\r\n\r\n")
        text = read_all(sock)
    assert text.count(b"HTTP/1.1 200 OK") == 201
    assert text.index(b"\r\n\r\n/7") < text.index(b"\r\n\r\n/8") < text.index(b"/end")


def test_head_has_the_length_and_no_body(site: Site) -> None:
    with site.raw() as sock:
        sock.sendall(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
        text = read_all(sock)
    assert b"Content-Length: 5" in text
    assert text.endswith(b"\r\n\r\n")


def test_a_bad_request_is_answered_and_the_connection_ends(site: Site) -> None:
    with site.raw() as sock:
        sock.sendall(b"BREW /coffee HTTP/1.1\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 405 ")


def test_an_answer_may_come_later_and_others_do_not_wait(site: Site) -> None:
    waiting: List[Exchange] = []
    site.handler = lambda ex: (
        waiting.append(ex) if ex.request.path == "/slow" else ex.answer(Answer(200, b"quick"))
    )
    slow = site.connect()
    slow.request("GET", "/slow")
    assert site.get("/").data == b"quick"  # type: ignore[attr-defined]
    site.running.do(lambda: waiting[0].answer(Answer(200, b"at last")))
    assert slow.getresponse().read() == b"at last"
    slow.close()


def test_a_reader_that_goes_away_is_noticed(site: Site) -> None:
    gone = threading.Event()

    def handle(exchange: Exchange) -> None:
        exchange.on_gone = gone.set

    site.handler = handle
    sock = site.raw()
    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
    time.sleep(0.05)
    sock.close()
    assert gone.wait(5)


def test_a_large_answer_to_a_slow_reader_is_whole(site: Site) -> None:
    body = bytes(range(256)) * 40_000
    site.handler = lambda ex: ex.answer(Answer(200, body))
    connection = site.connect()
    connection.request("GET", "/")
    answer = connection.getresponse()
    time.sleep(0.2)
    assert answer.read() == body
    connection.close()


def test_a_header_can_hold_no_line_break(site: Site) -> None:
    site.handler = lambda ex: ex.answer(Answer(200, b"", headers={"X": "a\r\nSet-Cookie: b"}))
    answer = site.get("/")
    assert answer.status == 500
    assert answer.getheader("Set-Cookie") is None


def test_a_page_that_fails_is_the_readers_trouble_only(site: Site) -> None:
    failed: List[str] = []
    site.server.on_error = lambda request, error: failed.append(f"{request.path} {error}")

    def handle(exchange: Exchange) -> None:
        raise KeyError("bug")

    site.handler = handle
    assert site.get("/x").status == 500
    assert failed == ["/x 'bug'"]
    site.handler = lambda ex: ex.answer(Answer(200, b"on"))
    assert site.get("/").data == b"on"  # type: ignore[attr-defined]


def test_there_is_a_most_of_connections_and_idle_ones_make_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webserver, "MAX_CONNECTIONS", 3)
    idle = [site.raw() for _ in range(3)]
    time.sleep(0.05)
    assert site.get("/").status == 200
    for sock in idle:
        sock.close()


def test_a_silent_connection_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webserver, "IDLE_S", 0.1)
    site.running.do(site.server._sweep)
    with site.raw() as sock:
        sock.sendall(b"GET / HT")
        assert read_all(sock) == b""


def test_finish_lets_answers_out_and_takes_nobody_new(site: Site) -> None:
    waiting: List[Exchange] = []
    site.handler = waiting.append
    slow = site.connect()
    slow.request("GET", "/")
    idle = site.raw()
    while not waiting:
        time.sleep(0.01)
    assert site.running.do(site.server.finish) == 1
    assert read_all(idle) == b""
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        site.raw()
    site.running.do(lambda: waiting[0].answer(Answer(200, b"last")))
    assert slow.getresponse().read() == b"last"
    slow.close()
    assert site.running.do(site.server.finish) == 0
