"""The flows to copy, on a real server: uploaded by their script, and run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from dags.examples.azkaban import upload
from tests.cluster.azkaban.fixture import GetFlows, Servers
from tests.cluster.azkaban.flows import Flows, Run
from tests.cluster.azkaban.installing import PATHS, installer
from tests.cluster.azkaban.server import PASSWORD, USER, Azkaban
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

FLOWS = Path(upload.__file__).parent
PROGRAMS = FLOWS.parent / "retraining" / "programs"

WITHIN = 600.0
"""A whole run on a machine that has ten times as much to do as it can."""


def uploaded(capsys: pytest.CaptureFixture[str], *words: str) -> int:
    """By the script, as a user does; the number of what was started."""
    assert upload.main([*words, "--user", USER]) == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert PASSWORD + "@" not in output
    return int(output.partition("execid=")[2].split()[0])


def test_the_first_training(
    azkaban: GetFlows, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZKABAN_PASSWORD", PASSWORD)
    flows = azkaban()
    words = [str(FLOWS / "first"), "--server", flows.server.url, "--run", "summary"]
    run = Run(flows, uploaded(capsys, *words, "--wait", "--set", "steps=30"), "summary")
    run.ends()
    app_id = run.app_id("first-training")
    assert any(line.startswith(f"{app_id}: loss 0.") for line in run.log_lines("summary")), (
        run.log()
    )
    assert "step 30:" in flows.tony("logs", app_id).stdout
    # Again: the next version of the same project.
    assert upload.main([*words[:3], "--user", USER]) == 0


@pytest.fixture
def whole(
    hadoop: GetHadoop,
    environment: Callable[[str], Path],
    azkaban_servers: Servers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Flows]:
    """A server beside a cluster with MapReduce and Spark, whose clients it finds."""
    spark = next(environment("spark").glob("lib/python3*/site-packages/pyspark"))
    monkeypatch.setenv("SPARK_HOME", str(spark))
    cluster = hadoop("mapreduce", "spark")
    clients = {
        **cluster.client_environment,
        "HADOOP_CONF_DIR": str(cluster.conf_dir),
        "HADOOP_USER_NAME": cluster.user,
        "PYTHONPATH": PATHS,
    }
    server = Azkaban.up(
        tmp_path / "server",
        installer(cluster.conf_dir),
        jars=azkaban_servers.jars,
        environment=clients,
    )
    yield Flows(server, tmp_path / "flows", cluster)
    server.remove()


@pytest.mark.nightly  # tests/cluster/pipeline runs the same programs
def test_the_retraining_pipeline(
    whole: Flows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MapReduce, Spark, the training, the gate, and what is published."""
    monkeypatch.setenv("AZKABAN_PASSWORD", PASSWORD)
    cluster = whole.cluster
    assert cluster is not None
    data(cluster, tmp_path, "day1.jsonl")
    words = [str(FLOWS / "retraining"), "--with", str(PROGRAMS), "--server", whole.server.url]
    settings = {"python": sys.executable, "root": "hdfs:///shop", "raw": "hdfs:///shop/raw"}
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    run = Run(whole, uploaded(capsys, *words, "--run", "publish"), "publish")
    run.ends(seconds=WITHIN)
    kinds = {app["applicationType"].upper() for app in cluster.applications("FINISHED")}
    assert {"MAPREDUCE", "SPARK", "TONY"} <= kinds
    (line,) = (line for line in run.log_lines("publish") if line.startswith('{"path"'))
    version = json.loads(line)
    assert version["metrics"]["accuracy"] > 0.8
    assert version["application_id"] == run.app_id("train")
    assert list(cluster.hdfs.list("/shop/models")) == [version["version"]]
    path = urlsplit(version["path"]).path
    assert len(json.loads(cluster.hdfs.get(f"{path}/model.json"))["weights"]) == 7


def data(cluster: Hadoop, folder: Path, name: str) -> None:
    """Raw data on HDFS."""
    made = folder / name
    make = [sys.executable, str(PROGRAMS / "make_data.py"), str(made)]
    subprocess.run(make, check=True, timeout=120)
    cluster.hdfs.put(f"/shop/raw/{name}", made.read_bytes())
