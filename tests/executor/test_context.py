"""What an executor reads from its environment and its command line."""

from __future__ import annotations

from typing import Callable, Dict

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Register


def test_the_host_is_the_node_or_the_way_to_the_master(
    master: Master, launch: Callable[..., Executor]
) -> None:
    launch(env={"TONY_NODE": "node7.example:8041"})
    assert master.expect(Register).host == "node7.example"
    other = Master()
    try:
        launch(master=other.address, name="container_2", env={"TONY_NODE": ""})
        assert other.expect(Register).host == "127.0.0.1"
    finally:
        other.close()


@pytest.mark.parametrize(
    ("env", "address", "words"),
    [
        ({"TONY_LOG_DIR": ""}, "127.0.0.1:1", "missing environment variables: TONY_LOG_DIR"),
        ({"TONY_SECRET_FILE": "/nowhere"}, "127.0.0.1:1", "TONY_SECRET_FILE /nowhere: No such"),
        ({"TONY_SECRET_FILE": "/dev/null"}, "127.0.0.1:1", "is empty"),
        ({"TONY_SUCCESSOR": "x"}, "127.0.0.1:1", "TONY_SUCCESSOR is not a JSON"),
        ({}, "nonsense", "--master: 'nonsense' is not host:port"),
    ],
)
def test_started_wrongly(
    launch: Callable[..., Executor], env: Dict[str, str], address: str, words: str
) -> None:
    executor = launch(master=address, env=env)
    assert executor.wait() == 64
    assert words in executor.errors()
