"""GPUs that idle, that wait for input, or have memory to spare."""

from __future__ import annotations

from typing import Any

import pytest

from tests.advice.jobs import RIGHT, found, job, names, values
from tony_core.history.figures import job_figures

ROLE = {"gpus": 2, "vcores": 4, "memory_mb": 4096}
GPU_MEMORY = {"gpu_memory_mb": 60_000.0, "gpu_memory_total_mb": 80_000.0}


def using(gpu: Any, cores: Any = 2.5, vcores: int = 4, **more: Any) -> Any:
    uses = {"worker": {**RIGHT, "cpu_percent": 100 * cores, "gpu_percent": gpu, **GPU_MEMORY,
                       **more.pop("metrics", {})}, **more.pop("tasks", {})}  # fmt: skip
    return job(uses, roles={"worker": {**ROLE, "vcores": vcores}}, **more)


def test_a_busy_gpu_is_right() -> None:
    assert names(using(92.0)) == []


def test_no_task_uses_its_gpus() -> None:
    record = using(0.0, metrics={"gpu_memory_mb": 1000.0})
    (advice,) = found(record)
    assert (advice.rule, advice.severity, advice.about) == ("gpu-idle", "critical", "worker")
    assert values(advice) == {"tony.worker.gpus": "0"}
    assert advice.saving["gpu_hours"] == pytest.approx(job_figures(record)["gpu_hours"])


def test_a_program_that_holds_memory_of_its_gpu_is_not_left_without() -> None:
    record = using(0.0)
    (advice,) = found(record)
    assert (advice.rule, advice.severity, advice.about) == ("gpu-idle", "critical", "worker")
    assert not advice.changes and "may fail without a GPU" in advice.todo
    assert advice.saving["gpu_hours"] == pytest.approx(job_figures(record)["gpu_hours"])


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_a_job_that_may_still_have_come_to_its_gpus_keeps_them(state: str) -> None:
    """It prepares its data, say, and trains afterwards."""
    (advice,) = found(using(0.0, metrics={"gpu_memory_mb": 4.0}, seconds=4000.0, state=state),
                      rule="gpu-idle")  # fmt: skip
    assert advice.severity == "critical" and not advice.changes
    assert "if it never does, set tony.worker.gpus to 0" in advice.todo


def test_one_task_leaves_its_gpus_idle() -> None:
    record = using(92.0, tasks={"worker:1": {"gpu_percent": 0.0}})
    (advice,) = found(record)
    assert (advice.rule, advice.severity, advice.about) == ("gpu-idle", "severe", "worker:1")
    assert not advice.changes
    assert advice.saving["gpu_hours"] == pytest.approx(job_figures(record)["gpu_hours"] / 2)


def test_a_gpu_that_is_used_now_and_then_is_not_idle() -> None:
    assert names(using(lambda s: 80.0 if s % 100 < 10 else 0.0)) == []


@pytest.mark.parametrize(
    ("gpu", "severity"), [(55.0, None), (45.0, "low"), (30.0, "moderate"), (15.0, "severe"),
                          (8.0, "critical")]
)  # fmt: skip
def test_waiting_for_input_with_full_cores(gpu: float, severity: str | None) -> None:
    record = using(gpu, cores=3.7)
    advice = [each for each in found(record) if each.rule == "gpu-input"]
    assert [each.severity for each in advice] == ([severity] if severity else [])
    if severity:
        assert values(advice[0]) == {"tony.worker.vcores": "5"}
        hours = job_figures(record)["gpu_hours"]
        assert 0 < advice[0].saving["gpu_hours"] <= hours
        assert names(record) == ["gpu-input"]


def test_waiting_for_input_of_one_process_is_not_idle_cores() -> None:
    (advice,) = found(using(30.0, cores=1.0, vcores=16))
    assert advice.rule == "gpu-input" and not advice.changes
    assert "num_workers" in advice.todo


@pytest.mark.parametrize(
    ("gpu", "severity"), [(45.0, "low"), (30.0, "moderate"), (15.0, "moderate"), (8.0, "moderate")]
)
def test_one_full_core_has_two_readings(gpu: float, severity: str) -> None:
    """The thread that starts kernels fills a core as well, whatever it waits for."""
    (advice,) = found(using(gpu, cores=1.0, vcores=16))
    assert (advice.severity, advice.saving) == (severity, {})
    assert "or its kernels are too small" in advice.problem and "larger batch" in advice.todo


def test_one_core_that_several_threads_share_is_a_wait_for_input() -> None:
    def cores(seconds: float) -> float:
        return 1.6 if seconds % 50 < 10 else 1.1

    (advice,) = found(using(15.0, cores=1.0, vcores=1))
    assert (advice.severity, advice.changes) == ("moderate", ())
    (advice,) = found(using(15.0, metrics={"cpu_percent": lambda s: 100 * cores(s)}, vcores=1))
    assert (advice.severity, values(advice)) == ("severe", {"tony.worker.vcores": "2"})
    assert advice.saving["gpu_hours"] > 0 and "they wait for their input" in advice.problem


def test_pulses() -> None:
    pulses = using(lambda s: 100.0 if s % 20 < 9 else 5.0, cores=3.8)
    assert names(pulses) == ["gpu-input"]
    assert "gpu-input" not in names(using(62.0, cores=3.8))


def test_without_steps_or_busy_cores_it_is_not_known_why() -> None:
    assert names(using(30.0, cores=3.8, metrics={"step": 1.0})) == ["cores-short"]
    assert names(using(30.0, cores=2.5)) == []


@pytest.mark.parametrize(
    ("share", "severity"), [(0.5, None), (0.25, "low"), (0.1, "moderate")]
)  # fmt: skip
def test_little_of_the_gpus_memory(share: float, severity: str | None) -> None:
    advice = found(using(92.0, metrics={"gpu_memory_mb": share * 80_000}))
    assert [(each.rule, each.severity) for each in advice] == (
        [("gpu-memory", severity)] if severity else []
    )


@pytest.mark.parametrize("metric", ["gpu_memory_total_mb", "gpu_memory_mb", "gpu_percent"])
def test_what_was_not_measured_is_silent(metric: str) -> None:
    record = using(0.0 if metric == "gpu_percent" else 92.0, metrics={"gpu_memory_mb": 100.0})
    for series in record.metrics["task"].values():
        del series[metric]
    assert "gpu-idle" not in names(record) and (
        metric == "gpu_percent" or "gpu-memory" not in names(record)
    )


def test_a_job_without_gpus_has_no_advice_on_them() -> None:
    uses = {"worker": {**RIGHT, "gpu_percent": 0.0, "gpu_memory_mb": 1.0,
                       "gpu_memory_total_mb": 80_000.0}}  # fmt: skip
    assert names(job(uses)) == []
