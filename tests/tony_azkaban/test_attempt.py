"""A cancel in the moments between an application's beginning and its being watched."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Tuple

from tests.tony_azkaban.jobs import PATHS

#: An attempt whose scheduler takes its time, and to which the signal comes in such a moment.
SCRIPT = """
import os, signal, sys, time
from types import SimpleNamespace
from tony_azkaban import attempt, cancellation
from tony_azkaban.execution import Execution
from tony_azkaban.site import Site
from tony_core.cli import errors
from tony_core.cli.interrupts import Interrupts
from tony_core.job.spec import Job
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LogReader,
    NoSuchApplication,
    SchedulerError,
)

cancellation.start_kill_process = lambda name, app_id: print("sees through", flush=True)
how = sys.argv[1]
execution = Execution("train", "12", "nightly", server="az", attempt=int(how == "takes-over"))
tags = tuple(execution.tags().values())
APP = "application_1_1"
asked = []

class Scheduler:
    name = "yarn"
    user = "me"

    log_reader = LogReader()

    def list(self):
        return [self.status(APP)]

    def kill(self, app_id, reason):
        asked.append(reason)
        if how == "submits" and len(asked) < 4:
            raise NoSuchApplication("not yet")

    def status(self, app_id):
        state = AppState.KILLED if asked else AppState.RUNNING
        return AppStatus(app_id, "train", "me", "ml", state, tags=tags)

    def close(self):
        pass

def cancel():
    os.kill(os.getpid(), signal.SIGTERM)

def send(scheduler, prepared, before):
    before()
    cancel()
    raise SchedulerError("the connection is gone")

class Watch:
    def __init__(self, *args, **words):
        pass

    def wake(self):
        pass

    def run(self):
        raise SchedulerError("it was ended under these hands")

def write(self, text):
    print(text, flush=True)
    if text.startswith("goes on with"):
        cancel()

attempt.Log.write = write
attempt.Watch = Watch
attempt.open_for_job = lambda job: Scheduler()
attempt.prepare = lambda scheduler, job: SimpleNamespace(app_id=APP, warnings=())
attempt.send = send
props = {"tony_azkaban.retry": "attach"}
try:
    with Interrupts("the job was cancelled before anything was submitted") as interrupts:
        made = attempt.Attempt(
            props, Site(cancel_s=20.0), execution, Job("train", ()), interrupts
        )
        code = made.run([])
except BaseException as error:
    code = errors.report_error(error, False)
print("asked", len(asked))
sys.exit(code)
"""


def run(how: str) -> Tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_submission_in_progress_is_ended_before_the_program_exits() -> None:
    code, output = run("submits")
    assert code == 143, output
    assert "KILLED: application_1_1 was cancelled while it was being submitted" in output
    assert output.endswith("asked 4\n")


def test_what_is_just_being_taken_over_is_ended() -> None:
    code, output = run("takes-over")
    assert code == 143, output
    assert "before anything was submitted" not in output
    assert "SIGTERM: the job is cancelled; application_1_1 is being ended" in output
    assert output.endswith("asked 1\n")
