"""When the log is told that a job's page cannot be read."""

from __future__ import annotations

from typing import List

from tony_airflow.lease import UnseenPage


def test_it_is_said_once_each_time_that_it_lasts() -> None:
    now: List[float] = [0.0]
    page = UnseenPage(60, clock=lambda: now[0])

    def at(moment: float) -> str:
        now[0] = moment
        return page.failed("no route to host")

    assert at(100) == at(119) == ""
    said = at(120)
    for word in ("20 s", "no route to host", "60 s", "lease"):
        assert word in said
    assert at(140) == ""
    page.seen()
    assert at(150) == at(169) == ""
    assert at(170)


def test_without_a_lease_nothing_is_to_be_told() -> None:
    page = UnseenPage(None, clock=iter([0.0, 1e6]).__next__)
    assert page.failed("why") == page.failed("why") == ""
