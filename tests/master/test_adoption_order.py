"""Ends that reach a new master while it still waits for the other executors."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from tony_core.job.spec import Job, MasterSpec, Resources, Role
from tony_core.master.session.events import ContainersInherited, ExecutorRegistered, TaskEnded, Tick
from tony_core.master.session.machine import SessionMachine
from tony_core.schedulers.port import AppState, Container

RECORD = {
    "session": 0, "elapsed_s": 1.0, "budgets": {}, "parameters": None,
    "released": {"worker": 0}, "started": ["worker"], "done": [], "chief_done": False,
    "outcome": None, "diagnostics": "", "root": {},
}  # fmt: skip


def adopted(ends: List[Tuple[int, int]], silent: Tuple[int, ...] = ()) -> SessionMachine:
    """A machine that took three workers over, some of which had ended so."""
    job = Job(
        "j", (Role("worker", 3, Resources(), "x"),), framework="standalone",
        master=MasterSpec(user_retries=0, infrastructure_retries=0),
    )  # fmt: skip
    machine = SessionMachine(job, settle_s=0.1)
    containers = tuple(Container(f"c{n}", "n", "worker", Resources()) for n in range(3))
    machine.handle(ContainersInherited(0.0, containers, RECORD))
    codes = dict(ends)
    for number in sorted(range(3), key=lambda n: n not in codes):
        if number in silent:
            continue
        phase = "ended" if number in codes else "running"
        machine.handle(
            ExecutorRegistered(
                0.1, f"c{number}", "h:1", f"worker:{number}", 0, phase, "h", {"main": 1}
            )
        )
        if number in codes:
            machine.handle(TaskEnded(0.1, f"c{number}", 0, codes[number]))
        machine.validate()
    return machine


@pytest.mark.parametrize(
    "ends", [[(0, 0), (1, 4), (2, 0)], [(1, 4), (0, 0), (2, 0)], [(0, 4), (1, 0), (2, 0)]]
)
def test_a_failure_among_successes_is_never_passed_over(ends: List[Tuple[int, int]]) -> None:
    machine = adopted(ends)
    machine.handle(Tick(10.0))
    machine.validate()
    assert machine.outcome is AppState.FAILED
    assert "exit code 4" in machine.diagnostics


def test_a_missing_task_is_a_failure_though_all_others_succeeded() -> None:
    machine = adopted([(0, 0), (1, 0)], silent=(2,))
    machine.handle(Tick(30.0))
    machine.handle(Tick(40.0))
    machine.validate()
    assert machine.outcome is AppState.FAILED
    assert "worker:2" in machine.diagnostics


def test_successes_that_were_early_count() -> None:
    assert adopted([(0, 0), (1, 0), (2, 0)]).outcome is AppState.SUCCEEDED
    machine = adopted([(0, 0), (1, 0)])
    assert machine.outcome is None
    machine.handle(TaskEnded(5.0, "c2", 0, 0))
    assert machine.outcome is AppState.SUCCEEDED
