"""The example as a user has it who copied it: a folder of DAGs, an Airflow, a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Set
from urllib.parse import urlsplit

from tests.cluster.airflow.rest import ENDED, wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.web import WebError
from tests.conftest import CHECKOUT
from tests.dags.retraining import PROGRAMS, RETRAINING

WITHIN = 1500.0
"""A whole run on a machine that has ten times as much to do as it can."""

_PATHS = [CHECKOUT / part for part in (".", "executor", "plugins/airflow", "program")]


def copied(folder: Path, data: str) -> Path:
    """The folder of DAGs, with what its top says changed."""
    shutil.copytree(RETRAINING, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "retraining.py"
    text = path.read_text()
    for before, after in (
        ('DATA = "hdfs:///data/retraining"', f'DATA = "{data}"'),
        ("timedelta(minutes=2)", "timedelta(seconds=2)"),
        ('TASK = {"memory": "512m", "vcores": 1}', 'TASK = {"memory": "256m", "vcores": 1}'),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    path.write_text(text)
    return folder


def environment(cluster: Hadoop, dags: Path) -> Dict[str, str]:
    """What Airflow's workers need: Hadoop, Spark, this checkout, and the three connections."""
    web = urlsplit(cluster.webhdfs_url)
    connections: Dict[str, Dict[str, Any]] = {
        "webhdfs_default": {
            "conn_type": "webhdfs",
            "host": web.hostname,
            "port": web.port,
            "login": cluster.user,
        },
        "spark_default": {
            "conn_type": "spark",
            "host": "yarn",
            "extra": {
                "deploy-mode": "cluster",
                "yarn_resourcemanager_webapp_address": cluster.rm_url,
            },
        },
        "tony_default": {
            "conn_type": "tony",
            "extra": {"scheduler": "yarn", "hadoop_conf_dir": str(cluster.conf_dir)},
        },
    }
    client = cluster.client_environment
    return {
        **client,
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(one) for name, one in connections.items()},
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        # The scheduler would have a task begin before there is a server for it to call.
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        # No process dies here, and with Hadoop and Spark beside it a heartbeat may be late.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "600",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "600",
        "HADOOP_USER_NAME": cluster.user,
        "PATH": f"{client['SPARK_HOME']}/bin:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, _PATHS)),
    }


class Pipeline:
    """What a test sees of it."""

    def __init__(self, airflow: Airflow, cluster: Hadoop, data: str, folder: Path) -> None:
        self.airflow = airflow
        self.rest = airflow.rest
        self.cluster = cluster
        self.data = data
        self.folder = folder

    def switch_on(self) -> None:
        """Both DAGs, once Airflow has read them."""
        wanted = {"retraining", "scoring"}
        wait_for(
            lambda: {str(one["dag_id"]) for one in self.rest.get("dags")["dags"]},
            lambda found: found == wanted,
            lambda found: f"Airflow has read {found}\n{self.airflow}",
            within=WITHIN,
        )
        broken = self.rest.get("importErrors")["import_errors"]
        assert not broken, broken
        for dag_id in sorted(wanted):
            self.rest.call("PATCH", f"dags/{dag_id}", json={"is_paused": False})

    # ------------------------------------------------------------------ data

    def arrives(self, name: str, *options: str) -> None:
        """A file of raw data comes to HDFS, and the asset says so."""
        local = self.folder / name
        make = [sys.executable, str(PROGRAMS / "make_data.py"), str(local), *options]
        subprocess.run(make, check=True, timeout=120)
        self.cluster.hdfs.put(f"{urlsplit(self.data).path}/raw/{name}", local.read_bytes())
        body = {"asset_id": self.asset("retraining_raw"), "extra": {"file": name}}
        self.rest.call("POST", "assets/events", json=body)

    def puts(self, name: str, value: Any) -> None:
        """A JSON file below the pipeline's folder on HDFS."""
        self.cluster.hdfs.put(f"{urlsplit(self.data).path}/{name}", json.dumps(value).encode())

    def models(self) -> Set[str]:
        """What is published."""
        try:
            return set(self.cluster.hdfs.list(f"{urlsplit(self.data).path}/models"))
        except WebError as error:
            assert error.status == 404, error
            return set()

    # ------------------------------------------------------------------ Airflow

    def asset(self, name: str) -> int:
        found = self.rest.get("assets", name_pattern=name)["assets"]
        return int(next(one["id"] for one in found if one["name"] == name))

    def events(self, name: str) -> List[Dict[str, Any]]:
        """Of an asset, the oldest first."""
        found = self.rest.get("assets/events", asset_id=self.asset(name))
        return sorted(found["asset_events"], key=lambda event: event["id"])

    def runs(self, dag_id: str) -> List[Dict[str, Any]]:
        """The oldest first."""
        found = self.rest.get(f"dags/{dag_id}/dagRuns")["dag_runs"]
        return sorted(found, key=lambda run: str(run["run_after"]))

    def states(self, dag_id: str, run_id: str) -> Dict[str, str]:
        found = self.rest.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {str(one["task_id"]): str(one["state"]) for one in found}

    def ended(self, dag_id: str, number: int) -> str:
        """The id of the DAG's run of that number, from 1, once it has gone well."""

        def words(found: List[Dict[str, Any]]) -> str:
            lines = [f"{dag_id} has {len(found)} runs, and number {number} has not gone well"]
            for one in found[number - 1 : number]:
                run_id = one["dag_run_id"]
                for task_id, state in self.states(dag_id, run_id).items():
                    lines.append(f"--- {task_id} is {state}")
                    if state in ("failed", "running", "up_for_retry"):
                        lines.append(self.rest.log((dag_id, run_id, task_id))[-12000:])
            return "\n".join(lines)

        found = wait_for(
            lambda: self.runs(dag_id),
            lambda found: len(found) >= number and found[number - 1]["state"] == "success",
            words,
            lambda found: len(found) >= number and found[number - 1]["state"] in ENDED,
            WITHIN,
        )
        return str(found[number - 1]["dag_run_id"])
