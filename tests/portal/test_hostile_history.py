"""A history with texts and numbers that no program writes: every page and answer of it is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.portal.fakes import FakePortal, FakeSource, a_row, a_source, a_task, an_event
from tests.portal.histories import write_job
from tony_core.cli.history_files import encode_document
from tony_core.durations import show_duration
from tony_core.history.metric_file import page_json
from tony_core.portal.export import export_page
from tony_core.portal.formats import show_moment, show_number
from tony_core.portal.job_folders import open_local
from tony_core.view import HISTORY, read_job

ROW = a_row()
HALF = "\ud800"
HUGE = 10**4000
PAGES = ("", "tasks", "metrics", "story", "config")
ANSWERS = ("api/job", "api/tasks", "api/metrics", "api/timeline", "api/events")


def only_json(data: bytes | str) -> Any:
    """What any reader of JSON reads, in any language."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(data, parse_constant=refuse)


@pytest.fixture
def source(tmp_path: Path) -> FakeSource:
    task = a_task("worker:0", exit_code=HUGE, duration_s=HUGE, node=HALF, state="failed",
                  reported={"loss": HUGE, HALF: 1}, usage={"peak_rss_mb": HUGE})  # fmt: skip
    folder = write_job(
        tmp_path, ROW.app_id, tasks=[task], events=[an_event(1, f"it began {HALF}")],
        name=f"mnist {HALF}", result={"loss": HUGE, "best": "INF", HALF: HALF},
        diagnostics=f"worker:0 failed {HALF}", tags=[HALF], submitted=ROW.submitted,
        finished=ROW.finished, session=HUGE, root_cause={"task": "worker:0", "message": HALF},
    )  # fmt: skip
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace('"INF"', "1e999"))
    (folder / "metrics.jsonl").write_bytes(
        b'{"task":"worker:0","latest":{"loss":NaN},"points":{"loss":[[1,1e999],[2,0.5]]}}\n'
    )
    with open_local(str(tmp_path), ROW.app_id) as found:
        return FakeSource(ROW, found.record())


def test_every_page_and_answer(source: FakeSource) -> None:
    assert not source.held.problems
    with FakePortal(source, a_source(a_row(2))).client() as client:
        for page in PAGES:
            assert client.get(f"/jobs/{ROW.app_id}/{page}").status_code == 200, page
        for page in ANSWERS:
            answer = client.get(f"/jobs/{ROW.app_id}/{page}")
            assert answer.status_code == 200 and only_json(answer.content), page
        both = f"job={ROW.app_id}&job=application_1_0002"
        assert client.get(f"/compare?{both}").status_code == 200
        assert only_json(client.get(f"/api/compare?{both}").content)


def test_the_file_of_the_metrics(source: FakeSource, tmp_path: Path) -> None:
    data = (tmp_path / ROW.app_id / "metrics.jsonl").read_bytes()
    found = only_json(page_json(data))
    assert found["task"]["worker:0"]["loss"] == [[1, None], [2, 0.5]]
    assert found["latest"] == {"worker:0": {"loss": None}}


def test_its_exports(source: FakeSource) -> None:
    view = read_job(source.held.job, source.held.tasks, HISTORY, ROW.app_id)
    assert only_json(encode_document(source.held, view, None).encode())
    assert export_page(source.held, view).encode()


def test_numbers_too_large_for_a_float_are_not_shown() -> None:
    assert show_number(HUGE) == show_duration(HUGE) == show_moment(HUGE) == ""


def test_half_a_surrogate_pair_from_elsewhere() -> None:
    source = a_source(job={"name": HALF, "diagnostics": HALF}, events=(an_event(1, HALF),))
    with FakePortal(source).client() as client:
        for page in PAGES:
            assert client.get(f"/jobs/{ROW.app_id}/{page}").status_code == 200, page
