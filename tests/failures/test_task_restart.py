"""A task that is restarted within its session, on real processes: the others' stay the same."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

import pytest

from tests.failures.wreck import ONCE, Wreck, one_role, until
from tony_core.job.spec import Job, Mode, RestartScope, Tracking
from tony_core.schedulers.port import AppState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Try(NamedTuple):
    """One program, as it printed itself."""

    task: int
    restart: int
    executor: int
    pid: int


PRINTS_ITSELF = 'echo "$TASK_INDEX $TASK_RESTARTS $PPID $$"'


def restarting_job(command: str, tries: int = 3) -> Job:
    """Two plain workers, each of which is restarted within its session."""
    job = one_role(command, 2, framework="tensorflow", mode=Mode.FCFS, master=ONCE)
    (worker,) = job.roles
    scope = worker._replace(restart_scope=RestartScope.TASK, max_restarts=tries)
    return job.replace(roles=(scope,))


def programs_started(wreck: Wreck, count: int) -> Dict[int, List[Try]]:
    """The programs once there are so many, by their task."""

    def look() -> List[Try]:
        lines = [line for text in wreck.logs() for line in text.splitlines(keepends=True)]
        found = [Try(*map(int, line.split())) for line in lines if line.endswith("\n")]
        return found if len(found) == count else []

    tries: Dict[int, List[Try]] = {}
    for each in sorted(until(look, f"the word of {count} programs{wreck.words()}")):
        tries.setdefault(each.task, []).append(each)
    return tries


def two_that_wait(tony_home: Path, folder: Path) -> Tuple[Wreck, Path, Dict[int, List[Try]]]:
    """A job whose two programs have printed which they are, and end when a file is there."""
    go = folder / "go"
    wreck = Wreck(
        tony_home, restarting_job(f"{PRINTS_ITSELF}; until [ -e {go} ]; do sleep 0.05; done")
    )
    wreck.running(2)
    return wreck, go, programs_started(wreck, 2)


def test_only_the_killed_program_is_restarted(tony_home: Path, tmp_path: Path) -> None:
    wreck, go, before = two_that_wait(tony_home, tmp_path)
    os.kill(before[1][0].pid, signal.SIGKILL)
    after = programs_started(wreck, 3)
    assert after[0] == before[0]
    first, second = after[1]
    assert (second.restart, second.executor) == (1, first.executor), "in its container"
    os.kill(after[0][0].pid, 0)
    tasks = {task["task"]: task for task in (wreck.get("api/tasks") or {})["tasks"]}
    assert [tasks[f"worker:{index}"]["restarts"] for index in (0, 1)] == [0, 1]
    go.touch()
    wreck.ends(AppState.SUCCEEDED, "worker:1 is restarted on", "(1 of 3)", "signal 9")
    assert [event["session"] for event in wreck.history().events if event["session"] > 0] == []


def test_an_executor_is_killed_and_its_task_comes_back_elsewhere(
    tony_home: Path, tmp_path: Path
) -> None:
    wreck, go, before = two_that_wait(tony_home, tmp_path)
    os.kill(before[1][0].executor, signal.SIGKILL)
    after = programs_started(wreck, 3)
    assert after[0] == before[0]
    first, second = after[1]
    assert second.restart == 1 and second.executor != first.executor
    wreck.running(2)
    os.kill(wreck.master_pid(), signal.SIGKILL)
    wreck.running(2, attempt=2)
    assert programs_started(wreck, 3) == after, "a next master knows which is which"
    go.touch()
    wreck.ends(AppState.SUCCEEDED, "worker:1 is restarted in another container")


def test_gang_tasks_restart_at_their_known_address_or_not_at_all(
    tony_home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    command = f'echo "$PPID $$ $TF_CONFIG"; until [ -e {go} ]; do sleep 0.05; done'
    job = one_role(command, 1, framework="tensorflow", master=ONCE)
    (worker,) = job.roles
    untracked = worker._replace(tracking=Tracking.UNTRACKED, restart_scope=RestartScope.TASK)
    beside = [untracked._replace(name=name) for name in ("ps", "evaluator")]
    wreck = Wreck(tony_home, job.replace(roles=(worker, *beside)))
    wreck.running(3)

    def tries(count: int) -> Dict[str, List[str]]:
        """Role -> what each of its programs printed."""

        def look() -> List[str]:
            lines = [line for text in wreck.logs() for line in text.splitlines(keepends=True)]
            return lines if len(lines) == count and all(x.endswith("\n") for x in lines) else []

        found: Dict[str, List[str]] = {}
        for line in until(look, f"the word of {count} programs{wreck.words()}"):
            role = json.loads(line.split(" ", 2)[2])["task"]["type"]
            found.setdefault(role, []).append(line)
        return found

    before = tries(3)
    os.kill(int(before["ps"][0].split()[1]), signal.SIGKILL)
    after = tries(4)
    first, second = (line.split(" ", 2) for line in after["ps"])
    assert (first[0], first[2]) == (second[0], second[2]), "its executor, its port, its peers"
    os.kill(int(before["evaluator"][0].split()[0]), signal.SIGKILL)
    printed = [json.loads(line.split(" ", 2)[2]) for line in tries(5)["evaluator"]]
    assert [sorted(each["cluster"]) for each in printed] == [["evaluator", "ps", "worker"]] * 2
    assert printed[0]["cluster"]["ps"] == printed[1]["cluster"]["ps"]
    assert tries(5)["worker"] == before["worker"]
    go.touch()
    wreck.ends(AppState.SUCCEEDED, "ps:0 is restarted on", "evaluator:0 is restarted")


def test_when_no_try_is_left_the_session_fails(tony_home: Path) -> None:
    fails = "[ $TASK_INDEX = 0 ] || { echo try $TASK_RESTARTS >&2; exit 7; }; sleep 300"
    wreck = Wreck(tony_home, restarting_job(fails, tries=1))
    words = (
        "worker:1 is not restarted within its session (tony.worker.max-restarts)",
        "exit code 7",
        "try 1",
    )
    wreck.ends(AppState.FAILED, *words)
