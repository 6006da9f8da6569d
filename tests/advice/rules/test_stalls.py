"""Time that programs stood still, and what the other rules make of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.advice.jobs import RIGHT, JobBuilder, config, found, job, names, values

HOUR = 3600.0
IDLE = {"worker": {"rss_mb": 3500.0, "cpu_percent": 0.5, "gpu_percent": 0.0}}
BUSY = {"worker": {**RIGHT, "gpu_percent": 90.0}}


def stood_still(builder: JobBuilder, seconds: float) -> None:
    """A stall that is seen after a minute."""
    builder.run(60.0, IDLE)
    builder.line("stalled", "2 tasks have stalled", still_s=60.0)
    builder.run(seconds - 60.0, IDLE)


def deadlocked(stood: float, then: str = "killed") -> Any:
    """A job that hangs after 20 minutes: until its user ends it, or a collective gives up."""
    builder = JobBuilder({"worker": {"gpus": 1}})
    builder.start()
    builder.run(1200.0, BUSY)
    stood_still(builder, stood)
    if then == "killed":
        return builder.move("killed").finish("KILLED")
    builder.fail("worker:1", text="the collective timed out")
    builder.start()
    builder.run(1500.0, BUSY)
    return builder.move("succeeded").finish()


def paused(*lengths: float, tasks: Any = ("worker:0", "worker:1"), then: str = "") -> Any:
    """A job whose programs stand still for so long, and go on by themselves."""
    builder = JobBuilder({"worker": {"gpus": 1}})
    builder.start()
    for length in lengths:
        builder.run(300.0, BUSY)
        builder.run(20.0, IDLE)
        builder.line("stalled", "2 tasks have stalled", still_s=20.0, tasks=list(tasks))
        builder.run(length - 20.0, IDLE)
        builder.line("stall-over", f"the programs move again after {length:g} s")
    builder.run(300.0, BUSY)
    if then == "hangs":
        stood_still(builder, 3000.0)
        return builder.move("killed").finish("KILLED")
    builder.move("succeeded")
    return builder.finish()


def test_the_hours_of_a_hang_are_no_idle_gpus_or_cores() -> None:
    record = deadlocked(10 * HOUR)
    assert names(record) == ["stalled", "no-checkpoint"]
    (advice,) = found(record, rule="stalled")
    assert advice.severity == "critical" and "in 1 stall." in advice.problem
    assert advice.evidence["stood still (s)"] == pytest.approx(10 * HOUR, abs=10)
    # A restart comes after the minute in which it is seen, and does the 20 minutes before again.
    spared_s = 10 * HOUR - 60 - 1200 - 5
    assert advice.saving["duration_s"] == pytest.approx(spared_s, abs=10)
    assert advice.saving["gpu_hours"] == pytest.approx(2 * spared_s / HOUR, rel=0.01)
    assert values(advice) == {"tony.task.stall-action": "restart"}
    assert "starts again by itself" in advice.todo and "checkpoint" not in advice.todo
    (advice,) = found(record, config(**{"tony_task_stall-action": "fail"}), "stalled")
    assert values(advice) == {}
    assert advice.saving["gpu_hours"] == pytest.approx(20.0, rel=0.01), "where its cause is mended"
    series = record.metrics["task"]["worker:0"]
    series["saved"] = [[series["step"][200][0], 1.0]]
    (saved,) = found(record, rule="stalled")
    assert 150 < saved.saving["duration_s"] - spared_s < 1200
    assert "goes on from its checkpoint by itself" in saved.todo
    series["step"] = series["step"][60:]
    (slow,) = found(record, rule="stalled")
    later_s = saved.saving["duration_s"] - slow.saving["duration_s"]
    assert later_s == pytest.approx(300, abs=10), "a restart has to get to the first step again"


def test_a_restart_that_nothing_pays_for_would_end_the_job() -> None:
    (advice,) = found(deadlocked(HOUR), config(**{"tony_am_retry-count": "0"}), "stalled")
    assert values(advice) == {"tony.task.stall-action": "restart", "tony.am.retry-count": "1"}


def test_a_restart_that_came_in_the_end_could_have_come_when_the_stall_was_seen() -> None:
    (advice,) = found(deadlocked(1000.0, "failed"), rule="stalled")
    assert values(advice) == {"tony.task.stall-action": "restart"}
    assert advice.saving["duration_s"] == pytest.approx(1000 - 60, abs=10)


def test_a_stall_that_a_restart_would_not_have_shortened() -> None:
    (advice,) = found(deadlocked(1000.0), rule="stalled")
    assert advice.saving == {}, "the 20 minutes before it would be done again"


def test_programs_that_went_on_by_themselves_are_allowed_longer_and_never_restarted() -> None:
    key = "tony.task.stall-timeout"
    (advice,) = found(paused(330.0), config(**{"tony_task_stall-timeout": "20s"}), "stalled")
    assert (advice.severity, values(advice)) == ("moderate", {key: "9m"})
    assert "in 1 stall; the programs went on by themselves after 5 min 30 s." in advice.problem
    assert key in advice.todo and "restart" not in advice.todo and not advice.saving
    # The longest counts; a longer allowance than that is kept.
    (advice,) = found(paused(330.0, 500.0, 200.0), rule="stalled")
    assert values(advice) == {key: "13m"} and "in 3 stalls" in advice.problem
    (advice,) = found(paused(330.0), config(**{"tony_task_stall-timeout": "15m"}), "stalled")
    assert values(advice) == {}
    # A pause of hours is no evaluation: neither an allowance for it, nor a restart.
    (advice,) = found(paused(10 * HOUR), rule="stalled")
    assert values(advice) == {} and advice.severity == "moderate"


def test_the_allowance_of_the_role_that_paused_is_changed() -> None:
    keys = {"tony_worker_stall-timeout": "30s", "tony_task_stall-timeout": "20s"}
    (advice,) = found(paused(330.0), config(**keys), "stalled")
    assert values(advice) == {"tony.worker.stall-timeout": "9m"}
    odd = paused(330.0, tasks=["x:y", 7, None, "ps:0"])
    (advice,) = found(odd, config(**keys), "stalled")
    assert values(advice) == {"tony.task.stall-timeout": "9m"}


def test_where_one_stall_passed_no_restart_is_advised_for_another() -> None:
    (advice,) = found(paused(330.0, then="hangs"), rule="stalled")
    assert values(advice) == {"tony.task.stall-timeout": "9m"}
    assert advice.severity == "critical" and "in 1 of them" in advice.problem


def test_a_failure_that_ends_a_stall_is_no_end_by_itself() -> None:
    builder = JobBuilder()
    builder.start()
    builder.run(1200.0, BUSY)
    stood_still(builder, 3000.0)
    builder.line("stall-over", "the programs that stood still have ended")
    builder.fail("worker:1")
    (advice,) = found(builder.finish("FAILED"), rule="stalled")
    assert values(advice) == {"tony.task.stall-action": "restart"}


def test_with_fcfs_each_task_has_its_own_stalls() -> None:
    builder = JobBuilder()
    builder.job["mode"] = "FCFS"
    builder.start()
    builder.run(300.0, BUSY)
    for task in ("worker:0", "worker:1"):
        builder.line("stalled", f"{task} has stalled", task, still_s=20.0)
        builder.run(200.0, IDLE)
    for task in ("worker:0", "worker:1"):
        builder.line("stall-over", f"{task} moves again", task)
        builder.run(300.0, IDLE)
    (advice,) = found(builder.move("succeeded").finish(), rule="stalled")
    # 0 to 420 s and 180 to 720 s.
    assert advice.evidence["stood still (s)"] == pytest.approx(720, abs=10)
    assert advice.evidence["longest of those (s)"] == pytest.approx(520, abs=10)


def test_a_short_stall_is_silent() -> None:
    assert "stalled" not in names(deadlocked(120.0))


def test_what_stood_still_was_not_lost_for_want_of_checkpoints() -> None:
    builder = JobBuilder()
    builder.start()
    for minute in range(20):
        builder.run(60.0, {"worker": {**RIGHT, "step": lambda s, m=minute: 60 * m + s}})
        builder.measure("worker:0", "saved", 60.0 * minute)
    stood_still(builder, 1500.0)
    builder.fail("worker:0", "stalled")
    builder.start()
    builder.run(1200.0, {"worker": {**RIGHT, "step": lambda s: 1140 + s}})
    builder.move("succeeded")
    record = builder.finish()
    assert "lost-work" not in names(record) and "stalled" in names(record)


@pytest.mark.parametrize("state", ["KILLED", "FAILED"])
def test_a_job_that_did_not_succeed_has_not_shown_what_it_needs(state: str) -> None:
    """It may have been ended while it still loaded its data."""
    loading = {"worker": {"rss_mb": 500.0, "cpu_percent": 5.0, "gpu_percent": 0.0}}
    builder = JobBuilder({"worker": {"memory_mb": 8192, "gpus": 1}})
    builder.start()
    builder.run(400.0, loading)
    builder.move("killed" if state == "KILLED" else "failed")
    assert names(builder.finish(state)) == []
    assert names(job(loading, 400.0, {"worker": {"memory_mb": 8192, "gpus": 1}})) != []


def test_a_notebook_saves_no_checkpoints() -> None:
    uses = {"notebook": {"rss_mb": 3500.0, "cpu_percent": 150.0}}
    assert "no-checkpoint" not in names(job(uses, 5 * HOUR, {"notebook": {"instances": 1}}))
