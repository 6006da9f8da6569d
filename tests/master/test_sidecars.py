"""Sidecars through the whole shell: each end of each try counts, within one session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.master.shell import Shell, a_job, until
from tony_core.job.spec import Metrics, Resources, Role, Tracking
from tony_core.protocol.messages import Acknowledge, Ended, Prepare, Ready, Running, Start, Welcome
from tony_core.schedulers.port import AppState

WORKER = Role("worker", 1, Resources(), "true")
SIDECAR = Role("board", 1, Resources(), "true", tracking=Tracking.SIDECAR, max_restarts=2)


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_core.master.master.STOP_EXTRA_S", 0.2)
    monkeypatch.setattr("tony_core.master.session.budgets.BACKOFF_FIRST_S", 0.05)


def test_a_sidecar_is_tried_again_until_it_is_given_up(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(WORKER, SIDECAR)) as shell:
        made = {shell.pool.roles[cid]: shell.ready(cid) for cid in shell.launched(2)}
        worker, sidecar = made["worker"], made["board"]
        worker.wait_for(Start)
        worker.send_messages(Running(0, 1))
        for number in (1, 2, 3):
            sidecar.wait_for(Prepare, number)
            again = number - 1
            sidecar.send_messages(Ready(0, "127.0.0.1", {"main": 5000}, again))
            sidecar.wait_for(Start, number)
            sidecar.send_messages(Running(0, number, restart=again))
            ended = Ended(0, number, stderr_tail=[f"try {number}"], restart=again)
            sidecar.send_messages(ended, ended)  # sent twice, and judged once
            sidecar.wait_for(Acknowledge, 2 * number)
        until(lambda: shell.story("sidecar-given-up"), "the end of the tries")
        (given_up,) = shell.story("sidecar-given-up")
        assert "board:0 is not restarted (tony.board.max-restarts)" in given_up
        failed = [text for text in shell.story("task-state") if "board:0 failed" in text]
        assert ["exit code 1" in failed[0], "exit code 3" in failed[2]] == [True, True], failed
        assert len(failed) == 3
        tasks = {task["task"]: task for task in shell.json("/api/tasks")["tasks"]}
        assert (tasks["board:0"]["restarts"], tasks["board:0"]["exit_code"]) == (2, 3)
        assert [run["exit_code"] for run in tasks["board:0"]["runs"]] == [3]
        assert tasks["worker:0"]["state"] == "running"
        shell.finish(worker)
        shell.go(worker, sidecar)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_the_welcome_has_the_jobs_measurement_settings(tmp_path: Path) -> None:
    metrics = Metrics(gpu=False, gpu_exec_path="/opt/bin/nvidia-smi", interval_s=7.0, error_lines=3)
    with Shell(tmp_path, a_job(WORKER).replace(metrics=metrics)) as shell:
        (container,) = shell.launched(1)
        welcome = shell.executor(container).wait_for(Welcome)
        assert welcome.gpu_exec_path == "/opt/bin/nvidia-smi"
        assert (welcome.gpu_metrics, welcome.metrics_interval_s) == (False, 7.0)
        assert welcome.error_lines == 3
