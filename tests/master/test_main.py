"""The verb ``master``: its words, its signals, its crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List, Optional

import pytest

from tests.master.shell import SECRET, ScriptedPool, a_job, until
from tests.master.state.remote_files import STATE, FarFileSystem, far
from tony_core.files.local import LocalFileSystem
from tony_core.history import background_writer
from tony_core.history.reader import read_job
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job, Limits, Program, Resources, Role
from tony_core.master import main as entry
from tony_core.master.main import CRASHED, USAGE, arguments, kill_reason, main, serve, startup_limit
from tony_core.master.master import Master
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import MasterContext
from tony_core.schedulers.port import AppState, LastingRefusal, SchedulerError

__all__ = ["far"]

CHECKOUT = Path(entry.__file__).resolve().parents[2]


def context(folder: Path, job: Optional[Job]) -> MasterContext:
    job_dir = folder / "apps" / "app_1" / "job"
    job_dir.mkdir(parents=True)
    if job is not None:
        (job_dir / "job.json").write_text(job_to_json(job))
        (job_dir / "artifacts.json").write_text("[]")
    (folder / "work").mkdir()
    return MasterContext(
        "app_1", 1, str(job_dir), str(folder / "work"), str(folder),
        str(folder / "history" / "app_1"), SECRET,
    )  # fmt: skip


def test_arguments_are_the_schedulers_to_understand() -> None:
    args = arguments(["--scheduler", "local", "--app-dir", "/x y", "--lock-fd", "9"])
    assert (args.scheduler, args.app_dir, args.lock_fd) == ("local", "/x y", "9")


@pytest.mark.parametrize(
    "words",
    [[], ["--scheduler"], ["local"], ["--scheduler", "../x"], ["--app-dir", "x"], ["-s", "local"]],
)
def test_bad_usage(words: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == USAGE
    assert "master: " in capsys.readouterr().err


def test_a_scheduler_that_refuses_is_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scheduler", "local", "--app-dir", "/nowhere", "--attempt", "1"]) == CRASHED
    assert "/nowhere" in capsys.readouterr().err


def test_a_job_that_cannot_be_read_ends_with_its_reason(tmp_path: Path) -> None:
    pool = ScriptedPool()
    assert serve(context(tmp_path, None), pool) == 0
    assert pool.finished is not None
    assert pool.finished[0] is AppState.FAILED
    assert "job.json" in pool.finished[1]
    assert pool.closed
    assert not (tmp_path / "apps" / "app_1" / "job").exists()


def test_the_administrators_caps_hold_in_the_master_too(tmp_path: Path) -> None:
    pool = ScriptedPool()
    job = a_job().replace(limits=Limits(total_instances=1))
    assert serve(context(tmp_path, job), pool) == 0
    assert pool.finished is not None
    assert "tony.task.max-total-instances" in pool.finished[1]


def test_a_crash_before_anything_runs_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Master) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Master, "_begin", broken)
    pool = ScriptedPool()
    threads = threading.active_count()
    assert serve(context(tmp_path, a_job()), pool) == CRASHED
    assert pool.finished is not None
    state, text = pool.finished
    assert state is AppState.FAILED
    assert "fault of tony's own" in text and "a bug" in text
    assert "Traceback" in capsys.readouterr().err
    assert "a bug" in (tmp_path / "work" / "crash-1.txt").read_text()
    until(lambda: threading.active_count() <= threads + 1, "threads to go")


@pytest.mark.parametrize("readable", [True, False])
def test_a_scheduler_that_refuses_this_master_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], readable: bool
) -> None:
    class Refusing(ScriptedPool):
        def start(self, sink: Any, page_url: str) -> Any:
            raise SchedulerError("the servers differ")

    pool = Refusing()
    assert serve(context(tmp_path, a_job() if readable else None), pool) == CRASHED
    *why, last = capsys.readouterr().err.splitlines()
    assert last == "the scheduler did not accept this master: the servers differ"
    assert bool(why) == (not readable) and not any("Traceback" in line for line in why)
    assert readable or "job.json" in why[0]
    assert pool.closed and pool.finished is None


SLOW = """
import sys, time
from pathlib import Path
from tests.master.shell import ScriptedPool, a_job
from tests.master.test_main import context
from tony_core.master.main import serve
class Pool(ScriptedPool):
    def start(self, sink, page_url):
        time.sleep(600)
job = a_job()
job = job.replace(master=job.master._replace(startup_timeout_s=0.5))
sys.exit(serve(context(Path(sys.argv[1]), job), Pool()))
"""


def test_a_master_that_does_not_begin_in_time_ends_for_the_next_one(tmp_path: Path) -> None:
    """Whatever it is waiting for, in whatever call."""
    words = [sys.executable, "-c", SLOW, str(tmp_path)]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert done.returncode == CRASHED
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith(
        "the master had not begun after 0.5 s (tony.am.startup-timeout); it was waiting in"
    )


def test_a_master_that_has_begun_is_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    ended: List[int] = []
    startup_limit(0.0, lambda: True, ended.append).join(60)
    assert (ended, capsys.readouterr().err) == ([], "")


def test_a_crash_with_containers_is_left_to_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Master, command: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Master, "_launch", broken)
    pool = ScriptedPool()
    assert serve(context(tmp_path, a_job()), pool) == CRASHED
    assert pool.finished is None
    assert (tmp_path / "apps" / "app_1" / "job" / "job.json").exists()


def test_kill_reasons(tmp_path: Path) -> None:
    path = tmp_path / "kill.json"
    assert kill_reason(str(path), signal.SIGTERM) == "the master received SIGTERM"
    path.write_text("{")
    assert "SIGTERM" in kill_reason(str(path), signal.SIGTERM)
    path.write_text("[]")
    assert "SIGINT" in kill_reason(str(path), signal.SIGINT)
    path.write_text(json.dumps({"reason": "killed by ann", "by": "ann"}))
    assert kill_reason(str(path), signal.SIGTERM) == "killed by ann"
    path.write_text(json.dumps({"reason": "too old", "by": "cron"}))
    assert kill_reason(str(path), signal.SIGTERM) == "too old (by cron)"


def test_term_is_handled_and_handlers_are_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    pool = ScriptedPool()
    (tmp_path / "kill.json").write_text(json.dumps({"reason": "killed by ann"}))

    def ask() -> None:
        until(lambda: pool.launched, "a launch")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=ask)
    thread.start()
    assert serve(context(tmp_path, a_job(Role("worker", 1, Resources(), "x"))), pool) == 0
    thread.join()
    assert pool.finished == (AppState.KILLED, "killed by ann")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_that_ends_is_logged_and_stands_in_the_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(self: Master, command: Any) -> None:
        def work() -> None:
            raise RuntimeError("hunter2hunter2 does not fit")

        thread = threading.Thread(target=work, name="odd-jobs")
        thread.start()
        thread.join()
        self.kill("it was enough")

    monkeypatch.setattr(Master, "_launch", launch)
    pool = ScriptedPool()
    before = threading.excepthook
    job = a_job(program=Program(shell_env=(("PASSWORD", "hunter2hunter2"),)))
    assert serve(context(tmp_path, job), pool) == 0
    assert threading.excepthook is before
    assert pool.finished is not None and pool.finished[0] is AppState.KILLED
    logged = capsys.readouterr().err
    assert "Traceback" in logged and "RuntimeError" in logged and "hunter2" not in logged
    texts = [event["text"] for event in read_job(str(tmp_path / "history"), "app_1").events]
    (text,) = [text for text in texts if "odd-jobs" in text]
    assert "RuntimeError" in text and "hunter2" not in text


@pytest.mark.parametrize("error", [ValueError("odd"), RecursionError("deep"), KeyError("x")])
def test_history_outlives_any_exception_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    put, failing = LocalFileSystem.put, [error, error]

    def broken(self: Any, location: str, data: bytes, *words: Any) -> None:
        if "history" in location and failing:
            raise failing.pop()
        put(self, location, data, *words)

    monkeypatch.setattr(LocalFileSystem, "put", broken)
    monkeypatch.setattr(background_writer, "RETRY_S", 0.01)
    monkeypatch.setattr(Master, "_launch", lambda self, command: self.kill("it was enough"))
    assert serve(context(tmp_path, a_job()), ScriptedPool()) == 0
    found = read_job(str(tmp_path / "history"), "app_1")
    assert not failing
    assert found.job["state"] == "KILLED" and found.job["finished"]
    assert found.events[-1]["kind"] == "job-ended"


def test_what_the_master_loads_stays_small() -> None:
    """Each of these would cost every job megabytes or start-up time."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tony_core.master.main, tony_core.frameworks.pytorch\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(CHECKOUT)],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    heavy = {
        "asyncio", "ssl", "hashlib", "http", "email", "logging", "argparse", "subprocess",
        "ctypes", "decimal", "traceback", "random", "html", "tempfile", "tony_core.job.load",
        "tony_core.master.web.page_html", "tony_core.bundle.local.store", "tony_core.job.limits",
    }  # fmt: skip
    assert not loaded & heavy


class EndRequested:
    """A master that records its calls."""

    def __init__(self, calls: int) -> None:
        self.reactor = Reactor()
        self.killed: List[str] = []
        self.kept = 0
        self._calls = calls

    def kill(self, reason: str) -> None:
        self.killed.append(reason)
        if len(self.killed) == self._calls:
            self.reactor.call_later(0, self.reactor.stop)

    def keep(self) -> None:
        self.kept += 1

    def run(self, *signals: signal.Signals) -> None:
        far_away = MasterContext("app_1", 1, "/job", "/work", STATE, "/history/app_1", SECRET)
        with entry.Signals(self, far_away):  # type: ignore[arg-type]
            for number in signals:
                os.kill(os.getpid(), number)
            self.reactor.call_later(20.0, self.reactor.stop)
            self.reactor.run()
        self.reactor.close()


def test_a_reason_that_stands_elsewhere(far: FarFileSystem) -> None:
    path = far.path(f"{STATE}/kill.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"reason": "enough", "by": "ann"}))
    ended = EndRequested(1)
    ended.run(signal.SIGTERM)
    assert (ended.killed, ended.kept) == (["enough (by ann)"], 1)


def test_a_reason_elsewhere_is_not_waited_for_long(
    far: FarFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "REASON_S", 0.05)
    far.hang()
    ended = EndRequested(1)
    ended.run(signal.SIGTERM)
    far.back()
    assert (ended.killed, ended.kept) == (["the master received SIGTERM"], 1)


def test_who_asks_again_waits_for_nothing(far: FarFileSystem) -> None:
    far.hang()
    ended = EndRequested(2)
    ended.run(signal.SIGTERM, signal.SIGINT)
    far.back()
    assert ended.killed == ["the master received SIGINT"] * 2


FILES = """
import resource
from tony_core.master import main
from tony_core.master.main import open_enough_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 300))
limits = open_enough_files(50), resource.getrlimit(resource.RLIMIT_NOFILE)
assert limits == ("", (300, 300)), limits
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 300))
main.OTHER_CALLERS = 20
assert open_enough_files(10, 30) == "" and resource.getrlimit(resource.RLIMIT_NOFILE) == (260, 300)
print(open_enough_files(500))
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, 300)
"""


def test_a_master_may_open_a_file_for_each_task_or_reports_why_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILES], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "500 tasks need 700 open files" in done.stdout and "hard limit is 300" in done.stdout


class ChecksFetch(ScriptedPool):
    """A pool of a job that ships its keytab."""

    def __init__(self, problem: SchedulerError) -> None:
        super().__init__()
        self.problem = problem

    def check_fetch(self) -> SchedulerError:
        return self.problem


def test_a_job_that_can_never_get_fresh_tokens_ends_before_it_starts(tmp_path: Path) -> None:
    pool = ChecksFetch(LastingRefusal("node7: this machine has no GSSAPI library"))
    assert serve(context(tmp_path, a_job(Role("worker", 1, Resources(), "true"))), pool) == 0
    assert pool.finished == (
        AppState.FAILED,
        "the job ships a keytab, by which no fresh tokens can be fetched. node7: this machine has"
        " no GSSAPI library. That is the administrator's to mend; without tony.kerberos.ship-keytab"
        " the job runs until its tokens end",
    )
    assert pool.launched == {}


def test_a_login_that_may_work_later_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Master, "_launch", lambda self, command: self.kill("it was enough"))
    pool = ChecksFetch(SchedulerError("node7: no KDC answers"))
    assert serve(context(tmp_path, a_job()), pool) == 0
    assert pool.finished == (AppState.KILLED, "it was enough")
    texts = [event["text"] for event in read_job(str(tmp_path / "history"), "app_1").events]
    assert "no login by the shipped keytab: node7: no KDC answers" in texts
