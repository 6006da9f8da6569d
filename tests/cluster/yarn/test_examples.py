"""The examples' job files as they are, on a real cluster: they train as on one machine.

In a small queue, beside two busy applications, on nodes that export nothing; with Kerberos, too.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import CHECKOUT, Tony, until
from tests.schedulers.yarn.fixtures import busy_neighbours

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.frameworks,
    pytest.mark.timeout(600),
]


def running_nodes(cluster: Hadoop) -> int:
    return sum(node["state"] == "RUNNING" for node in cluster.nodes())


#: example, environment, processes that the program counts
CASES = [
    ("mpi", "mpi", 2),
    ("jax", "jax", 2),
    ("pytorch", "torch", 2),
    ("tensorflow", "tensorflow", 2),
    ("tensorflow-ps", "tensorflow", 2),
    ("keras", "tensorflow", 1),
    ("xgboost", "boosting", 2),
    ("lightgbm", "boosting", 2),
    ("ray", "ray", 2),
    ("horovod", "horovod", 2),
    ("mxnet", "mxnet", 2),
]


@pytest.fixture
def short_folder() -> Iterator[str]:
    """For Ray, whose sockets need a short path, and whose logs stay."""
    with tempfile.TemporaryDirectory(prefix="tony-ray-", dir="/tmp") as folder:
        yield folder


#: the one example that runs with every change, and where
BY_DAY = "mpi-secure"


def cases() -> List[Any]:
    """Each example on each kind of cluster."""
    return [
        pytest.param(
            *(*case, security),
            id=f"{case[0]}-{kind}",
            marks=[] if f"{case[0]}-{kind}" == BY_DAY else [pytest.mark.nightly],
        )
        for case in CASES
        for kind, security in (("open", ()), ("secure", ("secure",)))
    ]


@pytest.mark.parametrize(("example", "env", "processes", "security"), cases())
def test_it_trains(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    environment: Callable[[str], Path],
    short_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    env: str,
    processes: int,
    security: Tuple[str, ...],
) -> None:
    found = environment(env)
    if example == "mxnet" and not list(found.glob("lib/python3*/site-packages/mxnet")):
        pytest.skip("MXNet 1.9.1 needs a numpy that Python 3.12 and newer have no wheel of")
    python = found / "bin" / "python"
    # LightGBM knows itself by the addresses of its interfaces: 127.0.0.2, the second node, is none.
    nodes = () if example == "lightgbm" else ("two_nodes",)
    cluster = hadoop(*nodes, *security, "bare_environment", "small_queue")
    if security:
        if not nodes:
            cluster.stop("nm1")
            until(lambda: running_nodes(cluster) == 1, "the second node is gone")
        # The neighbours log in from this process.
        monkeypatch.setenv("KRB5_CONFIG", cluster.environment_of(cluster.user)["KRB5_CONFIG"])
    one = tony_on(cluster)
    checkpoints = one.folder / "checkpoints"
    with busy_neighbours(cluster, tmp_path / "busy"):
        job = one.submit(
            *("--python_binary_path", str(python)),
            *("--shell_env", f"RAY_TMPDIR={short_folder}"),
            conf={
                "tony.application.checkpoint-dir": checkpoints,
                "tony.application.tensorboard-log-dir": one.folder / "events",
                "tony.yarn.queue": "small",
            },
            cwd=CHECKOUT / "examples" / example,
        )
        job.ends(0, 300)
    (result,) = checkpoints.glob("*/result.json")
    result_of = json.loads(result.read_text())
    assert result_of["last_loss"] < result_of["first_loss"] / 2
    assert (result_of["processes"], result_of["sessions"], result_of["resumed_at"]) == (
        processes,
        1,
        0,
    )
    assert "root-cause" not in [event["kind"] for event in job.events()]
    until(one.nothing_runs, "no process is left", 60)
