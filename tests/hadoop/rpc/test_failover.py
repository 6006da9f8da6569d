"""The choice among servers, without any."""

from __future__ import annotations

from typing import List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.hadoop.errors import (
    AuthenticationError,
    CredentialRefused,
    HadoopError,
    Unreachable,
    remote_error,
)
from tony_core.hadoop.rpc.service import Failover

DOWN = Unreachable("connection refused")
STANDBY = remote_error("org.apache.hadoop.ipc.StandbyException", "no")
BUSY = remote_error("org.apache.hadoop.ipc.RetriableException", "later")
NO = remote_error("org.apache.hadoop.security.AccessControlException", "no")


def test_one_after_the_other_then_a_pause() -> None:
    choice = Failover(2, first_pause=1, longest_pause=4, jitter=lambda: 1.0)
    seen: List[Optional[float]] = []
    order: List[int] = []
    for _ in range(8):
        seen.append(choice.record_failure(DOWN))
        order.append(choice.current)
    assert seen == [0, 1, 0, 2, 0, 4, 0, 4]
    assert order == [1, 0] * 4


def test_what_worked_is_kept() -> None:
    choice = Failover(3, jitter=lambda: 1.0, first_pause=1)
    assert choice.record_failure(STANDBY) == 0
    choice.record_success()
    assert choice.current == 1
    assert [choice.record_failure(DOWN) for _ in range(3)] == [0, 0, 1]


def test_a_busy_one_is_asked_again() -> None:
    choice = Failover(2, first_pause=1, jitter=lambda: 0.0)
    assert [choice.record_failure(BUSY), choice.record_failure(BUSY)] == [0.5, 1.0]
    assert choice.current == 0


def test_who_has_not_proved_who_it_is_leads_to_the_other() -> None:
    choice = Failover(2)
    assert choice.record_failure(AuthenticationError("x")) == 0.0
    assert choice.current == 1


def test_a_refused_credential_is_shown_to_each_server_once() -> None:
    assert Failover(1).record_failure(CredentialRefused("cancelled")) is None
    choice = Failover(2)
    assert choice.record_failure(CredentialRefused("cancelled")) == 0.0
    assert choice.record_failure(CredentialRefused("cancelled")) is None
    choice = Failover(2, jitter=lambda: 0.0)
    assert [choice.record_failure(CredentialRefused("x")), choice.current] == [0.0, 1]
    assert choice.record_failure(DOWN) is not None  # it may be back
    assert choice.record_failure(CredentialRefused("x")) is None


@pytest.mark.parametrize("error", [NO, HadoopError("x")])
def test_an_answer_is_an_answer(error: HadoopError) -> None:
    choice = Failover(2)
    assert choice.record_failure(error) is None
    assert choice.current == 0


def test_what_may_have_arrived_is_repeated_only_where_that_is_harmless() -> None:
    choice = Failover(1)
    assert choice.record_failure(Unreachable("x", sent=True), repeatable=False) is None
    assert choice.record_failure(Unreachable("x", sent=False), repeatable=False) is not None
    assert choice.record_failure(Unreachable("x", sent=True)) is not None


@given(st.lists(st.sampled_from([DOWN, STANDBY, BUSY]), max_size=60), st.integers(1, 4))
def test_pauses_have_a_limit_and_every_server_gets_its_turn(
    errors: List[HadoopError], count: int
) -> None:
    choice = Failover(count, first_pause=0.2, longest_pause=5)
    for error in errors:
        pause = choice.record_failure(error)
        assert pause is not None
        assert 0 <= pause <= 5
        assert 0 <= choice.current < count


def test_no_server() -> None:
    with pytest.raises(ValueError, match="no server"):
        Failover(0)
