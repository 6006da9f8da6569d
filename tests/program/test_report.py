"""report(), task() and jax_initialize(): inside a job, outside, and in every Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, Dict, List

import pytest

import tony
from tony_reports import reporter

PROGRAM = Path(tony.__file__).resolve().parent


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "report.jsonl"
    monkeypatch.setenv("TONY_REPORT_FILE", str(path))
    reporter._written_at = -1e9
    return path


def lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_report_is_written_at_once(file: Path) -> None:
    tony.report(progress=0.5, step=7, metrics={"loss": 0.25})
    (line,) = lines(file)
    assert (line["progress"], line["step"], line["metrics"]) == (0.5, 7, {"loss": 0.25})


def test_more_than_ten_a_second_are_one(file: Path) -> None:
    for step in range(1000):
        tony.report(step=step, metrics={"loss": step / 2, f"only-{step % 3}": 1})
    time.sleep(0.3)
    written = lines(file)
    assert 2 <= len(written) <= 6
    assert written[-1]["step"] == 999
    assert written[-1]["metrics"]["loss"] == 499.5
    assert set(written[-1]["metrics"]) == {"loss", "only-0", "only-1", "only-2"}


def test_a_saved_checkpoint_is_written_at_once(file: Path, tmp_path: Path) -> None:
    tony.report(step=1)
    tony.report(step=2)
    tony.checkpoints(str(tmp_path / "saved")).save(2, b"x")
    assert lines(file)[-1]["saved"] == 2


def test_a_checkpoint_that_was_not_saved_is_not_reported(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing was written"):
        tony.checkpoints(str(tmp_path / "saved")).save(2, lambda path: None)
    assert not lines(file)


def test_a_result_is_written_at_once_whatever_was_reported(file: Path) -> None:
    tony.report(step=1)
    tony.report(step=2)
    tony.result({"model": "hdfs:///models/7", "auc": 0.9, "none": None})
    assert lines(file)[-1]["result"] == {"model": "hdfs:///models/7", "auc": 0.9, "none": None}


@pytest.mark.parametrize("value", [object(), {1j: 2}, float("nan"), b"bytes", {"set": {1}}])
def test_a_result_that_json_cannot_hold_is_refused(file: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="a result is what JSON can hold"):
        tony.result(value)
    assert lines(file) == []


def test_a_result_that_is_too_large_is_refused_with_what_to_do(file: Path) -> None:
    with pytest.raises(ValueError, match="65536 is the most: save what is large"):
        tony.result("x" * 70_000)


def test_a_result_outside_of_a_job_is_checked_and_goes_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TONY_REPORT_FILE", raising=False)
    tony.result([1, 2])
    with pytest.raises(TypeError):
        tony.result(object())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_metric_that_is_not_finite_is_left_out(
    file: Path, value: float, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tony, "_not_finite", set())
    for step in (1, 2):
        tony.report(step=step, metrics={"loss": value, "rate": 0.5})
        reporter.flush()
    assert [(line["step"], line["metrics"]) for line in lines(file)] == [
        (1, {"rate": 0.5}),
        (2, {"rate": 0.5}),
    ]
    assert capsys.readouterr().err == f"tony: metric 'loss' is {value}; it is left out\n"


def test_a_metric_that_is_not_finite_ends_nothing_though_stderr_is_full(file: Path) -> None:
    script = "import tony; tony.report(metrics={'loss': float('nan'), 'rate': 1})"
    with open("/dev/full", "w") as full:
        subprocess.run(
            [sys.executable, "-c", script], stderr=full, check=True, env=dict(os.environ)
        )
    assert [line["metrics"] for line in lines(file)] == [{"rate": 1.0}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_progress_and_steps_are_finite(file: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="progress is from 0 to 1"):
        tony.report(progress=value)
    with pytest.raises(ValueError, match="64 bits"):
        tony.report(step=value)


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0], object(), 1j, 10**400])
def test_what_is_no_number_is_refused(file: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="metric 'loss' is a number"):
        tony.report(metrics={"loss": value})


@pytest.mark.parametrize("name", ["", 3, "x" * 201])
def test_what_is_no_name_is_refused(file: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="a metric's name"):
        tony.report(metrics={name: 1.0})


@pytest.mark.parametrize("progress", [-0.1, 1.1])
def test_progress_is_a_share(file: Path, progress: float) -> None:
    with pytest.raises(ValueError, match="progress is from 0 to 1"):
        tony.report(progress=progress)


def test_a_step_beyond_64_bits_is_refused(file: Path) -> None:
    for step in (1e19, -1e300, 2**63):
        with pytest.raises(ValueError, match="64 bits"):
            tony.report(step=step)  # type: ignore[arg-type]


def test_whatever_becomes_a_float_is_a_number(file: Path) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 0.5

    tony.report(progress=Scalar(), step=True, metrics={"a": Scalar(), "b": 3})  # type: ignore[arg-type]
    assert lines(file)[0]["metrics"] == {"a": 0.5, "b": 3.0}


def test_outside_a_job_nothing_happens_but_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TONY_REPORT_FILE", raising=False)
    tony.report(progress=0.5, metrics={"a": 1})
    with pytest.raises(TypeError, match="metric 'a' is a number"):
        tony.report(metrics={"a": "1"})


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/dev/full", "/"])
def test_what_cannot_be_written_is_lost_silently(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("TONY_REPORT_FILE", path)
    reporter._written_at = -1e9
    tony.report(progress=0.5)


def test_many_threads(file: Path) -> None:
    def work(number: int) -> None:
        for step in range(200):
            tony.report(metrics={f"m{number}": step})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.flush()
    newest: Dict[str, float] = {}
    for line in lines(file):
        newest.update(line["metrics"])
    assert newest == {f"m{number}": 199.0 for number in range(8)}


def run(code: str, python: str = sys.executable, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROGRAM), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


FORKING = """
import os, tony
tony.report(step=1)
tony.report(step=2)          # waits
pid = os.fork()
if pid == 0:
    tony.report(metrics={"child": 1})
    reporter.flush()
    os._exit(0)
os.waitpid(pid, 0)
tony.report(step=3)
"""


def test_the_last_report_is_written_at_exit_and_a_fork_writes_its_own(tmp_path: Path) -> None:
    path = tmp_path / "r"
    done = run(FORKING, TONY_REPORT_FILE=str(path))
    assert done.returncode == 0, done.stderr
    written = lines(path)
    assert [line["step"] for line in written if "step" in line][-1] == 3
    assert [line for line in written if "metrics" in line and "step" in line] == []
    assert sum("metrics" in line for line in written) == 1


@pytest.mark.parametrize("minor", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python(tmp_path: Path, minor: str) -> None:
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob(f"{minor}.*/bin"))
    pythons = [folder / f"python{minor}" for folder in folders if "shims" not in str(folder)]
    found = [str(python) for python in pythons if python.exists()]
    if not found:
        pytest.skip(f"no Python {minor} here")
    folder = tmp_path / "saved"
    code = (
        f"{FORKING}\nsaved = tony.checkpoints({str(folder)!r})\nsaved.save(5, b'x')\n"
        "print(saved.latest()[0], tony.task())"
    )
    path = tmp_path / "r"
    done = run(code, found[-1], TONY_REPORT_FILE=str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 Task(role='worker', index=0")
    assert [line["step"] for line in lines(path) if "step" in line][-1] == 3


class TestTask:
    def test_outside(self) -> None:
        assert tony.task() == tony.Task("worker", 0, 1, True, 0, None)

    def test_inside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            "JOB_NAME": "ps",
            "TASK_INDEX": "2",
            "TASK_NUM": "5",
            "SESSION_ID": "3",
            "TONY_CHECKPOINT_DIR": "/c",
        }.items():
            monkeypatch.setenv(name, value)
        assert tony.task() == tony.Task("ps", 2, 5, False, 3, "/c")
        monkeypatch.setenv("IS_CHIEF", "true")
        assert tony.task().is_chief


class TestJax:
    def test_outside_nothing_happens(self) -> None:
        tony.jax_initialize()

    def test_what_tony_knows_is_passed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: Dict[str, Any] = {}
        jax = types.ModuleType("jax")
        jax.distributed = types.SimpleNamespace(  # type: ignore[attr-defined]
            initialize=lambda **given: seen.update(given)
        )
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "h:1")
        monkeypatch.setenv("TONY_JAX_NUM_PROCESSES", "4")
        monkeypatch.setenv("TONY_JAX_PROCESS_ID", "2")
        tony.jax_initialize(initialization_timeout=600)
        assert seen == {
            "coordinator_address": "h:1",
            "num_processes": 4,
            "process_id": 2,
            "initialization_timeout": 600,
        }
