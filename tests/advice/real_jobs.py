"""Jobs of some seconds on the embedded scheduler: wasteful in one way each, or right."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import List, Mapping, Tuple

import pytest

from tests.cli.processes import tony
from tony_core.advice import report
from tony_core.advice.advice import Advice
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LeastEvidence
from tony_core.cli.main import main
from tony_core.history.figures import job_figures
from tony_core.history.reader import JobHistory, list_jobs, read_config, read_job
from tony_core.history.timeline import timeline

#: For jobs of some seconds.
SHORT = LeastEvidence(
    run_s=2.5, samples=3, steps=4, unfinished_s=30, wait_s=2, staging_s=30, lost_s=2, unsaved_s=60,
    retried_s=2, gap_s=2,
)  # fmt: skip
#: Steps of 0.2 s by the clock, whatever else the machine does (the second one of 1 s, so that the
#: first is always seen); ``what`` says what is odd about it.
PROGRAM = """
import os, pathlib, subprocess, sys, time
import tony
count, what, me = int(sys.argv[1]), sys.argv[2], tony.task()
started = due = time.monotonic()
first = me.session == 0
saved = tony.checkpoints() if me.checkpoint_dir else None
newest = saved.latest() if saved else None
if what == "wasteful":
    ballast = bytearray(300 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
loaders = []
if what == "starved":
    # In sessions of their own: Linux divides processors by session where a machine is busy.
    loop = [sys.executable, "-c", "while True: pass"]
    loaders = [subprocess.Popen(loop, start_new_session=True) for _ in range(8)]
for step in range(newest[0] + 1 if newest else 0, count):
    if "lock step" in what:
        begin, arrived = time.monotonic(), pathlib.Path(what.rpartition(" ")[2])
        time.sleep(0.6 if "slow rank" in what and me.index == 1 else 0.2)
        tony.report(step=step, metrics={"step_time": time.monotonic() - begin})
        (arrived / f"{me.index}-{step}").touch()
        while not all((arrived / f"{rank}-{step}").exists() for rank in range(3)):
            assert time.monotonic() < begin + 30, "a rank does not come"
            time.sleep(0.01)
        continue
    begin = time.thread_time()
    while what in ("wasteful", "right") and time.thread_time() < begin + 0.1:
        pass
    due += 0.6 if what == "skewed" and me.index == 1 else 1 if step == 1 else 0.2
    time.sleep(max(0.0, due - time.monotonic()))
    if what == "skewed" and time.monotonic() > started + 6:
        break
    if what in ("stalls", "pauses") and first and step == count // 2:
        time.sleep(9)
        due += 9
        if what == "stalls":
            sys.exit("the collective has timed out")
    tony.report(step=step)
    if saved and step % 8 == 7:
        saved.save(step, b"weights")
    if what == "fails" and first and step == count - 7:
        sys.exit(3)
for loader in loaders:
    loader.kill()
if what == "always fails":
    sys.exit(f"{os.getpid()}: KeyError: 'label'")  # the master tries the very same line only twice
"""
SETTINGS = {
    "tony.application.framework": "pytorch",
    "tony.task.metrics-interval-ms": "500",
    "tony.local.memory": "7g",
    "tony.local.vcores": "8",
    "tony.worker.instances": "1",
    "tony.worker.memory": "512m",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the program, and a home of the embedded scheduler's below it."""
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    return tmp_path


def job_file(here: Path, what: str, steps: int, **keys: str) -> Path:
    """A job file; in the names of ``keys`` ``_`` stands for a dot, ``__`` for a dash."""
    more = {name.replace("__", "-").replace("_", "."): value for name, value in keys.items()}
    command = f"python3 train.py {steps} '{what}'"
    merged = {**SETTINGS, "tony.application.name": what, "tony.worker.command": command, **more}
    entries = "".join(
        f"  <property><name>{key}</name><value>{value}</value></property>\n"
        for key, value in merged.items()
    )
    path = here / "tony.xml"
    path.write_text(f"<configuration>\n{entries}</configuration>\n")
    return path


def submit_words(here: Path, path: Path) -> List[str]:
    return ["submit", "--src_dir", str(here / "src"), "--conf_file", str(path)]


def run(here: Path, path: Path, code: int = 0) -> Tuple[JobHistory, bytes]:
    """Submit a job file, wait for the job's end, and read its history and configuration."""
    done = tony(*submit_words(here, path), cwd=here, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return read_newest()


def read_newest() -> Tuple[JobHistory, bytes]:
    root = os.path.join(os.environ["TONY_HOME"], "history")
    app_id = max(list_jobs(root), key=lambda job: float(job["submitted"] or 0))["app_id"]
    return read_job(root, str(app_id)), read_config(root, str(app_id)) or b""


def read_named(name: str) -> Tuple[JobHistory, bytes]:
    root = os.path.join(os.environ["TONY_HOME"], "history")
    app_id = str(next(job["app_id"] for job in list_jobs(root) if job["name"] == name))
    return read_job(root, app_id), read_config(root, app_id) or b""


def advice_on(job: Tuple[JobHistory, bytes]) -> List[Advice]:
    return advise(*job, least=SHORT)


def apply(record: JobHistory, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    """``tony advise ID --apply``, for a job of some seconds; the file that it has written."""
    with monkeypatch.context() as patch:
        patch.setattr(report, "advise", partial(advise, least=SHORT))
        assert main(["advise", record.app_id, "--apply", *words]) == 0
    return Path("tony.advised.xml").absolute()


def held_s(record: JobHistory) -> float:
    """For how long its tasks had containers, all together."""
    return sum(bar.held_s for bar in timeline(record).bars)


def figures(job: Tuple[JobHistory, bytes]) -> Mapping[str, float]:
    return job_figures(job[0])


def stand_in_smi(here: Path, *answers: str, gpus: int = 1) -> Mapping[str, str]:
    """A program in the place of nvidia-smi, and the keys for it.

    It prints one answer after the other (``busy %, used MB, whole MB``), and the last one from then
    on: TonY asks every ten seconds at first. What a real one prints is looked at in tests/gpu.
    """
    tool, asked = here / "nvidia-smi", here / "asked"
    uuids = "; ".join(f"echo GPU-00000000-{number}" for number in range(gpus))
    cases = " ".join(f'{number}) echo "{text}";;' for number, text in enumerate(answers[:-1], 1))
    tool.write_text(
        f'#!/bin/sh\ncase "$1" in *uuid) {uuids}; exit;; esac\n'
        f'echo >> {asked}\ncase $(wc -l < {asked} | tr -d " ") in {cases} *) echo "{answers[-1]}";;'
        " esac\n"
    )
    tool.chmod(0o755)
    return {
        "tony_worker_gpus": "1", "tony_local_gpus": str(gpus), "tony_task_gpu__check": "false",
        "tony_gpu__exec__path": str(tool),
    }  # fmt: skip
