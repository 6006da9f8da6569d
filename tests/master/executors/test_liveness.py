"""Heartbeat bookkeeping, with times of the test's own."""

from __future__ import annotations

import time

import pytest

from tony_core.master.executors.liveness import RECONNECT_S, Liveness


def test_heartbeats_keep_an_executor_alive() -> None:
    live = Liveness(1.0, 5)
    for second in range(100):
        live.note_message("a", float(second))
        assert live.expired(second + 0.9) == []
    assert live.next_deadline() == 99 + 5


def test_a_silent_one_is_lost_once_and_the_setting_is_named() -> None:
    live = Liveness(0.5, 4)
    live.note_message("a", 0.0)
    live.note_message("b", 1.0)
    assert live.expired(1.99) == []
    (lost,) = live.expired(2.0)
    assert lost.container_id == "a"
    assert "for 2 s" in lost.reason
    assert "tony.task.max-missed-heartbeats=4" in lost.reason
    assert "tony.task.heartbeat-interval-ms=500" in lost.reason
    assert live.expired(2.5) == []
    assert [item.container_id for item in live.expired(3.0)] == ["b"]
    assert live.next_deadline() is None


def test_a_closed_connection_has_the_shorter_allowance() -> None:
    live = Liveness(1.0, 25)
    live.note_message("a", 0.0)
    live.closed("a", 1.0, "the connection was lost (reset)")
    assert not live.is_connected("a")
    assert live.next_deadline() == 1.0 + RECONNECT_S
    assert live.expired(10.9) == []
    (lost,) = live.expired(11.0)
    assert "reset" in lost.reason and "did not call again within 10 s" in lost.reason


def test_a_reconnect_within_the_allowance_is_no_loss() -> None:
    live = Liveness(1.0, 25)
    live.note_message("a", 0.0)
    live.closed("a", 1.0, "reset")
    live.note_message("a", 5.0)
    assert live.is_connected("a")
    assert live.expired(20.0) == []


def test_what_ended_is_forgotten_and_a_close_after_it_means_nothing() -> None:
    live = Liveness(1.0, 5)
    live.note_message("a", 0.0)
    live.forget("a")
    live.closed("a", 0.5, "reset")
    assert live.next_deadline() is None
    assert live.expired(100.0) == []


def test_an_expected_call_has_a_deadline_too() -> None:
    live = Liveness(1.0, 5)
    live.expect("a", 0.0, "a new master waits")
    assert live.next_deadline() == 5.0
    assert [item.container_id for item in live.expired(5.0)] == ["a"]


def test_thousands_are_cheap() -> None:
    live = Liveness(1.0, 25)
    began = time.process_time()
    for round_ in range(10):
        for number in range(10_000):
            live.note_message(str(number), float(round_))
        assert live.expired(float(round_)) == []
    assert time.process_time() - began < 5.0  # of the processor; 0.1 s where it is idle
    assert len(live.expired(9.0 + 25.0)) == 10_000


def test_a_gap_is_noted_where_it_matters_and_is_the_longest() -> None:
    live = Liveness(1.0, 25)
    noted = [live.note_message("a", at) for at in (0.0, 1.0, 5.5, 11.5, 16.6, 24.0)]
    assert noted == [None, None, None, 6.0, None, pytest.approx(7.4)]
    # A closed connection is another matter, with an allowance of its own.
    live.closed("a", 24.0, "closed")
    assert live.note_message("a", 33.0) is None
    live.forget("a")
    assert live.note_message("a", 50.0) is None
    assert live.note_message("a", 55.5) == 5.5
