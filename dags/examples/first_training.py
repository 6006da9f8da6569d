"""A first training: two processes fit a small network, supervised as one task of a DAG.

It runs on this machine, by the embedded scheduler, and needs no cluster and no connection. On a
cluster the same task has `tony_conn_id="..."` instead of `scheduler="local"`.

    python dags/examples/first_training.py

runs it without a server; `airflow dags test tony_first_training` does too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, Param, task

from tony_airflow.operators.tony import TonyOperator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mpi"

with DAG(
    "tony_first_training",
    description="Two MPI processes train a small network",
    schedule=None,
    catchup=False,
    tags=["tony", "example"],
    params={
        "steps": Param(400, type="integer", minimum=20, description="How long to train"),
        "python": Param(
            sys.executable,
            type="string",
            description="A Python with mpi4py, mpich, numpy and tensorboard",
        ),
    },
    doc_md=__doc__,
) as dag:
    train = TonyOperator(
        task_id="train",
        scheduler="local",
        conf_file=str(EXAMPLE / "tony.xml"),
        src_dir=str(EXAMPLE / "src"),
        roles={"worker": {"instances": 2, "memory": "1g"}},
        python_binary_path="{{ params.python }}",
        task_params="--steps {{ params.steps }} --step-sleep 0.02",
    )

    @task
    def check(job: dict) -> float:
        """The operator returns the value that the program passed to tony.result()."""
        loss = job["result"]["last_loss"]
        first = job["result"]["first_loss"]
        print(f"{job['application_id']}: loss {first:.4f} -> {loss:.4f}")
        print(f"the model is {job['result']['model']}")
        assert loss < first / 2, "the loss has not fallen by half"
        return loss

    check(train.output)

if __name__ == "__main__":
    dag.test()
