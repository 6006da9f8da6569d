"""The HTTP server: recorded bytes into the parser, real sockets into the server."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from typing import Callable, Iterable, Iterator, List, Mapping, Tuple

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations, pieces
from tests.master.reactors import Running
from tony_core.master.web import request, server
from tony_core.master.web.request import BadRequest, Request, parse
from tony_core.master.web.server import Exchange, Response, WebServer

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


SAMPLES = [
    WHOLE,
    b"GET /api/events?since=3&wait=0.5 HTTP/1.1\r\nHost: [::1]:80\r\nX-Tony-Client: 1\r\n\r\n",
    b"GET /logs/worker:0/stdout?offset=-3&container=c1 HTTP/1.0\r\nHost: localhost\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: h:1\r\nOrigin: http://h:1\r\nContent-Length: 1\r\n\r\na",
]


def read(parts: Iterable[bytes]) -> Tuple[List[Request], int]:
    """The requests of a connection that brings these, and the status that ends it."""
    data, found = bytearray(), []
    try:
        for part in parts:
            data += part
            while (request := parse(data)) is not None:
                found.append(request)
    except BadRequest as error:
        return found, error.status
    return found, 0


@fuzz(data=mutations(*SAMPLES), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_damaged_requests_and_where_they_are_cut(data: bytes, cuts: List[int]) -> None:
    """The parser's own errors only, and the same ones however the bytes arrive."""
    found, status = read([data])
    assert status == 0 or (400 <= status < 600 and status != 500)
    assert read(pieces(data, cuts)) == (found, status)
    for one in found:
        one.is_cross_site()
        for text in one.query.values():
            for number in (request.whole_number, request.seconds):
                try:
                    number(text, "it")
                except BadRequest:
                    pass


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), ("-3", -3), ("007", 7), ("-0", 0), ("9" * 18, 10**18 - 1)],
)
def test_numbers(text: str, number: int) -> None:
    assert request.whole_number(text, "it", least=-5) == number


@pytest.mark.parametrize(
    "text",
    ["", "-", "--1", "+1", " 1", "1_0", "1e9", "1.0", "0x1", "²", "١", "-²", "nan", "9" * 19,
     "9" * 5000, "-" + "9" * 5000, "-6", "\ud800"],
)  # fmt: skip
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request.whole_number(text, "it", least=-5)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "-1", "²", "1_0", "9" * 5000, "1,5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadRequest):
        request.seconds(text, "it")
    assert request.seconds("2.5e-1", "it") == 0.25


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: \0localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n", 400),
        (b"GET /\x1b[2J HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * 60 + b" HTTP/1.1\r\n\r\n", 400),
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
        self.handler: Callable[[Exchange], None] = lambda ex: ex.answer(Response(200, b"hello"))
        self.server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, self._handle))

    def _handle(self, exchange: Exchange) -> None:
        self.seen.append(exchange.request)
        self.handler(exchange)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)

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


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Host": "localhost:80", "Origin": "http://LOCALHOST:80"}, 200),
        ({"Host": "h", "Origin": "http://h", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Host": "localhost:80", "Origin": "http://localhost:81"}, 403),
        ({"Host": "localhost:80", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:80", "Origin": "null"}, 403),
        ({"Host": "localhost:80", "Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "h", "Origin": "http://h", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "new in 2040"}, 403),
    ],
)
def test_a_page_of_another_site_posts_nothing(
    site: Site, headers: Mapping[str, str], status: int
) -> None:
    for method in ("POST", "GET", "HEAD"):
        connection = site.connect()
        connection.request(method, "/", headers=dict(headers))
        assert connection.getresponse().status == (status if method == "POST" else 200)
        connection.close()
    assert [request.method for request in site.seen].count("POST") == (status == 200)


def test_a_handler_may_refuse(site: Site) -> None:
    def handle(exchange: Exchange) -> None:
        raise BadRequest(404, "there is no such thing")

    site.handler = handle
    answer = site.get("/")
    assert (answer.status, answer.data) == (404, b"there is no such thing\n")  # type: ignore[attr-defined]


def test_many_requests_on_one_connection(site: Site) -> None:
    connection = site.connect()
    for number in range(5):
        connection.request("GET", f"/{number}")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"hello")
    connection.close()
    assert [request.path for request in site.seen] == [f"/{number}" for number in range(5)]


def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    site.handler = lambda ex: ex.answer(Response(200, ex.request.path.encode()))
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
        waiting.append(ex) if ex.request.path == "/slow" else ex.answer(Response(200, b"quick"))
    )
    slow = site.connect()
    slow.request("GET", "/slow")
    assert site.get("/").data == b"quick"  # type: ignore[attr-defined]
    site.running.do(lambda: waiting[0].answer(Response(200, b"at last")))
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
    assert gone.wait(60)


def test_a_large_answer_to_a_slow_reader_is_whole(site: Site) -> None:
    body = bytes(range(256)) * 40_000
    site.handler = lambda ex: ex.answer(Response(200, body))
    connection = site.connect()
    connection.request("GET", "/")
    answer = connection.getresponse()
    time.sleep(0.2)
    assert answer.read() == body
    connection.close()


def test_a_header_can_hold_no_line_break(site: Site) -> None:
    site.handler = lambda ex: ex.answer(Response(200, b"", headers={"X": "a\r\nSet-Cookie: b"}))
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
    site.handler = lambda ex: ex.answer(Response(200, b"on"))
    assert site.get("/").data == b"on"  # type: ignore[attr-defined]


def test_there_is_a_most_of_connections_and_idle_ones_make_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    idle = [site.raw() for _ in range(3)]
    time.sleep(0.05)
    assert site.get("/").status == 200
    for sock in idle:
        sock.close()


def test_a_silent_connection_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)
    site.running.do(site.server._sweep)
    with site.raw() as sock:
        sock.sendall(b"GET / HT")
        assert read_all(sock) == b""


def test_finish_lets_answers_out_and_takes_no_new_reader(site: Site) -> None:
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
    site.running.do(lambda: waiting[0].answer(Response(200, b"last")))
    assert slow.getresponse().read() == b"last"
    slow.close()
    assert site.running.do(site.server.finish) == 0


# ------------------------------------------------------------------ bugs of our own


def _fails() -> None:
    raise KeyError("a bug")


@pytest.mark.parametrize("when", ["later", "gone", "drained", "streamed"])
def test_a_bug_behind_a_request_ends_its_connection_only(site: Site, when: str) -> None:
    logged: List[str] = []
    site.running.reactor.log = logged.append

    def handle(exchange: Exchange) -> None:
        if exchange.request.path != "/odd":
            exchange.answer(Response(200, b"well"))
        elif when == "later":
            exchange.reactor.call_later(0, _fails)
        elif when == "gone":
            exchange.on_gone = _fails
        elif when == "drained":
            exchange.on_drain = _fails
            exchange.stream(200, [])
            exchange.reactor.call_later(0.05, exchange.write, b"x")
        else:
            exchange.stream(200, [])
            exchange.reactor.call_later(0, exchange.stream, 200, [("A", "b\r\nc")])

    site.handler = handle
    with site.raw() as sock:
        sock.sendall(b"GET /odd HTTP/1.1\r\nHost: x\r\n\r\n")
        if when == "gone":
            sock.shutdown(socket.SHUT_WR)
        read_all(sock)
    assert site.get("/").read is not None
    assert site.running.error is None
    assert len(logged) == 1 and "Traceback" in logged[0]


@pytest.mark.parametrize(
    ("admission", "limit", "headers", "status"),
    [
        (server.Admission(False, "not you"), 1 << 22, "", 403),
        (server.Admission(True), 1 << 22, "Sec-Fetch-Site: cross-site\r\n", 403),
        (server.Admission(True), 1000, "", 413),
    ],
    ids=["another user", "another site", "a large body"],
)
def test_what_is_refused_is_refused_by_its_head(
    admission: server.Admission, limit: int, headers: str, status: int
) -> None:
    """Not a byte of the body has to come, or is kept."""
    asked: List[Exchange] = []
    with Running() as running:
        made = running.do(
            lambda: WebServer(
                running.reactor, "127.0.0.1", 0, asked.append,
                screen=lambda sock: admission, body_limit=lambda request: limit,
            )
        )  # fmt: skip
        with socket.create_connection(("127.0.0.1", made.port), 30) as caller:
            head = f"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n{headers}\r\n"
            caller.sendall(head.encode())
            answer = caller.recv(65536).decode()
            assert answer.startswith(f"HTTP/1.1 {status} ") and "Connection: close" in answer
        assert running.do(lambda: made.held) == 0 and not asked
        running.do(made.close)
