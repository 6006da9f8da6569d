"""When a warning is due that a page or a scheduler does not answer."""

from __future__ import annotations

from typing import List

from tony_core.client.outage import Outage, PageOutage, SchedulerOutage
from tony_core.schedulers.port import LastingRefusal, NotLoggedIn, SchedulerError


def test_an_outage_begins_with_the_first_failure_and_ends_with_an_answer() -> None:
    outage = Outage(10)
    assert outage.failed(95) == (True, 0, False)
    assert outage.failed(100) == (False, 5, False)
    assert outage.failed(105) == (False, 10, True)
    outage.answered()
    assert outage.failed(106) == (True, 0, False)


def test_a_refusal_and_a_silence_have_limits_of_their_own() -> None:
    outage = SchedulerOutage()
    refusal, silence = LastingRefusal("expired"), SchedulerError("connection refused")
    assert outage.failed(silence, 0).is_first and outage.failed(refusal, 50).is_first
    assert not outage.failed(refusal, 59.9).has_expired
    assert outage.failed(refusal, 60).has_expired
    assert not outage.failed(silence, 119.9).has_expired
    assert outage.failed(silence, 120).has_expired
    outage.answered()
    assert outage.failed(refusal, 130).is_first and outage.failed(silence, 130).is_first


def test_a_login_that_has_worked_is_waited_for() -> None:
    """A ticket that has expired has worked, in whichever process; others only if this one did."""
    outage = SchedulerOutage(120, 10, login_s=900)
    expired, missing = NotLoggedIn("expired", has_expired=True), NotLoggedIn("no ticket")
    assert outage.failed(expired, 0).is_first and outage.failed(missing, 0).is_first
    assert outage.failed(missing, 10).has_expired
    assert not outage.failed(expired, 899).has_expired
    assert outage.failed(expired, 900).has_expired
    outage.answered()
    assert outage.failed(missing, 1000).is_first
    assert not outage.failed(missing, 1899).has_expired
    assert outage.failed(missing, 1900).has_expired
    assert outage.failed(LastingRefusal("no such queue"), 1900).is_first


def test_the_first_failure_is_always_followed_by_another_call() -> None:
    outage = SchedulerOutage(0, 0)
    assert not outage.failed(LastingRefusal("expired"), 1).has_expired
    assert outage.failed(LastingRefusal("expired"), 1).has_expired


def test_one_warning_for_each_outage_that_lasts() -> None:
    now: List[float] = [0.0]
    page = PageOutage(60, clock=lambda: now[0])

    def at(moment: float) -> str:
        now[0] = moment
        return page.failed("no route to host")

    assert at(100) == at(119) == ""
    warning = at(120)
    for word in ("20 s", "no route to host", "60 s", "lease"):
        assert word in warning
    assert at(140) == ""
    page.answered()
    assert at(150) == at(169) == ""
    assert at(170)


def test_without_a_lease_there_is_no_warning() -> None:
    page = PageOutage(None, clock=iter([0.0, 1e6]).__next__)
    assert page.failed("why") == page.failed("why") == ""
