"""Masters, ResourceManagers and nodes die; the job goes on, or starts again, and says so."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.cluster.yarn.training import Training, masters, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_killed_master_is_followed_and_training_is_not_disturbed(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
    training = Training(one)
    job = training.job
    job.until(training.known_as_running, "both count, and YARN knows")
    pids = {name: lines[-1][1] for name, lines in training.lines().items()}
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(lambda: masters(job.app_id) not in ([], [first]), "the next master")
    job.until(
        lambda: one.json("status", job.app_id)["attempt"] == 2 and running(one, job.app_id) == 2,
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
    until(one.nothing_runs, "no process is left")


REPORTS = """
import time, tony
for step in range(100000):
    tony.report(progress=step / 100000, metrics={"at": time.time()}, step=step)
    time.sleep(0.2)
"""


def test_a_killed_master_loses_at_most_ten_seconds_of_history(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """On HDFS, of story, tasks and metrics: no decision is near that would be written at once."""
    one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
    (one.folder / "train.py").write_text(REPORTS)
    job = one.submit(
        *("--src_dir", str(one.folder), "--executes", "python3 train.py"),
        conf={
            "tony.application.framework": "mpi",
            "tony.worker.instances": 1,
            "tony.worker.memory": "64m",
            "tony.am.max-attempts": 1,
            "tony.task.metrics-interval-ms": 200,
        },
    )
    place = f"{one.cluster.default_fs}/user/{one.cluster.user}/.tony/history"  # type: ignore[union-attr]
    begun = job.until(
        lambda: (one.json("status", job.app_id)["tasks"] or [{}])[0].get("reported", {}).get("at"),
        "a report",
    )
    time.sleep(22.0)  # some rounds of writing, after the decisions of the start
    (master,) = masters(job.app_id)
    os.kill(master, signal.SIGKILL)
    killed = time.time()
    job.process.wait(120)
    shown = one.json("history show", job.app_id, "--history", place)
    at = shown["metrics"]["latest"]["worker:0"]["at"]
    print(f"{killed - at:.1f} s of metrics are lost")
    assert begun < at <= killed
    assert killed - at < 10.0 + 5.0, (
        "five to the next writing, five for it; the rest is the machine's"
    )
    (task,) = shown["job"]["tasks"]
    assert abs(task["reported"]["at"] - at) < 10.0, "of history, or of the page as last watched"
    assert task["runs"][0]["container"]
    times = [point[0] for point in shown["metrics"]["task"]["worker:0"]["at"]]
    assert times == sorted(times) and len(times) > 10
    assert any(event["kind"] == "task-state" for event in shown["events"])
    assert not shown["problems"]


def test_without_its_journal_the_next_master_starts_a_new_session(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment")
    one = tony_on(cluster)
    training = Training(one, **{"tony.am.retry-count": 0})
    job = training.job
    job.until(training.known_as_running, "both count, and YARN knows")
    cluster.hdfs.delete(f"/user/{cluster.user}/.tony/apps/{job.app_id}")
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(
        lambda: all(len({line[1] for line in lines}) == 2 for lines in training.lines().values()),
        "new processes count",
    )
    training.over()
    job.ends(0)
    until(one.nothing_runs, "no process is left")


@pytest.mark.nightly  # by day another one takes over: test_failovers.py
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
    assert any(word in causes[0] for word in ("lost", "connection", "heard", "silent")), causes
