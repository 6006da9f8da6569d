"""Flows with ``type=tony`` on a real Azkaban server, on the embedded scheduler."""

from __future__ import annotations

import time

import pytest

from tests.cluster.azkaban import shared_checks, special_characters
from tests.cluster.azkaban.fixture import GetFlows
from tests.cluster.azkaban.flows import Flows, cut_links

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def flows(azkaban: GetFlows) -> Flows:
    return azkaban()


def test_success(flows: Flows) -> None:
    settings = {"tony.worker.instances": 2, "tony.portal.url": "http://portal.example"}
    run = flows.one("sh -c 'sleep 0.5; echo done'", **settings).ends()
    lines = run.log_lines()
    app_id = run.app_id()
    first = next(line for line in lines if "application" in line and "local_" in line)
    assert app_id in first
    assert any("page: http" in line for line in lines)
    for task in ("worker:0", "worker:1"):
        assert any(f"log of {task}: " in line for line in lines), run.log()
    assert lines[lines.index("last lines of worker:1 (stdout):") + 1] == "  | done"
    assert f"  portal: http://portal.example/jobs/{app_id}" in lines
    assert cut_links(lines) == []
    assert "SUCCEEDED" in "\n".join(lines)
    status = flows.status(app_id)
    assert status["state"] == "SUCCEEDED"
    tags = " ".join(status["tags"])
    assert f"azkaban.flow.execid:{run.execid}" in tags and "azkaban.flow.flowid:train" in tags
    flows.nothing_runs()


def test_a_failing_task(flows: Flows) -> None:
    run = flows.one(
        "sh -c 'echo first words >&2; echo the very last words >&2; exit 7'",
        **{"tony.am.retry-count": 0},
    ).ends("FAILED")
    log = "\n".join(run.log_lines())
    assert "exit code 7" in log or "code 7" in log, log
    assert "the very last words" in log
    assert log.index("first words") < log.index("the very last words")
    assert log.count("| the very last words") == 1  # with the outcome alone
    assert flows.status(run.app_id())["state"] == "FAILED"
    flows.nothing_runs()


def test_outputs_for_the_next_job(flows: Flows) -> None:
    train = flows.job("python3 train.py", src_dir="src")
    program = "import tony\ntony.report(step=1, metrics={'accuracy': 0.5, 'loss': 0.25})\n"
    shows = "app=${tony_result.application_id} is ${tony_result.outcome} with"
    shows += " ${tony_result.metrics.accuracy} and ${tony_result.train.metrics.loss}"
    absent = ("value", "tensorboard_url", "metrics.none", "train.metrics.none")
    shows += " and <" + "".join(f"${{tony_result.{name}}}" for name in absent) + ">"
    run = flows.start(
        {
            "train.job": train,
            "src/train.py": program,
            "next.job": {"type": "command", "dependencies": "train", "command": f"echo {shows}"},
        },
        "next",
    ).ends()
    lines = run.log_lines("next")
    assert f"app={run.app_id('train')} is SUCCEEDED with 0.5 and 0.25 and <>" in lines


def test_the_job_file_overrides_run_and_shared_properties(flows: Flows) -> None:
    shared_checks.check_precedence(flows)


def test_unicode_and_quotes(flows: Flows) -> None:
    special_characters.comes_through(flows)


def test_bad_properties(flows: Flows) -> None:
    shared_checks.bad_properties(flows)


def test_a_retry_succeeds(flows: Flows) -> None:
    """The second attempt finds what the first one left in the flow's folder."""
    mark = flows.server.home / f"mark-{time.time_ns():x}"
    run = flows.one(
        f"sh -c 'test -e {mark} && exit 0; touch {mark}; echo no >&2; exit 3'",
        retries=2,
        **{"retry.backoff": 1000, "tony.am.retry-count": 0},
    ).ends()
    first, second = run.of_attempt(0), run.of_attempt(1)
    assert first != second
    assert flows.status(first)["state"] == "FAILED"
    assert flows.status(second)["state"] == "SUCCEEDED"
    mark.unlink()


def test_ten_at_once(flows: Flows) -> None:
    job = flows.job("sh -c 'echo $APP_ID; sleep 1'")
    project = flows.upload({"train.job": job})
    runs = [flows.run(project, "train") for _ in range(10)]
    for run in runs:
        run.ends()
    assert len({run.app_id() for run in runs}) == 10
    flows.nothing_runs()
