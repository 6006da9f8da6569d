"""Which part of a job's running time the next session did again; see timeline.py. Pure."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from tony_core.history.metric_file import Latest
from tony_core.history.metric_points import Points, points_of, tasks_with
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import LOST, RUNNING, Session, Span
from tony_core.measures import SAVED, STEP


def tasks_to_measure(tasks: Sequence[Mapping[str, Any]], latest: Latest) -> Tuple[str, ...]:
    """The tasks whose points :func:`with_lost` needs, by the names of all tasks' metrics."""
    named = JobHistory("", tasks=tuple(tasks), metrics={"task": latest})
    return (*tasks_with(named, STEP)[:1], *tasks_with(named, SAVED))


def with_lost(
    record: JobHistory, phases: Tuple[Span, ...], sessions: Tuple[Session, ...]
) -> Tuple[Tuple[Span, ...], bool]:
    """The phases with what was lost cut off, and whether all of it is known."""
    if len(sessions) < 2:
        return phases, True
    steps = _first_points(record, STEP)
    saved = _all_points(record, SAVED)
    found: List[Span] = []
    known = True
    following = {before.number: after for before, after in zip(sessions, sessions[1:])}
    for span in phases:
        after = following.get(span.session)
        if span.kind != RUNNING or after is None:
            found.append(span)
            continue
        since = _lost_since(span, after, steps, saved)
        if since is None:
            known = False
            found.append(span)
            continue
        since = min(max(since, span.begin), span.end)
        if since > span.begin:
            found.append(span._replace(end=since))
        if since < span.end:
            found.append(span._replace(kind=LOST, begin=since))
    return tuple(found), known


def _lost_since(span: Span, after: Session, steps: Points, saved: Points) -> Optional[float]:
    """When the work began that the next session did again; None: it is not known."""
    mine = [point for point in steps if span.begin <= point[0] < after.begin]
    theirs = [point for point in steps if after.begin <= point[0] <= after.end]
    if mine and theirs:
        first = theirs[0][1]
        if first <= mine[0][1]:
            return span.begin  # from the same step again: nothing was kept
        return next((at for at, step in mine if step >= first), span.end)
    if saved:
        before = [at for at, _ in saved if span.begin <= at < after.begin]
        return max(before, default=span.begin)
    return None


def _first_points(record: JobHistory, metric: str) -> Points:
    """The points of the task that speaks for the job, of those that have the metric."""
    tasks = tasks_with(record, metric)
    return points_of(record, tasks[0], metric) if tasks else ()


def _all_points(record: JobHistory, metric: str) -> Points:
    found = [
        point for task in tasks_with(record, metric) for point in points_of(record, task, metric)
    ]
    return tuple(sorted(found))
