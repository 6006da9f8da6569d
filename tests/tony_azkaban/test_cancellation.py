"""The time that a server leaves is kept, whatever the scheduler does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Tuple

import pytest

from tests.tony_azkaban.jobs import PATHS

#: A process whose main thread is held up, with schedulers that are, too.
SCRIPT = """
import sys, threading, time
from types import SimpleNamespace
from tony_azkaban import cancellation
from tony_core.schedulers.port import AppState, NoSuchApplication, SchedulerError

cancellation.FORCE_S, cancellation.REPORT_S, cancellation.RETRY_S = 0.15, 0.3, 0.01
cancellation.start_kill_process = lambda *words: print("sees through", *words, flush=True)
how = sys.argv[1]
asked = []

class Scheduler:
    def kill(self, app_id, reason):
        asked.append(reason)
        if how == "hangs":
            time.sleep(600)
        if how == "refuses":
            raise SchedulerError("permission denied")
        if how == "comes-late" and len(asked) < 5:
            raise NoSuchApplication("not yet")
        if how == "twice" and threading.current_thread() is first[0]:
            time.sleep(600)

    def status(self, app_id):
        return SimpleNamespace(state=AppState.KILLED)

    def close(self):
        pass

first = []

def opens():
    if how == "nowhere":
        raise SchedulerError("no cluster")
    first.append(threading.current_thread())
    return Scheduler()

made = cancellation.Cancellation(opens, "yarn", "application_1_1", float(sys.argv[2]))
made.request()
made.request()
if how == "main-tells":
    assert made.ended.wait(60) and made.claim_report() and not made.claim_report()
    time.sleep(0.6)
    print("reported by main", len(asked), asked[0])
    sys.exit(7)
time.sleep(600)
"""


def run(how: str, within_s: float) -> Tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how, str(within_s)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("how", ["ends", "comes-late", "twice"])
def test_it_ends_while_the_main_thread_is_held_up(how: str) -> None:
    assert run(how, 3.0) == (  # which a slow machine needs, maybe
        143,
        "KILLED: application_1_1 was ended, as the job was cancelled\n",
    )


@pytest.mark.parametrize(
    ("how", "why"), [("hangs", ""), ("refuses", ": permission denied"), ("nowhere", ": no cluster")]
)
def test_it_cannot_be_ended_in_time(how: str, why: str) -> None:
    code, output = run(how, 0.3)
    assert code == 143
    assert f"application_1_1 was asked to end, and has not yet{why}; it goes on" in output
    # Before the last words: an old server's patience may be over by then.
    assert output.startswith("sees through yarn application_1_1\n")


def test_a_process_of_its_own_sees_it_through(tmp_path: Path) -> None:
    """Wherever the job runs and whatever its folder and its variables bring."""
    for name in ("json.py", "argparse.py", "tony_core.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the job')\n")
    output = tmp_path / "arguments"
    script = (
        "import sys; sys.path[:0] = " + repr(PATHS) + "\n"
        "import subprocess\n"
        "from tony_azkaban import cancellation\n"
        "started = subprocess.Popen\n"
        "def record(words, **options):\n"
        "    return made.append(started(words, **{**options, 'stderr': open(sys.argv[1], 'wb')}))\n"
        "made = []\n"
        "subprocess.Popen = record\n"
        "cancellation.start_kill_process('local', 'local_20260101000000_000001')\n"
        "sys.exit(made[0].wait(60))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(output)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TONY_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        timeout=90,
        check=False,
    )
    assert "local_20260101000000_000001" in output.read_text(), output.read_text()
    assert "a file of the job" not in output.read_text()
    assert done.returncode == 2, output.read_text()


def test_the_main_thread_reports_it_if_it_can() -> None:
    code, output = run("main-tells", 0.3)
    assert code == 7
    assert output == "reported by main 1 cancelled: Azkaban ended the job (SIGTERM)\n"
