"""How much there was to look at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.advice.findings import INPUT, MEMORY, stand_in
from tests.advice.jobs import JobBuilder, job
from tony_core.advice.report import Report, report_on
from tony_core.history.reader import JobHistory

LONG = {"started": 1.7e9, "finished": 1.7e9 + 3600}
MEASURED = {"latest": {"worker:0": {"rss_mb": 5.0}}}


def notes(summary: Any, metrics: Any = MEASURED, config: bytes = b"<configuration/>") -> str:
    return " | ".join(report_on(JobHistory("a", summary, metrics=metrics), config).notes)


def test_a_whole_history_needs_no_note() -> None:
    assert notes(LONG) == ""


@pytest.mark.parametrize(
    ("summary", "metrics", "config", "wanted"),
    [
        ({"started": 1.7e9}, MEASURED, b"x", "still running"),
        ({**LONG, "finished": 1.7e9 + 40}, MEASURED, b"x", "ran for 40 s only"),
        (LONG, {}, b"x", "nothing was measured"),
        (LONG, MEASURED, b"", "configuration was not kept"),
    ],
)
def test_thin_evidence_is_named(summary: Any, metrics: Any, config: bytes, wanted: str) -> None:
    assert wanted in notes(summary, metrics, config)


def test_of_a_job_that_has_just_begun_little_is_known() -> None:
    for seconds, wanted in ((12.0, "have run for 10 s only"), (400.0, "")):
        (first, *more) = report_on(job(seconds=seconds, state="RUNNING"), b"x").notes
        assert "advice so far" in first
        assert (wanted in more[0]) if wanted else not more, more
    builder = JobBuilder()
    builder.begin().wait(1000.0).line("waiting", "the queue is full")
    assert "have run for 0 s only" in " ".join(report_on(builder.record(), b"x").notes)


def test_a_history_that_was_not_read_whole_is_named() -> None:
    record = JobHistory("a", LONG, metrics=MEASURED, is_cut=True)
    assert "larger than is read here" in report_on(record, b"x").notes[0]


@pytest.mark.parametrize("odd", ["x", None, -1, 1e300, True, [], {}])
def test_odd_times_are_no_times(odd: Any) -> None:
    assert "only" not in notes({"started": odd, "finished": odd})


def test_what_is_found_is_counted_by_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY, INPUT, INPUT)
    found = report_on(JobHistory("a", LONG))
    assert found.counts() == {"severe": 1, "low": 2}
    assert list(found.counts()) == ["severe", "low"], "the worst first"
    assert not found.is_running and Report().counts() == {}
