"""The real command line on real processes, on the embedded scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.processes import Running, Terminal, application_of, command, environment, tony, until
from tests.cli.schema import wrong_with
from tests.failures.wreck import Wreck
from tony_core.schedulers.port import AppState

PROGRAM = """
import os, signal, sys, time
name = os.environ["JOB_NAME"] + ":" + os.environ["TASK_INDEX"]
session = os.environ["SESSION_ID"]
what = sys.argv[1]
print(name, "in session", session, flush=True)
if what == "fail":
    if name == "worker:1":
        print("ValueError: no such data set", file=sys.stderr)
        sys.exit(7)
    time.sleep(30)
if what == "slow":
    time.sleep(8)
if what == "sleep":
    time.sleep(60)
if what == "lines":
    # Dies in the middle of a line in its first session, unless an argument lets it live.
    for n in range(200):
        print(name, "session", session, "line", n, flush=n % 7 == 0)
        if session == "0" and name == "worker:0" and n == 100:
            sys.stdout.write(name + " session 0 cut")
            sys.stdout.flush()
            os._exit(5)
        time.sleep(0.004)
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(name, "does not listen", flush=True)
    time.sleep(60)
print(name, "done", flush=True)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a program and a job file for two workers."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    settings = {
        "tony.application.name": "two-workers",
        "tony.application.framework": "pytorch",
        "tony.worker.instances": "2",
        "tony.worker.memory": "256m",
        "tony.am.retry-count": "0",
        "tony.task.kill-grace": "2s",
    }
    body = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>\n"
        for key, value in settings.items()
    )
    (tmp_path / "tony.xml").write_text(f"<configuration>\n{body}</configuration>\n")
    return tmp_path


def submit(what: str, *more: str) -> List[str]:
    """The words of a submit."""
    return ["submit", "--executes", f"python3 train.py {what}", "--src_dir", "src", *more]


def status(here: Path, app_id: str) -> Dict[str, Any]:
    """How it stands, as documented."""
    found: Dict[str, Any] = json.loads(tony("status", app_id, "--json", cwd=here).stdout)
    assert wrong_with(found, "status") == []
    return found


def ended(here: Path, app_id: str) -> Dict[str, Any]:
    """The same, once it has ended."""
    found: List[Dict[str, Any]] = []

    def is_over() -> bool:
        found[:] = [status(here, app_id)]
        return found[0]["state"] not in ("SUBMITTED", "ACCEPTED", "RUNNING")

    until(is_over, f"end of {app_id}")
    return found[0]


def processes_of(tony_home: Path) -> List[str]:
    """The processes that carry this test's home."""
    from tests.leaks import belonging_to, processes

    return [process.command for process in belonging_to(tony_home, processes())]


def test_two_workers_succeed(here: Path, tony_home: Path) -> None:
    done = tony(*submit("ok"), cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr
    app_id = application_of(done.stdout)
    assert f"SUCCEEDED two-workers ({app_id})" in done.stdout
    assert done.stderr == ""
    for task in ("worker:0", "worker:1"):
        (row,) = [
            line.split() for line in done.stdout.splitlines() if line.startswith(f"    {task}")
        ]
        assert row[1] == "succeeded"
        assert f"{task} done" in Path(row[2], "stdout").read_text()
    assert not (tony_home / "apps" / app_id / "job").exists()
    log = tony("logs", app_id, "--task", "worker:1", cwd=here)
    assert log.stdout == "worker:1 in session 0\nworker:1 done\n"
    assert "two-workers" in tony("history", "list", cwd=here).stdout
    master = tony("logs", app_id, "--task", "am", cwd=here).stdout
    assert "SUCCEEDED" in master
    assert "lost" not in master  # an executor that is shut down hangs up


def test_what_hdfs_classpath_names_is_on_the_classpath(here: Path) -> None:
    (here / "a.jar").write_text("jar")
    (here / "conf").mkdir()
    (here / "conf" / "core-site.xml").write_text("<configuration/>")
    (here / "src" / "show.sh").write_text(
        "set -f; IFS=:\n"
        "for part in $CLASSPATH; do\n"
        '    test -e "${part%/\\*}" && echo "${part##*/session-0/}"\n'
        "done\n"
    )
    done = tony(
        *["submit", "--executes", "bash show.sh", "--src_dir", "src"],
        *["--hdfs_classpath", "a.jar,conf,gone.jar", "--shell_env", "CLASSPATH=/etc/passwd"],
        cwd=here,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gone.jar does not exist and is left out" in done.stderr + done.stdout
    log = tony("logs", "--task", "worker:0", "--stream", "stdout", cwd=here).stdout
    assert log.splitlines() == ["a.jar", "conf", "conf/*", "/etc/passwd"]


def test_a_failing_task_lets_the_user_act(here: Path) -> None:
    done = tony(*submit("fail"), cwd=here)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "root cause: worker:1 on " in done.stdout
    assert "exit code 7" in done.stdout
    assert "    | ValueError: no such data set" in done.stdout
    app_id = application_of(done.stdout)
    assert f"tony logs {app_id} --task worker:1" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--conf", "tony.worker.instnces=2"], "did you mean"),
        (["--conf", "tony.worker.memory=much"], "tony.worker.memory"),
        (["--conf", "tony.worker.memory=9999g"], "memory"),
        (["--conf", "tony.worker.gpus=64"], "gpu"),
        (["--conf_file", "not-there.xml"], "not-there.xml"),
        (["--src_dir", "not-there"], "not-there"),
        (["--python_venv", "not-there.zip"], "not-there.zip"),
        (["--conf", "tony.worker.depends-on=worker"], "worker"),
        (["--conf", "tony.containers.resources=missing.bin"], "missing.bin"),
        (["--shell_env", "no equals sign"], "NAME=value"),
        (["--conf", "tony.application.framework=none-such"], "none-such"),
    ],
)
def test_a_bad_job_leaves_nothing(
    here: Path, tony_home: Path, words: List[str], message: str
) -> None:
    done = tony(*submit("ok"), *words, cwd=here)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert message.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert not tony_home.exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "sigterm", "sighup"],
)
def test_a_signal_ends_the_job(here: Path, tony_home: Path, number: int, code: int) -> None:
    with Running(here, *submit("sleep")) as running:
        running.until("running on", times=2)
        running.send(number)
        assert running.end() == code, str(running)
        app_id = application_of(running.out)
    assert "KILLED" in running.out
    found = status(here, app_id)
    assert found["state"] == "KILLED"
    words = {
        signal.SIGINT: "killed by Ctrl-C (by ",
        signal.SIGTERM: "killed: tony submit was ended by SIGTERM (by ",
        signal.SIGHUP: "killed: the terminal was closed (by ",
    }
    assert found["diagnostics"].startswith(words[signal.Signals(number)])
    until(lambda: not processes_of(tony_home), "end of all processes")
    Wreck.of(tony_home, app_id).leaves_nothing()


def test_ctrl_c_twice_leaves_at_once_and_ends_the_job_by_force(here: Path, tony_home: Path) -> None:
    with Running(here, *submit("stubborn", "--conf", "tony.task.kill-grace=600s")) as running:
        running.until("running on", times=2)
        app_id = application_of(running.out)
        until(
            lambda: tony("logs", app_id, cwd=here).stdout.count("does not listen") == 2,
            "programs that ignore TERM",
        )
        running.send(signal.SIGINT)
        running.until("programs have 600 s to exit")
        running.send(signal.SIGINT)  # which waits for no grace
        assert running.end() == 130, str(running)
    assert ended(here, app_id)["state"] == "KILLED"
    until(lambda: not processes_of(tony_home), "end of all processes")


def test_a_reader_that_goes_away_does_not_end_the_job(here: Path) -> None:
    process = subprocess.Popen(
        command(*submit("ok")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=here,
        env=environment(),
    )
    assert process.stdout is not None
    app_id = application_of(process.stdout.readline().decode())
    process.stdout.close()
    assert process.wait(60) == 0
    assert status(here, app_id)["state"] == "SUCCEEDED"


def test_ctrl_c_before_anything_was_submitted(here: Path, tony_home: Path) -> None:
    # A resource that is read while it is staged: a pipe without a writer would hang;
    # a large file takes its time.
    with (here / "src" / "large.bin").open("wb") as file:
        file.truncate(3 << 30)
    with Running(here, *submit("ok")) as running:
        time.sleep(1.0)
        running.send(signal.SIGINT)
        assert running.end() == 130, str(running)
    assert "nothing was submitted" in running.err
    assert not (tony_home / "apps").exists() or os.listdir(tony_home / "apps") == []


def test_killed_by_another_client(here: Path) -> None:
    with Running(here, *submit("sleep")) as running:
        running.until("running on", times=2)
        app_id = application_of(running.out)
        killed = tony("kill", app_id, "--reason", "the machine is needed", cwd=here)
        assert (killed.returncode, killed.stdout) == (0, f"{app_id} has ended: KILLED\n")
        assert running.end() == 137, str(running)
    assert "the machine is needed" in running.out
    assert "had ended already" in tony("kill", app_id, cwd=here).stdout


def test_timed_out(here: Path) -> None:
    done = tony(*submit("sleep"), "--conf", "tony.application.timeout=2s", cwd=here)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "tony.application.timeout" in done.stdout


def test_detach_attach_and_follow_the_logs(here: Path) -> None:
    done = tony(*submit("lines", "--conf", "tony.am.retry-count=1"), "--detach", cwd=here)
    assert done.returncode == 0, done.stderr
    app_id = done.stdout.strip()
    follow = Running(here, "logs", app_id, "-f", "--stream", "stdout")
    attached = Running(here, "attach", app_id, "--json")
    with follow, attached:
        assert attached.end() == 0, str(attached)
        assert follow.end() == 0, str(follow)
    events = [json.loads(line) for line in attached.out.splitlines()]
    for item in events:
        assert wrong_with(item, "submit") == []
    assert events[-1]["type"] == "finished"
    numbers = [item["n"] for item in events if item["type"] == "event"]
    assert numbers == sorted(set(numbers))
    texts = [item["text"] for item in events if item["type"] == "event"]
    assert any("session 1 begins" in text for text in texts)

    # Not a line lost or doubled across the restart, the cut one included.
    found = follow.out.splitlines()
    whole = [f"worker:0 | worker:0 session 1 line {n}" for n in range(200)]
    assert [line for line in found if "worker:0 session 1 line" in line] == whole
    first = [line for line in found if "worker:0 session 0" in line]
    assert "".join(first).count("session 0 line 100") == 1
    assert sum(line.count("session 0 cut") for line in found) == 1
    for session in (0, 1):
        text = f"worker:1 | worker:1 session {session} line"
        of_peer = [line for line in found if line.startswith(text)]
        assert of_peer == [f"{text} {n}" for n in range(len(of_peer))]
    again = tony("logs", app_id, "--stream", "stdout", cwd=here).stdout.splitlines()
    assert sorted(again) == sorted(found)


def test_an_attached_job_keeps_running_after_ctrl_c(here: Path) -> None:
    app_id = tony(*submit("sleep"), "--detach", cwd=here).stdout.strip()
    try:
        with Running(here, "attach") as attached:
            attached.until("running on", times=2)
            attached.send(signal.SIGINT)
            assert attached.end() == 130
        assert "the job is still running" in attached.out
        assert status(here, app_id)["state"] == "RUNNING"
        shown = tony("describe", app_id, "--json", cwd=here)
        assert wrong_with(json.loads(shown.stdout), "describe") == []
        listed = tony("list", "--json", cwd=here)
        assert wrong_with(json.loads(listed.stdout), "list") == []
    finally:
        assert tony("kill", app_id, cwd=here).returncode == 0


def test_a_master_that_dies_is_followed_by_the_next(here: Path, tony_home: Path) -> None:
    with Running(here, *submit("slow"), "--json") as running:
        running.until('"state":"running"', times=1)
        until(lambda: running.out.count(" running on ") >= 2, "two running tasks", running)
        app_id = application_of(running.out)
        lock = (tony_home / "apps" / app_id / "master.lock").read_text()
        os.kill(json.loads(lock)["pid"], signal.SIGKILL)
        assert running.end(60) == 0, str(running)
    found = [json.loads(line) for line in running.out.splitlines()]
    numbers = [item["n"] for item in found if item["type"] == "event"]
    assert numbers == sorted(set(numbers))
    assert any(item.get("kind") == "takeover" for item in found), str(running)
    assert found[-1]["job"]["state"] == "SUCCEEDED"
    assert found[-1]["job"]["attempt"] == 2
    assert found[-1]["job"]["session"] == 0


def test_json_of_a_submit(here: Path) -> None:
    done = tony(*submit("fail"), "--json", cwd=here)
    assert done.returncode == 1
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for item in found:
        assert wrong_with(item, "submit") == []
    assert [item["type"] for item in found[:1] + found[-1:]] == ["application", "finished"]
    assert found[-1]["exit_code"] == 1
    job = found[-1]["job"]
    assert job["root_cause"]["task"] == "worker:1"
    assert job["root_cause"]["exit_code"] == 7
    assert job["root_cause"]["stderr_tail"] == ["ValueError: no such data set"]


def test_a_dry_run_writes_nothing(here: Path, tony_home: Path) -> None:
    done = tony(*submit("ok"), "--shell_env", "TOKEN=hunter2", "--dry-run", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert wrong_with(json.loads(done.stdout), "dry-run") == []
    assert "hunter2" not in done.stdout + done.stderr
    assert not tony_home.exists()


def test_the_end_is_seen_at_once(here: Path) -> None:
    done = tony(*submit("ok"), "--json", cwd=here)
    ended_at = time.time()
    finished = json.loads(done.stdout.splitlines()[-1])["job"]["finished"]
    # A poll of the scheduler would be seen here; how long it takes is the benchmarks' matter.
    assert ended_at - finished < 15.0


def test_live_on_a_terminal_until_ctrl_c(here: Path) -> None:
    terminal = Terminal(here, *submit("sleep"))
    try:
        terminal.until("running on")
        terminal.until("two-workers")
        terminal.type(b"\x03")
        assert terminal.end() == 130, terminal.shown[-3000:]
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait(60)
        terminal.close()
    assert "\x1b[" in terminal.shown
    assert "Ctrl-C again: kill now" in terminal.shown
    assert "KILLED" in terminal.shown


def test_a_closed_terminal_ends_the_job(here: Path, tony_home: Path) -> None:
    terminal = Terminal(here, *submit("sleep"), NO_COLOR="1")
    try:
        terminal.until("running on")
        (app_id,) = os.listdir(tony_home / "apps")
        terminal.close()
        assert terminal.process.wait(60) == 129
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait(60)
    Wreck.of(tony_home, app_id).ends(AppState.KILLED, "killed: the terminal was closed (by ")


def test_gc_after_the_job(here: Path, tony_home: Path) -> None:
    done = tony(*submit("ok"), cwd=here)
    app_id = application_of(done.stdout)
    gone = tony("gc", "--older-than", "0", "--json", cwd=here)
    assert wrong_with(json.loads(gone.stdout), "gc") == []
    assert app_id in gone.stdout
    assert not (tony_home / "apps" / app_id).exists()
    assert status(here, app_id)["state"] == "SUCCEEDED"  # history knows it still
