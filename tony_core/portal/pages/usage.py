"""Who and what used the cluster: users and queues."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.portal.query import BadQuery, read_moment
from tony_core.portal.site import Problem, Site, json_answer

SPANS = (
    *(("24h", "Last day"), ("7d", "Last week"), ("30d", "Last month"), ("90d", "Last 90 days")),
    ("all", "All time"),
)
DEFAULT = "30d"
KINDS = {"users": ("user", "User"), "queues": ("queue", "Queue")}
#: Of each column its figure, its name and what is shown when one points at it.
COLUMNS = (
    ("jobs", "Jobs", "how many jobs"),
    ("failed", "Failed", "how many of them failed"),
    ("gpu_hours", "GPU hours", "GPUs times the hours that they were held"),
    ("vcore_hours", "Core hours", "cores times the hours that they were held"),
    ("memory_gb_hours", "Memory, GB h", "memory that was asked for, times hours"),
    ("memory_used_gb_hours", "used", "the most that tasks used, times hours"),
    ("memory_wasted_gb_hours", "wasted", "asked for and not used"),
    ("waiting_s", "Waited", "for containers, all jobs together"),
)


def routes(site: Site) -> List[Route]:
    """``/users``, ``/queues`` and ``/api/usage``."""

    def api(request: Request) -> Response:
        by = request.query_params.get("by", "user")
        if by not in ("user", "queue", "framework", "pipeline"):
            raise Problem(400, "Odd address", f"by={by!r}; expected user, queue, framework")
        since = _since(request)
        return json_answer({"usage": _rows(site, request, by, since)})

    def page(kind: str) -> Route:
        return Route(f"/{kind}", lambda request: show_usage(site, request, kind))

    return [*(page(kind) for kind in KINDS), Route("/api/usage", api)]


def show_usage(site: Site, request: Request, kind: str) -> Response:
    """Sums by user or queue, the largest first."""
    by, title = KINDS[kind]
    span = request.query_params.get("since", DEFAULT)
    found = _rows(site, request, by, _since(request))
    sort = request.query_params.get("sort", "gpu_hours")
    keys = [key for key, *_ in COLUMNS]
    if sort not in keys:
        raise Problem(400, "This address asks for something odd", f"sort={sort!r} is no column")
    found.sort(key=lambda row: (-row["sums"].get(sort, 0.0), -row["sums"]["jobs"], row["name"]))
    most = {key: max((row["sums"].get(key, 0.0) for row in found), default=0.0) for key in keys}
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


def _rows(site: Site, request: Request, by: str, since: float | None) -> List[Dict[str, Any]]:
    found: Sequence[Mapping[str, Any]] = site.index.usage(by, since, site.viewer(request))
    rows = []
    for item in found:
        sums = {
            name: float(value)
            for name, value in item.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        sums.setdefault("jobs", 0.0)
        rows.append({"name": str(item.get("name") or ""), "sums": sums})
    return rows


def _since(request: Request) -> float | None:
    try:
        return read_moment(request.query_params.get("since") or DEFAULT)
    except BadQuery as error:
        raise Problem(400, "This address asks for something odd", str(error)) from error
