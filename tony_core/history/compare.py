"""Jobs side by side: what differs in their configuration, where their time went, what they cost and
gave, and their metrics over each other. Pure.

Metrics are those of the task that speaks for a job (its chief, else worker 0). What programs report
is aligned by the steps that they reported with it, else by the seconds since they started; so is
what was measured of them, which is sampled by the clock and not by steps. A step that a later
session did again counts as that session did it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from math import floor, isfinite
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.history.figures import job_figures
from tony_core.history.lost_work import tasks_to_measure
from tony_core.history.metric_file import Latest
from tony_core.history.metric_points import (
    Points,
    chief_of,
    is_measured,
    metrics_of,
    points_of,
    steps_of,
    tasks_with,
)
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import LOST, PHASES, RUNNING
from tony_core.history.timeline import Timeline, timeline
from tony_core.job.spec import Tracking
from tony_core.measures import SAVED, STEP

FEWEST, MOST = 2, 20
BY_STEP, BY_SECONDS = "step", "seconds"
_POINTS = 300  # of one curve
_NEARLY = 1e-6  # of a step, that rounding may take from one
_METRICS = 100
_RESULTS = 200
_LONGEST = 2000  # characters of a value of a result
#: The figures that a comparison shows as costs, in this order.
COSTS = (
    "duration_s", "waiting_s", "lost_s", "sessions", "restarts", "tasks",
    "gpu_hours", "gpu_hours_used", "gpu_hours_wasted",
    "memory_gb_hours", "memory_gb_hours_used", "memory_gb_hours_wasted",
    "vcore_hours", "vcore_hours_used", "vcore_hours_wasted",
)  # fmt: skip


class Compared(NamedTuple):
    """One of the jobs."""

    record: JobHistory
    config: Optional[Mapping[str, str]] = None  # None: it was not kept, or cannot be read
    figures: Optional[Mapping[str, float]] = None  # where they are known: else of all metrics


class Row(NamedTuple):
    """Something that the jobs have, with each one's value; None: it has none."""

    name: str
    values: Tuple[Any, ...]

    @property
    def differs(self) -> bool:
        """Whether the jobs have it differently."""
        return any(value != self.values[0] for value in self.values[1:])


class Curve(NamedTuple):
    """One job's metric; the first number of a point is a step or seconds."""

    job: int
    task: str
    points: Points


class MetricRow(NamedTuple):
    """One metric of all jobs."""

    name: str
    across: str  # BY_STEP or BY_SECONDS
    curves: Tuple[Curve, ...]
    last: Tuple[Optional[float], ...]
    at: Optional[float] = None  # the furthest step or second that all of them have; None: no such
    values: Tuple[Optional[float], ...] = ()  # there


class Comparison(NamedTuple):
    """All of it; each row has a value for each job, in the jobs' order."""

    jobs: Tuple[Mapping[str, Any], ...]
    config: Tuple[Row, ...]  # only what differs
    unknown_configs: Tuple[int, ...]  # the jobs whose configuration is not known
    phases: Tuple[Row, ...]
    costs: Tuple[Row, ...]
    results: Tuple[Row, ...]
    metrics: Tuple[MetricRow, ...]
    speed: Tuple[Row, ...] = ()  # where at least two jobs report steps

    def to_json(self) -> Dict[str, Any]:
        """What ``tony compare --json`` and ``/api/compare`` answer."""
        data = {
            name: [row._asdict() for row in getattr(self, name)]
            for name in ("config", "phases", "speed", "costs", "results")
        }
        metrics = [
            {**metric._asdict(), "curves": [curve._asdict() for curve in metric.curves]}
            for metric in self.metrics
        ]
        return {
            "jobs": [dict(job) for job in self.jobs],
            "unknown_configs": list(self.unknown_configs),
            **data,
            "metrics": metrics,
        }


def compare(jobs: Sequence[Compared], across: str = "") -> Comparison:
    """Compare jobs; ``across``: :data:`BY_STEP`, :data:`BY_SECONDS`, or of each metric the better.

    Raises ValueError for fewer or more jobs than can be compared.
    """
    if not FEWEST <= len(jobs) <= MOST:
        raise ValueError(f"{len(jobs)} jobs cannot be compared; expected {FEWEST} to {MOST}")
    records = [job.record for job in jobs]
    lines = [timeline(record) for record in records]
    figures = [
        job_figures(job.record, line) if job.figures is None else job.figures
        for job, line in zip(jobs, lines)
    ]
    sums = [line.sums() for line in lines]
    return Comparison(
        jobs=tuple(_head(record, line) for record, line in zip(records, lines)),
        config=differences([job.config for job in jobs]),
        unknown_configs=tuple(at for at, job in enumerate(jobs) if job.config is None),
        phases=_rows(PHASES, [{kind: found.get(kind, 0.0) for kind in PHASES} for found in sums]),
        costs=_rows(COSTS, figures),
        results=_results(records),
        metrics=_metrics(records, lines, across),
        speed=_speed(records, lines),
    )


def tasks_to_compare(tasks: Sequence[Mapping[str, Any]], latest: Latest) -> Tuple[str, ...]:
    """The tasks whose metrics :func:`compare` needs of a job whose figures are known."""
    named = JobHistory("", tasks=tuple(tasks), metrics={"task": latest})
    names = dict.fromkeys(name for values in latest.values() for name in values)
    speaking = (task for name in names for task in tasks_with(named, name)[:1])
    return tuple(dict.fromkeys((*speaking, chief_of(named), *tasks_to_measure(tasks, latest))))


def differences(configs: Sequence[Optional[Mapping[str, str]]]) -> Tuple[Row, ...]:
    """The keys that jobs have differently, among those whose configuration is known."""
    known = [config for config in configs if config is not None]
    keys = sorted(set().union(*known)) if len(known) > 1 else []
    found: List[Row] = []
    for key in keys:
        if len({config.get(key) for config in known}) > 1:
            values = tuple(None if config is None else config.get(key) for config in configs)
            found.append(Row(key, values))
    return tuple(found)


def _head(record: JobHistory, line: Timeline) -> Dict[str, Any]:
    job = record.job
    texts = ("name", "user", "queue", "framework", "state", "description")
    return {
        "app_id": record.app_id,
        **{name: str(job.get(name) or "") for name in texts},
        "submitted": round(line.begin, 3),
        "is_over": line.is_over,
        "lost_known": line.lost_known,
    }


def _rows(names: Any, found: Sequence[Mapping[str, float]]) -> Tuple[Row, ...]:
    """A row for each name that is known of some job, and not 0 for all."""
    rows = (
        Row(name, tuple(None if name not in each else round(each[name], 6) for each in found))
        for name in names
    )
    return tuple(row for row in rows if any(row.values))


def _speed(records: Sequence[JobHistory], lines: Sequence[Timeline]) -> Tuple[Row, ...]:
    """How fast jobs step, with how many tasks, and the speed-up against the first of them.

    A speed-up of all the growth means that each step's work was shared among the tasks without
    loss. Where each task has a fixed batch, steps keep their time, and a speed-up of 1 is right.
    """
    rates = [_steps_per_s(record, line) for record, line in zip(records, lines)]
    known = [at for at, rate in enumerate(rates) if rate]
    if len(known) < 2:
        return ()
    tasks = [
        sum(task.get("tracking", Tracking.TRACKED) == Tracking.TRACKED for task in record.tasks)
        for record in records
    ]
    first = known[0]
    ups = [rate / (rates[first] or rate) if rate else None for rate in rates]
    rows = [
        Row("steps_per_s", tuple(_rounded(rate) for rate in rates)),
        Row("tasks", tuple(tasks)),
        Row("speed_up", tuple(_rounded(up) for up in ups)),
    ]
    if tasks[first] and rows[1].differs:
        shares = [
            up * tasks[first] / count if up and count else None for up, count in zip(ups, tasks)
        ]
        rows.append(Row("speed_up_of_growth", tuple(_rounded(share) for share in shares)))
    return tuple(rows)


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None or not isfinite(value) else round(value, 6)


def _steps_per_s(record: JobHistory, line: Timeline) -> Optional[float]:
    """The speed of the last session; None where it reported fewer than two steps."""
    begin = line.sessions[-1].begin if line.sessions else 0.0
    for task in tasks_with(record, STEP)[:1]:
        points = [point for point in points_of(record, task, STEP) if point[0] >= begin]
        if len(points) > 1 and points[-1][0] > points[0][0] and points[-1][1] > points[0][1]:
            rate = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
            return rate if isfinite(rate) else None
    return None


def _results(records: Sequence[JobHistory]) -> Tuple[Row, ...]:
    found = [_flat(record.job.get("result")) for record in records]
    names = list(dict.fromkeys(name for each in found for name in each))[:_RESULTS]
    return tuple(Row(name, tuple(each.get(name) for each in found)) for name in names)


def _flat(result: Any) -> Dict[str, Any]:
    """A result's values by name; what is nested stands there as JSON."""
    if result is None:
        return {}
    if not isinstance(result, dict):
        return {"value": _plain(result)}
    return {str(name): _plain(value) for name, value in result.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON cannot hold it
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text[:_LONGEST]


# ------------------------------------------------------------------ metrics


def _metrics(
    records: Sequence[JobHistory], lines: Sequence[Timeline], across: str
) -> Tuple[MetricRow, ...]:
    names: Dict[str, None] = {}
    for record in records:
        for task in (chief_of(record), *tasks_with(record, STEP)[:1]):
            names.update(dict.fromkeys(metrics_of(record, task)))
    found = []
    for name in [name for name in names if name not in (STEP, SAVED)][:_METRICS]:
        row = _metric(name, records, lines, across)
        if row.curves:
            found.append(row)
    return tuple(found)


def _metric(
    name: str, records: Sequence[JobHistory], lines: Sequence[Timeline], across: str
) -> MetricRow:
    tasks = [next(iter(tasks_with(record, name)), "") for record in records]
    if across not in (BY_STEP, BY_SECONDS):
        have = [
            steps_of(record, task) is not None and not is_measured(record, task, name)
            for record, task in zip(records, tasks)
            if task
        ]
        across = BY_STEP if have and all(have) else BY_SECONDS
    curves = []
    for number, (record, line, task) in enumerate(zip(records, lines, tasks)):
        points = _aligned(record, line, task, name, across) if task else ()
        if points:
            curves.append(Curve(number, task, points))
    by_job = {curve.job: curve.points for curve in curves}
    jobs = range(len(records))
    last = tuple(by_job[job][-1][1] if job in by_job else None for job in jobs)
    at = min((points[-1][0] for points in by_job.values()), default=None)
    if at is not None and at < max(points[0][0] for points in by_job.values()):
        at = None  # one ended before another's first value
    values = tuple(_value_at(by_job.get(job, ()), at) for job in jobs)
    return MetricRow(name, across, tuple(_thinned(each) for each in curves), last, at, values)


def _aligned(record: JobHistory, line: Timeline, task: str, name: str, across: str) -> Points:
    points = points_of(record, task, name)
    if across == BY_SECONDS:
        runs = (span.begin for span in line.phases if span.kind in (RUNNING, LOST))
        begin = next(runs, line.begin)
        return tuple((round(max(0.0, at - begin), 3), value) for at, value in points)
    steps = steps_of(record, task)
    if steps is None:
        return ()
    kept: List[Tuple[float, float]] = []
    for at, value in reversed(points):
        step = steps.at(at)
        whole = None if step is None else float(floor(step + _NEARLY))
        if whole is not None and (not kept or whole < kept[-1][0]):
            kept.append((whole, value))
    return tuple(reversed(kept))


def _value_at(points: Points, at: Optional[float]) -> Optional[float]:
    """The newest value there."""
    if at is None or not points:
        return None
    place = bisect_right([point[0] for point in points], at)
    return points[place - 1][1] if place else None


def _thinned(curve: Curve) -> Curve:
    """The curve with few enough points; its last one stays."""
    points, stride = curve.points, -(-len(curve.points) // _POINTS)
    if stride < 2:
        return curve
    return curve._replace(points=(*points[:-1:stride], points[-1]))
