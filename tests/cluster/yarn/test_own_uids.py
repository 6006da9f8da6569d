"""Jobs whose containers run as their users: LinuxContainerExecutor, on a cluster with Kerberos."""

from __future__ import annotations

from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.security import FIRST_UID
from tests.cluster.yarn.jobs import Tony, until
from tests.second_user import needs_root

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.timeout(300),
    needs_root,
]

PROGRAM = """
import os, tony
place = os.environ["HADOOP_TOKEN_FILE_LOCATION"]
found = os.stat(place)
print("uid", os.getuid(), "tokens", oct(found.st_mode & 0o777), found.st_uid)
saved = tony.checkpoints(os.environ["TONY_CHECKPOINT_DIR"] + "/" + os.environ["TASK_INDEX"])
saved.save(1, b"one")
print("saved", saved.steps())
"""


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_job_is_its_users(hadoop: GetHadoop, tony_on: Callable[..., Tony], user: str) -> None:
    cluster = hadoop("secure", "linux_executor", "log_aggregation", "nm_recovery")
    one = tony_on(cluster)
    one.env.update(cluster.environment_of(user))
    (one.folder / "src").mkdir()
    (one.folder / "src" / "train.py").write_text(PROGRAM)
    job = one.submit(
        *("--src_dir", str(one.folder / "src"), "--executes", "/usr/bin/python3 train.py"),
        conf={
            "tony.application.framework": "mpi",
            "tony.worker.instances": 2,
            "tony.worker.memory": "256m",
            "tony.application.checkpoint-dir": f"hdfs:///user/{user}/checkpoints",
        },
    )
    job.ends(0, 150)
    uid = FIRST_UID + ("ann", "bob").index(user)
    for line in (f"uid {uid} tokens 0o600 {uid}", "saved [1]"):
        until(lambda line=line: one("logs", job.app_id).stdout.count(line) == 2, f"twice: {line}")
    until(one.nothing_runs, "no process is left")
