"""When the log is told that a job's page cannot be read."""

from __future__ import annotations

from typing import Any, List

import pytest

from tests.tony_airflow.tasks import SLEEPS, Instance, end_all, operator
from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.lease import UnseenPage
from tony_airflow.operators.life import TaskJob
from tony_core.client.errors import PageError
from tony_core.client.page import Page


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


class Log:
    """A task's log, of a job that ends as soon as it warns of the lease."""

    def __init__(self) -> None:
        self.warnings: List[str] = []

    def info(self, words: str, *more: Any) -> None:
        pass

    def warning(self, words: str, *more: Any) -> None:
        said = words % more
        self.warnings.append(said)
        if "lease" in said:
            end_all()


def test_who_waits_on_a_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(page: Page, *arguments: Any) -> Any:
        raise PageError("no route to host")

    found = operator(SLEEPS, wait_for_completion=False, lease=600).execute(Instance().context())
    monkeypatch.setattr(Page, "events", unreachable)
    log = Log()
    job = TaskJob(TonyHook.of(Site()), log)
    job.take(found["application_id"])
    try:
        view = job.wait(60, lease_s=0.3)
    finally:
        end_all()
        job.hook.close()
    assert view is not None and view.state.value == "KILLED"
    (said,) = [text for text in log.warnings if "lease" in text]
    assert "no route to host" in said
