"""The session machine, rule by rule: what the design says of a job's life."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.master.session.random_jobs import Seeded
from tests.master.session.world import PS, Executor, World, job, registered, role
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import (
    GroupDependency,
    Job,
    MasterSpec,
    Mode,
    RestartMode,
    Role,
    Timeouts,
    Tracking,
)
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session import machine
from tony_core.master.session.deadlines import ADOPTION_S, Deadline
from tony_core.master.session.reconcile import journal_record
from tony_core.master.session.records import (
    CONTAINER_MOVES,
    PHASE_MOVES,
    TASK_MOVES,
    ContainerState,
    InvalidTransition,
    Phase,
    TaskState,
)
from tony_core.protocol.messages import Ended, Reported, Stopped
from tony_core.schedulers import container_pool
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.port import AppState


def world_of(*roles: Any, settle_s: float = 0.2, **more: Any) -> World:
    """A world whose master stands."""
    return World(job(*roles, **more), settle_s=settle_s).begin()


def retries(user: int = 2, system: int = 10, **more: Any) -> MasterSpec:
    """The master's budgets."""
    return MasterSpec(user_retries=user, infrastructure_retries=system, **more)


# ---------------------------------------------------------------------- the plain way


def test_a_gang_starts_together_over_one_spec_and_succeeds() -> None:
    world = world_of(role("worker", 2), role("ps", 1, **PS)).settle()
    assert world.started == [(0, ("worker:0", "worker:1", "ps:0"))]
    assert [m.role for m in world.members["ps:0"]] == ["worker", "worker", "ps"]
    world.end("worker:1").settle()
    assert world.outcome is None
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED
    assert world.state("ps:0") == "killed"  # ended by the master, not failed
    world.check_nothing_is_left()


def test_no_task_of_a_gang_starts_before_the_last_is_ready() -> None:
    world = world_of(role("worker", 3))
    world.grant("worker", 2)
    world.settle()
    # two are granted by hand; the third comes with the ask that still stands
    assert len(world.started) == 1
    assert world.started[0][1] == ("worker:0", "worker:1", "worker:2")


def test_fcfs_starts_each_at_once_and_gives_its_container_back() -> None:
    world = world_of(role("worker", 2), mode=Mode.FCFS)
    world.queue.clear()  # they come one by one
    world.grant("worker", 1)
    world.settle()
    assert world.started == [(0, ("worker:0",))]
    first = world.executor("worker:0")
    world.end("worker:0").settle()
    assert first.gone
    world.grant("worker", 1)
    world.settle()
    world.end("worker:1").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_surplus_containers_are_released() -> None:
    world = world_of(role("worker", 1))
    world.grant("worker", 3)
    unused = [x for x in world.executors.values() if not x.launched]
    assert len(unused) == 2
    assert all(x.gone for x in unused)


def test_a_stage_is_asked_for_when_those_before_it_have_succeeded() -> None:
    world = world_of(role("prep"), role("worker", 2, depends_on=("prep",))).settle()
    assert world.states() == {"prep:0": "running", "worker:0": "pending", "worker:1": "pending"}
    prep = world.executor("prep:0")
    world.end("prep:0").settle()
    assert prep.gone, "a stage that is done gives its containers back"
    assert world.running() == ["worker:0", "worker:1"]
    assert [m.role for m in world.members["worker:0"]] == ["worker", "worker"]
    world.end("worker:0").end("worker:1").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_done_stage_is_not_run_again_by_a_restart() -> None:
    world = world_of(role("prep"), role("worker", depends_on=("prep",))).settle()
    world.end("prep:0").settle()
    world.end("worker:0", 1).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.state("prep:0") == "succeeded"
    assert world.started[-1] == (1, ("worker:0",))


# ---------------------------------------------------------------------- who decides the end


def test_a_chief_ends_the_job_and_the_others_get_a_grace() -> None:
    world = world_of(role("chief"), role("worker", 2), role("evaluator")).settle()
    world.end("chief:0").settle()
    assert world.outcome is None
    world.end("worker:0").settle()
    world.after(61).settle()
    assert world.state("worker:1") == "killed"
    assert world.outcome is None, "an evaluator has ten minutes"
    world.after(600).settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_failure_after_the_chiefs_success_does_not_matter() -> None:
    world = world_of(role("chief"), role("worker", 2)).settle()
    world.end("chief:0").settle()
    world.end("worker:0", 1).settle()
    world.end("worker:1").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_worker_zero_as_chief_does_not_end_the_job() -> None:
    world = world_of(role("worker", 2)).settle()
    world.end("worker:0").settle().after(3600).settle()
    assert world.outcome is None


@pytest.mark.parametrize("name", ["worker:1", "ps:0"])
def test_a_tracked_or_untracked_failure_is_fatal(name: str) -> None:
    world = world_of(role("worker", 2), role("ps", **PS), master=retries(user=0)).settle()
    world.end(name, 3, stderr_tail=("boom",)).settle().after(1).settle()
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    assert f"{name} on" in world.finished.diagnostics
    assert "exit code 3" in world.finished.diagnostics
    assert "boom" in world.finished.diagnostics
    assert "retry-count" not in world.finished.diagnostics, "no retries were asked for"
    world.check_nothing_is_left()


def test_a_sidecar_never_gates_nor_fails_and_has_a_budget_of_its_own() -> None:
    sidecar = role("board", tracking=Tracking.SIDECAR, max_restarts=1)
    world = world_of(role("worker"), sidecar).settle()
    world.end("board:0", 1).settle().after(1.1).settle()
    assert world.state("board:0") == "running"
    world.end("board:0", 1).settle().after(60).settle()
    assert world.state("board:0") == "failed"
    assert world.story_texts("sidecar-given-up")
    assert world.running() == ["worker:0"]
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_sidecar_whose_container_is_lost_gets_another() -> None:
    world = world_of(role("worker"), role("board", tracking=Tracking.SIDECAR)).settle()
    world.kill("board:0").settle().after(1.1).settle()
    assert world.state("board:0") == "running"


def test_a_sidecar_goes_on_over_a_warm_restart() -> None:
    world = world_of(role("worker"), role("board", tracking=Tracking.SIDECAR)).settle()
    before = world.executor("board:0")
    world.end("worker:0", 1).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.executor("board:0") is before
    assert before.phase == "running"


@pytest.mark.parametrize("lost", [True, False])
def test_in_a_fresh_restart_no_sidecar_begins_before_the_session(lost: bool) -> None:
    sidecar = role("board", tracking=Tracking.SIDECAR, max_restarts=1)
    spec = job(role("worker"), sidecar, master=MasterSpec(restart_mode=RestartMode.FRESH))
    world = World(spec, settle_s=0.2).begin()
    if lost:
        world.settle()
        world.feed(e.ExecutorLost(world.executor("board:0").container.id, "silent"))
        waiting, world.queue = world.queue, []  # its container takes its time to end
    else:
        waiting = [item for item in world.queue if item.name == "grant board"]
        world.queue.remove(waiting[0])
        world.settle()
    world.end("worker:0", 1)
    world.after(0.2)
    assert world.machine.state.phase is Phase.CLEANUP
    ends, world.queue = world.queue, []
    if lost:
        waiting[0].do()
    else:
        world.grant("board", 1)  # it was on its way when all was withdrawn
    world.settle().after(1.0).settle()
    assert world.machine.state.session == 0 and world.state("board:0") == "pending"
    world.queue = ends
    world.settle().after(5.0).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 2


def test_a_listed_sidecar_stops_the_job_when_it_fails() -> None:
    guard = role("guard", tracking=Tracking.SIDECAR, stop_on_failure=True)
    world = world_of(role("worker"), guard, master=retries(user=0)).settle()
    world.end("guard:0", 1).settle().after(1).settle()
    assert world.outcome is AppState.FAILED


class TestTheJvmsRule:
    """``fail-on-worker-failure-enabled=false``."""

    def world(self, *more: Any) -> World:
        return world_of(
            role("worker", 3), *more, fail_on_worker_failure=False, master=retries(user=0)
        ).settle()

    def test_one_worker_may_fail(self) -> None:
        world = self.world()
        world.end("worker:2", 1).settle()
        world.end("worker:0").end("worker:1").settle()
        assert world.outcome is AppState.SUCCEEDED
        assert world.finished is not None
        assert "worker:2" in world.finished.diagnostics

    def test_the_chief_may_not(self) -> None:
        world = self.world()
        world.end("worker:0", 1).settle().after(1).settle()
        assert world.outcome is AppState.FAILED

    def test_nor_all_of_them(self) -> None:
        world = self.world(role("chief"))
        for index in range(3):
            world.end(f"worker:{index}", 1).settle()
        assert world.outcome is None
        world.end("chief:0", 1).settle().after(1).settle()
        assert world.outcome is AppState.FAILED

    def test_nor_an_untracked_role(self) -> None:
        world = self.world(role("ps", **PS))
        world.end("ps:0", 1).settle().after(1).settle()
        assert world.outcome is AppState.FAILED

    def test_nor_one_that_the_gang_waits_for(self) -> None:
        world = world_of(
            role("worker", 3), fail_on_worker_failure=False, master=retries(user=0, system=0)
        )
        world.grant("worker", 2)
        world.kill("worker:1").after(1).settle()
        assert world.outcome is AppState.FAILED


def _after_a_group(ignored: bool, *more: Role, user: int = 0, **fields: Any) -> World:
    roles = (role("worker"), role("reader"), *more)
    groups = {"groups": (("G", ("worker",)),)}
    after = (GroupDependency("reader", "G", 30.0, ignored),)
    budget = retries(user=user)
    return world_of(*roles, **groups, group_dependencies=after, master=budget, **fields).settle()


def test_a_group_dependency_gives_a_role_time_after_its_group() -> None:
    world = _after_a_group(False)
    world.end("worker:0").settle().after(29).settle()
    assert world.outcome is None
    world.after(2).settle()
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    name = "tony.application.dependency.reader.timeout.after.G=30s"
    assert name in world.finished.diagnostics


def test_a_sidecar_that_is_not_tried_again_ends_its_group() -> None:
    sidecar = role("board", tracking=Tracking.SIDECAR, max_restarts=0)
    after = (GroupDependency("worker", "G", 30.0, False),)
    more = {"groups": (("G", ("board",)),), "group_dependencies": after}
    world = world_of(role("worker"), sidecar, master=retries(user=0), **more).settle()
    world.end("board:0", 1).settle().after(29).settle()
    assert world.outcome is None
    world.after(2).settle()
    assert world.outcome is AppState.FAILED


class TestAGroupDependencyThatIsIgnored:
    def test_nothing_else_is_waited_for(self) -> None:
        world = _after_a_group(True)
        world.end("worker:0").settle().after(29).settle()
        assert world.outcome is None
        world.after(2).settle()
        assert world.story_texts("untracked")
        assert world.outcome is AppState.SUCCEEDED

    def test_the_role_runs_until_the_others_end(self) -> None:
        world = _after_a_group(True, role("evaluator"))
        world.end("worker:0").settle().after(31).settle().after(300).settle()
        assert world.outcome is None
        assert sorted(world.running()) == ["evaluator:0", "reader:0"]
        assert len(world.story_texts("untracked")) == 1
        world.end("evaluator:0").settle()
        assert world.outcome is AppState.SUCCEEDED
        assert world.state("reader:0") == "killed"

    @pytest.mark.parametrize("all_count", [True, False])
    def test_a_failure_of_the_role_still_counts(self, all_count: bool) -> None:
        world = _after_a_group(True, role("evaluator"), fail_on_worker_failure=all_count)
        world.end("worker:0").settle().after(31).settle()
        world.end("reader:0", 3).settle().after(1).settle()
        assert world.outcome is AppState.FAILED
        assert world.finished is not None and "reader:0" in world.finished.diagnostics

    def test_a_next_session_waits_for_the_role_again(self) -> None:
        world = _after_a_group(True, role("evaluator"), user=1)
        world.end("worker:0").settle().after(31).settle()
        world.end("reader:0", 3).settle().after(5).settle()
        assert world.machine.state.session == 1
        world.end("worker:0").end("evaluator:0").settle()
        assert world.outcome is None

    def test_a_next_master_knows_it(self) -> None:
        world = _after_a_group(True, role("evaluator"))
        world.end("worker:0").settle().after(31).settle()
        world.takeover().settle()
        world.end("worker:0").end("evaluator:0").settle()  # the former's executor says it again
        assert world.outcome is AppState.SUCCEEDED


# ---------------------------------------------------------------------- whose fault


def test_the_infrastructures_late_word_is_the_cause() -> None:
    world = world_of(role("worker", 3), settle_s=3.0).settle()
    world.end("worker:0", 1, stderr_tail=("connection reset by peer",)).settle()
    world.after(1).kill("worker:2", ExitCause.PREEMPTED).after(3).settle()
    assert world.machine.state.root_cause["task"] == "worker:2"
    assert world.machine.state.root_cause["fault"] == "system"
    assert world.machine.state.budgets.user_used == 0
    assert world.machine.state.budgets.system_used == 1


def test_a_foreign_sigkill_is_the_cause_and_not_the_exit_before_it() -> None:
    world = world_of(role("worker", 3), settle_s=3.0).settle()
    world.end("worker:0", 1).end("worker:1", 137, signal=9).after(4).settle()
    assert world.machine.state.root_cause["task"] == "worker:1"


def test_a_port_that_was_taken_is_the_cause_before_a_peer_that_could_not_connect() -> None:
    world = world_of(role("worker", 2), settle_s=3.0).settle()
    world.end("worker:1", 1, stderr_tail=("connection reset by peer",)).after(1)
    world.end("worker:0", 1, cause="address-in-use").after(4).settle()
    assert world.machine.state.root_cause["task"] == "worker:0"
    assert (world.machine.state.budgets.user_used, world.machine.state.budgets.system_used) == (
        0,
        1,
    )


def test_an_abort_that_follows_is_never_the_cause() -> None:
    world = world_of(role("worker", 3), settle_s=3.0).settle()
    world.end("worker:0", 134, signal=6).end("worker:1", 1).after(4).settle()
    assert world.machine.state.root_cause["task"] == "worker:1"


def test_what_the_scheduler_adds_to_a_word_of_the_executor_counts() -> None:
    world = world_of(role("worker", 3), settle_s=3.0).settle()
    world.end("worker:0", 1).after(0.1)
    world.end("worker:1", 1)
    world.kill("worker:1", ExitCause.MEMORY).after(4).settle()
    assert world.machine.state.root_cause["cause"] == "memory"
    assert world.state("worker:1") != "lost", "the executor's word on the end is final"


def test_settling_is_short_when_every_task_is_accounted_for() -> None:
    world = world_of(role("worker"), settle_s=3.0).settle()
    world.end("worker:0", 1).settle()
    assert world.machine.state.session == 1


def test_the_diagnostic_names_node_role_code_and_peers() -> None:
    world = world_of(role("worker", 2), master=retries(user=0)).settle()
    world.after(12).end("worker:1", 7, stderr_tail=("one", "two")).after(1).settle()
    assert world.finished is not None
    text = world.finished.diagnostics
    assert text.startswith("worker:1 on n2 failed with exit code 7 after 12.0 s")
    assert "  one\n  two" in text
    assert world.finished.root_cause["stderr_tail"] == ["one", "two"]


# ---------------------------------------------------------------------- budgets


def fail_once(world: World, code: int = 1, line: str = "x", after: float = 40) -> None:
    """The worker runs a while and fails; the next session comes up."""
    world.after(after).end("worker:0", code, stderr_tail=(line,)).settle().after(120).settle()


def test_the_first_restart_is_immediate_and_later_ones_back_off() -> None:
    world = world_of(role("worker"), master=retries(user=5)).settle()
    world.after(40).end("worker:0", 1).settle()
    assert world.state("worker:0") == "running", "no time passed"
    world.after(40).end("worker:0", 1).settle()
    assert world.machine.state.phase is Phase.BACKOFF
    world.after(1).settle()
    assert world.state("worker:0") == "running"


def test_the_users_budget_ends_a_job_that_never_gets_further() -> None:
    world = world_of(role("worker"), master=retries(user=2)).settle()
    for _ in range(3):
        assert world.outcome is None
        report(world, 0.5)
        fail_once(world)
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    why = "no retries are left: tony.am.retry-count=2"
    assert why in world.finished.diagnostics


def report(world: World, progress: float) -> None:
    """The program reports."""
    executor = world.executor("worker:0")
    world.report(executor.container.id, Reported(executor.session, progress, {}))


def test_the_result_is_the_chiefs_and_of_this_session() -> None:
    world = world_of(role("worker", 2), master=retries(user=1)).settle()

    def give(task: str, text: str) -> None:
        executor = world.executor(task)
        world.feed(
            e.ExecutorReported(
                executor.container.id, Reported(executor.session, None, {}, result=text)
            )
        )

    give("worker:0", "7")
    give("worker:1", "8")
    assert world.machine.state.result == "7"
    assert journal_record(world.machine.state)["result"] == "7"
    fail_once(world)
    assert world.machine.state.result == ""


@pytest.mark.parametrize(
    ("result", "quoted"),
    [
        ("", ""),
        ("7", ""),
        ('{"loss":0.1}', ""),
        ('""', ""),
        ('"idle for 1 h"', "; result: idle for 1 h"),
        ('"' + "\\u00e9" * 200 + '"', "; result: " + "é" * 200),
        ('"' + "x" * 201 + '"', ""),
        ('"a line\\nand another"', ""),
        ('"\\u001b[31m"', ""),
    ],
)
def test_the_jobs_message_quotes_a_result_that_is_a_short_text(result: str, quoted: str) -> None:
    world = world_of(role("worker")).settle()
    executor = world.executor("worker:0")
    message = Reported(executor.session, None, {}, result=result)
    world.feed(e.ExecutorReported(executor.container.id, message))
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED
    assert world.machine.state.diagnostics == f"all tracked tasks have ended{quoted}"


def test_progress_beyond_the_furthest_heals_the_users_budget() -> None:
    world = world_of(role("worker"), master=retries(user=1)).settle()
    for tenth in range(1, 8):
        report(world, tenth / 10)
        fail_once(world)
        assert world.outcome is None
    assert world.story_texts("budget-healed")


def test_ten_healthy_minutes_heal_the_systems_budget_but_not_the_users() -> None:
    world = world_of(role("worker"), master=retries(user=1, system=1)).settle()
    fail_once(world)
    for _ in range(4):
        world.after(60).kill("worker:0").settle().after(5).settle().after(700)
        assert world.outcome is None
    fail_once(world)
    assert world.outcome is AppState.FAILED


def test_the_systems_failures_do_not_charge_the_user() -> None:
    world = world_of(role("worker"), master=retries(user=0, system=2)).settle()
    world.kill("worker:0").settle().after(60).settle()
    assert world.state("worker:0") == "running"
    for _ in range(2):
        world.kill("worker:0").settle().after(60).settle()
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    assert "tony.task.max-infrastructure-failures=2" in world.finished.diagnostics


def test_the_same_quick_failure_twice_running_is_not_tried_a_third_time() -> None:
    world = world_of(role("worker"), master=retries(user=9)).settle()
    for _ in range(2):
        assert world.outcome is None
        world.after(1).end("worker:0", 2, stderr_tail=("no such file",)).settle()
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    assert "twice running" in world.finished.diagnostics


KILLED = {"signal": 9}


def fail_at_once(world: World, code: int, **how: Any) -> None:
    """The program ends five seconds after its start; what follows, if anything does, runs."""
    world.after(5).end("worker:0", code, **how).settle()
    while world.finished is None and world.state("worker:0") != "running":
        world.after(1).settle()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (137, KILLED),
        (137, {**KILLED, "stderr_tail": ("oneDNN custom operations are on",)}),
        (137, {}),  # a shell's word for what it ran
        (143, {"signal": 15}),
        (139, {"signal": 11}),
    ],
)
def test_a_foreign_signal_or_one_without_a_last_line_does_not_blame_the_program(
    code: int, how: Any
) -> None:
    world = world_of(role("worker"), master=retries(user=3)).settle()
    for _ in range(3):
        fail_at_once(world, code, **how)
        assert world.outcome is None
    fail_at_once(world, code, **how)
    assert world.finished is not None
    assert "tony.am.retry-count=3" in world.finished.diagnostics


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (139, {"signal": 11, "stderr_tail": ("Fatal Python error: Segmentation fault",)}),
        (143, {"signal": 15, "cause": "execution-timeout"}),
        (255, {}),
    ],
)
def test_a_crash_with_the_same_last_line_or_a_timeout_is_not_tried_a_third_time(
    code: int, how: Any
) -> None:
    world = world_of(role("worker"), master=retries(user=9)).settle()
    for _ in range(2):
        fail_at_once(world, code, **how)
    assert world.finished is not None
    assert "twice running" in world.finished.diagnostics


def test_memory_passed_at_once_twice_running_is_not_tried_a_third_time() -> None:
    world = world_of(role("worker"), master=retries(user=9)).settle()
    for _ in range(2):
        world.after(5).kill("worker:0", ExitCause.MEMORY, 137).settle()
    assert world.finished is not None
    assert "twice running" in world.finished.diagnostics


@pytest.mark.parametrize("seed", range(20))
def test_a_gang_with_checkpoints_survives_any_number_of_kills(seed: int) -> None:
    chance = Seeded(seed)
    world = world_of(role("worker", 3), master=retries(user=1)).settle()
    for step in range(12):
        save(world, step)
        victim = chance.one_of(["worker:0", "worker:1", "worker:2"])
        line = chance.one_of([(), ("WARNING: no GPU was found",)])
        world.after(chance.number(1, 20)).end(victim, 137, signal=9, stderr_tail=line).settle()
        while world.finished is None and len(world.running()) < 3:
            world.after(1).settle()
        assert world.finished is None, world.finished


def save(world: World, step: int) -> None:
    """The program has saved a checkpoint."""
    executor = world.executor("worker:0")
    number = (executor.container.id, executor.session)
    world.report(number[0], Reported(number[1], None, {}, saved=step))


def test_a_later_checkpoint_makes_the_users_retries_whole_and_no_failure_the_same() -> None:
    world = world_of(role("worker"), master=retries(user=1)).settle()
    for step in range(0, 60, 10):
        report(world, 0.5)  # each session gets as far as the others, before it is saved
        save(world, step)
        fail_at_once(world, 2, stderr_tail=("no such file",))
        assert world.outcome is None
    assert len(world.story_texts("budget-healed")) == 5


def test_the_same_checkpoint_again_is_no_progress() -> None:
    world = world_of(role("worker"), master=retries(user=9)).settle()
    for _ in range(2):
        save(world, 10)
        fail_at_once(world, 2, stderr_tail=("no such file",))
    assert world.finished is not None
    assert "twice running" in world.finished.diagnostics


def test_progress_after_a_session_that_reported_none_is_progress() -> None:
    world = world_of(role("worker"), master=retries(user=1)).settle()
    fail_once(world)
    report(world, 0.0)
    assert not world.story_texts("budget-healed")
    report(world, 0.1)
    assert world.story_texts("budget-healed")


def test_a_next_master_knows_which_checkpoint_was_the_furthest() -> None:
    world = world_of(role("worker"), master=retries(user=2)).settle()
    save(world, 10)
    fail_once(world)
    world.takeover().settle()
    save(world, 10)
    assert not world.story_texts("budget-healed")
    save(world, 11)
    assert world.story_texts("budget-healed")


def test_a_long_message_stands_once_in_the_story_and_whole_in_the_end() -> None:
    world = world_of(role("worker", 2), master=retries(user=9)).settle()
    long = "the command was not found: " + "is it in the source folder? " * 5
    for _ in range(2):
        for name in ("worker:0", "worker:1"):
            world.end(name, 127, cause="not-found", message=long)
        world.after(1).settle()
    assert world.finished is not None
    assert long in world.finished.diagnostics
    assert world.finished.root_cause["message"] == long
    story = [item.text for item in world.story]
    assert sum(text.count(long) for text in story) == 2  # of each task
    assert any(text.startswith("FAILED: worker:0 on ") for text in story)
    assert sum("(the message stands above)" in text for text in story) == 5


def test_the_systems_quick_failures_are_tried_as_long_as_its_budget_lasts() -> None:
    world = world_of(role("worker"), master=retries(user=0, system=3)).settle()
    for _ in range(3):
        world.after(1).kill("worker:0", ExitCause.PREEMPTED).settle().after(60).settle()
        assert world.outcome is None
    world.after(1).kill("worker:0", ExitCause.PREEMPTED).settle()
    assert world.outcome is AppState.FAILED


@pytest.mark.parametrize("second", [(3, "no such file", 1.0), (2, "other", 1.0), (2, "x", 31.0)])
def test_another_failure_is_tried_again(second: Any) -> None:
    world = world_of(role("worker"), master=retries(user=9)).settle()
    world.after(1).end("worker:0", 2, stderr_tail=("no such file",)).settle()
    code, line, seconds = second
    world.after(seconds).end("worker:0", code, stderr_tail=(line,)).settle()
    assert world.outcome is None


# ---------------------------------------------------------------------- restarts


def test_a_warm_restart_keeps_the_healthy_containers() -> None:
    world = world_of(role("worker", 2)).settle()
    kept = world.executor("worker:0")
    world.kill("worker:1").after(1).settle()
    assert world.machine.state.session == 1
    assert world.executor("worker:0") is kept
    assert len(world.executors) == 3
    assert world.started[-1] == (1, ("worker:0", "worker:1"))


def test_a_fresh_restart_replaces_them_all() -> None:
    world = world_of(role("worker", 2), master=retries(restart_mode=RestartMode.FRESH)).settle()
    before = list(world.executors.values())
    world.end("worker:1", 1).after(1).settle()
    assert all(x.gone for x in before)
    assert world.started[-1] == (1, ("worker:0", "worker:1"))


def test_a_container_that_cannot_be_cleared_is_replaced_elsewhere() -> None:
    world = world_of(role("worker", 2)).settle()
    dirty = world.executor("worker:0")
    world.end("worker:1", 1)
    world.queue = [item for item in world.queue if not item.name.startswith("stop")]
    world.after(0.5)
    world.queue = [item for item in world.queue if not item.name.startswith("stop")]
    world.report(dirty.container.id, Stopped(0, False))
    clean = world.executor("worker:1")
    world.report(clean.container.id, Stopped(0, True))
    assert world.machine.state.session == 0, "not before the dirty one is gone"
    asks = len(world.executors)
    world.settle()
    assert dirty.gone
    assert world.machine.state.session == 1
    assert len(world.executors) == asks + 1
    assert dirty.container.node in world.machine.state.avoided_nodes


def test_an_executor_that_does_not_clear_in_time_is_replaced() -> None:
    world = world_of(role("worker", 2)).settle()
    world.end("worker:1", 1).after(0.3)
    world.queue.clear()  # no executor answers
    world.after(7).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.running() == ["worker:0", "worker:1"]


def test_a_late_result_of_an_old_session_is_acknowledged_and_decides_nothing() -> None:
    world = world_of(role("worker", 2)).settle()
    world.end("worker:1", 1).after(1).settle()
    executor = world.executor("worker:0")
    out = world.report(executor.container.id, Ended(0, 1))
    assert out == [c.AcknowledgeEnd(executor.container.id, 0)]
    assert world.state("worker:0") == "running"


def test_the_first_result_is_final() -> None:
    world = world_of(role("worker", 2)).settle()
    world.end("worker:1").end("worker:1", 1)
    assert world.state("worker:1") == "succeeded"
    world.kill("worker:1").settle()
    assert world.state("worker:1") == "succeeded"


# ---------------------------------------------------------------------- every wait


def test_a_partial_gang_has_a_time_limit_and_then_releases_everything() -> None:
    world = world_of(role("worker", 8), queue="ml", timeouts=Timeouts(allocation_s=60.0))
    world.queue.clear()
    world.grant("worker", 2)
    world.feed(container_pool.AllocationPending("2 x 1 GPU missing in queue ml"))
    world.settle()
    world.after(61)
    world.queue = [item for item in world.queue if not item.name.startswith("grant")]
    world.settle()
    assert all(x.gone for x in world.executors.values())
    (text,) = world.story_texts("allocation-timeout")
    assert "6 of 8 worker" in text
    assert "queue ml" in text
    assert "2 x 1 GPU missing" in text
    assert "tony.container.allocation.timeout=60s" in text
    assert world.wanted["worker"][1] == 0
    world.after(10).settle()
    assert len(world.running()) == 8


def test_a_gang_without_containers_waits_and_reports_it() -> None:
    world = world_of(role("worker", 2))
    world.queue.clear()
    world.feed(container_pool.AllocationPending("the queue is full"))
    world.after(100_000)
    assert world.outcome is None
    assert world.machine.state.waiting == "the queue is full"


def test_why_nothing_is_granted_is_kept_over_the_end_of_a_takeover() -> None:
    world = world_of(role("worker", 2))
    world.queue.clear()
    world.grant("worker", 1)
    world.takeover()
    world.feed(container_pool.AllocationPending("the queue is full"))
    assert world.machine.state.phase is Phase.ADOPTING
    for executor in list(world.executors.values()):
        world.complete(executor, 0, ExitCause.RELEASED)
    assert world.machine.state.phase is Phase.ACTIVE
    assert world.machine.state.waiting == "the queue is full"


def test_the_applications_timeout_ends_it() -> None:
    world = world_of(role("worker"), timeouts=Timeouts(application_s=100.0)).settle()
    world.after(101).settle()
    assert world.outcome is AppState.TIMED_OUT
    assert world.finished is not None
    assert "tony.application.timeout=100s" in world.finished.diagnostics


@pytest.mark.parametrize("lost", ["register", "ready", "run"])
def test_an_executor_that_does_not_come_up_in_time_is_the_systems_failure(lost: str) -> None:
    world = world_of(role("worker", 2))
    while world.queue:
        item = world.queue.pop(0)
        if item.name.startswith(lost) and item.name[-1] in ("1", "c1"):
            break
        item.do()
    world.settle()
    world.after(301).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.machine.state.budgets.system_used == 1
    assert "registration.timeout=300s" in str(world.machine.state.root_cause["message"])


def test_a_silent_executor_is_the_systems_failure_and_its_container_is_ended() -> None:
    world = world_of(role("worker", 2)).settle()
    silent = world.executor("worker:0")
    world.feed(e.ExecutorLost(silent.container.id, "no heartbeat for 25 s"))
    world.after(1).settle()
    assert silent.gone
    assert world.machine.state.session == 1
    assert "no heartbeat" in str(world.machine.state.root_cause["message"])


def test_a_container_that_never_ends_does_not_hold_up_the_end() -> None:
    world = world_of(role("worker")).settle()
    world.feed(container_pool.ShutdownRequested("killed by ann"))
    world.queue.clear()
    world.after(60)
    assert world.outcome is AppState.KILLED
    assert world.story_texts("not-ended")


def test_a_container_that_had_longer_to_end_has_no_longer_than_the_job() -> None:
    world = world_of(role("worker", 2), mode=Mode.FCFS).settle()
    world.end("worker:0")  # whose container has the time that a kill leaves
    world.feed(container_pool.RequestRejected("worker", "no node is as big"))
    world.queue.clear()
    world.after(60)
    assert world.outcome is AppState.FAILED
    assert len(world.story_texts("not-ended")) == 2 and not world.story_texts("left-behind")


@pytest.mark.parametrize(("ends_containers_at_finish", "clean", "over"), [
    (True, True, True), (True, False, False), (False, True, False),
])  # fmt: skip
def test_an_executors_farewell_is_an_end_where_the_scheduler_ends_the_rest(
    ends_containers_at_finish: bool, clean: bool, over: bool
) -> None:
    world = World(
        job(role("worker", 2), role("ps", 1, **PS)),
        ends_containers_at_finish=ends_containers_at_finish,
    ).begin()
    world.settle()
    world.end("worker:0").end("worker:1")
    assert world.machine.state.phase.value == "ending"
    for name in ("worker:0", "worker:1", "ps:0"):
        assert world.outcome is None
        executor = world.executor(name)
        word = e.ExecutorReported(executor.container.id, Stopped(executor.session, clean))
        world.feed(word)
    assert (world.outcome is AppState.SUCCEEDED) == over
    if over:
        assert world.state("ps:0") == "killed"
        assert not world.story_texts("left-behind")
        return
    world.settle()
    assert world.outcome is AppState.SUCCEEDED


# ---------------------------------------------------------------------- people


@pytest.mark.parametrize("steps", range(12))
def test_a_kill_at_any_moment_leaves_nothing(steps: int) -> None:
    world = world_of(role("worker", 2), role("board", tracking=Tracking.SIDECAR))
    for _ in range(steps):
        if world.queue:
            world.queue.pop(0).do()
    world.feed(container_pool.ShutdownRequested("killed by ann"))
    world.settle().after(60).settle()
    assert world.outcome is AppState.KILLED
    assert world.finished is not None
    assert world.finished.diagnostics == "killed by ann"
    world.check_nothing_is_left()


def test_an_overcome_failure_is_no_cause_of_a_later_end() -> None:
    world = world_of(role("worker")).settle()
    world.end("worker:0", 1).settle().after(1).settle()
    assert world.machine.state.root_cause["task"] == "worker:0"
    world.feed(container_pool.ShutdownRequested("killed by ann"))
    world.settle()
    assert world.finished is not None
    assert world.finished.root_cause == {}


def test_a_second_kill_leaves_no_grace() -> None:
    world = world_of(role("worker")).settle()
    world.feed(container_pool.ShutdownRequested("once"))
    out = world.feed(container_pool.ShutdownRequested("twice"))
    assert [item.grace_s for item in out if isinstance(item, c.StopContainer)] == [0.0]


def test_preprocess_runs_first_and_every_task_gets_its_parameters() -> None:
    world = world_of(role("worker"), master=retries(preprocess="python prep.py"))
    assert not world.wanted
    world.feed(e.PreprocessEnded(0, "lr=1"))
    commands = []
    while world.queue:
        item = world.queue.pop(0)
        item.do()
        commands.append(item.name)
    assert world.machine.state.parameters == "lr=1"
    assert world.running() == ["worker:0"]


def test_a_failed_preprocess_fails_the_job() -> None:
    world = world_of(role("worker"), master=retries(preprocess="false"))
    world.feed(e.PreprocessEnded(3, None, ("no data",)))
    assert world.outcome is AppState.FAILED
    assert world.finished is not None
    assert "exit code 3" in world.finished.diagnostics
    assert "no data" in world.finished.diagnostics


def test_what_can_never_be_granted_fails_the_job_at_once() -> None:
    world = world_of(role("worker"))
    world.feed(container_pool.RequestRejected("worker", "more than the largest node has"))
    world.settle()
    assert world.outcome is AppState.FAILED


def test_an_abort_through_the_framework_names_its_rank() -> None:
    world = world_of(role("worker", 2), master=retries(user=0)).settle()
    world.feed(e.ServiceFailed(0, "MPI_Abort", "worker:1", 5))
    world.end("worker:0", 1).after(1).settle()
    assert world.outcome is AppState.FAILED
    assert world.machine.state.root_cause["task"] == "worker:1"
    assert world.machine.state.root_cause["exit_code"] == 5


# ---------------------------------------------------------------------- takeover


def test_a_later_master_takes_over_and_disturbs_nothing() -> None:
    world = world_of(role("worker", 2), role("ps", **PS)).settle()
    world.takeover().settle()
    assert world.running() == ["worker:0", "worker:1", "ps:0"]
    assert len(world.started) == 1
    assert world.machine.state.session == 0
    world.end("worker:0").end("worker:1").settle()
    assert world.outcome is AppState.SUCCEEDED
    world.check_nothing_is_left()


def test_a_later_master_knows_how_long_the_programs_have_run() -> None:
    world = world_of(role("worker")).settle()
    executor = world.executor("worker:0")
    world.takeover()
    called = registered(
        executor.container.id, task="worker:0", session=0, phase="running", host="host", ran_s=60.0
    )
    world.feed(called)
    assert world.machine.state.tasks["worker:0"].started == world.now - 60


def test_a_takeover_during_registration_completes_the_gang() -> None:
    world = world_of(role("worker", 3))
    world.queue.clear()
    world.grant("worker", 2)
    for _ in range(2):
        world.queue.pop(0).do()
    world.takeover().settle().after(21).settle()
    assert world.running() == ["worker:0", "worker:1", "worker:2"]


def test_a_task_that_does_not_come_back_is_lost_and_charges_nothing_to_the_user() -> None:
    world = world_of(role("worker", 2), master=retries(user=0)).settle()
    world.executor("worker:1").registered = False  # it never calls the new master
    world.takeover().settle().after(21).settle().after(1).settle()
    assert world.machine.state.session == 1
    assert world.machine.state.budgets.user_used == 0
    assert world.running() == ["worker:0", "worker:1"]


def test_a_takeover_goes_on_with_a_decision_to_end() -> None:
    world = world_of(role("worker")).settle()
    world.feed(container_pool.ShutdownRequested("killed by ann"))
    world.queue.clear()
    world.takeover().settle()
    assert world.outcome is AppState.KILLED
    assert world.finished is not None
    assert world.finished.diagnostics == "killed by ann"
    world.check_nothing_is_left()


def test_a_retry_for_a_gang_that_holds_something_already_has_its_clock() -> None:
    two = [role("x", 2, depends_on=("a",)), role("z", depends_on=("b",))]
    times = Timeouts(allocation_s=60.0)
    world = World(job(role("a"), role("b"), *two, timeouts=times), settle_s=0.2).begin().settle()
    world.end("a:0")
    world.grant("x", 1)
    world.queue.clear()  # no more is granted
    world.after(60.0)
    assert world.story_texts("allocation-timeout")
    world.end("b:0")
    world.grant("z")
    world.queue.clear()  # its executor takes its time
    world.after(6.0)
    assert world.wanted["x"] == (0, 2)
    assert ("allocation",) in world.machine.state.deadlines


def test_who_is_ended_before_it_has_a_container_is_asked_for_no_more() -> None:
    roles = [role("worker"), role("late", 1), role("evaluator"), role("chief")]
    world = World(job(*roles, mode=Mode.FCFS), settle_s=0.2).begin()
    world.queue = [item for item in world.queue if item.name != "grant late"]
    world.settle()
    assert world.wanted["late"] == (0, 1)
    world.end("chief:0").after(60.0)
    assert world.state("late:0") == "killed" and world.wanted["late"] == (0, 0)


def test_who_failed_before_its_executor_called_has_a_deadline_in_the_next_session() -> None:
    after = GroupDependency("late", "trainers", 60.0)
    more = {"groups": (("trainers", ("worker",)),), "group_dependencies": (after,)}
    world = World(job(role("worker"), role("late"), mode=Mode.FCFS, **more), settle_s=0.2).begin()
    while world.queue:
        item = world.queue.pop(0)
        if item.name != "register c2":
            item.do()
    world.end("worker:0").after(60.0)
    assert (world.machine.state.session, world.state("late:0")) == (1, "launched")
    assert ("registration", "late:0") in world.machine.state.deadlines


def test_a_later_master_starts_nothing_beside_what_it_does_not_know() -> None:
    world = World(job(role("worker"), role("other"), mode=Mode.FCFS), settle_s=0.2).begin().settle()
    world.end("worker:0").end("other:0", 1).settle().after(5.0).settle()
    assert world.machine.state.session == 1 and world.running() == ["other:0"]
    before = world.executor("other:0")
    released = {k: v for k, v in world.journal["released"].items() if k == "worker"}
    world.journal["released"] = released  # what came then was not written any more
    world.takeover()
    while any(not item.name.startswith("end") for item in world.queue):
        item = world.queue.pop([x.name.startswith("end") for x in world.queue].index(False))
        item.do()
    assert not before.gone and not world.running()
    world.settle().after(1.0).settle()
    assert before.gone and world.running() == ["other:0"]


def test_a_next_master_keeps_programs_that_begin_one_by_one() -> None:
    """Those that had no room yet are asked for as before, and none of them is lost."""
    world = World(job(role("worker", 3), mode=Mode.FCFS)).begin()
    world.queue.clear()
    world.grant("worker", 2)
    world.settle()
    assert sorted(world.running()) == ["worker:0", "worker:1"]
    world.takeover()
    world.settle()
    assert sorted(world.running()) == ["worker:0", "worker:1", "worker:2"]
    assert not any(executor.gone for executor in world.executors.values())
    for name in world.running():
        world.end(name)
    world.settle()
    assert world.outcome is AppState.SUCCEEDED and not world.story_texts("root-cause")


def test_a_later_master_starts_nothing_beside_an_executor_that_does_not_call() -> None:
    world = World(job(role("worker"), role("other"), mode=Mode.FCFS)).begin().settle()
    silent = world.executor("other:0")
    world.takeover()
    world.queue = [x for x in world.queue if x.name != f"call {silent.container.id}"]
    world.settle()
    world.slow = True  # its end comes after everything else
    world.now += ADOPTION_S
    world.feed(e.Tick())
    while world.prompt():
        world.next_item().do()
    assert not silent.gone and world.running() == ["worker:0"] and len(world.executors) == 2
    world.settle().after(1.0).settle()
    assert silent.gone and sorted(world.running()) == ["other:0", "worker:0"]


def test_a_takeover_goes_on_with_an_end_from_before_the_first_session() -> None:
    world = World(job(role("worker")), settle_s=0.2)
    stray = Container("c9", "n", "", job(role("worker")).roles[0].resources)
    world.executors["c9"] = Executor(stray, launched=True)
    world.feed(e.ContainersInherited((stray,), {}))
    world.feed(container_pool.ShutdownRequested("killed by ann"))
    world.queue.clear()
    world.takeover()
    world.do_StopContainer(c.StopContainer("c9", 0.0, "sent again"))
    world.settle()
    assert world.outcome is AppState.KILLED and world.machine.state.session == -1


def test_a_takeover_keeps_budgets_and_done_stages() -> None:
    world = world_of(role("prep"), role("worker", depends_on=("prep",))).settle()
    world.end("prep:0").settle()
    world.end("worker:0", 1).settle().after(1).settle()
    world.takeover().settle()
    assert world.machine.state.session == 1
    assert world.machine.state.budgets.user_used == 1
    assert world.state("prep:0") == "succeeded"
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_takeover_after_the_chiefs_end_goes_on_ending() -> None:
    world = world_of(role("chief"), role("worker"), role("last", depends_on=("worker",))).settle()
    world.end("chief:0").settle()
    world.takeover().settle()
    assert world.state("chief:0") == "succeeded"
    world.kill("worker:0").settle().after(61).settle()
    assert world.outcome is AppState.SUCCEEDED


@pytest.mark.parametrize("ends", ["lost", "succeeded"])
def test_what_ends_while_a_takeover_goes_on_is_judged(ends: str) -> None:
    world = world_of(role("worker", 2), role("last", depends_on=("worker",))).settle()
    world.takeover()
    world.queue.pop(0).do()
    if ends == "lost":
        world.kill("worker:0", ExitCause.EXITED)
    else:
        world.end("worker:0")
    world.settle().after(1).settle()
    if ends == "lost":
        assert world.machine.state.session == 1
        assert world.machine.state.budgets.user_used == 0
    else:
        world.end("worker:1").settle()
        assert world.running() == ["last:0"]


def test_a_takeover_with_nothing_written_starts_from_nothing() -> None:
    world = World(job(role("worker")), settle_s=0.2)
    stray = Container("c9", "n", "", job(role("worker")).roles[0].resources)
    world.executors["c9"] = Executor(stray, launched=True)
    world.feed(e.ContainersInherited((stray,), {}))
    world.settle()
    assert world.executors["c9"].gone
    assert world.running() == ["worker:0"]


# ---------------------------------------------------------------------- the machine itself


def test_an_invalid_transition_carries_the_story() -> None:
    world = world_of(role("worker")).settle()
    task = world.machine.state.tasks["worker:0"]
    with pytest.raises(InvalidTransition, match="registered->ready"):
        world.machine.state.move(task, TaskState.LAUNCHED)


def test_containers_and_the_phase_move_by_their_tables_too() -> None:
    world = world_of(role("worker")).settle()
    state = world.machine.state
    record = state.held["c1"]
    with pytest.raises(InvalidTransition, match=r"c1: live -> launched(?s:.*)requested->allocated"):
        state.move_container(record, ContainerState.LAUNCHED)
    with pytest.raises(InvalidTransition, match=r"active -> backoff(?s:.*)new->active"):
        state.move_phase(Phase.BACKOFF)
    assert (record.state, state.phase) == (ContainerState.LIVE, Phase.ACTIVE)


def test_every_event_deadline_and_state_stands_in_its_table() -> None:
    assert set(machine.DEADLINES) == set(Deadline)
    assert set(machine.REPORTS) == set(get_args(e.Report))
    assert set(machine.FACTS) == set(get_args(e.Event)) - {container_pool.PreviousContainers}
    assert set(TASK_MOVES) == set(TaskState)
    assert set(CONTAINER_MOVES) == set(ContainerState) and set(PHASE_MOVES) == set(Phase)


def test_nothing_is_decided_after_the_end() -> None:
    world = world_of(role("worker")).settle()
    world.end("worker:0").settle()
    assert world.outcome is AppState.SUCCEEDED
    assert world.machine.handle(container_pool.ShutdownRequested("late"), world.now) == []
    assert world.machine.next_deadline() is None


def test_repeated_registrations_repeat_what_may_have_been_lost() -> None:
    world = world_of(role("worker"))
    world.queue.pop(0).do()  # grant
    world.queue.pop(0).do()  # register
    world.queue.clear()  # the word to prepare is lost with the connection
    world.register(world.executor("worker:0"))
    world.settle()
    assert world.running() == ["worker:0"]


def test_ten_thousand_tasks_come_up_in_a_blink() -> None:
    big: Job = job(role("worker", 2000), role("ps", 500, **PS))
    world = World(big)
    # Looking at everything after each event is quadratic here.
    world.machine.validate = lambda: None  # type: ignore[method-assign]
    world.check = lambda: None  # type: ignore[method-assign]
    world.begin().settle(100_000)
    assert len(world.running()) == 2500


def test_a_task_over_its_memory_has_failed_and_one_whose_node_went_is_lost() -> None:
    world = world_of(role("worker", 3), settle_s=3.0).settle()
    world.kill("worker:0", ExitCause.MEMORY, 137)
    world.kill("worker:1", ExitCause.LOST)
    assert world.states() == {"worker:0": "failed", "worker:1": "lost", "worker:2": "running"}


def test_the_story_has_a_failure_once_before_it_has_settled() -> None:
    world = world_of(role("worker", 2), settle_s=3.0).settle()
    world.end("worker:0", 1).settle()
    (text,) = world.story_texts("session-failed")
    assert "exit code" not in text
    assert any("exit code 1" in line for line in world.story_texts("task-state"))


def test_a_starting_sidecar_has_a_deadline_over_a_restart() -> None:
    sidecar = role("board", tracking=Tracking.SIDECAR)
    world = world_of(role("worker"), sidecar, master=MasterSpec(user_retries=1)).settle()
    world.complete(world.executor("board:0"), 1, ExitCause.EXITED)
    world.after(2)
    while world.state("board:0") != "ready":
        world.queue.pop(0).do()
    world.queue.clear()  # the word to start is lost
    world.end("worker:0", 1).after(1).settle()
    assert world.machine.state.session == 1
    assert world.machine.next_deadline() is not None
    world.after(world.job.timeouts.registration_s + 1)
    lost = [text for text in world.story_texts("task-state") if text.startswith("board:0 lost")]
    assert lost and "to start their programs" in lost[-1]


def test_the_last_that_is_waited_for_succeeds_while_a_session_settles() -> None:
    roles = (role("worker", 1), role("ps", 1, **PS))
    world = world_of(*roles, mode=Mode.FCFS, settle_s=3.0).settle()
    world.end("ps:0", 1)
    world.end("worker:0")
    world.after(10).settle()
    assert world.outcome is AppState.SUCCEEDED


def test_a_late_report_on_a_previous_session_clears_nothing() -> None:
    world = world_of(role("worker", 2), master=MasterSpec(user_retries=2)).settle()
    world.end("worker:0", 1).after(1).settle()
    assert (world.machine.state.session, len(world.running())) == (1, 2)
    world.end("worker:0", 2).after(3)
    world.report("c2", Stopped(0, True))
    assert world.machine.state.held["c2"].state is ContainerState.CLEANUP, (
        "its program of session 1 still runs"
    )
    world.settle()
    assert world.machine.state.held["c2"].state is not ContainerState.CLEANUP


def test_what_no_node_could_start_is_not_tried_again() -> None:
    world = world_of(role("worker", 2))
    world.queue.pop(0).do()  # granted and launched
    world.complete(world.executor("worker:0"), 127, ExitCause.FILES, "it was removed: submit again")
    world.after(1).settle()
    assert (world.outcome, world.machine.state.session) == (AppState.FAILED, 0)
    assert world.finished is not None
    diagnostics = world.finished.diagnostics
    assert "it was removed: submit again" in diagnostics
    assert diagnostics.endswith("not tried again: no node can localize its files")
    world.check_nothing_is_left()


def test_what_is_left_of_a_program_that_ran_fails_its_task() -> None:
    """Its executor's report of the end may be lost with the master that received it."""
    world = world_of(role("worker", 2), role("ps", 1, **PS), settle_s=0.0).settle()
    left = world.executor("worker:1").container.id
    world.report(left, Stopped(0, False))
    world.complete(world.executors[left], 0, ExitCause.RELEASED)
    world.after(1).settle()
    assert world.machine.state.session == 1, "the gang begins anew"
    assert world.executor("worker:1").container.id != left


@pytest.mark.parametrize("ran_s", [0.0, 60.0])
def test_a_program_that_never_ran_passes_no_barrier(ran_s: float) -> None:
    """Its executor's report of its end may be lost with the master that received it."""
    world = world_of(role("worker", 2), role("ps", 1, **PS))
    world.queue.pop(0).do()  # the workers are granted
    executor = world.executor("worker:0")
    while executor.phase != "ready":
        world.queue.pop(0).do()
    name = executor.container.id
    world.journal = {**world.journal, "released": {"worker": 0, "ps": 0}}  # as another event has it
    world.takeover()
    called = registered(
        name, task="worker:0", session=0, phase="ended", host="host", ports={"main": 1}, ran_s=ran_s
    )
    world.feed(called)
    assert world.machine.state.barrier_passed == ({"worker"} if ran_s else set())


def test_of_two_deadlines_that_pass_at_once_the_first_may_cancel_the_second() -> None:
    limits = Timeouts(application_s=60.0, registration_s=61.0)
    world = world_of(role("worker"), role("ps", **PS), timeouts=limits, mode=Mode.FCFS)
    for name in ("worker", "ps"):
        world.grant(name)  # and neither calls
    world.queue.clear()
    world.feed(e.Tick(), world.now + 100.0)
    world.settle()
    assert world.outcome is AppState.TIMED_OUT
    assert world.states() == {"worker:0": "killed", "ps:0": "killed"}
