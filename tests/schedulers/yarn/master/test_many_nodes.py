"""A pool on many nodes, while everything that can go wrong goes wrong.

On the fake (``tests/cluster/fakeyarn``), with simulated containers. What must hold in the end is
in ``tests/cluster/fakeyarn/drive.py``.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import pytest

from tests.cluster.fakeyarn.cluster import FakeYarn
from tests.cluster.fakeyarn.drive import Driver
from tests.cluster.fakeyarn.harness import hasten
from tests.cluster.fakeyarn.manager import Limits
from tests.cluster.fakeyarn.server import DROP, LOSE
from tests.cluster.fakeyarn.wire import Call, Fault
from tony_core.exit_causes import ExitCause
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import (
    Completed,
    ContainerRequest,
    NodeLost,
    PreemptionRequested,
    PreviousContainers,
    ShutdownRequested,
    Started,
)

NODE = Capability(1024, 16)

MakeYarn = Callable[..., FakeYarn]


@pytest.fixture
def make_yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeYarn]:
    """``make_yarn(nodes=20)``."""
    hasten(monkeypatch)
    made: List[FakeYarn] = []

    def make(nodes: int = 20, **more: object) -> FakeYarn:
        yarn = FakeYarn(tmp_path / f"yarn{len(made)}", nodes=nodes, node=NODE, **more)
        made.append(yarn)
        return yarn.__enter__()

    yield make
    for yarn in made:
        yarn.stop()
        assert not yarn.reactor.failures, yarn.reactor.failures


def connected(yarn: FakeYarn, times: int) -> bool:
    """Whether masters have connected so often."""
    return yarn.masters.accepted >= times


class TestGangs:
    def test_a_gang_over_many_nodes(self, make_yarn: MakeYarn) -> None:
        with Driver(make_yarn(60)) as driver:
            driver.request(200)
            driver.settled(200)
            driver.end()

    def test_roles_and_sessions_apart(self, make_yarn: MakeYarn) -> None:
        with Driver(make_yarn()) as driver:
            driver.request(20, role=0)
            driver.request(10, role=1)
            driver.request(5, role=0, session=1)
            driver.settled(35)
            roles = [one.role for one in driver.held.values()]
            assert (roles.count("role0"), roles.count("role1")) == (25, 10)
            driver.end()

    def test_what_came_too_much_goes_back(self, make_yarn: MakeYarn) -> None:
        """The ask is withdrawn while the grants are on their way."""
        with Driver(make_yarn()) as driver:
            driver.request(100)
            driver.wait_held(1)
            driver.request(0)
            driver.wait(lambda: driver.live() == set(driver.held) == driver.running(), "the rest")
            driver.end()

    def test_more_and_less_again_and_again(self, make_yarn: MakeYarn) -> None:
        chance = random.Random(7)
        with Driver(make_yarn()) as driver:
            for _ in range(30):
                driver.request(chance.randrange(12))
                threading.Event().wait(chance.random() * 0.02)
            driver.request(0)
            driver.wait(lambda: driver.live() == set(driver.held) == driver.running(), "the rest")
            driver.end()

    def test_racks_and_names_with_ports(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(12, racks=3, limits=Limits(names_with_port=True))
        with Driver(yarn) as driver:
            driver.request(60)
            driver.settled(60)
            driver.end()

    @pytest.mark.slow
    @pytest.mark.nightly
    def test_a_thousand_nodes(self, make_yarn: MakeYarn) -> None:
        with Driver(make_yarn(1000, heartbeat_s=1.0)) as driver:
            driver.request(2000)
            driver.settled(2000)
            driver.end()


class TestResourceManager:
    @pytest.mark.parametrize("down_s", [0.0, 0.4])
    def test_it_restarts_in_mid_gang(self, make_yarn: MakeYarn, down_s: float) -> None:
        yarn = make_yarn(30, heartbeat_s=0.3)
        with Driver(yarn) as driver:
            driver.refills = True  # what was granted before the restart may not start after it
            driver.request(120)
            driver.wait_held(10)
            yarn.restart_rm(down_s)
            driver.settled(120)
            driver.end()

    def test_it_restarts_again_and_again(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(30, heartbeat_s=0.2)
        with Driver(yarn) as driver:
            driver.refills = True
            driver.request(150)
            for count in (5, 40, 80):
                driver.wait_held(count)
                yarn.restart_rm()
            driver.settled(150)
            driver.end()

    def test_what_was_granted_before_cannot_be_started_after(self, make_yarn: MakeYarn) -> None:
        """A restarted ResourceManager does not know it, and the nodes will not have it."""
        yarn = make_yarn()
        with Driver(yarn) as driver:
            driver.launch_at_once = False
            driver.request(8)
            driver.wait_held(8)
            held = list(driver.held.values())
            driver.launch_at_once = True
            yarn.restart_rm()
            for container in held:
                driver.launch(container)
            driver.wait(lambda: len(driver.events_of(Completed)) == 8, "eight failures")
            causes = {one.cause for one in driver.events_of(Completed)}
            assert causes <= {ExitCause.LAUNCH, ExitCause.LOST}
            driver.request(8, session=1)
            driver.settled(8)
            driver.end()

    def test_what_a_lost_node_had_is_unknown_after_a_restart(self, make_yarn: MakeYarn) -> None:
        """Its end is never reported; a stop request gets one all the same."""
        yarn = make_yarn(10)
        with Driver(yarn) as driver:
            driver.request(40)
            driver.settled(40)
            with yarn.reactor.lock:
                lost = next(
                    one
                    for one in yarn.rm.active()
                    if one.live and not any(held.master for held in one.live.values())
                )
                there = {str(one) for one in lost.live}
                yarn.lose_node(lost.id)
                yarn.restart_rm()
            rest = set(driver.held) - there
            driver.wait(lambda: driver.live() == driver.running() == rest, "the others")
            driver.end()
            ends = [one for one in driver.events_of(Completed) if one.container_id in there]
            assert {one.cause for one in ends} <= {ExitCause.RELEASED, ExitCause.LOST}
            assert len(ends) == len(there)

    def test_it_asks_to_begin_anew(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn()
        with Driver(yarn) as driver:
            driver.request(10)
            driver.wait_held(10)
            yarn.command(yarn.applications()[0], 1)
            driver.request(20, role=1)
            driver.settled(30)
            driver.end()

    def test_it_asks_to_end(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn()
        with Driver(yarn) as driver:
            driver.request(3)
            driver.settled(3)
            driver.client.kill(driver.app, "enough of it")
            driver.wait(lambda: driver.events_of(ShutdownRequested), "the end")
            (event,) = driver.events_of(ShutdownRequested)
            assert event.by_user
            assert "enough of it" in event.reason
            yarn.until(lambda: not driver.running(), "empty nodes")

    def test_answers_are_lost(self, make_yarn: MakeYarn) -> None:
        """Of heartbeats and of starts, before and after they were obeyed."""
        yarn = make_yarn(30)
        chance = random.Random(1)

        def lose(host: str, call: Call) -> Optional[str]:
            return chance.choice([LOSE, DROP]) if chance.random() < 0.3 else None

        with Driver(yarn) as driver:
            yarn.masters.intercept = yarn.nodes.intercept = lose
            driver.request(90)
            driver.settled(90)
            driver.wait(lambda: len(driver.events_of(Started)) == 90, "the word of all starts")
            driver.stop(30)
            driver.settled(60)
            yarn.masters.intercept = yarn.nodes.intercept = None
            driver.end()

    def test_tokens_are_rolled(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn()
        with Driver(yarn) as driver:
            for session in range(3):
                wanted = yarn.masters.accepted + 1
                yarn.roll_master_key()
                yarn.roll_node_key()
                driver.wait(partial(connected, yarn, wanted), "a new connection")
                yarn.forget_old_master_keys()
                yarn.tokens.nm.forget_old()
                yarn.reactor.disconnect(yarn.nodes)
                driver.request(10, session=session)
                driver.settled(10 * (session + 1))
            driver.end()


class TestNodes:
    def test_one_refuses_to_start_anything(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(10)
        bad = yarn.rm.active()[3].id

        def refuse(node: NodeId, container: ContainerId) -> Optional[Fault]:
            if node == bad and container.serial != 1:
                return Fault("java.io.IOException", "no space left")
            return None

        with Driver(yarn) as driver:
            yarn.hands.refuse = refuse
            driver.request(60)
            driver.wait(
                lambda: len(driver.events_of(Started)) + len(driver.events_of(Completed)) == 60,
                "an answer",
            )
            failed = driver.events_of(Completed)
            assert failed
            assert {one.cause for one in failed} == {ExitCause.LAUNCH}
            assert all("no space left" in one.diagnostics for one in failed)
            driver.settled(60 - len(failed))
            driver.request(len(failed), session=1, avoid_nodes=(bad.host,))
            driver.settled(60)
            assert bad.host not in {one.node for one in driver.held.values()}
            driver.end()

    def test_the_only_one_that_can_do_is_asked_again_after_a_failure(
        self, make_yarn: MakeYarn
    ) -> None:
        yarn = make_yarn(3)
        with yarn.reactor.lock:
            large = yarn.add_node(9, Capability(4096, 16), "/default-rack").id.host
        with Driver(yarn) as driver:
            assert driver.pool is not None
            request = ContainerRequest("role0", 1, 1, Resources(2048, 1), avoid_nodes=(large,))
            driver.pool.request([request], True)
            driver.settled(1)
            assert {one.node for one in driver.held.values()} == {large}
            driver.end()

    def test_one_is_lost(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(10)
        with Driver(yarn) as driver:
            driver.request(60)
            driver.settled(60)
            first = next(iter(driver.held.values())).node
            lost = [one for one in yarn.rm.active() if one.id.host == first]
            with yarn.reactor.lock:
                masters = [one for one in lost[0].live.values() if one.master]
            if masters:
                pytest.skip("the master was there")
            there = {one.id for one in driver.held.values() if one.node == first}
            yarn.lose_node(lost[0].id)
            driver.wait(lambda: len(driver.held) == 60 - len(there), "the ends there")
            ends = driver.events_of(Completed)
            assert {one.container_id for one in ends} == there
            assert {one.cause for one in ends} == {ExitCause.LOST}
            driver.wait(lambda: driver.events_of(NodeLost), "the word of it")
            assert {one.node for one in driver.events_of(NodeLost)} == {first}
            driver.request(len(there), session=1)
            driver.settled(60)
            driver.end()

    def test_containers_are_taken_back(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(10)
        with Driver(yarn) as driver:
            driver.request(20)
            driver.settled(20)
            victims = [driver.container(name) for name in sorted(driver.held)[:5]]
            yarn.request_preemption(victims)
            driver.wait(lambda: driver.events_of(PreemptionRequested), "the warning")
            for victim in victims:
                yarn.preempt(victim)
            driver.wait(lambda: len(driver.held) == 15, "their ends")
            (event,) = driver.events_of(PreemptionRequested)
            assert set(event.container_ids) == {str(one) for one in victims}
            assert {one.cause for one in driver.events_of(Completed)} == {ExitCause.PREEMPTED}
            driver.settled(15)
            driver.end()


class TestMasters:
    def test_the_next_one_finds_all_that_runs(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(20)
        with Driver(yarn) as driver:
            driver.request(50)
            driver.settled(50)
            driver.reported()
            running = set(driver.held)
            assert driver.next_attempt().attempt == 2
            driver.wait(lambda: driver.events_of(PreviousContainers), "what runs")
            assert set(driver.held) == running
            driver.request(10, session=1)
            driver.settled(60)
            driver.end()

    def test_one_that_dies_in_mid_gang(self, make_yarn: MakeYarn) -> None:
        """What its nodes have not reported as running yet goes back; the rest is kept."""
        yarn = make_yarn(20, heartbeat_s=0.2)
        with Driver(yarn) as driver:
            driver.request(100)
            driver.wait_held(5)
            driver.next_attempt()
            driver.wait(lambda: driver.events_of(PreviousContainers), "what runs")
            driver.wait(lambda: set(driver.held) == driver.live(), "the same books")
            kept = len(driver.held)
            driver.request(10, session=1)
            driver.settled(kept + 10)
            driver.end()

    def test_one_that_was_replaced_touches_nothing(self, make_yarn: MakeYarn) -> None:
        yarn = make_yarn(20)
        with Driver(yarn) as driver:
            driver.request(10)
            driver.settled(10)
            driver.reported()
            running = driver.running()
            with yarn.reactor.lock:
                attempt = yarn.rm.applications[driver.app].attempt
            driver.client.fail_attempt(attempt.id)
            driver.wait(lambda: driver.superseded, "the old one's end")
            assert driver.running() == running
            assert not driver.events_of(ShutdownRequested)


@pytest.mark.parametrize("seed", range(6))
def test_everything_at_once(make_yarn: MakeYarn, seed: int) -> None:
    """Lost answers, restarts, token rolls, lost nodes and refusals, in an order by chance."""
    chance = random.Random(seed)
    yarn = make_yarn(25, heartbeat_s=0.1)

    def lose(host: str, call: Call) -> Optional[str]:
        return chance.choice([LOSE, DROP]) if chance.random() < 0.1 else None

    def refuse(node: NodeId, container: ContainerId) -> Optional[Fault]:
        if container.serial != 1 and chance.random() < 0.05:
            return Fault("java.io.IOException", "no space left")
        return None

    def lose_a_node() -> None:
        with yarn.reactor.lock:
            nodes = [
                one for one in yarn.rm.active() if not any(c.master for c in one.live.values())
            ]
            yarn.lose_node(chance.choice(nodes).id)

    def stop_some() -> None:
        driver.stop(chance.randrange(4))

    with Driver(yarn) as driver:
        yarn.masters.intercept = yarn.nodes.intercept = lose
        yarn.hands.refuse = refuse
        for session in range(12):
            driver.request(chance.randrange(1, 15), role=chance.randrange(3), session=session)
            trouble = chance.choice(
                [yarn.restart_rm, yarn.roll_master_key, yarn.roll_node_key, lose_a_node, stop_some]
            )
            trouble()
            threading.Event().wait(chance.random() * 0.1)
        for role in range(3):
            for session in range(12):
                driver.request(0, role=role, session=session)
        yarn.masters.intercept = yarn.nodes.intercept = None
        yarn.hands.refuse = None
        driver.wait(lambda: driver.live() == driver.running() <= set(driver.held), "the same books")
        # Of what a node had lost before the ResourceManager restarted, no report comes: that its
        # executor is silent is all that a master knows, and it ends it.
        driver.end()
