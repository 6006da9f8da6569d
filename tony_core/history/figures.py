"""The numbers of a job that lists, sums, trends and comparisons share. Pure.

Of one job, by name. What is not known is left out, and all numbers are finite:

* ``duration_s`` (of a job that has ended), and the seconds of the phases of its time line:
  ``queued_s``, ``preparing_s``, ``staging_s``, ``starting_s``, ``running_s``, ``lost_s``,
  ``stopping_s``, ``pausing_s``
* ``waiting_s``: how long the scheduler let it wait, for its master (``queued_s``) and then for
  containers
* ``sessions``, ``restarts`` (of sessions and of single tasks), ``tasks``
* ``gpu_hours``, ``memory_gb_hours``, ``vcore_hours``: what was asked for, times how long its
  containers were held
* ``gpu_hours_used``, ``memory_gb_hours_used``, ``vcore_hours_used``: by what was measured;
  ``gpu_hours_wasted``, ``memory_gb_hours_wasted``, ``vcore_hours_wasted``: the rest
* ``result.NAME``: the numbers of ``tony.result()``; ``metric.NAME``: what the chief reported last

What was asked for is in the ``roles`` of the job's view; without them (an older history) there are
no hours. Which pipeline a job belongs to is in its tags: :func:`pipeline_of`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Any, Dict, Iterable, Mapping, Optional

from tony_core.history.metric_points import Points, chief_of, points_of
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import QUEUED, RUNNING, WAITING, Bar, Span
from tony_core.history.timeline import Timeline, timeline
from tony_core.jsontext import is_number
from tony_core.measures import CPU_PERCENT, CPU_S, GPU_PERCENT, PEAK_RSS_MB, RSS_MB

HOUR_S = 3600.0
MB_OF_GB = 1024.0
MOST = 50  # numbers of a result, and reported ones
LONGEST = 100  # characters of a name
NAMES = {
    "duration_s": "duration", "waiting_s": "waited", "lost_s": "lost by restarts",
    "gpu_hours": "GPU hours", "gpu_hours_used": "GPU hours used",
    "gpu_hours_wasted": "GPU hours wasted", "memory_gb_hours": "memory GB h",
    "memory_gb_hours_used": "memory GB h used", "memory_gb_hours_wasted": "memory GB h wasted",
    "vcore_hours": "core hours", "vcore_hours_used": "core hours used",
    "vcore_hours_wasted": "core hours wasted",
}  # fmt: skip
#: Azkaban's plugin adds a check sum to a name with capital letters.
_CHECK_SUM = re.compile(r"~[0-9a-f]{8}$", re.ASCII)
_TAGS = {
    "airflow.dag": "dag",
    "airflow.task": "task",
    "airflow.map": "map",
    "azkaban.flow.projectname": "project",
    "azkaban.flow.flowid": "flow",
    "azkaban.job": "job",
}


def pipeline_of(tags: Iterable[Any]) -> str:
    """``airflow:DAG.task`` (with ``[INDEX]`` where it is mapped), ``azkaban:project/flow.job``.

    Empty for a job of neither, and where tags that would name it are missing.
    """
    found: Dict[str, str] = {}
    for tag in tags:
        key, colon, value = str(tag).partition(":")
        name = _TAGS.get(key.lower())
        if colon and name and value:
            found.setdefault(name, value)
    if "dag" in found and "task" in found:
        mapped = f"[{found['map']}]" if "map" in found else ""
        return f"airflow:{found['dag']}.{found['task']}{mapped}"
    if "flow" in found and "job" in found:
        project = f"{found['project']}/" if "project" in found else ""
        return f"azkaban:{project}{found['flow']}.{_CHECK_SUM.sub('', found['job'])}"
    return ""


def name_figure(figure: str) -> str:
    """A figure's name for people: ``loss`` of ``metric.loss``, ``loss (result)`` of the result."""
    kind, dot, own = figure.partition(".")
    if dot and kind in ("result", "metric"):
        return f"{own} (result)" if kind == "result" else own
    return NAMES.get(figure, figure)


def job_figures(record: JobHistory, line: Optional[Timeline] = None) -> Dict[str, float]:
    """Of one job, by name; ``line`` is its time line, where that is there already."""
    line = timeline(record) if line is None else line
    found: Dict[str, float] = {}
    if line.is_over:
        found["duration_s"] = line.end - line.begin
    sums = line.sums()
    found.update({f"{kind}_s": seconds for kind, seconds in sums.items()})
    if QUEUED in sums or WAITING in sums:
        found["waiting_s"] = sums.get(QUEUED, 0.0) + sums.get(WAITING, 0.0)
    tasks = [task for task in record.tasks if isinstance(task, dict)]
    if line.sessions:
        found["sessions"] = float(len(line.sessions))
        again = sum(marker.kind == "task-again" for marker in line.markers)
        found["restarts"] = float(len(line.sessions) - 1 + again)
    elif is_number(record.job.get("session"), 1e9) and record.job["session"] >= 0:
        found["sessions"] = float(record.job["session"]) + 1.0
        found["restarts"] = float(record.job["session"])
    if tasks:
        found["tasks"] = float(len(tasks))
    found.update(_hours(record, line))
    found.update(_numbers("result.", record.job.get("result")))
    chief = chief_of(record)
    for task in tasks:
        if str(task.get("task")) == chief:
            found.update(_numbers("metric.", task.get("reported")))
    return {name: round(value, 9) for name, value in found.items() if is_number(value)}


def _numbers(prefix: str, value: Any) -> Dict[str, float]:
    """The numbers of a result, one level of names deep."""
    if is_number(value):
        return {prefix + "value": float(value)}
    found: Dict[str, float] = {}
    for name, each in value.items() if isinstance(value, dict) else ():
        if is_number(each) and len(found) < MOST:
            found[prefix + str(name)[:LONGEST]] = float(each)
    return found


# ------------------------------------------------------------------ hours


class _Sums:
    """What was asked for and used of one resource."""

    def __init__(self) -> None:
        self.asked = self.used = 0.0
        self.has_used = False

    def add(self, asked: float, used: Optional[float]) -> None:
        self.asked += asked
        if used is not None:
            self.used += used
            self.has_used = True


def _hours(record: JobHistory, line: Timeline) -> Dict[str, float]:
    roles = record.job.get("roles")
    if not isinstance(roles, dict):
        return {}
    sums = {"gpu_hours": _Sums(), "memory_gb_hours": _Sums(), "vcore_hours": _Sums()}
    records = {str(task.get("task")): task for task in record.tasks if isinstance(task, dict)}
    for bar in line.bars:
        asked = roles.get(bar.role)
        if isinstance(asked, dict):
            _add_task(sums, record, bar, records.get(bar.task, {}), asked)
    found: Dict[str, float] = {}
    for name, each in sums.items():
        found[name] = each.asked
        if each.has_used:
            found[f"{name}_used"] = each.used
            found[f"{name}_wasted"] = max(0.0, each.asked - each.used)
    return found


def _add_task(
    sums: Mapping[str, _Sums],
    record: JobHistory,
    bar: Bar,
    task: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> None:
    held_h, running_h = bar.held_s / HOUR_S, bar.running_s / HOUR_S
    gpus, memory_mb, vcores = (
        max(0.0, float(asked[name])) if is_number(asked.get(name), 1e12) else 0.0
        for name in ("gpus", "memory_mb", "vcores")
    )
    busy = _mean(points_of(record, bar.task, GPU_PERCENT), bar.spans) if gpus else None
    sums["gpu_hours"].add(
        gpus * held_h,
        None if busy is None else gpus * running_h * min(max(busy, 0.0), 100.0) / 100,
    )
    usage = task.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    rss = _mean(points_of(record, bar.task, RSS_MB), bar.spans)
    if rss is None and is_number(usage.get(PEAK_RSS_MB), 1e12):
        rss = float(usage[PEAK_RSS_MB])  # too short for a sample: its largest
    gb_h = None if rss is None else max(0.0, rss) / MB_OF_GB * running_h
    sums["memory_gb_hours"].add(memory_mb / MB_OF_GB * held_h, gb_h)
    percent = _mean(points_of(record, bar.task, CPU_PERCENT), bar.spans)
    cores_h = None if percent is None else max(0.0, percent) / 100 * running_h
    if cores_h is None and is_number(usage.get(CPU_S), 1e12):
        cores_h = max(0.0, float(usage[CPU_S])) / HOUR_S
    sums["vcore_hours"].add(vcores * held_h, cores_h)


def _mean(points: Points, spans: Iterable[Span]) -> Optional[float]:
    """The mean of what was measured while its program ran."""
    times = [at for at, _ in points]
    total, count = 0.0, 0
    for span in spans:
        if span.kind == RUNNING:
            inside = points[bisect_left(times, span.begin) : bisect_right(times, span.end)]
            total += sum(value for _, value in inside)
            count += len(inside)
    return total / count if count else None
