"""Metric series that stay small however long a job runs.

A series keeps at most a number of points. When it is full it drops every second one and
from then on takes only every second value offered: the shape of the whole run stays, its
resolution halves. The newest value is always known besides. All series of a job share one
budget of points, so ten thousand tasks cost no more memory than ten.

What a series takes and when it is thinned is reported (:class:`Kept`), so that history can be
written as the job goes (:mod:`tony_core.history.metric_log`), and the same series be made of it.
"""

from __future__ import annotations

import math
from array import array
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

POINTS = 400  # of one series, while there are few
TOTAL = 200_000  # of all series together: 16 bytes each
FEWEST = 16


class Kept(NamedTuple):
    """What the series of one task took of the values offered at one time."""

    at: float
    offered: Dict[str, float]  # all that are numbers: each is the newest of its series
    taken: Dict[str, float]
    thinned: Tuple[str, ...] = ()  # series that were thinned then, once for each time


class Series:
    """One metric of one task over time."""

    __slots__ = ("_skipped", "_stride", "last", "times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self.last: Optional[Tuple[float, float]] = None
        self._stride = 1
        self._skipped = 0

    def add(self, at: float, value: float, limit: int) -> Optional[int]:
        """Add a value; how often that thinned the series. None: it was skipped."""
        self.last = (at, value)
        self._skipped += 1
        if self._skipped < self._stride:
            return None
        self.take(at, value)
        thinned = 0
        while len(self.times) > limit:
            self.thin()
            thinned += 1
        return thinned

    def take(self, at: float, value: float) -> None:
        """Keep a value, whatever the series skips."""
        self.last = (at, value)
        self._skipped = 0
        self.times.append(at)
        self.values.append(value)

    def thin(self) -> None:
        """Drop every second value, and skip as many from now on."""
        self.times = self.times[::2]
        self.values = self.values[::2]
        self._stride *= 2

    def rate(self, now: float, within_s: float) -> Optional[float]:
        """How fast the value has grown lately, a second; 0 once it has not changed for so long.

        Where it fell (a program that starts again at its checkpoint), counting begins anew.
        """
        if self.last is None:
            return None
        at, value = end, highest = self.last
        if now - end > within_s:
            return 0.0
        for index in range(len(self.times) - 1, -1, -1):
            if self.values[index] > value:
                break
            if self.times[index] < at:
                at, value = self.times[index], self.values[index]
                if end - at >= within_s:
                    break
        return (highest - value) / (end - at) if at < end else None

    def points(self) -> List[Tuple[float, float]]:
        """What is kept, the newest value at the end."""
        out = list(zip(self.times, self.values))
        if self.last is not None and (not out or out[-1] != self.last):
            out.append(self.last)
        return out


class SeriesStore:
    """Every metric of every task."""

    def __init__(self, points: int = POINTS, total: int = TOTAL) -> None:
        self._points = points
        self._total = total
        self._series: Dict[str, Dict[str, Series]] = {}
        self.count = 0

    def add(self, task: str, at: float, values: Mapping[str, float]) -> Kept:
        """Add values of one task at one time; all but finite numbers are ignored."""
        at = round(at, 3)
        offered: Dict[str, float] = {}
        taken: Dict[str, float] = {}
        thinned: List[str] = []
        for name, value in values.items():
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                continue  # JSON cannot hold them
            offered[name] = value = float(value)
            times = self.series(task, name).add(at, value, self._limit())
            if times is not None:
                taken[name] = value
                thinned += [name] * times
        return Kept(at, offered, taken, tuple(thinned))

    def series(self, task: str, name: str) -> Series:
        """One metric of one task; empty where it is new."""
        known = self._series.setdefault(task, {})
        series = known.get(name)
        if series is None:
            series = known[name] = Series()
            self.count += 1
        return series

    def _limit(self) -> int:
        return max(FEWEST, min(self._points, self._total // max(1, self.count)))

    def latest(self, task: str) -> Dict[str, float]:
        """The newest value of each metric of a task."""
        known = self._series.get(task, {})
        return {name: series.last[1] for name, series in known.items() if series.last}

    def to_json(self) -> Dict[str, Dict[str, Dict[str, object]]]:
        """``{"task": {task: {metric: [[time, value]...]}}, "latest": {task: {metric: value}}}``."""
        task: Dict[str, Dict[str, object]] = {}
        latest: Dict[str, Dict[str, object]] = {}
        for name, known in self._series.items():
            task[name] = {
                metric: [list(point) for point in series.points()]
                for metric, series in known.items()
            }
            latest[name] = dict(self.latest(name))
        return {"task": task, "latest": latest}
