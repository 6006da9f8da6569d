"""The portal's pages of a job."""

from __future__ import annotations

from tony_core.client.portal_pages import log_page, tasks_page, tensorboard_page, with_portal
from tony_core.job.spec import History
from tony_core.schedulers.port import AppState
from tony_core.view import JobView

VIEW = JobView("app_1", AppState.KILLED, "scheduler")


def test_addresses() -> None:
    page = History(portal_url="https://portal.example/").job_page("app_1")
    assert page == "https://portal.example/jobs/app_1"
    assert tasks_page(page) == f"{page}/tasks"
    assert log_page(f"{page}/", "worker:0") == f"{page}/log/worker%3A0"
    assert log_page(page, "../x?y#\ud800") == f"{page}/log/..%2Fx%3Fy%23%3F"
    assert tensorboard_page(page) == f"{page}/tensorboard"


def test_a_job_of_which_only_its_scheduler_knows_is_in_the_portal_all_the_same() -> None:
    found = with_portal(VIEW, History(portal_url="http://portal"))
    assert found.links == {"portal": "http://portal/jobs/app_1"}
    assert with_portal(VIEW, History()).links == {}


def test_the_jobs_own_link_is_not_replaced() -> None:
    """The site may have moved its portal since the job ran."""
    kept = VIEW._replace(links={"portal": "http://older/jobs/app_1", "page": "http://page/"})
    assert with_portal(kept, History(portal_url="http://portal")).links == kept.links
