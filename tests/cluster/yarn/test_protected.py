"""A whole job on a cluster whose conversations are all encrypted."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]


def test_it_is_staged_runs_and_is_read_again(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop("privacy", "two_nodes"))
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(
        "import os\n"
        "print('task', os.environ['TASK_INDEX'], 'in session', os.environ['SESSION_ID'])\n"
        "if os.environ['SESSION_ID'] == '0' and os.environ['TASK_INDEX'] == '1':\n"
        "    raise SystemExit('once')\n"
    )
    job = one.submit(
        *("--executes", "python3 train.py", "--src_dir", str(source)),
        conf={"tony.application.framework": "mpi", "tony.worker.instances": "2"},
    )
    job.ends(0)
    for index in (0, 1):
        log = one("logs", job.app_id, "--task", f"worker:{index}").stdout
        assert f"task {index} in session 1" in log, log
    assert [event["kind"] for event in job.events()].count("restarting") == 1
    until(one.nothing_runs, "no process is left on any node")
