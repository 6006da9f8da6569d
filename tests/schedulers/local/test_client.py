"""The embedded scheduler from the client's side: files, locks, and masters that die."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.schedulers.contract import (
    SECRET,
    ended,
    harness_events,
    log_refs,
    running,
    sleeper,
    until,
)
from tests.schedulers.local.fixtures import MOST_MB, LocalHarness
from tony_core.client.kill import kill
from tony_core.client.logs import read_logs
from tony_core.client.lookup import view_of
from tony_core.client.watch import Watch
from tony_core.job.spec import (
    Docker,
    Job,
    Local,
    MasterSpec,
    Mode,
    Resources,
    Role,
    Runtime,
    Timeouts,
    Tracking,
)
from tony_core.schedulers.local import attempts, client, finalize, home, processes
from tony_core.schedulers.local.applications import Application
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LogRef,
    NoSuchApplication,
    SchedulerError,
)


def change_app(harness: LocalHarness, app_id: str, **values: Any) -> None:
    """Another word in its app.json."""
    path = harness.home.app(app_id).app
    home.write_json(path, {**(home.read_json(path) or {}), **values})


def waiting(harness: LocalHarness, marker: str = "", **instructions: Any) -> str:
    """An application with one worker that sleeps, running."""
    marker = marker or f"marker-{time.time_ns()}"
    argv = [*sleeper(), marker]
    app_id = harness.submit(
        **{
            "requests": [["worker", 1, 64]],
            "gang": True,
            "argv": argv,
            "then": "finish",
            **instructions,
        }
    )
    until(lambda: running(marker), "the worker")
    return app_id


# ------------------------------------------------------------------ submitting


def test_what_the_dry_run_prints_is_what_runs(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    process = attempts.read(harness.home.app(app_id)).process
    assert process is not None
    details = harness.scheduler.dry_run(app_id, harness.job(), harness.artifacts()).details
    words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[:-1]
    assert words == details["argv"]
    environ = Path(f"/proc/{process.pid}/environ").read_text().split("\0")[:-1]
    assert dict(pair.split("=", 1) for pair in environ) == details["env"]
    assert os.readlink(f"/proc/{process.pid}/cwd") == details["folders"]["master"]


def test_the_shells_secrets_do_not_travel(harness: LocalHarness, tmp_path: Path) -> None:
    env = {**os.environ, "CLOUD_TOKEN": "very-private", "LC_TIME": "C", "PATH": "/mine:/bin"}
    scheduler = LocalScheduler(env)
    harness.scheduler = scheduler
    out = tmp_path / "env"
    argv = ["sh", "-c", f"env > {out}.part && mv {out}.part {out}"]
    app_id = harness.submit(requests=[["worker", 1, 64]], gang=True, argv=argv, then="finish")
    ended(harness, app_id)
    seen = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert seen["PATH"] == "/mine:/bin"
    assert seen["LC_TIME"] == "C"
    assert "CLOUD_TOKEN" not in seen
    found = subprocess.run(["grep", "-r", "very-private", harness.home.root], capture_output=True)
    assert found.stdout == b""


def test_a_master_that_ends_before_it_began_is_refused_with_its_words(
    harness: LocalHarness,
) -> None:
    (harness.runtime / "tests" / "schedulers" / "standin.py").unlink()
    (harness.runtime / "tests" / "schedulers" / "standin.py").write_text("import no_such_thing")
    with pytest.raises(SchedulerError, match="no_such_thing"):
        harness.submit(requests=[], gang=True, argv=[], then="finish")
    assert home.list_names(harness.home.apps) == []


def test_a_successor_that_cannot_run_is_refused_with_its_words(harness: LocalHarness) -> None:
    (harness.runtime / "__main__.py").write_text("raise SystemExit('no way')")
    with pytest.raises(SchedulerError, match="no way"):
        harness.submit(requests=[], gang=True, argv=[], then="finish")
    assert home.list_names(harness.home.apps) == []


def test_an_id_is_used_once(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    submission = harness.scheduler.dry_run(app_id, harness.job(), harness.artifacts())
    with pytest.raises(SchedulerError, match="already"):
        harness.scheduler.submit(app_id, submission, SECRET)
    assert harness.scheduler.status(app_id).state is AppState.RUNNING


def test_without_our_own_code_nothing_is_submitted(harness: LocalHarness) -> None:
    with pytest.raises(SchedulerError, match="our own code"):
        harness.scheduler.dry_run("local_1", harness.job(), [])


def test_a_master_that_does_not_come_up_in_its_time_leaves_nothing(harness: LocalHarness) -> None:
    limits = harness.job().replace(master=MasterSpec(startup_timeout_s=0.001))
    submission = harness.scheduler.dry_run("local_1", limits, harness.artifacts())
    with pytest.raises(SchedulerError, match=r"tony\.am\.startup-timeout"):
        harness.scheduler.submit("local_1", submission, SECRET)
    with pytest.raises(NoSuchApplication):
        harness.scheduler.status("local_1")


def test_two_that_want_more_than_half_run_one_after_the_other(
    harness: LocalHarness, tmp_path: Path
) -> None:
    most, go = MOST_MB * 2 // 3 // 2, tmp_path / "go"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    argv = [sys.executable, "-I", "-S", "-c", code]
    ids = [
        harness.submit(requests=[["worker", 2, most]], gang=True, argv=argv, then="finish")
        for _ in range(2)
    ]

    def waiter() -> str:
        """Which of them waits: whichever asked first goes first."""
        for one, other in (ids, ids[::-1]):
            events = [str(words[2]) for words in harness_events(harness, other)]
            if any(f"waits for {2 * most} MB" in word and one in word for word in events):
                return other
        return ""

    second = until(waiter, "the word of the one that waits")
    assert not any("Allocated" in words[2] for words in harness_events(harness, second))
    go.touch()
    assert {ended(harness, app_id).state for app_id in ids} == {AppState.SUCCEEDED}


# ------------------------------------------------------------------ masters that die


def successor_of(harness: LocalHarness, app_id: str) -> List[str]:
    """What executors find in TONY_SUCCESSOR."""
    folder = harness.home.app(app_id)
    words = [sys.executable, str(harness.runtime), "local-successor", "--app-dir", folder.path]
    return attempts.runtime_argv(words[0], words[1], *words[2:])


def test_the_next_master_takes_over_and_training_is_not_disturbed(
    harness: LocalHarness, tmp_path: Path
) -> None:
    marker, go = f"marker-{time.time_ns()}", tmp_path / "go"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    argv = [sys.executable, "-c", code, marker]
    app_id = waiting(harness, marker, argv=argv)
    before = running(marker)
    harness.kill_master(app_id)
    # Its executor lives and could start the next master: it has not ended.
    assert harness.scheduler.status(app_id).state is AppState.RUNNING
    racers = [subprocess.Popen(successor_of(harness, app_id), env={}) for _ in range(4)]
    codes = sorted(racer.wait(timeout=60) for racer in racers)
    assert codes == [attempts.STARTED] + [attempts.HELD] * 3
    until(lambda: harness.scheduler.status(app_id).attempt == 2, "the second master")
    assert running(marker) == before
    assert subprocess.run(successor_of(harness, app_id)).returncode == attempts.HELD
    go.touch()
    status = ended(harness, app_id)
    assert (status.state, status.attempt) == (AppState.SUCCEEDED, 2)
    events = [words[2].split("(")[0] for words in harness_events(harness, app_id) if words[1] == 2]
    assert events == ["PreviousContainers", "Completed"]
    assert subprocess.run(successor_of(harness, app_id)).returncode == attempts.OVER


EXECUTOR = """
import json, os, pathlib, subprocess, sys, time
go, said = map(pathlib.Path, sys.argv[1:3])
while not go.exists(): time.sleep(0.01)
done = subprocess.run(json.loads(os.environ["TONY_SUCCESSOR"]))
said.write_text(str(done.returncode))
while go.exists(): time.sleep(0.01)
"""


def test_a_master_that_an_executor_started_does_not_end_with_its_container(
    harness: LocalHarness, tmp_path: Path
) -> None:
    marker, go, result = f"marker-{time.time_ns()}", tmp_path / "go", tmp_path / "result"
    argv = [sys.executable, "-c", EXECUTOR, str(go), str(result), marker]
    app_id = waiting(harness, marker, argv=argv)
    harness.kill_master(app_id)
    go.touch()
    until(lambda: result.exists() and result.read_text(), "the successor's exit code")
    assert result.read_text() == str(attempts.STARTED)
    second = until(lambda: attempts.read(harness.home.app(app_id)).process, "its word")
    (program,) = running(marker)
    tree = processes.descendants(int(Path(f"/proc/{program}/stat").read_text().split()[3]))
    assert program in tree  # so this is its shim's tree
    assert second.pid not in tree
    assert "TONY_CONTAINER_ID" not in Path(f"/proc/{second.pid}/environ").read_text()
    go.unlink()
    status = ended(harness, app_id)  # the container ends, then the job, by its second master
    assert (status.state, status.attempt) == (AppState.SUCCEEDED, 2), status


def test_no_master_beyond_the_last_attempt(harness: LocalHarness) -> None:
    app_id = waiting(harness, attempts=1)
    harness.kill_master(app_id)
    assert subprocess.run(successor_of(harness, app_id)).returncode == attempts.OVER


def test_no_master_for_what_is_being_killed(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    harness.kill_master(app_id)
    home.write_json(harness.home.app(app_id).kill, {"reason": "enough"})
    assert subprocess.run(successor_of(harness, app_id)).returncode == attempts.OVER


def test_with_no_process_to_start_it_again_it_has_failed(harness: LocalHarness) -> None:
    app_id = harness.submit(requests=[], gang=True, argv=[], then="wait")
    until(lambda: harness.scheduler.status(app_id).state is AppState.RUNNING, "the master")
    harness.kill_master(app_id)
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.FAILED
    assert "the master died (attempt 1 of 2)" in status.diagnostics


def test_kill_without_a_master_ends_the_containers(harness: LocalHarness) -> None:
    marker = f"marker-{time.time_ns()}"
    app_id = waiting(harness, marker)
    harness.kill_master(app_id)
    harness.scheduler.kill(app_id, "never mind")
    assert running(marker) == []
    status = harness.scheduler.status(app_id)
    assert (status.state, status.diagnostics) == (AppState.KILLED, "never mind")


def files_of(root: str) -> Dict[str, Any]:
    """Every file and folder there: its time, and what it holds."""
    paths = [Path(root), *Path(root).rglob("*")]
    return {
        str(path): (
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in paths
    }


ACTS = {
    "killed": lambda harness, app_id: harness.scheduler.kill(app_id, "never mind"),
    "tony kill": lambda harness, app_id: kill(harness.scheduler, app_id),
    "watched": lambda harness, app_id: Watch(harness.scheduler, app_id).run(),
    "tony gc": lambda harness, app_id: [*harness.scheduler.cleaner.collect_garbage(60.0)],
    "the next submit": lambda harness, app_id: waiting(harness),
}


@pytest.mark.parametrize("how", ACTS)
@pytest.mark.parametrize("planted", ["another user's", "a link"])
def test_a_folder_that_another_user_planted_is_not_acted_on(
    harness: LocalHarness, how: str, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files name programs to run and folders to remove."""
    app_id = waiting(harness, attempts=1)
    harness.kill_master(app_id)
    folder = harness.home.app(app_id)
    if planted == "a link":
        os.rename(folder.path, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", folder.path)
    else:
        monkeypatch.setattr(AppFolder, "is_own", False)
    before = files_of(folder.path)
    try:
        ACTS[how](harness, app_id)
    except SchedulerError as error:
        assert "another user's" in str(error)
    assert files_of(folder.path) == before
    monkeypatch.undo()
    if planted == "a link":
        os.remove(folder.path)
        os.rename(tmp_path / "elsewhere", folder.path)
    harness.scheduler.kill(app_id, "the test is over")


@pytest.mark.parametrize("how", ACTS)
def test_who_ends_a_job_without_its_master_cleans_up(harness: LocalHarness, how: str) -> None:
    app_id = waiting(harness, attempts=1)
    folder = harness.home.app(app_id)
    (container_id,) = folder.container_ids()
    container = folder.container(container_id)
    assert os.path.exists(folder.secret) and os.path.exists(container.launch)
    harness.kill_master(app_id)
    before = files_of(harness.home.root)
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.FAILED and status.finished is not None
    assert status in harness.scheduler.list() and not harness.scheduler.cleaner.list_damaged()
    assert [*harness.scheduler.cleaner.collect_garbage(0.0, dry_run=True)]
    assert files_of(harness.home.root) == before, "who looks writes nothing"
    ACTS[how](harness, app_id)
    assert harness.scheduler.status(app_id) == status, "what was shown is what was written"
    assert (home.read_json(folder.status) or {})["finished"] == status.finished
    for path in (folder.job, container.work, container.secret, container.launch):
        assert not os.path.exists(path), path
    assert os.path.exists(container.logs) and os.path.exists(container.exit)
    assert not os.path.exists(os.path.join(harness.home.root, "store", "leases", f"{app_id}.json"))
    assert harness.scheduler.status(app_id).state.ended


def without_a_master(harness: LocalHarness, tmp_path: Path, **instructions: Any) -> AppFolder:
    """Workers that outlive the last master until a file ``go-INDEX`` is there, or ``go``."""
    code = (
        "import os, pathlib, sys, time\n"
        "me = 'go-' + os.environ['TONY_CONTAINER_ID'].rpartition('_')[2]\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "while not ((here / me).exists() or (here / 'go').exists()): time.sleep(0.01)"
    )
    marker = f"marker-{time.time_ns()}"
    argv = [sys.executable, "-I", "-S", "-c", code, marker]
    app_id = waiting(harness, marker, argv=argv, **instructions)
    harness.kill_master(app_id)
    return harness.home.app(app_id)


def cleared(folder: AppFolder) -> bool:
    """Whether what only a running job needs is gone."""
    gone = [folder.job]
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        gone += [container.work, container.secret, container.launch]
    return not any(map(os.path.exists, gone))


@pytest.mark.parametrize(("count", "most"), [(1, 1), (3, 1), (1, 2)])
def test_the_last_container_that_ends_has_it_buried(
    harness: LocalHarness, tmp_path: Path, count: int, most: int
) -> None:
    """Where attempts are left, too: only a container's executor would have started the next."""
    folder = without_a_master(harness, tmp_path, requests=[["worker", count, 64]], attempts=most)
    assert len(folder.container_ids()) == count
    (tmp_path / "go").touch()
    until(lambda: cleared(folder), "its finalizing, without a request")
    until(lambda: (home.read_json(folder.status) or {})["state"] == "FAILED", "its end")
    until(lambda: not attempts.running_containers(folder), "the shims' ends")
    status = harness.scheduler.status(folder.app_id)
    assert status.diagnostics == f"the master died (attempt 1 of {most})"
    assert not os.path.exists(
        os.path.join(harness.home.root, "store", "leases", f"{folder.app_id}.json")
    )
    assert all(os.path.exists(folder.container(one).exit) for one in folder.container_ids())
    assert Ledger(harness.home.ledger).reservations() == []


@pytest.mark.parametrize("most", [1, 2])
def test_nothing_is_buried_while_another_container_lives(
    harness: LocalHarness, tmp_path: Path, most: int
) -> None:
    folder = without_a_master(harness, tmp_path, requests=[["worker", 2, 64]], attempts=most)
    first = folder.container_ids()[0]
    shim = processes.ProcessIdentity.from_json(home.read_json(folder.container(first).shim))
    (tmp_path / f"go-{first.rpartition('_')[2]}").touch()
    until(lambda: shim is None or not shim.alive(), "the end of the first")
    handle = attempts.try_lock(folder)
    assert handle is not None  # nor is anybody about to
    os.close(handle)
    assert os.path.exists(folder.secret) and os.path.exists(folder.container(first).launch)
    assert (home.read_json(folder.status) or {})["state"] == "RUNNING"
    harness.scheduler.kill(folder.app_id, "enough")
    assert cleared(folder)


def test_finalizing_waits_for_readers(harness: LocalHarness, tmp_path: Path) -> None:
    folder = without_a_master(harness, tmp_path, attempts=1)
    (container_id,) = folder.container_ids()
    handle = attempts.try_lock(folder)
    assert handle is not None
    (tmp_path / "go").touch()
    until(lambda: os.path.exists(folder.container(container_id).exit), "its end")
    os.close(handle)
    until(lambda: cleared(folder), "its burial")
    until(lambda: (home.read_json(folder.status) or {})["state"] == "FAILED", "its end")


def test_a_master_that_does_not_listen_is_killed(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "KILL_MARGIN_S", 0.2)
    marker = f"marker-{time.time_ns()}"
    app_id = waiting(harness, marker, deaf=True, job={"timeouts": Timeouts(kill_grace_s=0.1)})
    harness.scheduler.kill(app_id, "listen")
    assert running(marker) == []
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.KILLED
    assert "did not end by itself" in status.diagnostics


def test_a_clock_that_is_set_back_takes_nothing_from_a_job(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    harness.kill_master(app_id)
    future = time.time() + 3600.0  # when the clock said so
    change_app(harness, app_id, submitted=future, uptime=time.monotonic() - 60.0)
    folder = harness.home.app(app_id)
    app = Application.read(folder)
    assert app is not None and app.now() >= future + 60.0
    harness.scheduler.kill(app_id, "enough")
    status = harness.scheduler.status(app_id)
    assert status.finished is not None and status.finished >= future + 60.0
    # One of an earlier version had nothing of that.
    change_app(harness, app_id, uptime=None)
    app = Application.read(folder)
    assert app is not None and app.now() < future


def test_an_application_of_before_a_restart_has_failed(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    harness.kill_master(app_id)
    change_app(harness, app_id, boot="an earlier boot")
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.FAILED
    assert "the machine was restarted" in status.diagnostics
    assert (home.read_json(harness.home.app(app_id).status) or {})["state"] == "RUNNING"
    harness.scheduler.cleaner.remove_leftovers(status)
    assert (home.read_json(harness.home.app(app_id).status) or {})["state"] == "FAILED"
    assert harness.scheduler.status(app_id) == status
    # (In truth its worker would be gone; here it is this boot's to end.)
    finalize.end_containers(harness.home.app(app_id))


def test_a_submit_whose_client_died_has_failed(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    harness.scheduler.kill(app_id, "only its files are wanted")
    folder = harness.home.app(app_id)
    os.unlink(folder.lock)
    os.unlink(folder.status)
    assert harness.scheduler.status(app_id).state is AppState.SUBMITTED
    me = processes.ProcessIdentity.mine()
    change_app(harness, app_id, submitter=me._replace(start=me.start - 1).to_json())
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.FAILED
    assert "client died" in status.diagnostics


def test_an_application_of_another_host_is_unchanged(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    change_app(harness, app_id, host="elsewhere")
    harness.kill_master(app_id)
    assert harness.scheduler.status(app_id).state is AppState.RUNNING
    with pytest.raises(SchedulerError, match="runs on elsewhere"):
        harness.scheduler.kill(app_id, "from afar")
    change_app(harness, app_id, host=processes.host())


# ------------------------------------------------------------------ looking at it


def test_the_newest_is_listed_first(harness: LocalHarness) -> None:
    ids = [waiting(harness) for _ in range(3)]
    Path(harness.home.apps, "being-staged").mkdir()
    found = harness.scheduler.list()
    assert [status.app_id for status in found] == ids[::-1]
    assert {status.state for status in found} == {AppState.RUNNING}


def test_logs_of_the_master_and_no_others(harness: LocalHarness) -> None:
    app_id = waiting(harness)
    scheduler = harness.scheduler
    assert scheduler.log_reader.list_logs(app_id, LogRef("")) == [
        "master-1.stderr",
        "master-1.stdout",
    ]
    (ref,) = log_refs(harness, app_id)
    for name in ("../../app.json", "..", ".", "", "/etc/passwd"):
        with pytest.raises(SchedulerError, match="name of a log"):
            scheduler.log_reader.read_log(app_id, ref, name, 0)
    with pytest.raises(SchedulerError, match="id of a container"):
        scheduler.log_reader.list_logs(app_id, LogRef("../containers"))
    for wrong in ("../" + app_id, "", ".hidden", "nobody"):
        with pytest.raises(NoSuchApplication):
            scheduler.status(wrong)
    folder = harness.home.app(app_id).master
    os.mkfifo(os.path.join(folder, "pipe"))
    with pytest.raises(SchedulerError, match="pipe cannot be read"):
        scheduler.log_reader.read_log(app_id, LogRef(""), "pipe", 0)  # and it is not waited for
    os.symlink("/dev/zero", os.path.join(folder, "endless"))
    with pytest.raises(SchedulerError, match="endless cannot be read"):
        scheduler.log_reader.read_log(app_id, LogRef(""), "endless", 0)


def test_the_logs_of_a_job_whose_master_reported_none(harness: LocalHarness) -> None:
    code = "import time; print('printed before', flush=True); time.sleep(60)"
    argv = [sys.executable, "-I", "-S", "-c", code, f"marker-{time.time_ns()}"]
    app_id = waiting(harness, argv[-1], argv=argv, attempts=1)
    logs = harness.scheduler.log_reader
    ((_, where),) = logs.list_containers(app_id)
    until(lambda: logs.read_log(app_id, where, "executor.log", 0), "its words")
    harness.kill_master(app_id)
    status = harness.scheduler.status(app_id)
    ((task, ref),) = harness.scheduler.log_reader.list_containers(app_id)
    assert task == "worker:0"
    assert ref.container_id in harness.home.app(app_id).container_ids()
    view = view_of(harness.scheduler, status)
    assert [(one.task, one.state) for one in view.tasks] == [("worker:0", "lost")]
    lines = list(read_logs(harness.scheduler, app_id, stream="executor"))
    assert ("worker:0", "printed before") in [(line.task, line.text) for line in lines]


def test_garbage_is_what_ended_long_ago(harness: LocalHarness) -> None:
    old, new, alive = waiting(harness), waiting(harness), waiting(harness)
    scheduler = harness.scheduler
    for app_id in (old, new):
        scheduler.kill(app_id, "done")
    path = harness.home.app(old).status
    home.write_json(path, {**(home.read_json(path) or {}), "finished": time.time() - 5000})
    (line,) = scheduler.cleaner.collect_garbage(3600, dry_run=True)
    assert old in line
    assert len(scheduler.list()) == 3
    assert list(scheduler.cleaner.collect_garbage(3600)) == [line]
    assert [status.app_id for status in scheduler.list()] == [alive, new]
    assert len(list(scheduler.cleaner.collect_garbage(0))) == 1
    assert scheduler.status(alive).state is AppState.RUNNING


# ------------------------------------------------------------------ what never runs


def job(*roles: Role, **changes: Any) -> Job:
    return Job("job", roles, **{"local": Local(memory_mb=1000, gpus=1), **changes})


def role(name: str, count: int, memory: int = 100, **changes: Any) -> Role:
    gpus = changes.pop("gpus", 0)
    return Role(name, count, Resources(memory, gpus=gpus), "true", **changes)


FITS: Dict[str, Job] = {
    "as much as there is": job(role("worker", 10)),
    "one after the other": job(role("worker", 10), role("eval", 10, depends_on=("worker",))),
    "a sidecar beside the gang": job(role("worker", 10), role("tb", 1, tracking=Tracking.SIDECAR)),
    "each at once": job(role("worker", 100), mode=Mode.FCFS),
    "a queue by its path": job(role("worker", 1), queue="root.ml_team.train-1"),
    "cores are not counted": job(Role("worker", 1, Resources(1, vcores=999), "true")),
}
NEVER = {
    "10 x worker + 1 x ps never fit on this machine together: 1100 MB": job(
        role("worker", 10), role("ps", 1, tracking=Tracking.UNTRACKED)
    ),
    "tb: one container never fits: 1001 MB": job(
        role("worker", 1), role("tb", 1, 1001, tracking=Tracking.SIDECAR)
    ),
    "11 x eval never fit": job(role("worker", 1), role("eval", 11, depends_on=("worker",))),
    "2 x worker never fit on this machine together: 2 GPUs": job(role("worker", 2, gpus=1)),
    "1001 MB": job(role("worker", 1, 1001), mode=Mode.FCFS),
    "5 vcores": job(
        Role("worker", 1, Resources(1, vcores=5), "true"), local=Local(memory_mb=9, vcores=4)
    ),
    "the queue 'a b' is not a name": job(role("worker", 1), queue="a b"),
    "the node label of worker '-x' is not a name": job(role("worker", 1, node_label="-x")),
    "this machine has no resource 'fpga'": job(
        Role("worker", 1, Resources(1, other=(("fpga", 1),)), "true")
    ),
    "there is no program /no/python": job(role("worker", 1), runtime=Runtime("/no/python")),
    "the master of the embedded scheduler runs on this machine": job(
        role("worker", 1), master=MasterSpec(docker=Docker("image"), preprocess="make")
    ),
    "the job uses a container image (worker)": job(role("worker", 1, docker=Docker("image"))),
}


@pytest.fixture
def no_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("tony_core.schedulers.local.capacity._PLACES", ())


@pytest.mark.usefixtures("no_nvidia_smi")
@pytest.mark.parametrize("name", FITS)
def test_what_fits_is_not_refused(name: str) -> None:
    assert LocalScheduler().check(FITS[name]) == []


@pytest.mark.usefixtures("no_nvidia_smi")
@pytest.mark.parametrize("words", NEVER)
def test_what_never_runs_is_refused_by_one_clear_message(words: str) -> None:
    problems = LocalScheduler().check(NEVER[words])
    assert len(problems) == 1, problems
    assert words in problems[0]


@pytest.mark.usefixtures("no_nvidia_smi")
def test_all_problems_are_reported_at_once(harness: LocalHarness) -> None:
    bad = job(role("worker", 1, 2000), role("ps", 1, 3000)).replace(queue="?")
    assert len(LocalScheduler().check(bad)) == 3
    app_id = harness.scheduler.new_app_id(bad)
    submission = harness.scheduler.dry_run(app_id, bad, harness.artifacts())
    with pytest.raises(SchedulerError, match=r"2000 MB.*3000 MB"):
        harness.scheduler.submit(app_id, submission, SECRET)
    assert home.list_names(harness.home.apps) == []


class TestForAService:
    """What the portal asks for: who owns a job, and where its page may be."""

    def test_what_runs_and_whose_it_is(self, harness: LocalHarness) -> None:
        app_id = waiting(harness)
        scheduler = harness.scheduler
        (found,) = scheduler.list_running()
        assert found.app_id == app_id
        assert scheduler.owner_of(found._replace(user="eve")) == getpass.getuser()
        change_app(harness, app_id, user="eve")
        assert scheduler.owner_of(scheduler.status(app_id)) == getpass.getuser()
        (ref,) = log_refs(harness, app_id)
        assert scheduler.log_reader.log_size(app_id, ref, "nothing") == 0
        Path(harness.home.app(app_id).master, "own.log").write_bytes(b"123")
        assert scheduler.log_reader.log_size(app_id, LogRef(""), "own.log") == 3
        harness.scheduler.kill(app_id, "the test has ended")
        assert scheduler.list_running() == []
        assert scheduler.list_running() == [], "and it is not read again"

    def test_a_folder_that_is_not_this_users_is_of_no_owner(
        self, harness: LocalHarness, tmp_path: Path
    ) -> None:
        app_id = waiting(harness)
        status = harness.scheduler.status(app_id)
        folder = harness.home.app(app_id).path
        os.rename(folder, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", folder)
        assert harness.scheduler.owner_of(status) == ""
        os.unlink(folder)
        os.rename(tmp_path / "elsewhere", folder)

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("http://127.0.0.1:4711/", True),
            ("http://[::1]:4711/api/job", True),
            ("http://localhost:1/", True),
            ("http://169.254.169.254/latest", False),
            ("http://127.0.0.1@evil/", False),
            ("https://127.0.0.1/", False),
            ("file:///etc/passwd", False),
            ("http://[", False),
            ("", False),
        ],
    )
    def test_pages(self, harness: LocalHarness, url: str, expected: bool) -> None:
        status = AppStatus("local_1", "n", "u", "q", AppState.RUNNING, page_url="http://127.0.0.1/")
        assert (harness.scheduler.page_problem(status, url) == "") is expected
