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


def deadlocked(stood: float) -> Any:
    builder = JobBuilder({"worker": {"gpus": 1}})
    builder.start()
    builder.run(1200.0, BUSY)
    stood_still(builder, stood)
    builder.line("stall-over", "the programs move again")
    builder.run(300.0, BUSY)
    builder.move("succeeded")
    return builder.finish()


def test_the_hours_of_a_hang_are_no_idle_gpus_or_cores() -> None:
    record = deadlocked(10 * HOUR)
    assert names(record) == ["stalled", "no-checkpoint"]
    (advice,) = found(record, rule="stalled")
    assert advice.severity == "critical"
    assert advice.evidence["stood still (s)"] == pytest.approx(10 * HOUR, abs=10)
    # A restart comes after the minute in which it is seen, and does the 20 minutes before again.
    spared_s = 10 * HOUR - 60 - 1200 - 5
    assert advice.saving["duration_s"] == pytest.approx(spared_s, abs=10)
    assert advice.saving["gpu_hours"] == pytest.approx(2 * spared_s / HOUR, rel=0.01)
    assert values(advice) == {"tony.task.stall-action": "restart"}
    (advice,) = found(record, config(**{"tony_task_stall-action": "fail"}), "stalled")
    assert values(advice) == {}
    assert advice.saving["gpu_hours"] == pytest.approx(20.0, rel=0.01), "where its cause is mended"
    series = record.metrics["task"]["worker:0"]
    series["saved"] = [[series["step"][200][0], 1.0]]
    (saved,) = found(record, rule="stalled")
    assert 150 < saved.saving["duration_s"] - spared_s < 1200
    series["step"] = series["step"][60:]
    (slow,) = found(record, rule="stalled")
    later_s = saved.saving["duration_s"] - slow.saving["duration_s"]
    assert later_s == pytest.approx(300, abs=10), "a restart has to get to the first step again"


def test_a_stall_that_a_restart_would_not_have_shortened() -> None:
    (advice,) = found(deadlocked(1000.0), rule="stalled")
    assert advice.saving == {}, "the 20 minutes before it would be done again"


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
