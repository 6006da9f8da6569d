"""However a job of Azkaban's is ended, nothing of its application is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from dags.examples.azkaban.upload import ENDED
from tests.cluster.azkaban import shared_checks
from tests.cluster.azkaban.fixture import GetFlows, Servers
from tests.cluster.azkaban.flows import LASTS, Flows, Run, until
from tests.cluster.azkaban.installing import installer, tony_azkaban
from tests.cluster.azkaban.server import NAME, PASSWORD, Azkaban
from tests.cluster.hadoop import supervisor

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CLINGS = "sh -c 'trap \"\" TERM; echo up; setsid sleep 300 & sleep 301; sleep 302'"
"""A program that minds no TERM, with a child in a session of its own."""


@pytest.fixture
def flows(azkaban: GetFlows) -> Flows:
    return azkaban()


def test_while_it_submits(flows: Flows) -> None:
    shared_checks.cancelled_while_it_submits(flows)


def test_at_once(flows: Flows) -> None:
    """Wherever the program has got to by then.

    Not before there is its process: a cancel that comes earlier, the server loses, and lets the
    job run on. The same may happen some moments later, and what is left then a sweep ends.
    """
    project = flows.upload({"train.job": flows.job("sleep 300", LASTS)})
    for pause in (0.2, 0.4, 0.7, 1.0):
        run = flows.run(project, "train")
        pid = shared_checks.of_job(flows, run)
        time.sleep(pause)
        run.cancel()
        run.ends("KILLED")
        if lost(run, pid) or run.killed_hard():
            flows.swept(run)
    flows.nothing_runs()


def lost(run: Run, pid: int) -> bool:
    """Whether the program of an execution that is over runs on, unknown to the server."""
    try:
        until(lambda: pid not in supervisor.processes_in(run.folder), "it ends", 15)
    except AssertionError:
        return True
    return False


def test_a_sweep(flows: Flows) -> None:
    """The documented way out where a job's program has not ended its application."""
    run = flows.one(CLINGS, LASTS, **{"tony.task.kill-grace": "2"})
    app_id = run.app_id()
    until(lambda: "up" in flows.tony("logs", app_id).stdout, "the program runs")
    os.kill(shared_checks.of_job(flows, run), signal.SIGKILL)
    run.ends("FAILED")
    other = flows.one("sleep 300", LASTS)
    kept = other.app_id()
    until(lambda: flows.status(kept)["state"] == "RUNNING", "the other one runs")
    flows.swept(run)
    ended = flows.gone(app_id)
    assert ended["state"] == "KILLED" and "swept" in ended["diagnostics"]
    assert flows.status(kept)["state"] == "RUNNING"


def test_while_it_runs(flows: Flows) -> None:
    flows.cancelled(
        lambda: flows.one(CLINGS, LASTS, **{"tony.task.kill-grace": "40"}),
        lambda run: until(
            lambda: "up" in flows.tony("logs", run.app_id()).stdout, "the program runs"
        ),
    )
    flows.nothing_runs()


def test_while_it_restarts(flows: Flows) -> None:
    fails = "sh -c 'echo session $SESSION_ID fails >&2; exit 1'"
    flows.cancelled(
        lambda: flows.one(fails, LASTS, **{"tony.am.retry-count": 1000}),
        lambda run: until(lambda: flows.status(run.app_id())["session"] >= 2, "a third session"),
    )
    flows.nothing_runs()


def test_sigkill_and_the_lease(flows: Flows) -> None:
    run = flows.one("sleep 300", **{"tony.client.lease": "15"})
    app_id = run.app_id()
    until(lambda: flows.status(app_id)["state"] == "RUNNING", "it runs")
    os.kill(shared_checks.of_job(flows, run), signal.SIGKILL)
    run.ends("FAILED")
    assert flows.gone(app_id)["state"] in ("KILLED", "FAILED")
    flows.nothing_runs()


def test_a_retry_after_sigkill(flows: Flows) -> None:
    """What its predecessor has left is ended: there is one application at the end."""
    mark = flows.server.home / f"mark-{time.time_ns():x}"
    run = flows.one(
        f"sh -c 'if mkdir {mark}; then sleep 300; fi'",
        retries=1,
        **{"retry.backoff": 1000, "tony.client.lease": "600"},
    )
    first = run.app_id()
    until(mark.exists, "the program runs")
    os.kill(shared_checks.of_job(flows, run), signal.SIGKILL)
    run.ends(seconds=240)
    second = run.of_attempt(1)
    states = [flows.status(app_id)["state"] for app_id in (first, second)]
    assert states == ["KILLED", "SUCCEEDED"], run.story()
    flows.nothing_runs()


def test_a_server_that_was_restarted(azkaban_servers: Servers, tmp_path: Path) -> None:
    """Its jobs go on without it; what is left of them is found by its tags, and ended."""
    with Azkaban.up(tmp_path / "own", installer(), jars=azkaban_servers.jars) as server:
        flows = Flows(server, tmp_path / "flows")
        run = flows.one("sleep 300", **{"tony.client.lease": "600"})
        app_id = run.app_id()
        until(lambda: flows.status(app_id)["state"] == "RUNNING", "it runs")
        server.kill(NAME)
        server.start(NAME)
        server.wait_ready()
        flows.client = server.client()
        assert flows.status(app_id)["state"] == "RUNNING"
        job = flows.one("sleep 300")
        other = job.app_id()
        until(lambda: flows.status(other)["state"] == "RUNNING", "the other one runs")
        until(lambda: run.state() in ENDED, "the server has given the old one up")
        output = sweep(flows)
        assert app_id in output and other not in output
        assert flows.gone(app_id)["state"] == "KILLED"
        assert flows.status(other)["state"] == "RUNNING"
        job.cancel()
        job.ends("KILLED")


def sweep(flows: Flows) -> str:
    """By the server's own word on what runs."""
    return tony_azkaban(
        *("sweep", "--scheduler", "local", "--server-url", flows.server.url),
        AZKABAN_PASSWORD=PASSWORD,
        TONY_HOME=str(flows.server.tony_home),
    )
