"""All jobs: the list with its search, and the choice between jobs of one id."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import JobPage, JobRow, Query
from tony_core.portal.query import STATES, read_query
from tony_core.portal.site import Problem, Site, check_query, json_answer

SPANS = (("24h", "last day"), ("7d", "last week"), ("30d", "last month"), ("90d", "last 90 days"))
EVERY_S = 3  # between two looks at the list while it is watched


def routes(site: Site) -> List[Route]:
    """The list at the root and at ``/jobs``, and as JSON."""

    def root(request: Request) -> Response:
        return show_list(site, request)

    def api(request: Request) -> Response:
        check_query(request, "q", *(name for name in Query._fields if name != "q"))
        _, page = _ask(site, request)
        return json_answer(
            {"jobs": [row_json(row) for row in page.rows], "next": page.next, "total": page.total}
        )

    def slashed(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{site.base(request)}/jobs{query}", 308)

    return [
        Route("/", root),
        Route("/jobs", root, name="jobs"),
        Route("/jobs/", slashed),
        Route("/api/jobs", api),
    ]


def show_list(site: Site, request: Request) -> Response:
    """The list as a page."""
    query, page = _ask(site, request)
    values: Dict[str, Any] = {
        name: value
        for name, value in query._asdict().items()
        if value != Query._field_defaults[name]
    }
    for name in ("since", "until"):  # as they were written: "7d" goes on being a week
        if request.query_params.get(name):
            values[name] = request.query_params[name]
    facets = site.index.facets(site.viewer(request))
    return site.render(
        request,
        "jobs.html",
        query=query,
        values=values,
        page=page,
        states=STATES,
        spans=SPANS,
        facets={name: list(facets.get(name, ())) for name in ("user", "queue", "framework")},
        counts=facets.get("state", {}),
        problems=site.find_problems(),
        every=0 if query.after else EVERY_S,
        narrowed=bool(set(values) - {"sort", "limit", "after"}),
    )


def row_json(row: JobRow) -> Mapping[str, Any]:
    """A job of the list for programs."""
    data = {**row._asdict(), "figures": dict(row.figures)}
    del data["readers"]
    return data


def _ask(site: Site, request: Request) -> Tuple[Query, JobPage]:
    try:
        query = read_query(request.query_params.multi_items())
        return query, site.index.page(query, site.viewer(request))
    except BadQuery as error:
        raise Problem(400, "This address asks for something odd", str(error)) from error
