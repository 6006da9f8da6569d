"""TonY's own code, published once for all users of a cluster."""

from __future__ import annotations

import subprocess
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]


def test_jobs_run_on_it_and_its_log_is_followed(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    one = tony_on(hadoop("two_nodes", "bare_environment"))
    assert one.cluster is not None
    place = f"{one.cluster.default_fs}/apps/tony/runtime.tar"
    command = [*one.command, "runtime", "publish", place]
    subprocess.run(command, env=one.env, check=True, timeout=60, capture_output=True)
    conf = {
        "tony.application.framework": "mpi",
        "tony.worker.instances": "1",
        "tony.runtime.location": place,
    }
    line = "sh -c 'for n in 1 2 3 4 5 6; do echo line $n; sleep 0.5; done'"
    shown = one("submit", "--dry-run", "--executes", line, *_words(conf)).stdout
    assert place in shown and "PUBLIC" in shown, shown
    job = one.submit("--executes", line, conf=conf)
    job.until(lambda: "worker:0 running" in job.output_text, "its program runs")
    followed = one("logs", job.app_id, "--task", "worker:0", "-f").stdout
    assert [text for text in followed.splitlines() if "line" in text] == [
        f"line {n}" for n in range(1, 7)
    ]
    job.ends(0)


def _words(conf: dict[str, str]) -> list[str]:
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
