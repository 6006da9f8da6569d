"""However a task's life goes, its job is ended exactly when it should be, and never runs twice.

Most tests have a task that waits on its worker and one that is deferred, at the same time. By day
one test of each kind; the others, and test_kills.py with each component at any second, by night.
"""

from __future__ import annotations

import time
from typing import Callable, List

import pytest

from tests.cluster.airflow import dags
from tests.cluster.airflow.rest import wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import Training
from tests.cluster.hadoop.cluster import Hadoop
from tony_airflow.operators.ownership import SETTLED_S

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DAGS = {"trainings.py": dags.TRAININGS, "hopeless.py": dags.HOPELESS, "secrets.py": dags.SECRETS}

Train = Callable[..., Training]


def train(training: Train, *dag_ids: str) -> List[Training]:
    """Runs of the DAGs, at the same time; their programs run."""
    found = [training(dag_id) for dag_id in dag_ids]
    for one in found:
        one.trains()
        one.wait("deferred" if one.place[0].startswith("deferred") else "running")
    return found


def test_success(training: Train) -> None:
    for one in train(training, "sync", "deferred"):
        app_id = one.trains()
        one.over()
        one.wait("success")
        assert one.gone(app_id) == {app_id: "SUCCEEDED"}
        result = one.result()
        assert result["application_id"] == app_id == one.rest.xcom(one.place, "application_id")
        assert result["metrics"] == one.rest.xcom(one.place, "metrics") == {"accuracy": 0.9}
        assert result["duration_s"] > 0
        assert app_id in one.wait_for_words("worker:0")


@pytest.mark.parametrize("state", ["failed", pytest.param("success", marks=pytest.mark.nightly)])
def test_marked(training: Train, state: str) -> None:
    for one in train(training, "sync", "deferred"):
        app_id = one.trains()
        one.rest.mark(one.place, state)
        assert one.gone(app_id) == {app_id: "KILLED"}
        assert one.task()["state"] == state


@pytest.mark.nightly
def test_the_whole_run_is_marked(training: Train) -> None:
    for one in train(training, "sync", "deferred"):
        app_id = one.trains()
        one.rest.mark_run(one.place, "failed")
        assert one.gone(app_id) == {app_id: "KILLED"}


def test_cleared(training: Train) -> None:
    for one in train(training, "sync", "deferred"):
        first = one.trains()
        one.rest.clear(one.place)
        second = one.trains(2)
        assert one.goes_on(second)
        one.over()
        one.wait("success", tries=2)
        ended = one.gone(first, second, generations=2)
        assert ended == {first: "KILLED", second: "SUCCEEDED"}


@pytest.mark.nightly
def test_cleared_after_its_success(training: Train) -> None:
    (one,) = train(training, "sync")
    first = one.trains()
    one.over()
    one.wait("success")
    one.rest.clear(one.place)
    second = one.trains(2)
    one.wait("success", tries=2)
    ended = one.gone(first, second, generations=2)
    assert ended == {first: "SUCCEEDED", second: "SUCCEEDED"}


@pytest.mark.nightly
def test_the_task_s_process_dies(airflow: Airflow, training: Train) -> None:
    again, last = train(training, "sync_retried", "sync_leased")
    app_id, lost = again.trains(), last.trains()
    for one in (again, last):
        airflow.kill_worker(one.task()["id"], task_only=True)
    again.wait("running", tries=2)
    last.wait("failed")
    # No process is left to end the job: it ends by itself when no client has asked for a while.
    assert last.gone(lost)[lost] != "SUCCEEDED"
    assert again.goes_on(app_id)
    again.over()
    again.wait("success", tries=2)
    assert again.gone(app_id) == {app_id: "SUCCEEDED"}


def test_the_task_s_process_dies_right_after_the_submit(airflow: Airflow, training: Train) -> None:
    one = training("sync_retried")
    app_id = one.appears()
    airflow.kill_worker(one.task()["id"], task_only=True)
    one.wait("running", tries=2)
    assert one.trains() == app_id
    one.over()
    one.wait("success", tries=2)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_the_worker_dies(airflow: Airflow, training: Train) -> None:
    (one,) = train(training, "sync_retried")
    app_id = one.trains()
    airflow.kill_worker(one.task()["id"])
    one.wait("running", tries=2)
    assert one.goes_on(app_id)
    one.over()
    one.wait("success", tries=2)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.nightly), "power_cut"])
def test_the_triggerer_restarts(airflow: Airflow, training: Train, end: str) -> None:
    (one,) = train(training, "deferred")
    app_id = one.trains()
    getattr(airflow, end)("triggerer")
    airflow.start("triggerer")
    airflow.wait_healthy()
    assert one.goes_on(app_id) and one.task()["state"] == "deferred"
    one.over()
    one.wait("success", tries=1)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_the_scheduler_restarts(airflow: Airflow, training: Train) -> None:
    (one,) = train(training, "deferred")
    app_id = one.trains()
    for end in (airflow.stop, airflow.crash):
        end("scheduler")
        airflow.start("scheduler")
        airflow.wait_healthy()
        assert one.goes_on(app_id) and one.task()["state"] == "deferred"
    one.over()
    one.wait("success", tries=1)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_the_scheduler_dies_and_its_workers_do_not(airflow: Airflow, training: Train) -> None:
    # Airflow takes their tasks for orphaned, and runs them again: the old try is stopped.
    (one,) = train(training, "sync_retried")
    app_id = one.trains()
    old = one.task()["id"]
    time.sleep(SETTLED_S)  # before that the job would be ended, to be safe from a second one
    airflow.crash("scheduler")
    assert airflow.works_on(old)
    airflow.start("scheduler")
    airflow.wait_healthy()
    one.wait("running", tries=2)
    wait_for(
        lambda: airflow.works_on(old),
        lambda lives: not lives,
        lambda _: f"the old worker lives on\n{one.story()}",
    )
    assert one.goes_on(app_id)
    one.over()
    one.wait("success", tries=2)
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_the_scheduler_s_host_restarts(airflow: Airflow, training: Train) -> None:
    found = train(training, "sync_retried", "deferred_retried")
    ids = [one.trains() for one in found]
    airflow.power_cut("scheduler")
    airflow.start("scheduler")
    airflow.wait_healthy()
    found[0].wait("running", tries=2)
    for one, app_id in zip(found, ids, strict=True):
        assert one.goes_on(app_id)
        one.over()
        one.wait("success")
        assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_it_takes_too_long(training: Train) -> None:
    sync, deferred = training("sync_timed"), training("deferred_timed")
    app_id = deferred.appears()  # its time begins with the deferral
    deferred.wait("failed")
    assert deferred.gone(app_id) == {app_id: "KILLED"}
    sync.wait("failed")
    ids = [found["id"] for found in sync.applications()]
    assert len(ids) <= 1  # on a busy machine the time may be over before it was submitted
    assert set(sync.gone(*ids).values()) <= {"KILLED"}


@pytest.mark.nightly
def test_a_retry(training: Train) -> None:
    for one in train(training, "sync_retried", "deferred_retried"):
        first = one.trains()
        one.fail(first)
        second = one.trains(2)
        assert one.goes_on(second)
        one.over()
        one.wait("success", tries=2)
        assert one.gone(first, second) == {first: "FAILED", second: "SUCCEEDED"}
        assert "the training data is broken" in one.log(1)


HOPELESS = {
    "no_connection": "unknown_connection",
    "no_venv": "/nowhere/venv",
    "no_source": "/nowhere/src",
    "bad_key": "tony.worker.memory",
}


def test_what_retrying_cannot_mend(training: Train) -> None:
    found = {dag_id: training(dag_id) for dag_id in HOPELESS}
    for dag_id, one in found.items():
        assert one.wait("failed")["try_number"] == 1
        one.wait_for_words(HOPELESS[dag_id])
        assert one.applications() == []


def test_secrets(airflow: Airflow, cluster: Hadoop, training: Train) -> None:
    secret = "s3cr3t-horse-battery"
    for one in [training(dag_id, secret=secret) for dag_id in ("tells", "tells_deferred")]:
        one.wait("failed")
        log = one.wait_for_words("the token is ***")
        assert secret not in log
        assert secret not in str(one.task()["rendered_fields"])
        for path in airflow.folder.rglob("*.log"):
            assert secret not in path.read_text(errors="replace"), path
