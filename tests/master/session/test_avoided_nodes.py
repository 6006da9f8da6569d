"""Nodes that are asked for nothing more for a while: who cannot start what it is given, too."""

from __future__ import annotations

from typing import List

import pytest

from tests.master.session.world import World, job, role
from tony_core.exit_causes import ExitCause
from tony_core.master.session import commands as c
from tony_core.master.session.deadlines import AVOIDED_S
from tony_core.master.session.shutdown import stop_container
from tony_core.schedulers.container_pool import ContainerRequest


def a_job() -> World:
    """Two workers that wait for their executors' calls."""
    world = World(job(role("worker", 2)), settle_s=0.2).begin()
    world.queue.pop(0).do()  # granted and launched; no executor has registered
    return world


def asked_after(world: World) -> List[ContainerRequest]:
    """What the next session asks for."""
    asked: List[ContainerRequest] = []
    request = world.do_RequestContainers

    def note(command: c.RequestContainers) -> None:
        asked.extend(request for request in command.requests if request.count)
        request(command)

    world.do_RequestContainers = note  # type: ignore[method-assign]
    world.after(1).settle()
    assert world.machine.state.session == 1
    return asked


@pytest.mark.parametrize(("code", "cause"), [(127, ExitCause.LAUNCH), (127, ExitCause.EXITED)])
def test_a_node_that_could_not_start_an_executor_is(code: int, cause: ExitCause) -> None:
    """It has the most room of all, and would be given everything again."""
    world = a_job()
    bad, other = (world.executor(name).container.node for name in ("worker:0", "worker:1"))
    world.kill("worker:0", cause, code)
    asked = asked_after(world)
    assert [request.avoid_nodes for request in asked] == [(bad,)] * len(asked) != []
    assert other not in world.machine.state.avoided_nodes
    world.after(AVOIDED_S)
    assert not world.machine.state.avoided_nodes


@pytest.mark.parametrize(
    "cause",
    [
        ExitCause.KILLED,
        ExitCause.PREEMPTED,
        ExitCause.RELEASED,
        ExitCause.MEMORY,
        ExitCause.UNKNOWN,
        ExitCause.FILES,
    ],
)
def test_for_other_ends_before_the_call_it_is_not_to_blame(cause: ExitCause) -> None:
    world = a_job()
    world.kill("worker:0", cause)
    assert not world.machine.state.avoided_nodes


def test_the_loss_of_a_registered_executor_does_not_blame_its_node() -> None:
    world = a_job().settle()
    world.kill("worker:0", ExitCause.EXITED, 1)
    assert not world.machine.state.avoided_nodes


def test_the_loss_of_an_inherited_executor_does_not_blame_its_node() -> None:
    """It may have called that one."""
    world = a_job().settle()
    executor = world.executor("worker:0")
    world.takeover()
    world.complete(executor, 1, ExitCause.EXITED)
    assert not world.machine.state.avoided_nodes


def test_one_that_was_stopped_before_its_call_is_no_sign_either() -> None:
    world = a_job()
    executor = world.executor("worker:0")
    world.kill("worker:1", ExitCause.PREEMPTED)
    stop_container(
        world.machine.state, world.machine.state.held[executor.container.id], 0.0, "for a test"
    )
    world.complete(executor, 143, ExitCause.EXITED)
    assert not world.machine.state.avoided_nodes
