"""Flows with ``type=tony`` on a real Azkaban server and a real YARN."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Tuple

import pytest

from tests.cluster.azkaban import shared_checks, special_characters
from tests.cluster.azkaban.fixture import GetFlows
from tests.cluster.azkaban.flows import LASTS, Flows, Run, cut_links, until
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Both = Tuple[Flows, Hadoop]

CLINGS = "sh -c 'trap \"\" TERM; echo up; setsid sleep 300 & sleep 301; sleep 302'"
"""A program that minds no TERM, with a child in a session of its own."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object) -> None:
        return None


def leads_to(url: str) -> str:
    """Where the ResourceManager leads a browser that opens an application's tracking URL."""
    if "/proxy/" not in url:
        return url
    try:
        with urllib.request.build_opener(_NoRedirect).open(url, timeout=60) as answer:
            return f"{url} answers {answer.status}"
    except urllib.error.HTTPError as error:
        return str(error.headers["Location"])


@pytest.fixture
def both(azkaban: GetFlows, hadoop: GetHadoop) -> Both:
    cluster = hadoop("queues")
    return azkaban(cluster), cluster


def test_success_and_what_the_next_job_gets(both: Both) -> None:
    flows, cluster = both
    program = "import tony\ntony.report(step=1, metrics={'loss': 0.25})\nprint('grüße')\n"
    run = flows.start(
        {
            "train.job": flows.job("python3 train.py", **{"tony.worker.instances": 2}),
            "src/train.py": program,
            "next.job": {
                "type": "command",
                "dependencies": "train",
                "command": "echo ${tony_result.application_id} ${tony_result.metrics.loss}",
            },
        },
        "next",
    ).ends()
    app_id = run.app_id("train")
    assert f"{app_id} 0.25" in run.log_lines("next")
    app = cluster.application(app_id)
    assert app["finalStatus"] == "SUCCEEDED" and app["applicationType"] == "TONY"
    assert f"azkaban.flow.execid:{run.execid}" in app["applicationTags"]
    lines = run.log_lines("train")
    assert any("page: http" in line and app_id in line for line in lines), run.log("train")
    assert any("log of worker:1: http" in line for line in lines)
    # What stays: the cluster's page of it, and what every task wrote last.
    assert lines[lines.index("last lines of worker:1 (stdout):") + 1] == "  | grüße"
    (page,) = [line.split()[1] for line in lines if line.startswith("  application: ")]
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert app_id.encode() in answer.read()
    assert cut_links(lines) == []
    assert any("ACCEPTED" in line for line in lines) and any("SUCCEEDED" in line for line in lines)
    flows.nothing_runs()


def test_a_failing_task(both: Both) -> None:
    flows, cluster = both
    run = flows.one(
        "sh -c 'echo the very last words >&2; exit 7'",
        **{
            "tony.am.retry-count": 0,
            "tony.worker.instances": 2,
            "tony.portal.url": "http://portal.example",
        },
    ).ends("FAILED")
    log = "\n".join(run.log_lines())
    assert "code 7" in log and "the very last words" in log, log
    app = cluster.application(run.app_id())
    assert app["finalStatus"] == "FAILED"
    portal = f"http://portal.example/jobs/{run.app_id()}"
    assert f"  portal: {portal}" in run.log_lines()
    assert leads_to(app["trackingUrl"]) == portal
    flows.nothing_runs()


def test_a_retry_succeeds(both: Both) -> None:
    flows, cluster = both
    mark = cluster.folder / f"mark-{time.time_ns():x}"
    run = flows.one(
        f"sh -c 'test -e {mark} && exit 0; touch {mark}; exit 3'",
        retries=1,
        **{"retry.backoff": 1000, "tony.am.retry-count": 0},
    ).ends()
    first, second = (cluster.application(run.of_attempt(n)) for n in (0, 1))
    assert (first["finalStatus"], second["finalStatus"]) == ("FAILED", "SUCCEEDED")


def test_cancelled_while_it_submits(both: Both) -> None:
    shared_checks.cancelled_while_it_submits(both[0])


def test_cancelled_while_accepted(both: Both) -> None:
    """A queue with room for one master, which another user's job has."""
    flows, cluster = both
    other = flows.one("sleep 600", **{"tony.yarn.queue": "tiny"})
    cluster.wait_for(other.app_id(), ("RUNNING",), 120)

    def accepted(run: Run) -> None:
        cluster.wait_for(run.app_id(), ("ACCEPTED",), 120)
        run.wait_for_text("ACCEPTED")

    flows.cancelled(lambda: flows.one("true", LASTS, **{"tony.yarn.queue": "tiny"}), accepted)
    other.cancel()
    other.ends("KILLED")
    assert cluster.wait_for(other.app_id(), limit=120)["finalStatus"] == "KILLED"
    flows.nothing_runs()


def test_cancelled_while_it_runs(both: Both) -> None:
    flows, cluster = both
    conf = {**LASTS, "tony.worker.instances": 2, "tony.task.kill-grace": "40"}
    app_id = flows.cancelled(
        lambda: flows.one(CLINGS, conf),
        lambda run: until(
            lambda: flows.tony("logs", run.app_id()).stdout.count("up") >= 2, "the programs run"
        ),
    )
    assert cluster.application(app_id)["finalStatus"] == "KILLED"
    flows.nothing_runs()


def test_cancelled_while_it_restarts(both: Both) -> None:
    flows, cluster = both
    fails = "sh -c 'echo session $SESSION_ID fails >&2; exit 1'"
    app_id = flows.cancelled(
        lambda: flows.one(fails, LASTS, **{"tony.am.retry-count": 1000}),
        lambda run: until(lambda: flows.status(run.app_id())["session"] >= 1, "a second session"),
    )
    assert cluster.application(app_id)["finalStatus"] == "KILLED"
    flows.nothing_runs()


def test_as_another_user(both: Both) -> None:
    """The application is that user's, and a cancel of the server's ends it all the same."""
    flows, cluster = both
    cluster.hdfs.make_folder("/user/alice")
    files = WebHdfsFileSystem(
        SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir)), ClusterIdentity(cluster.user)
    )
    for path, mode in (("/user", 0o755), ("/user/alice", 0o777)):
        files.chmod(f"{cluster.default_fs}{path}", mode)
    files.close()
    denied = flows.one("true", **{"user.to.proxy": "bob", "tony.yarn.staging-dir": "/user/alice2"})
    assert "the job runs as bob: user.to.proxy" in denied.ends("FAILED").log_lines(), denied.log()

    def running(run: Run) -> None:
        cluster.wait_for(run.app_id(), ("RUNNING",), 120)
        run.wait_for_text("log of worker:0: ")

    app_id = flows.cancelled(
        lambda: flows.one("sleep 300", LASTS, **{"user.to.proxy": "alice"}), running
    )
    app = cluster.application(app_id)
    assert (app["user"], app["finalStatus"]) == ("alice", "KILLED")
    assert cluster.hdfs.list("/user/alice")[".tony"]["owner"] == "alice"
    flows.nothing_runs()


def test_the_job_file_overrides_run_and_shared_properties(both: Both) -> None:
    shared_checks.check_precedence(both[0])


def test_bad_properties(both: Both) -> None:
    shared_checks.bad_properties(both[0])


def test_unicode_and_quotes(both: Both) -> None:
    special_characters.comes_through(both[0])


def test_ten_at_once(both: Both) -> None:
    flows, _ = both
    project = flows.upload({"train.job": flows.job("sleep 1")})
    runs = [flows.run(project, "train") for _ in range(10)]
    for run in runs:
        run.ends(seconds=240)
    assert len({run.app_id() for run in runs}) == 10
    flows.nothing_runs()


def test_a_job_cannot_name_another_cluster(both: Both) -> None:
    """The administrator sets which one it is."""
    flows, cluster = both
    run = flows.one("true", **{"env.HADOOP_CONF_DIR": "/nonexistent"}).ends()
    assert cluster.application(run.app_id())["finalStatus"] == "SUCCEEDED"
