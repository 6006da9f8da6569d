"""The runs of one pipeline over time, and which run changed it. Pure.

Theory of operation
===================

A measure (how long runs took, their loss, what they cost) is a series over the runs. Its *shift* is
the place where a typical run before differs most from a typical run after it. Whether that is more
than chance is decided by ranks (Mann and Whitney's test), so that neither outliers nor the shape of
the noise matter, at each possible place, and the evidence is divided by the number of places. A
shift is reported only when

* there are at least :data:`BEFORE` runs before it and :data:`AFTER` from it on,
* chance would show it in fewer than :data:`CHANCE` of such series,
* the medians differ by :data:`SCALES` times the usual difference between runs (the median absolute
  deviation) and by :data:`PART` of the value itself.

The runs on both sides of a shift are then searched in the same way. Durations, losses and costs are
of runs that succeeded; waiting and restarts of all that have ended.

*What changed in its configuration* is what was the same in the runs just before, is the same in
those from it on, and is not the same in both: a date that differs in every run explains nothing.

Runs whose noise goes on from one to the next (a cluster that is busy for days) look like shifts
more often than that: they did change, only not by the run that is named.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from statistics import median
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.history.layout import ENDED

BEFORE, AFTER = 5, 3
CHANCE = 0.01
SCALES = 2.0
PART = 0.05
_SHARES = sum(1 / runs**2 for runs in range(AFTER, 1000))
WINDOW = 20  # runs on each side that a place is judged by
NEAR = 10  # places on each side where a shift is looked for again
NEIGHBOURS = 3  # runs on each side whose configurations are compared
MOST = 400  # runs
MOST_MEASURES = 40
_OUTLIER = 5.0  # times the usual step from a run to the next one
#: Of 1.4826 times the median absolute deviation comes the standard deviation of normal noise.
_SCALE = 1.4826
SUCCEEDED = "SUCCEEDED"
#: Figures that are followed, in this order, and whether those of failed runs count.
MEASURES: Mapping[str, bool] = {
    "duration_s": False,
    "waiting_s": True,
    "lost_s": True,
    "restarts": True,
    "gpu_hours": False,
    "memory_gb_hours": False,
    "vcore_hours": False,
}
_OWN = ("result.", "metric.")  # the beginnings of figures that are the program's own


class Run(NamedTuple):
    """One run of the pipeline."""

    app_id: str
    location: str
    submitted: float
    state: str
    figures: Mapping[str, float]


class Shift(NamedTuple):
    """A run from which on a measure is another; ``at`` is its place among all runs."""

    at: int
    app_id: str
    before: float  # the medians
    after: float
    runs_before: int
    runs_after: int

    @property
    def change(self) -> Optional[float]:
        """The change as a part of the value before; None where that is 0."""
        return (self.after - self.before) / abs(self.before) if self.before else None


class Trend(NamedTuple):
    """One measure."""

    name: str
    values: Tuple[Tuple[int, float], ...]  # the place of a run and its value
    shifts: Tuple[Shift, ...]

    def levels(self) -> Tuple[Tuple[int, int, float], ...]:
        """The typical value from a place to a place, between the shifts."""
        if not self.values:
            return ()
        places = [self.values[0][0], *(shift.at for shift in self.shifts)]
        ends = [*places[1:], self.values[-1][0] + 1]
        found = []
        for begin, end in zip(places, ends):
            values = [value for at, value in self.values if begin <= at < end]
            found.append((begin, end - 1, median(values)))
        return tuple(found)


class Trends(NamedTuple):
    """All measures of a pipeline, and its runs from the oldest to the newest."""

    runs: Tuple[Run, ...]
    trends: Tuple[Trend, ...]

    def shifts(self) -> Dict[int, Tuple[Tuple[str, Shift], ...]]:
        """Of each run that changed something, by its place: the measures and their shifts."""
        found: Dict[int, List[Tuple[str, Shift]]] = {}
        for trend in self.trends:
            for shift in trend.shifts:
                found.setdefault(shift.at, []).append((trend.name, shift))
        return {at: tuple(found[at]) for at in sorted(found)}

    def to_json(self) -> Dict[str, Any]:
        """What ``/api/trends`` answers."""
        return {
            "runs": [{**run._asdict(), "figures": dict(run.figures)} for run in self.runs],
            "trends": [
                {
                    "name": trend.name,
                    "values": [list(pair) for pair in trend.values],
                    "shifts": [
                        {**shift._asdict(), "change": shift.change} for shift in trend.shifts
                    ],
                }
                for trend in self.trends
            ],
        }


def find_trends(runs: Sequence[Run]) -> Trends:
    """The trends of a pipeline's newest runs; they may come in any order."""
    ended = [run for run in runs if run.state in ENDED and math.isfinite(run.submitted)]
    shown = tuple(sorted(ended, key=lambda run: (run.submitted, run.app_id))[-MOST:])
    own = sorted({name for run in shown for name in run.figures if name.startswith(_OWN)})
    found = []
    for name in [*MEASURES, *own][:MOST_MEASURES]:
        counts_all = MEASURES.get(name, False)
        values = [
            (at, float(run.figures[name]))
            for at, run in enumerate(shown)
            if name in run.figures
            and math.isfinite(run.figures[name])
            and (counts_all or run.state == SUCCEEDED)
        ]
        if any(value for _, value in values):
            shifts = tuple(
                shift._replace(at=values[shift.at][0], app_id=shown[values[shift.at][0]].app_id)
                for shift in find_shifts([value for _, value in values])
            )
            found.append(Trend(name, tuple(values), shifts))
    return Trends(shown, tuple(found))


def config_changes(
    before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]
) -> Tuple[Tuple[str, Optional[str], Optional[str]], ...]:
    """The keys that changed between runs, with the value before and after; see the module."""
    if not before or not after:
        return ()
    found = []
    for key in sorted(set().union(*before, *after)):
        old, new = ({config.get(key) for config in side} for side in (before, after))
        if len(old) == len(new) == 1 and old != new:
            found.append((key, old.pop(), new.pop()))
    return tuple(found)


# ------------------------------------------------------------------ shifts


def find_shifts(values: Sequence[float]) -> List[Shift]:
    """The shifts of a series, ``at`` the place of a value."""
    ends = [0, *_places(values, 0, len(values)), len(values)]
    at = 1
    while at < len(ends) - 1:  # each again, now that those beside it are known
        first, end = ends[at - 1], ends[at + 1]
        near = range(max(first + 1, ends[at] - NEAR), min(end, ends[at] + NEAR + 1))
        ends[at] = first + _best_place(values[first:end], [place - first for place in near])
        if first + BEFORE <= ends[at] <= end - AFTER:
            at += 1
        else:
            del ends[at]  # the evidence was of a few runs at an end
    found = []
    for first, place, end in zip(ends, ends[1:], ends[2:]):
        before, after = values[first:place], values[place:end]
        found.append(Shift(place, "", median(before), median(after), len(before), len(after)))
    return found


def _places(values: Sequence[float], first: int, end: int) -> List[int]:
    place = _strongest(values[first:end])
    if place is None:
        return []
    place += first
    return [*_places(values, first, place), place, *_places(values, place, end)]


def _strongest(values: Sequence[float]) -> Optional[int]:
    """The place that divides the values best, if a shift there is no chance."""
    known = [place for place in range(BEFORE, len(values) - AFTER + 1) if _is_shift(values, place)]
    return _best_place(values, known) if known else None


def _is_shift(values: Sequence[float], place: int) -> bool:
    before = values[max(0, place - WINDOW) : place]
    after = values[place : place + WINDOW]
    share = 1 / (len(values) - place) ** 2 / _SHARES
    return _is_large(before, after) and _chance(before, after) < CHANCE * share


def _best_place(values: Sequence[float], places: Sequence[int]) -> int:
    """Of these places the one where the values on each side are nearest to their median."""
    steps = [abs(value - before) for before, value in zip(values, values[1:])]
    bound = _OUTLIER * median(steps)
    spreads = [
        (_spread(values[:place], bound) + _spread(values[place:], bound), place) for place in places
    ]
    return min(spreads)[1]


def _is_large(before: Sequence[float], after: Sequence[float]) -> bool:
    middle = median(before)
    change = abs(median(after) - middle)
    if not change or change < PART * abs(middle):
        return False
    return change >= SCALES * _SCALE * max(_deviation(before), _deviation(after))


def _deviation(values: Sequence[float]) -> float:
    """The median absolute deviation."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def _spread(values: Sequence[float], bound: float) -> float:
    """How far the values are from their median; an outlier counts as the bound (0: there is none).

    Else one outlier would decide where a shift is.
    """
    middle = median(values)
    distances = (abs(value - middle) for value in values)
    return sum(min(distance, bound) if bound else distance for distance in distances)


def _chance(before: Sequence[float], after: Sequence[float]) -> float:
    """How likely values that do not differ look as different as these (two-sided)."""
    ordered = sorted(before)
    wins = sum((bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in after)
    few, many = sorted((len(before), len(after)))
    least = min(wins, few * many - wins)
    has_ties = len({*before, *after}) < few + many
    if few * many <= 200 and not has_ties:
        return min(1.0, 2 * _exact(few, many, int(least)))
    return _approximate(before, after, least)


def _exact(few: int, many: int, least: int) -> float:
    """The chance that Mann and Whitney's count is at most ``least``."""
    # counts[j][u]: in how many orders of i and j values the count is u; one i after the other.
    counts = [[1] + [0] * least for _ in range(many + 1)]
    for _ in range(1, few + 1):
        fresh = [[1] + [0] * least]
        for j in range(1, many + 1):
            row = [(counts[j][u - j] if u >= j else 0) + fresh[j - 1][u] for u in range(least + 1)]
            fresh.append(row)
        counts = fresh
    return sum(counts[many]) / math.comb(few + many, few)


def _approximate(before: Sequence[float], after: Sequence[float], least: float) -> float:
    """The same by the normal distribution, with ties, for many values."""
    n, m = len(before), len(after)
    total = n + m
    times: Dict[float, int] = {}
    for value in (*before, *after):
        times[value] = times.get(value, 0) + 1
    ties = sum(count**3 - count for count in times.values())
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, n * m / 2 - least - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))
