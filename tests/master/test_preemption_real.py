"""A scheduler takes a container back from a real master with real executors and real programs.

The embedded scheduler never takes anything back, so the scheduler is the test's: it starts each
executor as a process, and ends it when it has had its time.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Dict, List

import pytest

from tests.executor.standin import Executor
from tests.master.shell import SECRET, ScriptedPool, Shell, a_job, until
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import MasterSpec, Program, Resources, Role
from tony_core.schedulers.container_pool import (
    Container,
    Launch,
    PreemptionRequested,
    PreemptionWithdrawn,
)
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.timeout(180)

TRAINS = """
import os, signal, sys, time
import tony

folder, then = sys.argv[1], sys.argv[2]
task = tony.task()

def line(*words):
    with open(f"{folder}/lines-{task.index}", "a") as file:
        file.write(" ".join(map(str, (task.session, *words))) + "\\n")

tony.on_preemption(lambda left: line("warned", left), lambda: line("withdrawn"))
saved = tony.checkpoints(f"{folder}/saved-{task.index}")
newest = saved.latest()
step = newest[0] if newest else 0
line("from", step)
is_saved = False
while not os.path.exists(f"{folder}/over"):
    step += 1
    preemption = tony.preemption()
    if preemption and not is_saved:
        saved.save(step, b"x")
        line("saved", step, preemption.is_own)
        if then == "exit":
            time.sleep(0.3)  # its callback may be slower than it
            sys.exit(0)
    is_saved = preemption is not None
    time.sleep(0.02)
"""


class TakingPool(ScriptedPool):
    """Starts executors as processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.executors: Dict[str, Executor] = {}
        self.threads: List[threading.Thread] = []

    def launch(self, container: Container, launch: Launch) -> None:
        super().launch(container, launch)
        executor = Executor(self.folder, launch.argv[-1], name=container.id, secret=SECRET)
        self.executors[container.id] = executor
        thread = threading.Thread(target=self._watch, args=(container.id, executor))
        self.threads.append(thread)
        thread.start()

    def _watch(self, container_id: str, executor: Executor) -> None:
        self.end(container_id, executor.wait())

    def stop(self, container_id: str) -> None:
        self.executors[container_id].process.terminate()

    def preempt(self, container_id: str) -> None:
        """Its time is over."""
        self.end(container_id, 137, ExitCause.PREEMPTED)
        self.executors[container_id].process.terminate()

    def close(self) -> None:
        super().close()
        for executor in self.executors.values():
            executor.close()
        for thread in self.threads:
            thread.join(60)


def lines(folder: Path, task: int) -> List[List[str]]:
    path = folder / f"lines-{task}"
    found = path.read_text().splitlines(True) if path.exists() else []
    return [line.split() for line in found if line.endswith("\n")]


def has(folder: Path, task: int, *what: str) -> bool:
    return set(what) <= {line[1] for line in lines(folder, task)}


def make_shell(folder: Path, then: str) -> Shell:
    (folder / "train.py").write_text(TRAINS)
    command = f"{sys.executable} {folder / 'train.py'} {folder} {then}"
    job = a_job(
        Role("worker", 2, Resources(), command),
        master=MasterSpec(user_retries=0),
        program=Program(preemption_signal="SIGUSR2"),
    )
    return Shell(folder, job, TakingPool(folder))


def container_of(shell: Shell, task: str) -> str:
    tasks = {item["task"]: item for item in shell.json("/api/tasks")["tasks"]}
    return str(tasks[task]["container"])


@pytest.mark.parametrize("then", ["stay", "exit"])
def test_programs_save_and_go_on_from_there_in_the_next_session(tmp_path: Path, then: str) -> None:
    with make_shell(tmp_path, then) as shell:
        pool = shell.pool
        assert isinstance(pool, TakingPool)
        until(lambda: all(lines(tmp_path, n) for n in (0, 1)), "both train")
        asked = container_of(shell, "worker:1")
        pool.sink(PreemptionRequested((asked,), 30.0))
        until(lambda: all(has(tmp_path, n, "saved", "warned") for n in (0, 1)), "both have saved")
        if then == "stay":
            pool.preempt(asked)
        until(lambda: all(lines(tmp_path, n)[-1][:2] == ["1", "from"] for n in (0, 1)), "the next")
        assert container_of(shell, "worker:1") != asked
        assert container_of(shell, "worker:0") == "c1-1", "a warm restart keeps what it can"
        assert shell.story("preemption-warned") == [
            "the scheduler asks for the container of worker:1 back; 30 s left"
        ]
        assert shell.story("preemption-sent") == [
            "TonY warned the 2 programs of worker:0, worker:1 (30 s left)"
        ]
        assert all("handles SIGUSR2: it was not sent" in text for text in shell.story("note"))
        (tmp_path / "over").touch()
        assert shell.join()[0] is AppState.SUCCEEDED
    for task in (0, 1):
        before = lines(tmp_path, task)
        (warned,) = [line for line in before if line[1] == "warned"]
        assert 0.0 < float(warned[2]) <= 30.0
        (saved,) = [line for line in before if line[1] == "saved"]
        assert saved[3] == str(task == 1)
        assert before[-1] == ["1", "from", saved[2]]


def test_what_is_withdrawn_reaches_the_programs_and_the_job_goes_on(tmp_path: Path) -> None:
    with make_shell(tmp_path, "stay") as shell:
        until(lambda: all(lines(tmp_path, n) for n in (0, 1)), "both train")
        asked = container_of(shell, "worker:0")
        shell.pool.sink(PreemptionRequested((asked,), None))
        until(lambda: all(has(tmp_path, n, "saved", "warned") for n in (0, 1)), "both have saved")
        shell.pool.sink(PreemptionWithdrawn((asked,)))
        until(lambda: all(lines(tmp_path, n)[-1][1] == "withdrawn" for n in (0, 1)), "withdrawn")
        assert shell.story("preemption-withdrawn") == [
            "the scheduler no longer asks for the container of worker:0"
        ]
        (tmp_path / "over").touch()
        assert shell.join()[0] is AppState.SUCCEEDED
    assert ["0", "warned", "None"] in lines(tmp_path, 0)
