"""Real jobs whose programs hang, on the embedded scheduler: seen, named, and gone on with."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, List

import pytest

from tests.failures.wreck import ONCE, Wreck, one_role, until
from tony_core.job.spec import Job, MasterSpec, Program, StallAction, Timeouts
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.timeout(300)

# Ranks that meet at a barrier of files in each step, as a collective does; one does not come.
GANG = """
import os, sys, time, tony
folder, hangs_at, silent = sys.argv[1], int(sys.argv[2]), "silent" in sys.argv
task = tony.task()
index = 0 if silent else task.index  # rank 0 alone reports and saves
saved = tony.checkpoints(os.path.join(folder, "saved", str(index)))
newest = saved.latest()
first = newest[0] + 1 if newest else 0

def compute():  # enough that it does not seem to stand still, as NCCL
    sum(range(20000))
    time.sleep(0.001)

def all_reduce(step):
    open(os.path.join(folder, f"{task.session}-{step}-{task.index}"), "w").close()
    while any(
        not os.path.exists(os.path.join(folder, f"{task.session}-{step}-{i}"))
        for i in range(task.count)
    ):
        compute() if silent else time.sleep(0.01)

def load_batch(step):
    if step == hangs_at and task.index == 1 and task.session == 0:
        while silent:
            compute()
        time.sleep(600)

for step in range(first, 8):
    load_batch(step)
    all_reduce(step)
    with open(os.path.join(folder, f"done-{task.index}"), "a") as file:
        file.write(f"{step}\\n")
    if index == task.index:
        tony.report(step=step)
        saved.save(step, b"weights")
    time.sleep(0.1)
"""


def watched(folder: Path, text: str, arguments: str = "", count: int = 1, **more: Any) -> Job:
    path = folder / "train.py"
    path.write_text(text)
    action = more.pop("action", StallAction.WARN)
    timeouts = Timeouts(kill_grace_s=1.0, stall_s=4.0, stall_action=action)
    command = f"exec {sys.executable} {path} {arguments}"
    return one_role(command, count, timeouts=timeouts, program=Program(), **more)


def kinds(wreck: Wreck) -> List[str]:
    story = wreck.history().events
    return [str(each["kind"]) for each in story if str(each["kind"]).startswith("stall")]


def texts(wreck: Wreck, kind: str) -> List[str]:
    return [str(each["text"]) for each in wreck.history().events if each["kind"] == kind]


def trouble(wreck: Wreck) -> str:
    return str((wreck.get("api/job") or {}).get("trouble", ""))


def test_the_rank_that_does_not_join_is_named_in_story_and_page(
    tony_home: Path, tmp_path: Path
) -> None:
    wreck = Wreck(tony_home, watched(tmp_path, GANG, f"{tmp_path} 3", 3))
    until(lambda: (wreck.get("api/job") or {}).get("trouble"), "the stall on the page")
    trouble = wreck.get("api/job")["trouble"]
    assert "3 tasks have stalled" in trouble and "no step for" in trouble
    assert "worker:1 lags: it is not in the collective" in trouble
    assert "load_batch" in trouble
    assert wreck.get("api/job")["stalled"] == 3
    until(lambda: wreck.scheduler.status(wreck.app_id).trouble == trouble, "the stall in tony list")
    assert wreck.get("api/job")["counts"] == {"running": 3}, "the looking ended a program"
    logs = "\n".join(wreck.logs("stderr"))
    assert "in load_batch" in logs and logs.count("in all_reduce") == 2
    wreck.scheduler.kill(wreck.app_id, "the test is over")
    wreck.ends(AppState.KILLED)
    assert kinds(wreck) == ["stalled"]


def test_a_rank_that_reports_no_step_is_named_and_ended_for_the_stall_of_rank_0(
    tony_home: Path, tmp_path: Path
) -> None:
    spec = watched(
        tmp_path, GANG, f"{tmp_path} 3 silent", 3, action=StallAction.RESTART,
        master=MasterSpec(user_retries=1, infrastructure_retries=0),
    )  # fmt: skip
    wreck = Wreck(tony_home, spec)
    wreck.ends(AppState.SUCCEEDED, "worker:1 failed on", "failed: stalled")
    assert kinds(wreck) == ["stalled", "stall-over"]
    (text,) = texts(wreck, "stalled")
    assert "worker:0 has stalled: no step for" in text and "the last was 2" in text
    assert "worker:1 lags: it is not in the collective" in text and "worker:2" not in text
    logs = wreck.logs("stderr")
    assert any("in load_batch" in log for log in logs)
    assert sum("worker:0 has stalled: the stacks of" in log for log in logs) == 2
    assert (tmp_path / "done-0").read_text().split() == [str(step) for step in range(8)]


def test_a_restart_continues_from_the_checkpoint_and_does_each_step_once(
    tony_home: Path, tmp_path: Path
) -> None:
    spec = watched(
        tmp_path, GANG, f"{tmp_path} 3", 3, action=StallAction.RESTART,
        master=MasterSpec(user_retries=1, infrastructure_retries=0),
    )  # fmt: skip
    wreck = Wreck(tony_home, spec)
    wreck.ends(
        AppState.SUCCEEDED,
        "worker:1 failed on",
        "failed: stalled",
        "tony.task.stall-action=restart",
    )
    assert kinds(wreck) == ["stalled", "stall-over"]
    for index in range(3):
        done = (tmp_path / f"done-{index}").read_text().split()
        assert done == [str(step) for step in range(8)]


# Worker 0 hangs at step 2; worker 1 goes on from there once it is let, and hangs at step 79.
TWO = """
import os, sys, time, tony
task = tony.task()
for step in range(80):
    tony.report(step=step)
    go = f"{sys.argv[1]}/go-{task.index}"
    while step == 2 and task.session == 0 and not os.path.exists(go):
        time.sleep(0.02)
    time.sleep(0.1)
time.sleep(600 if task.session == 0 else 0)
"""


@pytest.mark.nightly
def test_a_task_that_was_suspended_and_hangs_later_is_followed_and_acted_upon(
    tony_home: Path, tmp_path: Path
) -> None:
    spec = watched(
        tmp_path, TWO, str(tmp_path), 2, action=StallAction.RESTART,
        master=MasterSpec(user_retries=1, infrastructure_retries=0),
    )  # fmt: skip
    wreck = Wreck(tony_home, spec)

    def at_step_2() -> Any:
        tasks = (wreck.get("api/tasks") or {}).get("tasks", [])
        found = [task["pid"] for task in tasks if task.get("step") == 2]
        return found if len(found) == 2 else None

    pid = until(at_step_2, "both at step 2")[1]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: "worker:1 is suspended" in trouble(wreck), "the stall on the page")
    (tmp_path / "go-1").touch()
    os.kill(pid, signal.SIGCONT)
    until(lambda: "the others go on" in trouble(wreck), "worker:1 to go on")
    until(lambda: "worker:0 lags" in trouble(wreck), "worker:0 to be named")
    wreck.ends(AppState.SUCCEEDED, "worker:0 failed on", "failed: stalled")
    assert kinds(wreck) == ["stalled", "stall-lag", "stall-over"]
    (text,) = texts(wreck, "stall-lag")
    assert "worker:0 lags: its last step is 2, the others' 79" in text


def test_fail_ends_the_job_with_the_stall_as_its_root_cause(
    tony_home: Path, tmp_path: Path
) -> None:
    text = "import tony, time\nfor n in range(4):\n    tony.report(step=n)\n    time.sleep(0.2)\n"
    text += "def spin():\n    while True:\n        pass\nspin()\n"
    spec = watched(tmp_path, text, action=StallAction.FAIL, master=ONCE._replace(user_retries=3))
    wreck = Wreck(tony_home, spec)
    wreck.ends(AppState.FAILED, "stalled", "no step for", "the last was 3", "spin")
    cause = wreck.history().job["root_cause"]
    assert (cause["task"], cause["cause"], cause["fault"]) == ("worker:0", "stalled", "user")


def test_a_master_that_dies_meanwhile_leaves_one_line_and_the_next_writes_its_end(
    tony_home: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = "import tony, time\nfor n in range(4):\n    tony.report(step=n)\n    time.sleep(0.2)\n"
    text += f"open({str(fifo)!r}).read()\ntony.report(step=4)\ntime.sleep(2)\n"
    spec = watched(tmp_path, text, master=MasterSpec(max_attempts=2))
    wreck = Wreck(tony_home, spec)
    until(lambda: (wreck.get("api/job") or {}).get("trouble"), "the stall on the page")
    until(lambda: kinds(wreck), "the line in history")
    os.kill(wreck.master_pid(), signal.SIGKILL)
    wreck.running(1, attempt=2)
    until(lambda: (wreck.get("api/job") or {}).get("trouble"), "the next master's page")
    with open(fifo, "w") as file:
        file.write("input")
    wreck.ends(AppState.SUCCEEDED, "moves again")
    assert kinds(wreck) == ["stalled", "stall-over"]
    assert not texts(wreck, "restarting")
