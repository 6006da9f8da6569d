"""Several trainings at once, one for each batch size, and the best of them.

`.expand()` makes a task of each value; with `deferrable=True` a triggerer waits for all of them,
without a worker slot. A job that does not fit on the machine with the others waits until it does.

    python dags/examples/expand.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, Param, task

from tony_airflow.operators.tony import TonyOperator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mpi"

with DAG(
    "tony_expand",
    description="A search over batch sizes by mapped, deferred tasks",
    schedule=None,
    catchup=False,
    tags=["tony", "example"],
    params={
        "steps": Param(150, type="integer", minimum=20),
        "sizes": Param([64, 256], type="array", items={"type": "integer", "minimum": 8}),
        "python": Param(
            sys.executable,
            type="string",
            description="A Python with mpi4py, mpich, numpy and tensorboard",
        ),
    },
    doc_md=__doc__,
) as dag:

    @task
    def arguments(params: dict | None = None) -> list[str]:
        return [f"--steps {params['steps']} --batch {size}" for size in params["sizes"]]

    train = TonyOperator.partial(
        task_id="train",
        scheduler="local",
        conf_file=str(EXAMPLE / "tony.xml"),
        src_dir=str(EXAMPLE / "src"),
        roles={"worker": {"instances": 2, "memory": "1g"}},
        python_binary_path="{{ params.python }}",
        deferrable=True,
        poll_interval=2.0,
    ).expand(task_params=arguments())

    @task
    def best(jobs: list) -> dict:
        all_jobs = jobs[:]  # all at once: Airflow logs an error for a read after the last one
        found = min(all_jobs, key=lambda job: job["result"]["last_loss"])
        print(f"the best of {len(all_jobs)}: {found['application_id']}")
        return found["result"]

    best(train.output)

if __name__ == "__main__":
    dag.test()
