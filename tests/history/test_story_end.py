"""The end of a job whose summary is missing or cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

import pytest

from tests.history.stories import BEGIN, StoryBuilder
from tony_core.history.reader import read_job
from tony_core.history.story_end import end_of_story
from tony_core.portal.index.build import build_row

APP = "app_1"


def ended() -> StoryBuilder:
    made = StoryBuilder(workers=1).begin().wait(1).move("launched").wait(1).move("running")
    made.wait(2.2).move("succeeded")
    return made.line("job-ended", "the job has ended: SUCCEEDED", state="SUCCEEDED")


@pytest.mark.parametrize("summary", ['{"job": {"app_id": "app_1", "sta', "", None])
def test_list_page_and_time_line_agree(tmp_path: Path, summary: str | None) -> None:
    folder = tmp_path / APP
    folder.mkdir()
    lines = "".join(json.dumps(event) + "\n" for event in ended().events)
    (folder / "events-0001.jsonl").write_text(lines)
    if summary is not None:
        (folder / "summary.json").write_text(summary)
    record = read_job(str(tmp_path), APP)
    assert record.job["state"] == "SUCCEEDED"
    assert (record.job["submitted"], record.job["finished"]) == (BEGIN, BEGIN + 4.2)
    assert read_job(str(tmp_path), APP, events=False).job == record.job
    assert any("summary.json" in problem for problem in record.problems)
    row = build_row("here", APP, "ann", record, changed=BEGIN + 900)
    assert (row.state, row.submitted, row.finished) == ("SUCCEEDED", BEGIN, BEGIN + 4.2)
    assert (row.figures["duration_s"], row.figures["running_s"]) == pytest.approx((4.2, 2.2))
    assert row.figures["waiting_s"] == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"kind": "note", "fields": {"state": "FAILED"}}, {}),
        ({"kind": "job-ended", "fields": {"state": 7}}, {}),
        ({"kind": "job-ended", "fields": []}, {}),
        ({"kind": "job-ended", "fields": {"state": "FAILED"}, "time": 0.0}, {}),
        (
            {"kind": "job-ended", "fields": {"state": "FAILED", "buried": True}, "time": 9.0,
             "session": 2, "text": "the job has ended: FAILED: the master died"},
            {"state": "FAILED", "phase": "ended", "submitted": 9.0, "finished": 9.0, "session": 2,
             "buried": True, "diagnostics": "the master died"},
        ),
    ],
)  # fmt: skip
def test_the_last_line_has_the_end(line: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert end_of_story([line]) == expected
    assert end_of_story([]) == {}
