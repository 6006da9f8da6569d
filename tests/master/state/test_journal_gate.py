"""A master whose state stands elsewhere: what waits for a write, what does not, what it says."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.master.shell import ScriptedPool, Shell, a_job, until
from tests.master.state.remote_files import STATE, FarFileSystem, far
from tony_core.bundle import jobfolder
from tony_core.job.spec import History, MasterSpec, Resources, Role
from tony_core.master import master
from tony_core.master.state import finalize, folder, journal_gate, previous_attempt
from tony_core.protocol.messages import (
    Ended,
    Heartbeat,
    Prepare,
    Ready,
    Running,
    Start,
    Stop,
    Stopped,
)
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.port import AppState, SchedulerError

__all__ = ["far"]
ONE = Role("worker", 1, Resources(), "true")
JOURNAL = f"{STATE}/journal.json"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, far: FarFileSystem) -> Iterator[List[str]]:
    monkeypatch.setattr(folder, "RETRY_S", (0.02,))
    monkeypatch.setattr(master, "STOP_EXTRA_S", 0.2)
    monkeypatch.setattr(master, "CRASH_HISTORY_S", 0.2)
    monkeypatch.setattr(finalize, "JOURNAL_S", 0.5)
    monkeypatch.setattr(finalize, "REMOVE_S", 0.5)
    removed: List[str] = []

    def remove(root: str, app_id: str) -> None:
        removed.append(f"{root}/apps/{app_id}")
        far.delete(f"{root}/apps/{app_id}")

    monkeypatch.setattr(jobfolder, "remove", remove)
    yield removed
    far.back()


def journalled(far: FarFileSystem) -> Any:
    try:
        return json.loads(far.path(JOURNAL).read_bytes())
    except FileNotFoundError:
        return {"record": {}, "executors": {}, "end": None}


def test_a_job_from_its_start_to_its_end(
    tmp_path: Path, far: FarFileSystem, quick: List[str]
) -> None:
    order: List[str] = []
    pool = ScriptedPool()
    finish = pool.finish

    def finished(*end: Any) -> None:
        order.append(f"reported, {journalled(far)['end']['state']} is journalled")
        finish(*end)

    pool.finish = finished  # type: ignore[method-assign]
    with Shell(tmp_path, a_job(), pool, state_dir=STATE) as shell:
        executors = shell.gang(2)
        until(lambda: journalled(far)["record"].get("started") == ["worker"])
        named = json.loads(until(lambda: far.path(f"{STATE}/master.json").read_bytes()))
        assert named["page_url"] == pool.page_url
        addresses = [f"127.0.0.1:{executor.port}" for executor in executors]
        until(lambda: sorted(journalled(far)["executors"].values()) == sorted(addresses))
        shell.finish(*executors)
        shell.go(*executors)
        assert shell.join()[0] is AppState.SUCCEEDED
        assert shell.context.state_dir == STATE
    assert order == ["reported, SUCCEEDED is journalled"]
    assert quick == [STATE], "the folder goes when the scheduler knows of the end"
    assert far.calls[0] == ("mkdir", STATE), "a first master reads nothing"


def test_the_page_shows_the_end_before_the_scheduler_does(
    tmp_path: Path, far: FarFileSystem
) -> None:
    pool = ScriptedPool()
    finish, may = pool.finish, threading.Event()

    def finished(*end: Any) -> None:
        assert may.wait(30)
        finish(*end)

    pool.finish = finished  # type: ignore[method-assign]
    with Shell(tmp_path, a_job(ONE), pool, state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        shell.finish(executor)
        shell.go(executor)
        until(lambda: shell.story("job-ended"))
        job_json = shell.json("/api/job")
        assert (job_json["state"], bool(job_json["finished"])) == ("SUCCEEDED", True)
        assert [one["state"] for one in shell.json("/api/tasks")["tasks"]] == ["succeeded"]
        may.set()
        assert shell.join()[0] is AppState.SUCCEEDED


def test_an_end_that_the_scheduler_does_not_take_is_this_masters_error(
    tmp_path: Path, far: FarFileSystem
) -> None:
    pool = ScriptedPool()

    def finish(*end: Any) -> None:
        pool.finished = end[:2]
        raise SchedulerError("the end could not be reported")

    pool.finish = finish  # type: ignore[method-assign]
    with Shell(tmp_path, a_job(ONE), pool, state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        shell.finish(executor)
        shell.go(executor)
        with pytest.raises(SchedulerError, match="could not be reported"):
            shell.join()
        shell.error = None


def test_the_first_programs_wait_for_nothing(tmp_path: Path, far: FarFileSystem) -> None:
    far.hang()
    with Shell(tmp_path, a_job(ONE), state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        assert journalled(far)["record"] == {}
        far.back()
        until(lambda: journalled(far)["record"].get("started") == ["worker"])
        shell.finish(executor)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_a_next_session_waits_for_the_journal_and_executors_are_served(
    tmp_path: Path, far: FarFileSystem
) -> None:
    with Shell(tmp_path, a_job(ONE), state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        until(lambda: journalled(far)["record"].get("started") == ["worker"])
        far.hang()
        executor.send_messages(Ended(0, 3))
        executor.wait_for(Stop)
        executor.send_messages(Stopped(0, True))
        until(lambda: shell.json("/api/job")["session"] == 1)
        for _ in range(3):
            executor.send_messages(Heartbeat(0))
            time.sleep(0.02)
        assert len([m for m in executor.received if isinstance(m, Prepare)]) == 1
        assert shell.story("journal") == []
        far.back()
        prepare = executor.wait_for(Prepare, 2)
        record = journalled(far)["record"]
        assert (record["session"], record["budgets"]["user_used"]) == (1, 1)
        executor.send_messages(Ready(1, "127.0.0.1", dict.fromkeys(prepare.ports, 5000)))
        executor.wait_for(Start, 2)
        executor.send_messages(Running(1, 7))
        shell.finish(executor, session=1)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_a_job_whose_state_cannot_be_written_goes_on_and_reports_it(
    tmp_path: Path, far: FarFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_gate, "HOLD_S", 0.2)
    far.error = "name node is in safe mode"
    with Shell(tmp_path, a_job(ONE), state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        (words,) = until(lambda: shell.story("journal"))
        assert STATE in words and "safe mode" in words and "goes on" in words
        assert shell.json("/api/job")["trouble"] == words
        assert b"safe mode" in shell.get("/")[1]
        far.back()
        until(lambda: len(shell.story("journal")) == 2)
        assert "kept again" in shell.story("journal")[1]
        assert shell.json("/api/job")["trouble"] == ""
        assert journalled(far)["record"]["started"] == ["worker"]
        shell.finish(executor)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED


@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_a_place_that_is_away_does_not_hold_up_the_end(
    tmp_path: Path, far: FarFileSystem, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_gate, "HOLD_S", 0.2)
    with Shell(tmp_path, a_job(ONE), state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        if how == "hangs":
            far.hang()
        else:
            far.error = "gone"
        shell.kill("killed by ann")
        shell.go(executor)
        assert shell.join() == (AppState.KILLED, "killed by ann")
        far.back()


def test_history_goes_there_too(tmp_path: Path, far: FarFileSystem) -> None:
    place = "far://name-node/history"
    job = a_job(ONE).replace(history=History(location=place, portal_url="http://portal/"))
    pool = ScriptedPool()
    with Shell(tmp_path, job, pool, state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        shell.finish(executor)
        shell.go(executor)
        shell.join()
    summary = json.loads(far.path(f"{place}/app_1/summary.json").read_bytes())
    assert summary["job"]["state"] == "SUCCEEDED"
    assert pool.ended_at == "http://portal/jobs/app_1", "where a person finds it from now on"


# ------------------------------------------------------------------ the next master


def leave(far: FarFileSystem, text: str) -> None:
    path = far.path(JOURNAL)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def inherited() -> ScriptedPool:
    return ScriptedPool([Container("c1-1", "node1", "worker", Resources())], attempt=2)


def test_a_decided_end_is_only_reported_again(tmp_path: Path, far: FarFileSystem) -> None:
    leave(far, json.dumps({
        "version": 1, "attempt": 1, "record": {}, "executors": {}, "began": 1.0,
        "end": {"state": "FAILED", "diagnostics": "worker:0 failed"},
    }))  # fmt: skip
    shell = Shell(tmp_path, a_job(ONE), inherited(), attempt=2, state_dir=STATE)
    assert shell.master.ended_before()
    shell.master.close()
    assert shell.pool.finished == (AppState.FAILED, "worker:0 failed")
    assert not far.path(STATE).exists()


@pytest.mark.parametrize("journal", ["missing", "broken", "away", "silent"])
def test_where_nothing_can_be_taken_over_the_job_begins_anew(
    tmp_path: Path, far: FarFileSystem, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "READ_S", 0.2)
    monkeypatch.setattr(journal_gate, "HOLD_S", 0.2)
    if journal == "broken":
        leave(far, '{"version": 1')
    elif journal == "away":
        far.error = "connection refused"
    elif journal == "silent":
        far.hang()
    pool = inherited()
    pool.obedient = False
    job = a_job(ONE, master=MasterSpec(user_retries=1))
    with Shell(tmp_path, job, pool, attempt=2, state_dir=STATE) as shell:
        until(lambda: pool.stopped == ["c1-1"], "the end of what was left")
        time.sleep(0.05)
        assert not pool.launched, "not beside what still runs"
        pool.obedient = True
        pool.end("c1-1", 143)
        (executor,) = shell.gang(1)
        start = executor.wait_for(Start)
        assert (start.session, executor.container_id) == (0, "c2-1")
        facts = shell.json("/api/job")
        assert (facts["budgets"]["user_left"], facts["attempt"]) == (1, 2)
        words = " ".join(shell.story("takeover"))
        assert ("cannot be read" in words) == (journal != "missing"), words
        far.back()
        until(lambda: journalled(far)["record"].get("started") == ["worker"])
        shell.finish(executor)
        shell.go(executor)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_what_waits_for_a_journal_that_comes_back_is_taken_over(
    tmp_path: Path, far: FarFileSystem
) -> None:
    with Shell(tmp_path, a_job(ONE), state_dir=STATE) as first:
        (executor,) = first.gang(1)
        until(lambda: journalled(far)["executors"])
        left = far.path(JOURNAL).read_bytes()
        shell_port = executor.port
        first.finish(executor)
        first.go(executor)
        first.join()
    leave(far, left.decode())
    assert str(shell_port) in left.decode()
    far.error = "standby"
    tries: List[int] = []
    do = far._do

    def counted(name: str, location: str, what: Any) -> Any:
        tries.append(1)
        if len(tries) > 3:
            far.error = ""
        return do(name, location, what)

    far._do = counted  # type: ignore[method-assign]
    pool = inherited()
    with Shell(tmp_path, a_job(ONE), pool, attempt=2, state_dir=STATE) as shell:
        again = shell.executor(
            "c1-1", task="worker:0", session=0, phase="running", ports={"main": 5000}
        )
        until(lambda: shell.json("/api/job")["counts"] == {"running": 1})
        assert not pool.launched and not pool.stopped
        shell.finish(again)
        shell.go(again)
        assert shell.join()[0] is AppState.SUCCEEDED


def test_a_story_that_cannot_be_read_goes_on_behind_it(
    tmp_path: Path, far: FarFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previous_attempt, "HISTORY_S", 0.1)
    place = "far://name-node/history"
    job = a_job(ONE).replace(history=History(location=place))

    def away(location: str) -> Any:
        raise OSError(5, "standby", location)

    monkeypatch.setattr(far, "list", away)
    pool = ScriptedPool(attempt=2)
    with Shell(tmp_path, job, pool, attempt=2, state_dir=STATE) as shell:
        (executor,) = shell.gang(1)
        assert any("history cannot be read" in text for text in shell.story("takeover"))
        shell.finish(executor)
        shell.go(executor)
        shell.join()
    names = [path.name for path in far.path(f"{place}/app_1").iterdir()]
    assert "events-1001.jsonl" in names and "events-0001.jsonl" not in names
