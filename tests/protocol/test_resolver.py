"""Questions that block are asked beside the reactor's thread, a bounded number at a time."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Iterator, List

import pytest

from tests.protocol.turning import run_until
from tony_core.protocol import resolver
from tony_core.protocol.link import dial, numeric_addresses
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.resolver import MAX_LOOKUPS, MAX_THREADS, Resolver


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


class Gate:
    """Work that takes until the test lets it end."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.ran = 0
        self.at_once = 0
        self.most = 0
        self._lock = threading.Lock()

    def work(self) -> str:
        with self._lock:
            self.ran += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.open.wait(20)
        with self._lock:
            self.at_once -= 1
        return "done"


def test_a_slow_name_holds_neither_the_reactor_nor_an_address(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a job has executors with a name server that is gone."""
    gate = Gate()
    look_up = resolver._look_up

    def slow(host: str) -> Any:
        if not host.startswith("slow"):
            return look_up(host)
        gate.work()
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(resolver, "_look_up", slow)
    monkeypatch.setattr("tony_core.protocol.resolver.RESOLVER", Resolver())
    failed: List[str] = []
    quick: List[str] = []
    for number in range(20):
        dial(reactor, f"slow{number}:80", pytest.fail, failed.append, timeout_s=0.3)
    dial(reactor, "127.0.0.1:1", pytest.fail, quick.append)
    beats: List[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        reactor.call_later(0.01, beat)

    beat()
    run_until(reactor, lambda: len(failed) == 20 and quick, lambda: (failed, quick))
    gate.open.set()
    assert all("no answer within 0.3 s" in reason for reason in failed)
    assert gate.most <= MAX_THREADS
    gaps = [b - a for a, b in itertools.pairwise(beats)]
    assert max(gaps) < 10, "the reactor turned all the time"


def test_equal_questions_are_asked_once_and_the_answer_is_kept(reactor: Reactor) -> None:
    made, gate, answers = Resolver(), Gate(), list[Any]()
    for _ in range(5):
        made.resolve(reactor, "key", gate.work, answers.append, pytest.fail)
    gate.open.set()
    run_until(reactor, lambda: len(answers) == 5, lambda: answers)
    made.resolve(reactor, "key", gate.work, answers.append, pytest.fail)
    run_until(reactor, lambda: len(answers) == 6, lambda: answers)
    assert (gate.ran, set(answers)) == (1, {"done"})
    made.resolve(reactor, "other", gate.work, answers.append, pytest.fail, keep_s=0)
    run_until(reactor, lambda: len(answers) == 7, lambda: answers)
    made.resolve(reactor, "other", gate.work, answers.append, pytest.fail)
    run_until(reactor, lambda: len(answers) == 8, lambda: answers)
    assert gate.ran == 3


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError(-2, "Name or service not known"), "Name or service not known"),
     (ValueError("embedded null byte"), "embedded null byte"), (MemoryError(), "MemoryError"),
     (KeyError("bug"), "KeyError")],
)  # fmt: skip
def test_work_that_fails_gives_its_reason_and_is_tried_again(
    reactor: Reactor, error: Exception, words: str
) -> None:
    made, failed, answers = Resolver(), list[str](), list[Any]()

    def fail() -> None:
        raise error

    made.resolve(reactor, "key", fail, pytest.fail, failed.append)
    run_until(reactor, lambda: failed, lambda: failed)
    assert words in failed[0]
    made.resolve(reactor, "key", lambda: 1, answers.append, pytest.fail)
    run_until(reactor, lambda: answers, lambda: answers)


def test_a_lookup_that_all_callers_cancelled_is_not_begun(reactor: Reactor) -> None:
    made, gate, later, answers = Resolver(), Gate(), Gate(), list[Any]()
    later.open.set()
    for number in range(MAX_THREADS):
        made.resolve(reactor, number, gate.work, answers.append, pytest.fail)
    made.resolve(reactor, "late", later.work, pytest.fail, pytest.fail).cancel()
    made.resolve(reactor, "last", later.work, answers.append, pytest.fail)
    gate.open.set()
    run_until(reactor, lambda: len(answers) == MAX_THREADS + 1, lambda: answers)
    assert later.ran == 1


def test_questions_are_bounded(reactor: Reactor) -> None:
    made, gate, failed, answers = Resolver(), Gate(), list[str](), list[Any]()
    for number in range(MAX_THREADS + MAX_LOOKUPS + 50):
        made.resolve(reactor, number, gate.work, answers.append, failed.append)
    run_until(reactor, lambda: len(failed) >= 50, lambda: failed)
    gate.open.set()
    run_until(
        reactor,
        lambda: len(failed) + len(answers) == MAX_THREADS + MAX_LOOKUPS + 50,
        lambda: (len(failed), len(answers)),
    )
    assert gate.most <= MAX_THREADS
    assert "too many" in failed[0]


def test_an_answer_after_the_reactors_end_is_dropped() -> None:
    made, gate, reactor = Resolver(), Gate(), Reactor()
    made.resolve(reactor, "key", gate.work, pytest.fail, pytest.fail)
    reactor.close()
    gate.open.set()
    deadline = time.monotonic() + 10
    while made._threads:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "::1", "fe80::1%lo", "::ffff:10.0.0.7"])
def test_addresses_in_digits(host: str) -> None:
    assert len(numeric_addresses(host)) == 1


@pytest.mark.parametrize("host", ["localhost", "node1", "", "a\0b", "\ud800", "²", "1" * 5000])
def test_what_is_no_address_in_digits(host: str) -> None:
    assert numeric_addresses(host) == []
