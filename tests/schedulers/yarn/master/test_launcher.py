"""Containers are started and stopped by node: in order, in batches, and never one for another."""

from __future__ import annotations

import queue
import threading
from typing import Dict, List, Optional, Sequence, Set, Tuple

from tony_core.hadoop.errors import InvalidToken, RemoteError, Unreachable
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.node_manager import NodeTokens, Started
from tony_core.hadoop.yarn.records import ContainerStatus
from tony_core.schedulers.yarn.master.launcher import ContainerLauncher

ATTEMPT = AttemptId(ApplicationId(1700000000000, 42), 1)
GOOD, BAD = Token(b"", b"", "ContainerToken"), Token(b"bad", b"", "ContainerToken")
WAIT_S = 60.0


def container(number: int) -> ContainerId:
    return ContainerId(ATTEMPT, number)


class Cluster:
    """Nodes and the listener: their calls, and how they answer."""

    def __init__(self) -> None:
        self.calls: List[Tuple[str, str, int]] = []
        self.calls_received: queue.SimpleQueue[Tuple[str, ContainerId]] = queue.SimpleQueue()
        self.held: Dict[str, threading.Event] = {}  # nodes that do not answer yet
        self.dead = {"dead"}
        self.broken: Set[str] = set()  # nodes whose answers make no sense
        self.order: List[ContainerId] = []
        self.tokens = NodeTokens()
        for name in ("n0", "n1", "n2", "dead"):
            self.tokens.update({NodeId(name, 1): Token(name.encode(), b"", "NMToken")})
        self.launching = ContainerLauncher(self.tokens, self, self.open, threads=2)

    def open(self, node: NodeId, token: Token) -> FakeNode:
        return FakeNode(self, node.host)

    def start(self, node: str, number: int, token: Token = GOOD) -> None:
        # The batch's order shows in what is launched.
        self.launching.start(NodeId(node, 1), container(number), token, Launch((str(number),)))

    def next(self) -> Tuple[str, int]:
        kind, found = self.calls_received.get(timeout=WAIT_S)
        return kind, found.serial

    def on_started(self, container: ContainerId) -> None:
        self.calls_received.put(("started", container))

    def on_not_started(self, container: ContainerId, why: str) -> None:
        self.calls_received.put(("not started", container))

    def on_stopped(self, container: ContainerId) -> None:
        self.calls_received.put(("stopped", container))

    def on_not_stopped(self, container: ContainerId, why: str) -> None:
        self.calls_received.put(("not stopped", container))

    def on_status(self, status: ContainerStatus) -> None:
        self.calls_received.put((status.state, status.id))


class FakeNode:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def use(self, token: Token) -> None:
        assert token.identifier == self.name.encode()

    def start(
        self, launches: Sequence[Tuple[Token, Launch]], *, within_s: Optional[float] = None
    ) -> Started:
        self._called("start", len(launches))
        if any(token == BAD for token, _ in launches):
            raise InvalidToken("X", "it does not verify")
        done = tuple(container(int(launch.command[0])) for _, launch in launches)
        refused = {one: RemoteError("X", "no") for one in done if one.serial == 13}
        return Started(tuple(one for one in done if one not in refused), refused)

    def stop(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Started:
        self._called("stop", len(containers))
        return Started(tuple(containers), {})

    def statuses(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Tuple[Dict[ContainerId, ContainerStatus], Dict[ContainerId, RemoteError]]:
        self._called("look", len(containers))
        return {one: ContainerStatus(one, "COMPLETE", 0, "") for one in containers}, {}

    def _called(self, what: str, count: int) -> None:
        self.cluster.calls.append((self.name, what, count))
        held = self.cluster.held.get(self.name)
        if held is not None:
            assert held.wait(WAIT_S)
        if self.name in self.cluster.dead:
            raise Unreachable("no server is there")
        if self.name in self.cluster.broken:
            raise TypeError("odd")

    def close(self) -> None:
        pass


def test_what_gathers_goes_in_one_call_and_in_order() -> None:
    cluster = Cluster()
    held = cluster.held["n0"] = threading.Event()
    for number in range(1, 6):
        cluster.start("n0", number)
    cluster.launching.stop(NodeId("n0", 1), container(2))
    # A node that does not answer delays no other node.
    cluster.start("n1", 9)
    assert cluster.next() == ("started", 9)
    held.set()
    answers_of = [cluster.next() for _ in range(6)]
    assert answers_of[-1] == ("stopped", 2)
    assert sorted(answers_of[:5]) == [("started", number) for number in range(1, 6)]
    calls = [call for call in cluster.calls if call[0] == "n0"]
    assert len(calls) <= 3
    assert calls[-1] == ("n0", "stop", 1)
    cluster.launching.close()


def test_one_bad_token_fails_only_its_own_container() -> None:
    cluster = Cluster()
    held = cluster.held["n0"] = threading.Event()
    cluster.start("n0", 1)
    for number, token in ((2, GOOD), (3, BAD), (13, GOOD)):
        cluster.start("n0", number, token)
    held.set()
    answers_of = {number: kind for kind, number in (cluster.next() for _ in range(4))}
    assert answers_of == {1: "started", 2: "started", 3: "not started", 13: "not started"}
    cluster.launching.close()


def test_a_dead_node_and_one_without_a_token() -> None:
    cluster = Cluster()
    cluster.start("dead", 1)
    assert cluster.next() == ("not started", 1)
    cluster.launching.stop(NodeId("dead", 1), container(2))
    assert cluster.next() == ("not stopped", 2)
    cluster.start("stranger", 3)
    assert cluster.next() == ("not started", 3)
    cluster.launching.close()


def test_a_node_that_has_nothing_else_to_do_is_looked_at() -> None:
    cluster = Cluster()
    try:
        cluster.launching.check_status(NodeId("n0", 1), [container(1), container(2)])
        assert [cluster.next(), cluster.next()] == [("COMPLETE", 1), ("COMPLETE", 2)]
        assert cluster.calls == [("n0", "look", 2)]
        # One that is busy is not asked, and one that does not answer is no error.
        held = cluster.held["n1"] = threading.Event()
        cluster.start("n1", 3)
        cluster.launching.check_status(NodeId("n1", 1), [container(3)])
        held.set()
        assert cluster.next() == ("started", 3)
        cluster.launching.check_status(NodeId("dead", 1), [container(4)])
        cluster.start("n2", 5)
        assert cluster.next() == ("started", 5)
        assert ("n1", "look", 1) not in cluster.calls
    finally:
        cluster.launching.close()


def test_no_event_arrives_after_the_end() -> None:
    cluster = Cluster()
    cluster.launching.close()
    cluster.start("n0", 1)
    cluster.launching.close()
    assert cluster.calls_received.empty()
    assert cluster.calls == []


def test_an_unexpected_exception_fails_its_containers_and_no_thread() -> None:
    cluster = Cluster()
    logged: List[str] = []
    cluster.launching.faults.log = logged.append
    cluster.broken.add("n0")
    for number in range(1, 5):  # more than there are threads
        cluster.start("n0", number)
        assert cluster.next() == ("not started", number)
    cluster.start("n1", 9)
    assert cluster.next() == ("started", 9)
    cluster.broken.clear()
    cluster.start("n0", 6)
    assert cluster.next() == ("started", 6)
    assert cluster.launching.faults.count == 4
    (text,) = logged
    assert "Traceback" in text and "TypeError: odd" in text
    cluster.launching.close()
