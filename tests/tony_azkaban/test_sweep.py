"""Applications whose execution is over, by what a server (here: its recorded words) says."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import parse_qs

import pytest

from tests.cli.conftest import Tony
from tests.cli.conftest import scripted as scripted
from tests.cli.conftest import tony as tony
from tests.client.scripted import Scripted
from tests.fuzzing import fuzz, mutations
from tony_azkaban.execution import read
from tony_azkaban.server import Server, ServerError, jobs_of, parse
from tony_core.schedulers.port import AppState, AppStatus

RUNNING_NODE = {"id": "train", "nestedId": "train", "status": "RUNNING", "attempt": 0}
EXECUTIONS: Dict[str, Dict[str, Any]] = {
    "11": {"status": "KILLED", "nodes": [{**RUNNING_NODE, "status": "KILLED"}]},
    "12": {"status": "RUNNING", "nodes": [RUNNING_NODE]},
    "13": {"status": "RUNNING", "nodes": [{**RUNNING_NODE, "attempt": 1}]},
    "14": {
        "status": "FAILED_FINISHING",
        "nodes": [
            {"id": "sub", "nestedId": "sub", "status": "RUNNING", "type": "flow",
             "nodes": [{"id": "train", "nestedId": "sub:train", "status": "FAILED", "attempt": 0}]}
        ],
    },
    "15": {"status": "SOMETHING_NEW", "nodes": [RUNNING_NODE]},
}  # fmt: skip


DAMAGED = [
    "http://[",
    "http://az]/",
    "http://",
    "http:///manager",
    "http://az:port",
    "http://az:99999",
    "http://az\x1b]0;x\x07",
    "http://az/a b",
    "http://a\u2100b",
    "ftp://az",
]


class _Words(BaseHTTPRequestHandler):
    """As 2.5 and 3.90 answered."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        output = {
            name: texts[0] for name, texts in parse_qs(self.rfile.read(length).decode()).items()
        }
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        answer: Dict[str, Any]
        if output.get("action") == "login":
            answer = {"error": "Incorrect Login. Username/Password not found."}
            if output.get("password") == "pässword":
                answer = {"session.id": "5", "status": "success"}
        elif output.get("session.id") != "5":
            answer = {"error": "session"}
        else:
            execid = output["execid"]
            answer = EXECUTIONS.get(execid, {"error": f"Cannot find execution '{execid}'"})
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Words) as made:
        made.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def password(tmp_path: Path) -> List[str]:
    (tmp_path / "password").write_text("pässword\n", encoding="utf-8")
    return ["--password-file", str(tmp_path / "password")]


def app(
    number: int, execid: str, server: str, job: str = "train", state: str = "RUNNING"
) -> AppStatus:
    props = {"azkaban.flow.execid": execid, "azkaban.flow.nested.path": job}
    tags = (
        tuple(read(props, {"JOB_NAME": "train"}, server, "").tags().values())
        if execid
        else ("nightly",)
    )
    return AppStatus(
        f"local_20260101000000_{number:06x}", "train", "me", "ml", AppState(state), tags=tags
    )


def address(server: ThreadingHTTPServer) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def there(scripted: Scripted, name: str) -> List[str]:
    found = [
        app(1, "11", name),
        app(2, "12", name),
        app(3, "13", name),
        app(4, "14", name, "sub:train"),
        app(5, "15", name),
        app(6, "99", name),
        app(7, "11", "other:8081"),
        app(8, "11", name, state="SUCCEEDED"),
        app(9, "", name),
    ]
    for status in found:
        scripted.apps[status.app_id] = status
    return [status.app_id for status in found]


def test_the_server_is_asked(
    tony: Tony, scripted: Scripted, server: ThreadingHTTPServer, password: List[str]
) -> None:
    ids = there(scripted, address(server))
    arguments = ["azkaban", "sweep", "--server-url", f"http://{address(server)}", *password]
    done = tony(*arguments, "--dry-run")
    assert done.code == 0, done.err
    assert [line.split()[2] for line in done.out.splitlines()] == [ids[0], ids[3]]
    # A retry has ended what its predecessor left, or watches it.
    assert ids[2] not in done.out
    assert "tony_azkaban.attach" in done.err
    assert f"{ids[5]}: the server knows no execution 99" in done.err
    assert "other:8081" in done.err
    assert scripted.killed == []
    done = tony(*arguments)
    assert done.code == 0, done.err
    assert done.out.startswith(f"ended {ids[0]} (train; execution 11, job train)")
    assert [app_id for app_id, _ in scripted.killed] == [ids[0], ids[3]]
    assert not [path for path in server.asked if "session" in path]  # type: ignore[attr-defined]


def test_the_command_line_names_the_executions_that_are_over(
    tony: Tony, scripted: Scripted
) -> None:
    ids = there(scripted, "az")
    several = tony("azkaban", "sweep", "--ended", "11")
    assert several.code == 2
    assert "az, other:8081" in several.err
    arguments = ["azkaban", "sweep", "--server-name", "AZ", "--dry-run", "--json"]
    found = json.loads(tony(*arguments, "--ended", "11,13").out)["applications"]
    assert [row["app_id"] for row in found] == [ids[0], ids[2]]
    found = json.loads(tony(*arguments, "--running", "12, 15").out)["applications"]
    assert [row["execution"] for row in found] == ["11", "13", "14", "99"]
    assert len(json.loads(tony(*arguments, "--ended", "all").out)["applications"]) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the executions that are over"),
        (["--ended", "1", "--running", "2"], "expected one of --server-url, --ended and --running"),
        (["--ended", "one"], "separated by commas"),
        (["--server-url", "az.example"], "http://"),
        *((["--server-url", url], "is not a server's address") for url in DAMAGED),
        (["--server-url", "http://127.0.0.1:1", "--password-file", "/none"], "/none"),
    ],
)
def test_arguments_that_make_no_sense(
    tony: Tony, scripted: Scripted, arguments: List[str], message: str
) -> None:
    there(scripted, "127.0.0.1:1")
    done = tony("azkaban", "sweep", "--server-name", "127.0.0.1:1", *arguments)
    assert done.code == 2
    assert message in done.err


def test_a_server_that_refuses(
    tony: Tony,
    scripted: Scripted,
    server: ThreadingHTTPServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(scripted, address(server))
    monkeypatch.setenv("AZKABAN_PASSWORD", "wrong-one")
    done = tony("azkaban", "sweep", "--server-url", f"http://{address(server)}")
    assert done.code == 1
    assert "refuses the login of azkaban" in done.err
    assert "wrong-one" not in done.err
    assert scripted.killed == []


def test_no_redirect_is_followed(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Another server would be believed what it says of executions."""

    class Sends(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", f"http://{address(server)}/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Sends) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with pytest.raises(ServerError, match="302"):
                Server(f"http://{address(other)}").login("azkaban", "pässword")
        finally:
            other.shutdown()
            thread.join()
    assert server.asked == []  # type: ignore[attr-defined]


def answered(answer: bytes) -> Tuple[ThreadingHTTPServer, List[bytes]]:
    """A server that gives this answer to each request, and the heads of the requests."""
    heads: List[bytes] = []

    class Gives(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heads.append(bytes(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Gives), heads


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Server(f"http://{address(server)}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_users_netrc_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("default login ann password other\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    server, heads = answered(b'HTTP/1.1 200 OK\r\n\r\n{"session.id": "5"}')
    with serving(server) as client:
        client.login("azkaban", "pässword")
    assert heads and b"authorization" not in heads[0].lower()


def test_an_answer_in_many_small_chunks_is_whole() -> None:
    body = json.dumps({"session.id": "5", "words": "x" * 100_000}).encode()
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part)
        for part in (body[at : at + 100] for at in range(0, len(body), 100))
    )
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server, _ = answered(head + chunks + b"0\r\n\r\n")
    with serving(server) as client:
        client.login("azkaban", "pässword")


def test_a_compressed_answer_is_not_unpacked() -> None:
    body = gzip.compress(b'{"session.id": "5"}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    server, heads = answered(head + body)
    with serving(server) as client, pytest.raises(ServerError):
        client.login("azkaban", "pässword")
    assert b"Accept-Encoding: identity" in heads[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 ",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"\x16\x03\x01",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b'"\x1b]0;x\x07"',
    ],
)
def test_an_answer_that_is_none(answer: bytes) -> None:
    """One error, whatever it is, and nothing of it drives a terminal."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(10)
                connection.recv(65536)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ServerError) as caught:
            Server(f"http://127.0.0.1:{listening.getsockname()[1]}").execution("11")
        thread.join()
    assert str(caught.value).isprintable()


ANSWERS = [json.dumps(each).encode() for each in EXECUTIONS.values()] + [
    b'{"error": "session"}',
    b'{"status": 1, "nodes": {"a": [1e999, NaN]}, "nestedId": []}',
    b'{"nodes": [' * 200 + b"]}" * 200,
]


@fuzz(data=mutations(*ANSWERS))
def test_no_answer_is_more_than_refused(data: bytes) -> None:
    try:
        found = jobs_of(parse(data))
    except ServerError as error:
        assert str(error).isprintable()
        return
    assert all(key.startswith("azkaban.job:") for key in found)


def test_names_of_applications_drive_no_terminal(tony: Tony, scripted: Scripted) -> None:
    """Anybody can give an application its name and tags."""
    status = app(1, "11", "az")._replace(name="x\x1b]0;y\x07\ndone")
    scripted.apps[status.app_id] = status
    done = tony("azkaban", "sweep", "--ended", "11", "--dry-run")
    assert "\x1b" not in done.out and len(done.out.splitlines()) == 1


def test_without_a_session_nothing_is_judged(server: ThreadingHTTPServer) -> None:
    with pytest.raises(ServerError, match="session"):
        Server(f"http://{address(server)}").execution("11")
