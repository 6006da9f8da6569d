"""Advice on jobs of a cluster, read from their history on HDFS; and a program that hangs there."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Callable, Dict, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until
from tony_core.advice import report
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LeastEvidence
from tony_core.cli.main import main

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: For jobs of some seconds.
SHORT = LeastEvidence(
    run_s=3, samples=3, steps=4, unfinished_s=3, wait_s=4, staging_s=60, lost_s=4, unsaved_s=600,
    retried_s=4, gap_s=5,
)  # fmt: skip
TRAINS = """
import os, sys, time
import tony
until = sys.argv[1]
def wait_for_input():
    time.sleep(600)
step = 0
while step < 25 or not os.path.exists(until):
    tony.report(step=step)
    step += 1
    time.sleep(0.2)
    if until == "hang" and step == 10:
        wait_for_input()
"""

Advise = Callable[..., Any]


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Advise:
    """``advised(tony, job, "--json")``: what ``tony advise`` prints of a job of some seconds."""

    def call(one: Tony, job: Running, *words: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in one.env.items():
                patch.setenv(name, value)
            patch.setattr(report, "advise", partial(advise, least=SHORT))
            capsys.readouterr()
            assert main(["advise", *one.choice, job.app_id, *words]) == 0
        return capsys.readouterr().out

    return call


def trains(one: Tony, name: str, until: str, **conf: Any) -> Running:
    """One worker that steps for five seconds, and until that file is there."""
    source = one.folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(TRAINS)
    settings: Dict[str, Any] = {
        "tony.application.name": name,
        "tony.application.framework": "pytorch",
        "tony.task.metrics-interval-ms": 500,
        "tony.worker.instances": 1,
        "tony.worker.memory": "256m",
        **{key.replace("__", "-").replace("_", "."): value for key, value in conf.items()},
    }
    words = ("--src_dir", str(source), "--executes", f"python3 train.py {until}")
    return one.submit(*words, conf=settings)


def test_waste_and_a_wait_in_a_full_queue_and_a_right_job(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], advised: Advise
) -> None:
    cluster = hadoop("preemption", "log_aggregation")
    one = tony_on(cluster)
    over = one.folder / "over"
    # One user gets a tenth of the cluster there: the second waits for its containers.
    queue = {"tony_yarn_queue": "eval", "tony_worker_instances": 2, "tony_worker_memory": "512m"}
    holds = trains(one, "holds", str(over), **queue)
    holds.until(lambda: states(one, holds) == ["running"] * 2, "the first holds the queue")
    waits = trains(one, "waits", str(over), **queue)
    wasteful = trains(one, "wasteful", "/", tony_worker_memory="3g")
    right = trains(one, "right", "/")
    wasteful.ends(0)
    right.ends(0)
    waits.until(lambda: "missing in the queue" in waits.output_text, "it waits, and says why")
    over.touch()
    holds.ends(0)
    waits.ends(0)

    (found,) = json.loads(advised(one, wasteful, "--json"))["advice"]
    assert (found["rule"], found["severity"], found["about"]) == ("memory", "critical", "worker")
    assert found["changes"] == [{"key": "tony.worker.memory", "value": "2g", "was": "3g"}]
    assert 0 < found["evidence"]["used at most (GB)"] < 0.5, "by measures of the container"
    text = advised(one, waits)
    assert "waited" in text and "missing in the queue root.ml.eval" in text, text
    (found,) = json.loads(advised(one, waits, "--json"))["advice"]
    assert found["rule"] == "waiting" and not found["changes"]
    assert found["evidence"]["for containers (s)"] > 4
    assert advised(one, right) == "nothing to change\n"
    assert json.loads(advised(one, right, "--json"))["advice"] == []
    until(one.nothing_runs, "no process is left on any node")


def states(one: Tony, job: Running) -> List[str]:
    return [task["state"] for task in one.json("status", job.app_id)["tasks"]]


def test_a_program_that_hangs(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], advised: Advise
) -> None:
    one = tony_on(hadoop("preemption", "log_aggregation"))
    stalls = {"tony_task_stall__timeout": "10s", "tony_task_stall__action": "fail"}
    job = trains(one, "hangs", "hang", tony_am_retry__count=2, **stalls)
    output = job.ends(1)
    assert "stalled" in output and "no step for" in output
    lines = [event["text"] for event in job.events() if event["kind"] == "stalled"]
    assert len(lines) == 1 and "the last was 9" in lines[0], lines
    assert (
        "wait_for_input" in one("logs", "-t", "worker:0", "--stream", "stderr", job.app_id).stdout
    )
    ended = one.json("status", job.app_id)
    assert ended["state"] == "FAILED"
    cause = json.loads(one("history show", job.app_id, "--json").stdout)["job"]["root_cause"]
    assert (cause["task"], cause["cause"], cause["fault"]) == ("worker:0", "stalled", "user")
    (found,) = json.loads(advised(one, job, "--json"))["advice"]
    assert found["rule"] == "stalled" and found["changes"] == []
    assert 9 < found["evidence"]["stood still (s)"] < 30
    assert 9 < found["saving"]["duration_s"] < 30
    until(one.nothing_runs, "no process is left on any node")
