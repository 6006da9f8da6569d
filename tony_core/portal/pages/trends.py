"""One pipeline over time: ``/trends?pipeline=NAME`` or ``?tag=TAG``; without both, which there are.

Names the runs that changed something (:mod:`tony_core.history.trends`), with what changed in their
configurations. The runs are of one owner, for anyone may give his jobs another's tags: of ``user``,
else of the viewer, else of who has most of them. ``user=*`` takes those of all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.charts import draw_chart, line_style
from tony_core.durations import show_duration
from tony_core.history.figures import name_figure
from tony_core.history.trends import (
    NEIGHBOURS,
    Run,
    Shift,
    Trend,
    Trends,
    config_changes,
    find_trends,
)
from tony_core.portal.formats import show_amount, show_number
from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import JobRow
from tony_core.portal.pages.compare import read_config
from tony_core.portal.query import read_moment
from tony_core.portal.site import Problem, Site, check_query, json_answer

SPANS = (("7d", "Last week"), ("30d", "Last month"), ("90d", "Last 90 days"), ("all", "All time"))
DEFAULT = "90d"
EXPLAINED = 5  # of the runs that changed something, the newest: their configurations are read
LISTED = 100  # runs in the table
PIPELINES = 500
EVERYONE = "*"
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


class Change(NamedTuple):
    """A run that changed something."""

    row: JobRow
    shifts: Tuple[Tuple[str, Shift], ...]
    config: Tuple[Tuple[str, Optional[str], Optional[str]], ...]
    is_config_known: bool


class Asked(NamedTuple):
    """What a URL asks for."""

    pipeline: str
    tag: str
    since: str
    user: str

    @property
    def query(self) -> Dict[str, str]:
        """What an address needs to ask for the same."""
        return {"pipeline": self.pipeline, "tag": self.tag, "user": self.user}

    @property
    def name(self) -> str:
        """What the page is about."""
        return self.pipeline or self.tag


def routes(site: Site) -> List[Route]:
    """``/trends`` and ``/api/trends``."""
    return [
        Route("/trends", lambda request: show_trends(site, request)),
        Route("/api/trends", lambda request: json_answer(trends_json(site, request))),
    ]


def show_trends(site: Site, request: Request) -> Response:
    """The page of a pipeline, or of all pipelines."""
    asked = _asked(request)
    if not asked.name:
        return _show_pipelines(site, request, asked)
    asked, owners = _choose_owner(site, request, asked)
    rows, found = _find(site, request, asked)
    changes = _changes(site, request, rows, found)
    return site.render(
        request,
        "trends.html",
        asked=asked,
        owners=owners,
        everyone=EVERYONE,
        spans=SPANS,
        found=found,
        rows=list(enumerate(rows))[: -LISTED - 1 : -1],
        runs=len(rows),
        names=name_figure,
        changes=changes,
        changed={change.row.app_id: number for number, change in enumerate(changes, 1)},
        charts=_charts(found),
        columns=[trend.name for trend in found.trends][:8],
        values=show_value,
    )


def trends_json(site: Site, request: Request) -> Mapping[str, Any]:
    """The same for programs."""
    check_query(request, "pipeline", "tag", "since", "user")
    asked = _asked(request)
    if not asked.name:
        raise Problem(400, "Odd address", "expected pipeline=NAME or tag=TAG")
    asked, owners = _choose_owner(site, request, asked)
    rows, found = _find(site, request, asked)
    changes = [
        {
            "app_id": change.row.app_id,
            "location": change.row.location,
            "is_config_known": change.is_config_known,
            "config": [
                {"name": key, "before": before, "after": after}
                for key, before, after in change.config
            ],
        }
        for change in _changes(site, request, rows, found)
    ]
    return {**asked.query, "users": list(owners), **found.to_json(), "changes": changes}


def show_value(figure: str, value: Optional[float]) -> str:
    """A figure's value for people."""
    if figure.endswith("_s"):
        return show_duration(value)
    return show_amount(value, 3) if "_hours" in figure else show_number(value, 3)


# ------------------------------------------------------------------ what is asked, what is found


def _asked(request: Request) -> Asked:
    params = request.query_params
    return Asked(
        params.get("pipeline", "").strip()[:500],
        params.get("tag", "").strip()[:500],
        params.get("since") or DEFAULT,
        params.get("user", "").strip()[:500],
    )


def _since(asked: Asked) -> float:
    try:
        return read_moment(asked.since) or 0.0
    except BadQuery as error:
        raise Problem(400, "This address asks for something odd", str(error)) from error


def _show_pipelines(site: Site, request: Request, asked: Asked) -> Response:
    usage = site.index.usage("pipeline", site.viewer(request), _since(asked))
    found = sorted((item for item in usage if item.key), key=lambda item: -item.last)
    return site.render(
        request, "pipelines.html", asked=asked, spans=SPANS, pipelines=found[:PIPELINES]
    )


def _choose_owner(site: Site, request: Request, asked: Asked) -> Tuple[Asked, Tuple[str, ...]]:
    """What is asked for with the owner whose runs are meant, and all owners of some, most first."""
    viewer = site.viewer(request)
    known = (asked.pipeline, asked.tag, _since(asked))
    counts = Counter(row.owner for row in site.index.runs(viewer, *known))
    owners = [owner for owner, _ in counts.most_common()]
    user = asked.user
    if not user and viewer.name not in counts and site.index.runs(viewer, *known, viewer.name):
        owners.append(viewer.name)  # he has older ones
    if not user:
        user = viewer.name if viewer.name in owners else (owners[0] if owners else "")
    return asked._replace(user=user), tuple(owners)


def _find(site: Site, request: Request, asked: Asked) -> Tuple[Sequence[JobRow], Trends]:
    """The rows, in the order of the trends' runs."""
    viewer = site.viewer(request)
    owner = "" if asked.user == EVERYONE else asked.user
    rows = site.index.runs(viewer, asked.pipeline, asked.tag, _since(asked), owner)
    by_key = {(row.location, row.app_id): row for row in rows}
    found = find_trends(
        [Run(row.app_id, row.location, row.submitted, row.state, row.figures) for row in rows]
    )
    return [by_key[run.location, run.app_id] for run in found.runs], found


def _changes(
    site: Site, request: Request, rows: Sequence[JobRow], found: Trends
) -> Tuple[Change, ...]:
    """The runs that changed something, the newest first."""
    known: Dict[int, Optional[Mapping[str, str]]] = {}
    changes: List[Change] = []
    for at, shifts in reversed(found.shifts().items()):
        # Of the run before, those that this measure is of: a run that failed says less.
        places = [place for place, _ in _trend(found, shifts[0][0]).values]
        middle = places.index(at)
        before = places[max(0, middle - NEIGHBOURS) : middle]
        after = places[middle : middle + NEIGHBOURS]
        if len(changes) < EXPLAINED:
            for place in (*before, *after):
                if place not in known:
                    known[place] = _config(site, request, rows[place])
        sides = [[known[each] for each in side if known.get(each)] for side in (before, after)]
        old, new = ([config for config in side if config is not None] for side in sides)
        # Without that of the run itself, or of the one before it, nothing is known of the change.
        is_known = bool(known.get(at)) and bool(known.get(before[-1]))
        config = config_changes(old, new) if is_known else ()
        changes.append(Change(rows[at], shifts, config, is_known))
    return tuple(changes)


def _trend(found: Trends, name: str) -> Trend:
    return next(trend for trend in found.trends if trend.name == name)


def _config(site: Site, request: Request, row: JobRow) -> Optional[Mapping[str, str]]:
    return read_config(site.open_source(row, site.viewer(request)), [])


def _charts(found: Trends) -> Markup:
    """A chart for each measure, with what is typical between the shifts as a second line."""
    charts = []
    for trend in found.trends:
        if len(trend.values) < 2:
            continue
        unit, size = _unit(trend)
        when = [run.submitted for run in found.runs]
        lines = [(line_style(0), "runs", [(when[at], value / size) for at, value in trend.values])]
        if trend.shifts:
            level = [
                (when[at], value / size)
                for begin, end, value in trend.levels()
                for at in (begin, end)
            ]
            lines.append((line_style(1), "typical", level))
        name = name_figure(trend.name)
        charts.append(draw_chart(f"{name}, {unit}" if unit else name, lines, "day"))
    return Markup("".join(charts))  # noqa: S704 - escaped by draw_chart


def _unit(trend: Trend) -> Tuple[str, float]:
    """The unit in which a duration is drawn, and its seconds."""
    if not trend.name.endswith("_s"):
        return "", 1.0
    largest = max(value for _, value in trend.values)
    return next((name, size) for name, size in UNITS if largest >= 2 * size or size == 1.0)
