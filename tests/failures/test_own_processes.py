"""What can happen to our own processes and their room: executors, masters, clients, disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.cli.processes import application_of, command, environment, tony
from tests.failures.wreck import Wreck, belonging_to, one_role, until, with_role
from tony_core.job.spec import MasterSpec, Timeouts
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.slow

TWO = 'echo "$PPID $$"; sleep 300'

# Of the disk that a job fills. Every file takes whole pages of it: some 600 are there before
# the program begins, and pages are of 4 KB here and of 64 KB elsewhere.
SMALL = (16 << 20) + 2048 * os.sysconf("SC_PAGE_SIZE")

FILL = f"head -c {SMALL} /dev/zero > fill"  # more than is left


def printed(wreck: Wreck, count: int) -> List[List[int]]:
    """Executor and program of each task, as the programs printed them."""
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
    # No command runs, and yet it goes.
    wreck.clears_away()
    until(lambda: len(belonging_to(wreck.app_id)) == 0, "the executors to end by themselves")
    # Who reads history alone hears of it, too.
    shown = read_history(wreck)
    assert shown["job"]["state"] == "FAILED"
    assert "the master died (attempt 1 of 1)" in shown["job"]["diagnostics"]
    until(lambda: "(attempt 1 of 1)" in last_line(wreck), "its story's last line")
    assert wreck.status().state is AppState.FAILED
    wreck.leaves_nothing()


def read_history(wreck: Wreck) -> Any:
    """What ``tony history`` says of it: the same in its list, and no more of a page."""
    answers = {}
    for words in (("list",), ("show", wreck.app_id)):
        there = Path(wreck.home.root).parent
        done = tony("history", *words, "--json", cwd=there, timeout=120)
        assert done.returncode == 0, done.stderr
        answers[words[0]] = json.loads(done.stdout)
    (listed,) = answers["list"]["jobs"]
    shown = answers["show"]
    for name in ("app_id", "state", "finished", "diagnostics", "links"):
        assert listed[name] == shown["job"][name]
    assert shown["job"]["finished"] and "page" not in shown["job"]["links"]
    assert not {"running", "launched"} & {one["state"] for one in shown["job"]["tasks"]}
    return shown


def last_line(wreck: Wreck) -> str:
    """Of the story that history has."""
    return str(read_history(wreck)["events"][-1]["text"])


def test_a_master_that_is_stopped_is_killed_by_force(tony_home: Path) -> None:
    wreck = Wreck(tony_home, one_role(TWO, timeouts=Timeouts(kill_grace_s=0.5)))
    wreck.running(1)
    os.kill(wreck.master_pid(), signal.SIGSTOP)
    done = tony("kill", wreck.app_id, "--reason", "enough", cwd=tony_home.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    wreck.clears_away()
    shown, why = read_history(wreck), "enough (its master did not end by itself)"
    assert (shown["job"]["state"], shown["job"]["diagnostics"]) == ("KILLED", why)
    until(lambda: why in last_line(wreck), "its story's last line")
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
    app_id = application_of(out.read_text())
    wreck = Wreck.of(tony_home, app_id)

    def looks(verb: str) -> bool:
        done = subprocess.run(command(verb, app_id), env=environment(), capture_output=True)
        assert done.returncode in (0, 1), done.stderr
        return wreck.status().state.ended

    until(lambda: looks("status") or looks("describe"), "its end, though it is looked at")
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
    reasons = wreck.ends(AppState.FAILED)
    # The master's own error, or the executor's: the first that needs room reports it.
    assert "free some space" in reasons or "no space is left on the node's disk" in reasons, reasons


def test_a_disk_that_fills_up_under_a_job_ends_nothing(small: Path, tmp_path: Path) -> None:
    barrier = f"until [ -e {tmp_path}/$JOB_NAME ]; do sleep 0.05; done"
    wreck = Wreck(small, with_role("chief", barrier, barrier))
    wreck.running(2)
    until(lambda: (wreck.get("api/job") or {}).get("progress") is not None, "the page")
    fill = small / "fill"
    with pytest.raises(OSError), fill.open("wb", buffering=0) as stream:
        while stream.write(bytes(1 << 16)):
            pass
    (tmp_path / "chief").touch()  # which the master has to write down
    until(lambda: "cannot be written" in wreck.get("api/job")["trouble"], "the master's word")
    fill.unlink()
    until(lambda: not wreck.get("api/job")["trouble"], "the state to be kept again")
    (tmp_path / "worker").touch()
    reasons = wreck.ends(AppState.SUCCEEDED, "No space left on device); the job goes on")
    assert reasons.count("the job's state cannot be written") == 1, reasons
    assert reasons.count("the job's state is kept again") == 1, reasons
