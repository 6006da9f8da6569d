"""The relay to TensorBoard, between a real HTTP client and a real HTTP server."""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.master.reactors import Running
from tony_core.master.relay import Relay, relative
from tony_core.master.webserver import Exchange, WebServer

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
            Relay(running.reactor, exchange, ("localhost", backend), path)

        server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, handle))
        yield server.port
        running.do(server.close)


def ask(
    port: int, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> Tuple[int, bytes, Dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body=body or None, headers=headers)
    answer = connection.getresponse()
    found = (answer.status, answer.read(), dict(answer.getheaders()))
    connection.close()
    return found


def test_a_get_and_a_post_pass_through(relayed: int, backend: int) -> None:
    status, body, headers = ask(relayed, "/tensorboard/data/run%20a?tag=x%2Fy&b=1")
    assert (status, body) == (200, b"scalars:")
    assert headers["Content-Type"] == "application/json"
    assert ask(relayed, "/tensorboard/data/scalars", "POST", b"runs=1")[1] == b"scalars:runs=1"
    assert [(seen[0], seen[1]) for seen in Backend.seen] == [
        ("GET", "/data/run%20a?tag=x%2Fy&b=1"),
        ("POST", "/data/scalars"),
    ]
    assert Backend.seen[0][2]["Host"] == f"localhost:{backend}"


def test_what_belongs_to_the_connection_or_to_others_stays_behind(relayed: int) -> None:
    secret = {"Cookie": "session=1", "Authorization": "Basic x", "Accept": "text/html"}
    _, _, headers = ask(relayed, "/tensorboard/", **secret)
    assert "Set-Cookie" not in headers
    told = Backend.seen[0][2]
    assert "Cookie" not in told and "Authorization" not in told
    assert told["accept"] == "text/html"


def test_redirects_become_relative(relayed: int) -> None:
    assert ask(relayed, "/tensorboard/moved")[2]["Location"] == "./to/here?a=1"
    assert ask(relayed, "/tensorboard/moved/deep/er")[2]["Location"] == "../.././to/here?a=1"


def test_relative() -> None:
    assert relative("/", "/") == "./"
    assert relative("/x", "/a") == "./x"
    assert relative("x/y", "/a/b") == "x/y"
    assert relative("http://h:1/x?q", "/a/b/") == "../.././x?q"


def test_streams_and_large_answers_are_whole(relayed: int) -> None:
    assert ask(relayed, "/tensorboard/chunked")[1] == b"one two"
    assert ask(relayed, "/tensorboard/big")[1] == BIG


def test_a_slow_reader_holds_nothing_but_its_own_answer(relayed: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", relayed, timeout=10)
    connection.request("GET", "/tensorboard/big")
    answer = connection.getresponse()
    time.sleep(0.1)
    assert ask(relayed, "/tensorboard/x")[0] == 200
    assert answer.read() == BIG
    connection.close()


def test_a_server_that_says_nothing_is_a_bad_gateway(relayed: int) -> None:
    status, body, _ = ask(relayed, "/tensorboard/silent")
    assert status == 502
    assert b"TensorBoard at localhost" in body


def test_nobody_there_is_a_bad_gateway() -> None:
    with Running() as running:

        def handle(exchange: Exchange) -> None:
            Relay(running.reactor, exchange, ("127.0.0.1", 1), "/")

        server = running.do(lambda: WebServer(running.reactor, "127.0.0.1", 0, handle))
        status, body, _ = ask(server.port, "/")
        running.do(server.close)
    assert status == 502
    assert b"127.0.0.1:1 does not answer" in body
