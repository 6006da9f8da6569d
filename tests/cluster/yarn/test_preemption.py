"""A queue takes back its half, and the programs know before: they save, and lose no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Set

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until
from tests.cluster.yarn.test_queues import folder_for, memory, waiting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WORKERS = 7  # of an eighth of the cluster each
STEPS = 400
#: Saves when it is warned, and never else. It leaves a line for each step, warning and save.
TRAINS = """
import os, signal, sys, threading, time
import tony

folder, then = sys.argv[1], sys.argv[2]
task = tony.task()

def line(*words):
    with open(f"{folder}/lines-{task.index}", "a") as file:
        file.write(" ".join(map(str, (task.session, *words))) + "\\n")

signal.signal(signal.SIGUSR1, lambda number, frame: line("signal"))
warned = threading.Event()
tony.on_preemption(lambda left: (line("warned", left), warned.set()), lambda: line("withdrawn"))
saved = tony.checkpoints(f"{folder}/saved-{task.index}")
newest = saved.latest()
first = newest[0] + 1 if newest else 1
line("from", first)
for step in range(first, STEPS + 1):
    line("step", step)
    tony.report(progress=step / STEPS, step=step)
    if warned.is_set():
        warned.clear()
        saved.save(step, str(step).encode())
        line("saved", step, tony.preemption() is not None)
        if then == "exit":
            sys.exit(0)
    time.sleep(0.1)
""".replace("STEPS", str(STEPS))


def lines(folder: Path, task: int) -> List[List[str]]:
    path = folder / f"lines-{task}"
    found = path.read_text().splitlines(True) if path.exists() else []
    return [line.split() for line in found if line.endswith("\n")]


def words(folder: Path, task: int, what: str) -> List[List[str]]:
    return [line for line in lines(folder, task) if line[1] == what]


def greedy_job(one: Tony, folder: Path, then: str, size: int) -> Running:
    source = one.folder / "src"
    source.mkdir()
    (source / "train.py").write_text(TRAINS)
    return one.submit(
        *("--executes", f"python3 train.py {folder} {then}", "--src_dir", str(source)),
        conf={
            "tony.application.framework": "mpi",
            "tony.yarn.queue": "a",
            "tony.worker.instances": WORKERS,
            "tony.worker.memory": f"{size}m",
            "tony.am.retry-count": 0,  # the user's budget pays for nothing of this
            "tony.task.preemption-signal": "SIGUSR1",
        },
    )


@pytest.mark.parametrize("then", [pytest.param("stay", marks=pytest.mark.nightly), "exit"])
def test_programs_save_before_their_containers_go_and_lose_nothing_else(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], then: str
) -> None:
    cluster = hadoop("halves", "log_aggregation")
    one = tony_on(cluster)
    size = memory(cluster) // 8
    folder, other = folder_for(one, "greedy"), folder_for(one, "rightful")
    greedy = greedy_job(one, folder, then, size)
    every = range(WORKERS)
    try:
        greedy.until(lambda: all(words(folder, n, "step") for n in every), "all train", 240)
        second = waiting(one, other, "b", 2, size)
        greedy.until(lambda: all(words(folder, n, "saved") for n in every), "all save", 240)
        second.until(lambda: len(list(other.glob("up-*"))) == 2, "the half is given back", 240)
    finally:
        (other / "over").touch()
    second.ends(0)
    greedy.ends(0, 400)
    check_lines(folder, then)
    check_story(greedy, then)
    until(one.nothing_runs, "no process is left on any node")


@pytest.mark.nightly
def test_a_queue_that_needs_its_half_no_more_lets_the_programs_go_on(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """YARN does not announce it: a container that outlives twice the wait stays."""
    cluster = hadoop("halves", "log_aggregation")
    one = tony_on(cluster)
    size = memory(cluster) // 8
    folder, other = folder_for(one, "greedy"), folder_for(one, "rightful")
    greedy = greedy_job(one, folder, "stay", size)
    every = range(WORKERS)
    greedy.until(lambda: all(words(folder, n, "step") for n in every), "all train", 240)
    second = waiting(one, other, "b", 2, size)
    greedy.until(lambda: words(folder, 0, "warned"), "the warning", 240)
    second.close()
    greedy.until(lambda: all(words(folder, n, "withdrawn") for n in every), "it is withdrawn", 60)
    greedy.ends(0, 400)
    kinds = [event["kind"] for event in greedy.events()]
    assert kinds.count("preemption-withdrawn") >= 1 and "root-cause" not in kinds, kinds
    for task in every:
        assert {line[0] for line in lines(folder, task)} == {"0"}, "one session"
    until(one.nothing_runs, "no process is left on any node")


def check_lines(folder: Path, then: str) -> None:
    """All steps were done; those done twice came after the last checkpoint."""
    for task in range(WORKERS):
        steps: Dict[int, List[int]] = {}
        for session, _, step in words(folder, task, "step"):
            steps.setdefault(int(session), []).append(int(step))
        saves = {int(line[0]): int(line[2]) for line in words(folder, task, "saved")}
        assert {step for done in steps.values() for step in done} == set(range(1, STEPS + 1))
        assert len(steps) > 1, "its session was ended"
        last = 0
        for session, done in sorted(steps.items()):
            assert done == list(range(last + 1, done[-1] + 1)), f"{task} in {session}: {done}"
            last = saves.get(session, last)
            if then == "exit" and session in saves:
                assert done[-1] == saves[session], "not a step is done twice"
        warned = words(folder, task, "warned")
        assert 0.0 < float(warned[0][2]) <= 8.0, warned
        assert words(folder, task, "saved")[0][3] == "True"
        assert words(folder, task, "signal")


def check_story(greedy: Running, then: str) -> None:
    """The story has who asks, for what, how long, and what was sent."""
    events: List[Dict[str, Any]] = greedy.events()
    texts: Dict[str, List[str]] = {}
    asked: Set[str] = set()
    for event in events:
        texts.setdefault(event["kind"], []).append(event["text"])
        if event["kind"] == "preemption-warned":
            asked.update(event["fields"]["tasks"])
    pattern = r"YARN asks for the containers? of worker:\d.* back; [67] s left"
    assert re.fullmatch(pattern, texts["preemption-warned"][0]), texts
    assert texts["preemption-sent"][0].startswith("TonY warned the 7 programs of "), texts
    assert any("SIGUSR1 sent to its program" in text for text in texts["note"]), texts
    assert "preempted" in texts["root-cause"][0], texts
    assert all("left for system failures" in text for text in texts["restarting"]), texts
    # Each was named in one answer only: that the next ones lack it has to mean nothing.
    assert "preemption-withdrawn" not in texts, texts
    if then == "exit":
        assert len(texts["root-cause"]) == 1, f"{texts}: none began in a container asked for"
    assert asked, texts
