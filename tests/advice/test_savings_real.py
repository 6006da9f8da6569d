"""Advice that is followed on real jobs of the embedded scheduler: what it promised comes true.

The same job file runs twice; in between ``tony advise ID --apply`` writes the changed one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import pytest

from tests.advice.jobs import values
from tests.advice.real_jobs import (
    advice_on,
    apply,
    figures,
    held_s,
    here,
    job_file,
    run,
    stand_in_smi,
)
from tony_core.history.reader import JobHistory
from tony_core.history.timeline import timeline

__all__ = ["here"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ABOUT_S = 2.5  # by which two runs of the same job differ on a busy machine


def took_s(job: Tuple[JobHistory, bytes]) -> float:
    """How long a job took, from the start of its master."""
    return figures(job)["duration_s"] - figures(job).get("queued_s", 0.0)


def test_memory_cores_and_gpus_that_are_not_used(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = stand_in_smi(here, "0, 500, 80000")
    first = run(
        here, job_file(here, "wasteful", 22, tony_worker_memory="6g", tony_worker_vcores="4", **smi)
    )
    advice = {each.rule: each for each in advice_on(first)}
    assert set(advice) == {"memory", "gpu-idle", "cores"}
    assert {each.about for each in advice.values()} == {"worker"}
    assert [advice[rule].severity for rule in ("memory", "gpu-idle")] == ["critical", "critical"]
    assert 0.25 < float(advice["memory"].evidence["used at most (GB)"]) < 1
    assert 0.1 < float(advice["cores"].evidence["used at most (cores)"]) < 0.8
    path = apply(first[0], monkeypatch)
    text = path.read_text()
    for key, value in (("memory", "2g"), ("vcores", "1"), ("gpus", "0")):
        assert f"<name>tony.worker.{key}</name><value>{value}</value>" in text
    second = run(here, path)
    assert advice_on(second) == []
    before, after = figures(first), figures(second)
    longer = held_s(second[0]) / held_s(first[0])
    for rule, name in (
        ("memory", "memory_gb_hours"), ("cores", "vcore_hours"), ("gpu-idle", "gpu_hours")
    ):  # fmt: skip
        promised = before[name] - advice[rule].saving[name]
        assert after.get(name, 0.0) == pytest.approx(promised * longer, rel=0.01, abs=1e-9), name
        assert after.get(name, 0.0) < before[name] / 2


def test_work_that_restarts_lose_without_checkpoints(here: Path) -> None:
    first = run(here, job_file(here, "fails", 31, tony_am_retry__count="1"))
    (advice,) = advice_on(first)
    assert advice.rule == "lost-work" and advice.evidence["checkpoints"] == 0
    assert "tony.application.checkpoint-dir" in advice.todo and not advice.changes
    assert 4 < advice.saving["duration_s"] < 9
    kept = {"tony_application_checkpoint__dir": str(here / "saved")}
    second = run(here, job_file(here, "fails", 31, tony_am_retry__count="1", **kept))
    assert advice_on(second) == []
    less = took_s(first) - took_s(second)
    assert less == pytest.approx(advice.saving["duration_s"], abs=ABOUT_S)
    held = (held_s(first[0]) - held_s(second[0])) / 3600
    assert held == pytest.approx(advice.saving["vcore_hours"], abs=ABOUT_S / 3600)


@pytest.mark.nightly
def test_time_that_a_program_stood_still(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "tony_task_stall__timeout": "2s", "tony_am_retry__count": "1",
        "tony_application_checkpoint__dir": str(here / "saved-1"),
    }  # fmt: skip
    first = run(here, job_file(here, "stalls", 16, **keys))
    (advice,) = advice_on(first)
    assert (advice.rule, values(advice)) == ("stalled", {"tony.task.stall-action": "restart"})
    assert 8.5 < float(advice.evidence["stood still (s)"]) < 11
    assert 4 < advice.saving["duration_s"] < 8, "it is seen after two seconds, then it starts anew"
    path = apply(first[0], monkeypatch)
    path.write_text(path.read_text().replace("saved-1", "saved-2"))
    second = run(here, path)
    assert second[0].job["session"] == 1
    less = took_s(first) - took_s(second)
    assert less == pytest.approx(advice.saving["duration_s"], abs=ABOUT_S)


@pytest.mark.nightly
def test_a_pause_that_is_longer_than_a_stall(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation, say: a restart in the midst of it would come again in each session."""
    keys = {"tony_task_stall__timeout": "2s", "tony_am_retry__count": "0"}
    first = run(here, job_file(here, "pauses", 16, **keys))
    (advice,) = advice_on(first)
    assert (advice.rule, advice.severity) == ("stalled", "moderate")
    assert values(advice) == {"tony.task.stall-timeout": "1m"} and not advice.saving
    second = run(here, apply(first[0], monkeypatch))
    assert "stalled" not in [event["kind"] for event in second[0].events]
    assert advice_on(second) == []


@pytest.mark.nightly
def test_a_gang_that_waits_for_a_slow_rank(here: Path) -> None:
    jobs = []
    for what in ("slow rank in lock step", "lock step"):
        arrived = here / what.replace(" ", "-")
        arrived.mkdir()
        keys = {"tony_application_name": "gang", "tony_worker_instances": "3"}
        jobs.append(run(here, job_file(here, f"{what} {arrived}", 30, **keys)))
    first, second = jobs
    (advice,) = advice_on(first)
    assert (advice.rule, advice.about) == ("straggler", "worker:1")
    assert "spent waiting for it" in advice.problem
    assert advice_on(second) == []
    less = took_s(first) - took_s(second)
    assert less > 9
    assert less == pytest.approx(advice.saving["duration_s"], abs=ABOUT_S)
    others = [
        sum(bar.held_s for bar in timeline(record).bars if bar.task != advice.about) / 3600
        for record, _ in jobs
    ]
    assert others[0] - others[1] == pytest.approx(
        advice.saving["vcore_hours"], abs=2 * ABOUT_S / 3600
    )


@pytest.mark.nightly
def test_retries_that_could_not_help(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(here, job_file(here, "always fails", 12, tony_am_retry__count="2"), code=1)
    (advice,) = [each for each in advice_on(first) if each.rule != "lost-work"]
    assert (advice.rule, values(advice)) == ("retries", {"tony.am.retry-count": "1"})
    assert advice.evidence["same failures"] == 3 and "KeyError" in advice.problem
    second = run(here, apply(first[0], monkeypatch), code=1)
    assert second[0].job["session"] == 1
    less = took_s(first) - took_s(second)
    assert less == pytest.approx(advice.saving["duration_s"], abs=ABOUT_S)
