"""When a job that no master ended was last seen alive. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import LATEST, seconds


def last_seen(record: JobHistory, until: float = LATEST) -> float:
    """The newest time that a history has of its job; 0 where it has none.

    A line of the story, a point of a metric, the begin or end of a task: whatever is newest. A time
    after ``until`` is damage, or another machine's clock, and does not count.
    """
    return max((at for at in _times(record) if at <= until), default=0.0)


def _times(record: JobHistory) -> Iterator[float]:
    yield seconds(record.seen)
    for name in ("submitted", "started"):
        yield seconds(record.job.get(name))
    for task in record.tasks:
        if isinstance(task, dict):
            yield seconds(task.get("started"))
            yield seconds(task.get("ended"))
    for event in record.events:
        if isinstance(event, dict):
            yield seconds(event.get("time"))
    for metrics in _values(record.metrics.get("task")):
        for points in _values(metrics):
            if isinstance(points, (list, tuple)):
                for point in points[-1:]:
                    if isinstance(point, (list, tuple)) and point:
                        yield seconds(point[0])


def _values(found: Any) -> Iterator[Any]:
    return iter(found.values() if isinstance(found, Mapping) else ())
