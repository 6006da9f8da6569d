"""However a job of Azkaban's is ended, nothing of its application is left."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Iterator

import pytest

from dags.examples.azkaban.upload import ENDED
from tests.cluster.azkaban.fixture import GetFlows, Servers
from tests.cluster.azkaban.flows import Flows, Run, command_of, until
from tests.cluster.azkaban.installing import installer, tony_azkaban
from tests.cluster.azkaban.server import NAME, PASSWORD, Azkaban
from tests.cluster.hadoop import supervisor

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CLINGS = "sh -c 'trap \"\" TERM; echo up; setsid sleep 300 & sleep 301; sleep 302'"
"""A program that minds no TERM, with a child in a session of its own."""


@pytest.fixture
def flows(azkaban: GetFlows) -> Flows:
    return azkaban()


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes calls and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


def of_job(flows: Flows, run: Run) -> int:
    """The process that the server has started for the job."""

    def find() -> int:
        below = supervisor.descendants(flows.server.running_pid())
        inside = supervisor.processes_in(run.folder) & below
        found = [pid for pid in inside if "tony_azkaban" in command_of(pid)]
        return found[0] if found else 0

    return int(until(find, "the job's process"))


def test_while_it_submits(flows: Flows, silent: int) -> None:
    run = flows.one("true", **{"tony.containers.resources": f"http://127.0.0.1:{silent}/data"})
    of_job(flows, run)
    time.sleep(1)  # to be where it waits for an answer; cancelled sooner it must do as well
    run.cancel()
    run.ends("KILLED")
    flows.nothing_runs()


def test_at_once(flows: Flows) -> None:
    """Wherever the program has got to by then.

    Not before there is its process: a cancel that comes earlier, the server loses, and lets the
    job run on. It ends by itself here; the sweep is for where it does not.
    """
    project = flows.upload({"train.job": flows.job("sleep 20")})
    for pause in (0.2, 0.4, 0.7, 1.0):
        run = flows.run(project, "train")
        of_job(flows, run)
        time.sleep(pause)
        run.cancel()
        run.ends("KILLED")
    flows.nothing_runs()


def test_while_it_runs(flows: Flows) -> None:
    run = flows.one(CLINGS, **{"tony.task.kill-grace": "60"})
    app_id = run.app_id()
    until(lambda: "up" in flows.tony("logs", app_id).stdout, "the program runs")
    run.cancel()
    run.ends("KILLED")
    why = flows.gone(app_id)
    assert why["state"] == "KILLED"
    # Where the server lost patience before its program could ask, the lease has.
    assert "cancelled" in why["diagnostics"] or "tony.client.lease" in why["diagnostics"]
    flows.nothing_runs()


def test_while_it_restarts(flows: Flows) -> None:
    run = flows.one(
        "sh -c 'echo session $SESSION_ID fails >&2; exit 1'",
        **{"tony.am.retry-count": 100},
    )
    app_id = run.app_id()
    until(lambda: flows.status(app_id)["session"] >= 2, "a third session")
    run.cancel()
    run.ends("KILLED")
    assert flows.gone(app_id)["state"] == "KILLED"
    flows.nothing_runs()


def test_sigkill_and_the_lease(flows: Flows) -> None:
    run = flows.one("sleep 300", **{"tony.client.lease": "8"})
    app_id = run.app_id()
    until(lambda: flows.status(app_id)["state"] == "RUNNING", "it runs")
    os.kill(of_job(flows, run), signal.SIGKILL)
    run.ends("FAILED")
    assert flows.gone(app_id)["state"] in ("KILLED", "FAILED")
    flows.nothing_runs()


def test_a_retry_after_sigkill(flows: Flows) -> None:
    """What its predecessor has left is ended: there is one application at the end."""
    mark = flows.server.home / f"mark-{flows.folder.parent.name}"
    run = flows.one(
        f"sh -c 'if mkdir {mark}; then sleep 300; fi'",
        retries=1,
        **{"retry.backoff": 1000, "tony.client.lease": "600"},
    )
    first = run.app_id()
    until(mark.exists, "the program runs")
    os.kill(of_job(flows, run), signal.SIGKILL)
    run.ends()
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
        said = sweep(flows)
        assert app_id in said and other not in said
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
