"""Ends that reach a new master while it still waits for the other executors."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from tests.master.session.test_elastic import elastic
from tests.master.session.world import registered
from tony_core.job.spec import Job, MasterSpec, Resources, Role
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.machine import SessionMachine
from tony_core.protocol.messages import Ended
from tony_core.schedulers.container_pool import Allocated, Container
from tony_core.schedulers.port import AppState

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
    machine.handle(e.ContainersInherited(containers, RECORD), 0.0)
    codes = dict(ends)
    for number in sorted(range(3), key=lambda n: n not in codes):
        if number in silent:
            continue
        phase = "ended" if number in codes else "running"
        task, ports = f"worker:{number}", {"main": 1}
        call = registered(f"c{number}", task=task, session=0, phase=phase, ports=ports)
        machine.handle(call, 0.1)
        if number in codes:
            machine.handle(e.ExecutorReported(f"c{number}", Ended(0, codes[number])), 0.1)
        machine.validate()
    return machine


@pytest.mark.parametrize(
    "ends", [[(0, 0), (1, 4), (2, 0)], [(1, 4), (0, 0), (2, 0)], [(0, 4), (1, 0), (2, 0)]]
)
def test_a_failure_among_successes_is_never_passed_over(ends: List[Tuple[int, int]]) -> None:
    machine = adopted(ends)
    machine.handle(e.Tick(), 10.0)
    machine.validate()
    assert machine.state.outcome is AppState.FAILED
    assert "exit code 4" in machine.state.diagnostics


def test_a_missing_task_is_a_failure_though_all_others_succeeded() -> None:
    machine = adopted([(0, 0), (1, 0)], silent=(2,))
    machine.handle(e.Tick(), 30.0)
    machine.handle(e.Tick(), 40.0)
    machine.validate()
    assert machine.state.outcome is AppState.FAILED
    assert "worker:2" in machine.state.diagnostics


def test_successes_that_were_early_count() -> None:
    assert adopted([(0, 0), (1, 0), (2, 0)]).state.outcome is AppState.SUCCEEDED
    machine = adopted([(0, 0), (1, 0)])
    assert machine.state.outcome is None
    machine.handle(e.ExecutorReported("c2", Ended(0, 0)), 5.0)
    assert machine.state.outcome is AppState.SUCCEEDED


def test_a_container_granted_during_a_takeover_has_its_own_time_to_register() -> None:
    """Stopped with those of the previous attempt, its task would wait for it for ever."""
    machine = SessionMachine(elastic(2, 4), settle_s=0.1)
    left = Container("left", "n0", "worker", Resources())
    machine.handle(e.ContainersInherited((left,), {**RECORD, "started": []}), 0.0)
    out = []
    for number in (1, 2, 3):
        granted = Container(f"c{number}", "n1", "worker", Resources())
        out += machine.handle(Allocated((granted,)), 15.0)
    launched = {command.container_id for command in out if isinstance(command, c.LaunchExecutor)}
    assert launched
    out = machine.handle(e.Tick(), 20.5)
    stopped = {command.container_id for command in out if isinstance(command, c.StopContainer)}
    assert stopped == {"left"}
    for name in launched:
        machine.handle(registered(name), 21.0)
    machine.handle(e.Tick(), 41.0)
    machine.validate()
    ready = [task for task in machine.state.tasks.values() if task.container in launched]
    assert len(ready) == len(launched)


@pytest.mark.parametrize(("count", "what"), [(1, "1 container"), (3, "3 containers")])
def test_the_story_counts_what_was_taken_over(count: int, what: str) -> None:
    containers = tuple(Container(f"c{n}", "n", "worker", Resources()) for n in range(count))
    for record, text in (
        (RECORD, f"a new master takes over {what} of session 0"),
        ({}, f"{what} of the previous attempt belong{'s' if count == 1 else ''} to no session"),
    ):
        job = Job("j", (Role("worker", count, Resources(), "x"),), framework="standalone")
        machine = SessionMachine(job, settle_s=0.1)
        done = machine.handle(e.ContainersInherited(containers, record), 0.0)
        assert any(text in line.text for line in done if isinstance(line, c.AddStoryLine)), text
