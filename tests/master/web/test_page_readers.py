"""Who may read the page of a job on a machine that others use, and that others cannot block it."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.master.shell import Shell, a_job
from tests.second_user import as_stranger, needs_root, start_stranger
from tony_core.job.spec import Resources, Role
from tony_core.master.web import server
from tony_core.protocol import socket_owners

ONE = Role("worker", 1, Resources(), "true")
PATHS = ["/", "/job", "/inside", "/api/job", "/api/tasks", "/api/metrics", "/api/events",
         "/logs/worker:0/stdout", "/tensorboard/x", "/nothing"]  # fmt: skip
ASK = """
host, port, requests = argument
result = []
for method, path in requests:
    caller = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    caller.settimeout(20)
    caller.connect((host, port))
    caller.sendall(f"{method} {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
    answer = b""
    for piece in iter(lambda: caller.recv(65536), b""):
        answer += piece
    result.append(answer.decode())
"""
FILL = """
host, port, count = argument
held = []
print("started", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    caller = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    caller.setblocking(False)
    caller.connect_ex((host, port))
    held.append(caller)
    if len(held) == count:
        print("filled", flush=True)
    if len(held) >= count:
        held.pop(0).close()
        time.sleep(0.0005)
"""


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture(params=["127.0.0.1", "::1"])
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    if ":" in request.param and not has_ipv6():
        pytest.skip("there is no IPv6 here")
    with Shell(tmp_path, a_job(ONE), context={"host": request.param}) as made:
        made.launched(1)
        yield made


def where(shell: Shell) -> List[object]:
    host, _, port = shell.pool.page_url[len("http://") : -1].rpartition(":")
    return [host.strip("[]"), int(port)]


@needs_root
def test_another_user_reads_nothing(shell: Shell) -> None:
    requests = [[method, path] for path in PATHS for method in ("GET", "HEAD", "POST")]
    for answer in as_stranger(ASK, [*where(shell), requests]):
        assert answer.startswith("HTTP/1.1 403 ")
        assert answer.count("HTTP/1.1") == 1, "and the connection is over"
        assert "app_1" not in answer and "worker" not in answer
        assert "another user" in answer or answer.startswith("HTTP/1.1 403 Forbidden")
    assert shell.get("/api/job")[0] == 200


@needs_root
def test_another_users_connections_do_not_keep_the_owner_out(shell: Shell) -> None:
    stranger = start_stranger(FILL, [*where(shell), 500])
    with stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "started\n"
            assert stranger.stdout.readline() == "filled\n"
            for _ in range(20):
                assert shell.get("/api/job")[0] == 200
            connections = shell.master._server._connections
            assert sum(not one.trusted for one in list(connections)) <= server.MAX_UNTRUSTED
        finally:
            stranger.kill()


@needs_root
def test_another_users_connections_do_not_use_up_the_masters_descriptors(tmp_path: Path) -> None:
    """At the page and at the executors' port, with few descriptors for all."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        with Shell(tmp_path, a_job(ONE)) as shell:
            shell.launched(1)
            ports = [where(shell)[1], int(shell.address.rpartition(":")[2])]
            strangers = [start_stranger(FILL, ["127.0.0.1", port, 150]) for port in ports]
            try:
                for stranger in strangers:
                    assert stranger.stdout is not None
                    assert [stranger.stdout.readline() for _ in range(2)][1] == "filled\n"
                assert len(os.listdir("/proc/self/fd")) < 190
                shell.gang(1)
                for _ in range(10):
                    assert shell.get("/api/job")[0] == 200
                assert len(os.listdir("/proc/self/fd")) < 190
            finally:
                for stranger in strangers:
                    with stranger:
                        stranger.kill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("path", ["/", "/api/tasks", "/logs/worker:0/stdout", "/tensorboard/x"])
def test_a_connection_of_another_user_is_refused(shell: Shell, path: str) -> None:
    assert shell.get("/api/job")[0] == 200
    shell.master._page.owners = frozenset({os.getuid() + 1})
    status, body, headers = shell.get(path, X_Tony_Client="1")
    assert (status, headers["Connection"]) == (403, "close")
    assert b"another user" in body


def test_without_an_answer_of_the_kernel_everyone_is_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: object, sock: object) -> None:
        raise socket_owners.Unavailable("netlink (sock_diag): Protocol not supported")

    with monkeypatch.context() as patched:
        patched.setattr(socket_owners.SocketTable, "owner_of_peer", fail)
        for _ in range(3):
            status, body, _ = shell.get("/api/job")
            assert status == 403
            assert b"does not show which user asks" in body
            assert b"Protocol not supported" in body
    assert capsys.readouterr().err.count("does not show which user asks") == 1, "one line a minute"
    assert shell.get("/api/job")[0] == 200
