"""The portal's pages of a job, for those who link to it. Pure.

The job's page there is the link ``portal`` of the job itself (:meth:`tony_core.job.spec.History.
job_page`); the others are below it.
"""

from __future__ import annotations

from urllib.parse import quote

from tony_core.job.spec import History
from tony_core.view import JobView

PORTAL = "portal"
"""The name of the link."""


def tasks_page(job_page: str) -> str:
    """Every task with its containers and logs."""
    return f"{job_page.rstrip('/')}/tasks"


def log_page(job_page: str, task: str) -> str:
    """The log of a task."""
    return f"{job_page.rstrip('/')}/log/{quote(task, safe='', errors='replace')}"


def tensorboard_page(job_page: str) -> str:
    """TensorBoard of a job that has ended."""
    return f"{job_page.rstrip('/')}/tensorboard"


def with_portal(view: JobView, history: History) -> JobView:
    """The view with the link to the portal, also where neither page nor history gave it.

    A job that was killed before its master ran, or whose history cannot be read here, is in the
    portal all the same.
    """
    page = view.links.get(PORTAL) or history.job_page(view.app_id)
    return view._replace(links={**view.links, PORTAL: page}) if page else view
