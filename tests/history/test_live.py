"""History while a job runs: what readers see of files that a master is still writing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.bundle.fakecluster import SCHEME, FakeCluster
from tests.fuzzing import fuzz, mutations
from tony_core.files import registry
from tony_core.files.local import LocalFileSystem
from tony_core.history import reader
from tony_core.history.folder import all_segments, segments
from tony_core.history.layout import segment_name
from tony_core.history.live_changes import Overlay, encode_changes
from tony_core.history.metric_log import encode_points
from tony_core.history.metric_series import SeriesStore
from tony_core.history.reader import read_job, read_series
from tony_core.history.store import HistoryWriter, encode

APP = "app_1"


def until_written(made: HistoryWriter) -> None:
    made.flush()
    writer = made._writer
    with writer._changed:
        assert writer._changed.wait_for(lambda: not (writer._waiting or writer._busy), 60)


def task(name: str, state: str, **more: Any) -> Dict[str, Any]:
    return {"task": name, "state": state, "measures": {}, "reported": {}, **more}


def files(root: Path) -> List[str]:
    return sorted(path.name for path in (root / APP).iterdir())


def begun(root: Path) -> HistoryWriter:
    """A job of two tasks that runs."""
    made = HistoryWriter(str(root / APP))
    tasks = [task("w:0", "running"), task("w:1", "launched")]
    counts = {"running": 1, "launched": 1}
    made.summary({"job": {"state": "RUNNING", "counts": counts, "phase": "active"}, "tasks": tasks})
    return made


def test_what_has_changed_since_the_summary_is_read(tmp_path: Path) -> None:
    made = begun(tmp_path)
    until_written(made)
    assert files(tmp_path) == ["summary.json"]
    assert read_job(str(tmp_path), APP).job["counts"] == {"running": 1, "launched": 1}
    made.changes(encode_changes({"phase": "settling"}, [task("w:1", "failed", exit_code=3)], {}))
    made.changes(encode_changes({}, [], {"w:0": [2.0, {"loss": 0.5, "progress": 0.25, "step": 4}]}))
    until_written(made)
    found = read_job(str(tmp_path), APP)
    assert found.job == {"app_id": APP, "state": "RUNNING", "phase": "settling",
                         "counts": {"running": 1, "failed": 1}}  # fmt: skip
    assert [one["state"] for one in found.tasks] == ["running", "failed"]
    assert found.tasks[1]["exit_code"] == 3
    assert found.tasks[0]["measures"] == {"loss": 0.5, "progress": 0.25, "step": 4}
    assert (found.tasks[0]["progress"], found.tasks[0]["step"]) == (0.25, 4)
    assert found.metrics["latest"] == {"w:0": {"loss": 0.5, "progress": 0.25, "step": 4.0}}
    assert read_job(str(tmp_path), APP, events=False) == found._replace(metrics={})
    made.close()


def test_what_a_program_reported_stays_apart(tmp_path: Path) -> None:
    overlay = Overlay({}, [task("w:0", "running", reported={"loss": 1.0}, measures={"rss": 1.0})])
    overlay.apply(encode_changes({}, [], {"w:0": [1.0, {"loss": 0.5, "rss": 2.0}]}))
    (found,) = overlay.tasks.values()
    assert (found["reported"], found["measures"]) == ({"loss": 0.5}, {"rss": 2.0})


def test_a_next_summary_replaces_the_changes(tmp_path: Path) -> None:
    made = begun(tmp_path)
    for number in range(3):
        made.changes(encode_changes({"progress": number}, [], {}))
        until_written(made)
    assert files(tmp_path) == [segment_name(2, "live"), "summary.json"]
    made.summary({"job": {"state": "RUNNING", "progress": 5}, "tasks": []})
    made.changes(encode_changes({"progress": 6}, [], {}))
    until_written(made)
    assert files(tmp_path) == [segment_name(3, "live"), "summary.json"]
    assert read_job(str(tmp_path), APP).job["progress"] == 6
    made.summary({"job": {"state": "FAILED", "finished": 1.0}, "tasks": []}, final=True)
    made.close()
    assert files(tmp_path) == ["summary.json"]
    assert "live" not in json.loads((tmp_path / APP / "summary.json").read_text())


def test_changes_that_waited_when_the_summary_came_are_not_written_after_it(tmp_path: Path) -> None:
    made = begun(tmp_path)
    made.changes(encode_changes({"progress": 1}, [], {}))
    made.flush()
    made.summary({"job": {"progress": 2}, "tasks": []})
    until_written(made)
    assert files(tmp_path) == ["summary.json"]
    made.close()


def test_readers_meet_a_whole_state_whenever_they_come(tmp_path: Path) -> None:
    """Job and tasks are of one moment, and never of an older one than before."""
    made = begun(tmp_path)
    until_written(made)
    over = threading.Event()
    wrong: List[Any] = []

    def read() -> None:
        newest = -1
        while not over.is_set():
            found = read_job(str(tmp_path), APP)
            job, tasks = (
                found.job.get("progress", 0),
                [one.get("progress", 0) for one in found.tasks],
            )
            if set(tasks) != {job} or job < newest or found.problems:
                wrong.append((job, tasks, newest, found.problems))
            newest = job

    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    for number in range(1, 400):
        tasks = [task(f"w:{n}", "running", progress=number, text="x" * 2000) for n in range(2)]
        if number % 5:
            made.changes(encode_changes({"progress": number}, tasks, {}))
            made.flush()
        else:
            made.summary({"job": {"progress": number}, "tasks": tasks})
        if number % 7 == 0:
            until_written(made)
    over.set()
    for one in readers:
        one.join(60)
    made.close()
    assert wrong == []
    assert read_job(str(tmp_path), APP).job["progress"] == 399


def test_files_grow_and_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: List[Any] = []
    put = LocalFileSystem.put
    monkeypatch.setattr(
        LocalFileSystem,
        "put",
        lambda self, where, *more: written.append(where) or put(self, where, *more),
    )
    made = HistoryWriter(str(tmp_path / APP))
    for number in range(5):
        made.add(encode({"n": number}))
        until_written(made)
        inode = (tmp_path / APP / "events-0001.jsonl").stat().st_ino
    assert (tmp_path / APP / "events-0001.jsonl").stat().st_ino == inode
    assert [event["n"] for event in read_job(str(tmp_path), APP).events] == list(range(5))
    made.close()
    assert written == []


def test_a_write_that_failed_half_way_is_repeated_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_core.history.background_writer.RETRY_S", 0.01)
    made = HistoryWriter(str(tmp_path / APP))
    made.add(encode({"n": 0}))
    until_written(made)
    path, fails = tmp_path / APP / "events-0001.jsonl", [True]
    from tony_core.history import store

    whole = store.write_at

    def half(where: str, data: bytes, *more: Any) -> None:
        if fails:
            whole(where, data[: len(data) // 2], *more)
            fails.clear()
            raise OSError(28, "no space left")
        whole(where, data, *more)

    monkeypatch.setattr(store, "write_at", half)
    for number in (1, 2):
        made.add(encode({"n": number}))
        made.flush()
    until_written(made)
    assert path.read_text() == '{"n":0}\n{"n":1}\n{"n":2}\n'
    path.write_text("")  # cut by someone else: what follows is kept, and no hole is left
    made.add(encode({"n": 3}))
    until_written(made)
    assert path.read_text() == '{"n":3}\n'
    made.close()


def points(store: SeriesStore, *values: float) -> bytes:
    return encode_points([("w:0", store.add("w:0", value, {"loss": value})) for value in values])


def test_metrics_are_read_while_the_job_runs_and_stand_whole_at_its_end(tmp_path: Path) -> None:
    made, store = begun(tmp_path), SeriesStore()
    made.points(points(store, 1.0, 2.0))
    until_written(made)
    made.points(points(store, 3.0))
    until_written(made)
    half = tmp_path / APP / "metrics-0001.jsonl"
    half.write_bytes(half.read_bytes() + b'{"points":[["w:0",4.0,{"lo')
    found = read_job(str(tmp_path), APP)
    assert found.metrics == store.to_json() and found.problems == ()
    made.summary({"job": {"finished": 4.0}, "tasks": []}, final=True)
    made.metrics(store.to_json())
    made.close()
    assert files(tmp_path) == ["metrics.jsonl", "summary.json"]
    assert read_job(str(tmp_path), APP).metrics == store.to_json()
    folder = str(tmp_path / APP)
    assert reader.read_folder(folder, APP, metrics=False).metrics == {}
    assert reader.read_folder(folder, APP, events=False, metrics=True).metrics == store.to_json()


def test_a_next_master_goes_on_in_files_of_its_own(tmp_path: Path) -> None:
    made, store = begun(tmp_path), SeriesStore()
    made.add(encode({"n": 1}))
    made.points(points(store, 1.0))
    made.changes(encode_changes({"progress": 1}, [], {"w:0": [1.5, {"loss": 1.5}]}))
    until_written(made)  # and then it is killed
    assert all_segments(str(tmp_path / APP)) == [
        "events-0001.jsonl", "metrics-0001.jsonl", "live-0002.jsonl"
    ]  # fmt: skip
    known = read_series(str(tmp_path / APP))
    assert known.latest("w:0") == {"loss": 1.5}
    second = HistoryWriter(str(tmp_path / APP))
    second.begin(all_segments(str(tmp_path / APP)))
    second.add(encode({"n": 1001}))
    second.points(points(known, 2.0))
    until_written(second)
    found = read_job(str(tmp_path), APP)
    assert [event["n"] for event in found.events] == [1, 1001]
    assert found.job["progress"] == 1, "until its first summary the previous one's stands"
    assert found.metrics["task"]["w:0"]["loss"] == [[1.0, 1.0], [2.0, 2.0]]
    second.summary({"job": {"progress": 2}, "tasks": []})
    second.changes(encode_changes({"progress": 3}, [], {}))
    until_written(second)
    assert read_job(str(tmp_path), APP).job["progress"] == 3
    assert files(tmp_path) == [
        "events-0001.jsonl", "events-0002.jsonl", "live-0004.jsonl", "metrics-0001.jsonl",
        "metrics-0002.jsonl", "summary.json",
    ]  # fmt: skip
    second.metrics(known.to_json())
    second.close()
    assert not list((tmp_path / APP).glob("metrics-*"))
    made.close()


def test_on_a_file_system_without_growing_files_they_are_put_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_core.history.store.SEGMENT_BYTES", 40)
    cluster = FakeCluster(tmp_path)
    registry.register(SCHEME, lambda: cluster)
    root = f"{SCHEME}://cluster/history"
    made, store = HistoryWriter(f"{root}/{APP}"), SeriesStore()
    made.summary({"job": {"state": "RUNNING"}, "tasks": [task("w:0", "running")]})
    for number in range(6):
        made.add(encode({"n": number, "text": "a line"}))
        made.points(points(store, float(number)))
        made.changes(encode_changes({"progress": number}, [], {}))
        until_written(made)
        found = read_job(root, APP)
        assert [event["n"] for event in found.events] == list(range(number + 1))
        assert (found.job["progress"], found.metrics) == (number, store.to_json())
    assert len(segments(f"{root}/{APP}")) == 3
    made.summary({"job": {"finished": 1.0}, "tasks": []}, final=True)
    made.metrics(store.to_json())
    assert made.close() == []
    names = {path.name for path in (tmp_path / "history" / APP).iterdir()}
    assert names == {"summary.json", "metrics.jsonl", *segments(f"{root}/{APP}")}
    assert read_job(root, APP).metrics == store.to_json()


@pytest.mark.parametrize("where", ["a folder that cannot be", "a cluster that refuses"])
def test_what_was_handed_over_before_a_place_was_given_up_is_kept_at_the_other(
    tmp_path: Path, where: str
) -> None:
    cluster = FakeCluster(tmp_path / "cluster")
    (tmp_path / "cluster").mkdir()
    registry.register(SCHEME, lambda: cluster)
    remote, local = f"{SCHEME}://cluster/history/{APP}", str(tmp_path / "local" / APP)
    if where == "a folder that cannot be":
        (tmp_path / "file").write_text("no folder")
        made = HistoryWriter(str(tmp_path / "file" / APP), fallback=remote)
    else:
        cluster.fail["mkdir"] = PermissionError(13, "no")
        made = HistoryWriter(remote, fallback=local)
    for number in range(20):  # some before and some after the first has failed
        made.add(encode({"n": number}))
        made.flush()
    until_written(made)
    made.add(encode({"n": 20}))
    assert made.close() == []
    kept = local if made._folder == local else remote
    assert [event["n"] for event in reader.read_events(kept)[0]] == list(range(21))


def test_an_older_layout_is_read(tmp_path: Path) -> None:
    (tmp_path / APP).mkdir()
    summary = {"job": {"state": "RUNNING"}, "tasks": [task("w:0", "running")],
               "metrics": {"task": {}, "latest": {"w:0": {"loss": 1.0}}}}  # fmt: skip
    (tmp_path / APP / "summary.json").write_text(json.dumps(summary))
    found = read_job(str(tmp_path), APP)
    assert found.metrics == summary["metrics"] and found.tasks == tuple(summary["tasks"])
    assert found.problems == ()


def test_points_of_an_hour_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = begun(tmp_path)
    made.points(points(SeriesStore(), 1.0))
    made.close()
    big = tmp_path / APP / "metrics-0002.jsonl"
    big.write_bytes((tmp_path / APP / "metrics-0001.jsonl").read_bytes())
    monkeypatch.setattr("tony_core.history.metric_reader.LARGEST", 600)
    assert read_job(str(tmp_path), APP).problems == ()
    monkeypatch.setattr("tony_core.history.metric_reader.LARGEST", big.stat().st_size + 10)
    (problem,) = read_job(str(tmp_path), APP, events=True).problems[-1:]
    assert problem.startswith("metrics-0002.jsonl: the points are larger")


@pytest.mark.parametrize("number", [0, -1, "2", 1.5, True, 99, 1 << 70, None])
def test_odd_numbers_of_live_changes_name_nothing(tmp_path: Path, number: Any) -> None:
    (tmp_path / APP).mkdir()
    summary = {"job": {"state": "RUNNING"}, "tasks": [], "live": number}
    (tmp_path / APP / "summary.json").write_text(json.dumps(summary))
    assert read_job(str(tmp_path), APP).job["state"] == "RUNNING"


SAMPLE = encode_changes({"progress": 1}, [task("w:0", "failed")], {"w:0": [1.0, {"loss": 0.5}]})


@fuzz(
    data=mutations(SAMPLE, b'{"job": [], "tasks": {"a": 1}, "latest": {"w:0": [1, {"step": 1e9}]}}')
)
def test_any_changes_are_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.getbasetemp() / "changes"
    (root / APP).mkdir(parents=True, exist_ok=True)
    summary = {"job": {"state": "RUNNING"}, "tasks": [task("w:0", "running")], "live": 1}
    (root / APP / "summary.json").write_text(json.dumps(summary))
    (root / APP / "live-0001.jsonl").write_bytes(data + b"\n")
    found = read_job(str(root), APP)
    lines = [line for line in data.split(b"\n") if line.strip()]
    assert len(found.problems) <= len(lines)
    json.dumps([found.job, found.tasks, found.metrics])
