"""After a program's end the nodes are asked themselves: their word is the earlier one."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, cast

from tests.schedulers.yarn.master.test_containers import container
from tony_core.exit_causes import ExitCause
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.records import Container, ContainerStatus
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn.master.application import Application
from tony_core.schedulers.yarn.master.container_requests import ContainerRequests
from tony_core.schedulers.yarn.master.containers import Containers
from tony_core.schedulers.yarn.master.pool import MAX_POLLED_NODES, YarnPool


class Looked:
    """In place of the threads that call nodes."""

    def __init__(self) -> None:
        self.at: Dict[NodeId, Sequence[ContainerId]] = {}

    def check_status(self, node: NodeId, containers: Sequence[ContainerId]) -> None:
        self.at[node] = containers


class Nothing:
    """What a ResourceManager says that has nothing to say."""

    allocated = completed = rejected = updated_nodes = previous = ()
    node_tokens: Dict[NodeId, Any] = {}
    preempted = type("None", (), {"certain": (), "negotiable": ()})()
    headroom = None


def pool_with(*given: Container) -> YarnPool:
    first = given[0].id.attempt
    none = cast(Any, None)
    pool = YarnPool(
        none, Application(first, "ann", 2, "n0"), ContainerRequests(["worker"]), none, none
    )
    for one in given:
        held = pool._containers.add(one, "worker")
        held.launched = held.started = True
    pool._launcher = cast(Any, Looked())
    return pool


def test_what_runs_by_node() -> None:
    containers = Containers(1)
    started = containers.add(container(1), "worker")
    started.launched = started.started = True
    containers.add(container(2), "worker").launched = True
    containers.return_surplus(container(3))
    assert containers.running_by_node() == {started.allocation.node: [started.allocation.id]}


def test_nodes_are_looked_at_after_a_programs_end_and_not_before() -> None:
    one, two = container(1, node="n0"), container(2, node="n1")
    pool = pool_with(one, two)
    looked = cast(Looked, pool._launcher)
    assert not pool.on_answer(cast(Any, Nothing()))
    assert looked.at == {}
    pool.expect_ends()
    assert pool.on_answer(cast(Any, Nothing())), "the next heartbeat comes soon"
    assert looked.at == {one.node: [one.id], two.node: [two.id]}


def test_many_nodes_are_left_to_the_resource_manager() -> None:
    pool = pool_with(*(container(n, node=f"n{n}") for n in range(1, MAX_POLLED_NODES + 2)))
    pool.expect_ends()
    assert pool.on_answer(cast(Any, Nothing()))
    assert cast(Looked, pool._launcher).at == {}


def test_a_nodes_word_counts_for_what_ended_by_itself() -> None:
    one, two = container(1), container(2)
    pool = pool_with(one, two)
    events: List[container_pool.PoolEvent] = []
    pool._sink = events.append
    pool.on_status(ContainerStatus(one.id, "RUNNING", -1000, ""))
    for code in (-106, 137, 143):  # killed: by whom, the ResourceManager knows
        pool.on_status(ContainerStatus(two.id, "COMPLETE", code, ""))
    assert events == []
    pool.on_status(ContainerStatus(one.id, "COMPLETE", 3, ""))
    pool.on_status(ContainerStatus(one.id, "COMPLETE", 3, ""))
    assert events == [container_pool.Completed(str(one.id), 3, ExitCause.EXITED, "")]


def test_what_cannot_be_sent_to_a_node_goes_by_the_resource_manager() -> None:
    one, two = container(1), container(2)
    pool = pool_with(one, two)
    pool.on_not_stopped(one.id, "no route to host")
    assert list(pool._containers.next_releases()) == [one.id]
    pool.on_not_stopped(one.id, "no route to host")
    assert list(pool._containers.next_releases()) == [], "once"


def test_so_does_what_was_never_launched() -> None:
    one, two = container(1), container(2)
    pool = pool_with(one, two)
    held = pool._containers.get(one.id)
    assert held is not None
    held.launched = held.started = False
    pool.stop(str(one.id))
    assert list(pool._containers.next_releases()) == [one.id]
    assert pool._urgent, "at once"
