"""The examples for real: Airflow runs the DAG, the embedded scheduler runs the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.dags.conftest import Run

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(900)]

Environment = Callable[[str], Path]


def test_the_first_training(run_dag: Run, environment: Environment) -> None:
    python = str(environment("mpi") / "bin" / "python")
    ran = run_dag("first_training.py", {"python": python, "steps": 120})
    assert ran.state == "success", ran.output
    assert ran.tasks == {"train": "success", "check": "success"}
    job = ran.gave["train"]
    assert (job["outcome"], job["attempts"]) == ("SUCCEEDED", 1)
    assert job["metrics"]["loss"] < job["result"]["first_loss"] / 2
    assert job["result"]["processes"] == 2
    assert job["links"]["tensorboard"].endswith("/tasks/train/-1/#metrics")  # it has ended
    assert ran.gave["check"] == job["result"]["last_loss"]
    assert "progress " in ran.output and "worker:1 running" in ran.output


def test_a_decorated_function_and_its_asset(
    run_dag: Run, environment: Environment, tmp_path: Path
) -> None:
    python = str(environment("mpi") / "bin" / "python")
    folder = tmp_path / "models"
    conf = {"python": python, "points": 200, "folder": str(folder)}
    ran = run_dag("decorated.py", conf)
    assert ran.state == "success", ran.output
    line = ran.gave["fit"]
    assert line["weight"] == pytest.approx(3, abs=0.05)
    assert json.loads(Path(line["model"]).read_text())["weight"] == line["weight"]
    (event,) = ran.events
    assert event["model"] == line["model"]
    assert event["metrics"]["loss"] == pytest.approx(line["loss"])
    assert Path(line["model"]).stem == event["application_id"]


def test_mapped_and_deferred(run_dag: Run, environment: Environment) -> None:
    python = str(environment("mpi") / "bin" / "python")
    ran = run_dag("expand.py", {"python": python, "steps": 120, "sizes": [128, 256]})
    assert ran.state == "success", ran.output
    assert ran.tasks["train[0]"] == ran.tasks["train[1]"] == "success"
    losses = [ran.gave[f"train[{index}]"]["result"]["last_loss"] for index in range(2)]
    assert ran.gave["best"]["last_loss"] == min(losses)
    ids = {ran.gave[f"train[{index}]"]["application_id"] for index in range(2)}
    assert len(ids) == 2


HEAVY = pytest.mark.frameworks
NIGHTLY = (HEAVY, pytest.mark.nightly)  # tests/frameworks trains with them as well


@pytest.mark.parametrize(
    ("framework", "env"),
    [
        ("jax", "jax"),
        pytest.param("pytorch", "torch", marks=NIGHTLY),
        pytest.param("tensorflow", "tensorflow", marks=NIGHTLY),
        pytest.param("tensorflow-ps", "tensorflow", marks=NIGHTLY),
        pytest.param("keras", "tensorflow", marks=NIGHTLY),
    ],
)
def test_each_framework(framework: str, env: str, run_dag: Run, environment: Environment) -> None:
    conf: Any = {
        "frameworks": [framework],
        "pythons": {framework: str(environment(env) / "bin" / "python")},
    }
    ran = run_dag("frameworks.py", conf)
    assert ran.state == "success", ran.output
    chosen = f"train_{framework.replace('-', '_')}"
    ended = {name for name, state in ran.tasks.items() if state == "success"}
    assert ended == {"choose", chosen}
    result = ran.gave[chosen]["result"]
    assert result["last_loss"] < result["first_loss"] / 2
