"""How soon and at what cost history has what happens to a job that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.master.shell import Shell, a_job, until
from tony_core.history.reader import read_job
from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job, Resources, Role
from tony_core.master import recorder
from tony_core.master.publish import Publisher
from tony_core.master.session.events import Begin
from tony_core.master.session.machine import SessionMachine
from tony_core.master.session.records import TaskState
from tony_core.master.view import JobInfo
from tony_core.protocol.messages import Measured, Reported, Running
from tony_core.protocol.reactor import Reactor

ONE = Role("worker", 1, Resources(), "true")


class Clock(Reactor):
    """Calls what was asked for when the test says that the time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1000.0
        self.due: List[Any] = []

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, callback: Any, *args: Any) -> Any:
        timer = super().call_later(1e6, callback, *args)
        self.due.append((self.time + seconds, timer, callback, args))
        return timer

    def run_until(self, time: float) -> None:
        while True:
            ready = sorted((at for at, timer, *_ in self.due if timer.active and at <= time))
            if not ready:
                break
            self.time = ready[0]
            now = [one for one in self.due if one[1].active and one[0] <= self.time]
            self.due = [one for one in self.due if one not in now]
            for _, timer, callback, args in now:
                timer.cancel()
                callback(*args)
        self.time = time


class Made:
    """A publisher with its recorder, on a clock, round a session machine."""

    def __init__(self, root: Path, tasks: int) -> None:
        self.job = Job("many", (Role("worker", tasks, Resources(), "true"),), user="me")
        self.machine = SessionMachine(self.job, 1.0, lambda: 0.5, True, frozenset())
        self.machine.handle(Begin(), 0.0)
        self.clock = Clock()
        self.written: List[Any] = []
        self.history = HistoryWriter(str(root / "app_1"))
        for name in ("points", "changes", "summary", "flush"):
            self._watch(name)
        info = JobInfo("app_1", 1, "me", "default", 0.0, 0.0)
        self.publisher = Publisher(
            self.clock, tasks, info, lambda: self.machine.state, self.history, lambda x: x, 0.0
        )

    def _watch(self, name: str) -> None:
        real = getattr(self.history, name)

        def call(*args: Any, **more: Any) -> Any:
            self.written.append((self.clock.time, name))
            return real(*args, **more)

        setattr(self.history, name, call)

    def times(self, name: str) -> List[float]:
        return [at - 1000.0 for at, known in self.written if known == name]

    def move(self, number: int, state: TaskState) -> None:
        self.machine.state.move(self.machine.state.by_role["worker"][number], state)
        self.publisher.changed()


@pytest.fixture
def closing() -> Any:
    made: List[Made] = []
    yield made
    for one in made:
        one.history.close()
        one.clock.close()


@pytest.mark.parametrize("tasks, seconds", [(2, 0.5), (1000, 0.5), (10_000, 2.5)])
def test_what_happens_is_handed_over_within_a_second(
    tmp_path: Path, closing: List[Made], tasks: int, seconds: float
) -> None:
    made = Made(tmp_path, tasks)
    closing.append(made)
    made.publisher.recorder.summarise()
    made.move(0, TaskState.ALLOCATED)
    made.publisher.add_measures("worker:0", {"loss": 0.5})
    made.clock.run_until(1000.0 + seconds)
    assert made.times("flush") == made.times("changes") == made.times("points") == [seconds]
    made.clock.run_until(1020.0)
    assert made.times("flush") == [seconds], "an idle job costs nothing"
    made.publisher.changed()  # and nothing that history shows
    made.clock.run_until(1030.0)
    assert made.times("changes") == [seconds]


def test_whole_files_are_put_seldom(
    tmp_path: Path, closing: List[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HistoryWriter, "is_remote", True)
    made = Made(tmp_path, 2)
    closing.append(made)
    made.publisher.recorder.summarise()
    for number in range(100):
        made.publisher.add_measures("worker:0", {"loss": number})
        made.clock.run_until(1000.0 + number / 10)
    assert made.times("flush") == [5.0]


def test_a_summary_follows_when_the_changes_are_larger_than_it_or_old(
    tmp_path: Path, closing: List[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LEAST_LIVE_BYTES", 1000)
    made = Made(tmp_path, 1)
    closing.append(made)
    made.publisher.recorder.summarise()
    for number in range(400):
        made.publisher.add_measures("worker:0", {"loss": number / 7})
        made.clock.run_until(1000.0 + number / 2)
    sizes = made.times("summary")
    assert 3 < len(sizes) < 40
    monkeypatch.setattr(recorder, "LEAST_LIVE_BYTES", 1 << 30)
    made.written.clear()
    for number in range(400, 800):
        made.publisher.add_measures("worker:0", {"loss": number / 7})
        made.clock.run_until(1000.0 + number / 2)
    assert 2 <= len(made.times("summary")) <= 4, "one in a minute"


def test_only_tasks_that_have_changed_are_looked_at_closely(
    tmp_path: Path, closing: List[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, 50)
    closing.append(made)
    made.publisher.recorder.summarise()
    seen: List[str] = []
    real = recorder.view_task
    monkeypatch.setattr(
        recorder,
        "view_task",
        lambda state, task, *more: seen.append(task.name) or real(state, task, *more),
    )
    made.move(7, TaskState.ALLOCATED)
    for number in range(50):
        made.publisher.add_measures(f"worker:{number}", {"loss": 1.0})
    made.clock.run_until(1001.0)
    assert seen == ["worker:7"]
    made.publisher.add_exit_code(("worker:3", 0, "c1"), 5)
    made.publisher.changed()
    made.clock.run_until(1002.0)
    assert seen == ["worker:7", "worker:3"]


def shown(shell: Shell) -> Dict[str, Any]:
    """Job and tasks of the page, without what grows by itself."""
    job, tasks = shell.json("/api/job"), shell.json("/api/tasks")["tasks"]
    return {"job": job, "tasks": [{**task, "duration_s": None} for task in tasks]}


def test_history_shows_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the summary of the start and what has changed since, without another one."""
    monkeypatch.setattr(recorder, "SUMMARY_S", 600.0)
    monkeypatch.setattr("tony_core.master.recorder.Milestones.mark", lambda *args: None)
    root = str(tmp_path / "history")
    with Shell(tmp_path, a_job()) as shell:
        executors = shell.gang(2)
        for step in (1, 2):
            executors[0].send_messages(Reported(0, step / 4, {"loss": 1.0 / step}, step))
        executors[1].send_messages(Measured(0, {"rss_mb": 12.5}))
        executors[1].send_messages(Running(0, 4711))
        until(lambda: shell.json("/api/job")["progress"] == 0.5)

        def same() -> bool:
            found = read_job(root, "app_1")
            tasks = [{**task, "duration_s": None} for task in found.tasks]
            events = shell.json("/api/events")["events"]
            return (
                {"job": dict(found.job), "tasks": tasks} == shown(shell)
                and [event["n"] for event in found.events] == [event["n"] for event in events]
                and found.metrics == shell.json("/api/metrics")
            )

        until(same, "history as the page has it")
        names = set(os.listdir(f"{root}/app_1"))
        assert {"live-0002.jsonl", "metrics-0001.jsonl", "summary.json"} <= names
        shell.finish(*executors)
        shell.go(*executors)
        shell.join()
    assert sorted(os.listdir(f"{root}/app_1")) == [
        "events-0001.jsonl", "metrics.jsonl", "summary.json", "tony-final.xml"
    ]  # fmt: skip
