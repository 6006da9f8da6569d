"""A node that has not got the GPUs it was asked for is avoided, at the system's cost."""

from __future__ import annotations

from typing import Any, List

import pytest

from tests.master.session.world import World, job, role
from tony_core.exit_causes import Fault
from tony_core.frameworks.standalone import Standalone
from tony_core.job.spec import Metrics, Program, Resources, Role
from tony_core.master.executors.task_commands import TaskCommands
from tony_core.master.session import commands as c
from tony_core.master.session.deadlines import AVOIDED_S
from tony_core.master.session.task_ends import avoid_node
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES
from tony_core.schedulers.container_pool import ContainerRequest


def test_every_cause_of_a_node_is_the_systems_fault() -> None:
    assert {cause.fault for cause in UNUSABLE_CONTAINER_CAUSES} == {Fault.SYSTEM}


def test_the_task_gets_another_container_elsewhere_and_the_others_keep_theirs() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin().settle()
    failed, healthy = world.executor("worker:0"), world.executor("worker:1")
    asked = []
    request = world.do_RequestContainers

    def note(command: c.RequestContainers) -> None:
        asked.append(command)
        request(command)

    world.do_RequestContainers = note  # type: ignore[method-assign]
    text = "2 GPUs asked for, and node n1 shows 1"
    world.end("worker:0", 1, cause="gpus", message=text).after(1).settle()
    assert world.machine.state.session == 1
    assert (world.machine.state.budgets.user_used, world.machine.state.budgets.system_used) == (
        0,
        1,
    )
    assert text in str(world.machine.state.root_cause["message"])
    assert failed.gone and not healthy.gone
    assert failed.container.node in world.machine.state.avoided_nodes
    assert failed.container.node in str(asked[-1])
    assert world.running() == ["worker:0", "worker:1"]


def test_so_it_does_when_the_session_is_being_cleared_away_already() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin().settle()
    failed, late = world.executor("worker:0"), world.executor("worker:1")
    world.end("worker:0", 1)
    world.after(0.2)  # its peer is being ended
    world.end("worker:1", 1, cause="gpus").settle()
    assert world.machine.state.session == 1
    assert late.gone and not failed.gone
    assert world.running() == ["worker:0", "worker:1"]


@pytest.mark.parametrize(
    ("changes", "asked"),
    [({}, (4, False)), ({"metrics": Metrics(gpu_check=False)}, (0, False))]
    + [
        ({"program": Program(shell_env=(("SKIP_HADOOP_PATH", value),))}, (4, skip))
        for value, skip in (("true", True), ("false", False))
    ],
)
def test_gpu_and_hadoop_checks_sent_to_the_executor(changes: Any, asked: Any) -> None:
    made = job(Role("worker", 2, Resources(gpus=4), "true")).replace(**changes)
    prepare = TaskCommands(made, Standalone(), (), "app").prepare(c.PrepareTask("c", "worker:0", 0))
    assert (prepare.gpus, prepare.skip_hadoop) == asked


def test_a_node_is_not_avoided_for_ever() -> None:
    """Even while the job waits, and nothing is healthy: what is wanted is asked for again."""
    world = World(job(role("worker", 2)), settle_s=0.2).begin().settle()
    bad = world.executor("worker:0").container.node
    world.grant = lambda *_: None  # type: ignore[method-assign,assignment]
    world.end("worker:0", 1, cause="gpus").after(1).settle()
    asked: List[ContainerRequest] = []

    def note(command: c.RequestContainers) -> None:
        asked.extend(command.requests)

    world.do_RequestContainers = note  # type: ignore[method-assign]
    world.after(AVOIDED_S - 60)
    assert bad in world.machine.state.avoided_nodes
    asked.clear()
    world.after(61)
    assert not world.machine.state.avoided_nodes
    assert [(request.count, request.avoid_nodes) for request in asked][:1] == [(1, ())]
    assert f"node {bad} is no longer avoided" in [line.text for line in world.story]


def test_each_failure_there_is_remembered_as_long() -> None:
    world = World(job(role("worker", 1))).begin().settle()
    avoid_node(world.machine.state, "n9")
    world.after(AVOIDED_S - 1)
    avoid_node(world.machine.state, "n9")
    world.after(AVOIDED_S - 1)
    assert "n9" in world.machine.state.avoided_nodes
    world.after(2)
    assert "n9" not in world.machine.state.avoided_nodes


def test_which_ones_a_task_has_is_known_to_a_next_master_too() -> None:
    world = World(job(role("worker", 2))).begin().settle()
    names = [task.gpus for task in world.machine.state.tasks.values()]
    assert names == [("GPU-c1",), ("GPU-c2",)]
    world.takeover().settle()
    assert [task.gpus for task in world.machine.state.tasks.values()] == names
