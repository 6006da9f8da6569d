"""The advice on a job: a section of its page, a page of its own, JSON, the exported file."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from tests.advice.findings import INPUT, MEMORY, stand_in
from tests.cli.schema import wrong_with
from tests.portal.fakes import NASTY, FakePortal, a_row, a_source, a_task
from tony_core.advice import report
from tony_core.advice.advice import Change
from tony_core.advice.report import Report
from tony_core.portal.export import export_page

JOB = "/jobs/application_1_0001/"


def text_of(portal: FakePortal, path: str) -> str:
    answer = portal.client().get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("path", [JOB, f"{JOB}advice"])
def test_a_page_has_problem_numbers_change_and_saving(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    text = unescape(text_of(FakePortal(a_source()), path))
    for part in (
        "Advice · 2 (1 severe)",
        '<span class="state v-severe">severe</span> worker: asks for 8 GB',
        '<th scope="row">used at most (GB)</th><td>2.1</td>',
        "tony.worker.memory: 8g -> 3g",
        "  <name>tony.worker.memory</name>\n  <value>3g</value>",
        "Saves 12 GB hours of memory, 1 min 20 s, of a run like this one.",
        "the GPUs wait for data 40 % of the time",
    ):
        assert part in text, part


def test_without_advice_the_overview_is_silent_and_its_own_page_names_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(monkeypatch)
    portal = FakePortal(a_source())
    assert "Advice ·" not in text_of(portal, JOB)
    text = text_of(portal, f"{JOB}advice")
    assert "Nothing to change." in text and "configuration was not kept" in text


def test_a_running_jobs_advice_is_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    portal = FakePortal(a_source(running=True))
    assert "Nothing to change so far." in text_of(portal, f"{JOB}advice")
    stand_in(monkeypatch, INPUT)
    portal = FakePortal(a_source(running=True))
    assert "Advice · 1 so far" in text_of(portal, f"{JOB}advice")
    assert "Advice ·" not in text_of(portal, JOB), "its master would have to send all metrics"


def test_of_many_tasks_it_is_read_for_its_own_page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY)
    portal = FakePortal(a_source(tasks=tuple(a_task(f"worker:{at}") for at in range(101))))
    assert "Advice ·" not in text_of(portal, JOB)
    assert "Advice · 1 (1 severe)" in text_of(portal, f"{JOB}advice")


def test_of_too_many_tasks_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY)
    portal = FakePortal(a_source(tasks=tuple(a_task(f"worker:{at}") for at in range(201))))
    text = text_of(portal, f"{JOB}advice")
    assert "201 tasks" in text and "tony advise application_1_0001" in text
    assert "Nothing to change" not in text and "Advice ·" not in text


def test_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    data = FakePortal(a_source()).client().get(f"{JOB}api/advice").json()
    assert wrong_with(data, "advise") == []
    assert [each["rule"] for each in data["advice"]] == ["memory", "input"]


def test_the_configuration_is_what_the_rules_get(monkeypatch: pytest.MonkeyPatch) -> None:
    got = []
    monkeypatch.setattr(report, "advise", lambda record, config: got.append(config) or [])
    source = a_source()
    source.data = b"<configuration/>"
    text_of(FakePortal(source), f"{JOB}advice")
    assert got == [b"<configuration/>"]


def hostile() -> Any:
    return MEMORY._replace(
        severity="severe", about=NASTY, problem=NASTY, todo=NASTY, evidence={NASTY: NASTY},
        changes=(Change(NASTY, NASTY, NASTY),), saving={NASTY: 1.0},
    )  # fmt: skip


def test_hostile_texts_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, hostile())
    source = a_source(a_row(name="a"))
    portal = FakePortal(source)
    pages = [text_of(portal, JOB), text_of(portal, f"{JOB}advice")]
    pages.append(export_page(source.held, source.view(), report=Report((hostile(),))))
    for text in pages:
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>alert" not in text and "<img" not in text


def test_a_fault_of_a_rule_leaves_the_jobs_page(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "advise", lambda record, config: {}[NASTY])
    portal = FakePortal(a_source())
    assert "Tasks" in text_of(portal, JOB)
    text = text_of(portal, f"{JOB}advice")
    assert "Its advice cannot be worked out: KeyError" in text and "<img" not in text
    assert capfd.readouterr().err.count("Traceback") == 1


def test_a_configuration_that_cannot_be_read_is_named() -> None:
    source = a_source()

    def refuse() -> bytes:
        raise PermissionError(13, "Permission denied", "tony-final.xml")

    source.config_file = refuse  # type: ignore[method-assign]
    text = unescape(text_of(FakePortal(source), f"{JOB}advice"))
    assert "Its configuration cannot be read: [Errno 13] Permission denied" in text
