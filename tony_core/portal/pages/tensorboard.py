"""TensorBoard of an ended job: started when it is asked for, and the way to it."""

from __future__ import annotations

from typing import List

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tony_core.portal.access.gate import HEADERS
from tony_core.portal.index.rows import JobRow
from tony_core.portal.site import Problem, Site, TensorBoardOpener, json_answer

EVERY_S = 2  # between two looks of a page that waits


def routes(site: Site) -> List[Route]:
    """``/jobs/ID/tensorboard``: how far it is; a POST, whose token was checked, starts it."""

    def show(request: Request) -> Response:
        row, tensorboards = _admit(site, request)
        instance = tensorboards.look(row, site.viewer(request))
        if instance is not None and instance.path:
            return RedirectResponse(_url(tensorboards, request, instance.path), 303, HEADERS)
        return site.render(request, "tensorboard.html", row=row, instance=instance, every=EVERY_S)

    def start(request: Request) -> Response:
        row, tensorboards = _admit(site, request)
        tensorboards.open(row, site.viewer(request))
        return RedirectResponse(site.job_url(request, row, "tensorboard"), 303, HEADERS)

    async def api(request: Request) -> Response:
        row, tensorboards = await site.run(request, _admit, site, request)
        instance = tensorboards.look(row, site.viewer(request))
        if instance is None:
            return json_answer({"state": "none", "message": "", "url": ""})
        url = _url(tensorboards, request, instance.path) if instance.path else ""
        return json_answer({"state": instance.state.value, "message": instance.message, "url": url})

    return [
        Route("/jobs/{app_id}/tensorboard", show, methods=["GET"]),
        Route("/jobs/{app_id}/tensorboard", start, methods=["POST"]),
        Route("/jobs/{app_id}/api/tensorboard", api),
    ]


def _admit(site: Site, request: Request) -> tuple[JobRow, TensorBoardOpener]:
    row = site.find(request)
    if site.tensorboards is None:
        raise Problem(404, "No TensorBoard", "This portal starts no TensorBoard.")
    return row, site.tensorboards


def _url(tensorboards: TensorBoardOpener, request: Request, path: str) -> str:
    """At the relay's port of the host that this browser calls, which the gate has checked."""
    return tensorboards.url_of(path, request.url.hostname or "localhost")
