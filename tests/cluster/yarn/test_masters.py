"""Masters, ResourceManagers and nodes die; the job goes on, or starts again, and says so."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TRAINS = """
import os, sys, time
step, session = 0, os.environ["SESSION_ID"]
while not os.path.exists(sys.argv[1] + "/over"):
    with open(f"{sys.argv[1]}/{os.environ['JOB_NAME']}-{os.environ['TASK_INDEX']}", "a") as file:
        file.write(f"{session} {os.getpid()} {step}\\n")
    step += 1
    time.sleep(0.05)
"""


class Training:
    """Two workers that count until told to stop."""

    def __init__(self, tony: Tony, **conf: Any) -> None:
        self.folder = tony.folder / "counts"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        src = tony.folder / "src"
        src.mkdir()
        (src / "train.py").write_text(TRAINS)
        settings = {
            "tony.application.framework": "mpi",
            "tony.worker.instances": 2,
            "tony.worker.memory": "64m",
            **conf,
        }
        self.job: Running = tony.submit(
            *("--src_dir", str(src), "--executes", f"python3 train.py {self.folder}"),
            conf=settings,
        )

    def lines(self) -> Dict[str, List[List[str]]]:
        """What each worker has counted: session, pid, step."""
        return {
            path.name: [line.split() for line in path.read_text().splitlines()]
            for path in self.folder.glob("worker-*")
        }

    def counts(self, session: str = "0") -> bool:
        """Both have begun in that session."""
        lines = self.lines()
        return len(lines) == 2 and all(each[-1][0] == session for each in lines.values())

    def grows(self) -> Callable[[], bool]:
        """Whether each has counted on since now."""
        before = {name: len(lines) for name, lines in self.lines().items()}
        return lambda: all(len(lines) > before[name] + 5 for name, lines in self.lines().items())

    def over(self) -> None:
        (self.folder / "over").touch()


def masters(app_id: str) -> List[int]:
    """The pids of an application's masters."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                folder = os.readlink(entry / "cwd")
            except OSError:
                continue
            is_master = b"master" in words and b"yarn-start" in words and b"-c" not in words
            if is_master and app_id in folder:
                found.append(int(entry.name))
    return found


def test_a_killed_master_is_followed_and_training_is_not_disturbed(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation"))
    training = Training(one)
    job = training.job
    job.until(training.counts, "both count")
    pids = {name: lines[-1][1] for name, lines in training.lines().items()}
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(lambda: masters(job.app_id) not in ([], [first]), "the next master")
    job.until(
        lambda: one.json("status", job.app_id)["attempt"] == 2 and _running(one, job.app_id) == 2,
        "it has taken the tasks over",
    )
    job.until(training.grows(), "they count on")
    training.over()
    job.ends(0)
    for name, lines in training.lines().items():
        assert {line[1] for line in lines} == {pids[name]}, job.events()
        assert [int(line[2]) for line in lines] == list(range(len(lines)))
    kinds = [event["kind"] for event in job.events()]
    assert "root-cause" not in kinds
    until(one.nothing_runs, "no process is left", 20)


def test_without_its_journal_the_next_master_starts_a_new_session(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation")
    one = tony_on(cluster)
    training = Training(one, **{"tony.am.retry-count": 0})
    job = training.job
    job.until(training.counts, "both count")
    cluster.hdfs.delete(f"/user/{cluster.user}/.tony/apps/{job.app_id}")
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(
        lambda: all(len({line[1] for line in lines}) == 2 for lines in training.lines().values()),
        "new processes count",
    )
    training.over()
    job.ends(0)
    until(one.nothing_runs, "no process is left", 20)


def test_the_resource_manager_restarts(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    cluster = hadoop("rm_recovery")
    one = tony_on(cluster)
    training = Training(one)
    job = training.job
    job.until(training.counts, "both count")
    cluster.restart_rm()
    job.until(training.grows(), "they count on")
    training.over()
    job.ends(0)
    for lines in training.lines().values():
        assert len({line[1] for line in lines}) == 1


def test_a_lost_node(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    """Its worker is started again on the other; the system's budget pays."""
    cluster = hadoop("two_nodes", "short_expiry")
    one = tony_on(cluster)
    training = Training(one, **{"tony.am.retry-count": 0})
    job = training.job
    job.until(training.counts, "both count")
    nodes = {task["task"]: task["node"] for task in one.json("status", job.app_id)["tasks"]}
    (master,) = masters(job.app_id)
    on_first = "/nm0/" in os.readlink(f"/proc/{master}/cwd")
    lost = 1 if on_first else 0
    names = [name.partition(":")[0] for name in cluster.node_names]
    if names[lost] not in {node.partition(":")[0] for node in nodes.values()}:
        pytest.fail(f"nothing runs beside the master's node: {nodes}, {names}")
    cluster.kill_nm(lost)
    job.until(lambda: training.counts("1"), "a second session")
    training.over()
    job.ends(0)
    causes = [event["text"] for event in job.events() if event["kind"] == "root-cause"]
    assert len(causes) == 1
    assert "lost" in causes[0] or "connection" in causes[0] or "heard" in causes[0]


def _running(tony: Tony, app_id: str) -> int:
    tasks = tony.json("status", app_id)["tasks"]
    return sum(task["state"] == "running" for task in tasks)
