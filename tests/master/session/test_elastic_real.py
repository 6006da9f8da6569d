"""An elastic job of real processes: 2 -> 4 as room comes free, 4 -> 3 as a container is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, List

import pytest

from tests.master.test_master_real import Submitted, a_job, pids_of
from tony_core.job.spec import Local, Resources, Role, Timeouts
from tony_core.schedulers.port import AppState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PHASE = 40  # steps between one gate and the next

# All of a round meet at rank 0's address and add up a bit for each; none can be missing or two.
# A step is committed by a link, which can be made once only. Gates keep the phases apart.
PROGRAM = """
import json, os, socket, sys, time
here, phase = sys.argv[1], int(sys.argv[2])
index, number = int(os.environ["TASK_INDEX"]), int(os.environ["TASK_NUM"])
session = int(os.environ["SESSION_ID"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
workers = json.loads(os.environ["CLUSTER_SPEC"])["worker"]
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert number == size == len(workers) == len(set(workers)), (number, size, workers)
assert rank == index and workers[0] == f"{host}:{port}", (rank, index, workers, host, port)

def called():
    while True:
        try:
            return socket.create_connection((host, port), 120)
        except ConnectionRefusedError:
            time.sleep(0.02)  # rank 0 comes to it later than we

def added_up():
    if rank == 0:
        with socket.socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((host, port))
            door.listen(size)
            door.settimeout(120)
            peers = [door.accept()[0].makefile("rw") for _ in range(size - 1)]
        reports = [[int(word) for word in peer.readline().split()] for peer in peers]
        assert all(theirs == session for theirs, _ in reports), (session, reports)
        total = 1 + sum(number for _, number in reports)
        for peer in peers:
            print(total, file=peer, flush=True)
        return total
    with called() as sock, sock.makefile("rw") as stream:
        print(session, 1 << rank, file=stream, flush=True)
        return int(stream.readline())

total = added_up()
assert total == (1 << size) - 1, (total, size)
for step in range(3 * phase):
    while not os.path.exists(f"{here}/gate-{step // phase}"):
        time.sleep(0.02)
    done = f"{here}/step-{step}"
    if step % number != index or os.path.exists(done):
        continue
    time.sleep(0.02)
    mine = f"{here}/tmp-{session}-{index}"
    with open(mine, "w") as stream:
        stream.write(f"{step} {session} {index} {number} {total}")
    os.link(mine, done)
    os.unlink(mine)
"""


def until(what: Any, why: str) -> Any:
    """Patient: a round has many steps, and the machine may be busy."""
    end = time.monotonic() + 120.0
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {why}"
        time.sleep(0.05)


def steps(folder: Path) -> List[List[int]]:
    """Every committed step: itself, session, task, tasks, the sum over all of them."""
    texts = [path.read_text() for path in folder.glob("step-*")]
    return sorted([int(word) for word in text.split()] for text in texts)


def executor_of(submitted: Submitted, task: str) -> int:
    """The process id of a task's executor."""
    tasks: Any = submitted.get("api/tasks")
    (container,) = [item["container"] for item in tasks["tasks"] if item["task"] == task]
    path = Path(submitted.folder.container(container).process)
    return int(json.loads(path.read_text())["pid"])


def test_it_grows_and_shrinks_and_does_every_step_once(tony_home: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    work = tmp_path / "work"
    work.mkdir()
    room = Local(memory_mb=800)
    holder = Submitted(tony_home, a_job("sleep 600", 2, local=room))
    until(lambda: _running(holder, 2), "the room to be taken")
    worker = Role(
        "worker",
        4,
        Resources(memory_mb=200),
        f"exec {sys.executable} {program} {work} {PHASE}",
        min_instances=2,
    )
    times = Timeouts(kill_grace_s=1.0, elastic_interval_s=1.0, max_missed_heartbeats=600)
    job = a_job("true", local=room, timeouts=times).replace(roles=(worker,))
    submitted = Submitted(tony_home, job)
    until(lambda: _running(submitted, 2), "two workers" + submitted.words())
    (work / "gate-0").touch()
    until(lambda: len(steps(work)) == PHASE, "the first steps" + submitted.words())

    holder.scheduler.kill(holder.app_id, "its room is wanted")
    grown = until(lambda: _running(submitted, 4), "four workers" + submitted.words())
    assert grown["elastic"] == {"worker": {"there": 4, "least": 2, "most": 4}}
    (work / "gate-1").touch()
    until(lambda: len(steps(work)) == 2 * PHASE, "the next steps" + submitted.words())

    # What becomes free is another job's before the master of this one can ask for it.
    taker = Submitted(tony_home, a_job("sleep 600", 1, local=room))
    until(lambda: (taker.get("api/job") or {}).get("waiting"), "another job to wait for room")
    executor, master = executor_of(submitted, "worker:2"), submitted.master_pid()
    os.kill(master, signal.SIGSTOP)
    try:
        os.kill(executor, signal.SIGKILL)
        until(lambda: _running(taker, 1), "the other job to take the room")
    finally:
        os.kill(master, signal.SIGCONT)
    until(lambda: (submitted.get("api/job") or {}).get("session", 0) > grown["session"], "a round")
    (work / "gate-2").touch()
    until(lambda: submitted.status().state.ended, "the end" + submitted.words())
    status = submitted.status()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()

    done = steps(work)
    assert [step for step, *_ in done] == list(range(3 * PHASE))
    assert sum(step for step, *_ in done) == sum(range(3 * PHASE))
    numbers = [number for *_, number, _ in done]
    assert all(total == 2**number - 1 for *_, number, total in done)
    assert set(numbers[:PHASE]) == {2} and set(numbers[PHASE : 2 * PHASE]) == {4}
    assert set(numbers[2 * PHASE :]) == {3}
    story = [event["text"] for event in submitted.history().events if event["kind"] == "elastic"]
    begun = [text for text in story if text.endswith(" worker begin")]
    # Those who come may be further apart than a round is long: then it grows in two steps.
    counts = [int(text.split()[0]) for text in begun]
    assert counts in ([2, 4, 3], [2, 3, 4, 3]), story
    assert begun == [f"{number} of 2..4 worker begin" for number in counts]
    assert any(text.startswith("goes on with 3 of 4 worker: worker:2 lost") for text in story)
    taker.scheduler.kill(taker.app_id, "enough")
    until(lambda: taker.status().state.ended, "the other job's end")
    until(lambda: not pids_of(submitted.app_id), "every process to go")


def _running(submitted: Submitted, count: int) -> Any:
    """The job when so many run, in whichever round."""
    status = submitted.status()
    assert not status.state.ended, status.diagnostics + submitted.words()
    job = submitted.get("api/job")
    return job if job and job["counts"].get("running") == count else None
