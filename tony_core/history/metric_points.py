"""A job's metric series as a reader has them: points that can be counted with, by time or step."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Any, Mapping, NamedTuple, Optional, Tuple

from tony_core.history.reader import JobHistory
from tony_core.job.spec import Tracking
from tony_core.jsontext import is_number
from tony_core.measures import STEP

_FAR = 1e300

Points = Tuple[Tuple[float, float], ...]


def points_of(record: JobHistory, task: str, metric: str) -> Points:
    """The ``(time, value)`` pairs of one metric of one task, in the order of time."""
    return _points(_mapping(_mapping(record.metrics.get("task")).get(task)).get(metric))


def tasks_with(record: JobHistory, metric: str) -> Tuple[str, ...]:
    """The tasks that have a metric, the chief first."""
    series = _mapping(record.metrics.get("task"))
    found = [str(task) for task, known in series.items() if metric in _mapping(known)]
    chief = chief_of(record)
    return tuple(sorted(found, key=lambda task: (task != chief, task)))


def metrics_of(record: JobHistory, task: str) -> Tuple[str, ...]:
    """The names of a task's metrics."""
    return tuple(str(name) for name in _mapping(_mapping(record.metrics.get("task")).get(task)))


def is_measured(record: JobHistory, task: str, metric: str) -> bool:
    """Whether a metric was measured of a task, at its own times, and not reported by it."""
    for entry in record.tasks:
        if str(entry.get("task")) == task:
            known = metric in _mapping(entry.get("measures"))
            return known and metric not in _mapping(entry.get("reported"))
    return False


def chief_of(record: JobHistory) -> str:
    """The task that speaks for a job: its chief, else worker 0, else the first that is tracked."""
    names = [str(task.get("task")) for task in record.tasks]
    for name in ("chief:0", "worker:0"):
        if name in names:
            return name
    tracked = [
        task for task in record.tasks if task.get("tracking", Tracking.TRACKED) == Tracking.TRACKED
    ]
    return str(tracked[0].get("task")) if tracked else ""


class Steps(NamedTuple):
    """A task's steps over time."""

    times: Tuple[float, ...]
    values: Tuple[float, ...]

    def at(self, time: float) -> Optional[float]:
        """The step at a time; between two reports of the same session in proportion."""
        after = bisect_right(self.times, time)
        if not after:
            return None
        begin, step = self.times[after - 1], self.values[after - 1]
        if after == len(self.times) or time <= begin:
            return step
        end, following = self.times[after], self.values[after]
        if following <= step:
            return step  # a next session went on from an earlier step
        return step + (following - step) * (time - begin) / (end - begin)


def steps_of(record: JobHistory, task: str) -> Optional[Steps]:
    """The steps of a task; None where it reported none."""
    points = points_of(record, task, STEP)
    if not points:
        return None
    return Steps(tuple(at for at, _ in points), tuple(step for _, step in points))


def _points(value: Any) -> Points:
    if not isinstance(value, (list, tuple)):
        return ()
    try:
        found = [(at + 0.0, number + 0.0) for at, number in value]
        is_whole = all(-_FAR < at < _FAR and -_FAR < number < _FAR for at, number in found)
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole:
        found = [
            (float(pair[0]), float(pair[1]))
            for pair in value
            if isinstance(pair, (list, tuple))
            and len(pair) == 2
            and is_number(pair[0])
            and is_number(pair[1])
        ]
    found.sort(key=itemgetter(0))
    return tuple(found)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
