"""What a machine does to a job under it: groups killed, ports taken, files damaged, a restart.

Where the moment counts, the interpreter that our own code runs on is a script of the test's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import sys
import zipfile
from pathlib import Path
from typing import Any, List, Set

import pytest

from tests import leaks
from tests.failures.wreck import Wreck, one_role, script, until
from tony_core.job.spec import MasterSpec, Program, Runtime
from tony_core.schedulers.local import processes
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.slow

# The user's budget pays for nothing, the system's for one failure.
SYSTEM_PAYS = MasterSpec(user_retries=0, infrastructure_retries=1)
PAID = ("session 1 follows; 0 retries left for system failures", "session 1 begins")


def interpreter(folder: Path, first: str) -> Runtime:
    """Our own code's, which does something first: ``$4`` says what it is to run."""
    made = folder / "interpreter"
    made.write_text(f'#!/bin/sh\n{first}\nexec {shlex.quote(sys.executable)} "$@"\n')
    made.chmod(0o755)
    return Runtime(python=str(made))


class Gate:
    """Holds up what is about to run, by a shell's pattern of its verb and container."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._open = folder / "gate"
        self._waits = folder / "waits"
        self.runtime = interpreter(
            folder,
            f'case "$4 $TONY_CONTAINER_ID" in {pattern})\n'
            f"touch {self._waits}; until [ -e {self._open} ]; do sleep 0.05; done;; esac",
        )

    def reached(self) -> None:
        """Waits until a process stands before it."""
        until(self._waits.exists, "a process before the gate")

    def open(self) -> None:
        """Let everybody through."""
        self._open.touch()


def lines(wreck: Wreck) -> List[List[List[int]]]:
    """The numbers that were printed: of each container, of each line."""
    return [[[int(x) for x in line.split()] for line in text.splitlines()] for text in wreck.logs()]


def test_the_whole_group_of_a_container_is_killed(tony_home: Path) -> None:
    command = "echo $PPID $$; [ $SESSION_ID = 1 ] || { setsid sleep 300 & sleep 300; }"
    wreck = Wreck(tony_home, one_role(command, 2, master=SYSTEM_PAYS))
    wreck.running(2)
    until(lambda: [len(found) for found in lines(wreck)] == [1, 1], "both programs")
    (victim, program), (other, _) = (found[0] for found in lines(wreck))
    assert os.getpgid(program) == os.getpgid(victim) == victim
    os.killpg(victim, signal.SIGKILL)
    wreck.ends(AppState.SUCCEEDED, "lost on", "ended by SIGKILL", *PAID)
    both = sorted(len(found) for found in lines(wreck))
    assert both == [1, 1, 2], "one container is new, the other is the same"
    (stayed,) = (found for found in lines(wreck) if len(found) == 2)
    assert {executor for executor, _ in stayed} == {other}


PORT = """
import json, os, socket, time
task = int(os.environ["TASK_INDEX"])
host, port = json.loads(os.environ["CLUSTER_SPEC"])["worker"][task].split(":")
print(port, flush=True)
own = socket.socket()
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.bind(("", int(port)))
own.listen()
if os.environ["SESSION_ID"] == "0":
    time.sleep(300)
"""


def test_a_port_is_stolen_before_its_program_starts(tony_home: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, '"executor "*_000002')  # without which the gang is not complete
    program = script(tmp_path, PORT)
    job = one_role(f"{sys.executable} {program}", 2, master=SYSTEM_PAYS, runtime=gate.runtime)
    wreck = Wreck(tony_home, job)
    gate.reached()

    def reserved() -> Any:
        tasks = (wreck.get("api/tasks") or {"tasks": []})["tasks"]
        return [task["ports"]["main"] for task in tasks if "main" in task["ports"]]

    (port,) = until(reserved, "the first task's port")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as the same user may
        thief.bind(("", port))
        thief.listen()
        gate.open()
        wreck.ends(AppState.SUCCEEDED, "another process listens at the task's port (main)", *PAID)
    used = [[line[0] for line in found] for found in lines(wreck)]
    assert len(used) == 2 and all(found[-1] != port for found in used)


def damaged(path: Path) -> None:
    """A byte in its middle is another one, as a failing disk has it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def test_an_archive_is_damaged_after_the_submit(tony_home: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, '"shim "*')
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("train.py", "print('a program')\n" * 1000)
    whole = source.read_bytes()
    job = one_role("python3 train.py", program=Program(src=str(source)), runtime=gate.runtime)
    wreck = Wreck(tony_home, job)
    gate.reached()
    contents = tony_home.glob("store/objects/*/*/content")
    (staged,) = (path for path in contents if path.is_file() and path.read_bytes() == whole)
    damaged(staged)
    gate.open()
    words = f"the copy that was staged of {source} is damaged", f"remove the folder {staged.parent}"
    wreck.ends(AppState.FAILED, *words, "max-infrastructure-failures=0")


# An interpreter for which the boot has another id.
ANOTHER_BOOT = """
import builtins, runpy, sys
there = builtins.open
def opened(path, *words, **more):
    return there({file!r} if path == "/proc/sys/kernel/random/boot_id" else path, *words, **more)
builtins.open = opened
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def power_cut(folder: Path) -> int:
    """All that belongs to a folder ends at once, so that nothing sees another end; how many."""
    ended: Set[int] = set()
    for number, done in ((signal.SIGSTOP, "T"), (signal.SIGKILL, "")):
        while found := [
            process.pid
            for process in leaks.belonging_to(folder, leaks.processes())
            if process.state != done
        ]:
            ended.update(found)
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
    return len(ended)


def test_the_machine_is_restarted_under_a_job(
    tony_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, program = tmp_path / "boot_id", tmp_path / "before.py"
    boot.write_text("00000000-0000-0000-0000-00000000cafe\n")
    program.write_text(ANOTHER_BOOT.format(file=str(boot)))
    swap = f'[ "$3" = -c ] || {{ shift 2; set -- -I -S {shlex.quote(str(program))} "$@"; }}'
    runtime = interpreter(tmp_path, swap)
    with monkeypatch.context() as before:
        before.setattr(processes, "boot_id", lambda: boot.read_text().strip())
        wreck = Wreck(tony_home, one_role("setsid sleep 300 & sleep 300", 2, runtime=runtime))
        wreck.running(2)
        held = Ledger(wreck.home.ledger).change().held.values()
        assert {item.owner.boot for item in held} == {boot.read_text().strip()}
        assert power_cut(tmp_path) >= 7
    until(lambda: wreck.status().state.ended, "the end")
    assert os.path.exists(wreck.folder.secret), "a look removes nothing"
    assert list(wreck.scheduler.cleaner.collect_garbage(3600.0)) == []
    wreck.ends(AppState.FAILED, "the machine was restarted while it ran")
