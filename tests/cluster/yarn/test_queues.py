"""A queue that takes back its share, one that is full, and one whose masters are too many."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any, Callable, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: Counts from where its checkpoint says, and leaves a line for each start.
TRAINS = """
import os, sys, time
folder, task = sys.argv[1], os.environ["TASK_INDEX"]
kept = f"{folder}/checkpoint-{task}"
step = int(open(kept).read()) if os.path.exists(kept) else 0
with open(f"{folder}/starts-{task}", "a") as file:
    file.write(f"{os.environ['SESSION_ID']} {step}\\n")
while not os.path.exists(f"{folder}/over"):
    step += 1
    with open(kept + ".new", "w") as file:
        file.write(str(step))
    os.replace(kept + ".new", kept)
    time.sleep(0.1)
"""
WORKERS = 7  # of an eighth of the cluster each


def memory(cluster: Hadoop) -> int:
    """Megabytes, of all nodes."""
    with urllib.request.urlopen(f"{cluster.rm_url}/ws/v1/cluster/metrics") as answer:
        return int(json.load(answer)["clusterMetrics"]["totalMB"])


def folder_for(one: Tony, name: str) -> Path:
    """Programs of any user write there."""
    folder = one.folder / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def waiting(one: Tony, folder: Path, queue: str, workers: int, size: int, **conf: Any) -> Running:
    """A job of programs that end when ``over`` stands in the folder."""
    settings = {
        "tony.application.framework": "mpi",
        "tony.application.name": folder.name,
        "tony.yarn.queue": queue,
        "tony.worker.instances": workers,
        "tony.worker.memory": f"{size}m",
        **conf,
    }
    line = (
        f"sh -c 'touch {folder}/up-$TASK_INDEX; while [ ! -e {folder}/over ]; do sleep 0.1; done'"
    )
    return one.submit("--executes", line, conf=settings)


def starts(folder: Path, task: int) -> List[List[int]]:
    """[session, step] of each start of a task's program."""
    path = folder / f"starts-{task}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[int(word) for word in line.split()] for line in lines if len(line.split()) == 2]


def test_a_job_over_its_queues_share_gives_it_back_and_goes_on_later(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("preemption", "log_aggregation")
    one = tony_on(cluster)
    size = memory(cluster) // 8
    counts, rightful = folder_for(one, "greedy"), folder_for(one, "rightful")
    greedy = one.submit(
        *("--executes", f"python3 train.py {counts}", "--src_dir", str(source(one))),
        conf={
            "tony.application.framework": "mpi",
            "tony.yarn.queue": "train",  # a third of what it takes is its own
            "tony.worker.instances": WORKERS,
            "tony.worker.memory": f"{size}m",
            "tony.am.retry-count": 0,  # the user's budget would not pay for a restart
        },
    )
    try:
        greedy.until(lambda: all(starts(counts, n) for n in range(WORKERS)), "all train")
        second = waiting(one, rightful, "default", 2, size)
        second.until(lambda: len(list(rightful.glob("up-*"))) == 2, "the share is given back", 240)
        greedy.until(lambda: "was preempted" in greedy.output_text, "the master says so")
    finally:
        (rightful / "over").touch()
    second.ends(0)
    greedy.until(
        lambda: all(starts(counts, n)[-1][0] > 0 for n in range(WORKERS)), "all train again", 240
    )
    for task in range(WORKERS):
        assert starts(counts, task)[0] == [0, 0]
        session, step = starts(counts, task)[-1]
        assert session > 0 and step > 0, "from its checkpoint"
    (counts / "over").touch()
    greedy.ends(0)
    kinds = [event["kind"] for event in greedy.events()]
    assert "preemption-warned" in kinds, kinds
    assert "left for system failures" in greedy.output_text
    until(one.nothing_runs, "no process is left on any node")


def source(one: Tony) -> Path:
    """A folder with the program alone."""
    folder = one.folder / "src"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINS)
    return folder


@pytest.mark.nightly
def test_a_user_at_his_limit_waits_and_reads_the_numbers(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """A tenth of the cluster for one user in that queue, whatever is free."""
    cluster = hadoop("queues", "log_aggregation")
    one = tony_on(cluster)
    size = memory(cluster) // 32
    first, second = folder_for(one, "first"), folder_for(one, "second")
    holds = waiting(one, first, "eval", 2, size)
    try:
        holds.until(lambda: len(list(first.glob("up-*"))) == 2, "the first runs", 240)
        waits = waiting(one, second, "eval", 2, size)
        # One container more than the limit is YARN's way of rounding.
        pattern = rf"[01] of 2 worker; [12] x \({size} MB, .* missing in the queue root.ml.eval; "
        pattern += r"the queue has \d+ MB.* left for this job"
        waits.until(lambda: re.search(pattern, waits.output_text), "it says why", 240)
        assert one.json("status", waits.app_id)["state"] == "RUNNING"
        assert not list(second.glob("up-*"))
    finally:
        (first / "over").touch()
        (second / "over").touch()
    holds.ends(0)
    waits.ends(0)
    until(one.nothing_runs, "no process is left on any node")


def test_a_queue_with_too_many_masters_lets_the_next_wait_with_the_numbers(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("preemption", "log_aggregation")
    one = tony_on(cluster)
    first, second = folder_for(one, "one"), folder_for(one, "two")
    holds = waiting(one, first, "tiny", 1, 64)
    try:
        holds.until(lambda: list(first.glob("up-*")), "the first runs")
        waits = waiting(one, second, "tiny", 1, 64)

        def reason() -> str:
            return str(one.json("status", waits.app_id)["diagnostics"])

        words = waits.until(lambda: "masters" in reason() and reason(), "YARN's reason", 240)
        assert one.json("status", waits.app_id)["state"] == "ACCEPTED"
        assert "256 MB" in words, words  # what is held, and what this one wants
        assert "tiny" in words
        until(lambda: "masters" in waits.output_text, "the client says it too")
    finally:
        (first / "over").touch()
        (second / "over").touch()
    holds.ends(0)
    waits.ends(0)
    until(one.nothing_runs, "no process is left on any node")
