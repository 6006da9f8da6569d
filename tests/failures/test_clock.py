"""The machine's clock is set back, or ahead, under a job of real processes.

The clock of every process (client, master, shims, executors, programs) is that of a file: a
library that they load adds what the file says (``clock.c``). The interpreter that our own code
runs on is a script that has it loaded, and programs get it by ``--shell_env``. The monotonic
clock stays as it is, as it does when an administrator sets a machine's clock.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.cli.processes import application_of, command, environment
from tests.failures.wreck import Wreck, belonging_to, until
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.slow

HOUR = 3600

PROGRAM = """\
import os, time
import tony
begun = time.time()
print(os.getpid(), flush=True)
for step in range(100_000):
    tony.report(step=step, metrics={"loss": 1.0 / (step + 1)})
    for name in ("fail", "go"):
        if os.path.exists(os.path.join(os.environ["DOORS"], name + os.environ["SESSION_ID"])):
            print("its clock went", round(time.time() - begun), flush=True)
            raise SystemExit(3 if name == "fail" and os.environ["TASK_INDEX"] == "0" else 0)
    time.sleep(0.05)
"""

SETTINGS = (
    *("tony.worker.instances=2", "tony.worker.memory=200m", "tony.am.retry-count=1"),
    *("tony.task.heartbeat-interval-ms=500", "tony.task.max-missed-heartbeats=30"),
    *("tony.application.timeout=10m", "tony.task.executor.execution-timeout-ms=600000"),
    *("tony.client.lease=60s", "tony.task.kill-grace=1s", "tony.task.tls=true"),
)


class Clock:
    """What time it is for everything that is started with :attr:`env`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no C compiler to build the library that sets a process's clock")
        library, self._file = folder / "clock.so", folder / "clock"
        words = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library)]
        source = Path(__file__).parent / "clock.c"
        built = subprocess.run([*words, str(source)], capture_output=True, text=True)
        if built.returncode:
            pytest.skip(f"{source.name} cannot be built here: {built.stderr}")
        self.env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._file)}
        self._file.write_bytes(bytes(8))
        self.python = folder / "python-of-this-clock"
        exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in self.env.items())
        self.python.write_text(f'#!/bin/sh\n{exports}exec {shlex.quote(sys.executable)} "$@"\n')
        self.python.chmod(0o755)

    def set(self, seconds: int) -> None:
        """So far from the true time, at once and for everybody."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def tony(self, *words: str) -> Any:
        """What a command line says in this time."""
        done = subprocess.run(
            command(*words),
            capture_output=True,
            text=True,
            env=environment(**self.env),
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def reaches(self, pid: int) -> bool:
        """Whether a process lives in this time, or is about to or about to be gone."""
        try:
            return f" {self._file}\n" in Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            return True


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


class Watched:
    """A job whose client goes on all the time."""

    def __init__(self, clock: Clock, home: Path, *more: str) -> None:
        folder = home.parent
        self.clock, self.doors, self._out = clock, folder / "doors", folder / "out"
        self.doors.mkdir()
        source = folder / "src"
        source.mkdir()
        (source / "program.py").write_text(PROGRAM)
        words = ["--src_dir", str(source), "--executes", f"{sys.executable} program.py"]
        for name, value in {**clock.env, "DOORS": str(self.doors)}.items():
            words += ["--shell_env", f"{name}={value}"]
        for setting in (*SETTINGS, f"tony.runtime.python={clock.python}", *more):
            words += ["--conf", setting]
        with self._out.open("wb") as out:
            self.client = subprocess.Popen(
                command("submit", *words),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env=environment(**clock.env),
            )
        until(lambda: "running on" in self.output or self.client.poll() is not None, "the tasks")
        assert self.client.poll() is None, self.output
        self.wreck = Wreck.of(home, application_of(self.output))

    @property
    def output(self) -> str:
        """What the client has printed."""
        return self._out.read_text()

    def reports(self, step: int) -> None:
        """Both programs come to say that they are beyond that step."""

        def beyond() -> bool:
            tasks = self.wreck.get("api/tasks")["tasks"]
            return all((task["step"] or 0) > step for task in tasks)

        until(beyond, f"reports of steps beyond {step}")

    def open(self, barrier: str) -> None:
        """The programs go through."""
        (self.doors / barrier).touch()


@pytest.fixture
def watched(clock: Clock, tony_home: Path) -> Iterator[Watched]:
    found = Watched(clock, tony_home)
    yield found
    if found.client.poll() is None:
        found.client.kill()
    found.client.wait()


def looks_well(job: Dict[str, Any], ran_s: float) -> None:
    """No time runs backwards in what a job shows, and it took no less than that."""
    known = [job[name] for name in ("submitted", "started", "finished") if job[name]]
    assert known == sorted(known)
    for task in job["tasks"]:
        assert task["started"] >= known[0] and task["duration_s"] >= 0.0, (known, task)
        end = task["ended"] or task["started"] + task["duration_s"]
        assert task["started"] <= end, task
        ran_s = max(ran_s, end - known[0])
    if job["finished"]:
        assert job["finished"] - job["submitted"] >= ran_s


def backwards(*texts: str) -> List[str]:
    """The negative times in texts for a person."""
    return [text for text in texts if re.search(r"(?<![\w.])-\d+(\.\d+)? (s|min|h|d)\b", text)]


def look(watched: Watched, since: float) -> None:
    """At the job, in every way there is."""
    app, tony = watched.wreck.app_id, watched.clock.tony
    looks_well(tony("status", app, "--json"), time.monotonic() - since)
    answers = [tony("status", app), tony("list"), tony("describe", app), tony("gc", "--dry-run")]
    url = watched.wreck.status().page_url
    if url is not None:
        with urllib.request.urlopen(url, timeout=30) as answer:
            answers.append(answer.read().decode())
    assert not backwards(*answers)
    assert app not in answers[3], answers[3]  # nothing of it is garbage
    events = tony("describe", app, "--json")["events"]
    assert events
    times = [event["time"] for event in events]
    assert times == sorted(times), events


@pytest.mark.parametrize("seconds", [-HOUR, HOUR], ids=["back", "ahead"])
def test_the_clock_is_set_under_a_job(watched: Watched, clock: Clock, seconds: int) -> None:
    wreck, since = watched.wreck, time.monotonic()
    wreck.running(2)
    mine = {*belonging_to(wreck.app_id), wreck.master_pid(), watched.client.pid}
    assert len(mine) >= 8 and all(map(clock.reaches, mine)), mine
    watched.reports(0)
    clock.set(seconds)

    # Everything goes on: the programs' reports, a restart, another master.
    watched.reports(20)
    look(watched, since)
    watched.open("fail0")
    wreck.running(2, session=1)
    look(watched, since)
    os.kill(wreck.master_pid(), signal.SIGKILL)
    wreck.running(2, session=1, attempt=2)
    look(watched, since)
    watched.open("go1")

    words = ("failed with exit code 3", "a new master takes over 2 containers of session 1")
    shown = wreck.ends(AppState.SUCCEEDED, *words)
    assert watched.client.wait(60) == 0, watched.output
    for never in ("silent", "lost", "timed out", "timeout", "lease"):
        assert never not in shown, shown
    assert not backwards(watched.output)
    look(watched, since)
    moved = [int(number) for text in wreck.logs() for number in re.findall(r"went (-?\d+)", text)]
    assert sum(abs(number - seconds) < HOUR / 2 for number in moved) == 2, wreck.logs()
