"""When a job that no master ended was last seen alive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client.scripted import status
from tests.fuzzing import fuzz
from tests.history.stories import BEGIN, StoryBuilder
from tests.history.test_timeline import RECORDS
from tony_core.client.merge import with_end
from tony_core.history.figures import job_figures
from tony_core.history.last_seen import last_seen
from tony_core.history.live_changes import encode_changes
from tony_core.history.reader import JobHistory, read_job
from tony_core.history.timeline import timeline
from tony_core.schedulers.port import AppState

APP = "app_1"


def silent() -> StoryBuilder:
    """A job whose story says nothing more once its programs run, but reports for 280 s."""
    story = StoryBuilder(workers=1).begin().move("launched").wait(1).move("running")
    for _ in range(28):
        story.wait(10).measure("worker:0", "step", 1)
    return story


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (silent().record(), BEGIN + 281),
        (JobHistory(APP, {"submitted": 5.0, "started": 6.0}), 6.0),
        (JobHistory(APP, {}, ({"started": 7.0, "ended": 8.0},)), 8.0),
        (JobHistory(APP, {}, (), {}, ({"time": 9.0},)), 9.0),
        (JobHistory(APP, {}, (), {"task": {"worker:0": {"loss": [[3.0, 1], [10.0, 1]]}}}), 10.0),
        (JobHistory(APP, seen=11.0), 11.0),
        (JobHistory(APP), 0.0),
        (JobHistory(APP, {"started": 6.0}, (), {}, ({"time": 99.0},)), 6.0),
    ],
)
def test_it_is_the_newest_time_of_all_that_is_known(record: JobHistory, expected: float) -> None:
    assert last_seen(record, until=98.0 if expected < 90 else BEGIN + 1000) == expected


def test_a_job_whose_master_died_has_run_until_its_last_point() -> None:
    """Its scheduler knows of no file that the master wrote after its first second."""
    died = status(state=AppState.FAILED, submitted=BEGIN, finished=BEGIN + 0.7)
    ended = with_end(silent().record(), died)
    assert ended.job["finished"] == BEGIN + 281
    assert ended.events[-1]["time"] == BEGIN + 281
    line = timeline(ended)
    assert line.sums()["running"] == 280 and line.bars[0].running_s == 280
    assert job_figures(ended, line)["duration_s"] == 281


def test_a_job_that_runs_is_counted_until_its_last_point() -> None:
    found = job_figures(silent().record())
    assert found["running_s"] == 280 and "duration_s" not in found
    assert found["gpu_hours"] == pytest.approx(281 / 3600)


@pytest.mark.parametrize("kind", ["live", "points", "events"])
def test_every_way_to_read_a_history_gives_the_same(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / APP
    folder.mkdir()
    job = {"state": "RUNNING", "submitted": 5.0, "started": 6.0}
    tasks = [{"task": "w:0", "state": "running", "started": 7.0}]
    (folder / "summary.json").write_text(json.dumps({"job": job, "tasks": tasks, "live": 1}))
    at = {"live": 10.0, "points": 10.0, "events": 10.0, kind: 20.0}
    live = encode_changes({}, [], {"w:0": [at["live"], {"loss": 1.0}]})
    (folder / "live-0001.jsonl").write_bytes(live + b"\n")
    points = [["w:0", 8.0, {"loss": 3.0}], ["w:0", at["points"], {"loss": 2.0}]]
    (folder / "metrics-0001.jsonl").write_text(json.dumps({"points": points}) + "\n" + '{"po')
    line = json.dumps({"n": 1, "time": at["events"], "kind": "note"})
    (folder / "events-0001.jsonl").write_text(line + "\n")
    for events in (True, False):
        assert last_seen(read_job(str(tmp_path), APP, events)) == 20.0, events


@fuzz(record=RECORDS, by_day=40)
def test_whatever_a_record_holds(record: JobHistory) -> None:
    assert last_seen(record) >= 0.0
