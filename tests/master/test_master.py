"""The master's shell with a scripted pool and scripted executors; all between them is real."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.master.shell import SECRET, ScriptedExecutor, ScriptedPool, Shell, a_job, until
from tony_core.exit_causes import ExitCause
from tony_core.history.reader import JobHistory, read_job
from tony_core.job.spec import History, MasterSpec, Program, Resources, Role, Setting, Timeouts
from tony_core.protocol.job_secret import executor_key
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Heartbeat,
    Measured,
    Noted,
    Prepare,
    Ready,
    Reported,
    Running,
    Serving,
    Shutdown,
    Start,
    Stop,
    Stopped,
    Welcome,
)
from tony_core.schedulers.container_pool import AllocationPending, Container, ShutdownRequested
from tony_core.schedulers.port import AppState

ONE = Role("worker", 1, Resources(), "true")


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler's own stop follows soon when a scripted executor gets no Shutdown."""
    monkeypatch.setattr("tony_core.master.master.STOP_EXTRA_S", 0.2)


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job()) as shell:
        executors = shell.gang(2)
        start = executors[1].received[-1]
        assert isinstance(start, Start)
        assert start.env["TASK_INDEX"] == "1"
        assert json.loads(start.shared["CLUSTER_SPEC"]) == {
            "worker": ["127.0.0.1:5000", "127.0.0.1:5000"]
        }
        shell.finish(*executors)
        shell.go(*executors)
        state, text = shell.join()
    assert state is AppState.SUCCEEDED, text
    assert shell.pool.closed
    assert not shell.job_dir.exists(), "the job folder goes with the job"
    history = read_job(str(tmp_path / "history"), "app_1")
    assert history.job["state"] == "SUCCEEDED"
    assert history.job["finished"] >= history.job["started"]
    assert [task["state"] for task in history.tasks] == ["succeeded", "succeeded"]
    asked = {"instances": 2, "memory_mb": 2048, "vcores": 1, "gpus": 0}
    assert history.job["roles"] == {"worker": asked} and history.job["view_acl"] == ""
    kinds = [event["kind"] for event in history.events]
    assert kinds[0] == "session-started" and kinds[-1] == "job-ended"
    assert [event["n"] for event in history.events] == list(range(1, len(kinds) + 1))
    assert not history.problems


def test_executors_wait_for_a_silent_master_as_long_as_it_does_for_them(tmp_path: Path) -> None:
    times = Timeouts(heartbeat_s=0.5, max_missed_heartbeats=6, master_lost_s=7.0, kill_grace_s=0.1)
    with Shell(tmp_path, a_job(ONE, timeouts=times)) as shell:
        (executor,) = shell.gang(1)
        (welcome,) = [word for word in executor.received if isinstance(word, Welcome)]
        assert (welcome.silence_s, welcome.master_lost_s) == (3.0, 7.0)
        shell.finish(executor)
        shell.go(executor)
        shell.join()


def test_the_launch_names_the_master_and_holds_no_secret_in_its_words(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (container,) = shell.launched(1)
        launch = shell.pool.launched[container]
        assert launch.argv[-2:] == ("--master", shell.address)
        assert launch.secret == executor_key(SECRET, container)
        everything = repr((launch.argv, dict(launch.env)))
        assert SECRET.decode() not in everything and SECRET.hex() not in everything


def test_a_failure_restarts_the_session_in_the_same_containers(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job()) as shell:
        first, second = shell.gang(2)
        first.send_messages(Ended(0, 3, stderr_tail=["ValueError: no"]))
        assert second.wait_for(Stop).session == 0
        first.wait_for(Stop)
        second.send_messages(Ended(0, 143, 15, "stopped", "ended by the master"))
        for executor in (first, second):
            executor.send_messages(Stopped(0, True))
        for executor in (first, second):
            assert executor.wait_for(Prepare, 2).session == 1
            executor.send_messages(Ready(1, "127.0.0.1", {"main": 6000, "tensorboard": 6001}))
        for executor in (first, second):
            assert executor.wait_for(Start, 2).env["SESSION_ID"] == "1"
            executor.send_messages(Running(1, 77))
        assert "ValueError: no" in shell.story("root-cause")[0]
        until(lambda: shell.json("/api/job")["counts"] == {"running": 2})
        ended = {0: (0, "failed", 3), 1: (0, "killed", 143)}
        for index, task in enumerate(shell.json("/api/tasks")["tasks"]):
            runs = [(run["session"], run["state"], run["exit_code"]) for run in task["runs"]]
            assert runs == [ended[index], (1, "running", None)]
        shell.finish(first, second, session=1)
        shell.go(first, second)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_an_exit_cause_of_a_later_version_is_warned_about_and_not_the_users(tmp_path: Path) -> None:
    spec = MasterSpec(user_retries=0, infrastructure_retries=0)
    with Shell(tmp_path, a_job(ONE, master=spec)) as shell:
        (executor,) = shell.gang(1)
        executor.send_messages(Ended(0, 9, cause="moonlight"))
        until(lambda: any("unknown exit cause 'moonlight'" in text for text in shell.story("note")))
        shell.go(executor)
        shell.join()
    history = read_job(str(tmp_path / "history"), "app_1")
    assert history.job["root_cause"]["cause"] == "moonlight"
    assert history.job["root_cause"]["fault"] == "system"


def test_the_reason_of_a_failed_job_is_shown_everywhere(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE, master=MasterSpec(user_retries=0))) as shell:
        (executor,) = shell.gang(1)
        executor.send_messages(Ended(0, 9, stderr_tail=["last words"]))
        shell.go(executor)
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "worker:0 on node1 failed with exit code 9" in text and "last words" in text
    history = read_job(str(tmp_path / "history"), "app_1")
    assert history.job["diagnostics"] == text
    assert history.job["root_cause"]["exit_code"] == 9
    assert history.tasks[0]["stderr_tail"] == ["last words"]


def test_history_goes_to_the_jobs_folder(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    with Shell(tmp_path, a_job(ONE).replace(history=History(location=place.as_uri()))) as shell:
        (executor,) = shell.gang(1)
        shell.finish(executor)
        shell.go(executor)
        shell.join()
    assert read_job(place.as_uri(), "app_1").job["state"] == "SUCCEEDED"
    assert not (tmp_path / "history").exists()


# ------------------------------------------------------------------ connections


def test_an_unknown_container_is_sent_away(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        shell.launched(1)
        stranger = ScriptedExecutor(shell.running, "c9-9", executor_key(SECRET, "c9-9"))
        shell.executors["c9-9"] = stranger
        stranger.dial(shell.address)
        assert "no such container" in stranger.wait_for(Shutdown).reason
        until(lambda: stranger.closed)


def test_an_executor_cannot_register_for_the_container_of_another(tmp_path: Path) -> None:
    """As a training program would that has read the key in its own container."""
    with Shell(tmp_path, a_job(Role("worker", 2, Resources(), "true"))) as shell:
        one, other = shell.launched(2)
        shell.gang(2)
        thief = ScriptedExecutor(shell.running, one, executor_key(SECRET, one))
        shell.executors["thief"] = thief
        thief.registers_as = other
        thief.dial(shell.address)
        until(lambda: thief.closed)
        assert thief.received == []
        mates = [shell.executors[one], shell.executors[other]]
        shell.finish(*mates)
        shell.go(*mates)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_a_wrong_secret_is_refused_and_disturbs_no_executor(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (container,) = shell.launched(1)
        thief = ScriptedExecutor(shell.running, container, secret=b"guessed" * 5)
        shell.executors["thief"] = thief
        thief.dial(shell.address)
        until(lambda: thief.closed)
        assert thief.received == []
        (executor,) = shell.gang(1)
        shell.finish(executor)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_a_reconnect_within_the_allowance_is_no_loss(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        until(lambda: shell.json("/api/job")["counts"].get("running"))
        executor.hang_up()
        again = shell.executor(executor.container_id, task="worker:0", session=0, phase="running")
        time.sleep(0.1)
        assert shell.json("/api/job")["counts"] == {"running": 1}
        shell.finish(again)
        shell.go(again)
        assert shell.join()[0] is AppState.SUCCEEDED
        executor.close()


def test_messages_lost_with_a_connection_are_sent_again(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (container,) = shell.launched(1)
        first = shell.executor(container)
        prepare = first.wait_for(Prepare)
        first.hang_up()
        second = shell.executor(container)  # never heard of its task
        assert second.wait_for(Prepare) == prepare
        second.hang_up()
        ports = dict.fromkeys(prepare.ports, 7000)
        third = shell.executor(
            container, task="worker:0", session=0, phase="ready", ports=ports
        )  # its Ready was lost
        start = third.wait_for(Start)
        third.hang_up()
        fourth = shell.executor(
            container, task="worker:0", session=0, phase="ready", ports=ports
        )  # the Start was lost
        assert fourth.wait_for(Start) == start
        fourth.send_messages(Running(0, 5))
        fourth.hang_up()
        ended = Ended(0, 0)._asdict()
        fifth = shell.executor(
            container, task="worker:0", session=0, phase="ended", ended=ended, ports=ports
        )  # the Ended was lost
        fifth.wait_for(Acknowledge)
        fifth.send_messages(Ended(0, 1))  # a repetition changes nothing
        fifth.wait_for(Acknowledge, 2)
        shell.go(fifth)
        state, text = shell.join()
        assert state is AppState.SUCCEEDED, text
        for executor in (first, second, third, fourth):
            executor.close()


def test_a_silent_executor_is_lost_and_its_container_ended(tmp_path: Path) -> None:
    job = a_job(
        ONE,
        timeouts=Timeouts(heartbeat_s=0.2, max_missed_heartbeats=4, kill_grace_s=0.1),
        master=MasterSpec(infrastructure_retries=0),
    )
    with Shell(tmp_path, job) as shell:
        (executor,) = shell.gang(1)
        for _ in range(4):
            time.sleep(0.25)  # four of them outlast the allowance, one by far does not
            executor.send_messages(Heartbeat(0))
        assert not shell.pool.stopped
        until(lambda: shell.pool.stopped, "the stop of a silent container")
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "tony.task.max-missed-heartbeats=4" in text


def test_last_words_count_even_after_the_containers_end(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE, master=MasterSpec(user_retries=0))) as shell:
        (executor,) = shell.gang(1)
        until(lambda: shell.json("/api/job")["counts"].get("running"))
        shell.pool.end(executor.container_id, 137, ExitCause.EXITED)
        executor.send_messages(Ended(0, 4, stderr_tail=["the real cause"]))
        executor.hang_up()
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "exit code 4" in text and "the real cause" in text


def test_an_executor_that_does_not_shut_down_is_stopped_by_the_scheduler(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        shell.finish(executor)
        executor.wait_for(Shutdown)
        assert shell.join()[0] is AppState.SUCCEEDED
        assert shell.pool.stopped == [executor.container_id]


# ------------------------------------------------------------------ people


def test_a_kill_ends_everything_with_its_reason(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        shell.kill("killed by ann")
        assert executor.wait_for(Shutdown).grace_s == pytest.approx(0.2)
        shell.go(executor)
        assert shell.join() == (AppState.KILLED, "killed by ann")


def test_the_schedulers_word_ends_it_too(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        shell.launched(1)
        shell.pool.sink(ShutdownRequested("the queue was closed", by_user=False))
        assert shell.join() == (AppState.KILLED, "the queue was closed")


def test_the_clients_lease(tmp_path: Path) -> None:
    job = a_job(ONE, timeouts=Timeouts(client_lease_s=1.5, kill_grace_s=0.1))
    with Shell(tmp_path, job) as shell:
        shell.launched(1)
        began = looked = time.monotonic()
        while looked - began < 2.0 and time.monotonic() - looked < 1.0:
            shell.get("/api/job", X_Tony_Client="1")
            looked = time.monotonic()
            time.sleep(0.1)
        # A machine that stood still for so long may have let the lease end.
        assert shell.pool.finished is None or looked - began < 2.0, "each look renews it"
        for _ in range(3):
            shell.get("/api/job")  # another user's look does not
        state, text = shell.join()
    assert state is AppState.KILLED
    assert "tony.client.lease=1.5s" in text


def test_a_client_that_never_came(tmp_path: Path) -> None:
    times = Timeouts(client_lease_s=600.0, client_first_lease_s=0.4, kill_grace_s=0.1)
    with Shell(tmp_path, a_job(ONE, timeouts=times)) as shell:
        shell.launched(1)
        state, text = shell.join()
    assert state is AppState.KILLED
    assert "tony.client.first-lease=0.4s" in text


def test_a_client_that_waits_for_news_longer_than_its_lease_is_there(tmp_path: Path) -> None:
    job = a_job(ONE, timeouts=Timeouts(client_lease_s=0.4, kill_grace_s=0.1))
    with Shell(tmp_path, job) as shell:
        shell.launched(1)
        last = json.loads(shell.get("/api/events", X_Tony_Client="1")[1])["next"]
        for _ in range(2):
            path = f"/api/events?since={last}&wait=1"
            assert json.loads(shell.get(path, X_Tony_Client="1")[1])["events"] == []
        began = time.monotonic()
        state, text = shell.join()
        assert time.monotonic() - began > 0.3, "the poll's end was a sign of life"
    assert state is AppState.KILLED
    assert "tony.client.lease=0.4s" in text


def test_a_sessions_first_steps_are_in_history_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_core.master.recorder.SUMMARY_S", 60.0)
    # On a machine without time to spare the second task may come a tenth of a second later.
    monkeypatch.setattr("tony_core.master.recorder.MILESTONE_S", 1.0)
    with Shell(tmp_path, a_job()) as shell:
        shell.launched(2)

        def states() -> List[str]:
            if not shell.history.exists():
                return []
            return [task["state"] for task in read_job(str(shell.history.parent), "app_1").tasks]

        until(lambda: states() == ["launched"] * 2, "the launch in history")
        shell.gang(2)
        until(lambda: states() == ["running"] * 2, "the programs in history")


def test_history_that_cannot_be_written_is_reported_and_kept_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    place = str(tmp_path / "file" / "x")
    with Shell(tmp_path, a_job(ONE).replace(history=History(location=place))) as shell:
        (executor,) = shell.gang(1)
        (words,) = until(lambda: shell.story("history"), "the warning")
        assert place in words
        shell.finish(executor)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED
    assert read_job(str(tmp_path / "history"), "app_1").job["state"] == "SUCCEEDED"


def test_why_nothing_is_granted_is_shown(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.generous = False
    with Shell(tmp_path, a_job(ONE), pool) as shell:
        until(lambda: pool.page_url)
        pool.sink(AllocationPending("all 4 cores are taken"))
        until(lambda: shell.json("/api/job")["waiting"] == "all 4 cores are taken")
        assert b"all 4 cores are taken" in shell.get("/")[1]


# ------------------------------------------------------------------ progress, metrics


def test_page_history_and_scheduler_get_progress_metrics_and_notes(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        for step in range(1, 4):
            executor.send_messages(Reported(0, step / 4, {"loss": 1.0 / step}, step))
        executor.send_messages(Measured(0, {"rss_mb": 12.5}), Noted("warning", "a slow disk"))
        task = until(
            lambda: [t for t in shell.json("/api/tasks")["tasks"] if t["measures"].get("rss_mb")]
        )[0]
        assert task["reported"]["loss"] == pytest.approx(1 / 3)
        assert (task["progress"], task["step"]) == (0.75, 3)
        metrics = shell.json("/api/metrics")
        assert [point[1] for point in metrics["task"]["worker:0"]["progress"]] == [0.25, 0.5, 0.75]
        assert metrics["latest"]["worker:0"]["rss_mb"] == 12.5
        assert shell.json("/api/job")["progress"] == 0.75
        until(lambda: shell.pool.reports and shell.pool.reports[-1][0] == 0.75)
        assert len(shell.pool.reports) <= 3, "at most once a second"
        assert shell.story("note") == ["worker:0: a slow disk"]
        shell.finish(executor)
        shell.go(executor)
        shell.join()
    kept = read_job(str(tmp_path / "history"), "app_1").metrics
    assert kept["latest"]["worker:0"]["rss_mb"] == 12.5


def test_of_a_matter_that_many_speak_of_one_line_is_enough(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(Role("worker", 2, Resources(), "true"))) as shell:
        for executor in shell.gang(2):
            executor.send_messages(
                Noted("warning", "no tool here", "tools"), Noted("info", "hello")
            )
        until(lambda: len(shell.story("note")) == 3)
        notes = [line.partition(": ")[2] for line in shell.story("note")]
        assert sorted(notes) == ["hello", "hello", "no tool here"]


def test_the_machine_gets_no_heartbeats(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        until(lambda: shell.json("/api/job")["counts"].get("running"))
        seen: List[Any] = []
        handle = shell.master._machine.handle
        shell.master._machine.handle = (  # type: ignore[method-assign]
            lambda event, now: seen.append(event) or handle(event, now)
        )
        for _ in range(20):
            executor.send_messages(Heartbeat(0))
        executor.send_messages(Noted("info", "after them"))
        until(lambda: shell.story("note"))
        assert seen == []


# ------------------------------------------------------------------ the next master


def a_container(container_id: str, role: str = "worker") -> Container:
    return Container(container_id, "node1", role, Resources())


def history_of(root: Path) -> JobHistory:
    return read_job(str(root / "history"), "app_1")


def _values(metrics: Any, *path: str) -> List[float]:
    """The values of one series."""
    for name in path:
        metrics = metrics.get(name, {})
    return [point[1] for point in metrics]


def test_the_next_master_calls_the_executors_and_the_training_goes_on(tmp_path: Path) -> None:
    job = a_job()
    with Shell(tmp_path, job) as first:
        executors = first.gang(2)
        ports = [dict(e.wait_for(Start).env) and e.port for e in executors]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        until(lambda: first.json("/api/job")["counts"] == {"running": 2})
        path = tmp_path / "journal.json"
        until(
            lambda: sorted(json.loads(path.read_text())["executors"].values()) == sorted(addresses)
        )
        ids = [executor.container_id for executor in executors]
        for loss in (0.5, 0.25):
            executors[0].send_messages(Reported(0, None, {"loss": loss}))
        loss_of = ("task", "worker:0", "loss")
        until(lambda: _values(history_of(tmp_path).metrics, *loss_of) == [0.5, 0.25])
        before = first.json("/api/events")["next"]
        keep: Dict[str, ScriptedExecutor] = dict(first.executors)
        first.executors.clear()
        running = first.running
        master = first.master
        master.reactor.call_soon_threadsafe(master.reactor.stop)
        first._thread.join(60)
        master._server.close()
        master._executors.close()
        for executor, name in zip(keep.values(), ("worker:0", "worker:1"), strict=False):
            executor.first = {
                "task": name, "session": 0, "phase": "running", "ports": {"main": 5000},
            }  # fmt: skip
            executor.received.clear()
        pool = ScriptedPool([a_container(item) for item in ids], attempt=2)
        with Shell(tmp_path, job, pool, attempt=2) as second:
            second.executors.update(keep)
            until(lambda: second.json("/api/job")["counts"] == {"running": 2})
            assert not pool.launched, "no executor is disturbed"
            assert second.json("/api/job")["attempt"] == 2
            story = second.json("/api/events")["events"]
            assert story[0]["n"] == 1, "the story goes on"
            assert story[-1]["n"] > before + 500
            keep[ids[0]].send_messages(Reported(0, None, {"loss": 0.125}))
            whole = [0.5, 0.25, 0.125]
            until(lambda: _values(second.json("/api/metrics"), *loss_of) == whole)
            until(lambda: _values(history_of(tmp_path).metrics, *loss_of) == whole)
            assert any(event["kind"] == "takeover" for event in story)
            second.finish(*keep.values())
            for executor in keep.values():
                assert [m for m in executor.received if isinstance(m, (Prepare, Start, Stop))] == []
            for executor in keep.values():
                until(lambda e=executor: [m for m in e.received if isinstance(m, Shutdown)])
                pool.end(executor.container_id)
            assert second.join()[0] is AppState.SUCCEEDED
            running.do(lambda: None)
            for executor in keep.values():
                executor.close()
            second.executors.clear()
        first.error = None
        first.pool.finished = (AppState.KILLED, "")
    assert _values(history_of(tmp_path).metrics, *loss_of) == whole
    events = history_of(tmp_path).events
    numbers = [event["n"] for event in events]
    assert numbers == sorted(set(numbers))
    assert {event["kind"] for event in events} >= {"session-started", "takeover", "job-ended"}


def test_a_decided_end_is_only_reported_again(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text(
        json.dumps(
            {
                "version": 1,
                "attempt": 1,
                "record": {},
                "executors": {},
                "began": 1.0,
                "end": {"state": "SUCCEEDED", "diagnostics": "all done"},
            }
        )
    )
    pool = ScriptedPool(attempt=2)
    shell = Shell(tmp_path, a_job(ONE), pool, attempt=2)
    assert shell.master.ended_before()
    shell.master.close()
    assert pool.finished == (AppState.SUCCEEDED, "all done")
    assert not shell.job_dir.exists()


# ------------------------------------------------------------------ secrets, preprocess


def test_no_secret_reaches_page_history_or_diagnostics(tmp_path: Path) -> None:
    job = a_job(
        ONE,
        master=MasterSpec(user_retries=0),
        program=Program(shell_env=(("API_TOKEN", "tok-123456789"),)),
        settings=(Setting("tony.some.password", "hunter2hunter2", "tony.xml:3"),),
    )
    with Shell(tmp_path, job) as shell:
        (executor,) = shell.gang(1)
        assert executor.wait_for(Start).env["API_TOKEN"] == "tok-123456789"
        executor.send_messages(Noted("info", "using tok-123456789 at https://me:pw@host/x"))
        executor.send_messages(
            Ended(0, 1, stderr_tail=["login with hunter2hunter2 failed", SECRET.decode()])
        )
        until(lambda: shell.story("root-cause"))
        pages = [shell.get(path)[1] for path in ("/", "/api/job", "/api/tasks", "/api/events")]
        shell.go(executor)
        _, text = shell.join()
    pages.append(text.encode())
    pages += [path.read_bytes() for path in (tmp_path / "history" / "app_1").iterdir()]
    journal = (tmp_path / "journal.json").read_bytes()
    for page in pages:
        for secret in (b"tok-123456789", b"hunter2hunter2", SECRET, SECRET.hex().encode(), b"pw@"):
            assert secret not in page
    assert SECRET not in journal


def test_preprocess_runs_first_and_every_task_gets_its_output(tmp_path: Path) -> None:
    job = a_job(ONE, master=MasterSpec(preprocess="echo noise; echo 'Model parameters: a=1 b=2'"))
    with Shell(tmp_path, job) as shell:
        (executor,) = shell.gang(1)
        assert executor.wait_for(Start).env["MODEL_PARAMS"] == "a=1 b=2"


def test_a_preprocess_that_fails_ends_the_job(tmp_path: Path) -> None:
    job = a_job(ONE, master=MasterSpec(preprocess="echo no data >&2; exit 5"))
    with Shell(tmp_path, job) as shell:
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "tony.am.command failed with exit code 5" in text and "no data" in text
    assert not shell.pool.launched


def test_a_kill_ends_the_preprocess(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    job = a_job(ONE, master=MasterSpec(preprocess=f"touch {mark}; sleep 60 & sleep 60"))
    with Shell(tmp_path, job) as shell:
        until(mark.exists, "the preprocess to run")
        shell.kill("enough")
        assert shell.join() == (AppState.KILLED, "enough")


# ------------------------------------------------------------------ tensorboard


def test_tensorboard_is_a_link_while_it_answers(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        assert shell.get("/tensorboard/")[0] == 503
        executor.send_messages(Serving("tensorboard", 6006))
        link = until(lambda: shell.json("/api/job")["links"].get("tensorboard"))
        assert link.startswith("http://127.0.0.1:") and link != shell.pool.page_url
        executor.send_messages(Serving("tensorboard", 0, "it was killed"))
        until(lambda: "tensorboard" not in shell.json("/api/job")["links"])
        assert any("it was killed" in text for text in shell.story("serving"))


def test_an_exception_in_the_shell_is_not_passed_over(tmp_path: Path) -> None:
    shell = Shell(tmp_path, a_job(ONE))
    with pytest.raises(ZeroDivisionError), shell:
        until(lambda: shell.pool.page_url)
        shell.pool.finished = (AppState.FAILED, "")
        shell.master.reactor.call_soon_threadsafe(lambda: 1 // 0)
        until(lambda: shell.error)


def test_threads_are_few(tmp_path: Path) -> None:
    before = threading.active_count()
    with Shell(tmp_path, a_job(ONE)) as shell:
        shell.gang(1)
        # The test's own two, and the one that puts history.
        assert threading.active_count() <= before + 3
