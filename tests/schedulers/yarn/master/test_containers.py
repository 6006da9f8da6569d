"""Each container's end is said once, whatever is asked and repeated."""

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


def test_an_end_is_said_once() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    held.launched = held.started = True
    assert causes(holding.record_end(ended(held.allocation, 3))) == [ExitCause.EXITED]
    assert holding.record_end(ended(held.allocation, 3)) == []
    assert holding.find(str(held.allocation.id)) is None


def test_an_end_that_overtakes_the_start_comes_after_it() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    held.launched = True
    events = holding.record_end(ended(held.allocation))
    assert [type(event) for event in events] == [Started, Completed]
    other = holding.add(container(2), "worker")
    other.launched = True
    assert [type(event) for event in holding.record_end(ended(other.allocation, -1000))] == [
        Completed
    ]


def test_what_is_held_on_each_node_and_whether_a_report_counts_it() -> None:
    holding = Containers(2)
    holding.inherit(container(1, node="n1"), "worker")
    holding.add(container(2, 2), "worker", 10.0)
    holding.add(container(3, 2), "worker", 20.0)
    holding.release(holding.add(container(4, 2), "worker", 20.0))
    size = Capability(64, 1)
    assert holding.usage("{}:{}".format, 15.0) == [
        ContainerUsage("n1:1", size),
        ContainerUsage("n0:1", size),
        ContainerUsage("n0:1", size, unreported=True),
    ]


def test_what_was_never_launched_goes_back_in_silence() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    holding.release(held, silent=True)
    holding.release(held, silent=True)
    holding.return_surplus(container(2))
    assert [one.serial for one in holding.next_releases()] == [1, 2]
    assert holding.next_releases() == []
    assert not holding.awaits_end
    assert holding.record_end(ended(container(1), -100)) == []
    assert holding.record_end(ended(container(2), -100)) == []


def test_what_is_lost_before_it_was_launched_is_said() -> None:
    holding = Containers(1)
    holding.add(container(1), "worker")
    assert causes(holding.record_end(ended(container(1), -100))) == [ExitCause.LOST]


def test_what_is_to_be_released_is_said_again_after_a_restart() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    holding.release(held)
    assert holding.awaits_end
    said = holding.next_releases()
    holding.resync()
    assert holding.next_releases() == said
    assert causes(holding.record_end(ended(container(1), -100))) == [ExitCause.RELEASED]
    holding.resync()
    assert holding.next_releases() == []


def test_a_launch_that_failed_is_said_at_once_and_its_end_not_again() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    held.launched = True
    said = holding.fail_launch(held, "no such image")
    assert said is not None
    assert (said.cause, said.exit_code) == (ExitCause.LAUNCH, 127)
    assert holding.fail_launch(held, "again") is None
    assert len(holding.next_releases()) == 1
    assert holding.record_end(ended(container(1), -100)) == []


def test_what_was_stopped_before_it_started_counts_as_stopped() -> None:
    holding = Containers(1)
    held = holding.add(container(1), "worker")
    held.launched = held.end_requested = True
    said = holding.fail_launch(held, "no such container")
    assert said is not None
    assert said.cause is ExitCause.RELEASED


def test_of_earlier_masters() -> None:
    holding = Containers(2)
    assert holding.inherit(container(5), "worker") is not None
    assert holding.inherit(container(5), "worker") is None
    assert causes(holding.record_end(ended(container(5), 4))) == [ExitCause.EXITED]
    assert holding.inherit(container(5), "worker") is None
    # One that ended while there was no master, and one of ours that is long over.
    assert causes(holding.record_end(ended(container(6), 4))) == [ExitCause.EXITED]
    assert holding.record_end(ended(container(6), 4)) == []
    assert holding.record_end(ended(container(7, attempt=2), 4)) == []


def test_who_is_there_and_where() -> None:
    holding = Containers(1)
    first = holding.add(container(1), "worker")
    holding.add(container(2, node="n1"), "worker")
    holding.add(container(3, node="n1"), "ps")
    assert holding.count_by_role() == {"worker": 2, "ps": 1}
    holding.release(first)
    assert holding.count_by_role() == {"worker": 1, "ps": 1}
    assert holding.nodes_in_use([NodeId("n1", 1), NodeId("n9", 1)]) == {NodeId("n1", 1)}
    assert holding.find("no id") is None


def test_an_end_that_was_asked_for_and_never_told_is_said_all_the_same() -> None:
    holding = Containers(2)
    held = holding.inherit(container(5), "worker")
    assert held is not None
    held.end_requested = True
    held.stopped_at = 100.0
    assert holding.end_unreported(99.0) == []
    assert causes(holding.end_unreported(101.0)) == [ExitCause.RELEASED]
    assert holding.end_unreported(101.0) == []
    assert [one.serial for one in holding.next_releases()] == [5]
    assert holding.record_end(ended(container(5), -105)) == []
