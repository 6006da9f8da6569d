"""A web server of the program's own: when it is looked for, shown, and no more."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import pytest

from tony_executor.monitoring import http_probe
from tony_executor.monitoring.http_probe import LONGEST_PAUSE_S, ProgramServerWatch


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """A reactor without time, a kernel and a probe that answer what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listens = False
        self.answers = True
        self.pauses: List[float] = []
        self.served: List[Tuple[int, str]] = []
        self.warnings: List[str] = []
        self.asked: List[str] = []
        self._timer = Timer()
        self._then: Callable[[], None] = lambda: None
        monkeypatch.setattr(http_probe, "serves", lambda pid, port: self.listens)
        monkeypatch.setattr(http_probe, "HttpProbe", self._probe)
        self.server = ProgramServerWatch(
            self,  # type: ignore[arg-type]
            7,
            "node1",
            6006,
            lambda port, message: self.served.append((port, message)),
            self.warnings.append,
        )

    def call_later(self, seconds: float, then: Callable[[], None]) -> Any:
        self.pauses.append(seconds)
        self._timer, self._then = Timer(), then
        return self._timer

    def _probe(
        self, reactor: Any, address: str, seconds: float, done: Callable[[bool], None]
    ) -> Any:
        self.asked.append(address)
        done(self.answers)
        return Timer()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            assert not self._timer.cancelled
            self._then()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_server_is_reported_and_withdrawn(world: World) -> None:
    world.look(3)
    assert world.served == [] and world.asked == []
    world.listens = True
    world.look(3)
    assert world.served == [(6006, "")] and world.asked == ["node1:6006"]
    world.listens = False
    world.look()
    world.listens = True
    world.look()
    assert world.served == [(6006, ""), (0, ""), (6006, "")]
    world.server.close()
    assert world.served[-1] == (0, "") and world._timer.cancelled
    assert world.warnings == []


def test_at_another_address_is_one_warning(world: World) -> None:
    world.listens, world.answers = True, False
    world.look(3)
    (text,) = world.warnings
    assert "TB_PORT (6006)" in text and "--host node1" in text and "--bind_all" in text
    assert world.served == []
    world.answers = True  # it was only slow
    world.look()
    assert world.served == [(6006, "")]


def test_it_is_looked_for_less_and_less_often(world: World) -> None:
    world.look(20)
    assert world.pauses == sorted(world.pauses) and world.pauses[-1] == LONGEST_PAUSE_S
    world.server.close()
    assert world.served == []
