"""Each container's end is reported once, whatever is asked and repeated."""

from __future__ import annotations

from typing import List

from tony_core.exit_causes import ExitCause
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.records import Capability, Container, ContainerStatus
from tony_core.schedulers.container_pool import Completed, PoolEvent, Started
from tony_core.schedulers.yarn.master.containers import Containers
from tony_core.schedulers.yarn.master.placement import ContainerUsage

APP = ApplicationId(1700000000000, 42)


def container(number: int, attempt: int = 1, node: str = "n0") -> Container:
    found = ContainerId(AttemptId(APP, attempt), number)
    token = Token(b"", b"", "ContainerToken")
    return Container(found, NodeId(node, 1), f"{node}:8042", Capability(64, 1), 1, 1, (), token)


def ended(given: Container, code: int = 0) -> ContainerStatus:
    return ContainerStatus(given.id, "COMPLETE", code, "")


def causes(events: List[PoolEvent]) -> List[ExitCause]:
    return [event.cause for event in events if isinstance(event, Completed)]


def test_an_end_is_reported_once() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    held.launched = held.started = True
    assert causes(containers.record_end(ended(held.allocation, 3))) == [ExitCause.EXITED]
    assert containers.record_end(ended(held.allocation, 3)) == []
    assert containers.find(str(held.allocation.id)) is None


def test_an_end_that_overtakes_the_start_comes_after_it() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    held.launched = True
    events = containers.record_end(ended(held.allocation))
    assert [type(event) for event in events] == [Started, Completed]
    other = containers.add(container(2), "worker")
    other.launched = True
    assert [type(event) for event in containers.record_end(ended(other.allocation, -1000))] == [
        Completed
    ]


def test_what_is_held_on_each_node_and_whether_a_report_counts_it() -> None:
    containers = Containers(2)
    containers.inherit(container(1, node="n1"), "worker")
    containers.add(container(2, 2), "worker", 10.0)
    containers.add(container(3, 2), "worker", 20.0)
    containers.release(containers.add(container(4, 2), "worker", 20.0))
    size = Capability(64, 1)
    assert containers.usage("{}:{}".format, 15.0) == [
        ContainerUsage("n1:1", size),
        ContainerUsage("n0:1", size),
        ContainerUsage("n0:1", size, unreported=True),
    ]


def test_what_was_never_launched_goes_back_in_silence() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    containers.release(held, silent=True)
    containers.release(held, silent=True)
    containers.return_surplus(container(2))
    assert [one.serial for one in containers.next_releases()] == [1, 2]
    assert containers.next_releases() == []
    assert not containers.awaits_end
    assert containers.record_end(ended(container(1), -100)) == []
    assert containers.record_end(ended(container(2), -100)) == []


def test_a_loss_before_the_launch_is_reported() -> None:
    containers = Containers(1)
    containers.add(container(1), "worker")
    assert causes(containers.record_end(ended(container(1), -100))) == [ExitCause.LOST]


def test_releases_are_sent_again_after_a_restart() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    containers.release(held)
    assert containers.awaits_end
    event = containers.next_releases()
    containers.resync()
    assert containers.next_releases() == event
    assert causes(containers.record_end(ended(container(1), -100))) == [ExitCause.RELEASED]
    containers.resync()
    assert containers.next_releases() == []


def test_a_failed_launch_is_reported_at_once_and_its_end_not_again() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    held.launched = True
    event = containers.fail_launch(held, "no such image")
    assert event is not None
    assert (event.cause, event.exit_code) == (ExitCause.LAUNCH, 127)
    assert containers.fail_launch(held, "again") is None
    assert len(containers.next_releases()) == 1
    assert containers.record_end(ended(container(1), -100)) == []


def test_what_was_stopped_before_it_started_counts_as_stopped() -> None:
    containers = Containers(1)
    held = containers.add(container(1), "worker")
    held.launched = held.end_requested = True
    event = containers.fail_launch(held, "no such container")
    assert event is not None
    assert event.cause is ExitCause.RELEASED


def test_containers_of_previous_masters() -> None:
    containers = Containers(2)
    assert containers.inherit(container(5), "worker") is not None
    assert containers.inherit(container(5), "worker") is None
    assert causes(containers.record_end(ended(container(5), 4))) == [ExitCause.EXITED]
    assert containers.inherit(container(5), "worker") is None
    # One that ended while there was no master, and one of ours that is long over.
    assert causes(containers.record_end(ended(container(6), 4))) == [ExitCause.EXITED]
    assert containers.record_end(ended(container(6), 4)) == []
    assert containers.record_end(ended(container(7, attempt=2), 4)) == []


def test_who_is_there_and_where() -> None:
    containers = Containers(1)
    first = containers.add(container(1), "worker")
    containers.add(container(2, node="n1"), "worker")
    containers.add(container(3, node="n1"), "ps")
    assert containers.count_by_role() == {"worker": 2, "ps": 1}
    containers.release(first)
    assert containers.count_by_role() == {"worker": 1, "ps": 1}
    assert containers.nodes_in_use([NodeId("n1", 1), NodeId("n9", 1)]) == {NodeId("n1", 1)}
    assert containers.find("no id") is None


def test_a_requested_end_without_a_report_is_reported_all_the_same() -> None:
    containers = Containers(2)
    held = containers.inherit(container(5), "worker")
    assert held is not None
    held.end_requested = True
    held.stopped_at = 100.0
    assert containers.end_unreported(99.0) == []
    assert causes(containers.end_unreported(101.0)) == [ExitCause.RELEASED]
    assert containers.end_unreported(101.0) == []
    assert [one.serial for one in containers.next_releases()] == [5]
    assert containers.record_end(ended(container(5), -105)) == []
