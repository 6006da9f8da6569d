"""Whole tasks by ``dag.test()``: Airflow's own task runner, database and inline trigger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_core.schedulers.port import AppState

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(900)]
DAGS = Path(__file__).with_name("dags_for_test.py")
NAMES = ["succeeds", "fails", "deferred", "mapped", "retried", "too_long", "wrong", "templated"]


class Records:
    """What the runs have written down."""

    def __init__(self, record: Path, home: Path, log: str) -> None:
        self.lines = [json.loads(line) for line in record.read_text().splitlines()]
        self.home = home
        self.log = log

    def tries(self, dag: str) -> List[Dict[str, Any]]:
        return [
            line
            for line in self.lines
            if line.get("dag") == dag and line.get("error") != "TaskDeferred"
        ]

    def ends(self, dag: str) -> List[str]:
        return [line["state"].rpartition(".")[2].lower() for line in self._ended(dag)]

    def tried(self, dag: str) -> int:
        return max(line["tries"] for line in self._ended(dag))

    def _ended(self, dag: str) -> List[Dict[str, Any]]:
        return [line for line in self.lines if line.get("ended") == dag]

    def states(self) -> Dict[str, AppState]:
        hook = TonyHook.of(Site(home=str(self.home)))
        try:
            return {status.app_id: status.state for status in hook.list()}
        finally:
            hook.close()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """All DAGs, once: most of the time is Airflow's start."""
    folder = tmp_path_factory.mktemp("airflow")
    record, home = folder / "record.jsonl", folder / "tony-home"
    (folder / "dags").mkdir()
    shutil.copy(DAGS, folder / "dags" / "dags_for_test.py")
    env = {name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW_")}
    env.update(
        AIRFLOW_HOME=str(folder),
        AIRFLOW__CORE__DAGS_FOLDER=str(folder / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{folder}/airflow.db",
        TONY_HOME=str(home),
        RECORD=str(record),
        PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
    )
    message = ""
    for command in (
        [sys.executable, "-m", "airflow", "db", "migrate"],
        [sys.executable, str(folder / "dags" / "dags_for_test.py"), *NAMES],
    ):
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        message += done.stdout
        assert done.returncode == 0, message[-5000:]
    return Records(record, home, message)


def test_a_success(records: Records) -> None:
    (only,) = records.tries("succeeds")
    assert only["result"]["outcome"] == "SUCCEEDED"
    assert only["result"]["metrics"] == {"loss": 0.25}
    assert records.ends("succeeds") == ["success"]
    assert "worker:0 running" in records.log, "tasks' states are in the task's log"


def test_a_failing_job_is_tried_again_with_its_reason(records: Records) -> None:
    first, second = records.tries("fails")
    assert "exit code 7" in first["message"] and "exit code 7" in second["message"]
    assert records.ends("fails") == ["failed"]


def test_a_deferred_task(records: Records) -> None:
    (only,) = records.tries("deferred")
    assert only["result"]["metrics"] == {"loss": 0.25}
    assert records.ends("deferred") == ["success"]


def test_mapped_tasks_each_have_a_job(records: Records) -> None:
    apps = {line["map_index"]: line["result"]["application_id"] for line in records.tries("mapped")}
    assert sorted(apps) == [0, 1] and len(set(apps.values())) == 2
    assert records.ends("mapped") == ["success", "success"]


def test_a_retry_takes_up_the_running_job(records: Records) -> None:
    first, second = records.tries("retried")
    assert second["result"]["application_id"] in first["message"]
    assert records.ends("retried") == ["success"]


def test_a_task_that_takes_too_long_ends_its_job(records: Records) -> None:
    (only,) = records.tries("too_long")
    assert only["error"] == "AirflowTaskTimeout"
    assert records.ends("too_long") == ["failed"]
    states = records.states()
    # On a busy machine the time may be over before there is a job.
    assert list(states.values()).count(AppState.KILLED) <= 1
    assert all(state.ended for state in states.values()), "no job is left"


def test_what_cannot_be_mended_is_tried_once(records: Records) -> None:
    (only,) = records.tries("wrong")
    assert only["error"] == "AirflowFailException"
    assert "/nowhere/venv.zip does not exist" in only["message"]
    assert records.ends("wrong") == ["failed"] and records.tried("wrong") == 1


def test_templates_are_airflows(records: Records) -> None:
    (only,) = records.tries("templated")
    assert only["result"]["metrics"] == {"loss": 0.25}
