"""Memory that is not used, and memory that is not enough."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from hypothesis import strategies as st

from tests.advice.jobs import RIGHT, JobBuilder, config, found, job, names, values
from tests.fuzzing import fuzz
from tony_core.advice.rules.memory import needed_mb
from tony_core.history.figures import job_figures
from tony_core.job.units import parse_memory_mb

GB = 1024.0


def using(peak_mb: float, asked_mb: float = 10 * GB, **more: Any) -> Any:
    roles = {"worker": {"memory_mb": asked_mb}}
    return job({"worker": {**RIGHT, "rss_mb": peak_mb}}, roles=roles, **more)


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.81, None), (0.79, None), (0.71, "low"), (0.69, "moderate"), (0.61, "moderate"),
     (0.59, "severe"), (0.51, "severe"), (0.49, "critical"), (0.01, "critical")],
)  # fmt: skip
def test_the_severity_follows_from_the_use(share: float, severity: str | None) -> None:
    # At 0.79 the head room, in whole GB, leaves nothing to give back.
    advice = found(using(share * 10 * GB), rule="memory")
    assert [each.severity for each in advice] == ([severity] if severity else [])


def test_the_change_and_what_it_saves() -> None:
    record = using(3 * GB)
    (advice,) = found(record, config(tony_worker_memory="10g"))
    (change,) = advice.changes
    assert change == ("tony.worker.memory", "4g", "10g")
    assert parse_memory_mb(change.value) == needed_mb(3 * GB) == 4096
    hours = job_figures(record)["memory_gb_hours"]
    assert advice.saving["memory_gb_hours"] == pytest.approx(hours * 6 / 10)
    assert advice.evidence["asked (GB)"] == 10 and advice.evidence["used at most (GB)"] == 3


def test_a_small_use_has_a_unit_that_shows_it_and_the_least_size_its_own_reason() -> None:
    (advice,) = found(using(13.0), rule="memory")
    assert "used 13 MB at most" in advice.problem and "asked for 10.0 GB" in advice.problem
    assert values(advice) == {"tony.worker.memory": "2g"}
    assert "25%" not in advice.todo and "less is not advised" in advice.todo
    (advice,) = found(using(3 * GB), rule="memory")
    assert "used 3.0 GB at most" in advice.problem and "room for 25% more" in advice.todo


def test_the_peak_over_all_tasks_and_sessions_counts() -> None:
    builder = JobBuilder({"worker": {"memory_mb": 10 * GB}})
    builder.start()
    builder.run(600, {"worker": {"rss_mb": 2000.0}, "worker:1": {"rss_mb": 8500.0}})
    builder.fail("worker:0")
    builder.start()
    builder.run(1200, {"worker": {"rss_mb": 2000.0}})
    assert found(builder.move("succeeded").finish(), rule="memory") == []


def test_the_programs_own_peak_counts_where_samples_missed_it() -> None:
    record = using(2 * GB)
    record.tasks[1]["usage"]["peak_rss_mb"] = 8.5 * GB  # type: ignore[index]
    assert found(record, rule="memory") == []


@pytest.mark.parametrize(
    "record",
    [
        using(500.0, seconds=240),
        using(500.0, state="RUNNING"),
        using(500.0, state="FAILED"),
        using(500.0, 2 * GB),
        job({"worker:0": {"rss_mb": 500.0}}, roles={"worker": {"memory_mb": 10 * GB}}),
        job({}, roles={"worker": {"memory_mb": 10 * GB}}),
    ],
    ids=["short", "goes on", "failed", "2 GB", "one not measured", "not measured"],
)
def test_thin_evidence_is_silent(record: Any) -> None:
    assert found(record, rule="memory") == []


def test_a_long_job_that_goes_on_is_judged() -> None:
    assert found(using(500.0, seconds=4000, state="RUNNING"), rule="memory")


# ------------------------------------------------------------------ more of it


def test_a_task_that_was_killed_for_memory_needs_more() -> None:
    builder = JobBuilder({"worker": {"memory_mb": 4096}})
    builder.start()
    builder.run(100, {"worker": {"rss_mb": 1000.0}})
    builder.fail("worker:1", cause="memory")
    builder.start()
    builder.run(1200, {"worker": {"rss_mb": 1000.0}})
    (advice,) = found(builder.move("succeeded").finish())
    assert (advice.rule, advice.severity, advice.about) == ("memory-limit", "severe", "worker")
    assert values(advice) == {"tony.worker.memory": "5632m"}
    assert "worker:1" in advice.problem
    # The job that failed for it has it worst, however short it was.
    builder = JobBuilder({"worker": {"memory_mb": 4096}})
    builder.start()
    builder.tasks["worker:0"]["cause"] = "memory"
    builder.fail("worker:0", cause="memory")
    assert found(builder.finish("FAILED"))[0].severity == "critical"


def test_near_its_limit_it_needs_more() -> None:
    (advice,) = found(using(9.6 * GB))
    assert (advice.rule, advice.severity) == ("memory-limit", "moderate")
    assert parse_memory_mb(advice.changes[0].value) == needed_mb(9.6 * GB) > 10 * GB
    assert found(using(9.3 * GB)) == []


def test_the_single_task_of_a_job_without_instances_has_the_masters_key() -> None:
    record = job({"worker": {**RIGHT, "rss_mb": 500.0}}, roles={"worker": {"instances": 1}})
    (advice,) = found(record, config(tony_am_memory="4g"))
    assert advice.changes[0][::2] == ("tony.am.memory", "4g")
    (advice,) = found(record, config(tony_am_memory="4g", tony_worker_instances="1"))
    assert advice.changes[0].key == "tony.worker.memory"


# ------------------------------------------------------------------ for any numbers


@fuzz(
    peak=st.floats(1, 200_000), asked=st.integers(256, 200_000), killed=st.booleans(),
    ran_s=st.sampled_from([200.0, 400.0]), by_day=50,
)  # fmt: skip
def test_any_use(peak: float, asked: int, killed: bool, ran_s: float) -> None:
    def again(memory_mb: float, is_killed: bool) -> Any:
        used = peak if is_killed or not killed else max(peak, asked)
        record = using(used, memory_mb, seconds=ran_s)
        if is_killed:
            record.tasks[0]["cause"] = "memory"  # type: ignore[index]
        return record

    advice = [each for each in found(again(asked, killed)) if each.rule.startswith("memory")]
    assert len(advice) <= 1
    for each in advice:
        new = parse_memory_mb(each.changes[0].value)
        assert new >= 2048
        if each.rule == "memory":
            assert peak < new < asked and not killed
            assert each.saving["memory_gb_hours"] > 0
        else:
            assert new > max(asked, 0.0)
        # With what was advised, and the same use, there is nothing more.
        more: Dict[str, Any] = dict.fromkeys(names(again(new, False)))
        assert not {"memory", "memory-limit"} & set(more), (asked, new, peak)
