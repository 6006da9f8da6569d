"""The master's side on real clusters: labels, GPUs, constraints, restarts, lost nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.schedulers.contract import SMALL, Master, until
from tests.schedulers.yarn.fixtures import YarnMasters
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import (
    Allocated,
    AllocationPending,
    Completed,
    Container,
    ContainerRequest,
    NodeLost,
    PreviousContainers,
    RequestRejected,
    ShutdownRequested,
    Started,
)
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.cluster

MakeMasters = Callable[[Hadoop], YarnMasters]
SLEEP = "import time; time.sleep(300)"


@pytest.fixture
def masters_on(tmp_path: Path) -> Iterator[MakeMasters]:
    made: List[YarnMasters] = []

    def make(cluster: Hadoop) -> YarnMasters:
        made.append(YarnMasters(cluster, tmp_path / f"masters{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def granted(master: Master, count: int) -> List[Container]:
    found: List[Container] = []
    while len(found) < count:
        found += master.next(Allocated).containers
    return found


def test_a_gang_of_different_kinds(hadoop: GetHadoop, masters_on: MakeMasters) -> None:
    """Workers with a GPU on the labelled node, parameter servers on the other."""
    masters = masters_on(hadoop("two_nodes", "labels", "gpu", "queues", "placement"))
    master = masters.open(masters.application())
    gpu = Resources(memory_mb=128, vcores=2, gpus=1)
    master.pool.request(
        [ContainerRequest("worker", 0, 3, gpu, "gpu"), ContainerRequest("ps", 0, 5, SMALL)], True
    )
    found = granted(master, 8)
    workers = [one for one in found if one.role == "worker"]
    others = [one for one in found if one.role == "ps"]
    assert (len(workers), len(others)) == (3, 5)
    assert len({one.node for one in workers}) == len({one.node for one in others}) == 1
    assert {one.node for one in workers} != {one.node for one in others}
    assert {one.resources.gpus for one in workers} == {1}
    assert {one.resources.gpus for one in others} == {0}
    # More than the node has: the rest waits, with the numbers.
    master.pool.request([ContainerRequest("worker", 1, 3, gpu, "gpu")], True)
    granted(master, 1)
    reason = master.next(AllocationPending).reason
    assert "4 of 6 worker" in reason
    assert "2 x (128 MB, 2 vcores, 1 GPU) missing with the label gpu" in reason
    # What can never be had.
    for wanted, words in [
        (ContainerRequest("a", 2, 1, Resources(memory_mb=1 << 20)), "1048576 mb"),
        (ContainerRequest("b", 2, 1, Resources(64, 1, 0, (("fpga", 1),))), "fpga"),
        (ContainerRequest("c", 2, 1, SMALL, "no-such-label"), "no-such-label"),
        (ContainerRequest("d", 2, 1, SMALL, "reserved"), "reserved"),
        (ContainerRequest("e", 2, 1, SMALL, None, "NEAR,NODE,e"), "not a placement constraint"),
    ]:
        master.pool.request([wanted], False)
        refused = master.next(RequestRejected)
        assert refused.role == wanted.role
        assert words in refused.reason.lower()


def test_constraints_and_tags(hadoop: GetHadoop, masters_on: MakeMasters) -> None:
    masters = masters_on(hadoop("two_nodes", "labels", "gpu", "queues", "placement"))
    master = masters.open(masters.application(attempts=1))
    apart = ContainerRequest("worker", 0, 1, SMALL, None, "worker=1,NOTIN,NODE,worker")
    master.pool.request([apart, ContainerRequest("ps", 0, 2, SMALL)], True)
    found = granted(master, 3)
    assert sorted(one.role for one in found) == ["ps", "ps", "worker"]
    # The other node is labelled, and closed to who asks without the label.
    master.pool.request(
        [ContainerRequest("worker", 1, 1, SMALL, None, "worker=1,NOTIN,NODE,worker")], True
    )
    assert "where its placement constraint allows it" in master.next(AllocationPending).reason
    master.pool.request([ContainerRequest("worker", 1, 0, SMALL)], True)
    master.pool.request(
        [ContainerRequest("worker", 2, 1, SMALL, "gpu", "NOTIN,NODE,worker", ("worker",))], True
    )
    (other,) = granted(master, 1)
    assert other.node not in {one.node for one in found}


def test_without_the_feature_constraints_are_refused(
    hadoop: GetHadoop, masters_on: MakeMasters
) -> None:
    masters = masters_on(hadoop())
    master = masters.open(masters.application())
    master.pool.request(
        [
            ContainerRequest("worker", 0, 1, SMALL, None, "NOTIN,NODE,w", ("w",)),
            ContainerRequest("ps", 0, 1, SMALL),
        ],
        True,
    )
    assert master.next(RequestRejected).role == "worker"
    until(
        lambda: any(isinstance(e, Allocated) for e in master.received) or master.next(Allocated), ""
    )


@pytest.mark.nightly
def test_the_resource_manager_restarts(hadoop: GetHadoop, masters_on: MakeMasters) -> None:
    cluster = hadoop("rm_recovery")
    masters = masters_on(cluster)
    master = masters.open(masters.application())
    first, second = master.get(2)
    master.launch(first, SLEEP)
    master.next(Started)
    # Outstanding while the ResourceManager is away, and what was never launched is given back.
    master.pool.request([ContainerRequest("worker", 1, 3, SMALL)], True)
    cluster.restart_rm()
    master.pool.release(second.id)
    found = granted(master, 3)
    assert len({one.id for one in found}) == 3
    master.pool.stop(first.id)
    assert master.end_of(first).cause is ExitCause.RELEASED
    third = master.run("raise SystemExit(3)")
    assert master.end_of(third).exit_code == 3
    master.pool.finish(AppState.SUCCEEDED, "all well")
    app = str(masters.application_of(master))
    assert cluster.wait_for(app)["finalStatus"] == "SUCCEEDED"


@pytest.mark.nightly
def test_a_node_is_lost(hadoop: GetHadoop, masters_on: MakeMasters) -> None:
    cluster = hadoop("two_nodes", "short_expiry")
    masters = masters_on(cluster)
    master = masters.open(masters.application())
    containers = master.get(4)
    homes = {one.node for one in containers}
    assert len(homes) == 2
    for one in containers:
        master.launch(one, SLEEP)
    for _ in containers:
        master.next(Started)
    names = [str(node.id) for node in masters.client.nodes()]
    application = masters.application_of(master)
    here = masters.client.attempts(application)[0].master_container
    (mine,) = [
        one.node
        for one in masters.client.containers(masters.client.attempts(application)[0].id)
        if one.id == here
    ]
    index = 1 if "127.0.0.1" in mine.host or mine.host == "localhost" else 0
    cluster.kill_nm(index)
    lost = master.next(NodeLost).node
    assert any(lost in name for name in names)
    for one in containers:
        if one.node == lost:
            assert master.end_of(one).cause is ExitCause.LOST
    master.quiet(0.5, Completed)


def test_the_application_is_killed(hadoop: GetHadoop, masters_on: MakeMasters) -> None:
    masters = masters_on(hadoop())
    master = masters.open(masters.application())
    masters.client.kill(masters.application_of(master), "enough of it")
    event = master.next(ShutdownRequested)
    assert event.by_user
    assert "enough of it" in event.reason
    master.pool.finish(AppState.KILLED, "whatever")


def test_a_master_that_was_replaced_touches_nothing(
    hadoop: GetHadoop, masters_on: MakeMasters
) -> None:
    masters = masters_on(hadoop())
    application = masters.application()
    first = masters.open(application)
    (container,) = first.get()
    first.launch(container, SLEEP)
    first.next(Started)
    # What the ResourceManager has not heard of from its node ends with the master.
    attempt = masters.client.attempts(application)[0].id
    until(
        lambda: [
            one.state
            for one in masters.client.containers(attempt)
            if str(one.id) == container.id and one.state == "RUNNING"
        ],
        "the node's word",
    )
    masters.kill_master(application, 1)
    second = masters.open(application, 2)
    second.next(PreviousContainers)
    until(lambda: masters.superseded, "the first to notice")
    assert "_000002 is" in masters.superseded[0]
    first.pool.finish(AppState.FAILED, "the old one has nothing to say")
    assert masters.client.report(application).state == "RUNNING"
    second.pool.stop(container.id)
    assert second.end_of(container).cause is ExitCause.RELEASED
