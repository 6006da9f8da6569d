"""The scheduler asks for containers back: who is warned, what was sent, how an exit is judged."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.master.session.world import PS, World, job, role
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import MasterSpec, Mode, RestartScope, Tracking
from tony_core.master.session import commands as c
from tony_core.protocol.messages import Reported
from tony_core.schedulers.container_pool import PreemptionRequested, PreemptionWithdrawn
from tony_core.schedulers.port import AppState

TASK = {"restart_scope": RestartScope.TASK}


def a_world(
    *roles: Any, bound: Tuple[str, ...] = (), named: str = "the scheduler", **more: Any
) -> World:
    made = job(*(roles or (role("worker", 3),)), **more)
    world = World(made, settle_s=0.2, address_bound=frozenset(bound), scheduler=named)
    return world.begin().settle()


def ask(world: World, *names: str, seconds: Optional[float] = 15.0) -> Dict[str, c.WarnProgram]:
    """The scheduler asks for the containers of these tasks; the warnings that follow, by task."""
    containers = tuple(world.executor(name).container.id for name in names)
    return warnings(world, world.feed(PreemptionRequested(containers, seconds)))


def warnings(world: World, commands: List[c.Command]) -> Dict[str, c.WarnProgram]:
    found = [one for one in commands if isinstance(one, c.WarnProgram)]
    named = {world.executors[one.container_id].task: one for one in found}
    assert len(named) == len(found), f"one program was sent two: {found}"
    return named


def system_left(world: World) -> int:
    return world.machine.state.budgets.system_left


def user_left(world: World) -> int:
    return world.machine.state.budgets.user_left


# ------------------------------------------------------------------ who is warned


def test_a_gang_is_warned_of_the_loss_of_one_with_the_time_left() -> None:
    world = a_world(role("worker", 3), role("ps", 1, **PS))
    sent = ask(world, "worker:1")
    assert set(sent) == {"worker:0", "worker:1", "worker:2", "ps:0"}
    assert {one.seconds for one in sent.values()} == {15.0}
    assert [name for name, one in sent.items() if one.is_own] == ["worker:1"]
    assert world.story_texts("preemption-warned") == [
        "the scheduler asks for the container of worker:1 back; 15 s left"
    ]
    (text,) = world.story_texts("preemption-sent")
    assert text.startswith("TonY warned the 4 programs of ") and text.endswith("(15 s left)")


def test_the_scheduler_has_its_name_and_may_give_no_time() -> None:
    world = a_world(named="YARN")
    sent = ask(world, "worker:0", "worker:2", seconds=None)
    assert {one.seconds for one in sent.values()} == {None}
    assert world.story_texts("preemption-warned") == [
        "YARN asks for the containers of worker:0, worker:2 back; it gives no time"
    ]


@pytest.mark.parametrize(
    ("roles", "more", "lost", "expected"),
    [
        # one that is restarted by itself, and one that cannot be
        ([role("worker", 2), role("ps", 2, **PS, **TASK)], {}, "ps:0", {"ps:0"}),
        (
            [role("worker", 2), role("ps", 1, **PS, **TASK)],
            {"bound": ("ps",)},
            "ps:0",
            {"worker:0", "worker:1", "ps:0"},
        ),
        # a sidecar is alone, and goes on when the session ends
        (
            [role("worker", 2), role("board", tracking=Tracking.SIDECAR)],
            {},
            "board:0",
            {"board:0"},
        ),
        (
            [role("worker", 2), role("board", tracking=Tracking.SIDECAR)],
            {},
            "worker:0",
            {"worker:0", "worker:1"},
        ),
        # one whose failure is ignored
        ([role("worker", 3)], {"fail_on_worker_failure": False}, "worker:2", {"worker:2"}),
        # elastic: the rest goes on in another round, begun by ending all programs
        ([role("worker", 3, min_instances=1)], {}, "worker:2", {f"worker:{n}" for n in range(3)}),
        ([role("worker", 2)], {"mode": Mode.FCFS}, "worker:1", {"worker:0", "worker:1"}),
    ],
)
def test_those_are_warned_whose_programs_end_with_it(
    roles: List[Any], more: Dict[str, Any], lost: str, expected: set[str]
) -> None:
    world = a_world(*roles, **more)
    world.after(5).settle()
    assert set(ask(world, lost)) == expected


def test_the_earliest_of_several_counts_and_nothing_is_sent_twice() -> None:
    world = a_world()
    assert {one.seconds for one in ask(world, "worker:0", seconds=20.0).values()} == {20.0}
    world.after(2)
    assert ask(world, "worker:0", seconds=18.0) == {}
    sent = ask(world, "worker:1", seconds=8.0)
    assert {name: one.seconds for name, one in sent.items()} == dict.fromkeys(
        ("worker:0", "worker:1", "worker:2"), 8.0
    )


def test_it_is_withdrawn_once_for_those_that_were_warned() -> None:
    world = a_world()
    ask(world, "worker:1")
    container = world.executor("worker:1").container.id
    sent = warnings(world, world.feed(PreemptionWithdrawn((container,))))
    assert set(sent) == {"worker:0", "worker:1", "worker:2"}
    assert all(one.withdrawn for one in sent.values())
    assert world.story_texts("preemption-withdrawn") == [
        "the scheduler no longer asks for the container of worker:1"
    ]
    assert not warnings(world, world.feed(PreemptionWithdrawn((container,))))
    assert len(world.story_texts("preemption-withdrawn")) == 1


def test_containers_that_are_not_the_jobs_are_passed_over() -> None:
    world = a_world()
    world.feed(PreemptionRequested(("strange",), 1.0))
    world.feed(PreemptionWithdrawn(("strange",)))
    assert not [item for item in world.story if item.kind.startswith("preemption")]


def test_a_program_that_starts_later_or_calls_again_is_warned_with_what_is_left() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin()
    while world.queue and not world.queue[0].name.startswith("run"):
        world.next_item().do()
    assert ask(world, "worker:0") == {}
    world.after(5.0).settle()
    assert {one.seconds for one in world.warned.values()} == {10.0}
    again = world.executor("worker:1")
    world.warned.clear()
    world.after(1.0).register(again)
    assert [(key[0], one.seconds) for key, one in world.warned.items()] == [
        (again.container.id, 9.0)
    ]


# ------------------------------------------------------------------ how an exit is judged


def test_a_program_that_saves_and_exits_is_restarted_elsewhere_by_the_systems_budget() -> None:
    world = a_world(master=MasterSpec(user_retries=0))
    ask(world, "worker:1")
    asked, before = world.executor("worker:1").container.id, system_left(world)
    for name in ("worker:0", "worker:1", "worker:2"):
        world.end(name, 0, notices=True)
    world.after(5).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 3
    assert system_left(world) == before - 1
    assert asked not in world.machine.state.held, "the scheduler got it back"
    (cause,) = world.story_texts("root-cause")
    assert "preempted" in cause and "it exited by itself with 0" in cause


@pytest.mark.parametrize("code", [1, 75, 138])
def test_a_failure_after_the_warning_is_not_the_users(code: int) -> None:
    world = a_world(master=MasterSpec(user_retries=0))
    ask(world, "worker:1")
    world.end("worker:0", code, notices=True)
    world.after(5).settle()
    assert world.machine.state.session == 1 and user_left(world) == 0


def test_a_program_that_takes_no_notice_is_judged_as_always() -> None:
    world = a_world(role("worker", 1), master=MasterSpec(user_retries=0))
    ask(world, "worker:0")
    world.end("worker:0", 0)
    world.settle()
    assert world.outcome is AppState.SUCCEEDED
    world = a_world(role("worker", 1), master=MasterSpec(user_retries=0))
    ask(world, "worker:0")
    world.end("worker:0", 1)
    world.after(5).settle()
    assert world.outcome is AppState.FAILED
    assert world.machine.state.root_cause["fault"] == "user"


@pytest.mark.parametrize(
    ("progress", "result", "done"),
    [(1.0, "", True), (0.99, "", False), (0.5, "1", False), (None, "7", True), (None, "", False)],
)
def test_whether_an_exit_with_0_is_the_end_of_the_work(
    progress: Optional[float], result: str, done: bool
) -> None:
    world = a_world(role("worker", 2))
    ask(world, "worker:1")
    chief = world.executor("worker:0").container.id
    world.report(chief, Reported(0, progress, {}, result=result))
    world.end("worker:1", 0, notices=True).end("worker:0", 0, notices=True)
    world.after(5).settle()
    assert (world.outcome is AppState.SUCCEEDED) is done, world.states()
    assert world.machine.state.session == (0 if done else 1)


def test_what_was_withdrawn_explains_no_exit() -> None:
    world = a_world(role("worker", 1), master=MasterSpec(user_retries=0))
    ask(world, "worker:0")
    world.feed(PreemptionWithdrawn((world.executor("worker:0").container.id,)))
    world.end("worker:0", 1, notices=True)
    world.after(5).settle()
    assert world.machine.state.root_cause["fault"] == "user"


def test_a_container_that_is_asked_for_gets_no_next_session() -> None:
    world = a_world(role("worker", 3), master=MasterSpec(user_retries=1))
    ask(world, "worker:1", "worker:2")
    asked = {world.executor(name).container.id for name in ("worker:1", "worker:2")}
    world.end("worker:0", 1)  # by its own fault
    world.after(5).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 3
    assert not asked & set(world.machine.state.held)


def test_the_loss_itself_is_judged_as_always_and_the_rest_is_warned_of_nothing_more() -> None:
    world = a_world()
    ask(world, "worker:1")
    before = dict(world.warned)
    world.kill("worker:1", ExitCause.PREEMPTED)
    world.after(5).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 3
    assert world.warned == before
    assert not world.machine.state.preemptions.asked


def test_an_elastic_role_goes_on_without_the_one_that_exited() -> None:
    world = a_world(role("worker", 3, min_instances=1))
    world.after(5).settle()
    before = (system_left(world), user_left(world))
    ask(world, "worker:2")
    world.end("worker:2", 0, notices=True)
    world.after(0.5).settle()
    assert (system_left(world), user_left(world)) == before, "a round is charged to no budget"
    assert world.machine.state.session >= 1


def test_a_task_with_a_scope_of_its_own_is_restarted_in_another_container() -> None:
    world = a_world(role("worker", 2), role("ps", 1, **PS, **TASK))
    asked = world.executor("ps:0").container.id
    ask(world, "ps:0")
    world.end("ps:0", 0, notices=True)
    world.after(5).settle()
    assert world.machine.state.session == 0 and world.state("ps:0") == "running"
    assert world.executor("ps:0").container.id != asked


# ------------------------------------------------------------------ whatever happens


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "withdraw", "kill", "wait", "again", "end"]),
        st.integers(0, 3),
        st.sampled_from([None, 0.0, 1.0, 15.0]),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_every_running_program_knows_what_is_so(happenings: List[Tuple[str, int, Any]]) -> None:
    world = a_world(role("worker", 4), master=MasterSpec(infrastructure_retries=50))
    for what, index, seconds in happenings:
        name = f"worker:{index}"
        if world.finished or world.state(name) != "running":
            world.after(100).settle()
            continue
        container = world.executor(name).container.id
        if what == "ask":
            world.feed(PreemptionRequested((container,), seconds))
        elif what == "withdraw":
            world.feed(PreemptionWithdrawn((container,)))
        elif what == "kill":
            world.kill(name, ExitCause.PREEMPTED)
            world.after(100).settle()
        elif what == "wait":
            world.after(seconds or 0.5)
        elif what == "again":
            world.register(world.executor(name))
        else:
            world.end(name, 0, notices=True)
            world.after(100).settle()
        check_all_know(world)


def check_all_know(world: World) -> None:
    """By the world's own records: each that runs was last sent what is so now."""
    state = world.machine.state
    if state.phase.value != "active":
        return
    asked = state.preemptions.asked
    for name in world.running():
        executor = world.executor(name)
        last = world.warned.get((executor.container.id, executor.session, executor.restart))
        knows = last is not None and not last.withdrawn
        assert knows is bool(asked), f"{name}: {last}, {asked}"
        if last is not None and knows:
            assert last.is_own is (executor.container.id in asked)
