"""The probe of a web server: when it calls back, and when it hangs up."""

from __future__ import annotations

import socket
from typing import Any, Callable, Iterator, List

import pytest

from tony_executor.monitoring import http_probe
from tony_executor.monitoring.http_probe import LONGEST_PAGE, HttpProbe


class Timer:
    def __init__(self, fire: Callable[[], None]) -> None:
        self.fire = fire
        self.active = True

    def cancel(self) -> None:
        self.active = False


class World:
    """A reactor without time, and the other end of the probe's connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers: List[Timer] = []
        self.found: List[bool] = []
        self.read: Callable[[], None] = lambda: None
        self.watched = False
        mine, self.server = socket.socketpair()
        monkeypatch.setattr(
            http_probe, "dial", lambda reactor, address, connected, *_: connected(mine)
        )
        HttpProbe(self, "node1:6006", 5.0, self.found.append)  # type: ignore[arg-type]
        assert self.server.recv(100).startswith(b"GET / HTTP/1.0\r\n")

    def call_later(self, seconds: float, then: Callable[..., None], *words: Any) -> Timer:
        self.timers.append(Timer(lambda: then(*words)))
        return self.timers[-1]

    def watch(self, sock: socket.socket, read: Callable[[], None]) -> None:
        self.watched, self.read = True, read

    def unwatch(self, sock: socket.socket) -> None:
        self.watched = False

    def sends(self, data: bytes) -> None:
        self.server.sendall(data)
        self.read()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.server.close()
    assert not made.watched and not any(timer.active for timer in made.timers)


def test_the_whole_page_is_read(world: World) -> None:
    """A server whose page is cut off writes a traceback into the program's log."""
    world.sends(b"HTTP/1.0 200 OK\r\n\r\n")
    world.sends(b"<html>")
    assert world.watched and world.found == []
    world.server.shutdown(socket.SHUT_WR)
    world.read()
    assert world.found == [True]


def test_a_page_without_an_end(world: World) -> None:
    world.sends(b"HTTP/1.0 200 OK\r\n\r\n")
    (deadline,) = (timer for timer in world.timers if timer.active)
    deadline.fire()
    assert world.found == [True]


def test_a_page_too_long_to_read(world: World) -> None:
    world.sends(b"HTTP/1.0 200 OK\r\n\r\n")
    part = b"x" * 4096
    for _ in range(LONGEST_PAGE // len(part)):
        assert world.found == []
        world.sends(part)
    assert world.found == [True]


def test_what_is_no_web_server_is_asked_again(world: World) -> None:
    world.sends(b"SSH-2.0-x\r\n")
    assert world.found == [] and not world.watched
    deadline, again = (timer for timer in world.timers if timer.active)
    deadline.fire()
    assert world.found == [False] and not again.active
