"""Ends a job, as the viewer: a question, and the answer by POST."""

from __future__ import annotations

from typing import List, Tuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.history.layout import ENDED
from tony_core.portal.endings import Endings
from tony_core.portal.index.rows import JobRow
from tony_core.portal.site import Problem, Site

MODIFY_ACL = "tony.yarn.acl.modify"


def routes(site: Site) -> List[Route]:
    """``/jobs/ID/end``; the login's middleware has checked the form's token."""

    def ask(request: Request) -> Response:
        row, _ = _admit(site, request)
        return site.render(request, "end.html", row=row, answer="")

    def end(request: Request) -> Response:
        row, endings = _admit(site, request)
        try:
            answer = endings.end_job(
                site.viewer(request), row, lambda: read_modify_acl(site, request, row)
            )
        except Exception as error:
            raise Problem(
                503, "The job was not ended", str(error) or type(error).__name__
            ) from error
        return site.render(request, "end.html", row=row, answer=answer)

    return [
        Route("/jobs/{app_id}/end", ask, methods=["GET"]),
        Route("/jobs/{app_id}/end", end, methods=["POST"]),
    ]


def _admit(site: Site, request: Request) -> Tuple[JobRow, Endings]:
    row = site.find(request)
    if row.state in ENDED:
        text = f"{row.app_id} ended as {row.state}; there is nothing to end any more."
        raise Problem(403, "This job has ended", text)
    if not may_end(site, request, row):
        raise Problem(
            403,
            "You cannot end this job",
            f"This portal cannot end {row.app_id} as you. Its owner, {row.owner}, ends it by:"
            f" tony kill {row.app_id}",
        )
    assert site.endings is not None
    return row, site.endings


def may_end(site: Site, request: Request, row: JobRow) -> bool:
    """Whether the viewer gets a button that ends the job."""
    return site.endings is not None and site.endings.may_end(
        site.viewer(request), row, lambda: read_modify_acl(site, request, row)
    )


def read_modify_acl(site: Site, request: Request, row: JobRow) -> str:
    """The users and groups that the job lets change it; none where that cannot be read."""
    viewer = site.viewer(request)

    def make() -> str:
        entries = site.open_source(row, viewer).config()
        return next((entry.value for entry in entries if entry.key == MODIFY_ACL), "")

    try:
        return site.cache.get(row, "modify-acl", make, len, viewer.name)
    except (OSError, LookupError, ValueError):
        return ""
