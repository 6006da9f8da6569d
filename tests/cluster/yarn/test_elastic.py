"""An elastic role on a real cluster, its connections under TLS: whole, smaller, whole again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Says that it is there, in which round and of how many, and goes on until it may end.
PROGRAM = """
import os, sys, time
here = sys.argv[1]
session, index, number = (os.environ[name] for name in ("SESSION_ID", "TASK_INDEX", "TASK_NUM"))
assert os.environ["WORLD_SIZE"] == number and os.environ["RANK"] == index
with open(f"{here}/tmp-{session}-{index}", "w") as stream:
    stream.write(str(os.getpid()))
os.rename(f"{here}/tmp-{session}-{index}", f"{here}/{session}-{index}-{number}")
while not os.path.exists(f"{here}/go"):
    time.sleep(0.05)
"""


def newest(folder: Path, number: int, after: int = -1) -> Dict[int, int]:
    """The pids of the newest round of that many tasks, when all of them are there."""
    rounds: Dict[int, Dict[int, int]] = {}
    for path in folder.glob("[0-9]*"):
        session, index, of = map(int, path.name.split("-"))
        if of == number and session > after:
            rounds.setdefault(session, {})[index] = int(path.read_text())
    whole = [session for session, tasks in rounds.items() if len(tasks) == number]
    return {-1: max(whole), **rounds[max(whole)]} if whole else {}


def test_a_lost_worker_is_done_without_until_another_comes(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop("two_nodes", "short_expiry"))
    seen = tmp_path / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "meets.py").write_text(PROGRAM)
    job = one.submit(
        *("--src_dir", str(tmp_path / "src"), "--executes", f"python3 meets.py {seen}"),
        conf={
            "tony.application.framework": "pytorch",
            "tony.application.elastic-interval": "1s",
            "tony.task.tls": "true",
            "tony.worker.min-instances": 2,
            "tony.worker.instances": 3,
            "tony.worker.memory": "64m",
            "tony.am.retry-count": 0,
        },
    )
    first = job.until(lambda: newest(seen, 3), "all three")
    program = Path(f"/proc/{first[2]}/stat").read_text()
    os.kill(int(program.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its executor
    smaller = job.until(lambda: newest(seen, 2, first[-1]), "a round of two")
    job.until(lambda: newest(seen, 3, smaller[-1]), "a round of three")
    (seen / "go").touch()
    job.ends(0)
    texts = [event["text"] for event in job.events() if event["kind"] == "elastic"]
    assert any("2 of 3 worker" in text for text in texts), texts
    until(one.nothing_runs, "no process is left")
