"""Histories that are larger than a reader takes: what is read is bounded, the rest is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fuzzing import bounds
from tony_core.history.limits import PAGES, READING, Limits, count_values
from tony_core.history.reader import JobHistory, read_folder

APP = "application_1_0001"
SMALL = Limits(tasks=3, lines=4, values=200, size=10_000, metrics=500)


def read(root: Path, limits: Limits = SMALL) -> JobHistory:
    return read_folder(str(root), APP, limits=limits)


def summary(tasks: Any, **more: Any) -> str:
    return json.dumps({"job": {"state": "RUNNING"}, "tasks": tasks, "metrics": {}, **more})


def test_tasks(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(summary([{"task": f"w:{n}"} for n in range(5)]))
    found = read(tmp_path)
    assert [task["task"] for task in found.tasks] == ["w:0", "w:1", "w:2"] and found.is_cut
    assert found.problems == ("summary.json: it has 5 tasks, here are 3, and no more is read here",)
    whole = read(tmp_path, PAGES)
    assert len(whole.tasks) == 5 and not whole.problems and not whole.is_cut


def test_tasks_that_come_later(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(summary([{"task": "w:0"}], live=1))
    line = {"tasks": [{"task": f"w:{n}"} for n in range(5)]}
    (tmp_path / "live-0001.jsonl").write_text(json.dumps(line) + "\n")
    found = read(tmp_path)
    assert len(found.tasks) == 3 and "it has 5 tasks" in found.problems[0]
    (tmp_path / "live-0001.jsonl").write_text("{}\n" * 9)
    assert "too many changes" in read(tmp_path).problems[0]


def test_lines_of_the_story(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(summary([]))
    for number in (1, 2, 3):
        lines = "".join(f'{{"n": {number * 10 + n}}}\n' for n in range(3))
        (tmp_path / f"events-000{number}.jsonl").write_text(lines)
    found = read(tmp_path)
    assert [event["n"] for event in found.events] == [10, 11, 12, 20]
    (problem,) = found.problems
    assert problem.startswith("events-0002.jsonl: the story has 4 lines before its end")
    assert len(read(tmp_path, SMALL._replace(size=50)).events) == 3
    assert len(read(tmp_path, PAGES).events) == 9


def test_bytes_and_values_are_counted_before_they_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(summary([{}] * 300))
    assert "more than 200 values" in read(tmp_path).problems[0]
    (tmp_path / "summary.json").write_text(summary([], more="x" * 20_000))
    assert "is larger than" in read(tmp_path).problems[0]
    (tmp_path / "summary.json").write_text(summary([]))
    (tmp_path / "metrics.jsonl").write_text("x" * 600)
    assert read(tmp_path).problems[0].startswith("metrics.jsonl: ")


def test_a_small_file_that_is_a_large_object_costs_a_page_little(tmp_path: Path) -> None:
    tasks = "{}," * (10 << 20)
    (tmp_path / "summary.json").write_text('{"job":{},"tasks":[%s{}]}' % tasks)
    with bounds(seconds=10.0, megabytes=150):
        assert "values" in read(tmp_path, PAGES).problems[0]


def test_a_job_of_ten_thousand_tasks_is_read_whole(tmp_path: Path) -> None:
    task = {
        "task": "worker:0", "role": "worker", "index": 0, "tracking": "tracked", "state": "lost",
        "session": 2, "container": "container_e17_1750000000000_0001_01_000002", "node": "n1:45454",
        "host": "n1", "ports": {"main": 1, "tb": 2}, "log_url": "http://n1:8042/" + "x" * 100,
        "exit_code": 1, "message": "x" * 200, "stderr_tail": ["x" * 100] * 20, "started": 1.5e9,
        "duration_s": 1.5, "usage": {f"u{n}": 0.5 for n in range(8)}, "reported": {"loss": 0.5},
        "measures": {f"m{n}": 0.5 for n in range(10)},
        "runs": [{"session": n, "container": "c" * 40, "node": "n1", "log_url": "x" * 99,
                  "state": "lost", "exit_code": 1, "offsets": {}} for n in range(3)],
    }  # fmt: skip
    few = [{**task, "stderr_tail": []}] * 9900 + [task] * 100
    text = summary(few).encode()
    (tmp_path / "summary.json").write_bytes(text)
    event = {"n": 1, "time": 1.5e9, "kind": "task-state", "text": "x" * 60, "weight": "info",
             "task": "worker:0", "session": 0,
             "fields": {"state": "running", "node": "n1"}}  # fmt: skip
    (tmp_path / "events-0001.jsonl").write_text((json.dumps(event) + "\n") * 120_000)
    assert count_values(text) < PAGES.values
    found = read(tmp_path, PAGES)
    assert found.problems == () and len(found.tasks) == 10_000 and len(found.events) == 120_000
    assert READING.tasks >= 10 * len(found.tasks)
