"""TensorBoard beside the training when its log is on a file system that all nodes share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest

from tests.cluster.hadoop.curl import curl
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.mark.parametrize("security", [(), ("secure",)], ids=["open", "secure"])
def test_a_sidecar_is_made_for_a_log_on_hdfs(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    environment: Callable[[str], Path],
    security: Tuple[str, ...],
) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment", *security)
    one = tony_on(cluster)
    over = one.folder / "over"
    job = one.submit(
        *("--shell_env", f"PATH={environment('mpi') / 'bin'}:/usr/bin:/bin"),
        *("--executes", f"sh -c 'until test -e {over}; do sleep 0.2; done'"),
        conf={
            "tony.application.framework": "mpi",
            "tony.worker.instances": 1,
            "tony.worker.memory": "256m",
            "tony.application.tensorboard-log-dir": f"hdfs:///user/{cluster.user}/events",
        },
    )

    def link() -> str:
        status: Dict[str, Any] = one.json("status", job.app_id)
        return str(status["links"].get("tensorboard", ""))

    url = job.until(link, "a link to TensorBoard")
    assert f"/proxy/{job.app_id}/" in url
    ticket = cluster.environment_of(cluster.user) if security else None
    status, text = curl(url, ticket, follow=True)
    assert status == 200 and "TensorBoard" in text, (status, text)
    if security:
        for reader in (None, cluster.environment_of("bob")):
            status, text = curl(url, reader, follow=True)
            assert status in (401, 403) and "TensorBoard" not in text, (status, text)
    tasks = {task["task"]: task["state"] for task in one.json("status", job.app_id)["tasks"]}
    assert tasks == {"worker:0": "running", "tensorboard:0": "running"}
    over.touch()
    job.ends(0)
    until(one.nothing_runs, "TensorBoard has gone with the job")
