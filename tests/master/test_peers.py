"""Who is at the other end: of real connections, in the kernel's own table."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.master.shell import Shell, a_job
from tony_core.job.spec import Resources, Role
from tony_core.master import peers

ONE = Role("worker", 1, Resources(), "true")
GET = """
import os, socket, sys
if sys.argv[2:]:
    os.setuid(int(sys.argv[2]))
with socket.socket() as caller:
    caller.settimeout(10)
    caller.connect(("127.0.0.1", int(sys.argv[1])))
    caller.sendall(b"GET /api/job HTTP/1.0\\r\\n\\r\\n")
    answer = b""
    for piece in iter(lambda: caller.recv(65536), b""):
        answer += piece
    os.write(1, answer)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, a_job(ONE)) as made:
        made.launched(1)
        yield made


@pytest.mark.parametrize(("bound", "called"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_the_owner_of_the_other_end(bound: str, called: str) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((bound, 0))
        except OSError:
            pytest.skip(f"there is no {bound} here")
        listener.listen()
        caller = socket.create_connection((called, listener.getsockname()[1]), 10)
        there, _ = listener.accept()
        with there:
            with caller:
                assert peers.owner_of(there) == os.getuid()
                caller.shutdown(socket.SHUT_WR)
                assert peers.owner_of(there) == os.getuid()
            assert peers.owner_of(there) is None, "closed: nobody's, and not root's"


def test_a_caller_of_both_families() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.socket(socket.AF_INET6) as caller:
            caller.settimeout(10)
            try:
                caller.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
            except OSError:
                pytest.skip("there is no IPv6 here")
            there, _ = listener.accept()
            with there:
                assert peers.owner_of(there) == os.getuid()


@pytest.mark.parametrize("path", ["/", "/api/tasks", "/logs/worker:0/stdout", "/tensorboard/x"])
def test_another_users_request_is_refused(shell: Shell, path: str) -> None:
    assert shell.get("/api/job")[0] == 200
    shell.master._page.owners = frozenset({os.getuid() + 1})
    status, body, _ = shell.get(path, X_Tony_Client="1")
    assert status == 403
    assert b"another user" in body


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_nobody_is_really_refused(shell: Shell) -> None:
    port = shell.pool.page_url.rstrip("/").rpartition(":")[2]

    def get(*uid: str) -> str:
        argv = [sys.executable, "-I", "-S", "-c", GET, port, *uid]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
        return done.stdout

    assert get("65534").startswith("HTTP/1.1 403 ")
    assert "another user" in get("65534")
    assert get().startswith("HTTP/1.1 200 ")


def test_without_a_table_nobody_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TABLES", ("/nowhere",))
    assert shell.get("/api/job")[0] == 200
