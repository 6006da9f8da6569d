"""Advice on real jobs of the embedded scheduler, and savings that come true."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import List, Mapping, Tuple

import pytest

from tests.cli.processes import Running, tony, until
from tony_core.advice.advice import Advice
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LeastEvidence
from tony_core.history.figures import job_figures
from tony_core.history.reader import JobHistory, list_jobs, read_config, read_job
from tony_core.history.timeline import timeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

#: For jobs of some seconds.
SHORT = LeastEvidence(
    run_s=3, samples=3, steps=4, unfinished_s=30, wait_s=2, staging_s=30, lost_s=2, unsaved_s=60,
    retried_s=2, gap_s=2,
)  # fmt: skip
PROGRAM = """
import os, sys, time
import tony
seconds, pause = float(sys.argv[1]), 0.2
what, me = sys.argv[2], tony.task()
if what == "wasteful":
    ballast = bytearray(300 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
if what == "skewed" and me.index == 1:
    pause *= 3
end, step = time.time() + seconds, 0
while time.time() < end:
    tony.report(step=step)
    step += 1
    time.sleep(pause)
if what == "fails" and os.environ["SESSION_ID"] == "0":
    sys.exit(3)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    return tmp_path


def words(here: Path, what: str, seconds: float, keys: Mapping[str, str]) -> List[str]:
    merged = {
        "tony.application.name": what,
        "tony.application.framework": "pytorch",
        "tony.task.metrics-interval-ms": "500",
        "tony.local.memory": "7g",
        "tony.worker.instances": "1",
        "tony.worker.memory": "512m",
        "tony.worker.command": f"python3 train.py {seconds} {what}",
        **keys,
    }
    conf = [word for key, value in merged.items() for word in ("--conf", f"{key}={value}")]
    return ["submit", "--src_dir", str(here / "src"), *conf]


def read(name: str) -> Tuple[JobHistory, bytes]:
    root = os.path.join(os.environ["TONY_HOME"], "history")
    newest = next(job for job in list_jobs(root) if job["name"] == name)
    app_id = str(newest["app_id"])
    return read_job(root, app_id), read_config(root, app_id) or b""


def run(here: Path, what: str, seconds: float = 6.0, **keys: str) -> Tuple[JobHistory, bytes]:
    more = {name.replace("__", "-").replace("_", "."): value for name, value in keys.items()}
    done = tony(*words(here, what, seconds, more), cwd=here, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return read(what)


def advice_on(job: Tuple[JobHistory, bytes]) -> List[Advice]:
    return advise(*job, least=SHORT)


def held_s(record: JobHistory) -> float:
    return sum(bar.held_s for bar in timeline(record).bars)


def test_memory_that_is_not_used_and_the_saving_that_comes_true(here: Path) -> None:
    first = run(here, "wasteful", tony_worker_memory="6g")
    (advice,) = advice_on(first)
    assert (advice.rule, advice.severity, advice.about) == ("memory", "critical", "worker")
    (change,) = advice.changes
    assert change == ("tony.worker.memory", "2g", "6g")
    assert 0.25 < float(advice.evidence["used at most (GB)"]) < 1
    second = run(here, "wasteful", **{change.key.replace(".", "_"): change.value})
    assert advice_on(second) == []
    before, after = (job_figures(record)["memory_gb_hours"] for record, _ in (first, second))
    longer = held_s(second[0]) / held_s(first[0])
    promised = before - advice.saving["memory_gb_hours"]
    assert after == pytest.approx(promised * longer, rel=0.01)
    assert after < before


def test_a_slow_rank(here: Path) -> None:
    record = run(here, "skewed", 8.0, tony_worker_instances="3")
    (advice,) = advice_on(record)
    assert (advice.rule, advice.about) == ("straggler", "worker:1")
    assert 20 < float(advice.evidence["speed of its peers' (%)"]) < 55
    assert advice.saving["duration_s"] > 2


def test_a_restart_without_a_checkpoint(here: Path) -> None:
    record = run(here, "fails", tony_am_retry__count="1")
    (advice,) = advice_on(record)
    assert advice.rule == "lost-work"
    assert advice.severity in ("severe", "critical")  # half of all, more or less
    assert 4 < advice.saving["duration_s"] < 9
    assert advice.evidence["checkpoints"] == 0


def test_a_wait_for_containers(here: Path) -> None:
    with Running(here, *words(here, "first", 12.0, {"tony.worker.memory": "5g"})) as first:
        first.until("worker:0 running")
        record = run(here, "second", 3.5, tony_worker_memory="3g")
        first.end(60)
    (advice,) = [each for each in advice_on(record) if each.rule != "memory"]
    assert advice.rule == "waiting"
    assert 4 < float(advice.evidence["for containers (s)"]) < 20
    assert "memory" in advice.problem or "MB" in advice.problem


def test_an_executor_that_is_held_up(here: Path) -> None:
    keys = {"tony.task.max-missed-heartbeats": "10"}
    with Running(here, *words(here, "stalled", 15.0, keys)) as job:
        job.until("worker:0 running")
        pid = executor_below(here / "home")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(6.5)
        os.kill(pid, signal.SIGCONT)
        assert job.end(60) == 0, job
    (advice,) = advice_on(read("stalled"))
    assert (advice.rule, advice.about) == ("heartbeats", "worker:0")
    assert 6 < float(advice.evidence["longest gap (s)"]) < 10
    assert advice.evidence["allowed (s)"] == 10
    (change,) = advice.changes
    assert change.key == "tony.task.max-missed-heartbeats" and int(change.value) >= 12


def test_a_gpu_that_is_not_used(here: Path) -> None:
    """By a stand-in for nvidia-smi: what a real one prints is looked at in tests/gpu."""
    tool = here / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$1" in *uuid) echo GPU-00000000-1;; *) echo "0, 500, 80000";; esac\n'
    )
    tool.chmod(0o755)
    job = run(
        here, "idle", 8.0, tony_worker_gpus="1", tony_local_gpus="1",
        tony_task_gpu__check="false", tony_gpu__exec__path=str(tool),
    )  # fmt: skip
    (advice,) = advice_on(job)
    assert (advice.rule, advice.severity, advice.about) == ("gpu-idle", "critical", "worker")
    assert advice.changes == (("tony.worker.gpus", "0", "1"),)
    assert advice.saving["gpu_hours"] == pytest.approx(job_figures(job[0])["gpu_hours"])


def test_a_right_job(here: Path) -> None:
    record, data = run(here, "right", 6.0, tony_worker_instances="2")
    assert advise(record, data, least=SHORT) == []
    assert advise(record, data) == []


def executor_below(home: Path) -> int:
    """The process id of the one executor of the jobs in a home."""
    until(lambda: list(home.glob("apps/*/containers/*/process.json")), "process.json")
    (path,) = home.glob("apps/*/containers/*/process.json")
    return int(json.loads(path.read_text())["pid"])
