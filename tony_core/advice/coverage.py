"""Times that cover others: how much of them, and which points of a series. Pure.

A history of another user may have as many stalls and restarts as it likes, so nothing here looks at
each of them for each point.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Iterable, List, Sequence, Tuple

from tony_core.history.metric_points import Points
from tony_core.history.story_lines import Span


class Coverage:
    """Spans of time, in any order; where two overlap, each counts for itself."""

    def __init__(self, spans: Iterable[Span]) -> None:
        known = [span for span in spans if span.end > span.begin]
        self._base = base = min((span.begin for span in known), default=0.0)
        self._begins = sorted(span.begin - base for span in known)
        self._ends = sorted(span.end - base for span in known)
        self._sum_begins = [0.0, *accumulate(self._begins)]
        self._sum_ends = [0.0, *accumulate(self._ends)]

    def overlap_s(self, spans: Iterable[Span]) -> float:
        """For how long any of these was while one of the times was; each apart from its like."""
        return sum(
            max(0.0, self._until(span.end) - self._until(span.begin))
            for span in spans
            if span.end > span.begin
        )

    def has(self, at: float) -> bool:
        """Whether a moment is in one of them, or at its edge."""
        since = at - self._base
        return bisect_right(self._begins, since) > bisect_left(self._ends, since)

    def _until(self, at: float) -> float:
        """The seconds of all of them before a moment."""
        since = at - self._base
        begun, ended = bisect_right(self._begins, since), bisect_right(self._ends, since)
        passed = begun * since - self._sum_begins[begun]
        return passed - (ended * since - self._sum_ends[ended])


def points_within(points: Points, times: Sequence[float], spans: Sequence[Span]) -> Points:
    """The points in any of some spans; ``times`` are those of the points, in order."""
    found: List[Tuple[float, float]] = []
    for span in spans:
        found += points[bisect_left(times, span.begin) : bisect_right(times, span.end)]
    return tuple(found)


def subtract(spans: Iterable[Span], others: Sequence[Span]) -> List[Span]:
    """What is left of some spans without others, which are in order and apart."""
    ends = [other.end for other in others]
    found = []
    for span in spans:
        begin = span.begin
        for other in others[bisect_right(ends, span.begin) :]:
            if other.begin >= span.end:
                break
            if other.begin > begin:
                found.append(span._replace(begin=begin, end=other.begin))
            begin = max(begin, other.end)
        if begin < span.end:
            found.append(span._replace(begin=begin))
    return found
