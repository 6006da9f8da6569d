"""A real master's run at an MLflow server that answers well, badly, late or not at all."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest

from tests.master.shell import SECRET, ScriptedPool, Shell, a_job, until
from tests.master.tracking.fake_mlflow import FakeMlflow, Handler
from tony_core.history.reader import read_events
from tony_core.job.spec import Job, Mlflow, Program, Resources, Role, Setting
from tony_core.master.tracking import tracker
from tony_core.master.tracking.tracker import read_arguments, run_key
from tony_core.protocol.channel import container_key
from tony_core.protocol.messages import Ended, Reported, Start
from tony_core.schedulers.port import AppState

ONE = Role("worker", 1, Resources(), "train.py --lr 0.1 --api-token=abcdefgh12345678 --fast")
TOKEN = "a-token-that-is-kept"


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_core.master.master.STOP_EXTRA_S", 0.1)
    monkeypatch.setattr("tony_core.master.tracking.log_queue.FLUSH_S", 0.05)
    monkeypatch.setattr("tony_core.master.tracking.run_machine.FIRST_PAUSE_S", 0.05)


@pytest.fixture
def mlflow() -> Iterator[FakeMlflow]:
    with FakeMlflow() as made:
        yield made


def a_tracked_job(uri: str, *roles: Role, **changes: Any) -> Job:
    server = Mlflow(uri, "exp", **changes)
    settings = (
        Setting("tony.worker.instances", "1", "tony.xml:3"),
        Setting("tony.some.password", "hidden-by-its-name", "tony.xml:4"),
        Setting("tony.am.memory", "512m", "default"),
    )
    tags = ("airflow.dag:retrain", "plain")
    return a_job(*(roles or (ONE,))).replace(mlflow=server, settings=settings, tags=tags)


def run_to_end(shell: Shell, executor: Any, session: int = 0) -> Tuple[AppState, str]:
    for step in range(3):
        executor.send_messages(Reported(session, None, {"loss": 1.0 / (step + 1)}, step=step))
    executor.send_messages(
        Reported(session, 1.0, {}, result='{"model": "/models/1", "loss": 0.1}'), Ended(session, 0)
    )
    return shell.join()


def story_of(shell: Shell) -> List[str]:
    """What history has of the tracking."""
    events, _ = read_events(str(shell.history))
    return [event["text"] for event in events if event["kind"] == "tracking"]


def start_of(executor: Any) -> Start:
    found: Start = executor.wait_for(Start)
    return found


def test_a_job_is_a_run(mlflow: FakeMlflow, tmp_path: Path) -> None:
    with Shell(tmp_path, a_tracked_job(mlflow.uri, token=TOKEN)) as shell:
        (executor,) = shell.gang(1)
        env = start_of(executor).env
        assert env["MLFLOW_RUN_ID"] == "run0" and env["MLFLOW_TRACKING_URI"] == mlflow.uri
        assert env["MLFLOW_EXPERIMENT_ID"] == "7"
        assert TOKEN not in str(env)
        assert shell.json("/api/job")["links"]["mlflow"].endswith("/#/experiments/7/runs/run0")
        assert run_to_end(shell, executor)[0] is AppState.SUCCEEDED
    run = mlflow.run
    assert run["metrics"] == [("loss", 1.0, 0), ("loss", 0.5, 1), ("loss", 1 / 3, 2)]
    assert run["status"] == "FINISHED"
    tags = run["tags"]
    assert tags["tony/app_id"] == "app_1" and tags["tony/model"] == "/models/1"
    assert tags["tony/tag/airflow.dag"] == "retrain" and tags["tony/tag/plain"] == "true"
    assert tags["tony/user"] == "tester" and tags["tony/state"] == "SUCCEEDED"
    assert tags["tony/session"] == "0" and tags["tony/link/page"].startswith("http://")
    params = run["params"]
    assert params["tony.worker.instances"] == "1" and "tony.am.memory" not in params
    assert params["arg.lr"] == "0.1" and params["arg.fast"] == "true"
    shown = str(run)
    assert "hidden-by-its-name" not in shown and "abcdefgh12345678" not in shown
    assert {headers["Authorization"] for _, _, headers in mlflow.requests} == {f"Bearer {TOKEN}"}
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file


def test_a_job_that_does_not_ask_is_not_tracked(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        assert not [name for name in start_of(executor).env if name.startswith("MLFLOW")]
        assert "mlflow" not in shell.json("/api/job")["links"]


def test_metrics_of_others_than_the_chief_are_below_their_task(
    mlflow: FakeMlflow, tmp_path: Path
) -> None:
    two = Role("worker", 2, Resources(), "true")
    with Shell(tmp_path, a_tracked_job(mlflow.uri, two)) as shell:
        for number, executor in enumerate(shell.gang(2)):
            executor.send_messages(Reported(0, None, {"loss": float(number)}, step=1))
        until(lambda: len(mlflow.run["metrics"]) == 2)
    assert {key for key, _, _ in mlflow.run["metrics"]} == {"loss", "worker-1/loss"}


def test_a_next_master_goes_on_with_the_same_run(mlflow: FakeMlflow, tmp_path: Path) -> None:
    job = a_tracked_job(mlflow.uri)
    first = Shell(tmp_path, job)
    with contextlib.ExitStack() as stack:
        first.__enter__()
        stack.callback(first.abandon)
        (executor,) = first.gang(1)
        executor.send_messages(Reported(0, None, {"loss": 1.0}, step=1))
        until(lambda: mlflow.run["metrics"])
        until(lambda: b'"run_id":"run0"' in (tmp_path / "journal.json").read_bytes())
    searched = [path for path, _, _ in mlflow.requests].count("runs/search")
    with Shell(tmp_path, job, ScriptedPool(attempt=2), attempt=2) as shell:
        shell.launched(1)
        (executor,) = shell.gang(1)
        assert start_of(executor).env["MLFLOW_RUN_ID"] == "run0"
    assert list(mlflow.runs) == ["run0"]
    assert [path for path, _, _ in mlflow.requests].count("runs/search") == searched


def test_a_next_master_without_a_journal_finds_its_run_and_no_others(
    mlflow: FakeMlflow, tmp_path: Path
) -> None:
    """Another user has made runs under the job's id: before it, and while it ran."""
    job = a_tracked_job(mlflow.uri)
    theirs = {"experiment_id": "7", "run_name": "x"}
    tags = [{"key": "tony/app_id", "value": "app_1"}, {"key": "tony/run_key", "value": "a guess"}]
    mlflow.answer("runs/create", {**theirs, "tags": tags})
    first = Shell(tmp_path, job)
    with contextlib.ExitStack() as stack:
        first.__enter__()
        stack.callback(first.abandon)
        (executor,) = first.gang(1)
        assert start_of(executor).env["MLFLOW_RUN_ID"] == "run1"
    key = mlflow.runs["run1"]["tags"]["tony/run_key"]
    assert SECRET.hex() not in key and container_key(SECRET, "mlflow").hex() != key
    mlflow.answer("runs/create", {**theirs, "tags": tags})
    journal = tmp_path / "journal.json"
    content = json.loads(journal.read_bytes())
    journal.write_text(json.dumps({**content, "tracked": {}}))
    with Shell(tmp_path, job, ScriptedPool(attempt=2), attempt=2) as shell:
        shell.launched(1)
        (executor,) = shell.gang(1)
        session = start_of(executor).session
        until(lambda: shell.json("/api/job")["links"].get("mlflow", "").endswith("/runs/run1"))
        assert run_to_end(shell, executor, session)[0] is AppState.SUCCEEDED
    assert [bool(run["metrics"]) for run in mlflow.runs.values()] == [False, True, False]


def test_a_key_is_the_jobs_own() -> None:
    keys = {run_key(secret, app) for secret in (b"a" * 32, b"b" * 32) for app in ("app_1", "app_2")}
    assert len(keys) == 4 and all(len(key) == 64 for key in keys)


def test_a_server_that_is_away_harms_no_job(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    began = time.monotonic()
    with Shell(tmp_path, a_tracked_job(f"http://127.0.0.1:{port}")) as shell:
        (executor,) = shell.gang(1)
        assert "MLFLOW_RUN_ID" not in start_of(executor).env
        assert run_to_end(shell, executor)[0] is AppState.SUCCEEDED
        lines = story_of(shell)
    assert time.monotonic() - began < 30
    assert len(lines) == 2 and "does not answer" in lines[0] and "missing there" in lines[1]


def test_a_server_that_dies_in_the_middle_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    mlflow = FakeMlflow()
    with contextlib.ExitStack() as stack:
        with mlflow:
            shell = stack.enter_context(Shell(tmp_path, a_tracked_job(mlflow.uri)))
            (executor,) = shell.gang(1)
            executor.send_messages(Reported(0, None, {"loss": 0.0}, step=0))
            until(lambda: mlflow.run["metrics"])
        for step in range(1, 20):
            executor.send_messages(Reported(0, None, {"loss": float(step)}, step=step))
        until(lambda: shell.story("tracking")[1:])
        with mlflow:
            until(lambda: len({step for _, _, step in mlflow.run["metrics"]}) == 20)
            executor.send_messages(Ended(0, 0))
            assert shell.join()[0] is AppState.SUCCEEDED
    assert mlflow.run["status"] == "FINISHED"


def slow(handler: Handler) -> bool:
    """A byte now and then, for ever."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(1000):
            handler.wfile.write(b"X")
            handler.wfile.flush()
            time.sleep(0.05)
    handler.close_connection = True
    return True


def closed(handler: Handler) -> bool:
    handler.close_connection = True
    return True


def huge(handler: Handler) -> bool:
    with contextlib.suppress(OSError):
        handler.send(200, b"x" * (3 << 20))
    return True


def redirected(handler: Handler) -> bool:
    handler.send(302, b"", Location="http://127.0.0.1:1/steal")
    return True


def hostile(handler: Handler) -> bool:
    handler.send(500, {"message": "<script>alert(1)</script>\x1b[31m\n" * 1000})
    return True


def refused(status: int) -> Any:
    def misbehave(handler: Handler) -> bool:
        handler.send(status, {"error_code": "X", "message": "no"}, Retry_After="3")
        return True

    return misbehave


@pytest.mark.parametrize(
    "misbehave",
    [slow, closed, huge, redirected, hostile, *map(refused, (400, 401, 404, 429, 500))],
    ids="slow closed huge redirected hostile 400 401 404 429 500".split(),
)
def test_a_bad_server_harms_no_job(
    misbehave: Any, mlflow: FakeMlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "BEGIN_S", 0.3)
    monkeypatch.setattr(tracker, "END_S", 0.3)
    mlflow.misbehave = misbehave
    with Shell(tmp_path, a_tracked_job(mlflow.uri, token=TOKEN)) as shell:
        (executor,) = shell.gang(1)
        assert run_to_end(shell, executor)[0] is AppState.SUCCEEDED
        lines = story_of(shell)
        assert 1 <= len(lines) <= 3
        assert all(len(line) < 500 and "\x1b" not in line for line in lines)
        assert TOKEN not in str(lines)


MOMENTS = "experiments/get-by-name experiments/create runs/create runs/log-batch runs/update"


@pytest.mark.parametrize("how", [slow, closed, refused(500)], ids=["hangs", "dies", "500"])
@pytest.mark.parametrize("moment", MOMENTS.split())
def test_a_server_that_goes_at_any_moment_harms_no_job(
    moment: str, how: Any, mlflow: FakeMlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first request of this kind on; ``runs/update`` is the end."""
    monkeypatch.setattr(tracker, "BEGIN_S", 0.3)
    monkeypatch.setattr(tracker, "END_S", 0.3)
    gone: List[str] = []

    def misbehave(handler: Handler) -> bool:
        path = handler.path.partition("/api/2.0/mlflow/")[2].partition("?")[0]
        if path == moment:
            gone.append(path)
        return bool(gone) and bool(how(handler))

    mlflow.misbehave = misbehave
    with Shell(tmp_path, a_tracked_job(mlflow.uri)) as shell:
        (executor,) = shell.gang(1)
        assert run_to_end(shell, executor)[0] is AppState.SUCCEEDED
        lines = story_of(shell)
    assert gone and len(mlflow.runs) == (moment in ("runs/log-batch", "runs/update"))
    assert any("end" in line for line in lines), "the story says that the end is missing there"
    assert len(lines) <= 3


def test_arguments_of_a_command() -> None:
    assert read_arguments("python t.py --lr 0.1 -v --name='x' --flag --last") == [
        ("lr", "0.1"), ("name", "x"), ("flag", "true"), ("last", "true"),
    ]  # fmt: skip
    assert read_arguments("a -- b --") == []


def test_programs_of_the_job_may_have_a_run_of_their_own(
    mlflow: FakeMlflow, tmp_path: Path
) -> None:
    program = Program(shell_env=(("MLFLOW_RUN_ID", "mine"),))
    with Shell(tmp_path, a_tracked_job(mlflow.uri).replace(program=program)) as shell:
        (executor,) = shell.gang(1)
        assert start_of(executor).env["MLFLOW_RUN_ID"] == "mine"
