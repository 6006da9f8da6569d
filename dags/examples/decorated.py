"""A function of this file as the program of a distributed job, and an asset for its model.

`@task.tony` ships the function's own text and its arguments; two processes run it, and the chief's
return value is the task's. Where they run, there is neither Airflow nor this file: the function
imports what it needs, and gets its data as arguments.

    python dags/examples/decorated.py
"""

from __future__ import annotations

import sys
import tempfile

from airflow.providers.common.compat.sdk import DAG, Asset, Param, task

MODEL = Asset("tony_examples_line")

with DAG(
    "tony_decorated",
    description="A line is fitted to points by two processes",
    schedule=None,
    catchup=False,
    tags=["tony", "example"],
    params={
        "points": Param(2000, type="integer", minimum=10),
        "folder": Param(f"{tempfile.gettempdir()}/tony-examples-lines", description="For models"),
        "python": Param(
            sys.executable, type="string", description="A Python with mpi4py, mpich and numpy"
        ),
    },
    doc_md=__doc__,
) as dag:

    @task.tony(
        scheduler="local",
        framework="mpi",
        roles={"worker": {"instances": 2, "memory": "512m"}},
        python_binary_path="{{ params.python }}",
        outlets=[MODEL],
    )
    def fit(points: str, slope: float, folder: str) -> dict:
        """Each process has its own share of the points, and an all-reduce adds up the slopes."""
        import json
        import os

        import numpy as np
        from mpi4py import MPI

        import tony

        me, world = tony.task(), MPI.COMM_WORLD
        draw = np.random.default_rng(me.index)
        x = draw.uniform(-1, 1, int(points) // me.count)
        y = slope * x + 0.5 + draw.normal(0, 0.01, len(x))
        weight = bias = 0.0
        for step in range(100):
            error = weight * x + bias - y
            mine = np.array([(error * x).mean(), error.mean(), (error**2).mean()])
            weight_slope, bias_slope, loss = world.allreduce(mine) / world.size
            weight, bias = weight - weight_slope, bias - bias_slope
            tony.report(progress=(step + 1) / 100, step=step + 1, metrics={"loss": loss})
        print(f"{me.role}:{me.index} of {me.count}: y = {weight:.3f} x + {bias:.3f}")

        path = os.path.join(folder, os.environ["JOB_ID"] + ".json")
        if me.is_chief:
            os.makedirs(folder, exist_ok=True)
            with open(path, "w") as file:
                json.dump({"weight": weight, "bias": bias}, file)
        # The asset's event has the path under "model".
        return {"model": path, "weight": weight, "bias": bias, "loss": loss}

    @task
    def check(line: dict) -> float:
        assert abs(line["weight"] - 3) < 0.05 and abs(line["bias"] - 0.5) < 0.05, line
        return line["loss"]

    check(fit("{{ params.points }}", slope=3.0, folder="{{ params.folder }}"))

if __name__ == "__main__":
    dag.test()
