"""The time line of real jobs, against what their programs themselves saw of the time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.processes import Running, tony, until
from tony_core.history.compare import Compared, compare
from tony_core.history.figures import job_figures
from tony_core.history.reader import list_jobs, read_job
from tony_core.history.story_lines import Span
from tony_core.history.timeline import Timeline, timeline

PROGRAM = """
import json, os, sys, time
import tony
def stamp(name):
    with open(sys.argv[1], "a") as file:
        line = [os.environ["JOB_NAME"], int(os.environ["SESSION_ID"]), name, time.time()]
        file.write(json.dumps(line) + chr(10))
stamp("begin")
saved = tony.checkpoints()
newest = saved.latest()
for step in range(newest[0] + 1 if newest else 0, int(sys.argv[2])):
    tony.report(step=step, metrics={"loss": 1 / (step + 1)})
    if step == 3:
        stamp("step 3")
    time.sleep(0.6)
    if step == 2:
        saved.save(step, b"x")
    if step == 5 and newest is None and "fails" in sys.argv:
        stamp("end")
        sys.exit(3)
stamp("end")
"""
LATE_S = 3.0  # a program sees its start and end later and earlier than its master, if busy


def submit(here: Path, name: str, steps: int, fails: str = "") -> List[str]:
    keys = {
        "tony.application.name": name,
        "tony.application.framework": "pytorch",
        "tony.application.checkpoint-dir": str(here / f"{name}-checkpoints"),
        "tony.local.memory": "700m",
        "tony.train.instances": "1",
        "tony.train.memory": "512m",
        "tony.train.command": f"python3 train.py {here}/{name} {steps} {fails}",
    }
    words = [word for key, value in keys.items() for word in ("--conf", f"{key}={value}")]
    return ["submit", "--src_dir", str(here / "src"), *words]


def stamps(here: Path, name: str) -> Dict[Any, float]:
    """Of a job's programs what they saw: role, session, event -> time."""
    lines = [json.loads(line) for line in (here / name).read_text().splitlines()]
    return {(role, session, what): at for role, session, what, at in lines}


def spans(line: Timeline, kind: str) -> List[Span]:
    return [span for span in line.phases if span.kind == kind]


@pytest.mark.timeout(180)
def test_a_job_that_waits_restarts_and_has_a_second_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    with Running(tmp_path, *submit(tmp_path, "first", 12)) as first:
        until(lambda: (tmp_path / "first").exists(), "the first job's program")
        eval_command = f"python3 train.py {tmp_path}/second 1"
        more = {
            "tony.am.retry-count": "1",
            "tony.eval.instances": "1",
            "tony.eval.memory": "256m",
            "tony.eval.depends-on": "train",
            "tony.eval.command": eval_command,
        }
        words = [word for key, value in more.items() for word in ("--conf", f"{key}={value}")]
        done = tony(*submit(tmp_path, "second", 9, "fails"), *words, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        first.process.wait(30)
    root = os.path.join(os.environ["TONY_HOME"], "history")
    jobs = {job["name"]: str(job["app_id"]) for job in list_jobs(root)}
    first_record, record = (read_job(root, jobs[name]) for name in ("first", "second"))
    line, saw = timeline(record), stamps(tmp_path, "second")

    # It waited until the first job's container was given back, and not much longer.
    waiting = spans(line, "waiting")[0]
    first_end = stamps(tmp_path, "first")["train", 0, "end"]
    assert waiting.begin < first_end < waiting.end < first_end + LATE_S
    assert "memory" in waiting.text or "MB" in waiting.text, waiting
    # Its programs ran when they say so.
    running, lost = spans(line, "running"), spans(line, "lost")
    assert running[0].begin <= saw["train", 0, "begin"] < running[0].begin + LATE_S
    (stopping, ending) = spans(line, "stopping")
    assert saw["train", 0, "end"] <= stopping.begin + 0.01 < saw["train", 0, "end"] + LATE_S
    # What came after step 3 in session 0 was done again: the checkpoint was of step 2.
    (span,) = lost
    assert abs(span.begin - saw["train", 0, "step 3"]) < LATE_S
    assert span.end == stopping.begin and span.begin > running[0].begin + 1
    assert line.lost_known
    again = next(each for each in running if each.session == 1)
    assert again.begin <= saw["train", 1, "begin"] < again.begin + LATE_S
    # The second stage.
    evaluating = [each for each in running if each.begin <= saw["eval", 1, "begin"]][-1]
    assert saw["eval", 1, "begin"] < evaluating.begin + LATE_S
    assert [bar.task for bar in line.bars] == ["train:0", "eval:0"]
    assert ending.end == line.end == record.job["finished"]
    assert sum(line.sums().values()) == pytest.approx(line.end - line.begin)

    figures = job_figures(record)
    assert figures["sessions"] == 2 and figures["restarts"] == 1
    held_s = line.bars[0].held_s
    expected = (512 * held_s + 256 * line.bars[1].held_s) / 1024 / 3600
    assert figures["memory_gb_hours"] == pytest.approx(expected, rel=0.01)
    assert 0 < figures["memory_gb_hours_used"] < figures["memory_gb_hours"]
    (loss,) = [
        metric
        for metric in compare([Compared(first_record), Compared(record)]).metrics
        if metric.name == "loss"
    ]
    assert (loss.across, loss.at) == ("step", 8)
    steps = [step for step, _ in loss.curves[1].points]
    # Of steps that come quicker than a busy executor looks, the newest counts.
    assert steps == sorted(set(steps)) and steps[0] <= 3 and steps[-1] == 8
