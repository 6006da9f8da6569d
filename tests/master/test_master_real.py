"""The real master on the embedded scheduler with real executors and real programs.

Everything is staged and started as a client does it; the tests look where people look: the
scheduler's word, the job's page, history, the processes that are left.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tony_core.client.logs import read_logs
from tony_core.client.submission import prepare, send
from tony_core.history.reader import JobHistory, read_job
from tony_core.job.spec import (
    Job,
    Local,
    MasterSpec,
    Metrics,
    Program,
    Resources,
    RestartMode,
    Role,
    Runtime,
    Timeouts,
    Tracking,
)
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.home import AppFolder, Home
from tony_core.schedulers.port import AppState, AppStatus

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 120.0


def until(what: Any, why: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {why}"
        time.sleep(0.01)


class Submitted:
    """One job on its way."""

    def __init__(self, home: Path, job: Job) -> None:
        self.scheduler = LocalScheduler()
        self.app_id = send(self.scheduler, prepare(self.scheduler, job))
        self.home = Home(str(home))
        self.folder: AppFolder = self.home.app(self.app_id)

    def status(self) -> AppStatus:
        return self.scheduler.status(self.app_id)

    def get(self, path: str) -> Any:
        """JSON of the page; None while no server answers."""
        url = self.status().page_url
        if not url:
            return None
        try:
            with urllib.request.urlopen(url + path, timeout=60) as answer:
                return json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def running(self, count: int, session: int = 0, attempt: int = 1) -> Dict[str, Any]:
        def look() -> Any:
            status = self.status()
            assert not status.state.ended, status.diagnostics + self.words()
            job = self.get("api/job")
            return (
                job
                if job
                and job["counts"].get("running") == count
                and (job["session"], job["attempt"]) == (session, attempt)
                else None
            )

        found: Dict[str, Any] = until(look, f"{count} running tasks{self.words()}")
        return found

    def end(self) -> AppStatus:
        until(lambda: self.status().state.ended, "the end" + self.words())
        return self.status()

    def master_pid(self) -> int:
        return int(json.loads(Path(self.folder.lock).read_text())["pid"])

    def words(self) -> str:
        """What the master wrote, for a test's failure."""
        logs = sorted(Path(self.folder.master).glob("master-*.stderr"))
        return "\n" + "\n".join(path.read_text() for path in logs if path.exists())

    def logs(self, name: str = "stdout") -> List[str]:
        return sorted(path.read_text() for path in Path(self.folder.path).glob(f"logs/*/{name}"))

    def history(self) -> JobHistory:
        return read_job(self.home.history, self.app_id)


def a_job(command: str, count: int = 2, **changes: Any) -> Job:
    settings: Dict[str, Any] = {
        "framework": "pytorch",
        "user": "tester",
        "runtime": Runtime(python=sys.executable),
        "timeouts": Timeouts(kill_grace_s=1.0),
        "metrics": Metrics(interval_s=0.2),
        "local": Local(memory_mb=4000),
        **changes,
    }
    roles = (Role("worker", count, Resources(memory_mb=200), command),)
    return Job("real", roles, **settings)


def pids_of(app_id: str) -> List[int]:
    """Processes that belong to an application, by their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                mine = f"TONY_APP_ID={app_id}".encode() in (entry / "environ").read_bytes()
                dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if mine and not dead:
                found.append(int(entry.name))
    return found


def test_a_job_succeeds_and_leaves_nothing_but_its_story(tony_home: Path) -> None:
    job = a_job('echo "$JOB_NAME:$TASK_INDEX of $TASK_NUM, rank $RANK at $MASTER_ADDR"')
    submitted = Submitted(tony_home, job)
    status = submitted.end()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    for rank, text in enumerate(submitted.logs()):
        assert text.startswith(f"worker:{rank} of 2, rank {rank} at "), text
    history = submitted.history()
    assert history.job["state"] == "SUCCEEDED"
    assert [task["exit_code"] for task in history.tasks] == [0, 0]
    assert not Path(submitted.folder.job).exists()
    until(lambda: not pids_of(submitted.app_id), "every process to go")


def test_the_program_gets_variables_and_model_parameters(tony_home: Path) -> None:
    program = Program(shell_env=(("MINE", "a b"),), checkpoint_dir="/ckpt")
    command = 'echo "$MINE|$MODEL_PARAMS|$APP_ID|$SESSION_ID|$TONY_CHECKPOINT_DIR|$CLUSTER_SPEC"'
    master = MasterSpec(preprocess='echo "lr=$((1+1))" > $TONY_PARAMETERS_FILE')
    submitted = Submitted(tony_home, a_job(command, 1, program=program, master=master))
    assert submitted.end().state is AppState.SUCCEEDED, submitted.words()
    (line,) = submitted.logs()
    mine, parameters, app_id, session, checkpoint, spec = line.strip().split("|")
    assert (mine, parameters, session, checkpoint) == ("a b", "lr=2", "0", "/ckpt")
    assert app_id == submitted.app_id
    assert len(json.loads(spec)["worker"]) == 1


@pytest.mark.parametrize("mode", [RestartMode.WARM, RestartMode.FRESH])
def test_a_failed_worker_restarts_the_session(tony_home: Path, mode: RestartMode) -> None:
    command = (
        'echo "session $SESSION_ID pid $$";'
        ' if [ $SESSION_ID = 0 ] && [ $TASK_INDEX = 1 ]; then echo "no luck" >&2; exit 3; fi;'
        " [ $SESSION_ID = 1 ] || sleep 60"
    )
    job = a_job(command, master=MasterSpec(user_retries=1, restart_mode=mode))
    submitted = Submitted(tony_home, job)
    status = submitted.end()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    history = submitted.history()
    causes = [event for event in history.events if event["kind"] == "root-cause"]
    assert len(causes) == 1
    assert "worker:1" in causes[0]["text"] and "no luck" in causes[0]["text"]
    for task in history.tasks:
        containers = [run["container"] for run in task["runs"]]
        assert [run["session"] for run in task["runs"]] == [0, 1]
        assert len(set(containers)) == (1 if mode is RestartMode.WARM else 2)
    text = "".join(submitted.logs())
    assert text.count("session 0") == 2 and text.count("session 1") == 2


def test_a_failure_for_good(tony_home: Path) -> None:
    command = "[ $TASK_INDEX = 0 ] && { echo the reason >&2; exit 9; }; sleep 60"
    submitted = Submitted(tony_home, a_job(command, master=MasterSpec(user_retries=0)))
    status = submitted.end()
    assert status.state is AppState.FAILED
    assert "worker:0" in status.diagnostics and "exit code 9" in status.diagnostics
    assert "the reason" in status.diagnostics
    until(lambda: not pids_of(submitted.app_id), "every process to go")


def test_training_goes_on_when_the_master_is_killed(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f'echo "$$ in $SESSION_ID"; until [ -e {go} ]; do sleep 0.1; done; exit 0'
    submitted = Submitted(tony_home, a_job(command))
    submitted.running(2)

    def begun() -> Any:
        logs = submitted.logs()
        return logs if len(logs) == 2 and all(x.endswith(" in 0\n") for x in logs) else None

    before = until(begun, "the programs' first lines" + submitted.words())
    os.kill(submitted.master_pid(), signal.SIGKILL)
    job = submitted.running(2, attempt=2)
    assert job["session"] == 0
    go.touch()
    status = submitted.end()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    assert submitted.logs() == before, "no program was started again"
    history = submitted.history()
    assert any(event["kind"] == "takeover" for event in history.events)
    assert not history.problems


def test_a_program_that_ends_while_there_is_no_master(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"until [ -e {go} ]; do sleep 0.05; done; [ $TASK_INDEX = 0 ] || exit 4"
    submitted = Submitted(tony_home, a_job(command, master=MasterSpec(user_retries=0)))
    submitted.running(2)
    os.kill(submitted.master_pid(), signal.SIGKILL)
    go.touch()
    status = submitted.end()
    assert status.state is AppState.FAILED
    assert "worker:1" in status.diagnostics and "exit code 4" in status.diagnostics


def test_what_ended_before_the_master_did_is_known_to_the_next(
    tony_home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    command = f"[ $TASK_INDEX = 0 ] || until [ -e {go} ]; do sleep 0.05; done"
    submitted = Submitted(tony_home, a_job(command))
    until(
        lambda: (submitted.get("api/job") or {}).get("counts") == {"succeeded": 1, "running": 1},
        "the first to end",
    )
    os.kill(submitted.master_pid(), signal.SIGKILL)
    until(lambda: (submitted.get("api/job") or {}).get("attempt") == 2, "the next master")
    until(
        lambda: submitted.get("api/job")["counts"] == {"succeeded": 1, "running": 1},
        "the end that was acknowledged already" + submitted.words(),
    )
    go.touch()
    assert submitted.end().state is AppState.SUCCEEDED


def test_term_to_the_master_kills_the_job(tony_home: Path) -> None:
    submitted = Submitted(tony_home, a_job("trap '' TERM; sleep 60 & wait; sleep 60"))
    submitted.running(2)
    pids = pids_of(submitted.app_id)
    assert len(pids) >= 2
    began = time.monotonic()
    submitted.scheduler.kill(submitted.app_id, "killed by a test")
    status = submitted.end()
    assert status.state is AppState.KILLED
    assert "killed by a test" in status.diagnostics
    assert time.monotonic() - began < 100, "it ended by itself"
    until(lambda: not pids_of(submitted.app_id), "every process to go")
    assert submitted.history().job["state"] == "KILLED"


def test_reports_and_measures_come_through(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import tony, time, os\n"
        "tony.report(progress=0.5, metrics={'loss': 0.125}, step=7)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
        "tony.result({'model': '/models/7', 'classes': [1, 2.5, None]})\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    submitted = Submitted(tony_home, a_job(f"{sys.executable} {script}", 1))

    def look() -> Optional[Dict[str, Any]]:
        found = submitted.get("api/tasks")
        task: Optional[Dict[str, Any]] = found["tasks"][0] if found else None
        done = task and task["reported"] and task["measures"].get("rss_mb")
        return task if done else None

    task = until(look, "a report and measures" + submitted.words())
    assert task["reported"]["loss"] == 0.125
    assert (task["progress"], task["step"]) == (0.5, 7)
    until(lambda: submitted.status().progress == 0.5, "the scheduler to hear of it")
    go.touch()
    assert submitted.end().state is AppState.SUCCEEDED
    assert submitted.history().job["result"] == {"model": "/models/7", "classes": [1, 2.5, None]}


def figures(pid: int) -> Tuple[float, int]:
    """(RSS in MB, threads)."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"])


def test_a_master_is_small(tony_home: Path) -> None:
    submitted = Submitted(tony_home, a_job("sleep 60"))
    submitted.running(2)
    memory, threads = figures(submitted.master_pid())
    assert memory < 40, f"{memory:.1f} MB"
    assert threads <= 4
    command = Path(f"/proc/{submitted.master_pid()}/cmdline").read_bytes()
    environment = Path(f"/proc/{submitted.master_pid()}/environ").read_bytes()
    secret = Path(submitted.folder.secret).read_bytes()
    for place in (command, environment):
        assert secret not in place and secret.hex().encode() not in place
    submitted.scheduler.kill(submitted.app_id, "enough")
    assert submitted.end().state is AppState.KILLED


def test_a_sidecar_is_started_again_and_then_given_up(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (worker,) = a_job(f"until [ -e {go} ]; do sleep 0.05; done", 1).roles
    sidecar = Role(
        "board",
        1,
        Resources(memory_mb=200),
        "echo a try; exit 5",
        tracking=Tracking.SIDECAR,
        max_restarts=1,
    )
    job = a_job("", 1).replace(roles=(worker, sidecar))
    submitted = Submitted(tony_home, job)

    def story(kind: str) -> List[str]:
        events = (submitted.get("api/events") or {"events": []})["events"]
        return [event["text"] for event in events if event["kind"] == kind]

    until(lambda: story("sidecar-given-up"), "the sidecar to be given up" + submitted.words())
    assert len([text for text in story("task-state") if "board:0 failed" in text]) == 2
    sidecar_logs = [text for text in submitted.logs() if "a try" in text]
    assert sidecar_logs == ["a try\na try\n"], "one container, two tries"
    assert (submitted.get("api/job") or {})["counts"] == {"running": 1, "failed": 1}
    go.touch()
    assert submitted.end().state is AppState.SUCCEEDED


def test_each_sessions_part_of_a_log_that_is_appended_to(tony_home: Path) -> None:
    command = (
        'echo "out of $SESSION_ID"; echo "err of $SESSION_ID" >&2;'
        " printf 'no end of %s' $SESSION_ID;"
        " if [ $SESSION_ID -lt 2 ]; then [ $TASK_INDEX = 1 ] && { sleep 0.3; exit 3; }; sleep 60;"
        " fi; echo"
    )
    submitted = Submitted(tony_home, a_job(command, master=MasterSpec(user_retries=2)))
    followed: List[str] = []
    follower = threading.Thread(
        target=lambda: followed.extend(
            line.text
            for line in read_logs(
                submitted.scheduler, submitted.app_id, session=1, stream="stdout", follow=True
            )
        )
    )
    follower.start()
    status = submitted.end()
    follower.join(PATIENCE_S)
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    for task in submitted.history().tasks:
        assert len({run["container"] for run in task["runs"]}) == 1, "warm"
        offsets = [run["offsets"] for run in task["runs"]]
        assert [sorted(each) for each in offsets] == [["stderr", "stdout"]] * 3
        assert offsets[0] == {"stdout": 0, "stderr": 0}
        assert offsets[1]["stdout"] == len("out of 0\nno end of 0")
    for session in range(3):
        for tail in (None, 1):
            lines = read_logs(submitted.scheduler, submitted.app_id, session=session, tail=tail)
            wanted = {f"err of {session}", f"no end of {session}"}
            if tail is None:
                wanted.add(f"out of {session}")
            found = [line.text for line in lines]
            assert (set(found), len(found)) == (wanted, 2 * len(wanted)), (session, tail)
    assert sorted(followed) == ["no end of 1"] * 2 + ["out of 1"] * 2


def test_a_next_master_knows_where_the_session_begins(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = (
        "echo of $SESSION_ID; [ $SESSION_ID = 0 ] && [ $TASK_INDEX = 1 ] && exit 3;"
        f" until [ -e {go} ]; do sleep 0.05; done"
    )
    submitted = Submitted(tony_home, a_job(command))
    submitted.running(2, session=1)
    os.kill(submitted.master_pid(), signal.SIGKILL)
    submitted.running(2, session=1, attempt=2)
    go.touch()
    assert submitted.end().state is AppState.SUCCEEDED
    lines = list(read_logs(submitted.scheduler, submitted.app_id, session=1, stream="stdout"))
    assert [line.text for line in lines] == ["of 1"] * 2


def test_a_master_that_is_killed_loses_at_most_a_second_of_history(
    tony_home: Path, tmp_path: Path
) -> None:
    """Story, tasks and metrics: by what a reader sees at once, and before any other master."""
    program = tmp_path / "train.py"
    program.write_text(
        "import time, tony\n"
        "for step in range(100000):\n"
        "    tony.report(progress=step / 100000, metrics={'at': time.time()}, step=step)\n"
        "    time.sleep(0.1)\n"
    )
    # The second worker fails from time to time, so that there is a story to lose.
    command = (
        f"if [ $TASK_INDEX = 0 ]; then exec {sys.executable} {program}; fi;"
        " sleep 1; [ $SESSION_ID -ge 3 ] || exit $((3 + SESSION_ID)); sleep 100"
    )
    job = a_job(
        command, master=MasterSpec(user_retries=5, max_attempts=1), metrics=Metrics(interval_s=0.1)
    )
    submitted = Submitted(tony_home, job)
    submitted.running(2, session=3)
    time.sleep(1.0)  # without another decision, at which all is written anyway
    until(lambda: "at" in submitted.get("api/metrics")["latest"].get("worker:0", {}), "a report")
    os.kill(submitted.master_pid(), signal.SIGSTOP)  # so that nothing comes between the two
    killed = time.time()
    os.kill(submitted.master_pid(), signal.SIGKILL)
    found = submitted.history()
    assert found.job["state"] == "RUNNING" and found.problems == ()
    first, second = found.tasks
    assert [one["state"] for one in found.tasks] == ["running", "running"]
    assert (found.job["session"], len(first["runs"]), second["session"]) == (3, 4, 3)
    # Half a second to history, two intervals (0.1 s) to the master; the rest is for a busy machine.
    lost = killed - found.metrics["latest"]["worker:0"]["at"]
    print(f"{lost:.3f} s of metrics are lost")
    assert lost < 4.0
    assert first["reported"]["at"] == found.metrics["latest"]["worker:0"]["at"]
    assert first["progress"] == found.metrics["latest"]["worker:0"]["progress"]
    ends = [event for event in found.events if event["kind"] == "restarting"]
    assert len(ends) == 3
    times, values = zip(*found.metrics["task"]["worker:0"]["at"], strict=True)
    assert list(times) == sorted(times) and len(values) > 3
    until(lambda: submitted.status().state.ended, "the scheduler's word")
