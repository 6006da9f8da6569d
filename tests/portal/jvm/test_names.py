"""The names of .jhist files: every form that the JVM TonY has written, and others' names."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.jvm.files import APP, NAME, RUNNING
from tony_core.portal.jvm.names import JhistName, newest, parse_name


def test_a_job_that_ended() -> None:
    found = parse_name(NAME)
    assert found == JhistName(APP, 1542325695566, 1542325733637, "ann", "FAILED")
    assert not found.is_running and str(found) == NAME


def test_a_job_that_runs() -> None:
    found = parse_name(RUNNING)
    assert found == JhistName(APP, 1542325695566, None, "ann")
    assert found.is_running and str(found) == RUNNING


@pytest.mark.parametrize("user", ["svc-ml", "john.doe", "a-1-B-C", "7-x"])
def test_a_user_with_a_dash_or_a_dot(user: str) -> None:
    for name in (f"{APP}-1-2-{user}-KILLED.jhist", f"{APP}-1-{user}.jhist.inprogress"):
        found = parse_name(name)
        assert found is not None and found.user == user


def test_what_we_write_can_be_taken_apart_by_the_jvms_reader() -> None:
    """It cuts the name at the first dot and splits it at dashes, and wants five parts."""
    name = str(JhistName("local_1-x", 1, 2, "Svc-ML.team", "SUCCEEDED"))
    assert name.split(".")[0].split("-") == ["local_1_x", "1", "2", "svc_ml_team", "SUCCEEDED"]


@pytest.mark.parametrize("ended_ms", [2, None])
@pytest.mark.parametrize("user", ["u" * 250, "[{'\ud800': 1e300}] " * 40])
def test_a_long_user_is_cut_to_what_a_files_name_can_hold(
    user: str, ended_ms: Optional[int]
) -> None:
    name = str(JhistName(APP, 10**14, ended_ms, user, "SUCCEEDED"))
    found = parse_name(name)
    assert found is not None and found.app_id == APP and len(name.encode()) <= 255


@pytest.mark.parametrize(
    "name",
    ["", ".jhist", "x.jhist", f"{APP}-1-2-ann.jhist", f"{APP}-x-2-ann-FAILED.jhist",
     f"../{APP}-1-2-ann-FAILED.jhist", f"{APP}-1-2-ann-failed.jhist", f"{NAME}.bak",
     f"{APP}-{'9' * 400}-2-ann-FAILED.jhist", f"{APP}-1-2-{'u' * 900}-FAILED.jhist"],
)  # fmt: skip
def test_what_is_none(name: str) -> None:
    assert parse_name(name) is None


@given(st.text(max_size=80).map(lambda text: f"{APP}-1-2-{text}-FAILED.jhist"))
def test_any_user_is_text_and_nothing_else(name: str) -> None:
    found = parse_name(name)
    assert found is None or (found.app_id == APP and parse_name(str(found)) is not None)


def test_the_last_attempt_counts() -> None:
    later = f"{APP}-1542325795566-ann.jhist.inprogress"
    of_another = "application_1_0001-9999999999999-9999999999999-ann-FAILED.jhist"
    assert newest([NAME, later, of_another, "x"], APP) == later
    assert newest([RUNNING, NAME], APP) == NAME, "the same attempt: what has ended"
    assert newest([of_another], APP) is None
