"""What a sensor waits for, without a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Sequence

import pytest

from tony_core.client.workflow.condition import ANY_USER, MISSED, REACHED, WAITING, Condition


def job(state: str, app_id: str = "app_1", **more: Any) -> Any:
    fields: Dict[str, Any] = {
        "app_id": app_id,
        "state": SimpleNamespace(value=state),
        "submitted": 100.0,
        "tags": ("Nightly",),
        "name": "train",
        "diagnostics": "",
        **more,
    }
    return SimpleNamespace(**fields)


@pytest.mark.parametrize(
    ("wanted", "state", "verdict"),
    [
        (["SUCCEEDED"], "RUNNING", WAITING),
        (["SUCCEEDED"], "SUCCEEDED", REACHED),
        (["SUCCEEDED"], "KILLED", MISSED),
        (["RUNNING"], "ACCEPTED", WAITING),
        (["RUNNING"], "RUNNING", REACHED),
        (["RUNNING"], "SUCCEEDED", REACHED),  # it has been, between two looks
        (["RUNNING"], "FAILED", MISSED),
        (["ACCEPTED"], "RUNNING", REACHED),
        (["FAILED", "TIMED_OUT"], "TIMED_OUT", REACHED),
        (["FAILED", "TIMED_OUT"], "SUCCEEDED", MISSED),
        (["ENDED"], "FAILED", REACHED),
        (["ENDED"], "RUNNING", WAITING),
    ],
)
def test_states(wanted: Sequence[str], state: str, verdict: str) -> None:
    condition = Condition(application_id="app_1", states=tuple(wanted))
    answer = condition.check(job(state), {})
    assert answer.verdict == verdict, answer
    if verdict == REACHED:
        assert answer.found == {"application_id": "app_1", "state": state}


def test_a_metric() -> None:
    falls = Condition(name="train", metric="loss", below=0.5)
    assert falls.check(job("RUNNING"), {}).verdict == WAITING
    assert falls.check(job("RUNNING"), {"loss": 0.5}).verdict == WAITING
    answer = falls.check(job("RUNNING"), {"loss": 0.4})
    assert answer.verdict == REACHED
    assert answer.found is not None and answer.found["value"] == 0.4
    missed = falls.check(job("FAILED", diagnostics="no memory"), {"loss": 0.7})
    assert missed.verdict == MISSED
    assert missed.text == (
        "app_1 has ended as FAILED (no memory), and was waited for to report loss below 0.5;"
        " it reported 0.7"
    )
    rises = Condition(name="train", metric="auc", above=0.9)
    assert rises.check(job("SUCCEEDED"), {"auc": 0.95}).verdict == REACHED
    assert rises.check(job("SUCCEEDED"), {}).verdict == MISSED


def test_which_application() -> None:
    old, new = job("RUNNING", "app_1"), job("RUNNING", "app_2", submitted=200.0)
    other = job("RUNNING", "app_3", submitted=300.0, tags=(), name="other")
    known = [old, new, other]
    assert Condition(tag="nightly").search(known) is new
    assert Condition(name="train").search(known) is new
    assert Condition(name="train", submitted_after=250.0).search(known) is None
    assert Condition(application_id="app_1").search(known) is old
    assert "a job of the name x does not exist yet" in Condition(name="x").check(None, {}).text


def test_whose_application() -> None:
    """Any user can give a job any name and tag."""
    mine, bobs = (
        job("RUNNING", "app_1", user="ann"),
        job("RUNNING", "app_2", user="bob", submitted=200.0),
    )
    known = [mine, bobs]
    named: Any
    for named in ({"tag": "nightly"}, {"name": "train"}):
        assert Condition(**named).search(known, "ann") is mine
        assert Condition(**named).search(known, "") is bobs, "the scheduler knows one user"
        assert Condition(**named, user="bob").search(known, "ann") is bobs
        assert Condition(**named, user=ANY_USER).search(known, "ann") is bobs
        assert Condition(**named, user="carl").search(known, "ann") is None
    assert Condition(application_id="app_2").search(known, "ann") is bobs
    condition = Condition(tag="nightly")
    assert condition.explain_missing([bobs], "ann") == (
        "a job with the tag nightly of the user ann does not exist yet; app_2 is bob's, and counts"
        " with user='bob'"
    )
    assert condition.explain_missing([], "ann") == (
        "a job with the tag nightly of the user ann does not exist yet"
    )
    assert Condition(tag="t", user=ANY_USER).explain_missing([bobs], "ann") == (
        "a job with the tag t does not exist yet"
    )
    assert Condition(application_id="a", user="ann").problems() == [
        "user is for a tag or a name: an id names one application"
    ]


def test_all_problems_are_reported() -> None:
    wrong = Condition(
        application_id="a", name="b", submitted_after=1.0, states=("DONE",), above=1.0
    ).problems()
    assert len(wrong) == 4, wrong
    assert Condition(name="x").problems() == []
    assert Condition(name="x", metric="loss").problems() == [
        "the metric loss needs a bound: either above= or below="
    ]


def test_it_travels() -> None:
    condition = Condition(tag="t", metric="loss", below=0.1, submitted_after=5.0)
    assert Condition.from_dict(condition.to_dict()) == condition
