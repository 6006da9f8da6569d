"""Airflow 2.11 lists the provider; jobs run, are waited for, and fail as on newer versions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

pytestmark = pytest.mark.airflow

CHECKOUT = Path(__file__).resolve().parents[2]
PARTS = (".", "executor", "plugins/airflow", "program")
WITHIN = 240.0
RESULT = "RESULT "  # begins the line with a script's result


class Two:
    """An Airflow 2.11 with a database of its own, and this checkout as if it were installed."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.folder = folder
        about = folder / "about"
        about.mkdir(parents=True)
        # The metadata that pip would write: Airflow finds the provider by it.
        self._run(
            *("-c", "import setuptools; setuptools.setup()", "-q", "egg_info"),
            *("--egg-base", str(about)),
            cwd=CHECKOUT,
        )
        self.airflow("db", "migrate")

    def airflow(self, *words: str) -> str:
        """Run a command of Airflow's; its output."""
        return self._run("-W", "ignore", "-m", "airflow", *words).stdout

    def test(self, way: str) -> Tuple[Dict[str, Any], str]:
        """Run ``dag.test()`` of a DAG; its result, and the output."""
        place = self.folder / way
        place.mkdir()
        script = Path(__file__).with_name("dags.py")
        done = self._run("-W", "ignore", str(script), str(place), way)
        return self._result(done), done.stdout + done.stderr

    def pages(self, *urls: str) -> List[Tuple[int, str]]:
        """The webserver's answers, for a user who may see the pages, then for one not logged in."""
        script = Path(__file__).with_name("pages.py")
        done = self._run("-W", "ignore", str(script), *urls)
        return [(status, text) for status, text in self._result(done)]

    @staticmethod
    def _result(done: subprocess.CompletedProcess[str]) -> Any:
        for line in done.stdout.splitlines():
            if line.startswith(RESULT):
                return json.loads(line[len(RESULT) :])
        raise AssertionError(done.stdout + done.stderr)

    def _run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        paths = [self.folder / "about", *(CHECKOUT / part for part in PARTS)]
        environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW_")},
            "AIRFLOW_HOME": str(self.folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TONY_HOME": str(self.folder / "tony"),
            "COLUMNS": "300",
        }
        done = subprocess.run(
            [str(self.python), *words],
            cwd=cwd or self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-8000:]}\n{done.stderr[-8000:]}"
        return done


@pytest.fixture(scope="module")
def two(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Two:
    python = environment("airflow-2") / "bin" / "python"
    return Two(python, tmp_path_factory.mktemp("airflow-2") / "it")


def test_the_provider_is_listed(two: Two) -> None:
    assert "tony-py" in two.airflow("providers", "list")
    assert "tony_airflow.hooks.tony.TonyHook" in two.airflow("providers", "hooks")
    assert "tony_airflow.links.tony.TensorBoardLink" in two.airflow("providers", "links")


@pytest.mark.parametrize("way", ["sync", "deferred"])
def test_a_job(two: Two, way: str) -> None:
    run, log = two.test(way)
    assert run["state"] == "success", log
    result = run["result"]
    assert result["application_id"].startswith("local_")
    assert result["outcome"] == "SUCCEEDED"
    assert result["metrics"] == {"accuracy": 0.75}
    assert "worker:1" in log
    page = run["links"]["Task logs"]
    assert page.endswith("/logs"), run
    page = page[: -len("logs")]
    assert page.startswith("http://localhost:8080/tony/dags/"), run
    if way == "sync":
        job, logs, all_logs, *refused = two.pages(page, f"{page}logs/worker%3A0", f"{page}logs")
        assert job[0] == logs[0] == all_logs[0] == 200, (job, logs, all_logs)
        assert result["application_id"] in job[1] and "accuracy" in job[1]
        assert "stdout" in logs[1]
        assert [status for status, _ in refused] == [302] * 3


def test_a_decorated_function(two: Two) -> None:
    run, log = two.test("decorated")
    assert run["state"] == "success", log
    result = run["result"]
    assert (result["epochs"], result["index"]) == (2, 0) and result["day"].startswith("20")


def test_mapped_tasks(two: Two) -> None:
    run, log = two.test("mapped")
    assert run["result"] == ["SUCCEEDED", "SUCCEEDED"], log


@pytest.mark.parametrize("way", ["sensed", "sensed_deferred"])
def test_a_sensor(two: Two, way: str) -> None:
    run, log = two.test(way)
    assert run["tasks"] == {"train": "success", "sensed": "success"}, log


def test_a_failure(two: Two) -> None:
    run, log = two.test("broken")
    assert run["state"] == "failed", log
    assert "the data is broken" in log
