"""TensorBoard of an ended job: started when it is asked for, and the way to it."""

from __future__ import annotations

from typing import List

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tony_core.portal.index.rows import JobRow
from tony_core.portal.site import HEADERS, Boards, Problem, Site, json_answer

EVERY_S = 2  # between two looks of a page that waits


def routes(site: Site) -> List[Route]:
    """``/jobs/ID/tensorboard``: how far it is; a POST, whose token was checked, starts it."""

    def show(request: Request) -> Response:
        row, boards = _admit(site, request)
        board = boards.look(row, site.viewer(request))
        if board is not None and board.path:
            return RedirectResponse(_url(boards, request, board.path), 303, HEADERS)
        return site.render(request, "tensorboard.html", row=row, board=board, every=EVERY_S)

    def start(request: Request) -> Response:
        row, boards = _admit(site, request)
        boards.open(row, site.viewer(request))
        return RedirectResponse(site.job_url(request, row, "tensorboard"), 303, HEADERS)

    async def api(request: Request) -> Response:
        row, boards = await run_in_threadpool(_admit, site, request)
        board = boards.look(row, site.viewer(request))
        if board is None:
            return json_answer({"state": "none", "message": "", "url": ""})
        url = _url(boards, request, board.path) if board.path else ""
        return json_answer({"state": board.state.value, "message": board.message, "url": url})

    return [
        Route("/jobs/{app_id}/tensorboard", show, methods=["GET"]),
        Route("/jobs/{app_id}/tensorboard", start, methods=["POST"]),
        Route("/jobs/{app_id}/api/tensorboard", api),
    ]


def _admit(site: Site, request: Request) -> tuple[JobRow, Boards]:
    row = site.find(request)
    if site.boards is None:
        raise Problem(404, "No TensorBoard", "This portal starts no TensorBoard.")
    return row, site.boards


def _url(boards: Boards, request: Request, path: str) -> str:
    """At the relay's port of the host that this browser calls, which the gate has checked."""
    return boards.url_of(path, request.url.hostname or "localhost")
