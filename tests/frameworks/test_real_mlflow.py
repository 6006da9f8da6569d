"""A job as a run at a real MLflow server, which is killed and started again in its middle."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tony_core.master.tracking.mlflow_api import find_runs

CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = [CHECKOUT / part for part in (".", "executor", "plugins/airflow", "program")]
UP_S = 150.0
PROGRAM = """
import os, time
import tony
for step in range(60):
    tony.report(progress=step / 60, step=step, metrics={"loss": 1 / (step + 1), "top@1": step})
    time.sleep(0.5)
    if os.path.exists(os.environ["GO_ON"]) and step > 10:
        break
own = os.environ.get("OWN_PYTHON")
if own:
    code = "import mlflow; mlflow.log_metric('own', 42.0, step=1); mlflow.log_param('lr', 1)"
    import subprocess
    subprocess.run([own, "-c", code], check=True, timeout=120)
tony.result({"model": "/models/1", "loss": 0.1})
"""


class Server:
    """``mlflow server`` on SQLite, in a process group of its own."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._mlflow = python.parent / "mlflow"
        self._folder = folder
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            self.port = listener.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: Any = None

    def start(self) -> None:
        database, artifacts = self._folder / "mlflow.db", self._folder / "artifacts"
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._mlflow), "server", "--backend-store-uri", f"sqlite:///{database}",
                    "--artifacts-destination", str(artifacts), "--host", "127.0.0.1",
                    "--port", str(self.port), "--workers", "1",
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + UP_S
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/health"):
                    return
            assert time.monotonic() < end, (self._folder / "server.log").read_text()[-3000:]
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"} if body is not None else {}
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
            return text if answer.status == 200 else b""

    def run(self) -> Dict[str, Any]:
        """The one run of the experiment."""
        path = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=trial"
        experiment = json.loads(self.ask("GET", path))["experiment"]["experiment_id"]
        body = {"experiment_ids": [experiment]}
        found = json.loads(self.ask("POST", "/api/2.0/mlflow/runs/search", body))
        (run,) = found["runs"]
        return dict(run)

    def steps(self, run_id: str, key: str) -> List[int]:
        path = f"/api/2.0/mlflow/metrics/get-history?run_id={run_id}&metric_key={key}"
        found = json.loads(self.ask("GET", path))
        return sorted(int(each.get("step", 0)) for each in found["metrics"])


@pytest.fixture
def server(environment: Callable[[str], Path], tmp_path: Path) -> Iterator[Server]:
    made = Server(environment("mlflow") / "bin" / "python", tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.mark.frameworks
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_server_that_is_killed_in_the_middle(
    server: Server, environment: Callable[[str], Path], tmp_path: Path
) -> None:
    source, go_on = tmp_path / "src", tmp_path / "go-on"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    conf = {
        "tony.worker.instances": "1",
        "tony.application.framework": "pytorch",
        "tony.application.tags": "airflow.dag:retrain",
        "tony.mlflow.tracking-uri": server.uri,
        "tony.mlflow.experiment": "trial",
        "tony.mlflow.run-name": "a trial",
    }
    own = environment("mlflow") / "bin" / "python"
    command = [sys.executable, "-m", "tony_core.cli.main", "submit", "--executes"]
    command += [f"{sys.executable} train.py --lr 0.1", "--src_dir", "."]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--shell_env", f"GO_ON={go_on}", "--shell_env", f"OWN_PYTHON={own}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))}
    env["TONY_HOME"] = str(tmp_path / "home")
    with open(tmp_path / "submit.out", "w") as out:
        job = subprocess.Popen(command, cwd=source, env=env, stdout=out, stderr=out)
    try:
        end = time.monotonic() + UP_S
        while True:
            with contextlib.suppress(KeyError, ValueError, OSError, http.client.HTTPException):
                if server.run()["data"].get("metrics"):
                    break
            assert time.monotonic() < end and job.poll() is None, out_of(tmp_path)
            time.sleep(0.2)
        server.kill()
        time.sleep(4)  # metrics are reported meanwhile
        server.start()
        go_on.touch()
        assert job.wait(300) == 0, out_of(tmp_path)
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(60)
    run = server.run()
    info, data = run["info"], run["data"]
    assert (info["status"], info["run_name"]) == ("FINISHED", "a trial")
    tags = {each["key"]: each["value"] for each in data["tags"]}
    params = {each["key"]: each["value"] for each in data["params"]}
    metrics = {each["key"]: each["value"] for each in data["metrics"]}
    assert tags["tony/model"] == "/models/1" and tags["tony/tag/airflow.dag"] == "retrain"
    assert tags["tony/state"] == "SUCCEEDED" and tags["tony/app_id"]
    search = find_runs(info["experiment_id"], tags["tony/run_key"])
    found = json.loads(server.ask("POST", f"/api/2.0/mlflow/{search.path}", search.body))
    assert [each["info"]["run_id"] for each in found["runs"]] == [info["run_id"]]
    other = find_runs(info["experiment_id"], "0" * 64)
    assert not json.loads(server.ask("POST", f"/api/2.0/mlflow/{other.path}", other.body))
    assert params["arg.lr"] == "0.1" and params["tony.worker.instances"] == "1"
    assert metrics["own"] == 42.0 and params["lr"] == "1", "the program's own calls"
    steps = server.steps(info["run_id"], "loss")
    # The executor passes on the newest values of each moment, so a step may be left out.
    assert len(set(steps)) == len(steps) >= 10
    assert max(later - before for before, later in itertools.pairwise(steps)) <= 6
    assert "top_1" in metrics


def out_of(folder: Path) -> str:
    return (folder / "submit.out").read_text()[-3000:]
