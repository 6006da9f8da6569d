"""DAGs of the examples: parsed in this process, run in one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

import tests.tony_airflow.conftest  # noqa: F401 - Airflow's environment, before it is imported
from tests.importgraph import CHECKOUT

DAGS = CHECKOUT / "dags" / "examples"
RUNNER = Path(__file__).with_name("run_dag.py")
_PATHS = [CHECKOUT / part for part in (".", "executor", "plugins/airflow", "program")]

DEADLINE_S = 400.0
"""For one DAG; a machine with nothing else to do needs a tenth of it."""


class Ran:
    """What became of one run: of each task instance its state, and what it gave."""

    def __init__(self, result: Dict[str, Any], output: str) -> None:
        self.state: str = result["state"]
        self.tasks: Dict[str, str] = result["tasks"]
        self.gave: Dict[str, Any] = result["gave"]
        self.events: List[Dict[str, Any]] = result["events"]
        self.output = output


Run = Callable[..., Ran]


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An AIRFLOW_HOME with an empty database."""
    home = tmp_path_factory.mktemp("airflow")
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return home


@pytest.fixture
def run_dag(airflow_home: Path, tmp_path: Path, tony_home: Path) -> Iterator[Run]:
    """``run_dag("first_training.py", {"steps": 60})``: dag.test() of a file in dags/examples."""

    def run(file: str, conf: Dict[str, Any]) -> Ran:
        path = Path(file) if os.path.isabs(file) else DAGS / file
        output = tmp_path / "ran.json"
        log = tmp_path / f"{path.stem}.log"
        with open(log, "w") as log_file:
            done = subprocess.run(
                [sys.executable, str(RUNNER), str(path), json.dumps(conf), str(output)],
                env={
                    **_environment(airflow_home),
                    "AIRFLOW__CORE__DAGS_FOLDER": str(path),
                    "TONY_HOME": str(tony_home),
                },
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE_S,
            )
        text = log.read_text(errors="replace")
        assert done.returncode == 0, text[-12_000:]
        return Ran(json.loads(output.read_text()), text)

    yield run


def _environment(home: Path) -> Dict[str, str]:
    """This process's, with an Airflow of its own."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW_")}
    return {
        **ours,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PYTHONPATH": os.pathsep.join(map(str, _PATHS)),
    }
