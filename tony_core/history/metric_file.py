"""The metric series of a job that has ended, as a file: a line for each task.

A line is ``{"task": name, "latest": {metric: value}, "points": {metric: [[time, value], ...]}}``,
in this order. Nearly all of it is points, so to draw a few of a thousand tasks the heads of all
lines and the points of those few are parsed; and the page's JSON is made of the bytes unparsed.

Lines are read with suspicion: in a place that users share, a file holds what its owner likes.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Tuple, Union

from tony_core.history.layout import METRICS
from tony_core.jsontext import may_be_odd, read_object, write_value

Latest = Mapping[str, Mapping[str, Any]]  # by task, of each of its metrics the newest value
Choose = Callable[[Latest], Collection[str]]
"""Chooses the tasks whose points are wanted, by all tasks' newest values."""

Wanted = Union[bool, Choose]
"""Which metric series a reader wants: all, none, or those of some tasks."""

_HEAD, _LATEST, _POINTS = b'{"task":', b',"latest":', b',"points":'


def encode_series(metrics: Mapping[str, Any]) -> bytes:
    """Encode what ``/api/metrics`` answers as the file."""
    series, latest = _mapping(metrics.get("task")), _mapping(metrics.get("latest"))
    return b"".join(
        _HEAD + _encode(task)
        + _LATEST + _encode(_mapping(latest.get(task)))
        + _POINTS + _encode(_mapping(series.get(task))) + b"}\n"
        for task in {**series, **latest}
    )  # fmt: skip


def decode_series(data: bytes, wanted: Wanted = True) -> Tuple[Dict[str, Any], List[str]]:
    """What ``/api/metrics`` answers, and what could not be read.

    The newest values are those of all tasks, the points those of the tasks that are wanted.
    """
    problems: List[str] = []
    latest: Dict[str, Dict[str, Any]] = {}
    lines: Dict[str, Tuple[int, bytes]] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            head = read_object(line[: line.index(_POINTS)] + b"}")
            task, values = head.get("task"), head.get("latest")
            if not isinstance(task, str) or not isinstance(values, dict):
                raise ValueError("no task")
        except ValueError:
            problems.append(_problem(number))
            continue
        latest[task] = values
        lines[task] = (number, line)
    chosen = set(wanted(latest)) if callable(wanted) else lines if wanted else ()
    series: Dict[str, Dict[str, Any]] = {}
    for task, (number, line) in lines.items():
        if task not in chosen:
            continue
        try:
            points = read_object(line).get("points")
            if not isinstance(points, dict):
                raise ValueError("no points")
            series[task] = points
        except ValueError:
            problems.append(_problem(number))
    return {"task": series, "latest": latest}, problems


def page_json(data: bytes) -> bytes:
    """The bytes that ``/api/metrics`` answers, of the file's; a line cut short is left out.

    Where the file may hold what has to be read first, it is.
    """
    if may_be_odd(data):
        return _encode(decode_series(data)[0])
    tasks: List[bytes] = []
    newest: List[bytes] = []
    for task, latest, points in _parts(data):
        tasks.append(task + b":" + points)
        newest.append(task + b":" + latest)
    return b'{"task":{' + b",".join(tasks) + b'},"latest":{' + b",".join(newest) + b"}}"


def _parts(data: bytes) -> Iterator[Tuple[bytes, bytes, bytes]]:
    for line in data.split(b"\n"):
        head, found, points = line.partition(_POINTS)
        task, also, latest = head.partition(_LATEST)
        if found and also and task.startswith(_HEAD) and points.endswith(b"}}"):
            yield task[len(_HEAD) :], latest, points[:-1]


def _problem(number: int) -> str:
    return f"{METRICS}:{number}: not a whole task's metrics, left out"


def _encode(data: Any) -> bytes:
    return write_value(data).encode()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
