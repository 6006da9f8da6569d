"""Horovod's rendezvous: its few words of HTTP, its store, its sockets and clock."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import time
from typing import Callable, Iterator, List, Tuple

import pytest
from hypothesis import strategies as some

from tests.frameworks.failures import Failures
from tests.fuzzing import fuzz, mutations, pieces
from tests.second_user import as_stranger, needs_root
from tony_core.frameworks import horovod_service, session_server
from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.horovod_service import RendezvousService
from tony_core.frameworks.horovod_store import (
    MOST_HEAD,
    MOST_VALUE,
    HttpError,
    Name,
    Store,
    parse_head,
)
from tony_core.protocol import socket_owners

# ------------------------------------------------------------------ words


def _status(text: bytes) -> int:
    with pytest.raises(HttpError) as caught:
        parse_head(text)
    return caught.value.status


def test_a_request_is_read_when_it_is_whole() -> None:
    text = b"PUT /global_/3 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"
    for size in range(len(text) - 2):
        assert parse_head(text[:size]) is None
    head = parse_head(text)
    assert head is not None
    assert (head.method, head.scope, head.key) == ("PUT", "global_", "3")
    assert (head.body_at, head.length) == (len(text) - 2, 2)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /a/b SPDY/3\r\n\r\n", 400),
        (b"GET a/b HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a/ HTTP/1.1\r\n\r\n", 400),
        (b"POST /a/b HTTP/1.1\r\n\r\n", 405),
        (b"PUT /a/b HTTP/1.1\r\n\r\n", 411),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MOST_VALUE + 1), 413),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (b"GET /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"x" * MOST_HEAD, 431),
    ],
)
def test_what_is_no_request_of_horovods(text: bytes, status: int) -> None:
    assert _status(text) == status


@fuzz(
    text=mutations(
        b"PUT /global_/3 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab",
        b"GET /local_host/12 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"DELETE /cross_0/1 HTTP/1.0\r\n\r\n",
    ),
    cuts=some.lists(some.integers(0, 99), max_size=3),
)
def test_garbage_is_refused_or_waits_for_more(text: bytes, cuts: List[int]) -> None:
    store, received, head = Store(10_000), b"", None
    try:
        for piece in pieces(text, cuts):
            received += piece
            head = parse_head(received)
        if head is not None:
            name = Name(head.scope, head.key)
            store.put(name, received[head.body_at : head.body_at + head.length])
            store.delete(name)
            store.get(name)
    except HttpError as refused:
        assert 400 <= refused.status < 600
    assert store.held <= 10_000


# ------------------------------------------------------------------ store


def test_a_scope_ends_with_its_last_rank() -> None:
    store = Store(10_000)
    one, two, other = Name("global_", "0"), Name("global_", "1"), Name("local_h", "0")
    for name in (one, two, other):
        store.put(name, name.key.encode())
        store.put(Name(name.scope, f"rank_{name.key}"), b"box")  # as gloo does, and leaves it
    store.delete(one)
    store.delete(one)
    assert store.get(one) == b"0", "the others may not have read it"
    store.delete(two)
    assert store.get(one) is store.get(two) is None
    assert store.get(other) == b"0"
    store.delete(other)
    store.delete(Name("nowhere", "0"))
    assert store.held == 0


def test_a_store_has_room_for_so_much() -> None:
    store = Store(1000)
    name = Name("a", "0")
    store.put(name, b"x" * 700)
    store.put(name, b"y" * 700)  # in its place
    with pytest.raises(HttpError):
        store.put(Name("a", "c"), b"")
    with pytest.raises(HttpError):
        store.put(name, b"x" * 800)
    assert store.get(name) == b"y" * 700
    store.delete(name)
    assert store.held == 0


# ------------------------------------------------------------------ sockets


@pytest.fixture
def serve(failures: Failures) -> Iterator[Callable[..., RendezvousService]]:
    made: List[RendezvousService] = []

    def start(size: int = 2, timeout: float = 60.0) -> RendezvousService:
        made.append(RendezvousService(size, ServiceContext("127.0.0.1", failures), timeout))
        return made[-1]

    yield start
    for service in made:
        service.close()
        service.close()


def _request(
    service: RendezvousService, method: str, path: str, body: bytes = b""
) -> Tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _raw(service: RendezvousService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=30)


def _rest(sock: socket.socket) -> bytes:
    """All that still comes; nothing where the line was cut."""
    found = b""
    try:
        while True:
            data = sock.recv(65536)
            if not data:
                return found
            found += data
    except ConnectionError:
        return found


def test_what_one_puts_another_gets(serve: Callable[..., RendezvousService]) -> None:
    service = serve()
    value = bytes(range(256)) * 2000
    assert service.environment() == {
        "horovod_addr": "127.0.0.1",
        "horovod_port": str(service.port),
    }
    assert _request(service, "GET", "/global_/0") == (404, b"")
    assert _request(service, "PUT", "/global_/0", value) == (200, b"")
    assert _request(service, "GET", "/global_/0") == (200, value)
    assert _request(service, "GET", "/local_/0") == (404, b"")
    assert _request(service, "DELETE", "/global_/0") == (200, b"")
    assert _request(service, "GET", "/global_/0") == (404, b"")


def test_who_waits_is_answered_when_the_key_comes(
    serve: Callable[..., RendezvousService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horovod_service, "_NOT_YET_S", 60.0)
    monkeypatch.setattr(horovod_service, "_REQUEST_S", 60.0)
    service = serve()
    waiting = [_raw(service) for _ in range(3)]
    for sock in waiting:
        sock.sendall(b"GET /global_/1 HTTP/1.1\r\n\r\n")
    waiting[2].close()
    assert _request(service, "PUT", "/global_/1", b"here") == (200, b"")
    for sock in waiting[:2]:
        assert _rest(sock).endswith(b"\r\n\r\nhere")
        sock.close()


def test_garbage_oversize_and_silence_harm_no_rank(
    serve: Callable[..., RendezvousService],
    failures: Failures,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(horovod_service, "_REQUEST_S", 0.2)
    service = serve()
    requests = [
        b"\x00\xff" * 5000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"PUT /a/b HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 100_000,
        b"PUT /a/b HTTP/1.1\r\nContent-Length: 100\r\n\r\ntoo little",
        b"GET /a",
        b"",
    ]
    for text in requests:
        sock = _raw(service)
        try:
            sock.sendall(text)
        except ConnectionError:
            pass
        assert not _rest(sock).startswith(b"HTTP/1.1 200")
        sock.close()
    monkeypatch.undo()
    assert _request(service, "GET", "/a/b") == (404, b"")
    assert _request(service, "PUT", "/a/b", b"v") == (200, b"")
    assert failures.reported == []


def test_a_client_that_does_not_read_its_answer_delays_no_other(
    serve: Callable[..., RendezvousService],
) -> None:
    service = serve()
    assert _request(service, "PUT", "/a/b", b"x" * 4_000_000) == (200, b"")
    lazy = _raw(service)
    lazy.sendall(b"GET /a/b HTTP/1.1\r\n\r\n")
    assert _request(service, "PUT", "/a/c", b"v") == (200, b"")
    assert _request(service, "GET", "/a/c") == (200, b"v")
    lazy.close()


def test_of_too_many_the_oldest_goes(
    serve: Callable[..., RendezvousService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horovod_service, "_MOST_CONNECTIONS", 8)
    service = serve(0)
    silent = [_raw(service) for _ in range(30)]
    assert _request(service, "PUT", "/a/b", b"v") == (200, b"")
    assert _rest(silent[0]) == b""
    for sock in silent:
        sock.close()


def test_who_does_not_begin_is_named(
    serve: Callable[..., RendezvousService], failures: Failures
) -> None:
    service = serve(3, 0.1)
    service.tasks = ["chief:0", "worker:0", "worker:1"]
    assert _request(service, "PUT", "/local_h/0", b"v") == (200, b"")
    assert _request(service, "PUT", "/global_/1", b"v") == (200, b"")
    reason, task, code = failures.first()
    assert "2 of 3 Horovod ranks (chief:0, worker:1) did not call hvd.init()" in reason
    assert "tony.container.registration.timeout" in reason
    assert (task, code) == ("chief:0", 1)


def test_all_that_began_are_waited_for_no_more(
    serve: Callable[..., RendezvousService], failures: Failures
) -> None:
    service = serve(2, 0.2)
    service.tasks = ["worker:0", "worker:1"]
    for rank in (0, 1):
        _request(service, "PUT", f"/global_/{rank}", b"v")
    gone = _raw(service)
    gone.sendall(b"GET /x/y HTTP/1.1\r\n\r\n")
    assert _rest(gone).startswith(b"HTTP/1.1 404")  # after a moment longer than that
    gone.close()
    assert failures.reported == []


def test_no_port_of_a_previous_session(failures: Failures) -> None:
    first = RendezvousService(1, ServiceContext("127.0.0.1", failures), 60.0)
    first.close()
    avoid = range(1, 65536)
    unlucky = RendezvousService(1, ServiceContext("127.0.0.1", failures), 60.0, avoid)
    unlucky.close()  # as there must be one
    second = RendezvousService(1, ServiceContext("127.0.0.1", failures), 60.0, [first.port])
    second.close()
    assert second.port != first.port


def test_it_listens_on_an_address_for_other_hosts(failures: Failures) -> None:
    # A name may stand for 127.0.1.1 in this machine's own /etc/hosts.
    for host, where in (("node.nowhere", "0.0.0.0"), ("10.9.8.7", "0.0.0.0"),
                        ("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")):  # fmt: skip
        service = RendezvousService(1, ServiceContext(host, failures), 60.0)
        assert service._listener.getsockname()[0] == where
        assert service.environment()["horovod_addr"] == host
        service.close()


def test_without_a_descriptor_left_it_waits_for_one(
    serve: Callable[..., RendezvousService], failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_server, "_FULL_S", 0.05)
    service = serve()
    late = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        late.connect(("127.0.0.1", service.port))
        deadline = time.monotonic() + 30
        while service._full_until is None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert service._full_until is not None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    late.sendall(b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nv")
    assert _rest(late).startswith(b"HTTP/1.1 200")
    late.close()
    assert failures.reported == []


def test_it_may_have_broken_when_it_is_closed(failures: Failures) -> None:
    service = RendezvousService(1, ServiceContext("127.0.0.1", failures), 60.0)
    service._wake_write.close()  # as its thread does when it ends
    with contextlib.suppress(OSError):  # its thread may have closed that already
        service._wake_read.shutdown(socket.SHUT_RDWR)
    service.close()


def test_a_caller_that_meets_a_bug_of_ours_loses_its_connection_and_no_more(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: List[str] = []

    def broken(data: bytes) -> object:
        if data.startswith(b"odd"):
            raise KeyError("a bug")
        return parse_head(data)

    monkeypatch.setattr(horovod_service, "parse_head", broken)
    context = ServiceContext("127.0.0.1", failures, logged.append)
    service = RendezvousService(1, context, 60.0)
    try:
        with socket.create_connection(("127.0.0.1", service.port), timeout=10) as sock:
            sock.sendall(b"odd")
            assert sock.recv(100) == b""
        with socket.create_connection(("127.0.0.1", service.port), timeout=10) as sock:
            sock.sendall(b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
            assert b" 200 " in sock.recv(100)
    finally:
        service.close()
    assert len(logged) == 1 and "KeyError: 'a bug'" in logged[0] and "tony-horovod" in logged[0]
    assert not failures.reported


# ------------------------------------------------------------------ who is let in

STRANGER = """
tried = {}
for way in ("put", "get", "silent"):
    sock = socket.socket()
    sock.settimeout(10)
    try:
        sock.connect((argument["host"], argument["port"]))
        if way == "put":
            sock.sendall(b"PUT /global_/0 HTTP/1.1\\r\\nContent-Length: 4\\r\\n\\r\\nevil")
        elif way == "get":
            sock.sendall(b"GET /global_/1 HTTP/1.1\\r\\n\\r\\n")
        tried[way] = sock.recv(4096).decode()
    except OSError as error:
        tried[way] = ""
    sock.close()
result = tried
"""


@needs_root
def test_another_user_of_the_machine_is_not_let_in(failures: Failures) -> None:
    service = RendezvousService(2, ServiceContext("127.0.0.1", failures), 60.0)
    try:
        where = {"host": "127.0.0.1", "port": service.port}
        assert as_stranger(STRANGER, where) == {"put": "", "get": "", "silent": ""}
        assert service._store.held == 0
    finally:
        service.close()
    assert failures.reported == []


@pytest.mark.parametrize(("nodes", "admitted"), [(["10.0.0.7"], True), (["10.0.0.8"], False)])
def test_from_another_machine_only_the_jobs_nodes_are_let_in(
    failures: Failures, nodes: List[str], admitted: bool
) -> None:
    context = ServiceContext("127.0.0.1", failures, nodes=lambda: nodes)
    service = RendezvousService(2, context, 60.0)

    class Sock:
        def getsockname(self) -> Tuple[str, int]:
            return ("10.0.0.1", service.port)

        def getpeername(self) -> Tuple[str, int]:
            return ("10.0.0.7", 40000)

    try:
        assert service._is_admitted(Sock()) is admitted  # type: ignore[arg-type]
    finally:
        service.close()


def test_without_socket_owners_from_the_kernel_the_session_fails_with_the_reason(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = RendezvousService(2, ServiceContext("127.0.0.1", failures), 60.0)

    def unavailable(sock: socket.socket) -> None:
        raise socket_owners.Unavailable("netlink (sock_diag): forbidden")

    monkeypatch.setattr(service._sockets, "owner_of_peer", unavailable)
    try:
        socket.create_connection(("127.0.0.1", service.port), 10).close()
        assert "netlink (sock_diag): forbidden" in failures.first()[0]
    finally:
        service.close()
