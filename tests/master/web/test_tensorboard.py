"""TensorBoard through a real master: at a port of its own, for the job's user, from his server."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import urlsplit

import pytest

from tests.master.shell import Shell, a_job, until
from tests.second_user import as_stranger, needs_root, start_stranger
from tony_core.job.spec import Resources, Role
from tony_core.master.web import tensorboard_relay
from tony_core.protocol import socket_owners
from tony_core.protocol.messages import Serving
from tony_core.schedulers.container_pool import WebProxy

ONE = Role("worker", 1, Resources(), "true")


class TensorBoardServer(BaseHTTPRequestHandler):
    """Says who was asked for what."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = f"board {self.command} {self.path} {self.rfile.read(length).decode()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def backend_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), TensorBoardServer)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, a_job(ONE)) as made:
        yield made


def serve(shell: Shell, port: int) -> str:
    """TensorBoard's link, once it serves at this port."""
    (executor,) = shell.gang(1)
    executor.send_messages(Serving("tensorboard", port))
    return str(until(lambda: shell.json("/api/job")["links"].get("tensorboard")))


def fetch(
    url: str, path: str = "/", method: str = "GET", body: bytes = b"", **headers: str
) -> Tuple[int, bytes, Dict[str, str]]:
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body or None, headers=named)
    answer = connection.getresponse()
    found = (answer.status, answer.read(), dict(answer.getheaders()))
    connection.close()
    return found


def test_it_has_a_port_of_its_own_and_shares_no_origin_with_the_page(
    shell: Shell, backend_port: int
) -> None:
    url = serve(shell, backend_port)
    assert urlsplit(url).hostname == "127.0.0.1" and urlsplit(url).path == "/"
    assert urlsplit(url).port not in (backend_port, urlsplit(shell.pool.page_url).port)
    for path in ("/", "/data/runs?a=%20b", "/api/job", "/tensorboard/", "/logs/worker:0/stdout"):
        assert fetch(url, path)[:2] == (200, f"board GET {path} ".encode()), "nothing of the page"
    assert fetch(url, "/data", "POST", b"runs=1")[1] == b"board POST /data runs=1"
    assert shell.story("serving") == [f"TensorBoard answers at {url}"]


@pytest.mark.parametrize("path", ["/tensorboard", "/tensorboard/", "/tensorboard/data/a%20b?c=%0d"])
def test_the_page_relays_nothing_and_leads_there(
    shell: Shell, backend_port: int, path: str
) -> None:
    url = serve(shell, backend_port)
    port = urlsplit(url).port
    for host in ("127.0.0.1", "localhost", "[::1]"):
        status, body, headers = fetch(shell.pool.page_url, path, Host=f"{host}:1")
        rest = path[len("/tensorboard") :] or "/"
        assert (status, body) == (302, b"")
        assert headers["Location"] == f"http://{host}:{port}{rest}"
    assert shell.get(path, "POST", b"x")[0] == 405


def test_a_path_cannot_lead_elsewhere(shell: Shell, backend_port: int) -> None:
    port = urlsplit(serve(shell, backend_port)).port
    for path in ("/tensorboard//evil/", "/tensorboard/%0d%0aX:y", "/tensorboard/\\\\evil"):
        status, _, headers = shell.get(path, Host="127.0.0.1:1")
        assert status in (302, 400)
        if status == 302:
            assert headers["Location"].startswith(f"http://127.0.0.1:{port}/")
            assert "X" not in headers


def test_it_answers_under_its_own_names_and_no_post_of_another_site(
    shell: Shell, backend_port: int
) -> None:
    url = serve(shell, backend_port)
    assert fetch(url, Host="evil.example")[0] == 403
    assert fetch(url, method="POST", body=b"x", Origin="http://evil.example")[0] == 403
    assert fetch(url, method="POST", body=b"x", Origin=shell.pool.page_url.rstrip("/"))[0] == 403
    assert fetch(url, method="POST", body=b"x", Origin=url.rstrip("/"))[0] == 200


def test_its_port_stays_and_answers_that_it_serves_no_more(shell: Shell, backend_port: int) -> None:
    (executor,) = shell.gang(1)
    links: List[str] = []
    for _ in range(2):
        executor.send_messages(Serving("tensorboard", backend_port))
        links.append(until(lambda: shell.json("/api/job")["links"].get("tensorboard")))
        executor.send_messages(Serving("tensorboard", 0, "it was killed"))
        until(lambda: "tensorboard" not in shell.json("/api/job")["links"])
    assert links[0] == links[1]
    assert fetch(links[0])[0] == 503
    assert shell.get("/tensorboard/")[0] == 503
    shell.finish(executor)
    shell.go(executor)
    shell.join()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", urlsplit(links[0]).port or 0), 5).close()


def test_a_port_that_cannot_be_opened_is_no_end(shell: Shell, backend_port: int) -> None:
    (executor,) = shell.gang(1)

    def refused(*_args: Any) -> int:
        raise OSError("no descriptors left")

    shell.master._server.open = refused  # type: ignore[method-assign]
    executor.send_messages(Serving("tensorboard", backend_port))
    (text,) = until(lambda: shell.story("serving"))
    assert "cannot open a port for it: no descriptors left" in text
    assert "tensorboard" not in shell.json("/api/job")["links"]


# ------------------------------------------------------------------ other users


@needs_root
def test_another_user_is_not_answered_there(shell: Shell, backend_port: int) -> None:
    url = serve(shell, backend_port)
    code = """
    sock = socket.create_connection((b"127.0.0.1", argument), 10)
    sock.sendall(b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    result = sock.makefile("rb").read().decode()
    """
    answer = as_stranger(code, urlsplit(url).port)
    assert answer.startswith("HTTP/1.1 403 ") and "another user" in answer


@needs_root
def test_a_server_of_another_user_gets_no_request_and_is_shown_to_no_user(shell: Shell) -> None:
    code = """
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps(listener.getsockname()[1]))
    sock, _ = listener.accept()
    print(json.dumps(sock.recv(1000).decode()))
    """
    process = start_stranger(code)
    try:
        assert process.stdout is not None
        url = serve(shell, json.loads(process.stdout.readline()))
        status, body, _ = fetch(url, "/secret")
        assert status == 502 and b"held by another user of this machine" in body
        assert json.loads(process.stdout.readline()) == "", "it got no request"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def test_what_the_kernel_does_not_tell_is_not_relayed(
    shell: Shell, backend_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(shell, backend_port)

    def unavailable(*_args: Any) -> List[socket_owners.SocketOwner]:
        raise socket_owners.Unavailable("no netlink")

    monkeypatch.setattr(socket_owners.SocketTable, "listeners", unavailable)
    status, body, _ = fetch(url)
    assert status == 502 and b"no netlink" in body


# ------------------------------------------------------------------ bugs, and a cluster's proxy


def test_a_bug_over_an_answer_ends_that_connection_and_not_the_job(
    shell: Shell,
    backend_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = serve(shell, backend_port)
    parse_answer = tensorboard_relay.parse_answer

    def broken(head: bytes, path: str, method: str) -> tensorboard_relay.AnswerHead:
        if path == "/odd":
            raise KeyError("a bug")
        return parse_answer(head, path, method)

    monkeypatch.setattr(tensorboard_relay, "parse_answer", broken)
    with pytest.raises(http.client.BadStatusLine):
        fetch(url, "/odd")
    assert fetch(url, "/well")[1] == b"board GET /well "
    assert shell.json("/api/job")["state"] == "RUNNING"
    logged = capsys.readouterr().err
    assert "Traceback" in logged and "KeyError: 'a bug'" in logged


def test_behind_a_proxy_it_is_below_the_page_and_has_no_port(
    tmp_path: Path, backend_port: int
) -> None:
    url = "http://rm/proxy/app_1/"
    proxy = WebProxy(("127.0.0.1",), url, view_acl="*")
    with Shell(tmp_path, a_job(ONE), context={"proxy": proxy}) as made:
        assert serve(made, backend_port) == f"{url}tensorboard/"
        assert made.get("/tensorboard/data?a=b")[1] == b"board GET /data?a=b "
        assert made.master._page.tensorboard_port is None
        assert len(made.master._server._listeners) == 1
