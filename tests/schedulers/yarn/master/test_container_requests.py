"""What is asked of the ResourceManager, against a model of how it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tony_core.hadoop.yarn.messages.yarn import Resource
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import ContainerRequest
from tony_core.schedulers.yarn.master.container_requests import (
    ANY,
    NAME_AGAIN_S,
    NAMED_WAIT_S,
    ContainerRequests,
    RequestUpdate,
)
from tony_core.schedulers.yarn.master.placement import ClusterNode, FreeResources, count_fitting
from tony_core.schedulers.yarn.placement_constraints import parse_constraint

SMALL = Resources(memory_mb=64)
LARGE = Resources(memory_mb=1024, gpus=1)


def nodes(count: int, memory: int = 4096, label: str = "", gpus: int = 0) -> List[ClusterNode]:
    size = Capability(memory, 64, {"yarn.io/gpu": gpus} if gpus else {})
    return [ClusterNode(f"{label}n{i}", f"/rack{i % 2}", size, size, label) for i in range(count)]


def wanted(count: int, role: str = "worker", session: int = 0, **more: object) -> ContainerRequest:
    resources = more.pop("resources", SMALL)
    assert isinstance(resources, Resources)
    return ContainerRequest(role, session, count, resources, **more)  # type: ignore[arg-type]


Key = Tuple[int, int]


@dataclass
class Model:
    """How the ResourceManager counts."""

    owed: Dict[Key, Dict[str, int]] = field(default_factory=dict)
    sizes: Dict[Key, Resource] = field(default_factory=dict)
    labels: Dict[Key, str] = field(default_factory=dict)

    def receive(self, update: RequestUpdate) -> None:
        for request in update.resource_requests:
            key = (request.priority.priority, request.allocation_request_id)
            assert self.sizes.setdefault(key, request.capability) == request.capability
            assert request.num_containers >= 0
            if request.resource_name == ANY:
                self.labels[key] = request.node_label_expression
            else:
                assert not request.node_label_expression, "labels stand on * only"
            self.owed.setdefault(key, {})[request.resource_name] = request.num_containers
        for key, names in self.owed.items():
            if not names.get(ANY):
                assert not any(names.values()), f"names outlive their ask: {key} {names}"

    def outstanding(self) -> Dict[Key, int]:
        return {key: names[ANY] for key, names in self.owed.items() if names.get(ANY)}

    def grant(self, key: Key, host: Optional[str]) -> bool:
        names = self.owed.get(key, {})
        if not names.get(ANY):
            return False
        names[ANY] -= 1
        if host is not None and names.get(host):
            names[host] -= 1
        return True


def named(update: RequestUpdate) -> Dict[str, int]:
    return {one.resource_name: one.num_containers for one in update.resource_requests}


def test_a_gang_is_spread_over_the_hosts_with_room() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(8))
    update = named(requests.next_update(nodes(2), 0.0))
    assert update == {"*": 8, "n0": 4, "n1": 4, "/rack0": 4, "/rack1": 4}


def test_hosts_with_gpus_are_left_to_those_who_ask_for_them() -> None:
    gpus = [ClusterNode("g", "/r", *[Capability(65536, 64, {"yarn.io/gpu": 8})] * 2)]
    room = FreeResources([*nodes(2), *gpus])
    found = room.choose_hosts(Capability(64, 1), 4, "")
    assert found is not None and set(found.hosts) == {"n0", "n1"}
    found = room.choose_hosts(Capability(1024, 1, {"yarn.io/gpu": 1}), 2, "")
    assert found is not None and set(found.hosts) == {"g"}
    found = FreeResources([*nodes(2, 128), *gpus]).choose_hosts(Capability(64, 1), 8, "")
    assert found is not None and "g" in found.hosts, "where the others are too small"


def test_one_container_is_named_on_three_hosts() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1))
    update = named(requests.next_update(nodes(50), 0.0))
    assert len([name for name in update if name.startswith("n")]) == 3
    assert set(update.values()) == {1}


def test_two_applications_do_not_name_the_same_hosts_of_many() -> None:
    chosen = []
    for salt in ("one", "other"):
        requests = ContainerRequests(["worker"], salt)
        requests.request(wanted(1))
        chosen.append(
            {n for n in named(requests.next_update(nodes(200), 0.0)) if n.startswith("n")}
        )
    assert chosen[0] != chosen[1]


def test_hosts_without_room_are_not_named() -> None:
    requests = ContainerRequests(["worker"])
    full = ClusterNode("full", "/r", Capability(32, 64), Capability(4096, 64))
    requests.request(wanted(3))
    assert "full" not in named(requests.next_update([full, *nodes(1)], 0.0))
    requests.request(wanted(2, role="ps"))
    assert named(requests.next_update([full], 0.0)) == {"*": 2}


def test_two_roles_share_the_room() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(wanted(4, role="ps", resources=Resources(memory_mb=1024)))
    requests.request(wanted(4, role="worker", resources=Resources(memory_mb=1024)))
    model = Model()
    model.receive(requests.next_update(nodes(2), 0.0))
    for names in model.owed.values():
        assert names["n0"] == names["n1"] == 2


def test_a_label_stands_on_any_and_chooses_the_hosts() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(2, resources=LARGE, node_label="gpu"))
    update = requests.next_update([*nodes(3), *nodes(2, label="gpu", gpus=4)], 0.0)
    assert {n for n in named(update) if "n" in n} == {"gpun0", "gpun1"}
    labels = {one.resource_name: one.node_label_expression for one in update.resource_requests}
    assert labels["*"] == "gpu"
    assert {label for name, label in labels.items() if name != "*"} == {""}


def test_without_luck_any_host_will_do_and_later_hosts_are_named_again() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(2), now=0.0)
    two = nodes(2)
    requests.next_update(two, 0.0)
    assert not requests.next_update(two, NAMED_WAIT_S - 0.1)
    assert named(requests.next_update(two, NAMED_WAIT_S)) == {
        "*": 2, "n0": 0, "n1": 0, "/rack0": 0, "/rack1": 0,
    }  # fmt: skip
    assert not requests.next_update(two, NAMED_WAIT_S + 1)
    assert requests.needs_nodes(NAMED_WAIT_S + NAME_AGAIN_S)
    assert named(requests.next_update(two, NAMED_WAIT_S + NAME_AGAIN_S))["n0"] == 1
    # ... but not where there is no room.
    requests.next_update(two, 2 * NAMED_WAIT_S + NAME_AGAIN_S)
    assert not requests.next_update([], 2 * (NAMED_WAIT_S + NAME_AGAIN_S))


def test_what_stands_is_not_sent_again() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(2))
    assert requests.next_update([], 0.0)
    requests.request(wanted(2))
    assert not requests.next_update([], 0.1)
    requests.request(wanted(3))
    assert named(requests.next_update([], 0.2)) == {"*": 3}


def test_another_size_has_a_key_of_its_own() -> None:
    requests = ContainerRequests(["worker"])
    model = Model()
    requests.request(wanted(2))
    model.receive(requests.next_update(nodes(1), 0.0))
    requests.request(wanted(1, resources=LARGE))
    model.receive(requests.next_update(nodes(1), 0.0))
    (key,) = model.outstanding()
    assert model.sizes[key] == Capability(1024, 1, {"yarn.io/gpu": 1}).to_message()
    assert len({priority for priority, _ in model.owed}) == 2


def test_ids_tell_the_role_to_a_next_master() -> None:
    first, second = ContainerRequests(["ps", "worker"]), ContainerRequests(["ps", "worker"])
    first.request(wanted(1, role="worker", session=7))
    first.request(wanted(1, role="ps", session=3_000_000))
    first.request(wanted(1, role="stranger"))
    for request in first.next_update([], 0.0).resource_requests:
        role = first.role_of(request.allocation_request_id)
        role_name = second.role_of(request.allocation_request_id)
        assert role_name == ("" if role == "stranger" else role)
        assert 0 < request.allocation_request_id < 1 << 63
        assert 0 < request.priority.priority < 1 << 31
    assert second.role_of(-1) == ""
    assert second.role_of(0) == ""


def test_a_surplus_is_known() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1))
    (request,) = requests.next_update([], 0.0).resource_requests
    assert requests.record_allocation(request.allocation_request_id, 1.0) is not None
    assert requests.record_allocation(request.allocation_request_id, 1.0) is None
    assert requests.record_allocation(12345, 1.0) is None


def test_nodes_to_avoid_are_sent_once_and_taken_back() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1, avoid_nodes=("n1",)))
    update = requests.next_update(nodes(3), 0.0)
    assert (update.blacklist_additions, update.blacklist_removals) == (("n1",), ())
    assert "n1" not in named(update)
    requests.request(wanted(2, avoid_nodes=("n1", "n2")))
    assert requests.next_update(nodes(3), 0.0).blacklist_additions == ("n2",)
    requests.request(wanted(1))
    update = requests.next_update(nodes(3), 0.0)
    assert (update.blacklist_additions, update.blacklist_removals) == ((), ("n1", "n2"))


def test_if_there_are_no_other_nodes_none_is_avoided() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1, avoid_nodes=("n0", "n1")))
    update = requests.next_update(nodes(2), 0.0)
    assert update.blacklist_additions == ()
    assert "n0" in named(update)
    assert not requests.has_unsent


def gpu_nodes(count: int, held: int = 0) -> List[ClusterNode]:
    """Nodes g0, g1... with a GPU each; this job holds what the first of them have."""
    size = Capability(4096, 64, {"yarn.io/gpu": 1})
    ours = [LARGE_NEED if at < held else Capability() for at in range(count)]
    return [ClusterNode(f"g{at}", "/r", size, size, "", ours[at]) for at in range(count)]


LARGE_NEED = Capability(1024, 1, {"yarn.io/gpu": 1})


@pytest.mark.parametrize(
    ("nodes", "count", "avoid", "avoided"),
    [
        ([*nodes(5), *gpu_nodes(1)], 1, ("g0",), ()),  # the only one with a GPU
        ([*nodes(5), *gpu_nodes(1)], 1, ("g0", "n0"), ("n0",)),
        ([*nodes(5), *gpu_nodes(2)], 1, ("g0",), ("g0",)),
        ([*nodes(5), *gpu_nodes(2)], 2, ("g0",), ()),  # both are needed
        ([*nodes(5), *gpu_nodes(2, held=1)], 1, ("g1",), ()),  # the other is full of our own
        ([*nodes(5), *gpu_nodes(3, held=1)], 1, ("g1",), ("g1",)),
    ],
)
def test_a_node_is_not_avoided_if_the_others_can_never_do(
    nodes: List[ClusterNode], count: int, avoid: Tuple[str, ...], avoided: Tuple[str, ...]
) -> None:
    requests = ContainerRequests(["worker"])
    requests.request(wanted(count, resources=LARGE, avoid_nodes=avoid))
    assert requests.next_update(nodes, 0.0).blacklist_additions == avoided
    assert requests.blacklisted == set(avoided)
    assert not requests.has_unsent


def test_nor_if_no_other_has_the_label() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(wanted(1, "ps", avoid_nodes=("gpun0", "n1")))
    requests.request(wanted(1, node_label="gpu", avoid_nodes=("gpun0", "n1")))
    update = requests.next_update([*nodes(3), *nodes(1, label="gpu")], 0.0)
    assert update.blacklist_additions == ("n1",)
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1, node_label="gpu", avoid_nodes=("gpun0",)))
    assert requests.next_update([*nodes(3), *nodes(2, label="gpu")], 0.0).blacklist_additions == (
        "gpun0",
    )


def test_nor_where_each_may_have_to_stand_on_a_node_of_its_own() -> None:
    requests = ContainerRequests(["worker"])
    constraint = parse_constraint("NOTIN,NODE,worker")
    requests.request(wanted(2, avoid_nodes=("n1",)), constraint, ("worker",))
    assert requests.next_update(nodes(3), 0.0).blacklist_additions == ("n1",)
    requests.request(wanted(3, avoid_nodes=("n1",)), constraint, ("worker",))
    assert requests.next_update(nodes(3), 1.0).blacklist_removals == ("n1",)


def test_it_is_looked_at_again_while_something_is_outstanding() -> None:
    """The other node with GPUs goes away, and another comes."""
    requests = ContainerRequests(["worker"])
    requests.request(wanted(1, resources=LARGE, avoid_nodes=("g0",)))
    assert requests.needs_nodes(0.0)
    assert requests.next_update(gpu_nodes(2), 0.0).blacklist_additions == ("g0",)
    assert not requests.needs_nodes(1.0)
    assert requests.needs_nodes(NAME_AGAIN_S)
    assert requests.next_update(gpu_nodes(1), NAME_AGAIN_S).blacklist_removals == ("g0",)
    assert not requests.next_update(
        [], NAME_AGAIN_S + 1.0
    ).blacklist_additions  # unknown nodes change nothing
    assert requests.next_update(gpu_nodes(2), 2 * NAME_AGAIN_S).blacklist_additions == ("g0",)


def test_what_has_tags_or_constraints_goes_as_a_scheduling_request() -> None:
    requests = ContainerRequests(["worker"])
    constraint = parse_constraint("NOTIN,NODE,worker")
    requests.request(wanted(2, node_label="gpu"), constraint, ("worker",))
    update = requests.next_update(nodes(2), 0.0)
    assert update.resource_requests == ()
    (request,) = update.scheduling_requests
    assert request.resource_sizing.num_allocations == 2
    assert request.allocation_tags == ("worker",)
    targets = request.placement_constraint.simple_constraint.target_expressions
    assert [one.target_key for one in targets] == ["self", "yarn_node_partition/"]
    assert not requests.next_update(nodes(2), 60.0)
    assert [number for number, _ in update.split()] == [request.allocation_request_id]


def test_the_two_kinds_of_asks_never_go_together() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(wanted(1), None, ("w",))
    requests.request(wanted(1, role="ps"))
    first = requests.next_update(nodes(1), 0.0)
    assert (len(first.scheduling_requests), named(first)["*"]) == (0, 1)
    assert requests.has_unsent
    second = requests.next_update(nodes(1), 0.0)
    assert (len(second.scheduling_requests), second.resource_requests) == (1, ())
    assert not requests.has_unsent


def test_after_a_restart_everything_outstanding_is_sent_again() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(wanted(3, avoid_nodes=("bad",)))
    requests.request(wanted(1, role="ps"))
    model, again = Model(), Model()
    model.receive(requests.next_update(nodes(4), 0.0))
    key = next(key for key, count in model.outstanding().items() if count == 3)
    requests.record_allocation(key[1], 1.0)
    model.grant(key, None)
    requests.resync()
    requests.request(wanted(0, role="ps"))
    assert requests.has_unsent
    update = requests.next_update(nodes(4), 2.0)
    again.receive(update)
    assert again.outstanding() == {key: 2}


class World(RuleBasedStateMachine):
    """Any order of asks, grants, restarts and silence."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = ContainerRequests(["ps", "worker"])
        self.model = Model()
        self.now = 0.0
        self.wanted: Dict[Tuple[str, int], int] = {}
        self.nodes: Sequence[ClusterNode] = nodes(3)

    @rule(
        role=st.sampled_from(["ps", "worker", "extra"]),
        session=st.integers(0, 2),
        count=st.integers(0, 6),
        size=st.sampled_from([SMALL, LARGE]),
        label=st.sampled_from([None, "gpu"]),
        avoid=st.sets(st.sampled_from(["n0", "n1", "gone"])),
    )
    def request(
        self, role: str, session: int, count: int, size: Resources, label: str, avoid: set[str]
    ) -> None:
        item = ContainerRequest(role, session, count, size, label, avoid_nodes=tuple(sorted(avoid)))
        self.requests.request(item, now=self.now)
        self.wanted[role, session] = count

    @rule(pause=st.sampled_from([0.0, 0.25, 3.0, 20.0]), room=st.booleans())
    def heartbeat(self, pause: float, room: bool) -> None:
        self.now += pause
        if self.requests.needs_nodes(self.now) or not room:
            self.nodes = [*nodes(3), *nodes(1, label="gpu", gpus=4)] if room else []
        self.model.receive(self.requests.next_update(self.nodes, self.now))
        assert not self.requests.has_unsent

    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        owed = self.model.outstanding()
        if not owed:
            return
        key = data.draw(st.sampled_from(sorted(owed)))
        hosts = [name for name in self.model.owed[key] if name != ANY]
        host = data.draw(st.sampled_from([None, *hosts]))
        assert self.model.grant(key, host)
        want = self.requests.record_allocation(key[1], self.now)
        if want is None:
            return  # a surplus: the two spoke at the same moment
        where = (want.role, want.wanted.session)
        assert self.wanted[where] > 0
        self.wanted[where] -= 1
        assert want.need.to_message() == self.model.sizes[key]

    @rule()
    def restart(self) -> None:
        self.model = Model()
        self.requests.resync()

    @rule()
    def withdraw(self) -> None:
        self.requests.withdraw()
        self.wanted = dict.fromkeys(self.wanted, 0)

    @invariant()
    def never_more_than_asked(self) -> None:
        missing: Dict[Tuple[str, int], int] = {}
        for want in self.requests.outstanding:
            where = (want.role, want.wanted.session)
            missing[where] = missing.get(where, 0) + want.missing
        assert missing == {where: count for where, count in self.wanted.items() if count}

    @invariant()
    def the_model_has_what_is_wanted(self) -> None:
        if self.requests.has_unsent:
            return
        missing = {(w.priority, w.request_id): w.missing for w in self.requests.outstanding}
        assert self.model.outstanding() == missing


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.integers(1, 60),
)
def test_naming_holds_its_bounds(rooms: List[int], count: int) -> None:
    need = Capability(100, 1)
    nodes = [
        ClusterNode(f"n{i}", "/r", Capability(100 * room, 64), Capability(4000, 64))
        for i, room in enumerate(rooms)
    ]
    found = FreeResources(nodes).choose_hosts(need, count, "")
    if found is None:
        assert not any(rooms)
        return
    assert len(found.hosts) <= 3 * count
    assert sum(found.hosts.values()) >= min(count, sum(sorted(rooms)[-3 * count :]))
    for name, number in found.hosts.items():
        assert 0 < number <= rooms[int(name[1:])]
    assert all(number <= count for number in found.racks.values())
    # Spread: who could take more takes as much as any other.
    most = max(found.hosts.values())
    for name, number in found.hosts.items():
        assert number == min(most, rooms[int(name[1:])], count)


@pytest.mark.parametrize(("need", "fits"), [(Capability(64, 1), 4), (Capability(64, 2), 2)])
def test_how_often_something_fits(need: Capability, fits: int) -> None:
    assert count_fitting(Capability(1000, 4), need, 100) == fits
