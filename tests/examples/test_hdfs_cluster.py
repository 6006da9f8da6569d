"""examples/hdfs on a real HDFS: killed in the middle, resumed from there, the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest

import tony
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import CHECKOUT, Running, Tony
from tests.cluster.yarn.test_kerberos import callers_tokens
from tony_core.hadoop.credentials import LOCATION
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import HDFS_VARIABLE, hdfs_environment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EXAMPLE = CHECKOUT / "examples" / "hdfs"


@pytest.fixture
def security() -> Tuple[str, ...]:
    """What the cluster has of it; tests parametrize that."""
    return ()


@pytest.fixture
def cluster(
    hadoop: GetHadoop,
    security: Tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Hadoop:
    """One whose HDFS the test itself reaches as a program does, with the data set on it."""
    made = hadoop(*security)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(made.conf_dir))
    monkeypatch.setenv("TONY_CACHE_DIR", str(tmp_path / "cache"))
    if security:
        monkeypatch.setenv("KRB5_CONFIG", made.environment_of(made.user)["KRB5_CONFIG"])
        callers_tokens(made, tmp_path / "tokens")
        monkeypatch.setenv(LOCATION, str(tmp_path / "tokens"))
    source = CHECKOUT / "examples" / "data" / "points.csv"
    tony.upload(str(source), f"hdfs:///user/{made.user}/tony-examples/points/points.csv")
    return made


def result(job: Running, cluster: Hadoop) -> Dict[str, Any]:
    """What it left on HDFS."""
    folder = f"hdfs:///user/{cluster.user}/tony-examples/hdfs/checkpoints/{job.app_id}"
    outcome: Dict[str, Any] = json.loads(Path(tony.dataset(f"{folder}/result.json")).read_text())
    saved = tony.checkpoints(folder)
    assert saved.steps() == [180, 200]
    newest = saved.latest()
    state = json.loads(Path(newest[1]).read_text())
    assert len(state["losses"]) == outcome["steps"] == 200
    return outcome


@pytest.mark.parametrize(
    ("scheduler", "security"),
    [
        pytest.param("local", (), marks=pytest.mark.nightly, id="local"),
        pytest.param("yarn", (), id="yarn"),
        pytest.param("yarn", ("secure",), marks=pytest.mark.nightly, id="secure"),
    ],
)
def test_it_dies_and_goes_on_from_the_newest_checkpoint(
    cluster: Hadoop, tony_on: Callable[..., Tony], scheduler: str
) -> None:
    one = tony_on(cluster if scheduler == "yarn" else None)
    one.env.pop(LOCATION, None)  # the job has its own
    words = []
    if scheduler == "local":
        conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
        words = ["--shell_env", f"{HDFS_VARIABLE}={hdfs_environment(conf, cluster.user)}"]
        one.env.pop("HADOOP_CONF_DIR", None)
    results = {}
    for name, more in (("whole", ""), ("killed", "--die-at 50")):
        job = one.submit(
            *words, "--task_params", more or "--batch 64", cwd=EXAMPLE, conf=user(cluster)
        )
        job.ends(0)
        results[name] = result(job, cluster)
        if more:
            causes = [event for event in job.events() if event["kind"] == "root-cause"]
            assert [event["task"] for event in causes] == ["worker:0"]
            assert "signal 9" in causes[0]["text"]
            assert "session 1: resumed at step 40" in one("logs", job.app_id).stdout
    assert (results["whole"]["sessions"], results["killed"]["sessions"]) == (1, 2)
    assert (results["whole"]["resumed_at"], results["killed"]["resumed_at"]) == (0, 40)
    assert results["whole"]["last_loss"] == results["killed"]["last_loss"]


def user(cluster: Hadoop) -> Dict[str, str]:
    """The job file names the user by ${user.name}; the fixture's is another's choice."""
    root = f"hdfs:///user/{cluster.user}/tony-examples"
    return {
        "tony.application.checkpoint-dir": f"{root}/hdfs/checkpoints",
        "tony.client.executes": f"python3 train.py --data {root}/points",
    }


@pytest.mark.nightly
def test_a_failover_in_the_middle(
    hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = hadoop("nn_ha")
    conf = SiteConfiguration.load({}, conf_dir=str(made.conf_dir))
    monkeypatch.setenv(HDFS_VARIABLE, hdfs_environment(conf, made.user))
    monkeypatch.setenv("TONY_CACHE_DIR", str(tmp_path / "cache"))
    saved = tony.checkpoints(f"hdfs:///user/{made.user}/failover", keep=2)
    saved.save(1, b"one")
    made.fail_over_hdfs()
    saved.save(2, b"two")
    made.fail_over_hdfs()
    step, path = saved.latest()
    assert (step, Path(path).read_bytes()) == (2, b"two")
    assert saved.steps() == [1, 2]
