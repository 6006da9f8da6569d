"""Ids as text, as messages and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId

NUMBERS = st.integers(0, (1 << 31) - 1)
APPLICATIONS = st.builds(ApplicationId, st.integers(0, 1 << 45), NUMBERS)
ATTEMPTS = st.builds(AttemptId, APPLICATIONS, NUMBERS)
CONTAINERS = st.builds(ContainerId, ATTEMPTS, st.integers(0, (1 << 62) - 1))
NODES = st.builds(NodeId, st.from_regex(r"[a-z0-9.-]+", fullmatch=True), st.integers(0, 65535))


@given(st.one_of(APPLICATIONS, ATTEMPTS, CONTAINERS, NODES))
def test_round_trips(one: Any) -> None:
    assert type(one).parse(str(one)) == one
    assert type(one).from_message(type(one.to_message()).decode(one.to_message().encode())) == one


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ApplicationId, "application_1700000000000_0042"),
        (ApplicationId, "application_1700000000000_123456"),
        (AttemptId, "appattempt_1700000000000_0042_000001"),
        (ContainerId, "container_1700000000000_0042_01_000003"),
        (ContainerId, "container_e17_1700000000000_0042_01_000003"),
        (ContainerId, "container_e123_1700000000000_0042_11_1234567"),
        (NodeId, "host.example:45454"),
    ],
)
def test_as_hadoop_writes_them(kind: Any, text: str) -> None:
    assert str(kind.parse(text)) == text


@pytest.mark.parametrize("kind", [ApplicationId, AttemptId, ContainerId, NodeId])
@pytest.mark.parametrize("text", ["", "application_1_2_3", "application_x_1", "container_1_2", "h"])
def test_what_is_none(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        kind.parse(text)


def test_the_epoch() -> None:
    container = ContainerId.parse("container_e17_1700000000000_0042_01_000003")
    assert (container.epoch, container.serial) == (17, 3)
    assert container.number == 17 << 40 | 3
    assert ContainerId.parse("container_1700000000000_0042_01_000003").epoch == 0
