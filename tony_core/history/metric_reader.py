"""Reads the metric series of one job: whole after its end, by their points while it runs."""

from __future__ import annotations

from functools import partial
from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple

from tony_core.files.location import join
from tony_core.files.port import FileSystem
from tony_core.history.folder import read_file, segments, take_lines
from tony_core.history.layout import METRICS, POINTS
from tony_core.history.limits import LARGEST, Limits
from tony_core.history.metric_file import Wanted, decode_series
from tony_core.history.metric_log import replay, replay_tasks, set_latest
from tony_core.history.metric_series import SeriesStore


def read_metrics(
    files: FileSystem,
    folder: str,
    latest: Mapping[str, Any],
    grows: bool,
    wanted: Wanted,
    tasks: List[Mapping[str, Any]],
    limits: Limits,
) -> Tuple[Mapping[str, Any], List[str]]:
    """The metric series, and what could not be read; empty where the layout has them elsewhere."""
    for again in (True, False):
        problems: List[str] = []
        try:
            return decode_series(read_file(files, join(folder, METRICS), limits.metrics), wanted)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            problems.append(f"{METRICS}: {error}")
        newest = _newest(tasks) if callable(wanted) else {}
        chosen = wanted(newest) if callable(wanted) else None
        try:
            store = read_points(files, folder, latest, problems, grows, tasks=chosen)
        except FileNotFoundError as error:
            if again:
                continue  # just now replaced by the series of the end
            return {}, [*problems, str(error)]
        break
    if not store.count:
        return {}, problems
    found = store.to_json()
    return {**found, "latest": {**newest, **found["latest"]}}, problems


def read_points(
    files: FileSystem,
    folder: str,
    latest: Mapping[str, Any],
    problems: List[str],
    grows: bool,
    strict: bool = False,
    tasks: Optional[Collection[str]] = None,
) -> SeriesStore:
    """The series by their points, of all tasks or of these. Raises FileNotFoundError; ``strict``:
    any OSError."""
    store = SeriesStore()
    left = LARGEST
    names = segments(folder, files, POINTS)
    for name in names:
        try:
            data = read_file(files, join(folder, name))
        except OSError as error:
            if strict or isinstance(error, FileNotFoundError):
                raise
            problems.append(f"{name}: {error}")
            continue
        left -= len(data)
        if left < 0:
            problems.append(f"{name}: the points are larger than {LARGEST >> 20} MB together")
            break
        if tasks is not None:
            replay_tasks(store, data, tasks)
            continue
        last = grows and name == names[-1]
        problems += take_lines(name, data, partial(replay, store), "line of points", last)
    known = latest if tasks is None else {task: latest[task] for task in tasks if task in latest}
    set_latest(store, known)
    return store


def _newest(tasks: List[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The newest values of a running job's metrics, as the summary has them."""
    return {
        str(task.get("task")): {
            name: value
            for kind in ("measures", "reported")
            for name, value in (task.get(kind) if isinstance(task.get(kind), dict) else {}).items()  # type: ignore[union-attr]
        }
        for task in tasks
    }
