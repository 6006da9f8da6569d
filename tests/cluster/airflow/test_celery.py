"""As sites have it: PostgreSQL, the CeleryExecutor with Redis, two triggerers."""

from __future__ import annotations

import signal
from datetime import date
from random import Random
from typing import Callable, List

import pytest

from tests.cluster.airflow import dags
from tests.cluster.airflow.killing import STRIKES, Strike, component, hit
from tests.cluster.airflow.rest import wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import Training

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]

DAGS = {"trainings.py": dags.TRAININGS}
CELERY = True

Train = Callable[..., Training]


def train(training: Train, *dag_ids: str) -> List[Training]:
    """Runs of the DAGs, at the same time; their programs run."""
    found = [training(dag_id) for dag_id in dag_ids]
    for one in found:
        one.trains()
        one.wait("deferred" if one.place[0].startswith("deferred") else "running")
    return found


def test_it_is_what_it_is_meant_to_be(airflow: Airflow) -> None:
    assert "CeleryExecutor" in airflow.command("config", "get-value", "core", "executor")
    assert "postgresql" in airflow.command("config", "get-value", "database", "sql_alchemy_conn")
    assert "tony-py" in airflow.command("providers", "list")


def test_success(training: Train) -> None:
    for one in train(training, "sync", "deferred"):
        app_id = one.trains()
        one.over()
        one.wait("success")
        assert one.gone(app_id) == {app_id: "SUCCEEDED"}
        assert one.result()["application_id"] == app_id
        assert app_id in one.wait_for_words("worker:0")


@pytest.mark.parametrize("state", ["failed", "success"])
def test_marked(training: Train, state: str) -> None:
    for one in train(training, "sync", "deferred"):
        app_id = one.trains()
        one.rest.mark(one.place, state)
        assert one.gone(app_id) == {app_id: "KILLED"}
        assert one.task()["state"] == state


def test_either_triggerer_is_enough(airflow: Airflow, training: Train) -> None:
    found = train(training, "deferred", "deferred")
    for one, name in zip(found, ("triggerer", "triggerer2"), strict=True):
        app_id = one.trains()
        airflow.power_cut(name)
        one.over()
        one.wait("success", tries=1)
        assert one.gone(app_id) == {app_id: "SUCCEEDED"}
        airflow.start(name)
        airflow.wait_healthy()


def test_a_stopped_worker_finishes_its_tasks(airflow: Airflow, training: Train) -> None:
    (one,) = train(training, "sync_retried")
    app_id = one.trains()
    airflow.call("signal", daemon="worker", signal=int(signal.SIGTERM))
    wait_for(
        lambda: airflow.log_tail("worker"),
        lambda log: "Warm shutdown" in log,
        lambda log: f"it does not end: {log}",
    )
    assert one.goes_on(app_id)
    one.over()
    one.wait("success", tries=1)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}
    wait_for(
        lambda: airflow.daemons()["worker"]["exit"],
        lambda code: code is not None,
        lambda _: airflow.log_tail("worker"),
    )
    airflow.start("worker")


def test_a_worker_that_is_stopped_and_then_killed(airflow: Airflow, training: Train) -> None:
    # As when the time is over that Kubernetes leaves a pod.
    (one,) = train(training, "sync_retried")
    app_id = one.trains()
    airflow.call("signal", daemon="worker", signal=int(signal.SIGTERM))
    airflow.power_cut("worker")
    airflow.start("worker")
    one.wait("running", tries=2)
    assert one.goes_on(app_id)
    one.over()
    one.wait("success", tries=2)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.parametrize("name", ["kill_task", "kill_worker"])
def test_never_two_and_none_left(airflow: Airflow, training: Train, name: str) -> None:
    chance = Random(f"{date.today()} celery {name}")
    print(f"drawn by {date.today()}")
    strike = Strike(component("worker")) if name == "kill_worker" else STRIKES[name]
    hit(airflow, training, strike, 10 * chance.random(), chance)
