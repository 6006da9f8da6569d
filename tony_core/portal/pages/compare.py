"""Jobs side by side: ``/compare?job=ID&job=ID``, a job of one location as ``job=LOCATION/ID``."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.charts import draw_chart, line_style
from tony_core.history.compare import (
    BY_SECONDS,
    BY_STEP,
    FEWEST,
    MOST,
    Compared,
    Comparison,
    compare,
    tasks_to_compare,
)
from tony_core.history.figures import name_figure
from tony_core.history.metric_file import Latest
from tony_core.history.story_lines import PHASES
from tony_core.portal.bars import Strip, draw_sums
from tony_core.portal.index.rows import JobRow
from tony_core.portal.site import Problem, Site, check_query, json_answer

#: How metrics may be aligned, as a URL and the command line say it; empty: as each allows.
BY = {"": "", "step": BY_STEP, "time": BY_SECONDS}


class Column(NamedTuple):
    """One of the jobs, as its column is headed."""

    mark: str
    style: str  # of its lines
    row: JobRow
    key: str  # as the URL names it
    phases: Strip


class Opened(NamedTuple):
    """What was compared."""

    rows: Tuple[JobRow, ...]
    keys: Tuple[str, ...]
    found: Comparison
    problems: Tuple[str, ...]


def routes(site: Site) -> List[Route]:
    """``/compare`` and ``/api/compare``."""

    def api(request: Request) -> Response:
        check_query(request, "job", "by")
        opened = _open(site, request)
        return json_answer({**opened.found.to_json(), "problems": list(opened.problems)})

    return [
        Route("/compare", lambda request: show_comparison(site, request)),
        Route("/api/compare", api),
    ]


def show_comparison(site: Site, request: Request) -> Response:
    """The page."""
    named = _keys(request)
    if len(named) < FEWEST:
        for key in named:
            find_row(site, request, key)
        return site.render(
            request, "compare_none.html", fewest=FEWEST, most=MOST, chosen=len(named)
        )
    rows, keys, found, problems = _open(site, request)
    longest = max((sum(_numbers(found, at)) for at in range(len(rows))), default=0.0)
    columns = [
        Column(
            chr(ord("A") + at),
            line_style(at),
            row,
            keys[at],
            draw_sums(dict(zip(PHASES, _numbers(found, at), strict=True)), longest),
        )
        for at, row in enumerate(rows)
    ]
    return site.render(
        request,
        "compare.html",
        columns=columns,
        found=found,
        names=name_figure,
        words=PHASES,
        problems=problems,
        charts=_charts(columns, found),
        keys=keys,
        by=request.query_params.get("by", ""),
        choices=[(name, name) for name in BY],
        lost_known=all(job["lost_known"] for job in found.jobs),
        unknown=[columns[at].mark for at in found.unknown_configs],
    )


def _numbers(found: Comparison, job: int) -> List[float]:
    by_name = {row.name: row.values[job] or 0.0 for row in found.phases}
    return [by_name.get(kind, 0.0) for kind in PHASES]


def _charts(columns: Sequence[Column], found: Comparison) -> Markup:
    """Each metric of all jobs in one chart; :func:`draw_chart` escapes what it is given."""
    charts = []
    for metric in found.metrics:
        lines = [
            (columns[curve.job].style, f"{columns[curve.job].mark} {curve.task}", curve.points)
            for curve in metric.curves
            if len(curve.points) > 1
        ]
        if lines:
            charts.append(draw_chart(metric.name, lines, metric.across))
    return Markup("".join(charts))  # noqa: S704


def _keys(request: Request) -> List[str]:
    """The jobs that are named, each once; raises :class:`Problem`."""
    given = [key for key in request.query_params.getlist("job") if key]
    if len(given) > MOST:
        raise _unfit(f"{len(given)} jobs are named; choose {FEWEST} to {MOST} in the list of jobs.")
    for number, key in enumerate(given):
        if key in given[:number]:
            raise _unfit(f"The job {key} is named twice.")
    return given


def _unfit(text: str) -> Problem:
    return Problem(400, "These jobs cannot be compared", text)


def _open(site: Site, request: Request) -> Opened:
    keys = _keys(request)
    by = request.query_params.get("by", "")
    if by not in BY:
        raise Problem(400, "Odd address", f"by={by!r}; expected {' or '.join(filter(None, BY))}")
    rows = tuple(find_row(site, request, key) for key in keys)
    if len(rows) < FEWEST:
        raise _unfit(
            f"{len(rows)} job{'' if len(rows) == 1 else 's'} named; choose {FEWEST} to {MOST}."
        )
    problems: List[str] = []
    jobs = [_read(site, request, row, problems) for row in rows]
    return Opened(rows, tuple(keys), compare(jobs, BY[by]), tuple(problems))


def find_row(site: Site, request: Request, key: str) -> JobRow:
    """The job that ``ID`` or ``LOCATION/ID`` names, of those that the viewer may see."""
    location, _, app_id = key.rpartition("/")
    rows = [
        row
        for row in site.index.rows(app_id, site.viewer(request))
        if location in ("", row.location)
    ]
    if len(rows) == 1:
        return rows[0]
    if rows:
        names = ", ".join(f"job={row.location}/{app_id}" for row in rows)
        raise Problem(
            400, f"{len(rows)} jobs have the id {app_id}", f"Name the one that you mean: {names}."
        )
    raise Problem(
        404,
        f"There is no job {key}",
        "It is not in a history that this portal reads, or you may not see it.",
    )


def _read(site: Site, request: Request, row: JobRow, problems: List[str]) -> Compared:
    source = site.open_source(row, site.viewer(request))
    has_figures = bool(row.finished and row.figures)
    try:
        view = source.view()
        tasks = [{"task": task.task, "tracking": task.tracking} for task in view.tasks]

        def choose(latest: Latest) -> Tuple[str, ...]:
            return tasks_to_compare(tasks, latest)

        record = source.record(True, choose if has_figures else True, view)
    except (OSError, LookupError) as error:
        raise Problem(
            503, f"{row.app_id} cannot be read now", f"{str(error) or type(error).__name__}"
        ) from error
    problems += [f"{row.app_id}: {problem}" for problem in record.problems]
    figures = dict(row.figures) if has_figures else None
    return Compared(record._replace(app_id=row.app_id), read_config(source, problems), figures)


def read_config(source: Any, problems: List[str]) -> Mapping[str, str] | None:
    """A job's configuration by key; None where it was not kept, or cannot be read."""
    try:
        found: Dict[str, str] = {entry.key: entry.value for entry in source.config()}
    except (OSError, LookupError, ValueError) as error:
        problems.append(f"{source.row.app_id}: its configuration cannot be read: {error}")
        return None
    return found or None
