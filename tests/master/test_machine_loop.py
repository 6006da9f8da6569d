"""Events one at a time, commands in order, and a tick at each deadline: a real reactor, a scripted
machine."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, NamedTuple, Optional

import pytest

from tony_core.master.machine_loop import MachineLoop
from tony_core.master.session import events as e
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import NodeLost


class Do(NamedTuple):
    """A command: call this."""

    what: Callable[[], object]


class Script:
    """A machine whose answer to each event stands in a list; and all that happened, in order."""

    def __init__(self) -> None:
        self.log: List[str] = []
        self.answers: List[List[Do]] = []
        self.due: Optional[float] = None

    def handle(self, event: Any, now: float) -> List[Do]:
        self.log.append(type(event).__name__)
        if isinstance(event, e.Tick):
            self.due = None
        return self.answers.pop(0) if self.answers else []

    def next_deadline(self) -> Optional[float]:
        return self.due


class Held:
    """A loop of a script, and what holds it."""

    def __init__(self, reactor: Reactor) -> None:
        self.script = Script()
        self.is_held = False
        self.beside: Optional[float] = None  # a deadline of another part
        log = self.script.log
        self.loop = MachineLoop(
            reactor, lambda: self.is_held, lambda event: log.append("handled"),
            lambda: log.append("settled"), (lambda: self.beside,), self._check,
        )  # fmt: skip
        self.loop.machine = self.script  # type: ignore[assignment]
        self.loop.performers = {Do: lambda command: command.what()}

    def _check(self, now: float) -> None:
        if self.beside is not None and self.beside <= now:
            self.script.log.append("beside")
            self.beside = None


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


@pytest.fixture
def held(reactor: Reactor) -> Held:
    return Held(reactor)


def test_an_event_out_of_a_command_waits_for_the_commands_before_it(held: Held) -> None:
    script = held.script
    first = Do(lambda: (script.log.append("first"), held.loop.feed(NodeLost("n"))))
    script.answers = [[first, Do(lambda: script.log.append("second"))], []]
    held.loop.feed(e.Begin())
    assert script.log == [
        "Begin", "handled", "first", "second", "NodeLost", "handled", "settled",
    ]  # fmt: skip


def test_what_is_held_goes_on_in_order(held: Held) -> None:
    script = held.script

    def hold() -> None:
        held.is_held = True

    script.answers = [[Do(hold), Do(lambda: script.log.append("second"))]]
    held.loop.feed(e.Begin())
    held.loop.feed(NodeLost("n"))
    assert "second" not in script.log and "NodeLost" not in script.log
    held.is_held = False
    held.loop.go_on()
    assert script.log.index("second") < script.log.index("NodeLost")


def test_a_command_that_fails_leaves_the_loop_and_nothing_is_stuck(held: Held) -> None:
    held.script.answers = [[Do(lambda: 1 // 0)]]
    with pytest.raises(ZeroDivisionError):
        held.loop.feed(e.Begin())
    held.loop.feed(NodeLost("n"))
    assert held.script.log.count("NodeLost") == 1


def test_deadlines_of_the_machine_and_beside_it_wake_it(reactor: Reactor, held: Held) -> None:
    now = reactor.now()
    held.script.due, held.beside = now + 0.1, now + 0.05
    held.loop.arm()
    reactor.call_later(0.3, reactor.stop)
    reactor.run()
    assert [word for word in held.script.log if word in ("beside", "Tick")] == ["beside", "Tick"]


def test_no_tick_while_it_is_held_or_over(reactor: Reactor, held: Held) -> None:
    held.script.due, held.is_held = reactor.now(), True
    held.loop.arm()
    reactor.call_later(0.05, reactor.stop)
    reactor.run()
    held.is_held = False
    held.loop.arm()
    held.loop.close()
    held.loop.feed(e.Begin())
    reactor.call_later(0.05, reactor.stop)
    reactor.run()
    assert held.script.log == []
