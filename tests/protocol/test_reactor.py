"""What is called back, and when."""

from __future__ import annotations

import os
from typing import Any, Iterator, List

import pytest

from tony_core.protocol.reactor import MOST_FAULTS, GuardedReactor, Reactor


def set_clock(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock shows 100 s, and goes on to the next timer at once, however busy the machine is."""
    clock = [100.0]
    wait = reactor._wait

    def waited() -> Any:
        seconds = wait()
        clock[0] += seconds or 0.0
        return 0.0

    monkeypatch.setattr(reactor, "now", lambda: clock[0])
    monkeypatch.setattr(reactor, "_wait", waited)


@pytest.fixture
def reactor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reactor]:
    made = Reactor()
    set_clock(made, monkeypatch)
    yield made
    made.close()


def at(reactor: Reactor, happened: List[Any], name: str) -> Any:
    return lambda: happened.append((name, round(reactor.now() - 100.0, 6)))


def test_a_timer_with_slack_fires_with_the_next_event(reactor: Reactor) -> None:
    happened: List[Any] = []
    reactor.call_with_slack(1.0, 0.5, at(reactor, happened, "about"))
    reactor.call_later(0.4, at(reactor, happened, "too soon"))
    reactor.call_later(0.7, at(reactor, happened, "beside"))
    reactor.call_later(1.5, reactor.stop)
    reactor.run()
    assert happened == [("too soon", 0.4), ("beside", 0.7), ("about", 0.7)]


def test_a_timer_with_slack_fires_at_its_time_at_the_latest(reactor: Reactor) -> None:
    happened: List[Any] = []
    reactor.call_with_slack(1.0, 0.5, at(reactor, happened, "about"))
    reactor.call_later(3.0, reactor.stop)
    reactor.run()
    assert happened == [("about", 1.0)]


def test_a_cancelled_timer_with_slack_never_fires(reactor: Reactor) -> None:
    happened: List[Any] = []
    reactor.call_with_slack(1.0, 0.5, at(reactor, happened, "about")).cancel()
    reactor.call_later(0.7, at(reactor, happened, "beside"))
    reactor.call_later(3.0, reactor.stop)
    reactor.run()
    assert happened == [("beside", 0.7)]
    assert reactor._slack == []


def test_repeated_timers_with_slack_fire_together(reactor: Reactor) -> None:
    beats: List[float] = []
    looks: List[float] = []

    def beat() -> None:
        beats.append(reactor.now())
        reactor.call_later(1.0, beat)

    def look() -> None:
        looks.append(reactor.now())
        reactor.call_with_slack(1.5, 1.0, look)

    reactor.call_later(0.3, beat)
    reactor.call_with_slack(1.5, 1.0, look)
    reactor.call_later(20.0, reactor.stop)
    reactor.run()
    assert looks == beats[1 : len(looks) + 1], "no wake-up of its own"


def test_a_call_from_another_thread_wakes_it() -> None:
    made = Reactor()
    made.call_later(600.0, made.stop)
    made.call_soon_threadsafe(made.stop)
    made.run()
    made.close()


# ------------------------------------------------------------------ callbacks of a stranger


def test_an_exception_of_a_guarded_callback_ends_its_connection_only(reactor: Reactor) -> None:
    logged: List[str] = []
    closed: List[Exception] = []
    happened: List[str] = []
    reactor.log = logged.append

    def close(error: Exception) -> bool:
        closed.append(error)
        return True

    def fails(name: str) -> None:
        happened.append(name)
        raise KeyError(name)

    guarded = GuardedReactor(reactor, close)
    reading, writing = os.pipe()
    os.write(writing, b"x")

    def read() -> None:
        guarded.unwatch(reading)
        fails("read")

    guarded.watch(reading, read)
    guarded.call_later(1.0, fails, "later")
    guarded.call_with_slack(2.0, 0.5, fails, "about")
    guarded.call_soon_threadsafe(fails, "soon")
    guarded.call(fails, "now")
    guarded.call_later(1.0, fails, "never").cancel()
    reactor.call_later(3.0, reactor.stop)
    reactor.run()
    os.close(reading)
    os.close(writing)
    assert happened[0] == "now" and sorted(happened) == ["about", "later", "now", "read", "soon"]
    assert len(closed) == len(logged) == 5
    assert "Traceback" in logged[0] and "in fails" in logged[0] and "KeyError: 'now'" in logged[0]


def test_what_the_owner_does_not_take_leaves_the_reactor(reactor: Reactor) -> None:
    logged: List[str] = []
    reactor.log = logged.append

    def fails() -> None:
        raise KeyError("ours")

    GuardedReactor(reactor, lambda error: False).call_later(0, fails)
    with pytest.raises(KeyError):
        reactor.run()
    assert logged == []


def test_no_stranger_fills_the_log_with_tracebacks(reactor: Reactor) -> None:
    logged: List[str] = []
    reactor.log = logged.append
    guarded = GuardedReactor(reactor, lambda error: True)
    for _ in range(3 * MOST_FAULTS):
        guarded.call(int, "x")
    assert len(logged) == MOST_FAULTS
    assert logged[-1].endswith("no more of these are logged")


def test_a_log_that_cannot_be_written_ends_nothing(reactor: Reactor) -> None:
    def full(text: str) -> None:
        raise OSError("no space left")

    reactor.log = full
    GuardedReactor(reactor, lambda error: True).call(int, "x")
