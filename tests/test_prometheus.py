"""What Prometheus reads of a job: by Prometheus' own parser, whatever the job's author wrote."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tony_core import prometheus
from tony_core.prometheus import MEASURES, escape, number, write_job
from tony_core.schedulers.port import AppState
from tony_core.view import PAGE, JobView, TaskView

NOW = 1.7e9 + 100


def a_view(*tasks: TaskView, **changes: Any) -> JobView:
    """A job that runs."""
    made = JobView(
        "app_1", AppState.RUNNING, PAGE, name="train", user="ann", queue="default",
        framework="pytorch", mode="GANG", session=1, attempt=1, progress=0.25, submitted=1.7e9,
        started=1.7e9 + 2, tasks=tasks,
        budgets={"user_left": 1, "user_limit": 2, "system_left": 10, "system_limit": 10},
        roles={"worker": {"instances": 2, "memory_mb": 1, "vcores": 1, "gpus": 0}},
    )  # fmt: skip
    return made._replace(**changes)


def a_task(index: int = 0, **changes: Any) -> TaskView:
    """One that runs."""
    made = TaskView(
        f"worker:{index}", "worker", index, state="running", session=1, started=1.7e9 + 10,
        duration_s=80.0, step=7, progress=0.5, restarts=2,
        measures={"rss_mb": 512.0, "cpu_percent": 150.0, "gpu_percent": 50.0, "gpu_memory_mb": 2.0},
        reported={"loss": 0.5},
    )  # fmt: skip
    return made._replace(**changes)


def read(text: bytes) -> Dict[str, List[Sample]]:
    """The samples of each family; no family and no series is there twice."""
    found: Dict[str, List[Sample]] = {}
    series: List[Tuple[str, Tuple[Tuple[str, str], ...]]] = []
    for family in text_string_to_metric_families(text.decode()):
        assert family.name not in found, family.name
        assert family.documentation and family.type in ("gauge", "counter"), family.name
        found[family.name] = family.samples
        series += [(each.name, tuple(sorted(each.labels.items()))) for each in family.samples]
    assert len(set(series)) == len(series)
    return found


def value_of(text: bytes, family: str, **labels: str) -> float:
    """The value of the one sample with these labels."""
    (found,) = [
        each.value
        for each in read(text)[family]
        if all(each.labels.get(key) == value for key, value in labels.items())
    ]
    return float(found)


def test_a_job_and_its_tasks() -> None:
    text = write_job(a_view(a_task(0), a_task(1, state="failed", exit_code=3)), NOW, 10.0)
    assert value_of(text, "tony_job_state", state="RUNNING") == 1
    assert value_of(text, "tony_job_state", state="FAILED") == 0
    assert value_of(text, "tony_job_info", user="ann", queue="default", name="train") == 1
    assert value_of(text, "tony_job_session") == 1
    assert value_of(text, "tony_job_progress_ratio") == 0.25
    assert value_of(text, "tony_job_waiting_seconds") == 10
    assert value_of(text, "tony_job_submitted_timestamp_seconds") == 1.7e9
    assert value_of(text, "tony_job_duration_seconds") == 100
    assert value_of(text, "tony_job_restarts_left", budget="user") == 1
    assert value_of(text, "tony_job_tasks", role="worker", state="failed") == 1
    assert value_of(text, "tony_job_tasks_requested", role="worker") == 2
    task = {"task": "worker:0", "role": "worker", "app_id": "app_1"}
    assert value_of(text, "tony_task_running", **task) == 1
    assert value_of(text, "tony_task_memory_rss_bytes", **task) == 512 * 2**20
    assert value_of(text, "tony_task_cpu_cores", **task) == 1.5
    assert value_of(text, "tony_task_gpu_utilization_ratio", **task) == 0.5
    assert value_of(text, "tony_task_gpu_memory_bytes", **task) == 2 * 2**20
    assert value_of(text, "tony_task_step", **task) == 7
    assert value_of(text, "tony_task_restarts", **task) == 2
    assert value_of(text, "tony_task_duration_seconds", **task) == 90
    assert value_of(text, "tony_task_reported", name="loss", **task) == 0.5
    assert value_of(text, "tony_task_exit_code", task="worker:1") == 3


def test_an_alert_sees_a_job_that_has_stalled() -> None:
    text = write_job(a_view(a_task(0), a_task(1), stalled=2), NOW)
    assert value_of(text, "tony_job_stalled", app_id="app_1") == 1
    assert value_of(text, "tony_job_tasks_stalled", app_id="app_1") == 2
    text = write_job(a_view(a_task(0)), NOW)
    assert value_of(text, "tony_job_stalled") == value_of(text, "tony_job_tasks_stalled") == 0


def test_what_is_not_known_is_left_out() -> None:
    found = read(write_job(JobView("app_1", AppState.UNKNOWN, PAGE, tasks=(TaskView("a:0"),)), NOW))
    assert "tony_job_waiting_seconds" not in found
    assert "tony_job_submitted_timestamp_seconds" not in found
    assert "tony_task_step" not in found and "tony_task_reported" not in found


def test_names_follow_prometheus_rules() -> None:
    for measure in MEASURES.values():
        assert measure.family.startswith("tony_task_")
        assert not measure.family.endswith(("_total", "_mb", "_percent", "_ms", "_info"))
    lines = write_job(a_view(a_task()), NOW, 1.0).decode().splitlines()
    for line in lines:
        words = line.split()
        if words[:2] == ["#", "TYPE"]:
            assert words[2].endswith("_total") == (words[3] == "counter"), line
    assert lines[-1] and write_job(a_view(), NOW).endswith(b"\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"), (1.0, "1"), (0.1, "0.1"), (1e300, "1e+300"), (-0.0, "0"), (10**400, "+Inf"),
        (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"),
        (2**63, "9.223372036854776e+18"),
    ],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@given(st.text(), st.text(), st.dictionaries(st.text(), st.floats(), max_size=5))
def test_what_an_author_writes_stays_in_its_label(
    name: str, task: str, reported: Dict[str, float]
) -> None:
    view = a_view(
        a_task(task=task, reported=reported), a_task(1), name=name, queue=task, app_id=name,
        roles={name: {"instances": 1}, task: {"instances": 1}},
    )  # fmt: skip
    found = read(write_job(view, NOW))
    assert all(family.startswith("tony_") for family in found)
    info = found["tony_job_info"][0].labels
    assert info["name"] == name[: prometheus.LONGEST]
    by_name = {
        each.labels["name"]: each.value
        for each in found.get("tony_task_reported", [])
        if each.labels["task"] == task[: prometheus.LONGEST]
    }
    if task not in ("am", "worker:1"):
        assert {name: value for name, value in by_name.items() if not math.isnan(value)} == {
            name[: prometheus.LONGEST]: value
            for name, value in reported.items()
            if not math.isnan(value)
        }


def test_halves_of_surrogates_and_long_texts() -> None:
    view = a_view(a_task(reported={"\ud800": 1.0, "?": 2.0, "x" * 500: 3.0}), name="\udc00" * 1000)
    found = read(write_job(view, NOW))
    assert len(found["tony_job_info"][0].labels["name"]) == prometheus.LONGEST
    assert {each.labels["name"] for each in found["tony_task_reported"]} == {"?", "x" * 200}


def test_a_task_that_is_there_twice_is_shown_once() -> None:
    read(write_job(a_view(a_task(), a_task()), NOW))


def test_the_number_of_samples_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_TASKS", 10)
    monkeypatch.setattr(prometheus, "MOST_REPORTED", 50)
    reported = {f"m{number}": 1.0 for number in range(20)}
    text = write_job(a_view(*(a_task(index, reported=reported) for index in range(30))), NOW)
    found = read(text)
    assert len(found["tony_task_running"]) == 10
    assert len(found["tony_task_reported"]) == 50
    assert value_of(text, "tony_job_tasks_left_out") == 20
    assert value_of(text, "tony_job_reported_left_out") == 150
    assert value_of(text, "tony_job_tasks", state="running") == 30


def test_escaping() -> None:
    assert escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
