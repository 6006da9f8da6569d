"""An ended job's metrics as a file: few tasks are read without the others, and damage is named."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest

from tony_core.history import metric_file
from tony_core.history.metric_file import decode_series, encode_series, page_json
from tony_core.history.metric_log import encode_points, replay, replay_tasks
from tony_core.history.metric_series import SeriesStore
from tony_core.jsontext import read_lines

NASTY = 'a","points":{"b\\\u2028é\n'


def stored() -> SeriesStore:
    store = SeriesStore()
    for at in range(5):
        for task in ("worker:0", "worker:1", NASTY):
            store.add(task, float(at), {"loss": 1.0 / (at + 1), NASTY: float(at)})
    return store


def test_the_whole_comes_back_and_the_page_s_answer_is_made_of_its_bytes() -> None:
    metrics = stored().to_json()
    data = encode_series(metrics)
    assert decode_series(data) == (metrics, [])
    assert json.loads(page_json(data)) == metrics
    assert len(data.splitlines()) == 3
    assert decode_series(b"")[0] == json.loads(page_json(b"")) == {"task": {}, "latest": {}}


def test_only_the_chosen_tasks_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics: Dict[str, Any] = stored().to_json()
    read, parsed = metric_file.read_object, []
    monkeypatch.setattr(
        metric_file, "read_object", lambda data: parsed.append(len(data)) or read(data)
    )
    data = encode_series(metrics)
    asked = []

    def choose(latest: Any) -> Any:
        asked.append(latest)
        return [NASTY, "worker:9"]

    found, problems = decode_series(data, choose)
    assert asked == [metrics["latest"]] and problems == []
    assert found == {"task": {NASTY: metrics["task"][NASTY]}, "latest": metrics["latest"]}
    whole = max(len(line) for line in data.splitlines())
    assert [size for size in parsed if size > whole / 2] == [len(data.splitlines()[2])]


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"task":"w","latest":{"x":1',
        b'{"task":"w","latest":{},"points":{"loss":[[1,',
        b'{"task":3,"latest":{},"points":{}}',
        b'{"task":"w","latest":[],"points":{}}',
        b'{"task":"w","latest":{},"points":[]}',
        b"\xff",
    ],
)
def test_a_damaged_line_is_named_and_the_others_are_read(damaged: bytes) -> None:
    metrics = stored().to_json()
    found, problems = decode_series(damaged + b"\n" + encode_series(metrics))
    assert found["task"] == metrics["task"]
    assert problems == ["metrics.jsonl:1: not a whole task's metrics, left out"]


def test_a_line_cut_short_is_left_out_of_the_page_s_answer() -> None:
    data = encode_series(stored().to_json())
    assert list(json.loads(page_json(data[:-40]))["task"]) == ["worker:0", "worker:1"]


def test_of_a_running_job_the_points_of_some_tasks_are_as_if_all_were_read() -> None:
    master, whole, some = SeriesStore(40, 40), SeriesStore(40, 40), SeriesStore(40, 40)
    lines = []
    for at in range(200):
        kept = [
            (task, master.add(task, float(at), {"loss": at / 3, "worker:1": at}))
            for task in ("worker:0", "worker:1", NASTY)
        ]
        lines.append(encode_points(kept))
    data = b"".join(line + b"\n" for line in lines) + b'{"points":[["worker:1",7.0,{"lo'
    for line in filter(None, lines):
        replay(whole, line)
    replay_tasks(some, data, ["worker:1", NASTY])
    assert set(some.to_json()["task"]) == {"worker:1", NASTY}
    for task in ("worker:1", NASTY):
        assert some.to_json()["task"][task] == whole.to_json()["task"][task]
    replay_tasks(some, data, ())


def test_lines_are_read_at_once_only_where_each_is_an_object() -> None:
    assert read_lines(b'{"a":1}\n\n{"b":2}\n') == [{"a": 1}, {"b": 2}]
    assert read_lines(b"") == []
    for odd in (b'{"a":1}\n{"b"', b'{"a":1}\n3\n', b'{"a":1},{"b":2}\n', b"\xff\n"):
        assert read_lines(odd) is None
