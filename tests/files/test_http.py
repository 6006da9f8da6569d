"""Reading from a real web server on this machine."""

from __future__ import annotations

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Dict, Iterator, List, Tuple

import pytest

from tony_core.files.port import ReadOnlyError
from tony_core.files.registry import filesystem

BODY = b"content" * 1000


class _Handler(BaseHTTPRequestHandler):
    seen: List[Tuple[str, str, Dict[str, str]]] = []

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        self.seen.append((self.command, self.path, dict(self.headers)))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/f")
            self.end_headers()
            return
        codes = {"/none": 404, "/no": 403, "/broken": 500}
        if self.path == "/nohead" and not body:
            self.send_error(405)
            return
        if self.path in codes:
            self.send_error(codes[self.path])
            return
        wanted = self.headers.get("Range")
        if wanted and self.path == "/ranged":
            start = int(wanted[len("bytes=") : -1])
            if start >= len(BODY):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Length", str(len(BODY) - start))
            self.end_headers()
            self.wfile.write(BODY[start:])
            return
        self.send_response(200)
        length = len(BODY) + (10 if self.path == "/short" else 0)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.end_headers()
        if body:
            self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Handler.seen = []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_stat_and_read(server: str) -> None:
    url = f"http://{server}/f"
    found = filesystem(url).stat(url)
    assert (found.size, found.mtime_ms) == (len(BODY), 1445412480000)
    assert filesystem(url).get(url) == BODY
    assert filesystem(url).stat(f"http://{server}/nohead").size == len(BODY)


@pytest.mark.parametrize("path", ["/ranged", "/f"], ids=["ranges", "no ranges"])
def test_read_from_an_offset(server: str, path: str) -> None:
    url = f"http://{server}{path}"
    for offset in (0, 1, len(BODY) - 1, len(BODY), len(BODY) + 1):
        with filesystem(url).open(url, offset) as stream:
            assert stream.read() == BODY[offset:]
    with pytest.raises(ValueError, match="before"):
        filesystem(url).open(url, -1)


def test_a_connection_that_ends_early_is_an_error(server: str) -> None:
    url = f"http://{server}/short"
    with pytest.raises(OSError, match="ended in mid-file"):
        filesystem(url).get(url)
    with filesystem(url).open(url) as stream, pytest.raises(OSError, match="mid-file"):
        while stream.read(4096):
            pass


@pytest.mark.parametrize(
    ("path", "kind", "word"),
    [
        ("/none", FileNotFoundError, "404"),
        ("/no", PermissionError, "403"),
        ("/broken", OSError, "500"),
    ],
)
def test_refusals_name_the_url_without_its_password(
    server: str, path: str, kind: type, word: str
) -> None:
    url = f"http://me:geheim@{server}{path}"
    with pytest.raises(kind, match=word) as caught:
        filesystem(url).open(url)
    assert server in str(caught.value) and "geheim" not in str(caught.value)


def test_credentials_are_sent_but_not_to_where_a_redirect_leads(server: str) -> None:
    url = f"http://me:ge%40heim@{server}/moved"
    assert filesystem(url).get(url) == BODY
    first, second = _Handler.seen
    token = base64.b64encode(b"me:ge@heim").decode()
    assert first[2]["Authorization"] == f"Basic {token}"
    assert "Authorization" not in second[2]


def test_nothing_listens() -> None:
    with pytest.raises(OSError, match="could not be reached"):
        filesystem("http://127.0.0.1:1/x").stat("http://127.0.0.1:1/x")


def test_nothing_can_be_written() -> None:
    with pytest.raises(ReadOnlyError, match="only be read"):
        filesystem("https://h/x").put("https://h/x", b"")
