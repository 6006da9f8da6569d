"""Which roles may be started again task by task, by each framework's word."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from tests.frameworks.gangs import job
from tony_core.client.submission import load
from tony_core.frameworks import find_framework
from tony_core.frameworks.base import Framework, TaskRestart, refuse_task_restart
from tony_core.job.load import JobArguments
from tony_core.job.problems import JobError
from tony_core.job.spec import Mode, RestartScope, Tracking

PLACE = TaskRestart(address_bound=True)
ANYWHERE = TaskRestart()


def restart_rule(framework: str, counts: Dict[str, int], role: str, **fields: Any) -> TaskRestart:
    made = job(framework, counts, **fields)
    return find_framework(framework).task_restart(made, made.role(role))


@pytest.mark.parametrize(
    "name", ["pytorch", "jax", "mpi", "horovod", "xgboost", "lightgbm", "ray", "mxnet"]
)
def test_what_trains_together_cannot_take_one_back(name: str) -> None:
    counts = {"scheduler": 1, "server": 1, "worker": 2, "reader": 1}
    tracking = {"reader": Tracking.UNTRACKED, "server": Tracking.UNTRACKED}
    assert (
        "cannot go on with a restarted one"
        in restart_rule(name, counts, "worker", tracking=tracking).why_not
    )
    beside = restart_rule(name, counts, "reader", tracking=tracking)
    assert not beside.why_not
    assert beside.address_bound == find_framework(name).needs_full_spec


@pytest.mark.parametrize(
    ("counts", "role", "may"),
    [
        ({"chief": 1, "worker": 2, "ps": 1}, "worker", PLACE),
        ({"chief": 1, "worker": 2, "ps": 1}, "ps", PLACE),
        ({"worker": 2, "ps": 1}, "worker", PLACE),
        ({"chief": 1, "worker": 2, "reader": 1, "ps": 1}, "reader", PLACE),
        ({"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}, "evaluator", ANYWHERE),
        ({"worker": 2, "tensorboard": 1}, "tensorboard", ANYWHERE),
        ({"worker": 1, "tensorboard": 1}, "worker", ANYWHERE),
    ],
)
def test_tensorflow(counts: Dict[str, int], role: str, may: TaskRestart) -> None:
    assert restart_rule("tensorflow", counts, role) == may


def test_tensorflow_without_parameter_servers_trains_together() -> None:
    assert "without a ps" in restart_rule("tensorflow", {"chief": 1, "worker": 2}, "worker").why_not
    stages = restart_rule(
        "tensorflow", {"prep": 1, "worker": 1}, "worker", depends={"worker": ("prep",)}
    )
    assert stages == ANYWHERE, "what stands in another stage is no peer"


def test_plain_programs_come_back_anywhere() -> None:
    assert restart_rule("tensorflow", {"worker": 4}, "worker", mode=Mode.FCFS) == ANYWHERE
    assert restart_rule("standalone", {"worker": 1}, "worker") == ANYWHERE


def test_a_framework_without_a_restart_rule_gets_the_careful_one() -> None:
    class Other(Framework):
        name = "other"
        needs_full_spec = True

    made = job("other", {"worker": 2, "ps": 1, "tensorboard": 1})
    found = [Other().task_restart(made, role) for role in made.roles]
    assert [bool(each.why_not) for each in found] == [True, False, False]
    assert [each.address_bound for each in found] == [False, True, False]


def refused(*words: str) -> List[str]:
    conf = ["tony.worker.instances=2", "tony.worker.restart-scope=task", *words]
    arguments = JobArguments(conf=tuple(conf), executes="true")
    try:
        load(arguments, env={}, finds_job_file=False)
    except JobError as error:
        return [f"{problem.key}: {problem.message}" for problem in error.problems]
    return []


def test_a_submit_is_refused_with_one_message() -> None:
    (text,) = refused("tony.application.framework=pytorch")
    assert text == (
        "tony.worker.restart-scope: tasks that train under pytorch cannot go on with a"
        " restarted one: it must be session"
    )
    (text,) = refused()
    assert "tony.application.distributed-mode=FCFS" in text
    assert refused("tony.ps.instances=1") == []
    assert refused("tony.application.distributed-mode=FCFS") == []


def test_session_is_always_right() -> None:
    made = job("pytorch", {"worker": 2})
    assert made.roles[0].restart_scope is RestartScope.SESSION
    assert refuse_task_restart(made, find_framework("pytorch")) == []
