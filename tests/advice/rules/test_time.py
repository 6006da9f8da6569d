"""Time that a job lost: waits, staging, restarts, retries, and gaps of heartbeats."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tests.advice.jobs import RIGHT, JobBuilder, config, found, job, names, values

# ------------------------------------------------------------------ before it runs


def delayed(waits: float, stages: float, runs: float = 1000.0) -> Any:
    builder = JobBuilder()
    builder.start(0.0, stages)
    begun = builder.events[1]
    for event in builder.events[2:]:
        event["time"] += waits
    builder.events.insert(2, {**begun, "n": 2, "kind": "waiting", "text": "the queue is full"})
    for number, event in enumerate(builder.events):
        event["n"] = number + 1
    builder.at += waits
    builder.run(runs, {"worker": RIGHT})
    return builder.move("succeeded").finish()


@pytest.mark.parametrize(
    ("waits", "severity"), [(100, None), (200, None), (300, "low"), (800, "moderate"),
                            (1800, "severe"), (5000, "critical")]
)  # fmt: skip
def test_a_wait_for_containers(waits: float, severity: Optional[str]) -> None:
    advice = found(delayed(waits, 2.0))
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert each.rule == "waiting" and "the queue is full" in each.problem
        assert each.evidence["for containers (s)"] == waits
        assert "tony.worker.min-instances" in each.todo and not each.changes
        assert each.saving["duration_s"] == pytest.approx(waits - 120, abs=10)


def test_a_job_without_a_story_did_not_wait_for_all_of_its_time() -> None:
    record = job()._replace(events=())
    for task in record.tasks:
        task.update(started=record.job["submitted"] + 5, ended=record.job["finished"])  # type: ignore[attr-defined]
    assert names(record) == []
    # What was measured is still looked at.
    for series in record.metrics["task"].values():
        series["rss_mb"] = [[at, 500.0] for at, _ in series["rss_mb"]]
    assert names(record) == ["memory"]


@pytest.mark.parametrize(
    ("stages", "severity"), [(50, None), (200, "low"), (500, "moderate"), (1500, "severe")]
)  # fmt: skip
def test_files_that_take_long(stages: float, severity: Optional[str]) -> None:
    advice = found(delayed(2.0, stages), config(tony_containers_resources="big.zip"))
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert each.rule == "staging" and "tony.containers.resources" in each.todo
        assert each.saving["duration_s"] == pytest.approx(stages - 60)


# ------------------------------------------------------------------ restarts


def restarted(saves: bool = False, reports: bool = True, runs: float = 1000.0) -> Any:
    """A job that fails once; with checkpoints, one every 900 s."""
    builder = JobBuilder()
    use = dict(RIGHT)
    if not reports:
        del use["step"]
    builder.start()
    builder.run(runs, {"worker": use})
    if saves:
        builder.metrics["worker:0"]["saved"] = [[builder.at - runs + 300.0, 300.0]]
    builder.fail("worker:1")
    builder.start()
    first = 300.0 if saves else 0.0
    steps = {"step": lambda s: s + first} if reports else {}
    builder.run(runs, {"worker": {**use, **steps}})
    return builder.move("succeeded").finish()


def test_work_that_was_done_again() -> None:
    (advice,) = found(restarted())
    assert (advice.rule, advice.severity) == ("lost-work", "critical")
    assert advice.saving["duration_s"] == pytest.approx(1000, abs=10)
    assert advice.saving["vcore_hours"] == pytest.approx(4 * 1000 / 3600, rel=0.02)
    assert "tony.checkpoints()" in advice.todo


def test_checkpoints_that_are_too_far_from_each_other() -> None:
    (advice,) = found(restarted(saves=True))
    assert advice.evidence["lost (s)"] == pytest.approx(700, abs=10)
    assert "every 174 s" in advice.todo or "every 175 s" in advice.todo, advice.todo


def test_a_program_that_saves_without_a_report_of_it() -> None:
    record = restarted(saves=True)
    del record.metrics["task"]["worker:0"]["saved"]
    (advice,) = found(record)
    assert advice.evidence["checkpoints"] == 0 and "more often" in advice.todo


def test_neither_steps_nor_checkpoints() -> None:
    record = restarted(reports=False)
    (advice,) = found(record)
    assert (advice.rule, advice.severity, advice.saving) == ("lost-work", "moderate", {})
    # A program with a folder for them may save without a report of it.
    assert found(record, config(tony_application_checkpoint_dir="x").replace(b"checkpoint.dir",
                 b"checkpoint-dir")) == []  # fmt: skip
    assert found(restarted(reports=False, runs=100.0)) == []


def test_a_slow_start_is_no_checkpoint() -> None:
    """What comes before the first step is not what a checkpoint kept."""
    record = restarted()
    series = record.metrics["task"]["worker:0"]
    begin = series["step"][0][0]
    first = [[at, step - 200] for at, step in series["step"] if 200 < at - begin < 1000]
    second = [[at, step] for at, step in series["step"] if at - begin >= 1020]
    series["step"] = first + second  # which is seen two steps later than the first one was
    assert second[0][1] > first[0][1]
    (advice,) = found(record)
    assert advice.rule == "lost-work" and "none was reported" in advice.todo


def test_little_is_lost() -> None:
    assert names(restarted(runs=250.0)) == []


@pytest.mark.parametrize(
    ("hours", "severity"), [(0.9, None), (1.1, "low"), (5, "moderate"), (30, "moderate")]
)  # fmt: skip
def test_a_long_job_without_checkpoints(hours: float, severity: Optional[str]) -> None:
    record = job(seconds=hours * 3600)
    advice = found(record)
    assert [each.severity for each in advice] == ([severity] if severity else [])
    if severity:
        assert advice[0].rule == "no-checkpoint" and not advice[0].saving
        assert "TonY knows of no checkpoint: if the program saves none" in advice[0].problem
    series = record.metrics["task"]["worker:1"]
    series["saved"] = [[series["step"][-1][0], 5.0]]
    assert found(record) == []


# ------------------------------------------------------------------ retries


def failing(text: str, times: int = 3, runs: float = 100.0, further: float = 0.0) -> Any:
    builder = JobBuilder()
    for attempt in range(times):
        builder.start()
        step = attempt * further
        builder.run(runs, {"worker": {**RIGHT, "step": lambda s, step=step: s + step}})
        builder.fail("worker:0", text=text.format(attempt))
    return builder.finish("FAILED")


def test_the_same_failure_each_time() -> None:
    (advice,) = found(failing("12:0{0}:11 KeyError: 'label'"), rule="retries")
    assert advice.about == "worker:0" and "KeyError" in advice.problem
    assert values(advice) == {"tony.am.retry-count": "1"}
    assert advice.saving["duration_s"] == pytest.approx(115, abs=5), "of the last of two"
    (advice,) = found(failing("KeyError", 2), rule="retries")
    assert not advice.changes and advice.saving["duration_s"] == pytest.approx(115, abs=5)


def test_retries_that_may_have_helped() -> None:
    assert found(failing("KeyError: '{0}", further=200.0), rule="retries") == []
    assert found(failing("KeyError", runs=10.0), rule="retries") == []
    record = failing("KeyError")
    record.events[-2]["fields"]["fault"] = "system"  # type: ignore[index]
    assert found(record, rule="retries") == []
    record = failing("KeyError")
    record.events[-2]["fields"]["stderr_tail"] = ["MemoryError"]  # type: ignore[index]
    assert found(record, rule="retries") == []


# ------------------------------------------------------------------ heartbeats


@pytest.mark.parametrize(
    ("gap", "severity", "new"), [(12.0, None, ""), (13.0, "low", "26"), (18.0, "moderate", "36"),
                                 (22.0, "severe", "44"), (25.5, "critical", "51")]
)  # fmt: skip
def test_a_gap_near_the_allowance(gap: float, severity: Optional[str], new: str) -> None:
    uses = {"worker": RIGHT, "worker:1": {"heartbeat_gap_s": gap}}
    advice = found(job(uses))
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert (each.rule, each.about) == ("heartbeats", "worker:1")
        assert values(each) == {"tony.task.max-missed-heartbeats": new}


def test_no_allowance_is_so_long_that_a_lost_task_is_missed_late() -> None:
    """A machine that was suspended over night."""
    for gap, new in ((290.0, "580"), (310.0, ""), (36_000.0, ""), (1e12, "")):
        (advice,) = found(job({"worker": RIGHT, "worker:1": {"heartbeat_gap_s": gap}}))
        changed = values(advice).get("tony.task.max-missed-heartbeats", "")
        assert (advice.severity, changed) == ("critical", new)
        assert ("set tony.task" in advice.todo) == bool(new)


def test_the_allowance_is_the_jobs_own() -> None:
    record = job({"worker": {**RIGHT, "heartbeat_gap_s": 13.0}})
    key = "tony.task.max-missed-heartbeats"

    def with_missed(number: str) -> bytes:
        return config(key=number).replace(b"<name>key<", f"<name>{key}<".encode())

    assert found(record, with_missed("100")) == []
    (advice,) = found(record, with_missed("10"))
    assert (advice.severity, advice.changes[0].was) == ("critical", "10")
    # A short gap is a busy node, whatever the allowance.
    short = job({"worker": {**RIGHT, "heartbeat_gap_s": 4.0}})
    assert found(short, with_missed("4")) == []
