"""Advice in words."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.findings import INPUT, MEMORY
from tony_core.advice.advice import CRITICAL, Change
from tony_core.advice.report import Report
from tony_core.advice.wording import (
    LONGEST,
    describe_change,
    describe_evidence,
    describe_saving,
    headline,
    log_lines,
    snippet,
)


def test_the_words() -> None:
    assert describe_change(MEMORY.changes[0]) == "tony.worker.memory: 8g -> 3g"
    assert describe_change(Change("a", "1")) == "a: 1 (it was not set)"
    assert describe_evidence(MEMORY) == "asked (GB) 8, used at most (GB) 2.1"
    assert describe_saving(MEMORY) == "12 GB hours of memory, 1 min 20 s"
    assert describe_saving(INPUT) == ""


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1.0, 0.0, "x", None, True])
def test_what_is_no_saving_is_left_out(odd: Any) -> None:
    assert describe_saving(MEMORY._replace(saving={"gpu_hours": odd})) == ""


@pytest.mark.parametrize(
    ("severities", "wanted"),
    [
        ((), ""),
        (("low",), "1"),
        (("severe", "low"), "2 (1 severe)"),
        ((CRITICAL, "severe", "severe"), "3 (1 critical, 2 severe)"),
    ],
)
def test_the_headline_counts_what_is_bad(severities: Any, wanted: str) -> None:
    found = tuple(MEMORY._replace(severity=each) for each in severities)
    assert headline(Report(found)) == wanted


@given(st.integers(0, 30), st.integers(1, 12))
def test_a_log_gets_no_more_lines_than_it_wants(count: int, most: int) -> None:
    lines = log_lines(Report((MEMORY,) * count), "tony advise a", most)
    assert len(lines) == min(count + 1 if count else 0, most)
    if count:
        assert lines[0] == f"advice: {count} ({count} severe): tony advise a"
    if most > 1 and count >= most:
        assert lines[-1] == f"  and {count - (most - 2)} more"


def test_a_line_of_a_log_has_the_change_or_what_to_do() -> None:
    lines = log_lines(Report((MEMORY, INPUT)), "tony advise a", 10)
    assert lines[1:] == [
        "  severe: worker: asks for 8 GB of memory and never used more than 2.1 GB"
        " [tony.worker.memory: 8g -> 3g]",
        "  low: the GPUs wait for data 40 % of the time [read ahead]",
    ]
    long = log_lines(Report((MEMORY._replace(problem="x" * 5000),)), "c", 10)
    assert len(long[1]) <= LONGEST + 2


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1))
def test_a_snippet_is_xml_whatever_the_value(text: str) -> None:
    made = snippet([Change("tony.worker.command", text), Change("b", "2")])
    properties = ET.fromstring(f"<configuration>{made}</configuration>").findall("property")
    assert [each.findtext("value") for each in properties] == [text, "2"]
