"""Advice on real jobs of the embedded scheduler that are wasteful in one way each, or right."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.advice.jobs import values
from tests.advice.real_jobs import (
    SHORT,
    advice_on,
    here,
    job_file,
    read_named,
    run,
    stand_in_smi,
    submit_words,
)
from tests.cli.processes import Running, until
from tony_core.advice.advise import advise
from tony_core.history.figures import job_figures

__all__ = ["here"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_slow_rank(here: Path) -> None:
    (advice,) = advice_on(run(here, job_file(here, "skewed", 100, tony_worker_instances="3")))
    assert (advice.rule, advice.about) == ("straggler", "worker:1")
    assert 20 < float(advice.evidence["speed of its peers' (%)"]) < 55
    assert advice.saving["duration_s"] > 2


def test_a_wait_for_containers(here: Path) -> None:
    path = job_file(here, "first", 45, tony_worker_memory="5g")
    with Running(here, *submit_words(here, path)) as first:
        first.until("worker:0 running")
        job = run(here, job_file(here, "second", 16, tony_worker_memory="3g"))
        first.end(60)
    (advice,) = [each for each in advice_on(job) if each.rule != "memory"]
    assert advice.rule == "waiting"
    assert 4 < float(advice.evidence["for containers (s)"]) < 20
    assert "memory" in advice.problem or "MB" in advice.problem


@pytest.mark.nightly
def test_an_executor_that_is_held_up(here: Path) -> None:
    path = job_file(here, "held up", 50, tony_task_max__missed__heartbeats="10")
    with Running(here, *submit_words(here, path)) as job:
        job.until("worker:0 running")
        pid = executor_below(here / "home")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(6.5)
        os.kill(pid, signal.SIGCONT)
        assert job.end(60) == 0, job
    (advice,) = advice_on(read_named("held up"))
    assert (advice.rule, advice.about) == ("heartbeats", "worker:0")
    assert 6 < float(advice.evidence["longest gap (s)"]) < 10
    assert advice.evidence["allowed (s)"] == 10
    (change,) = advice.changes
    assert change.key == "tony.task.max-missed-heartbeats" and int(change.value) >= 12


def test_a_gpu_that_waits_for_its_input(here: Path) -> None:
    """In pulses, while the program's cores are full."""
    smi = stand_in_smi(here, "5, 50000, 80000", "45, 50000, 80000")
    job = run(here, job_file(here, "starved", 58, **smi))
    (advice,) = advice_on(job)
    assert (advice.rule, advice.about) == ("gpu-input", "worker")
    assert 5 < float(advice.evidence["GPU busy (%)"]) < 60
    assert int(values(advice)["tony.worker.vcores"]) >= 2
    assert 0 < advice.saving["gpu_hours"] < job_figures(job[0])["gpu_hours"]


def test_a_right_job(here: Path) -> None:
    smi = stand_in_smi(here, "93, 60000, 80000", gpus=2)
    kept = {"tony_application_checkpoint__dir": str(here / "saved")}
    record, data = run(
        here, job_file(here, "right", 24, **{**smi, **kept}, tony_worker_instances="2")
    )
    assert advise(record, data, least=SHORT) == []
    assert advise(record, data) == []


def executor_below(home: Path) -> int:
    """The process id of the one executor of the jobs in a home."""
    until(lambda: list(home.glob("apps/*/containers/*/process.json")), "process.json")
    (path,) = home.glob("apps/*/containers/*/process.json")
    return int(json.loads(path.read_text())["pid"])
