"""The sensor and the decorator against a real YARN: ``dag.test()`` of one DAG with both."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.airflow.training import PROGRAM
from tests.cluster.hadoop.fixture import GetHadoop
from tests.dags.conftest import Run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]

DAG = """
import json
import os
from pathlib import Path

from airflow.sdk import DAG, task
from tony_airflow.operators.tony import TonyOperator
from tony_airflow.sensors.tony import TonySensor

EXTRA = {"scheduler": "yarn", "hadoop_conf_dir": HADOOP_CONF_DIR}
os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps({"conn_type": "tony", "extra": EXTRA})
NAME = "{{ dag_run.conf['name'] }}"
SMALL = {
    "roles": {"worker": {"instances": 2, "memory": "64m"}},
    "conf": {"tony.am.memory": "256", "tony.am.retry-count": 0},
}

with DAG("on_yarn", schedule=None) as dag:
    start = TonyOperator(
        task_id="start",
        job_name=NAME,
        src_dir="{{ dag_run.conf['src'] }}",
        executes="python3 train.py {{ dag_run.conf['folder'] }}",
        wait_for_completion=False,
        lease=600,
        **SMALL,
    )
    good = TonySensor(
        task_id="good", name=NAME, metric="accuracy", above=0.5, deferrable=True, poke_interval=1
    )

    @task
    def stop(dag_run=None):
        Path(dag_run.conf["folder"], "over").touch()

    ended = TonySensor(task_id="ended", name=NAME, deferrable=True, poke_interval=1)
    known = TonySensor(
        task_id="known",
        application_id="{{ ti.xcom_pull('start')['application_id'] }}",
        metric="accuracy",
        above=0.5,
        poke_interval=1,
    )

    @task.tony(**SMALL)
    def train(word, times=1):
        import tony

        tony.report(step=1, metrics={"loss": 0.25})
        return {"words": word * times, "index": tony.task().index}

    start >> good >> stop() >> ended >> known >> train("grüße ", times=2)
"""


def test_a_sensor_and_a_decorated_function(hadoop: GetHadoop, run_dag: Run, tmp_path: Path) -> None:
    cluster = hadoop("two_nodes", "log_aggregation")
    name = f"on-yarn-{time.time_ns()}"
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    file = tmp_path / "on_yarn.py"
    file.write_text(DAG.replace("HADOOP_CONF_DIR}", f"{str(cluster.conf_dir)!r}}}"))
    ran = run_dag(str(file), {"name": name, "src": str(source), "folder": str(folder)})
    assert ran.state == "success", ran.output
    app_id = ran.gave["start"]["application_id"]
    assert ran.gave["good"]["application_id"] == app_id and ran.gave["good"]["value"] == 0.9
    assert ran.gave["ended"] == {"application_id": app_id, "state": "SUCCEEDED"}
    assert ran.gave["known"]["application_id"] == app_id
    assert cluster.application(app_id)["finalStatus"] == "SUCCEEDED"
    assert ran.gave["train"] == {"words": "grüße grüße ", "index": 0}
