"""One training for each framework, each a task; the run's parameters choose among them.

They are the jobs of the folder `examples`, unchanged, on this machine by the embedded scheduler.
Each needs a Python that has its framework (`examples/README.md` lists what to install):

    airflow dags trigger tony_frameworks --conf \
        '{"frameworks": ["jax", "pytorch"], "pythons": {"pytorch": "/envs/torch/bin/python"}}'

Airflow skips the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, Param, task

from tony_airflow.operators.tony import TonyOperator

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The folders of the examples. One runs at a time: a laptop has room for one.
FRAMEWORKS = [
    *("mpi", "jax", "pytorch", "horovod", "mxnet", "xgboost", "lightgbm", "ray"),
    *("tensorflow", "tensorflow-ps", "keras"),
]

with DAG(
    "tony_frameworks",
    description="The same training by each framework",
    schedule=None,
    catchup=False,
    max_active_tasks=1,
    tags=["tony", "example"],
    params={
        "frameworks": Param(
            ["mpi"],
            type="array",
            items={"type": "string", "enum": FRAMEWORKS},
            description="The ones to run",
        ),
        "python": Param(sys.executable, type="string", description="A Python for all of them"),
        "pythons": Param({}, type="object", description="A Python for some of them, by name"),
        "steps": Param(300, type="integer", minimum=20, description="How long to train"),
    },
    doc_md=__doc__,
) as dag:

    @task.branch
    def choose(params: dict | None = None) -> list[str]:
        return [f"train_{name.replace('-', '_')}" for name in (params or {})["frameworks"]]

    chosen = choose()

    for name in FRAMEWORKS:
        chosen >> TonyOperator(
            task_id=f"train_{name.replace('-', '_')}",
            scheduler="local",
            conf_file=str(EXAMPLES / name / "tony.xml"),
            src_dir=str(EXAMPLES / name / "src"),
            python_binary_path="{{ params.pythons.get('%s') or params.python }}" % name,
            task_params="--steps {{ params.steps }}",
        )

if __name__ == "__main__":
    dag.test()
