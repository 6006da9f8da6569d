"""``tony shell`` as a process of its own, beside real programs of the embedded scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

from tests.cli.processes import Running, Terminal, command, environment, tony, until
from tests.executor.standin import alive

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two workers that run until a file is there; the id."""
    yield from started(tmp_path, monkeypatch)


def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TONY_HOME", str(folder / "home"))
    words = ["--conf", "tony.application.framework=pytorch", "--conf", "tony.worker.instances=2"]
    words += ["--conf", "tony.worker.memory=256m", "--conf", "tony.task.kill-grace=1s"]
    text = f"until test -e {folder}/over; do sleep 0.1; done"
    done = tony("submit", "--detach", "--executes", text, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    app_id = done.stdout.strip()
    until(lambda: "2 running" in tony("status", app_id, cwd=folder).stdout, "both tasks")
    yield app_id
    tony("kill", app_id, cwd=folder)


def pid_of(folder: Path) -> int:
    path = folder / "pid"
    until(lambda: path.exists() and path.read_text().strip(), "the shell's pid")
    return int(path.read_text())


def test_a_command(job: str, tmp_path: Path) -> None:
    text = 'echo "task $TASK_INDEX"; echo wrong >&2; cat; exit 7'
    done = subprocess.run(
        command("shell", job, "-t", "worker:1", "--", "sh", "-c", text),
        input=b"a line\n",
        capture_output=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 7
    assert done.stdout == b"task 1\na line\n" and done.stderr == b"wrong\n"


def test_a_long_command(job: str, tmp_path: Path) -> None:
    done = tony(
        "shell",
        job,
        "-t",
        "worker:1",
        "--",
        "sh",
        "-c",
        'echo "${#1}"',
        "sh",
        "x" * 90_000,
        cwd=tmp_path,
    )
    assert (done.stdout, done.returncode) == ("90000\n", 0)


def test_many_bytes_both_ways(job: str, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "data").write_bytes(data)
    with (tmp_path / "data").open("rb") as file:  # a file cannot be waited for
        done = subprocess.run(
            command("shell", job, "-t", "worker:0", "--", "cat"),
            stdin=file,
            capture_output=True,
            cwd=tmp_path,
            env=environment(),
            timeout=120,
        )
    assert done.returncode == 0 and done.stdout == data


def test_a_terminal(job: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "shell", job, "-t", "worker:0")
    terminal.type(b"stty size; echo I am $TASK_INDEX\n")
    terminal.until("I am 0")
    terminal.type(b"sleep 300\n")
    terminal.until("sleep 300")
    terminal.type(b"\x03")
    terminal.type(b"echo $((40 + 2)) after; exit 5\n")
    terminal.until("42 after")
    assert terminal.end() == 5, terminal.shown


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_client_ends_the_shell(job: str, tmp_path: Path, number: int) -> None:
    text = f"trap '' HUP TERM; echo $$ > {tmp_path}/pid; sleep 300; sleep 300"
    with Running(tmp_path, "shell", job, "-t", "worker:0", "--", "sh", "-c", text) as running:
        pid = pid_of(tmp_path)
        running.send(number)
        code = running.end()
        assert code == (-number if number == signal.SIGKILL else 128 + number), running.err
    until(lambda: not alive(pid), "end of the shell")
    assert "2 running" in tony("status", job, cwd=tmp_path).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stalled_reader_does_not_hold_up_a_signal(job: str, tmp_path: Path, number: int) -> None:
    words = command(
        "shell", job, "-t", "worker:0", "--", "sh", "-c", f"echo $$ > {tmp_path}/pid; yes"
    )
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, env=environment()
    ) as stalled:
        assert stalled.stdout is not None
        assert stalled.stdout.read(2) == b"y\n"
        pid = pid_of(tmp_path)
        time.sleep(1.0)  # until all that lies between is full
        stalled.send_signal(number)
        assert stalled.wait(30) == 128 + number
    until(lambda: not alive(pid), "end of the shell")


def test_a_reader_that_goes_ends_the_shell(job: str, tmp_path: Path) -> None:
    words = command("shell", job, "-t", "worker:0", "--", "yes")
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, env=environment()
    ) as left:
        assert left.stdout is not None
        assert left.stdout.read(2) == b"y\n"
        left.stdout.close()
        assert left.wait(30) == 128 + signal.SIGPIPE


def test_a_slow_reader_gets_all(job: str, tmp_path: Path) -> None:
    words = command("shell", job, "-t", "worker:0", "--", "head", "-c", "300000", "/dev/zero")
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, env=environment()
    ) as slow:
        time.sleep(5.0)  # longer than the executor waits for a stray process
        assert len(slow.communicate(timeout=60)[0]) == 300_000
        assert slow.returncode == 0


@pytest.mark.parametrize("rest", ["exec sleep 300", "for i in 1 2 3; do sleep 100; done"])
def test_the_tasks_end_ends_the_shell_with_a_sentence(job: str, tmp_path: Path, rest: str) -> None:
    text = f"echo $$ > {tmp_path}/pid; {rest}"
    with Running(tmp_path, "shell", job, "-t", "worker:1", "--", "sh", "-c", text) as running:
        pid = pid_of(tmp_path)
        (tmp_path / "over").touch()
        assert running.end() == 137, "and not the signal's that ended it"
        assert "worker:1 has ended (exit code 0)" in running.err
    assert not alive(pid)


def test_a_killed_job_ends_the_shell(job: str, tmp_path: Path) -> None:
    text = f"trap '' TERM HUP; echo $$ > {tmp_path}/pid; sleep 300; sleep 300"
    with Running(tmp_path, "shell", job, "-t", "worker:1", "--", "sh", "-c", text) as running:
        pid = pid_of(tmp_path)
        tony("kill", job, cwd=tmp_path)
        assert running.end() == 137
        assert "worker:1 is being ended" in running.err or "ended" in running.err
    assert not alive(pid)


def test_the_story_of_a_memory_limit_has_no_words_of_a_shell(job: str, tmp_path: Path) -> None:
    text = "import time; SECRET = bytearray(520 << 20); time.sleep(300)"
    words = ["env", "-i", sys.executable, "-c", text]  # without any mark in its environment
    with Running(tmp_path, "shell", job, "-t", "worker:0", "--", *words) as running:
        assert running.end() != 0

    def story() -> str:
        return tony("describe", job, cwd=tmp_path).stdout

    until(lambda: "over the memory limit" in story(), "the root cause")
    assert "a process of tony shell" in story()
    assert "SECRET" not in story() and "SECRET" not in running.err


def test_what_is_refused(job: str, tmp_path: Path) -> None:
    done = tony("shell", job, "--", "true", cwd=tmp_path)
    assert done.returncode == 3 and "name one task with -t" in done.stderr
    done = tony("shell", job, "-t", "worker:7", "--", "true", cwd=tmp_path)
    assert done.returncode == 3 and "no task 'worker:7'" in done.stderr
    (tmp_path / "over").touch()
    until(lambda: "SUCCEEDED" in tony("status", job, cwd=tmp_path).stdout, "end of the job")
    done = tony("shell", job, "-t", "worker:0", "--", "true", cwd=tmp_path)
    assert done.returncode == 3 and "has ended (SUCCEEDED)" in done.stderr


def test_a_site_that_forbids_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "tony-site.xml").write_text(
        "<configuration><property><name>tony.shell.enabled</name><value>false</value>"
        "<final>true</final></property></configuration>"
    )
    monkeypatch.setenv("TONY_CONF_DIR", str(site))
    for app_id in started(tmp_path, monkeypatch):
        done = tony("shell", app_id, "-t", "worker:0", "--", "true", cwd=tmp_path)
        assert done.returncode == 3 and "tony.shell.enabled" in done.stderr


def test_only_the_owner_can_read_the_key(job: str, tmp_path: Path) -> None:
    path = tmp_path / "home" / "apps" / job / "client-key.json"
    assert path.stat().st_mode & 0o777 == 0o600
