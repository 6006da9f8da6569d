"""Cores that idle, and cores that are too few."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from tests.advice.jobs import RIGHT, config, found, job, values
from tests.fuzzing import fuzz
from tony_core.history.figures import job_figures


def using(cores: Any, asked: float, **more: Any) -> Any:
    percent = (lambda s: 100 * cores(s)) if callable(cores) else 100 * cores
    uses = {"worker": {**RIGHT, "cpu_percent": percent}}
    return job(uses, roles={"worker": {"vcores": asked}}, **more)


@pytest.mark.parametrize(
    ("used", "severity", "new"),
    [(5.1, None, ""), (4.9, "low", "7"), (3.4, "moderate", "5"), (1.9, "severe", "3"),
     (0.9, "critical", "2")],
)  # fmt: skip
def test_idle(used: float, severity: str | None, new: str) -> None:
    record = using(used, 10)
    advice = found(record, config(tony_worker_vcores="10"), rule="cores")
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert each.changes == (("tony.worker.vcores", new, "10"),)
        hours = job_figures(record)["vcore_hours"] * (10 - int(new)) / 10
        assert each.saving["vcore_hours"] == pytest.approx(hours)


def test_work_that_comes_in_bursts_is_no_idle_core() -> None:
    assert found(using(lambda s: 9.0 if s % 50 < 10 else 0.1, 10)) == []


@pytest.mark.parametrize(
    ("used", "asked", "severity"),
    [(0.99, 1, None), (1.15, 1, None), (1.3, 1, "low"), (1.6, 1, "moderate"), (2.5, 1, "severe"),
     (8.0, 1, "critical"), (1.85, 2, "low"), (1.75, 2, None), (15.5, 16, None)],
)  # fmt: skip
def test_short(used: float, asked: int, severity: str | None) -> None:
    advice = found(using(used, asked), rule="cores-short")
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert used < int(values(each)["tony.worker.vcores"]) <= used * 1.25 + 1


@pytest.mark.parametrize("seconds", [60.0, 240.0])
def test_a_short_job_is_silent(seconds: float) -> None:
    assert found(using(0.1, 10, seconds=seconds)) == []


@fuzz(used=st.floats(0, 300), asked=st.integers(1, 300), by_day=50)
def test_any_use(used: float, asked: int) -> None:
    for each in found(using(used, asked, seconds=400.0)):
        new = int(values(each)["tony.worker.vcores"])
        assert new >= 1 and new >= used
        assert (new < asked) == (each.rule == "cores")
        assert found(using(used, new, seconds=400.0)) == []
