from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Iterator

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.portal.access.running import Running, running
from tony_core.portal import connections
from tony_core.portal.settings import Settings

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def portal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    with running(Settings(access_log=str(tmp_path / "log"))) as found:
        yield found


def rest_of(made: socket.socket) -> bytes:
    """Everything until the portal closes the connection."""
    made.settimeout(60)
    found = b""
    while True:
        part = made.recv(65536)
        if not part:
            return found
        found += part


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: local"])
def test_one_that_sends_no_request_is_closed(portal: Running, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", portal.port)) as made:
        made.sendall(sent)
        assert rest_of(made) == b""


def test_nor_does_a_byte_now_and_then_keep_it(portal: Running) -> None:
    with socket.create_connection(("127.0.0.1", portal.port)) as made:
        end = time.monotonic() + 60
        with pytest.raises(OSError):
            while time.monotonic() < end:
                made.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() < end


def test_a_second_request_has_a_deadline_too(portal: Running) -> None:
    with socket.create_connection(("127.0.0.1", portal.port)) as made:
        made.sendall(REQUEST)
        assert made.recv(65536).startswith(b"HTTP/1.1 200")
        made.sendall(b"GET")
        assert b"HTTP/1.1" not in rest_of(made), "closed, and not answered"


def test_a_body_that_does_not_come(portal: Running) -> None:
    with socket.create_connection(("127.0.0.1", portal.port)) as made:
        made.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ncsrf")
        began = time.monotonic()
        assert rest_of(made).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < connections.KEEP_ALIVE_S / 2, "it is closed at once"


def test_an_answer_that_takes_longer_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_late(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1.5)
        await PlainTextResponse("late")(scope, receive, send)

    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with running(Settings(access_log=str(tmp_path / "log")), answer_late) as portal:
        assert portal.ask().text == "late"
