"""The metric series of a running job as lines of a file, and made again of them.

A line is ``{"points": [[task, time, {metric: value}], ...]}``: what the series took since the line
before (:class:`~tony_core.history.metric_series.Kept`). A fourth element names the series that
were thinned then, so that a reader thins his own in the same places: the lines of an hour or
a month give the very series that the master had. A series of n values takes some log(n) points, so
the files stay small, too.

Lines are read with suspicion: in a place that users share, a file holds what its owner likes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Collection, Iterable, List, Mapping, Tuple

from tony_core.history.metric_series import Kept, SeriesStore
from tony_core.jsontext import is_number, read_object

MOST_SERIES = 1_000_000  # of one job: more are damage


def encode_points(points: Iterable[Tuple[str, Kept]]) -> bytes:
    """Encode what the series took as a line without its end; empty where that is nothing."""
    found: List[Any] = []
    for task, kept in points:
        if kept.thinned:
            found.append([task, kept.at, kept.taken, kept.thinned])
        elif kept.taken:
            found.append([task, kept.at, kept.taken])
    return json.dumps({"points": found}, separators=(",", ":")).encode() if found else b""


def replay(store: SeriesStore, line: bytes) -> None:
    """Add a line's points to the series; raises ValueError where it is no line of points."""
    points = read_object(line).get("points")
    if not isinstance(points, list):
        raise ValueError("no points")
    for point in points:
        _take(store, point)


def replay_tasks(store: SeriesStore, data: bytes, tasks: Collection[str]) -> None:
    """Add the points that a file has of some tasks, and parse no others; damage is left out."""
    if not tasks:
        return
    text = data.decode("utf-8", "replace")
    # In a text a quote has a backslash before it, so this is an element of a list.
    names = "|".join(re.escape(json.dumps(task)) for task in tasks)
    decoder = json.JSONDecoder()
    for match in re.finditer(rf"\[(?:{names}),(?=[0-9-])", text):
        try:
            _take(store, decoder.raw_decode(text, match.start())[0])
        except (ValueError, RecursionError):
            continue


def _take(store: SeriesStore, point: Any) -> None:
    """Add one point; raises ValueError where it is none."""
    if not isinstance(point, list) or len(point) not in (3, 4):
        raise ValueError("an odd point")
    task, at, values = point[:3]
    if not isinstance(task, str) or not is_number(at, 1e15) or not isinstance(values, dict):
        raise ValueError("an odd point")
    for name, value in values.items():
        if is_number(value) and store.count < MOST_SERIES:
            store.series(task, name).take(float(at), float(value))
    for name in point[3] if len(point) == 4 and isinstance(point[3], list) else ():
        if isinstance(name, str) and store.count < MOST_SERIES:
            series = store.series(task, name)
            if len(series.times) > 1:  # no master thins others
                series.thin()


def set_latest(store: SeriesStore, latest: Mapping[str, Any]) -> None:
    """Note newer values than the points have: ``{task: [time, {metric: value}]}``."""
    for task, found in latest.items():
        if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], dict):
            continue
        at, values = found
        for name, value in values.items():
            if is_number(at, 1e15) and is_number(value) and store.count < MOST_SERIES:
                series = store.series(task, name)
                if series.last is None or series.last[0] < at:
                    series.last = (float(at), float(value))
