"""A model that is trained again when there is new data, every night at the latest.

    new data on HDFS -> MapReduce cleans -> Spark makes features -> TonY trains on two roles
        -> good enough? -> publish it, and notify other DAGs; or stop

Copy this folder below your DAGs and change the settings at the top. The steps are programs of their
own (`programs/`), which also run by hand, as TonY's `docs/pipelines.md` describes.

Connections: `tony_default` (where TonY's jobs run), `spark_default` (master `yarn`, with
`yarn_resourcemanager_webapp_address` in its extra), `webhdfs_default`. Workers have Hadoop and
Spark: `HADOOP_HOME`, `HADOOP_CONF_DIR`, and `spark-submit` on the PATH.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict
from urllib.parse import urlsplit

from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param, task

from tony_airflow.operators.tony import TonyOperator

# ---------------------------------------------------------------- settings

DATA = "hdfs:///data/retraining"
"""Raw data is in raw/, the files of each run in runs/, published models in models/."""

EVERY = "0 3 * * *"
WORKERS = 1
"""Besides the chief."""
TASK = {"memory": "512m", "vcores": 1}
MASTER_MEMORY = "512m"
GOOD_FROM, TOLERANCE = 0.8, 0.02
"""The accuracy that a model has to reach, and how much worse than the published one it may be."""

TONY, SPARK, WEBHDFS = "tony_default", "spark_default", "webhdfs_default"

# A DAG that brings raw data has this outlet, or posts to /api/v2/assets/events.
RAW = Asset("retraining_raw")
MODEL = Asset("retraining_model")

# ---------------------------------------------------------------- the DAG

PROGRAMS = Path(__file__).resolve().parent / "programs"
BASE = "{{ params.data }}"
RUN = BASE + "/runs/{{ run_id | replace(':', '') | replace('+', '-') }}"
NOT_GOOD_ENOUGH = 3


def run_program(name: str, *arguments: object, otherwise: int = 0) -> tuple[int, str]:
    """Run one of the programs, with its output in the log; its exit code and last line."""
    command = [sys.executable, str(PROGRAMS / name), *map(str, arguments)]
    done = SubprocessHook().run_command(command)
    if done.exit_code not in (0, otherwise):
        raise RuntimeError(f"{name} ended with {done.exit_code}: {done.output}")
    return done.exit_code, done.output


with DAG(
    "retraining",
    description="Trains again on new data, and publishes what is good enough",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(EVERY, timezone="UTC"), assets=[RAW]
    ),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,  # two at a time would publish in the order in which they end
    params={
        "data": Param(DATA, type="string", description="the folder of all data on HDFS"),
        "good_from": Param(GOOD_FROM, type="number", minimum=0, maximum=1),
        "tolerance": Param(TOLERANCE, type="number", minimum=0, maximum=1),
        "even_without_new_data": Param(False, type="boolean"),
    },
    default_args={"retries": 2, "retry_delay": timedelta(minutes=2)},
    doc_md=__doc__,
    tags=["tony", "example"],
) as dag:

    @task.short_circuit
    def new_data(params: Dict[str, Any], prev_start_date_success: datetime | None = None) -> bool:
        """Whether new data has arrived since the last successful run began."""
        raw = urlsplit(params["data"]).path + "/raw"
        client = WebHDFSHook(WEBHDFS).get_conn()
        if client.status(raw, strict=False) is None:
            print(f"{raw} does not exist: no data has arrived yet")
            return False
        files = client.list(raw, status=True)
        newest = max((status["modificationTime"] / 1000 for _, status in files), default=0.0)
        since = prev_start_date_success.timestamp() if prev_start_date_success else 0.0
        print(
            f"{len(files)} files; the newest is of {datetime.fromtimestamp(newest, timezone.utc)}"
        )
        return bool(files) and (params["even_without_new_data"] or newest > since)

    clean = BashOperator(
        task_id="clean",
        bash_command=f"bash {PROGRAMS}/clean {BASE}/raw {RUN}/clean",
        execution_timeout=timedelta(hours=2),
    )

    features = SparkSubmitOperator(
        task_id="features",
        conn_id=SPARK,
        application=str(PROGRAMS / "features.py"),
        application_args=[f"{RUN}/clean", f"{RUN}/features"],
        name="retraining features",
        deploy_mode="cluster",
        yarn_track_via_rm_api=True,
        execution_timeout=timedelta(hours=2),
    )

    train = TonyOperator(
        task_id="train",
        tony_conn_id=TONY,
        job_name="retraining",
        src_dir=str(PROGRAMS / "train"),
        executes="python3 train.py",
        task_params=f"--features {RUN}/features --model {RUN}/model",
        roles={"chief": {"instances": 1, **TASK}, "worker": {"instances": WORKERS, **TASK}},
        conf={"tony.am.memory": MASTER_MEMORY},
        # When a task or a node dies, the job goes on from here by itself.
        checkpoint_dir=f"{RUN}/checkpoints",
        execution_timeout=timedelta(hours=6),
    )

    @task.short_circuit
    def good_enough(trained: Dict[str, Any], params: Dict[str, Any]) -> bool:
        """By what the training has reported, and by the model that is published."""
        code, line = run_program(
            "evaluate.py",
            *("--metrics", json.dumps(trained["metrics"])),
            *("--models", f"{params['data']}/models"),
            *("--at-least", params["good_from"]),
            *("--tolerance", params["tolerance"]),
            otherwise=NOT_GOOD_ENOUGH,
        )
        print(line)
        return code == 0

    @task(outlets=[MODEL])
    def publish(model: str, params: Dict[str, Any], outlet_events: Any = None) -> Dict[str, Any]:
        """Moves the model to where models are found, and tells the DAGs that wait for one."""
        _, line = run_program(
            "publish.py", "--model", model, "--models", f"{params['data']}/models"
        )
        published: Dict[str, Any] = json.loads(line)
        outlet_events[MODEL].extra = published
        return published

    steps = new_data() >> clean >> features >> train
    steps >> good_enough(train.output) >> publish(f"{RUN}/model")
