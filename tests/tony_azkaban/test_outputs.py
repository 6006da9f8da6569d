"""What next jobs may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tony_azkaban.outputs import metrics, outputs, write
from tony_core.client.view import JobView, TaskView
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers.port import AppState

JOB = Job("train", (Role("worker", 2, Resources(), "true"),))
VIEW = JobView(
    "local_1",
    AppState.SUCCEEDED,
    "history",
    submitted=100.0,
    finished=112.5,
    tasks=(
        TaskView("worker:1", reported={"loss": 0.5, "rank": 1.0}),
        TaskView("worker:0", reported={"loss": 0.25}),
    ),
)


def test_the_chiefs_word_comes_first() -> None:
    assert metrics(VIEW, JOB) == {"loss": 0.25, "rank": 1.0}


def test_flat_texts_alone_and_with_the_jobs_name() -> None:
    said = outputs(VIEW, JOB, "train", "/history/local_1", {"tensorboard": "http://node:6006/"})
    assert said["tony_result.duration_s"] == "12.5"
    assert said["tony_result.tensorboard_url"] == "http://node:6006/"
    assert said["tony_result.history_url"] == "/history/local_1"
    assert said["tony_result.metrics.loss"] == said["tony_result.train.metrics.loss"] == "0.25"
    assert all(isinstance(text, str) and text for text in said.values())


@pytest.mark.parametrize(
    ("value", "text"), [("text", "text"), ({"a": [1]}, '{"a": [1]}'), (0, "0"), (None, None)]
)
def test_the_result(value: Any, text: str | None) -> None:
    from dataclasses import replace

    said = outputs(replace(VIEW, result=value), JOB, "train", "", {})
    assert said.get("tony_result.value") == text


def test_any_text_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(str(path), {"a": "größe 🦆 \ud800"})
    assert json.loads(path.read_bytes().decode("ascii")) == {"a": "größe 🦆 \ud800"}
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["out.json"]
