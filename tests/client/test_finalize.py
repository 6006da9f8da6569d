"""The end of a job whose master could not tell: seen, written down, and cleared away once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.client.scripted import APP, Scripted, event, status, task
from tests.second_user import UID, needs_root
from tony_core.client import lookup
from tony_core.client.finalize import (
    finalize,
    finalize_all,
    finalize_and_list,
    finalize_and_read,
)
from tony_core.client.lookup import await_end, final_view, look_up, view_of, whole_story
from tony_core.client.merge import from_page
from tony_core.history.reader import read_job
from tony_core.job.spec import Job
from tony_core.schedulers.port import AppState, AppStatus, LogRef
from tony_core.view import JobView

LINKS = {
    "page": "http://page/",
    "tensorboard": "http://page/tensorboard/",
    "portal": "http://portal/jobs/1",
}


class Cluster(Scripted):
    """Whose applications are ``ours``, and whose masters ran in containers that it knows."""

    def __init__(self, root: Path, *apps: AppStatus) -> None:
        super().__init__(str(root), *apps)
        self.ours = True
        self.cleared: List[str] = []

    def remove_leftovers(self, status: AppStatus, job: Optional[Job] = None) -> bool:
        if self.ours:
            self.cleared.append(status.app_id)
        return self.ours

    def list_containers(self, app_id: str) -> List[Tuple[str, LogRef]]:
        return [("am", LogRef("container_1_01", "one"))]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SETTLE_S", 0.02)


METRICS = {"task": {"worker:0": {"loss": [[1, 2]]}}, "latest": {"worker:0": {"loss": 2}}}


def history(root: Path, **job: Any) -> Path:
    """A job that runs, as its master wrote it down some time ago."""
    folder = root / "history" / APP
    folder.mkdir(parents=True)
    run = {"session": 0, "container": "c2", "state": "running"}
    content: Dict[str, Any] = {
        "job": {
            "app_id": APP,
            "name": "mnist",
            "state": "RUNNING",
            "phase": "running",
            "progress": 0.2,
            "finished": None,
            "waiting": "for nothing",
            "diagnostics": "",
            "links": LINKS,
            "budgets": {"user_left": 2},
            **job,
        },
        "tasks": [
            task("worker:0", "succeeded", started=1001.0, ended=1002.0),
            task("worker:1", "running", started=1001.0, container="c2", runs=[run]),
            task("worker:2", "pending"),
        ],
        "metrics": METRICS,
    }
    (folder / "summary.json").write_text(json.dumps(content))
    return folder / "summary.json"


def ended(state: AppState = AppState.KILLED, **words: Any) -> AppStatus:
    words.setdefault("finished", 1009.0)
    return status(state=state, diagnostics="killed by ann", **words)


def seen(scheduler: Cluster, app: AppStatus, how: str) -> JobView:
    """The view at the end of a watch, which writes; of a look, and of one that follows the logs."""
    if how == "watch":
        return finalize(scheduler, app)
    if how == "look":
        return view_of(scheduler, app)
    return final_view(scheduler, app, await_end(scheduler, app.app_id)[0])


def tree(folder: Path) -> Dict[str, Any]:
    """Every file with its content and its time, and every folder with its time."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("how", ["look", "logs"])
def test_looking_writes_nothing_and_shows_the_end_that_will_be_written(
    tmp_path: Path, how: str
) -> None:
    summary = history(tmp_path)
    (summary.parent / "events-0001.jsonl").write_text(json.dumps(event(1, "it runs")) + "\n")
    scheduler = Cluster(tmp_path, ended())
    before = tree(tmp_path)
    view, story = seen(scheduler, ended(), how), whole_story(scheduler, APP)
    assert look_up(scheduler, APP) == view
    assert tree(tmp_path) == before and scheduler.cleared == []
    assert view.counts == {"succeeded": 1, "killed": 1, "pending": 1}
    assert story[-1]["text"] == "the job has ended: KILLED: killed by ann"
    finalize(scheduler, ended())
    assert tree(tmp_path) != before and scheduler.cleared == [APP]
    assert (seen(scheduler, ended(), how), whole_story(scheduler, APP)) == (view, story)


@pytest.mark.parametrize(
    ("state", "task_state"),
    [
        (AppState.KILLED, "killed"),
        (AppState.TIMED_OUT, "killed"),
        (AppState.FAILED, "lost"),
    ],
)
def test_it_is_written_down(tmp_path: Path, state: AppState, task_state: str) -> None:
    history(tmp_path)
    scheduler = Cluster(tmp_path)
    view = seen(scheduler, ended(state), "watch")
    assert scheduler.cleared == [APP]
    kept = read_job(f"{tmp_path}/history", APP)
    assert kept.job["state"] == state.value
    assert (kept.job["finished"], kept.job["diagnostics"]) == (1009.0, "killed by ann")
    assert (kept.job["waiting"], kept.job["phase"], kept.job["progress"]) == ("", "ended", 0.2)
    assert kept.job["links"] == {"portal": LINKS["portal"]}
    assert kept.job["budgets"] == {"user_left": 2}, "the rest is kept"
    assert kept.job["counts"] == {"succeeded": 1, task_state: 1, "pending": 1}
    assert [one["state"] for one in kept.tasks] == ["succeeded", task_state, "pending"]
    assert (kept.tasks[0]["ended"], kept.tasks[1]["ended"]) == (1002.0, 1009.0)
    assert kept.tasks[1]["duration_s"] == 8.0
    assert kept.tasks[1]["runs"][0]["state"] == task_state
    assert kept.metrics == METRICS
    assert view.links == kept.job["links"]
    assert view.counts == kept.job["counts"]
    # From now on it is as any other: it is not cleared again.
    for how in ("look", "watch"):
        assert seen(scheduler, ended(state), how).counts == view.counts
    assert scheduler.cleared == [APP]


@pytest.mark.parametrize("how", ["look", "watch"])
def test_anothers_job_is_only_seen(tmp_path: Path, how: str) -> None:
    summary = history(tmp_path)
    before = summary.read_bytes()
    scheduler = Cluster(tmp_path)
    scheduler.ours = False
    view = seen(scheduler, ended(), how)
    assert summary.read_bytes() == before
    assert view.state is AppState.KILLED
    assert view.counts == {"succeeded": 1, "killed": 1, "pending": 1}
    assert view.links == {"portal": LINKS["portal"]}


@pytest.mark.parametrize("how", ["look", "watch"])
def test_an_end_that_may_not_be_written_is_no_error(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(tmp_path)

    def refused(self: Any, location: str, data: bytes, mode: int = 0) -> None:
        raise PermissionError(13, "no", location)

    monkeypatch.setattr("tony_core.files.local.LocalFileSystem.put", refused)
    assert seen(Cluster(tmp_path), ended(), how).counts["killed"] == 1


def test_the_story_ends_with_the_reason(tmp_path: Path) -> None:
    summary = history(tmp_path, session=3)
    lines = [json.dumps(event(n, text)) for n, text in ((1, "session 3 begins"), (2, "runs"))]
    (summary.parent / "events-0001.jsonl").write_text("\n".join(lines) + "\n")
    before = (summary.parent / "events-0001.jsonl").read_bytes()
    finalize(Cluster(tmp_path), ended())
    kept = read_job(f"{tmp_path}/history", APP)
    *others, last = kept.events
    assert [one["n"] for one in others] == [1, 2]
    assert last["n"] > 100, "the page may have shown more than the master wrote down"
    assert (last["kind"], last["time"], last["session"]) == ("job-ended", 1009.0, 3)
    assert last["text"] == "the job has ended: KILLED: killed by ann"
    assert (last["weight"], last["fields"]) == ("error", {"state": "KILLED", "buried": True})
    # Once, also for one who comes at the same moment; and what the master wrote stays.
    summary.write_text(json.dumps({"job": {"app_id": APP, "state": "RUNNING"}}))
    finalize(Cluster(tmp_path), ended())
    assert read_job(f"{tmp_path}/history", APP).events == kept.events
    assert (summary.parent / "events-0001.jsonl").read_bytes() == before


def test_a_master_that_is_just_finishing_is_given_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "SETTLE_S", 60.0)
    summary = history(tmp_path)
    scheduler = Cluster(tmp_path, ended(finished=time.time()))
    view = view_of(scheduler, ended(finished=time.time()))
    finalize_all(scheduler, f"{tmp_path}/history")
    assert (view.state, scheduler.cleared) == (AppState.KILLED, [])
    # A watcher waits, and takes what came.
    content = json.loads(summary.read_text())
    content["job"].update(state="KILLED", finished=1010.0, diagnostics="killed by the master")

    def comes(seconds: float) -> None:
        summary.write_text(json.dumps(content))

    monkeypatch.setattr("tony_core.client.lookup.time.sleep", comes)
    view = finalize(scheduler, ended(finished=time.time()))
    assert view.diagnostics == "killed by the master"
    assert scheduler.cleared == []


def test_progress_does_not_go_back(tmp_path: Path) -> None:
    """The page's last state is newer than what the master wrote down."""
    history(tmp_path)
    tasks = [task("worker:0", "succeeded"), task("worker:1", progress=0.7), task("worker:2")]
    last = from_page({"progress": 0.6, "state": "RUNNING", "links": LINKS}, tasks, status())
    view = finalize(Cluster(tmp_path), ended(), last=last)
    assert (view.progress, view.tasks[1].progress) == (0.6, 0.7)
    assert view.counts == {"succeeded": 1, "killed": 2}
    later = view_of(Cluster(tmp_path), ended())
    assert (later.progress, later.counts, later.links) == (0.6, view.counts, view.links)


def test_one_that_never_had_a_master_leaves_nothing_either(tmp_path: Path) -> None:
    scheduler = Cluster(tmp_path)
    view = view_of(scheduler, ended())
    assert scheduler.cleared == []
    assert finalize(scheduler, ended()) == view
    assert scheduler.cleared == [APP]
    assert not (tmp_path / "history").exists()
    assert view.counts == {}, "a master is no task"
    assert [one.task for one in view.tasks] == ["am"], "but has logs"


def test_what_only_the_scheduler_knows_is_shown_every_time(tmp_path: Path) -> None:
    history(tmp_path)
    scheduler = Cluster(tmp_path)
    scheduler.list_containers = lambda app_id: [  # type: ignore[method-assign]
        ("am", LogRef("container_1_01")),
        ("worker:2", LogRef("c3", "two")),
    ]
    for how in ("watch", "look", "watch"):
        tasks = seen(scheduler, ended(), how).tasks
        assert [one.task for one in tasks] == ["worker:0", "worker:1", "worker:2"]
        assert tasks[2].container == "c3"
    assert scheduler.cleared == [APP]


def test_all_of_a_history_is_completed(tmp_path: Path) -> None:
    history(tmp_path)
    forgotten = tmp_path / "history" / "app_1_0000"
    forgotten.mkdir()
    (forgotten / "summary.json").write_text(json.dumps({"job": {"app_id": forgotten.name}}))
    scheduler = Cluster(tmp_path, ended())
    finalize_all(scheduler, f"{tmp_path}/history")
    finalize_all(scheduler, f"{tmp_path}/history")
    assert scheduler.cleared == [APP]
    assert read_job(f"{tmp_path}/history", APP).job["state"] == "KILLED"
    scheduler.set(state=AppState.RUNNING)
    history(tmp_path / "other")
    finalize_all(scheduler, f"{tmp_path}/other/history")
    assert scheduler.cleared == [APP]


@pytest.mark.parametrize(("ago", "ends"), [(2 * lookup.FORGOTTEN_S, True), (60.0, False)])
def test_what_the_scheduler_has_forgotten_does_not_run_for_ever(
    tmp_path: Path, ago: float, ends: bool
) -> None:
    """Once nothing was heard of it for long, in the scheduler's own history."""
    content = {"job": {"app_id": APP, "name": "old", "state": "RUNNING", "submitted": 5.0}}
    tasks = [task("worker:0", "running", started=time.time() - ago)]
    for root in ("history", "shared"):
        folder = tmp_path / root / APP
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({**content, "tasks": tasks}))
        shown = look_up(Cluster(tmp_path), APP, f"{tmp_path}/{root}")
        finalize_all(Cluster(tmp_path), f"{tmp_path}/{root}")
        assert look_up(Cluster(tmp_path), APP, f"{tmp_path}/{root}") == shown
    kept = read_job(f"{tmp_path}/history", APP)
    assert kept.job["state"] == ("FAILED" if ends else "RUNNING")
    assert ("has forgotten it" in kept.job.get("diagnostics", "")) is ends
    assert kept.tasks[0]["state"] == ("lost" if ends else "running")
    assert read_job(f"{tmp_path}/shared", APP).job["state"] == "RUNNING", "another cluster's, maybe"


def test_a_history_without_a_summary_gets_one(tmp_path: Path) -> None:
    (tmp_path / "history" / APP).mkdir(parents=True)
    view = finalize(Cluster(tmp_path), ended())
    kept = read_job(f"{tmp_path}/history", APP).job
    assert (kept["name"], kept["user"], kept["state"]) == ("mnist", "ann", "KILLED")
    assert view.state is AppState.KILLED


def test_history_shows_an_end_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master may still do so for a moment; every reader gets the same meanwhile."""
    monkeypatch.setattr(lookup, "SETTLE_S", 60.0)
    written = history(tmp_path)
    before = written.read_text()
    cluster = Cluster(tmp_path, ended(finished=time.time()))
    found, view = finalize_and_read(str(tmp_path / "history"), APP, cluster)
    assert written.read_text() == before and len(list(written.parent.iterdir())) == 1
    assert view.state is AppState.KILLED
    assert found.events[-1]["text"] == "the job has ended: KILLED: killed by ann"
    running = next(task for task in view.tasks if task.task == "worker:1")
    assert running.state == "killed" and running.ended is not None


@needs_root
def test_in_a_shared_place_the_folders_owner_is_the_jobs_user(tmp_path: Path) -> None:
    """Of a list, one job, a look by the scheduler's status, and one that it has forgotten."""
    summary = history(tmp_path / "shared", user="victim", app_id="another")
    os.chown(summary.parent, UID, UID)
    root = str(tmp_path / "shared" / "history")
    for scheduler in (None, Cluster(tmp_path / "own"), Cluster(tmp_path / "own", status())):
        (listed,) = finalize_and_list(root, scheduler)
        record, view = finalize_and_read(root, None, scheduler)
        found = [listed, view]
        if scheduler is not None:
            found.append(look_up(scheduler, APP, root))
        assert {(one.app_id, one.user) for one in found} == {(APP, str(UID))}
        assert record.job["user"] == str(UID)
    own = Cluster(tmp_path / "shared")
    assert next(finalize_and_list(root, own)).user == "victim", "its own place is its user's"


def test_a_history_whose_summary_is_damaged_has_no_state_and_no_time(tmp_path: Path) -> None:
    history(tmp_path).write_text("{")
    root = str(tmp_path / "history")
    views = [next(finalize_and_list(root)), finalize_and_read(root, APP)[1]]
    for view in views:
        assert view.state is AppState.UNKNOWN
        assert view.duration_s(time.time()) is None
