"""When a warning is due that a page or a scheduler does not answer."""

from __future__ import annotations

from typing import List

from tony_core.client.workflow.outage import Outage, PageOutage


def test_an_outage_begins_with_the_first_failure_and_ends_with_an_answer() -> None:
    now: List[float] = [100.0]
    outage = Outage(10, clock=lambda: now[0])
    assert not outage.has_expired and outage.seconds == 0
    assert outage.failed(since=95) and not outage.failed()
    assert outage.seconds == 5 and not outage.has_expired
    now[0] = 105
    assert outage.has_expired
    outage.answered()
    assert not outage.has_expired and outage.failed()


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
