"""A task that is restarted within its session: the rules, one by one, without processes."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Tuple

import pytest

from tests.master.session.world import PS, World, job, role
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import GroupDependency, MasterSpec, Mode, RestartScope, Tracking
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.records import Phase
from tony_core.protocol.messages import Ended, Ready, Reported, Running, Stopped
from tony_core.schedulers import container_pool
from tony_core.schedulers.port import AppState

TASK: Dict[str, Any] = {"restart_scope": RestartScope.TASK}
RUN_S = 40.0  # longer than what may be "the same again"
WORKER = frozenset({"worker"})


def world_of(*roles: Any, address_bound: FrozenSet[str] = frozenset(), **more: Any) -> World:
    """A world whose programs run."""
    more.setdefault("master", MasterSpec(user_retries=1, infrastructure_retries=1))
    world = World(job(*roles, **more), settle_s=0.2, address_bound=address_bound).begin().settle()
    return world.after(RUN_S)


def programs(world: World) -> Dict[str, Tuple[str, int]]:
    """Container and try of each task."""
    tasks = world.machine.state.tasks.values()
    return {task.name: (task.container or "", task.restarts) for task in tasks}


def fail_twice(world: World, name: str) -> World:
    """The second time there is a pause before the next try."""
    world.end(name, 1).settle().after(RUN_S).end(name, 1)
    assert world.state(name) == "pending"
    return world


def prepared(commands: List[c.Command]) -> List[c.PrepareTask]:
    return [item for item in commands if isinstance(item, c.PrepareTask)]


# ---------------------------------------------------------------------- in its container


def test_a_task_restarts_in_its_container_and_no_other_executor_gets_a_message() -> None:
    world = world_of(role("worker", 2, **TASK), role("ps", **PS), address_bound=WORKER)
    before = programs(world)
    executor = world.executor("worker:1")
    executor.phase = "ended"
    commands = world.report(executor.container.id, Ended(0, 3, stderr_tail=("no luck",)))
    (again,) = prepared(commands)
    assert (again.task, again.session, again.restart) == ("worker:1", 0, 1)
    assert again.same_ports, "the others know them"
    assert not [x for x in commands if isinstance(x, (c.StopTask, c.StopContainer, c.EndSession))]
    assert any(isinstance(x, c.WriteJournal) for x in commands[: commands.index(again)]), (
        "written ahead"
    )
    world.settle()
    assert programs(world) == {**before, "worker:1": (before["worker:1"][0], 1)}
    assert len(world.running()) == 3
    assert world.started[-1] == (0, ("worker:1",))
    assert [m.role for m in world.members["worker:1"]] == ["worker", "worker", "ps"]
    (text,) = world.story_texts("task-again")
    assert "worker:1 is restarted on n" in text
    assert "(1 of 3)" in text
    for name in ("worker:0", "worker:1"):
        world.end(name).settle()
    assert world.outcome is AppState.SUCCEEDED


def test_its_start_names_the_gang_it_belongs_to() -> None:
    world = world_of(role("worker", 2, **TASK), role("board", tracking=Tracking.SIDECAR))
    starts: List[c.StartTasks] = []
    perform = world.perform

    def on_command(command: c.Command) -> None:
        if isinstance(command, c.StartTasks):
            starts.append(command)
        perform(command)

    world.perform = on_command  # type: ignore[method-assign]
    world.end("worker:1", 3).settle()
    world.end("board:0", 3).after(2).settle()
    found = [(start.tasks, start.gang, start.restart) for start in starts]
    assert found[0] == (("worker:1",), ("worker:0", "worker:1"), 1)
    assert found[1] == (("board:0",), ("board:0",), 1)


def test_what_waits_for_it_waits_on() -> None:
    last = role("last", depends_on=("worker",))
    world = world_of(role("worker", 2, **TASK), last)
    world.end("worker:0").settle()
    fail_twice(world, "worker:1").settle()
    assert (world.state("last:0"), world.outcome) == ("pending", None)
    world.after(2).settle().end("worker:1").settle()
    assert world.running() == ["last:0"]
    world.end("last:0").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_an_untracked_role_is_restarted_too() -> None:
    world = world_of(role("worker"), role("ps", 2, **PS, **TASK), address_bound=frozenset({"ps"}))
    world.end("ps:1", 1).settle()
    assert (world.machine.state.session, world.running()) == (0, ["worker:0", "ps:0", "ps:1"])


# ---------------------------------------------------------------------- who pays


def test_the_first_try_is_immediate_and_later_ones_back_off() -> None:
    world = world_of(role("worker", 2, **TASK))
    world.end("worker:0", 1).settle()
    assert world.state("worker:0") == "running", "no time passed"
    world.after(RUN_S).end("worker:0", 1).settle()
    assert world.state("worker:0") == "pending"
    world.after(1).settle()
    assert world.state("worker:0") == "running"
    world.after(RUN_S).end("worker:0", 1).settle().after(1).settle()
    assert world.state("worker:0") == "pending"


def test_when_its_tries_are_spent_the_session_fails_and_the_next_one_has_them_again() -> None:
    world = world_of(role("worker", 2, **TASK, max_restarts=1))
    world.end("worker:0", 1).settle().after(RUN_S)
    world.end("worker:0", 1).settle().after(1).settle()
    assert world.story_texts("task-given-up") == [
        "worker:0 is not restarted within its session (tony.worker.max-restarts)"
    ]
    assert world.machine.state.session == 1
    assert world.machine.state.budgets.user_used == 1
    assert set(world.started[-1][1]) == {"worker:0", "worker:1"}
    world.after(RUN_S).end("worker:0", 1).settle()
    assert (world.machine.state.session, world.running()) == (1, ["worker:0", "worker:1"])
    world.after(RUN_S).end("worker:0", 1).settle().after(1).settle()
    assert world.outcome is AppState.FAILED


def test_the_same_quick_failure_twice_running_ends_it_and_the_job() -> None:
    world = world_of(role("worker", 2, **TASK))
    world.end("worker:0", 3).settle().after(1)  # the first ran for long
    for _ in range(2):
        world.end("worker:0", 3, stderr_tail=("no such file",)).settle().after(1)
        world.settle().after(1)
    world.settle()
    (text,) = world.story_texts("task-given-up")
    assert "the same last line within 30 s" in text
    assert world.outcome is AppState.FAILED
    assert world.finished is not None and "twice running" in world.finished.diagnostics
    assert world.machine.state.session == 0


@pytest.mark.parametrize(
    ("code", "how", "saves"), [(137, {"signal": 9}, False), (137, {}, False), (3, {}, True)]
)
def test_what_was_killed_from_outside_or_has_saved_is_tried_until_its_tries_are_spent(
    code: int, how: Any, saves: bool
) -> None:
    world = world_of(role("worker", 2, **TASK, max_restarts=3))
    for step in range(3):
        executor = world.executor("worker:0")
        if saves:
            number = (executor.container.id, executor.session)
            world.report(number[0], Reported(number[1], None, {}, saved=step))
        world.end("worker:0", code, **how, stderr_tail=("x",)).settle().after(8).settle()
        assert not world.story_texts("task-given-up")


def test_the_systems_failures_are_paid_by_the_task_as_well() -> None:
    world = world_of(role("worker", 2, **TASK, max_restarts=1), mode=Mode.FCFS)
    world.kill("worker:0").settle().after(RUN_S)
    assert world.machine.state.budgets.system_used == 0
    world.kill("worker:0").settle().after(1).settle()
    assert (world.machine.state.session, world.machine.state.budgets.system_used) == (1, 1)


def test_what_the_job_ignores_it_ignores_when_no_try_is_left() -> None:
    workers = role("worker", 2, **TASK, max_restarts=0)
    world = world_of(workers, fail_on_worker_failure=False)
    world.end("worker:1", 1).settle()
    assert (world.state("worker:1"), world.machine.state.session) == ("failed", 0)
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED


# ---------------------------------------------------------------------- in another container


def test_only_the_lost_container_is_replaced() -> None:
    world = world_of(role("worker", 2, **TASK))
    before = programs(world)
    world.kill("worker:1").settle()
    after = programs(world)
    assert after["worker:0"] == before["worker:0"]
    assert after["worker:1"][0] != before["worker:1"][0]
    assert (world.machine.state.session, world.running()) == (0, ["worker:0", "worker:1"])


def test_where_the_others_hold_its_address_a_lost_container_is_the_sessions_failure() -> None:
    world = world_of(role("worker", 2, **TASK), address_bound=WORKER)
    world.kill("worker:1").settle().after(1).settle()
    (text,) = world.story_texts("task-given-up")
    assert "its address is in the others' cluster spec" in text
    assert world.machine.state.session == 1


def test_so_is_one_that_is_lost_before_the_next_try() -> None:
    world = world_of(role("worker", 2, **TASK), address_bound=WORKER)
    fail_twice(world, "worker:1")
    world.kill("worker:1").settle().after(1).settle()
    assert world.machine.state.session == 1


@pytest.mark.parametrize("address_bound", [frozenset(), WORKER])
def test_a_stolen_port_brings_new_ones_or_a_new_session(address_bound: FrozenSet[str]) -> None:
    world = world_of(role("worker", 2, **TASK), address_bound=address_bound)
    executor = world.executor("worker:1")
    ended = e.ExecutorReported(executor.container.id, Ended(0, 1, cause="address-in-use"))
    executor.phase = "ended"
    commands = prepared(world.feed(ended))
    if address_bound:
        assert not commands and world.machine.state.phase is Phase.SETTLING
    else:
        assert [item.same_ports for item in commands] == [False]


def test_nothing_begins_while_the_old_container_is_there() -> None:
    world = world_of(role("worker", 2, **TASK))
    old = world.executor("worker:1")
    world.feed(e.ExecutorLost(old.container.id, "silent"))
    assert world.state("worker:1") == "pending"
    world.queue.clear()  # it hangs
    world.after(10)
    assert world.state("worker:1") == "pending"
    world.complete(old, -1, ExitCause.LOST)
    world.settle()
    assert (world.machine.state.session, world.running()) == (0, ["worker:0", "worker:1"])


def test_what_is_left_of_the_old_program_costs_the_container() -> None:
    world = world_of(role("worker", 2, **TASK))
    old = world.executor("worker:1")
    world.end("worker:1", 1)
    world.queue.clear()
    world.report(old.container.id, Stopped(0, False))
    assert world.story_texts("not-clean")
    world.later("end old", lambda: world.complete(old, 0, ExitCause.RELEASED))
    world.settle().after(1).settle()
    assert old.gone and world.running() == ["worker:0", "worker:1"]
    assert world.machine.state.tasks["worker:1"].restarts == 2


# ---------------------------------------------------------------------- when not


def test_before_its_barrier_the_sessions_rules_hold() -> None:
    world = World(job(role("worker", 2, **TASK)), settle_s=0.2).begin()
    world.grant("worker", 1)
    while world.state("worker:0") != "ready":
        world.queue.pop(0).do()
    world.end("worker:0", 1, cause="localisation")
    assert world.machine.state.phase is Phase.SETTLING


def test_it_does_not_come_back_into_a_session_that_fails() -> None:
    world = world_of(role("worker", 2, **TASK), role("ps", **PS))
    world.end("ps:0", 1).end("worker:1", 1).after(1).settle()
    assert not world.story_texts("task-again")
    assert world.machine.state.session == 1 and len(world.running()) == 3


def test_a_session_that_fails_meanwhile_takes_it_along() -> None:
    world = world_of(role("worker", 2, **TASK), role("ps", **PS))
    fail_twice(world, "worker:1")
    world.end("ps:0", 1).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.started[-1] == (1, ("worker:0", "worker:1", "ps:0"))
    assert world.machine.state.tasks["worker:1"].restarts == 0


@pytest.mark.parametrize("waits", [True, False])
def test_after_the_chiefs_success_nothing_comes_back(waits: bool) -> None:
    world = world_of(role("chief"), role("worker", 1, **TASK), role("ps", **PS, **TASK))
    if waits:  # for its next try, when the chief succeeds
        fail_twice(world, "worker:0")
    world.end("chief:0")
    if not waits:
        world.settle().end("worker:0", 1)
    world.settle()
    assert world.state("worker:0") == ("killed" if waits else "failed")
    assert world.outcome is AppState.SUCCEEDED


def test_a_kill_ends_what_was_to_come_back() -> None:
    world = world_of(role("worker", 2, **TASK))
    fail_twice(world, "worker:1")
    world.feed(container_pool.ShutdownRequested("enough"))
    world.settle()
    assert world.outcome is AppState.KILLED
    assert world.states() == {"worker:0": "killed", "worker:1": "killed"}


def test_a_group_has_not_ended_while_one_of_it_comes_back() -> None:
    world = world_of(
        role("worker", 1, **TASK),
        role("evaluator"),
        groups=(("training", ("worker",)),),
        group_dependencies=(GroupDependency("evaluator", "training", 30.0),),
    )
    fail_twice(world, "worker:0")
    assert ("group", "0") not in world.machine.state.deadlines
    world.after(2).settle().after(RUN_S)
    assert len(world.running()) == 2
    world.end("worker:0")
    assert ("group", "0") in world.machine.state.deadlines


# ---------------------------------------------------------------------- fencing, takeover


def test_a_late_report_on_a_previous_program_decides_nothing() -> None:
    world = world_of(role("worker", 2, **TASK))
    executor = world.executor("worker:1")
    name = executor.container.id
    world.end("worker:1", 1)
    for event in (
        e.ExecutorReported(name, Ended(0, 1)),
        e.ExecutorReported(name, Ready(0, "host", {"main": 1})),
        e.ExecutorReported(name, Running(0, 0)),
    ):
        commands = world.feed(event)
        assert world.state("worker:1") == "registered"
        if isinstance(event.message, Ended):
            assert commands == [c.AcknowledgeEnd(name, 0, 0)]
    world.settle()
    assert world.story_texts("task-again") and world.running() == ["worker:0", "worker:1"]


@pytest.mark.parametrize("address_bound", [frozenset(), WORKER])
def test_a_next_master_knows_which_try_it_is(address_bound: FrozenSet[str]) -> None:
    world = world_of(role("worker", 2, **TASK, max_restarts=1), address_bound=address_bound)
    world.end("worker:1", 1).settle().after(RUN_S)
    before = programs(world)
    world.takeover().settle()
    assert programs(world) == before
    assert len(world.running()) == 2
    world.end("worker:1", 1).settle()
    assert world.story_texts("task-given-up"), "its one try is spent"


@pytest.mark.parametrize("address_bound", [frozenset(), WORKER])
def test_a_next_master_starts_what_was_to_come_back(address_bound: FrozenSet[str]) -> None:
    world = world_of(role("worker", 2, **TASK), address_bound=address_bound)
    before = programs(world)
    world.end("worker:1", 1)  # and the master dies before it has sent the task to the executor
    world.takeover().settle()
    container = before["worker:1"][0]
    assert programs(world) == {**before, "worker:1": (container, 1)}
    assert world.running() == ["worker:0", "worker:1"]
    assert len(world.story_texts("task-again")) == 1, "charged once"


@pytest.mark.parametrize("address_bound", [frozenset(), WORKER])
def test_only_the_task_that_does_not_return_to_a_next_master_is_lost(
    address_bound: FrozenSet[str],
) -> None:
    world = world_of(role("worker", 2, **TASK), address_bound=address_bound)
    world.executor("worker:1").gone = True
    world.takeover().settle().after(25).settle()
    assert world.machine.state.session == (1 if address_bound else 0)
    assert world.running() == ["worker:0", "worker:1"]


def test_what_no_node_could_start_does_not_come_back() -> None:
    world = world_of(role("worker", 2, **TASK), role("ps", **PS))
    world.complete(world.executor("worker:1"), 127, ExitCause.FILES, "it was removed: submit again")
    world.after(1).settle()
    assert world.outcome is AppState.FAILED
    world.check_nothing_is_left()
