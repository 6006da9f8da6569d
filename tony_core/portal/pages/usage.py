"""Who and what used the cluster: users and queues."""

from __future__ import annotations

from typing import Dict, List, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import Usage
from tony_core.portal.query import read_moment
from tony_core.portal.site import Problem, Site, check_query, json_answer

SPANS = (
    *(("24h", "Last day"), ("7d", "Last week"), ("30d", "Last month"), ("90d", "Last 90 days")),
    ("all", "All time"),
)
DEFAULT = "30d"
KINDS = {"users": ("user", "User"), "queues": ("queue", "Queue")}
#: Of each column its figure, its name and what it means.
COLUMNS = (
    ("jobs", "Jobs", "how many jobs"),
    ("failed", "Failed", "how many of them failed"),
    ("gpu_hours", "GPU hours", "GPUs that were asked for, times the hours that they were held"),
    ("gpu_hours_wasted", "wasted", "GPU hours that were held and not used"),
    ("vcore_hours", "Core hours", "cores that were asked for, times hours"),
    ("vcore_hours_wasted", "wasted", "core hours that were held and not used"),
    ("memory_gb_hours", "Memory GB h", "memory that was asked for, times hours"),
    ("memory_gb_hours_used", "used", "memory that was used, times hours"),
    ("memory_gb_hours_wasted", "wasted", "memory that was held and not used, times hours"),
    ("waiting_s", "Waited", "for a master and for containers, all jobs together"),
)
_FAILED = ("FAILED", "TIMED_OUT")


def routes(site: Site) -> List[Route]:
    """``/users``, ``/queues`` and ``/api/usage``."""

    def api(request: Request) -> Response:
        check_query(request, "by", "since")
        by = request.query_params.get("by", "user")
        found = _ask(site, request, by, _since(request))
        return json_answer({"by": by, "usage": [usage._asdict() for usage in found]})

    def page(kind: str) -> Route:
        return Route(f"/{kind}", lambda request: show_usage(site, request, kind))

    return [*(page(kind) for kind in KINDS), Route("/api/usage", api)]


def show_usage(site: Site, request: Request, kind: str) -> Response:
    """Sums by user or queue, the largest first."""
    by, title = KINDS[kind]
    span = request.query_params.get("since", DEFAULT)
    found = [(usage.key, _sums(usage)) for usage in _ask(site, request, by, _since(request))]
    sort = request.query_params.get("sort", "gpu_hours")
    keys = [key for key, *_ in COLUMNS]
    if sort not in keys:
        raise Problem(400, "This address asks for something odd", f"sort={sort!r} is no column")
    found.sort(key=lambda row: (-row[1].get(sort, 0.0), -row[1]["jobs"], row[0]))
    most = {key: max((sums.get(key, 0.0) for _, sums in found), default=0.0) for key in keys}
    known = [column for column in COLUMNS if most[column[0]] or column[0] in ("jobs", "failed")]
    return site.render(
        request,
        "usage.html",
        kind=kind,
        by=by,
        heading=title,
        rows=found[:500],
        columns=known,
        most=most,
        spans=SPANS,
        span=span,
        sort=sort,
    )


def _ask(site: Site, request: Request, by: str, since: float) -> Sequence[Usage]:
    try:
        return site.index.usage(by, site.viewer(request), since)
    except ValueError as error:
        raise Problem(400, "This address asks for something odd", str(error)) from error


def _sums(usage: Usage) -> Dict[str, float]:
    figures = usage.figures
    waited = figures.get("waiting_s", 0.0) + figures.get("queued_s", 0.0)
    return {
        **figures,
        "jobs": float(usage.jobs),
        "failed": float(sum(usage.states.get(state, 0) for state in _FAILED)),
        "waiting_s": waited,
    }


def _since(request: Request) -> float:
    try:
        return read_moment(request.query_params.get("since") or DEFAULT) or 0.0
    except BadQuery as error:
        raise Problem(400, "This address asks for something odd", str(error)) from error
