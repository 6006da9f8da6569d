"""However a job on a cluster is ended from outside, nothing of it is left on any node."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Callable, Dict

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CLINGS = "setsid sh -c 'trap \"\" TERM; sleep 71300 & sleep 71301; sleep 71302' & sleep 71303"
"""A program whose children leave its group and ignore TERM; no other process sleeps for so long."""
SLEEPERS = 3  # of each, at first


def sleeping() -> int:
    """How many of the processes that cling are there."""
    done = subprocess.run(["pgrep", "-fc", "^sleep 7130[0-3]"], capture_output=True, text=True)
    return int(done.stdout or 0)


def started(tony: Tony, **conf: object) -> Running:
    """Two workers that cling, running."""
    settings: Dict[str, object] = {
        "tony.worker.instances": 2,
        "tony.worker.memory": "64m",
        "tony.task.kill-grace": "1",
        **conf,
    }
    job = tony.submit("--executes", f'bash -c "{CLINGS}"'.replace('\\"\\"', "''"), conf=settings)
    job.until(lambda: sleeping() >= 2 * SLEEPERS, "the programs run")
    return job


def are_gone(cluster: Hadoop, *urls: str) -> bool:
    """Whether none of them is on HDFS."""
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
    files = WebHdfsFileSystem(conf, ClusterIdentity(cluster.user))
    try:
        return not any(files.exists(url) for url in urls)
    finally:
        files.close()


@pytest.mark.parametrize("by", ["tony kill", "the RM's page", "ctrl-c"])
def test_killed(hadoop: GetHadoop, tony_on: Callable[..., Tony], by: str) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment")
    one = tony_on(cluster)
    job = started(one)
    app_id = job.app_id
    if by == "tony kill":
        assert "has ended" in one("kill", app_id, "--reason", "enough of it").stdout
    elif by == "the RM's page":
        cluster.kill_application(app_id)
    else:
        job.process.send_signal(signal.SIGINT)
    until(one.nothing_runs, "no process is left on any node")
    code = job.process.wait(60)
    assert code == (130 if by == "ctrl-c" else 137), job.output_text
    assert sleeping() == 0
    status = one.json("status", app_id)
    assert status["state"] == "KILLED"
    if by == "tony kill":
        assert "enough of it" in status["diagnostics"] + job.output_text
    if by == "the RM's page":  # the master could say nothing: it is over in history, too
        ended = json.loads(one("history show", app_id, "--json").stdout)["job"]
        assert ended["state"] == "KILLED"
        assert ended["finished"]
        assert [task["state"] for task in ended["tasks"]] == ["killed", "killed"]
        assert ended["links"] == {}
        root = f"hdfs:///user/{cluster.user}/.tony"
        assert are_gone(cluster, f"{root}/apps/{app_id}", f"{root}/store/leases/{app_id}")


def test_a_job_staged_elsewhere_gets_the_reason(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment")
    one = tony_on(cluster)
    usual = f"{cluster.default_fs}/user/{cluster.user}"
    job = started(one, **{"tony.yarn.staging-dir": f"{usual}/elsewhere"})
    one("kill", job.app_id, "--reason", "enough of it")
    assert "enough of it" in job.ends(137)
    assert are_gone(
        cluster, *(f"{usual}/{root}/apps/{job.app_id}" for root in (".tony", "elsewhere"))
    )


SAVES = "trap 'sleep 2; echo saved; exit 0' TERM; echo up; while true; do sleep 0.1; done"


def saving(tony: Tony) -> Running:
    """A program that saves for two seconds on TERM."""
    conf = {
        "tony.worker.instances": 1,
        "tony.worker.memory": "64m",
        "tony.task.kill-grace": "60",
    }
    job = tony.submit("--executes", f'bash -c "{SAVES}"', conf=conf)
    job.until(lambda: "up" in output(tony, job), "the program runs")
    return job


def output(tony: Tony, job: Running) -> str:
    return str(tony("logs", "-t", "worker:0", job.app_id, check=False).stdout)


@pytest.mark.parametrize("by", ["tony kill", pytest.param("ctrl-c", marks=pytest.mark.nightly)])
def test_a_program_that_saves_is_given_the_time(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], by: str
) -> None:
    one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
    job = saving(one)
    if by == "tony kill":
        one("kill", job.app_id, "--reason", "enough of it")
    else:
        job.process.send_signal(signal.SIGINT)
    job.ends(137 if by == "tony kill" else 130)
    assert "saved" in output(one, job)
    status = one.json("status", job.app_id)
    assert status["state"] == "KILLED"
    kinds = [event["kind"] for event in job.events()]
    assert kinds[-1] == "job-ended"
    if by == "tony kill":
        assert "enough of it" in status["diagnostics"]
    until(one.nothing_runs, "no process is left on any node")


def test_a_second_kill_takes_the_time_away(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
    stubborn = started(one, **{"tony.task.kill-grace": "600"})
    words = [*one.command, "kill", *one.choice, stubborn.app_id]
    first = subprocess.Popen([*words, "--reason", "the first"], env=one.env)
    stubborn.until(
        lambda: "the first" in stubborn.output_text or first.poll() is not None,
        "the master was asked",
    )
    one("kill", stubborn.app_id, "--reason", "the second")
    stubborn.ends(137)
    assert first.wait(60) == 0
    until(one.nothing_runs, "no process is left on any node")
    assert sleeping() == 0
