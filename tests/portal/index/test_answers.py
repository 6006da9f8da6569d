"""Costly answers: for how long they are used, and that one reader asks for all."""

from __future__ import annotations

import threading
import time
from typing import List

import pytest

from tony_core.portal.index import answers
from tony_core.portal.index.answers import LONGEST_S, Answers


class Clock:
    """Shows what a test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("cost", "lasts"), [(0.1, 5.0), (1.0, 50.0), (5.0, LONGEST_S)])
def test_for_as_long_as_it_cost_and_no_longer_than_a_minute(cost: float, lasts: float) -> None:
    clock = Clock()
    made = Answers(clock)
    asked: List[int] = []

    def ask() -> int:
        asked.append(1)
        clock.now += cost
        return len(asked)

    assert made.get(("q",), ask) == 1
    clock.now = 100.0 + lasts - 0.01
    assert made.get(("q",), ask) == 1
    clock.now = 100.0 + lasts + 0.01
    assert made.get(("q",), ask) == 2
    assert made.get(("another",), ask) == 3


def test_readers_of_one_answer_ask_once() -> None:
    made = Answers()
    asked: List[int] = []

    def ask() -> int:
        asked.append(1)
        time.sleep(0.2)
        return 7

    found: List[int] = []
    readers = [
        threading.Thread(target=lambda: found.append(made.get(("q",), ask))) for _ in range(8)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert found == [7] * 8 and len(asked) == 1


def test_a_failure_is_no_answer_and_keeps_no_other_out() -> None:
    made = Answers()
    with pytest.raises(ZeroDivisionError):
        made.get(("q",), lambda: 1 // 0)
    assert made.get(("q",), lambda: 3) == 3


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST", 3)
    made = Answers()
    for number in range(10):
        made.get((number,), lambda: 1)
    assert len(made._known) <= 3 and not made._running
