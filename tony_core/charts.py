"""Metrics as charts: one picture for a job's page, the portal and what is exported. Pure.

A chart is whole without a script: lines, the range, the newest value. Its lines stand on a grid of
:data:`GRID` steps in both directions, and ``data-`` attributes say what the grid's ends mean, so
that ``static/page.js`` zooms by the ``viewBox`` alone and finds the values again.
"""

from __future__ import annotations

from bisect import bisect_right
from html import escape
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from tony_core import measures
from tony_core.jsontext import is_number

CHARTS = 12
LINES = 8  # of a job's chart; and as many colours has the style
GRID = 1_000_000
_MARGIN = 30_000  # above the highest and below the lowest point
_POINTS = 1000  # of one line

OTHER = f"c{LINES}"  # the style of a line that the legend does not name

Points = Sequence[Tuple[float, float]]
MEASURED = (
    *(measures.RSS_MB, measures.PEAK_RSS_MB, measures.CPU_PERCENT, measures.CPU_S),
    *(measures.PROCESSES, measures.THREADS, measures.PEAK_THREADS),
    *(measures.PROGRESS, measures.STEP, measures.SAVED, measures.HEARTBEAT_GAP_S),
)


def draw_charts(
    tasks: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Any],
    most: int = CHARTS,
    all_url: str = "api/metrics",
    breaks: Sequence[float] = (),
) -> str:
    """The legend and the charts of ``/api/metrics``; empty where nothing can be drawn.

    ``breaks``: when further sessions began. Their values are lines of their own.
    """
    by_name: Dict[str, Dict[str, Any]] = {}
    for task, series in _mapping(metrics.get("task")).items():
        for name, points in _mapping(series).items():
            if isinstance(points, (list, tuple)) and len(points) > 1:
                by_name.setdefault(name, {})[task] = points
    if not by_name:
        return ""
    drawn = _choose_tasks(tasks, by_name)
    names = sorted(by_name, key=lambda name: (name in MEASURED, name))[:most]
    charts = "".join(_chart(name, by_name[name], drawn, breaks) for name in names)
    rest = len(set(_mapping(metrics.get("latest"))).union(*by_name.values())) - len(drawn)
    return f'{_legend(drawn, rest, all_url)}<div class="charts">{charts}</div>'


def tasks_to_draw(
    tasks: Sequence[Mapping[str, Any]], latest: Mapping[str, Mapping[str, Any]]
) -> List[str]:
    """The tasks whose points :func:`draw_charts` needs, by the names of all tasks' metrics."""
    by_name: Dict[str, Dict[str, Any]] = {}
    for task, values in latest.items():
        for name in values:
            by_name.setdefault(name, {})[task] = ()
    if not by_name:
        return []
    drawn = _choose_tasks(tasks, by_name)
    others = (min(found) for found in by_name.values() if not found.keys() & set(drawn))
    return list(dict.fromkeys((*drawn, *others)))


def read_points(value: Any) -> Points:
    """The pairs of finite numbers in it, at most a thousand: damage may stand in a history."""
    if not isinstance(value, (list, tuple)):
        return ()
    stride = -(-len(value) // _POINTS) or 1
    return [
        (float(point[0]), float(point[1]))
        for point in value[::stride]
        if isinstance(point, (list, tuple))
        and len(point) == 2
        and is_number(point[0])
        and is_number(point[1])
    ]


def line_style(number: int) -> str:
    """The classes of a line and of its mark in a legend: the colours, then the same ones dashed,
    then dotted. For up to three times :data:`LINES`."""
    dashes, colour = divmod(number, LINES)
    return f"c{colour}" + (f" d{dashes}" if dashes else "")


def _choose_tasks(
    tasks: Sequence[Mapping[str, Any]], by_name: Mapping[str, Mapping[str, Any]]
) -> List[str]:
    """The tasks that are lines, the same ones and in the same colours in all charts: those
    that report something of their own before those that are only measured."""
    measured = set().union(*by_name.values())
    reporting = set().union(*(by_name[name] for name in by_name if name not in MEASURED))
    known = [str(task["task"]) for task in tasks]
    known = [task for task in known if task in measured] or sorted(measured)
    chosen = set(sorted(known, key=lambda task: task not in reporting)[:LINES])
    return [task for task in known if task in chosen]


def _legend(drawn: Sequence[str], rest: int, url: str) -> str:
    items = "".join(
        f'<li><i class="{line_style(number)}"></i>{escape(task)}</li>'
        for number, task in enumerate(drawn)
    )
    more = f'<li class="soft">and {rest} more: <a href="{escape(url)}">all</a></li>' if rest else ""
    return f'<ul class="legend mono">{items}{more}</ul>'


def _chart(
    name: str, found: Mapping[str, Any], drawn: Sequence[str], breaks: Sequence[float] = ()
) -> str:
    chosen = [(line_style(number), task) for number, task in enumerate(drawn) if task in found]
    if not chosen:  # only by tasks that are no lines: one of them, in no task's colour
        chosen = [(OTHER, min(found))]
    lines = [(style, task, read_points(found[task])) for style, task in chosen]
    lines = [line for line in lines if line[2]]
    return draw_chart(name, lines, breaks=breaks) if lines else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _parts(points: Points, breaks: Sequence[float]) -> List[Points]:
    """The points between the breaks, which are in order; a part of none is left out."""
    parts: Dict[int, List[Tuple[float, float]]] = {}
    for point in points:
        parts.setdefault(bisect_right(breaks, point[0]), []).append(point)
    return [parts[number] for number in sorted(parts)]


def draw_chart(
    name: str,
    lines: Sequence[Tuple[str, str, Points]],
    across: str = "time",
    breaks: Sequence[float] = (),
) -> str:
    """One chart of ``(style, label, points)`` lines (:func:`line_style`); ``across``: what a
    point's first number is, ``time`` or ``day`` (since the epoch), ``seconds`` or ``step``."""
    starts = [point[0] for *_, points in lines for point in points]
    values = [point[1] for *_, points in lines for point in points]
    low, high = min(values), max(values)
    first, width = min(starts), (max(starts) - min(starts)) or 1.0
    height = (high - low) or 1.0
    paths, breaks = [], sorted(breaks)
    for style, label, points in lines:
        for part, some in enumerate(_parts(points, breaks)):
            path = " ".join(
                f"{(at - first) / width * GRID:.0f},{GRID - (value - low) / height * GRID:.0f}"
                for at, value in some
            )
            # Only the first part has a title: so page.js knows that the others are of that line.
            title = f"<title>{escape(label)}: {points[-1][1]:.6g}</title>" if not part else ""
            paths.append(f'<polyline class="{style}" points="{path}">{title}</polyline>')
    style, label, points = lines[0]
    title = escape(name)
    box = f"0 {-_MARGIN} {GRID} {GRID + 2 * _MARGIN}"
    return (
        f'<div class="chart"><b>{title}</b> <span class="range soft">{low:.4g} … {high:.4g}'
        f'</span><p class="now"><i class="{style}"></i><span class="soft">{escape(label)}</span>'
        f" {points[-1][1]:.5g}</p>"
        f'<svg viewBox="{box}" preserveAspectRatio="none" role="img"'
        f' aria-label="{title} from {low:.4g} to {high:.4g}"'
        f' data-across="{across}" data-first="{first!r}" data-width="{width!r}"'
        f' data-low="{low!r}" data-height="{height!r}">{"".join(paths)}</svg></div>'
    )
