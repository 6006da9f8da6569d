"""Who is granted what: the pure decision, by rules and by chance."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from hypothesis import given
from hypothesis import strategies as st

from tony_core.schedulers.local.allocation import (
    AGEING_S,
    Capacity,
    Decision,
    Demand,
    QueuedApp,
    RequestGroup,
    RoleRequest,
    Usage,
    decide,
    never_fits,
    total,
)

GPUS = ("GPU-a", "GPU-b", "GPU-c")
MACHINE = Capacity(1000, GPUS, 8)


def gang(app: str, memory: int, count: int = 1, since: float = 0.0, gpus: int = 0) -> QueuedApp:
    want = RoleRequest("worker", 0, count, Demand(memory, gpus, 1))
    return QueuedApp(app, app + "'s name", since, MACHINE, (RequestGroup(True, (want,)),))


def singles(app: str, memory: int, count: int, since: float = 0.0) -> QueuedApp:
    want = RoleRequest("worker", 0, count, Demand(memory, 0, 1))
    return QueuedApp(app, app + "'s name", since, MACHINE, (RequestGroup(False, (want,)),))


def optional(app: str, memory: int, count: int, since: float = 0.0) -> QueuedApp:
    """What an elastic role has room for beyond its minimum."""
    (found,) = singles(app, memory, count, since).groups
    return QueuedApp(app, app, since, MACHINE, (found._replace(optional=True),))


def granted(decision: Decision) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for grant in decision.grants:
        found[grant.app] = found.get(grant.app, 0) + 1
    return found


def test_a_gang_is_granted_whole_or_not_at_all() -> None:
    assert granted(decide([], [gang("a", 300, 3)], 0)) == {"a": 3}
    decision = decide([Usage("b", "b", 200)], [gang("a", 300, 3)], 0)
    assert decision.grants == ()
    assert "waits for 900 MB (800 of 1000 free)" in decision.waits["a"]
    assert "application b (b) holds 200 MB" in decision.waits["a"]


def test_single_containers_are_granted_one_by_one() -> None:
    decision = decide([], [singles("a", 300, 5)], 0)
    assert granted(decision) == {"a": 3}
    assert "600 MB" in decision.waits["a"]


def test_two_that_want_more_than_half_come_one_after_the_other() -> None:
    first, second = gang("a", 300, 2, since=1), gang("b", 300, 2, since=0)
    decision = decide([], [first, second], 2)
    assert granted(decision) == {"b": 2}
    assert "application b" not in decision.waits["a"]  # what is granted now is not held yet
    held = [Usage("b", "b", 300), Usage("b", "b", 300)]
    assert decide(held, [first], 2).grants == ()
    assert granted(decide([], [first], 2)) == {"a": 2}


def test_what_fits_overtakes_until_the_one_before_it_has_aged() -> None:
    held = [Usage("x", "x", 500)]
    big, small = gang("big", 800, since=0), gang("small", 300, since=1)
    assert granted(decide(held, [big, small], 2)) == {"small": 1}
    late = decide(held, [big, small], AGEING_S)
    assert late.grants == ()
    assert set(late.waits) == {"big", "small"}


def test_what_the_aged_does_not_need_is_still_given() -> None:
    held = [Usage("x", "x", 100, ("GPU-a", "GPU-b", "GPU-c"))]
    aged = gang("aged", 200, since=0, gpus=1)
    assert granted(decide(held, [aged, gang("small", 700, since=1)], AGEING_S)) == {"small": 1}
    assert granted(decide(held, [aged, gang("small", 701, since=1)], AGEING_S)) == {}


def test_who_lost_one_container_of_its_gang_comes_before_newcomers() -> None:
    held = [Usage("old", "old", 300), Usage("old", "old", 300)]
    lost, new = gang("old", 300, since=50), gang("new", 400, since=0)
    assert granted(decide(held, [new, lost], 100)) == {"old": 1}


def test_sidecars_wait_for_the_gang_they_belong_to() -> None:
    sidecar = RequestGroup(False, (RoleRequest("tensorboard", 0, 1, Demand(100, 0, 1)),))
    job = QueuedApp("a", "a", 0, MACHINE, (sidecar, *gang("a", 950).groups))
    assert decide([Usage("b", "b", 200)], [job], 0).grants == ()


def test_spare_ones_come_after_every_waiting_role() -> None:
    held = [Usage("elastic", "elastic", 600)]
    more, new = optional("elastic", 100, 9, since=0), gang("new", 500, since=99)
    assert granted(decide(held, [more], 100)) == {"elastic": 4}
    decision = decide(held, [more, new], 100)  # however new, and although it does not fit
    assert granted(decision) == {}
    assert "what others wait for is kept for them" in decision.waits["elastic"]
    assert granted(decide(held, [more, gang("new", 300, since=99)], 100)) == {
        "new": 1,
        "elastic": 1,  # what the other does not need
    }
    assert granted(decide(held, [more, singles("new", 150, 2, since=99)], 100))["new"] == 2


def test_spare_ones_of_two_jobs_go_to_who_has_wanted_longer() -> None:
    decision = decide([], [optional("a", 600, 1, since=2), optional("b", 600, 1, since=1)], 100)
    assert granted(decision) == {"b": 1}


def test_gpus_are_handed_out_by_id_and_each_once() -> None:
    decision = decide([Usage("x", "x", 1, ("GPU-b",))], [gang("a", 10, 2, gpus=1)], 0)
    assert [grant.gpus for grant in decision.grants] == [("GPU-a",), ("GPU-c",)]
    waits = decide([Usage("x", "x", 1, GPUS)], [gang("a", 10, gpus=1)], 0).waits["a"]
    assert "waits for 1 GPU (0 of 3 free)" in waits
    assert "holds 1 MB and 3 GPUs" in waits


def test_vcores_count_only_where_they_are_limited() -> None:
    many = RoleRequest("worker", 0, 1, Demand(1, 0, 99))
    free = QueuedApp("a", "a", 0, Capacity(1000), (RequestGroup(True, (many,)),))
    assert len(decide([], [free], 0).grants) == 1
    tight = QueuedApp("a", "a", 0, MACHINE, (RequestGroup(True, (many,)),))
    assert decide([], [tight], 0).grants == ()


def test_what_never_fits_is_reported_with_all_it_lacks() -> None:
    words = never_fits(Capacity(100, (), 4), Demand(101, 2, 5))
    assert words == [
        "101 MB of memory are more than the 100 MB there are",
        "2 GPUs are requested and there is none",
        "5 vcores are more than the 4 that may be used",
    ]
    assert never_fits(Capacity(100), Demand(100, 0, 99)) == []
    assert never_fits(Capacity(100), Demand(0, 1)) == ["a GPU is requested and there is none"]


# ------------------------------------------------------------------ by chance

demands = st.builds(Demand, st.integers(1, 600), st.integers(0, 2), st.integers(0, 4))
wants = st.builds(
    RoleRequest, st.sampled_from(["worker", "ps"]), st.just(0), st.integers(1, 3), demands
)


@st.composite
def groups_of_an_app(draw: st.DrawFn) -> Tuple[RequestGroup, ...]:
    found = draw(st.lists(wants, min_size=1, max_size=3))
    unique = {want.role: want for want in found}
    kinds = st.sampled_from([(True, False), (False, False), (False, True)])
    made = []
    for want in unique.values():
        whole, spared = draw(kinds)
        made.append(RequestGroup(whole, (want,), spared))
    return tuple(made)


@st.composite
def queues(draw: st.DrawFn) -> List[QueuedApp]:
    size = draw(st.integers(1, 5))
    return [
        QueuedApp(f"app{n}", "name", draw(st.floats(0, 100)), MACHINE, draw(groups_of_an_app()))
        for n in range(size)
    ]


@st.composite
def holdings(draw: st.DrawFn) -> List[Usage]:
    gpus = list(GPUS)
    found: List[Usage] = []
    room = 1000
    for number in range(draw(st.integers(0, 4))):
        memory = draw(st.integers(1, 250))
        mine = (gpus.pop(),) if gpus and draw(st.booleans()) else ()
        room -= memory
        app = f"app{draw(st.integers(0, 4))}" if draw(st.booleans()) else f"other{number}"
        found.append(Usage(app, "name", memory, mine, 1))
    assert room >= 0
    return found


def used(held: Sequence[Usage], decision: Decision) -> Demand:
    return total(
        [Demand(item.memory_mb, len(item.gpus), item.vcores) for item in held]
        + [grant.each for grant in decision.grants]
    )


@given(holdings(), queues(), st.floats(0, 200))
def test_the_machine_is_never_overbooked(
    held: List[Usage], queue: List[QueuedApp], now: float
) -> None:
    decision = decide(held, queue, now)
    if decision.grants:
        assert used(held, decision).memory_mb <= MACHINE.memory_mb
        assert used(held, decision).vcores <= (MACHINE.vcores or 0)
    gpus = [gpu for item in held for gpu in item.gpus]
    gpus += [gpu for grant in decision.grants for gpu in grant.gpus]
    assert len(gpus) == len(set(gpus))
    assert set(gpus) <= set(GPUS)
    assert all(len(grant.gpus) == grant.each.gpus for grant in decision.grants)


@given(holdings(), queues(), st.floats(0, 200))
def test_gangs_stay_whole_and_waiting_ones_get_a_reason(
    held: List[Usage], queue: List[QueuedApp], now: float
) -> None:
    decision = decide(held, queue, now)
    for queued in queue:
        mine = [grant for grant in decision.grants if grant.app == queued.app]
        complete = True
        for group in queued.groups:
            requested = {want.role: want.count for want in group.requests}
            got = {role: sum(grant.role == role for grant in mine) for role in requested}
            assert not group.whole or got == requested or not any(got.values())
            complete = complete and got == requested
            assert all(got[role] <= requested[role] for role in requested)
        assert complete == (queued.app not in decision.waits)


@given(holdings(), queues(), st.floats(0, 200))
def test_the_order_in_which_the_queue_is_written_down_is_nothing(
    held: List[Usage], queue: List[QueuedApp], now: float
) -> None:
    assert decide(held, queue, now) == decide(held, queue[::-1], now)


@given(holdings(), queues(), st.floats(0, 200))
def test_no_role_is_granted_less_for_spare_containers(
    held: List[Usage], queue: List[QueuedApp], now: float
) -> None:
    plain = [
        queued._replace(groups=tuple(group for group in queued.groups if not group.optional))
        for queued in queue
    ]
    spares = {
        (queued.app, want.role)
        for queued in queue
        for group in queued.groups
        for want in group.requests
        if group.optional
    }
    with_spares, without = decide(held, queue, now), decide(held, plain, now)
    kept = tuple(x for x in with_spares.grants if (x.app, x.role) not in spares)
    assert kept == without.grants
    # A waiting role finds as much free of what it waits for as without optional containers.
    if without.waits and len(kept) < len(with_spares.grants):
        lacking = total(
            want.each
            for queued in plain
            for group in queued.groups
            for want in group.requests
            for _ in range(
                want.count - sum((x.app, x.role) == (queued.app, want.role) for x in kept)
            )
        )
        assert used(held, with_spares).memory_mb + lacking.memory_mb <= MACHINE.memory_mb


@given(queues())
def test_everybody_who_fits_is_served_in_the_end(queue: List[QueuedApp]) -> None:
    """Every grant ends and is given back: no role starves, nothing deadlocks."""
    left = {
        queued.app: queued
        for queued in queue
        if all(
            not never_fits(
                MACHINE, group.demand if group.whole else total(w.each for w in group.requests)
            )
            for group in queued.groups
        )
    }
    now = 100.0
    for _ in range(60):
        if not left:
            return
        decision = decide([], list(left.values()), now)
        assert decision.grants, left
        for grant in decision.grants:
            queued = left[grant.app]
            groups = []
            done = False
            for group in queued.groups:
                (want,) = group.requests
                count = want.count
                if not done and want.role == grant.role:
                    count, done = count - 1, True
                if count:
                    rest = RoleRequest(want.role, want.session, count, want.each)
                    groups.append(group._replace(requests=(rest,)))
            left[grant.app] = QueuedApp(queued.app, "name", queued.since, MACHINE, tuple(groups))
        left = {app: queued for app, queued in left.items() if queued.groups}
        now += 1.0
    raise AssertionError(f"still waiting: {left}")


@given(st.integers(10, 300), st.lists(st.floats(1, 60), min_size=3, max_size=6))
def test_an_elastic_job_takes_nothing_that_a_newcomer_waits_for(
    each: int, ends: List[float]
) -> None:
    """What others give back is the newcomer's, at once: its gang need not age first."""
    held = [(end, Usage(f"other{n}", "", 800 // len(ends))) for n, end in enumerate(sorted(ends))]
    held.append((1e9, Usage("elastic", "", 200)))
    now = 0.0
    while True:
        left = [item for end, item in held if end > now]
        queue = [optional("elastic", each, 9), gang("new", 700, since=0.5)]
        got = granted(decide(left, queue, now))
        if "new" in got:
            assert sum(item.memory_mb for item in left) <= 300
            return
        assert not got and sum(item.memory_mb for item in left) > 300
        now = min(end for end, _ in held if end > now)


@given(st.lists(st.integers(100, 600), min_size=1, max_size=8))
def test_a_big_one_is_not_starved_by_a_stream_of_small_ones(sizes: List[int]) -> None:
    """Small ones keep coming and live for a while; the big one's turn comes after ageing."""
    big = gang("big", 900, since=0.0)
    held: List[Tuple[float, Usage]] = []
    now, number = 0.0, 0
    while now < AGEING_S + 40:
        held = [(end, item) for end, item in held if end > now]
        small = gang(f"small{number}", sizes[number % len(sizes)], since=now)
        decision = decide([item for _, item in held], [big, small], now)
        if "big" in granted(decision):
            return
        for grant in decision.grants:
            held.append((now + 20, Usage(grant.app, "", grant.each.memory_mb)))
        number += 1
        now += 1.0
    raise AssertionError("the big one still waits")
