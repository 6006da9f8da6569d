"""Damaged history: what is left of it is shown, what is not is named, and nothing raises."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.conftest import Tony, scripted, tony
from tests.client.scripted import APP, Scripted, status
from tests.fuzzing import bounds, fuzz, mutations
from tony_core.cli import describe
from tony_core.client.lookup import recorded_view
from tony_core.client.merge import end_tasks, with_end
from tony_core.history.expiry import expired
from tony_core.history.reader import list_jobs, read_job
from tony_core.master.story import Story
from tony_core.schedulers.port import AppState

__all__ = ["scripted", "tony"]

SUMMARY: Dict[str, Any] = {
    "job": {"app_id": APP, "name": "mnist", "user": "ann", "state": "FAILED", "session": 1,
            "submitted": 1000.0, "finished": 1010.5, "progress": 0.5, "tags": ["a"],
            "diagnostics": "worker:0 failed", "links": {"page": "http://n:1/"}, "attempt": 1,
            "elastic": {"worker": {"there": 1, "least": 1, "most": 2}}, "budgets": {"user": 1},
            "root_cause": {"task": "worker:0", "exit_code": 3, "ran_s": 4.5,
                           "stderr_tail": ["x"]}},
    "tasks": [{"task": "worker:0", "state": "failed", "session": 1, "exit_code": 3,
               "ports": {"tb": 1}, "started": 1001.0, "duration_s": 5.0, "usage": {"cpu": 1.0},
               "stderr_tail": ["x"], "reported": {"loss": 0.5}, "runs": [
                   {"session": 0, "container": "c1", "offsets": {"stdout": 12}}]}],
    "metrics": {"task": {}, "latest": {"worker:0": {"loss": 0.5}}},
}  # fmt: skip
EVENTS = b"".join(
    json.dumps({"n": n, "time": 1000.0 + n, "kind": "note", "text": "a line", "fields": {}},
               separators=(",", ":")).encode() + b"\n" for n in (1, 2)
)  # fmt: skip
SAMPLE = json.dumps(SUMMARY, separators=(",", ":")).encode()
DEEP = b"[" * 200_000
BROKEN = [
    b"", b"{", b"\0" * 32, b"\xff\xfe", b"[]", b"null", DEEP, b'{"a":' * 200_000, SAMPLE[:90],
    b'{"job": [], "tasks": {}, "metrics": 1}', b'{"job": {"tags": 1}, "tasks": [1, [], null]}',
    SAMPLE.replace(b"1010.5", b'"never"'), SAMPLE.replace(b"1000.0", b"1e999"),
    SAMPLE.replace(b"1000.0", b"NaN"), SAMPLE.replace(b'"session":1', b'"session":1e999'),
    SAMPLE.replace(b'"progress":0.5', b'"progress":"half"'),
    SAMPLE.replace(b'["x"]', b"7"), SAMPLE.replace(b'"ran_s":4.5', b'"ran_s":1e999'),
    SAMPLE.replace(b'"latest":{"worker:0"', b'"latest":{"worker:0":1,"x"'),
    SAMPLE.replace(b'"latest":{"worker:0":{"loss":0.5}}', b'"latest":[1]'),
]  # fmt: skip


def write(root: Path, summary: bytes, events: bytes = EVENTS) -> None:
    folder = root / APP
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_bytes(summary)
    (folder / "events-0001.jsonl").write_bytes(events)


@pytest.mark.parametrize("summary", BROKEN, ids=range(len(BROKEN)))
def test_every_verb_shows_what_is_left(tony: Tony, scripted: Scripted, summary: bytes) -> None:
    root = Path(scripted.root) / "history"
    write(root, summary)
    scripted.apps[APP] = status(state=AppState.FAILED, finished=1010.0)
    for words in (
        ("history", "list"), ("history", "list", "--json"), ("history", "show", APP, "--metrics"),
        ("history", "show", APP, "--json"), ("status", APP), ("describe", APP), ("logs", APP),
    ):  # fmt: skip
        done = tony(*words)
        assert "internal error" not in done.err and "Traceback" not in done.err, (words, done.err)


def test_what_cannot_be_read_is_named(tony: Tony, scripted: Scripted) -> None:
    write(Path(scripted.root) / "history", DEEP, EVENTS + DEEP + b"\n[]\n\xff\n")
    scripted.apps[APP] = status(state=AppState.FAILED, finished=1010.0)
    printed = tony("history", "show", APP).err
    assert "summary.json: nested too deeply" in printed
    assert "events-0001.jsonl:3" in printed and "events-0001.jsonl:5" in printed


def _show(root: Path) -> None:
    """All that a verb does with it."""
    list(list_jobs(str(root)))
    expired(str(root), 10.0)
    damaged = read_job(str(root), APP)
    for found in (damaged, with_end(damaged, status(state=AppState.FAILED, finished=1.0))):
        view = end_tasks(recorded_view(found, status(state=AppState.FAILED, finished=1.0)))
        with redirect_stdout(io.StringIO()):
            describe.show(view, found.events)
        json.dumps(view.to_json())
    story = Story(lambda value: value, lambda line, loud: None)
    story.inherit(list(damaged.events))


def test_a_time_that_is_none(tmp_path: Path) -> None:
    write(tmp_path, SAMPLE, b'{"n":1,"time":"noon","kind":"note","text":"a line"}\n')
    (event,) = read_job(str(tmp_path), APP).events
    assert event["time"] == 0 and event["text"] == "a line"
    _show(tmp_path)


@fuzz(data=mutations(SAMPLE, b'{"job": [], "tasks": {}, "metrics": 1}'))
def test_any_summary_is_shown_or_named(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.getbasetemp() / "summaries"
    write(root, data, b"")
    _show(root)


@fuzz(data=mutations(EVENTS, b'{"n": 1e999, "text": [1]}\n'))
def test_any_segment_is_shown_or_named(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.getbasetemp() / "segments"
    write(root, SAMPLE, data)
    found = read_job(str(root), APP)
    lines: List[bytes] = [line for line in data.split(b"\n") if line.strip()]
    assert len(found.events) + len(found.problems) == len(lines)
    _show(root)


@pytest.mark.parametrize("what", ["pipe", "device", "huge"])
def test_what_is_no_plain_file_is_named_and_not_read(tmp_path: Path, what: str) -> None:
    """Where users share a place, the folder of another user's job may hold anything."""
    folder = tmp_path / "local_1"
    folder.mkdir()
    for name in ("summary.json", "events-0001.jsonl"):
        if what == "pipe":
            os.mkfifo(folder / name)
        elif what == "device":
            (folder / name).symlink_to("/dev/zero")
        else:
            with open(folder / name, "wb") as stream:
                stream.truncate(1 << 40)
    with bounds(seconds=5.0):
        assert [job["state"] for job in list_jobs(str(tmp_path))] == ["UNKNOWN"]
        assert len(read_job(str(tmp_path), "local_1").problems) == 2
        expired(str(tmp_path), 1.0)
