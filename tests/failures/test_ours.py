"""What can happen to our own processes and their room: executors, masters, clients, disks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.cli.processes import application_of, command, environment
from tests.failures.wreck import Wreck, belonging_to, one_role, until
from tony_core.job.spec import MasterSpec, Timeouts
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.slow

TWO = 'echo "$PPID $$"; sleep 300'

# Of the disk that a job fills. Every file takes whole pages of it: some 600 are there before
# the program begins, and pages are of 4 KB here and of 64 KB elsewhere.
SMALL = (16 << 20) + 2048 * os.sysconf("SC_PAGE_SIZE")

FILL = f"head -c {SMALL} /dev/zero > fill"  # more than is left


def printed(wreck: Wreck, count: int) -> List[List[int]]:
    """Executor and program of each task, as the programs said."""
    found = until(
        lambda: len(lines := [x for x in wreck.logs() if x.endswith("\n")]) == count and lines,
        "both programs",
    )
    return [[int(word) for word in text.split()] for text in found]


def test_an_executor_is_killed(tony_home: Path) -> None:
    wreck = Wreck(tony_home, one_role(TWO, 2))
    wreck.running(2)
    (executor, _), _ = printed(wreck, 2)
    os.kill(executor, signal.SIGKILL)
    wreck.ends(AppState.FAILED, "lost on", "ended by SIGKILL", "max-infrastructure-failures=0")


def test_an_executor_is_stopped(tony_home: Path) -> None:
    timeouts = Timeouts(kill_grace_s=1.0, heartbeat_s=0.5, max_missed_heartbeats=16)
    wreck = Wreck(tony_home, one_role(TWO, 2, timeouts=timeouts))
    wreck.running(2)
    (executor, _), _ = printed(wreck, 2)
    os.kill(executor, signal.SIGSTOP)
    wreck.ends(AppState.FAILED, "silent", "tony.task.max-missed-heartbeats=16")


def test_a_master_is_killed_and_the_same_programs_go_on(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wreck = Wreck(tony_home, one_role(f"echo $PPID $$; until [ -e {go} ]; do sleep 0.05; done", 2))
    wreck.running(2)
    before = printed(wreck, 2)
    os.kill(wreck.master_pid(), signal.SIGKILL)
    wreck.running(2, attempt=2)
    assert {pid for pair in before for pid in pair} <= set(belonging_to(wreck.app_id))
    go.touch()
    wreck.ends(AppState.SUCCEEDED, "a new master takes over 2 containers of session 0")
    assert printed(wreck, 2) == before


def test_the_last_master_is_killed(tony_home: Path) -> None:
    timeouts = Timeouts(kill_grace_s=0.5, master_lost_s=0.5)
    master = MasterSpec(user_retries=0, infrastructure_retries=0, max_attempts=1)
    wreck = Wreck(tony_home, one_role(TWO, 2, master=master, timeouts=timeouts))
    wreck.running(2)
    os.kill(wreck.master_pid(), signal.SIGKILL)
    until(lambda: len(belonging_to(wreck.app_id)) == 0, "the executors to end by themselves")
    assert "the master died (attempt 1 of 1)" in wreck.status().diagnostics
    assert wreck.status().state is AppState.FAILED
    wreck.leaves_nothing()


def test_a_client_is_killed_and_its_job_ends_with_its_lease(tony_home: Path) -> None:
    words = ("--executes", "sleep 300", "--conf", "tony.worker.instances=1")
    words += ("--conf", "tony.worker.memory=200m", "--conf", "tony.client.lease=15s")
    out = tony_home.parent / "out"
    with out.open("wb") as stdout:
        client = subprocess.Popen(
            command("submit", *words),
            stdout=stdout,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=tony_home.parent,
            env=environment(),
        )
    try:
        until(lambda: "running on" in out.read_text(), "the task to run")
    finally:
        client.kill()
        client.wait()
    wreck = Wreck.of(tony_home, application_of(out.read_text()))
    wreck.ends(AppState.KILLED, "lease")


@pytest.fixture
def small(tony_home: Path) -> Iterator[Path]:
    """A TonY home on a disk of ``SMALL`` bytes, where we may mount one."""
    if os.getuid():
        pytest.skip("only root may mount a disk")
    if shutil.which("mount") is None or shutil.which("umount") is None:
        pytest.skip("there is no program to mount a disk")
    tony_home.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(tony_home)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    yield tony_home
    subprocess.run(["umount", "--lazy", str(tony_home)], check=True)


def test_a_disk_that_is_full_for_logs_state_and_working_folder(small: Path) -> None:
    timeouts = Timeouts(kill_grace_s=0.5, master_lost_s=1.0)
    master = MasterSpec(user_retries=0, infrastructure_retries=0, max_attempts=1)
    wreck = Wreck(small, one_role(FILL, master=master, timeouts=timeouts))
    said = wreck.ends(AppState.FAILED)
    # The master's own word, or the executor's of its program: whoever is the first to need room.
    assert "free some space" in said or "no space is left on the node's disk" in said, said
