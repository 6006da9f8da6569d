"""The portal as an ASGI application: its parts put together, its routes, its errors."""

from __future__ import annotations

import traceback
from inspect import iscoroutinefunction
from typing import Any, Callable, List, Mapping, Optional, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tony_core.portal import api
from tony_core.portal.access.gate import HEADERS
from tony_core.portal.access.refusal import wants_json
from tony_core.portal.endings import Endings
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.pages import compare, end, job, jobs, logs, tensorboard, trends, usage
from tony_core.portal.settings import Settings
from tony_core.portal.site import (
    JobIndex,
    Problem,
    SeveralJobs,
    Site,
    SourceOpener,
    Tab,
    TensorBoardOpener,
    json_answer,
)
from tony_core.portal.viewer_places import NoPlace

TABS = (
    Tab("/jobs", "Jobs"),
    Tab("/trends", "Trends"),
    Tab("/users", "Users"),
    Tab("/queues", "Queues"),
)
FOREVER = "public, max-age=31536000, immutable"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32"'
    ' rx="7" fill="#1d57d8"/><path d="M8 9h16v4h-6v12h-4V13H8z" fill="#fff"/></svg>'
)
_TITLES = {404: "There is no such page", 405: "This cannot be done here"}


def create_app(
    settings: Settings,
    index: JobIndex,
    open_source: SourceOpener,
    *,
    endings: Optional[Endings] = None,
    middleware: Sequence[Middleware] = (),
    routes: Sequence[BaseRoute] = (),
    find_problems: Callable[[], Sequence[str]] = tuple,
    tensorboards: Optional[TensorBoardOpener] = None,
    log: Callable[[str], None] = lambda text: None,
) -> Starlette:
    """The application, to stand behind what sets ``request.state.viewer`` and ``csrf`` and checks
    the forms' tokens (``middleware``, or a gate around the whole).

    ``find_problems``: sentences on what cannot be read now; ``log`` takes tracebacks.
    """
    site = Site(settings, index, open_source, endings, TABS, find_problems, tensorboards)

    def refuse(request: Request, status: int, title: str, text: str) -> Response:
        if wants_json(request):
            return json_answer({"error": text}, status)
        return site.render(request, "error.html", status, title=title, text=text)

    def on_problem(request: Request, error: Any) -> Response:
        return refuse(request, error.status, error.title, str(error))

    def on_several(request: Request, error: Any) -> Response:
        if wants_json(request):
            found = [{"app_id": row.app_id, "location": row.location} for row in error.rows]
            return json_answer({"error": "several jobs: name a location", "jobs": found}, 300)
        head = f"{site.base(request)}/jobs/{request.path_params['app_id']}/"
        rest = request.url.path.removeprefix(head)
        return site.render(request, "choose.html", 300, rows=error.rows, rest=rest)

    def on_http(request: Request, error: Any) -> Response:
        title = _TITLES.get(error.status_code, "This cannot be shown")
        text = f"{request.url.path} is not a page of this portal."
        return refuse(
            request, error.status_code, title, text if error.status_code == 404 else error.detail
        )

    def on_busy(request: Request, error: Any) -> Response:
        return refuse(request, 503, "The portal has no answer in time", f"{error}.")

    def on_no_place(request: Request, error: Any) -> Response:
        return refuse(request, 503, "Too many pages at once", f"{error}.")

    def on_fault(request: Request, error: Exception) -> Response:
        log("".join(traceback.format_exception(error)))
        text = f"A fault of the portal itself ({type(error).__name__}); its log has more."
        return refuse(request, 500, "This page could not be made", text)

    handlers: Mapping[Any, Any] = {
        Problem: on_problem,
        SeveralJobs: on_several,
        HTTPException: on_http,
        IndexBusy: on_busy,
        NoPlace: on_no_place,
        Exception: on_fault,
    }
    return Starlette(
        routes=[*_static(site), *routes, *_pages(site)],
        middleware=list(middleware),
        exception_handlers=handlers,
    )


def _pages(site: Site) -> List[BaseRoute]:
    found: List[BaseRoute] = []
    for part in (jobs, usage, compare, trends, api, logs, end, tensorboard, job):
        found += (_in_a_place(site, route) for route in part.routes(site))
    return found


def _in_a_place(site: Site, route: Route) -> Route:
    """The route, answered in one of the viewer's places; what is no thread's takes its own."""
    if iscoroutinefunction(route.endpoint):
        return route

    async def answer(request: Request) -> Response:
        return await site.run(request, route.endpoint, request)

    methods = None if route.methods is None else sorted(route.methods)
    return Route(route.path, answer, methods=methods)


def _static(site: Site) -> List[BaseRoute]:
    """Style and script below names that change with them, so that browsers keep them."""

    def send(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "icon.svg":
            headers = {**HEADERS, "Cache-Control": "public, max-age=86400"}
            return Response(ICON, headers=headers, media_type="image/svg+xml")
        data = site.assets.get(name)
        if data is None:
            raise HTTPException(404)
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return Response(data, headers={**HEADERS, "Cache-Control": FOREVER}, media_type=kind)

    return [Route("/static/{name}", send)]
