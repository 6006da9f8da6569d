"""A master is asked to end its job; who cannot be asked is killed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import List, Optional, Tuple

import pytest

from tony_core.files.local import LocalFileSystem
from tony_core.files.port import Stat
from tony_core.files.registry import SeparateRegistry, register
from tony_core.hadoop.errors import AccessDenied, HadoopError
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.messages.reports import ApplicationReport
from tony_core.hadoop.yarn.records import AppReport
from tony_core.schedulers.yarn import home
from tony_core.schedulers.yarn.client import kill

APP = ApplicationId(1700000000000, 42)


class Clock:
    """Time that passes only while the code sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        own = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep, time=time.time)
        monkeypatch.setattr(kill, "time", own)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Rm:
    """An application that is over, or not running any more, some time after its signal."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: List[str] = []
        self.reacts: Optional[Tuple[float, str]] = None  # so long after, to this state
        self.refuses: Optional[HadoopError] = None
        self.masters = [1, 2]
        self.requested_at: Optional[float] = None

    def report(self, application: ApplicationId) -> AppReport:
        empty = AppReport.from_message(ApplicationReport(application_id=application.to_message()))
        state = "RUNNING"
        if self.requested_at is not None and self.reacts is not None:
            after, then = self.reacts
            state = then if self.clock.now - self.requested_at >= after else state
        return empty._replace(state=state, final_status="KILLED")

    def master_container(self, application: ApplicationId) -> Optional[ContainerId]:
        ids = [AttemptId(application, number) for number in self.masters]
        return ContainerId(ids[-1], 1) if ids else None

    def signal(self, container: ContainerId, signal: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.calls.append(f"{signal} to {container}")
        self.requested_at = self.clock.now

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = 30.0
    ) -> None:
        self.calls.append(f"killed: {diagnostics}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def rm(clock: Clock) -> Rm:
    return Rm(clock)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "master.json").write_text(json.dumps({"attempt": 2, "kill_grace_s": 60.0}))
    return tmp_path


GRACEFUL = "GRACEFUL_SHUTDOWN to container_1700000000000_0042_02_000001"
FORCED = "killed: enough (its master did not end by itself)"


def end(rm: Rm, folder: Optional[Path], running: bool = True) -> List[str]:
    kill.kill_application(
        rm, APP, "enough", "ada", running, None if folder is None else str(folder)
    )
    return rm.calls


def test_the_newest_master_is_asked_and_finds_the_reason(rm: Rm, folder: Path) -> None:
    rm.reacts = (59.0, "FINISHED")
    assert end(rm, folder) == [GRACEFUL]
    written = json.loads((folder / "kill.json").read_text())
    assert (written["reason"], written["by"]) == ("enough", "ada")
    assert (folder / "kill.json").stat().st_mode & 0o777 == 0o600


def test_by_force_when_the_jobs_grace_and_more_is_over(rm: Rm, clock: Clock, folder: Path) -> None:
    assert end(rm, folder) == [GRACEFUL, FORCED]
    assert 65.0 <= clock.now - 1000.0 < 66.0


@pytest.mark.parametrize("content", ["", "[]", '{"kill_grace_s": "x"}', None])
def test_without_a_known_grace(rm: Rm, clock: Clock, folder: Path, content: Optional[str]) -> None:
    (folder / "master.json").unlink()
    if content is not None:
        (folder / "master.json").write_text(content)
    assert end(rm, folder) == [GRACEFUL, FORCED]
    assert 15.0 <= clock.now - 1000.0 < 16.0


def test_who_asks_second_takes_the_grace_away(rm: Rm, clock: Clock, folder: Path) -> None:
    (folder / "kill.json").write_text('{"reason": "the first"}')
    assert end(rm, folder) == ["killed: enough"]
    assert "the first" in (folder / "kill.json").read_text()
    assert clock.now == 1000.0


def test_an_application_that_does_not_run_gets_no_request(rm: Rm, folder: Path) -> None:
    assert end(rm, folder, running=False) == ["killed: enough"]
    assert not (folder / "kill.json").exists()


def test_a_master_that_died_of_the_request_sends_no_answer(rm: Rm, clock: Clock) -> None:
    rm.reacts = (1.0, "ACCEPTED")
    assert end(rm, None) == [GRACEFUL, FORCED]
    assert clock.now - 1000.0 < 2.0


def test_a_signal_that_is_refused(rm: Rm, clock: Clock, folder: Path) -> None:
    rm.refuses = AccessDenied("no")
    assert end(rm, folder) == ["killed: enough"]
    assert clock.now == 1000.0


def test_no_master_to_ask(rm: Rm) -> None:
    rm.masters = []
    assert end(rm, None) == ["killed: enough"]


def test_a_job_that_keeps_its_state_elsewhere_leaves_nothing_here(rm: Rm, tmp_path: Path) -> None:
    rm.reacts = (0.5, "FINISHED")
    assert end(rm, tmp_path / "none") == [GRACEFUL]
    assert list(tmp_path.iterdir()) == []


def test_the_reason_follows_a_job_to_where_it_keeps_its_state(rm: Rm, tmp_path: Path) -> None:
    rm.reacts = (0.5, "FINISHED")
    usual, root = str(tmp_path / "usual"), str(tmp_path / "a: place")
    state = Path(root, "apps", str(APP))
    state.mkdir(parents=True)
    (state / "master.json").write_text("{}")
    home.write_pointer(usual, root, str(APP))
    assert end(rm, Path(home.pointer_folder(usual, root, str(APP)))) == [GRACEFUL]
    assert json.loads((state / "kill.json").read_text())["reason"] == "enough"
    assert home.pointer_folder(usual, usual + "/", str(APP)) == ""
    home.write_pointer(usual, usual, str(APP))
    assert len(list(Path(usual, "apps").iterdir())) == 1


def test_an_address_that_does_not_answer_delays_no_kill(
    rm: Rm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    class Slow:
        def list(self, location: str) -> object:
            answer.wait(10)
            raise TimeoutError("it never did")

    monkeypatch.setattr(home, "filesystem", lambda location: Slow())
    monkeypatch.setattr(kill, "REQUEST_S", 0.02)
    rm.reacts = (0.5, "FINISHED")
    try:
        assert end(rm, folder) == [GRACEFUL]
    finally:
        answer.set()


def test_the_note_is_left_on_its_callers_own_file_systems() -> None:
    opened: List[str] = []

    class Far(LocalFileSystem):
        def list(self, location: str) -> List[Stat]:
            opened.append(location)
            return []

    apart = SeparateRegistry()
    with apart:
        register("far", Far)
        assert kill.write_kill_request("far:///apps/x", {"reason": "enough"}) == kill.KillRequest()
    apart.close()
    assert opened == ["far:///apps/x"]


@pytest.mark.parametrize("grace", ["1" + "0" * 400, "1e999", "NaN", '"5"', "true", "[]"])
def test_a_damaged_grace_is_the_usual_one(tmp_path: Path, grace: str) -> None:
    (tmp_path / kill.MASTER_FILE).write_text(f'{{"kill_grace_s": {grace}}}')
    assert kill.write_kill_request(str(tmp_path), {"reason": "x"}).grace_s == kill.GRACE_S
    assert (tmp_path / kill.KILL_FILE).exists()


def test_the_grace_of_its_master(tmp_path: Path) -> None:
    (tmp_path / kill.MASTER_FILE).write_text('{"kill_grace_s": 3}')
    assert kill.write_kill_request(str(tmp_path), {"reason": "x"}).grace_s == 3.0
