"""The examples' job files as they are, on a real cluster: they train as on one machine.

In a small queue, beside two busy applications, on nodes that export nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import CHECKOUT, Tony, until
from tests.schedulers.yarn.fixtures import busy_neighbours

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.frameworks,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

#: example, environment, processes that the program counts; what mpi does stands in test_same.py
CASES = [
    ("jax", "jax", 2),
    ("pytorch", "torch", 2),
    ("tensorflow", "tensorflow", 2),
    ("tensorflow-ps", "tensorflow", 2),
    ("keras", "tensorflow", 1),
    ("xgboost", "boosting", 2),
    ("lightgbm", "boosting", 2),
]


@pytest.mark.parametrize(("example", "env", "processes"), CASES, ids=[case[0] for case in CASES])
def test_it_trains(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    environment: Callable[[str], Path],
    tmp_path: Path,
    example: str,
    env: str,
    processes: int,
) -> None:
    python = environment(env) / "bin" / "python"
    # LightGBM knows itself by the addresses of its interfaces: 127.0.0.2, the second node, is none.
    nodes = () if example == "lightgbm" else ("two_nodes",)
    cluster = hadoop(*nodes, "bare_environment", "small_queue")
    one = tony_on(cluster)
    checkpoints = one.folder / "checkpoints"
    with busy_neighbours(cluster, tmp_path / "busy"):
        job = one.submit(
            *("--python_binary_path", str(python)),
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
