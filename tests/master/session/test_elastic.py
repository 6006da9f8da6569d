"""Elastic roles: a round is a session that no retry budget pays for."""

from __future__ import annotations

from typing import Any, List

from tests.master.session.world import PS, World, job, role
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Job, MasterSpec, RestartMode, Timeouts, Tracking
from tony_core.master.session import commands as c
from tony_core.master.view import JobInfo, view_job
from tony_core.protocol.messages import Reported
from tony_core.schedulers.port import AppState


def elastic(least: int = 2, most: int = 4, *others: Any, **more: Any) -> Job:
    """``least`` to ``most`` workers."""
    more.setdefault("timeouts", Timeouts(elastic_interval_s=30.0))
    workers = role("worker", most, min_instances=least)
    return job(workers, *others, **more)


def only(world: World, number: int) -> World:
    """The scheduler has so many containers for workers and no more, for now."""
    while world.queue:
        item = world.queue.pop(0)
        if not item.name.startswith("grant worker"):
            item.do()
        elif number:
            count = min(number, world.wanted["worker"][1])
            number -= count
            world.grant("worker", count)
    return world


def began(least: int = 2, most: int = 4, have: int = 2, *others: Any, **more: Any) -> World:
    """A job whose first round is ``have`` workers."""
    world = only(World(elastic(least, most, *others, **more), settle_s=0.2).begin(), have)
    world.after(1.0)
    return only(world, 0)


def sizes(world: World) -> List[int]:
    """How many tasks each round began with."""
    return [len(names) for _, names in world.started]


def test_with_room_all_begin_at_once_and_the_minimum_is_the_gang() -> None:
    world = World(elastic(), settle_s=0.2).begin()
    assert world.wanted["worker"] == (0, 2)
    world.settle()
    assert sizes(world) == [4] and len(world.running()) == 4
    assert world.machine.state.session == 0


def test_it_begins_with_what_there_is_and_asks_for_the_rest() -> None:
    world = began(have=3)
    assert sizes(world) == [3]
    assert {m.index for m in world.members["worker:0"]} == {0, 1, 2}
    assert world.wanted["worker"] == (0, 1)
    assert world.story_texts("elastic") == ["3 of 2..4 worker begin"]
    for name in ("worker:0", "worker:1", "worker:2"):
        world.end(name)
    world.settle()
    assert world.outcome is AppState.SUCCEEDED


def test_what_is_beyond_the_minimum_is_spare() -> None:
    asked: List[Any] = []

    class RecordingWorld(World):
        def do_RequestContainers(self, command: c.RequestContainers) -> None:
            asked.extend(
                (request.count, command.gang, request.optional) for request in command.requests
            )
            super().do_RequestContainers(command)

    world = only(RecordingWorld(elastic(2, 4), settle_s=0.2).begin(), 2)
    assert asked == [(2, True, False), (2, False, True)]
    world.after(1.0)
    only(world, 0)
    world.kill("worker:1")  # below the minimum: a new session
    world.settle().after(0.2).settle()
    again = [item for item in asked[2:] if item[0]]
    assert again == [(1, True, False), (2, False, True)]


def test_the_number_of_running_tasks_is_reported() -> None:
    def there(world: World) -> int:
        info = JobInfo("app", 1, "ann", "default", 0.0, 0.0)
        state = world.machine.state
        view = view_job(state, info, 0.0, float, lambda task: {}, lambda value: value)
        page = view.to_page_json()
        assert list(page["elastic"]) == ["worker"]
        assert page["elastic"]["worker"].items() >= {"least": 2, "most": 4}.items()
        return int(page["elastic"]["worker"]["there"])

    assert there(only(World(elastic(), settle_s=0.2).begin(), 0)) == 0
    world = began(have=3)
    assert there(world) == 3
    world.kill("worker:1")
    only(world, 0)
    world.after(0.2)
    assert there(only(world, 0)) == 2
    world.grant("worker", 2)
    world.settle().after(31.0).settle()
    assert sizes(world)[-1] == there(world) == 4
    world.end("worker:0")
    assert there(world) == 4


def test_fewer_than_the_minimum_begin_nothing() -> None:
    world = began(least=3, have=2)
    assert not world.started and world.machine.state.deadlines.get("allocation")


def test_between_two_tries_for_a_gang_nothing_is_asked_for_whatever_comes() -> None:
    asked = elastic(1, 2, role("ps", **PS), timeouts=Timeouts(allocation_s=60.0))
    world = World(asked, settle_s=0.2).begin()
    world.grant("worker")
    world.queue.clear()  # no more is granted
    world.after(60.0)
    assert world.story_texts("allocation-timeout")
    world.grant("worker", 1)  # it was on its way when all was withdrawn
    assert {count for _, count in world.wanted.values()} == {0}
    world.settle().after(10.0)
    assert world.wanted == {"worker": (0, 1), "ps": (0, 1)}
    world.settle().after(2.0).settle()
    assert sizes(world) == [3]


def test_a_next_master_keeps_no_executor_that_its_round_does_not_want() -> None:
    world = began(1, 2, 1, role("ps", **PS))
    world.grant("worker", 1)
    only(world, 0)
    world.after(30.0)
    idle, busy = world.executor("ps:0"), world.executor("worker:0")
    ends = [item for item in world.queue if item.name == f"stop {idle.container.id}"]
    assert world.machine.state.elastic.regrouping and len(ends) == 1
    ends[0].do()
    world.takeover().settle().after(31.0).settle()
    assert idle.gone and not busy.gone
    assert sorted(world.running()) == ["ps:0", "worker:0", "worker:1"]


def test_what_comes_is_taken_in_by_one_round_and_nothing_is_charged() -> None:
    world = began()
    world.grant("worker", 1)
    only(world, 0)
    world.after(5.0)
    world.grant("worker", 1)
    only(world, 0)
    assert sizes(world) == [2]  # not so soon after a round
    world.after(30.0).settle()
    assert sizes(world) == [2, 4] and world.machine.state.session == 1
    assert len(world.running()) == 4
    assert world.story_texts("round") == ["worker grows from 2 to 4: a new round (session 1)"]
    budgets = world.machine.state.budgets
    assert (budgets.user_used, budgets.system_used, budgets.restarts_in_row) == (0, 0, 0)


def test_a_lost_container_leaves_the_others_a_round_and_the_ranks_have_no_gap() -> None:
    world = began(have=4)
    kept = world.machine.state.tasks["worker:3"].container
    world.kill("worker:1")
    only(world, 0)
    world.after(0.2)
    only(world, 0)
    assert sizes(world) == [4, 3] and world.machine.state.budgets.system_used == 0
    assert world.running() == ["worker:0", "worker:1", "worker:2"]
    assert kept in {world.machine.state.tasks[name].container for name in world.running()}
    assert any(
        "goes on with 3 of 4 worker: worker:1 lost" in t for t in world.story_texts("elastic")
    )
    assert world.wanted["worker"] == (1, 1)
    only(world, 1)
    world.grant("worker", 1)
    world.settle().after(31.0).settle()
    assert sizes(world) == [4, 3, 4]


def test_the_first_worker_may_be_the_one_that_is_lost() -> None:
    world = began(have=3)
    world.kill("worker:0")
    only(world, 0)
    world.after(0.2)
    only(world, 0)
    assert world.running() == ["worker:0", "worker:1"]


def test_below_the_minimum_the_rules_of_sessions_hold() -> None:
    world = began(have=2)
    world.kill("worker:1")
    world.after(0.2).settle()
    assert world.machine.state.budgets.system_used == 1
    assert len(world.running()) >= 2


def test_the_programs_own_failure_is_paid_for_by_the_user() -> None:
    world = began(have=4, master=MasterSpec(user_retries=1))
    world.end("worker:2", 1, cause="exited")
    world.settle().after(0.2).settle()
    assert world.machine.state.budgets.user_used == 1 and sizes(world) == [4, 4]


def test_a_lost_task_of_another_role_is_no_shrinking() -> None:
    world = began(2, 4, 3, role("ps", 1, **PS))
    world.kill("ps:0")
    world.after(0.2).settle()
    assert world.machine.state.budgets.system_used == 1


def test_peers_that_die_of_a_loss_are_no_failure_of_the_program() -> None:
    world = began(have=4, master=MasterSpec(user_retries=0))
    world.end("worker:0", 1, cause="exited")
    world.kill("worker:3")
    world.settle().after(0.2).settle()
    assert not world.finished and world.machine.state.budgets.user_left == 0


def test_nothing_grows_once_a_task_has_succeeded() -> None:
    world = began()
    world.grant("worker", 1)
    only(world, 0)
    waiting = world.machine.state.tasks["worker:2"].container
    world.end("worker:0")
    world.settle().after(60.0)
    assert world.executors[waiting or ""].gone and sizes(world) == [2]
    world.end("worker:1").settle()
    assert world.outcome is AppState.SUCCEEDED
    world.check_nothing_is_left()


def test_losses_outside_mean_nothing_and_are_asked_for_ever_more_slowly() -> None:
    world = began()
    for _ in range(5):
        world.after(60.0)
        if world.wanted["worker"][1]:
            world.grant("worker", 1)
            container = next(x for x in reversed(list(world.executors.values())))
            world.complete(container, 1, ExitCause.LAUNCH, "bad image")
    assert sizes(world) == [2] and world.machine.state.elastic.losses["worker"] >= 3
    assert ("regrow", "worker") in world.machine.state.deadlines


def test_a_fresh_restart_mode_keeps_containers_over_rounds() -> None:
    world = began(master=MasterSpec(restart_mode=RestartMode.FRESH))
    first = world.machine.state.tasks["worker:0"].container
    world.grant("worker", 2)
    world.settle().after(31.0).settle()
    assert sizes(world) == [2, 4] and world.machine.state.tasks["worker:0"].container == first


def test_reported_progress_outlives_a_round() -> None:
    world = began()
    container = world.executor("worker:0").container.id
    world.report(container, Reported(0, 0.4, {}, step=40, result=""))
    world.grant("worker", 2)
    world.settle().after(31.0).settle()
    assert sizes(world) == [2, 4] and world.machine.state.tasks["worker:0"].progress == 0.4


def test_a_next_master_goes_on_with_the_round_as_it_is() -> None:
    world = began(have=3)
    world.takeover()
    only(world, 0)
    world.after(25.0)
    assert sizes(world) == [3] and len(world.running()) == 3
    world.grant("worker", 1)
    world.settle().after(31.0).settle()
    assert sizes(world)[-1] == 4 and world.machine.state.budgets.system_used == 0


def test_a_next_master_finishes_what_the_previous_one_began() -> None:
    world = began()
    world.grant("worker", 2)
    only(world, 0)
    world.after(35.0)  # the programs are being ended
    assert world.machine.state.elastic.regrouping
    world.takeover().settle().after(25.0).settle().after(31.0).settle()
    assert world.machine.state.session >= 1 and len(world.running()) == 4
    assert world.machine.state.budgets.system_used == 0


def test_newcomers_that_keep_coming_are_not_waited_for_without_end() -> None:
    world = began(2, 60)
    world.after(30.0)
    came = 0
    while not world.machine.state.session and came < 25:
        world.grant("worker", 1)
        only(world, 0)
        world.after(0.6)  # less than a pause
        only(world, 0)
        came += 1
    assert world.machine.state.session == 1 and came < 25


def test_a_silent_container_keeps_its_deadline_as_another_task() -> None:
    times = Timeouts(registration_s=100.0, allocation_s=1000.0)
    world = World(elastic(2, 3, timeouts=times), settle_s=0.2).begin()
    world.grant("worker", 2)
    silent, second = (world.machine.state.tasks[f"worker:{n}"].container for n in (0, 1))
    before = world.machine.state.deadlines.get("registration", "worker:0")
    world.queue.clear()
    world.after(90.0)
    world.register(world.executors[str(second)])  # which makes it worker:0
    assert [world.machine.state.tasks[f"worker:{n}"].container for n in (0, 1)] == [second, silent]
    deadline = world.machine.state.deadlines.get("registration", "worker:1")
    assert before is not None and deadline is not None and deadline.until == before.until


def test_what_has_succeeded_is_not_asked_for_again() -> None:
    world = began(2, 4, 2)
    world.end("worker:0")
    only(world, 0)
    before = world.machine.state.tasks["worker:2"].state
    world.grant("worker", 1)  # one that was on its way
    only(world, 0)
    world.after(40.0)
    only(world, 0)
    assert world.machine.state.tasks["worker:2"].state is before
    assert world.wanted.get("worker", (0, 0))[1] == 0
    world.end("worker:1")
    world.settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_task_that_ended_before_its_round_began_is_taken_over_as_itself() -> None:
    sidecar = role("board", tracking=Tracking.SIDECAR, max_restarts=1)
    world = only(World(elastic(1, 2, sidecar), settle_s=0.2).begin(), 1)
    world.kill("board:0")  # which writes down what was asked for
    executor = world.executor("worker:0")
    assert executor.phase == "ready" and "worker" not in world.machine.state.barrier_passed
    executor.phase = "ended"  # and its master dies before it hears so
    world.takeover().settle()
    assert world.state("worker:0") == "running" and world.state("worker:1") == "ready"
    world.report_end(executor, 1, cause="registry-timeout")
    world.after(61.0).settle().after(61.0)
    assert world.machine.state.session == 1 and sizes(world)[-1] == 2
