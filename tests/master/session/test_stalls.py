"""Programs that stand still, as the master sees them: whose stall, which lags, what follows."""

from __future__ import annotations

from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.master.session.stalling import LIMIT_S, lines, page, running, stands, steps, watched
from tests.master.session.world import World, job, role
from tony_core.job.spec import MasterSpec, Mode, RestartScope, StallAction, Tracking
from tony_core.master.session import commands as c
from tony_core.master.session.lagging import find_lagging
from tony_core.master.session.stalls import MOST_EPISODES, MOST_LINES, describe_trouble
from tony_core.protocol.messages import Register, Stalled
from tony_core.schedulers.container_pool import PreemptionRequested, PreemptionWithdrawn
from tony_core.schedulers.port import AppState


def test_a_gang_that_stands_still_is_one_episode_that_names_the_lagging_task() -> None:
    world = running(watched())
    for index, number in enumerate((8, 7, 8)):
        steps(world, f"worker:{index}", number)
    for index, number in enumerate((8, 7, 8)):
        stands(world, f"worker:{index}", step=number)
    (text,) = world.story_texts("stalled")
    assert "3 tasks have stalled (worker:0, worker:1, worker:2): no step for 1 min" in text
    assert "worker:1 lags: its last step is 7, the others' 8" in text
    (line,) = [each for each in world.story if each.kind == "stalled"]
    assert line.task == "worker:1" and line.fields["lagging"] == ["worker:1"]
    assert describe_trouble(world.machine.state) == text
    world.after(30.0)
    for index in range(3):
        assert lines(world) == ["stalled"]
        stands(world, f"worker:{index}", "")
    assert lines(world) == ["stalled", "stall-over"]
    assert world.story_texts("stall-over") == ["the programs move again after 1 min 30 s"]
    assert describe_trouble(world.machine.state) == ""


def test_the_line_waits_for_the_stacks_but_not_for_ever() -> None:
    world = running(watched())
    stands(world, "worker:0", looked=False)
    assert lines(world) == []
    world.after(25.0)
    assert lines(world) == ["stalled"]


def test_a_stall_that_ends_before_its_line_leaves_none() -> None:
    world = running(watched())
    stands(world, "worker:0", looked=False)
    stands(world, "worker:0", "")
    world.after(60.0)
    assert lines(world) == []


def test_quiet_tasks_wait_for_one_that_moves() -> None:
    world = running(watched())
    stands(world, "worker:1", "quiet")
    stands(world, "worker:2", "quiet")
    world.after(60.0)
    assert lines(world) == []  # worker:0 downloads
    stands(world, "worker:0", "quiet")
    assert lines(world) == ["stalled"]
    assert "no output and no computing for" in world.story_texts("stalled")[0]


def test_a_finished_rank_is_waited_for_no_more() -> None:
    world = running(watched())
    stands(world, "worker:1", "quiet")
    stands(world, "worker:2", "quiet")
    world.end("worker:0").after(1.0)
    assert lines(world) == ["stalled"]


def test_roles_that_do_not_train_are_not_watched_unless_their_key_is_set() -> None:
    spec = watched(
        role("worker"), role("evaluator"), role("notebook"), role("ps", tracking=Tracking.UNTRACKED)
    )
    limits = {each.name: spec.stall_timeout(each) for each in spec.roles}
    assert limits == {"worker": LIMIT_S, "evaluator": None, "notebook": None, "ps": None}
    own = role("ps", tracking=Tracking.UNTRACKED, stall_s=5.0)
    off = role("worker", stall_s=100 * 365 * 86400.0)
    assert watched(own).stall_timeout(own) == 5.0 and watched(off).stall_timeout(off) is None
    assert job(role("worker")).stall_timeout(role("worker")) is None


def test_a_suspended_task_is_no_stall_and_holds_back_the_action() -> None:
    world = running(watched(action=StallAction.RESTART))
    stands(world, "worker:0", "suspended")
    world.after(60.0)
    assert lines(world) == []
    stands(world, "worker:1")
    stands(world, "worker:2")
    world.after(60.0).settle()
    assert lines(world) == ["stalled"] and world.machine.state.session == 0
    assert "worker:0 is suspended by a signal" in world.story_texts("stalled")[0]


def test_those_that_still_stand_after_a_suspended_task_goes_on_are_acted_upon() -> None:
    world = running(watched(action=StallAction.RESTART))
    stands(world, "worker:0", "suspended")
    stands(world, "worker:1")
    stands(world, "worker:2")
    world.after(3 * LIMIT_S).settle()
    assert world.machine.state.session == 0
    stands(world, "worker:0", "")
    world.after(2 * LIMIT_S).settle()
    world.after(30.0).settle()
    assert world.machine.state.session == 1 and lines(world) == ["stalled", "stall-over"]


def test_tasks_that_train_by_themselves_have_episodes_of_their_own() -> None:
    world = running(watched(mode=Mode.FCFS))
    stands(world, "worker:0")
    stands(world, "worker:2")
    world.after(1.0)
    assert lines(world) == ["stalled", "stalled"]
    stands(world, "worker:0", "")
    world.after(1.0)
    assert world.story_texts("stall-over") == ["worker:0 moves again after 1 min 2 s"]


def test_restart_begins_the_next_session_and_the_programs_budget_pays() -> None:
    world = running(watched(action=StallAction.RESTART))
    left = world.machine.state.budgets.user_left
    for index in range(3):
        stands(world, f"worker:{index}", step=7 - (index == 2))
        steps(world, f"worker:{index}", 7 - (index == 2))
    world.settle()
    world.after(30.0).settle()
    state = world.machine.state
    assert state.session == 1 and len(world.running()) == 3
    assert state.budgets.user_left == left - 1 and state.budgets.system_used == 0
    assert state.root_cause["cause"] == "stalled" and state.root_cause["fault"] == "user"
    assert lines(world) == ["stalled", "stall-over"]


def test_fail_ends_the_job_with_the_task_the_time_and_the_step() -> None:
    world = running(watched(action=StallAction.FAIL, master=MasterSpec(user_retries=5)))
    for index in range(3):
        steps(world, f"worker:{index}", 7 - (index == 2))
    for index in range(3):
        stands(world, f"worker:{index}")
    world.settle()
    world.after(60.0).settle()
    state = world.machine.state
    assert world.outcome is AppState.FAILED and state.session == 0
    assert state.root_cause["task"] == "worker:2" and state.root_cause["cause"] == "stalled"
    assert "no step for 1 min" in state.diagnostics and "its last step is 6" in state.diagnostics
    assert "tony.task.stall-action=fail" in state.diagnostics


def test_the_end_of_the_one_that_has_stalled_names_it_once() -> None:
    world = running(watched(role("worker"), action=StallAction.FAIL))
    steps(world, "worker:0", 7)
    stands(world, "worker:0", step=7)
    world.settle()
    world.after(60.0).settle()
    state = world.machine.state
    first = state.diagnostics.splitlines()[0]
    assert first.count("worker:0") == first.count("stalled") == 1
    assert state.root_cause["message"].startswith("no step for 1 min, the last was 7")


def test_fail_ends_a_job_that_ignores_the_failures_of_workers() -> None:
    spec = watched(action=StallAction.FAIL, fail_on_worker_failure=False)
    world = running(spec)
    stands(world, "worker:2")
    world.after(30.0).settle()
    world.after(60.0).settle()
    assert world.outcome is AppState.FAILED


def test_a_role_with_task_restart_restarts_only_the_lagging_task() -> None:
    spec = watched(
        role("worker", 3, restart_scope=RestartScope.TASK),
        action=StallAction.RESTART,
        mode=Mode.FCFS,
    )
    world = running(spec)
    stands(world, "worker:1")
    world.after(1.0).settle()
    world.after(5.0).settle()
    state = world.machine.state
    assert state.session == 0 and state.tasks["worker:1"].restarts == 1
    assert len(world.running()) == 3 and lines(world) == ["stalled", "stall-over"]


def test_an_executor_that_cannot_end_its_program_is_given_up() -> None:
    world = running(watched(action=StallAction.RESTART))
    stands(world, "worker:1")
    world.after(20.0)
    world.queue = [each for each in world.queue if not each.name.startswith("end program")]
    world.after(20.0).settle()
    world.after(20.0).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 3


def test_the_order_is_sent_again_where_the_connection_broke() -> None:
    world = running(watched(action=StallAction.RESTART))
    stands(world, "worker:1")
    world.after(20.0)
    executor = world.executor("worker:1")
    register = Register(
        executor.container.id, "host", 1, 1, "", "worker:1", 0, "running",
        stalled=dict(Stalled(0, 0, "steps", LIMIT_S)._asdict()),
    )  # fmt: skip
    out = world.report(executor.container.id, register)
    assert [type(each) for each in out if isinstance(each, c.EndProgram)] == [c.EndProgram]


@pytest.mark.parametrize("fields", [{"session": 3}, {"restart": 2}])
def test_a_late_report_of_another_program_counts_nothing(fields: Any) -> None:
    world = running(watched())
    report = Stalled(**{"session": 0, "restart": 0, **fields})._replace(kind="steps", looked=True)
    world.report(world.executor("worker:0").container.id, report)
    assert world.machine.state.stalls.still == {}


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["worker:0", "worker:1", "worker:2"]),
        st.sampled_from(["steps", "quiet", "suspended", "", "end", "wait"]),
        st.booleans(),
    ),
    max_size=30,
)


@given(ACTS, st.sampled_from(StallAction), st.sampled_from(Mode))
def test_never_two_stalls_without_an_end_between(acts: Any, action: Any, mode: Any) -> None:
    world = running(watched(action=action, mode=mode, master=MasterSpec(user_retries=3)))
    for name, act, looked in acts:
        if world.outcome is not None:
            break
        if act == "wait":
            world.after(25.0).settle()
        elif world.machine.state.tasks[name].state.value == "running":
            if act == "end":
                world.end(name, 0)
            else:
                stands(world, name, act, looked=looked)
    world.after(200.0).settle()
    groups: Any = {}
    for line in world.story:
        if line.kind in ("stalled", "stall-over"):
            group = line.task if mode is Mode.FCFS else ""
            assert groups.get(group, "stall-over") != line.kind.value, world.story
            groups[group] = line.kind.value


def test_without_the_key_nothing_is_watched() -> None:
    world = running(job(role("worker", 3)))
    assert world.machine.state.job.stall_timeout(world.job.roles[0]) is None
    assert describe_trouble(world.machine.state) == ""


def test_programs_warned_of_preemption_are_not_ended_until_it_is_withdrawn() -> None:
    world = running(watched(action=StallAction.RESTART))
    asked = world.executor("worker:1").container.id
    world.feed(PreemptionRequested((asked,), None))
    for index in range(3):
        stands(world, f"worker:{index}", step=7)
    world.settle()
    world.after(30.0).settle()
    assert lines(world) == ["stalled"] and world.machine.state.session == 0
    world.feed(PreemptionWithdrawn((asked,)))
    world.after(2 * LIMIT_S).settle()
    world.after(30.0).settle()
    assert world.machine.state.session == 1


def suspended_pair(action: StallAction = StallAction.WARN) -> World:
    """worker:1 is suspended at step 6, and worker:0 hangs there."""
    world = running(watched(role("worker", 2), action=action))
    for name in ("worker:1", "worker:0"):
        steps(world, name, 6)
    stands(world, "worker:1", "suspended")
    stands(world, "worker:0", step=6)
    assert lines(world) == ["stalled"] and "none differs" in page(world)
    assert "(worker:0, worker:1)" in page(world) and "worker:1 is suspended" in page(world)
    return world


def test_while_a_stall_lasts_page_and_story_follow_what_is_known() -> None:
    world = suspended_pair()
    stands(world, "worker:1", "")
    world.after(5.0)
    assert page(world).startswith("worker:0 has stalled: no step for 1 min 5 s, the last was 6")
    assert page(world).endswith("the others go on") and lines(world) == ["stalled"]
    steps(world, "worker:1", 39)
    stands(world, "worker:1", looked=False)
    world.after(5.0)
    assert page(world).endswith("the others go on")  # its stacks may show more
    stands(world, "worker:1")
    world.after(5.0)
    text = page(world)
    assert "worker:0 lags: its last step is 6, the others' 39" in text
    assert world.story_texts("stall-lag") == [text]
    (line,) = [each for each in world.story if each.kind == "stall-lag"]
    assert line.task == "worker:0" and line.fields["lagging"] == ["worker:0"]
    for _ in range(20):  # reports that say nothing new change no text, though time passes
        stands(world, "worker:1")
        world.after(5.0)
    assert page(world) == text and lines(world) == ["stalled", "stall-lag"]
    stands(world, "worker:0", "")
    stands(world, "worker:1", "")
    assert lines(world) == ["stalled", "stall-lag", "stall-over"] and page(world) == ""


def test_a_gang_that_flaps_causes_few_lines() -> None:
    world = suspended_pair()
    for number in range(100):
        steps(world, "worker:1", 7 if number % 2 else 5)
        stands(world, "worker:1", "")
        stands(world, "worker:1")
        world.after(6.0)
    assert lines(world) == ["stalled", *["stall-lag"] * (MOST_LINES - 1)]


def test_episodes_with_lines_are_bounded_and_the_last_line_shows_it() -> None:
    world = running(watched(role("worker", 1)))
    for _ in range(MOST_EPISODES + 20):
        stands(world, "worker:0")
        assert "worker:0 has stalled" in page(world)
        stands(world, "worker:0", "")
    assert lines(world) == ["stalled", "stall-over"] * MOST_EPISODES
    assert "further stalls are not written here" in world.story_texts("stalled")[-1]


def test_after_a_suspended_task_goes_on_the_others_have_the_time_of_a_stall_to_move() -> None:
    world = suspended_pair(StallAction.RESTART)
    world.after(LIMIT_S)
    stands(world, "worker:1", "")
    world.after(LIMIT_S + 10.0).settle()
    assert world.machine.state.session == 0
    steps(world, "worker:1", 39)
    stands(world, "worker:1")
    world.after(25.0).settle()
    world.after(30.0).settle()
    assert world.machine.state.session == 1
    assert world.machine.state.root_cause["task"] == "worker:0"
    assert lines(world) == ["stalled", "stall-lag", "stall-over"]


def test_quiet_tasks_wait_for_one_that_waits_for_its_start() -> None:
    world = running(watched(role("worker", 3, restart_scope=RestartScope.TASK)))
    world.end("worker:1", 1)
    while world.machine.state.tasks["worker:1"].state.value == "running":
        world.next_item().do()
    for name in ("worker:0", "worker:2"):
        stands(world, name, "quiet")
    assert world.machine.state.stalls.still.keys() == {"worker:0", "worker:2"}
    assert lines(world) == [] and not describe_trouble(world.machine.state)
    world.after(30.0).settle()
    world.after(30.0).settle()
    assert len(world.running()) == 3 and lines(world) == []
    stands(world, "worker:1", "quiet")
    assert lines(world) == ["stalled"]


def test_what_is_not_watched_cannot_stall_a_gang() -> None:
    world = running(watched(role("worker"), role("ps", tracking=Tracking.UNTRACKED)))
    stands(world, "ps:0")
    world.after(60.0)
    assert lines(world) == [] and world.machine.state.stalls.still == {}


@pytest.mark.parametrize("mode", Mode)
def test_thousands_that_stall_at_once_are_looked_at_together(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running(watched(role("worker", 40), mode=mode))
    looks: List[int] = []

    def count_lag(tasks: Any) -> Any:
        looks.append(len(tasks))
        return find_lagging(tasks)

    monkeypatch.setattr("tony_core.master.session.stalls.find_lagging", count_lag)
    written: List[Any] = []
    world.do_WriteJournal = written.append  # type: ignore[method-assign]
    for kind in ("steps", ""):
        for index in range(40):
            stands(world, f"worker:{index}", kind)
        world.after(1.0)
    assert sum(looks) == 40 and len(written) == 2
    assert lines(world).count("stalled") == lines(world).count("stall-over") == len(looks)
