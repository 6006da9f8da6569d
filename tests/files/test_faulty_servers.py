"""Web servers and NameNodes that are not what they should be: OSErrors, in bounded time."""

from __future__ import annotations

import io
import json
import posixpath
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.files.http import HttpFileSystem, check_redirect
from tony_core.files.webhdfs import client
from tony_core.files.webhdfs.connection import Address, Connection, split_url
from tony_core.files.webhdfs.namenodes import NameNodeResponse
from tony_core.files.webhdfs.responses import parse_remote_exception
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration


class Raw:
    """Sends these bytes as the answer to each request, and closes."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes], bytes] = lambda request: b""
        self.requests: List[bytes] = []
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port = self._sock.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(5)
                try:
                    request = b""
                    while b"\r\n\r\n" not in request:
                        data = sock.recv(4096)
                        if not data:
                            break
                        request += data
                    self.requests.append(request)
                    sock.sendall(self.answer(request))
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
                except OSError:
                    pass

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join(60)


@pytest.fixture
def raw() -> Iterator[Raw]:
    made = Raw()
    yield made
    made.close()


def head(status: str = "200 OK", *fields: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


ODD_HEADS = [
    head("²²² OK"),
    head("9" * 5000 + " OK"),
    head("-200 OK"),
    head("200 OK", "Content-Length: ²"),
    head("200 OK", "Content-Length: " + "9" * 5000),
    head("200 OK", "Content-Length: -5"),
    head("200 OK", "Transfer-Encoding: chunked", body=b"-5\r\nhello\r\n0\r\n\r\n"),
    head("200 OK", "Transfer-Encoding: chunked", body=b"0x5\r\nhello\r\n0\r\n\r\n"),
    head("200 OK", "Transfer-Encoding: chunked", body=b"1_0\r\nhello\r\n0\r\n\r\n"),
    head("200 OK", "Transfer-Encoding: chunked", body=b"f" * 5000 + b"\r\n"),
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + head(),
    b"HTTP/1.1\r\n\r\n",
    b"\r\n" * 100,
    head("200 OK", *[f"X-{number}: y" for number in range(500)]),
    head("200 OK", "X: " + "y" * 100_000),
]


def connection_of(data: bytes) -> Connection:
    """One that has these bytes to come."""

    class Sock:
        def settimeout(self, seconds: float) -> None:
            pass

        def close(self) -> None:
            pass

    made = Connection.__new__(Connection)
    made.address, made.used, made._wait_s, made._deadline = Address("h", 1), False, 1, float("inf")
    made._sock, made._stream = Sock(), io.BufferedReader(io.BytesIO(data))  # type: ignore[assignment]
    return made


class TestHttpOfWebHdfs:
    @pytest.mark.parametrize("data", ODD_HEADS, ids=range(len(ODD_HEADS)))
    def test_odd_answers(self, data: bytes) -> None:
        with pytest.raises(OSError):
            connection_of(data).response().read(1 << 16)

    @fuzz(
        data=mutations(
            head("200 OK", "Content-Length: 5", body=b"hello"),
            head("200 OK", "Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"),
            head("307 X", "Location: http://h:1/x", "Content-Length: 0"),
            b"HTTP/1.1 100 Continue\r\n\r\n" + head("204 No"),
            head("200 OK", body=b"until the end"),
        )
    )
    def test_any_answer(self, data: bytes) -> None:
        try:
            answer = connection_of(data).response()
            assert len(answer.read(1 << 16)) <= 1 << 16
        except OSError:
            pass

    @pytest.mark.parametrize(
        "url",
        ["http://h:²/", "http://h:99999/", "http://h:" + "9" * 5000 + "/", "ftp://h/x", "http://",
         "http://a..b/x", "http://" + "a" * 70 + "/", "http://h:1/x\ry", "http://h:1/é", "//h/x",
         "http://h:1/ x", "http://[/x", "http://h\tx/y", "file:///etc/passwd", "http://u@h/x"],
    )  # fmt: skip
    def test_a_redirect_to_no_data_node(self, url: str) -> None:
        with pytest.raises(OSError):
            split_url(url)

    @fuzz(url=st.one_of(st.text(max_size=40), st.text(max_size=40).map("http://".__add__)))
    def test_any_redirect(self, url: str) -> None:
        try:
            _, address, target = split_url(url)
        except OSError:
            return
        assert address.host and 0 <= address.port <= 0xFFFF
        assert target.startswith("/") and target.isascii() and target.isprintable()

    def test_tls_never_becomes_plain(self) -> None:
        with pytest.raises(OSError, match="from https to http"):
            split_url("http://dn:9864/webhdfs/v1/x", from_tls=True)
        assert split_url("https://dn:9865/x", from_tls=True)[0]


@pytest.fixture
def hdfs(raw: Raw) -> Iterator[WebHdfsFileSystem]:
    conf = SiteConfiguration.of({"fs.defaultFS": f"webhdfs://127.0.0.1:{raw.port}"})
    made = WebHdfsFileSystem(conf, ClusterIdentity("ann"), patience_s=0.2)
    yield made
    made.close()


def entry(name: Any, kind: str = "FILE") -> Dict[str, Any]:
    return {"type": kind, "length": 1, "modificationTime": 1, "pathSuffix": name}


def page(*entries: Any, remaining: int = 0) -> bytes:
    listed = {"FileStatuses": {"FileStatus": list(entries)}}
    answer = {"DirectoryListing": {"partialListing": listed, "remainingEntries": remaining}}
    return json.dumps(answer).encode()


def answered(body: bytes, status: str = "200 OK") -> bytes:
    return head(status, f"Content-Length: {len(body)}", "Connection: close", body=body)


STATUS = json.dumps({"FileStatus": {**entry(""), "permission": "644"}}).encode()


class TestNameNodes:
    @pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "/etc", "a\0b", None, 3])
    def test_a_listed_name_is_one_plain_segment(
        self, raw: Raw, hdfs: WebHdfsFileSystem, name: Any
    ) -> None:
        raw.answer = lambda request: answered(page(entry("good"), entry(name)))
        with pytest.raises(OSError, match="name"):
            hdfs.list("/d")

    def test_a_listing_without_end(self, raw: Raw, hdfs: WebHdfsFileSystem) -> None:
        raw.answer = lambda request: answered(page(entry("a"), remaining=1))
        with pytest.raises(OSError, match="again"):
            hdfs.list("/d")

    @pytest.mark.parametrize(
        "call",
        [
            lambda hdfs: hdfs.mkdir("/d"),
            lambda hdfs: hdfs.rename("/d", "/e"),
            lambda hdfs: hdfs.chmod("/d", 0o600),
            lambda hdfs: hdfs.delete("/d"),
            lambda hdfs: hdfs.stat("/d"),
            lambda hdfs: hdfs.note("/d", "n", b"secret"),
        ],
    )
    def test_only_data_is_redirected(
        self, raw: Raw, hdfs: WebHdfsFileSystem, call: Callable[[Any], Any]
    ) -> None:
        where = f"Location: http://127.0.0.1:{raw.port}/stolen"
        raw.answer = lambda request: head("307 Go", where, "Content-Length: 0")
        with pytest.raises(OSError, match="redirect"):
            call(hdfs)
        assert not any(b"stolen" in request for request in raw.requests)

    @fuzz(
        data=mutations(
            page(entry("a"), entry("b", "DIRECTORY")),
            STATUS,
            b'{"boolean": true}',
            b'{"XAttrs": [{"name": "user.tony.n", "value": "0sYWI="}]}',
            b'{"ContentSummary": {"directoryCount": 1, "fileCount": 1, "length": 1, "quota": 1,'
            b' "spaceConsumed": 1, "spaceQuota": 1}}',
            b"[" * 5000,
        )
    )
    def test_any_answer(self, data: bytes) -> None:
        conf = SiteConfiguration.of({"fs.defaultFS": "webhdfs://127.0.0.1:1"})
        hdfs = WebHdfsFileSystem(conf, ClusterIdentity("ann"))
        hdfs._place("/")[0]._call = lambda *words, **more: NameNodeResponse(data)  # type: ignore[method-assign]
        calls: List[Callable[[], Any]] = [
            lambda: hdfs.stat("/d"),
            lambda: hdfs.delete("/d"),
            lambda: hdfs.noted("/d", "n"),
        ]
        for call in calls:
            try:
                call()
            except OSError:
                pass
        try:
            found = hdfs.list("/d")
        except OSError:
            return
        for one in found:
            assert posixpath.dirname(one.location) == "/d"

    @fuzz(
        data=mutations(
            b'{"RemoteException": {"javaClassName": "java.io.IOException", "message": "no"}}',
            b"[" * 5000,
        ),
        status=st.integers(300, 599),
    )
    def test_any_refusal(self, data: bytes, status: int) -> None:
        assert parse_remote_exception(status, data, "h:1").server == "h:1"

    def test_a_listing_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "_MOST_LISTED", 10)
        conf = SiteConfiguration.of({"fs.defaultFS": "webhdfs://127.0.0.1:1"})
        hdfs = WebHdfsFileSystem(conf, ClusterIdentity("ann"))
        count = iter(range(1000))
        hdfs._place("/")[0]._call = lambda *words, **more: NameNodeResponse(  # type: ignore[method-assign]
            page(entry(f"n{next(count):04}"), remaining=1)
        )
        with pytest.raises(OSError, match="more than 10"):
            hdfs.list("/d")


class TestWeb:
    @pytest.mark.parametrize(
        "location", ["ftp://127.0.0.1:1/x", "file:///etc/passwd", "http://h:99999/", "http://[",
                     "http://a..b/", "gopher://x/", "http://127.0.0.1:²/"]
    )  # fmt: skip
    def test_a_redirect_to_what_is_no_web(self, raw: Raw, location: str) -> None:
        where = f"Location: {location}".encode().decode("latin-1")
        raw.answer = lambda request: head("302 Found", where, "Content-Length: 0")
        with pytest.raises(OSError):
            HttpFileSystem().get(f"http://127.0.0.1:{raw.port}/f")

    def test_tls_never_becomes_plain(self) -> None:
        with pytest.raises(ValueError, match="from https to http"):
            check_redirect("https://h/x", "http://h/x")
        check_redirect("https://h/x", "https://other/x")
        check_redirect("http://h/x", "https://h/x")

    @pytest.mark.parametrize("data", ODD_HEADS, ids=range(len(ODD_HEADS)))
    def test_odd_answers(self, raw: Raw, data: bytes) -> None:
        raw.answer = lambda request: data
        url = f"http://127.0.0.1:{raw.port}/f"
        for call in (HttpFileSystem().stat, HttpFileSystem().get):
            try:
                call(url)
            except OSError:
                pass

    @pytest.mark.hypothesis  # so that it is among those of the night
    @pytest.mark.timeout(3600)
    def test_any_answer(self, raw: Raw) -> None:
        url = f"http://127.0.0.1:{raw.port}/f"
        changed = "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT"

        @fuzz(
            data=mutations(
                head("200 OK", "Content-Length: 5", changed, body=b"hello"),
                head("206 Part", "Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n"),
                head("302 X", "Location: http://[", "Content-Length: 0"),
                head("404 No", changed),
            )
        )
        def check(data: bytes) -> None:
            raw.answer = lambda request: data
            for call in (HttpFileSystem().stat, HttpFileSystem().get):
                try:
                    call(url)
                except OSError:
                    pass

        check()
