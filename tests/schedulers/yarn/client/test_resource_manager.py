"""Whether anybody listens at the ResourceManager's addresses."""

from __future__ import annotations

import socket
from typing import Iterator

import pytest

from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.schedulers.yarn.client import resource_manager


@pytest.fixture
def listening() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Address("127.0.0.1", server.getsockname()[1])


@pytest.fixture
def closed() -> Iterator[Address]:
    with socket.socket() as bound:  # no other process takes the port meanwhile
        bound.bind(("127.0.0.1", 0))
        yield Address("127.0.0.1", bound.getsockname()[1])


def test_one_of_a_pair_is_enough(listening: Address, closed: Address) -> None:
    assert resource_manager.connection_problem(Endpoints("the RM", (listening,))) == ""
    assert resource_manager.connection_problem(Endpoints("the RM", (closed, listening))) == ""


def test_why_not(closed: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(resource_manager.time, "sleep", pauses.append)
    pair = Endpoints("the ResourceManager", (closed,), "Configuration was looked for there")
    assert resource_manager.connection_problem(pair) == (
        f"the ResourceManager cannot be reached: {closed}: connection refused."
        " Configuration was looked for there"
    )
    assert resource_manager.connection_problem(pair, retries=3).startswith(
        f"the ResourceManager cannot be reached (4 attempts): {closed}: connection refused"
    )
    assert pauses == [0.2, 0.4, 0.8]


def test_an_unknown_name() -> None:
    nowhere = Endpoints("the RM", (Address("no-such-host.invalid", 1),))
    assert "this name is not known" in resource_manager.connection_problem(nowhere)
