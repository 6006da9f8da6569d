"""Metric series that stay small however long a job runs.

A series keeps at most a number of points. When it is full it drops every second one and
from then on takes only every second value offered: the shape of the whole run stays, its
resolution halves. The newest value is always known besides. All series of a job share one
budget of points, so ten thousand tasks cost no more memory than ten.
"""

from __future__ import annotations

import math
from array import array
from typing import Dict, List, Mapping, Optional, Tuple

POINTS = 400  # of one series, while there are few
TOTAL = 200_000  # of all series together: 16 bytes each
FEWEST = 16


class Series:
    """One metric of one task over time."""

    __slots__ = ("_skipped", "_stride", "last", "times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self.last: Optional[Tuple[float, float]] = None
        self._stride = 1
        self._skipped = 0

    def add(self, at: float, value: float, limit: int) -> None:
        """Add a value, or skip it where the series has been thinned."""
        self.last = (at, value)
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.times.append(at)
        self.values.append(value)
        while len(self.times) > limit:
            self.times = self.times[::2]
            self.values = self.values[::2]
            self._stride *= 2

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
        self._count = 0

    def add(self, task: str, at: float, values: Mapping[str, float]) -> None:
        """Add values of one task at one time; all but finite numbers are ignored."""
        known = self._series.setdefault(task, {})
        for name, value in values.items():
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                continue  # JSON cannot hold them
            series = known.get(name)
            if series is None:
                series = known[name] = Series()
                self._count += 1
            series.add(at, float(value), self._limit())

    def _limit(self) -> int:
        return max(FEWEST, min(self._points, self._total // max(1, self._count)))

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
                metric: [[round(at, 3), value] for at, value in series.points()]
                for metric, series in known.items()
            }
            latest[name] = dict(self.latest(name))
        return {"task": task, "latest": latest}
