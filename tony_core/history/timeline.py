"""Where a job's time went: its phases, its sessions and a bar for each task, from its story. Pure.

Theory of operation
===================

*Phases* cut the time from submit to end into pieces that never overlap and leave nothing out: each
line of the story that changes what the job is doing sets a mark, and a phase lasts from its mark to
the next one. What holds up the whole counts: while any program runs (sidecars aside), the job is
running, even if another task still waits.

*The way to the first program* of a session is divided when that program runs, for only then is
known which container was the last one: until it was launched the job was *waiting*, until the
last task was ready it was *staging*, from then on *starting*. Where the story does not have when
tasks were ready (an older history) all of it is *staging*.

*Lost* is the end of a running phase whose work the next session did again: from the moment when the
programs first reached the step from which that session went on. Without steps it is what came after
the last checkpoint that was reported; without both it is not known (:attr:`Timeline.lost_known`).

*Times are a file's word.* Lines are taken in the order of their numbers, a time never goes back,
and none lies outside the job. So damage makes a picture wrong, and never more than that.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from tony_core.history.job_phases import JobPhases
from tony_core.history.last_seen import last_seen
from tony_core.history.lost_work import with_lost
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import (
    FAILURES,
    PHASES,
    Bar,
    Line,
    Marker,
    Session,
    Span,
    lines_of,
    seconds,
)
from tony_core.history.task_bars import TaskBars

BARS = 200


class Timeline(NamedTuple):
    """All of it; times are seconds since the epoch."""

    begin: float
    end: float
    is_over: bool
    phases: Tuple[Span, ...] = ()
    sessions: Tuple[Session, ...] = ()
    bars: Tuple[Bar, ...] = ()
    markers: Tuple[Marker, ...] = ()
    lost_known: bool = True

    @property
    def breaks(self) -> Tuple[float, ...]:
        """When further sessions began."""
        return tuple(session.begin for session in self.sessions[1:])

    def sums(self) -> Dict[str, float]:
        """The seconds of each phase that there was, in the order of :data:`PHASES`."""
        found: Dict[str, float] = {}
        for span in self.phases:
            found[span.kind] = found.get(span.kind, 0.0) + (span.end - span.begin)
        return {kind: found[kind] for kind in PHASES if kind in found}

    def shown_bars(self, most: int) -> Tuple[Bar, ...]:
        """The bars; of many those of tasks that failed, or whose way was the longest."""
        if len(self.bars) <= most:
            return self.bars
        order = sorted(range(len(self.bars)), key=lambda at: (-_interest(self.bars[at]), at))
        return tuple(self.bars[at] for at in sorted(order[:most]))

    def to_json(self, bars: int = BARS) -> Dict[str, Any]:
        """What ``api/timeline`` answers."""
        shown = self.shown_bars(bars)
        return {
            "begin": round(self.begin, 3),
            "end": round(self.end, 3),
            "is_over": self.is_over,
            "lost_known": self.lost_known,
            "sums": {kind: round(seconds, 3) for kind, seconds in self.sums().items()},
            "phases": [_as_data(span) for span in self.phases],
            "sessions": [_as_data(session) for session in self.sessions],
            "bars": [
                {**_as_data(bar), "spans": [_as_data(span) for span in bar.spans]} for bar in shown
            ],
            "more_bars": len(self.bars) - len(shown),
            "markers": [_as_data(marker) for marker in self.markers],
        }


def _as_data(record: Any) -> Dict[str, Any]:
    data = record._asdict()
    return {key: round(v, 3) if isinstance(v, float) else v for key, v in data.items()}


def _interest(bar: Bar) -> int:
    ended = [span.text for span in bar.spans if span.text]
    return len(bar.spans) + 10 * sum(text.startswith(FAILURES) for text in ended)


def timeline(record: JobHistory, now: Optional[float] = None) -> Timeline:
    """The time line of a job; ``now`` ends what goes on, without it when it was last seen alive."""
    tasks = tuple(task for task in record.tasks if isinstance(task, dict))
    record = record._replace(tasks=tasks)
    lines = lines_of(record)
    begin, end, is_over = _bounds(record, lines, now)
    for line in lines:
        line.at = min(max(line.at, begin), end)
    sidecars = {str(task.get("task")) for task in record.tasks if task.get("tracking") == "sidecar"}
    job = JobPhases(record, begin, end, is_over, sidecars)
    bars = TaskBars(record, begin, end, is_over, sidecars)
    for line in lines:
        job.take(line)
        bars.take(line)
    phases, lost_known = with_lost(record, job.finish(), tuple(job.sessions))
    return Timeline(
        begin,
        end,
        is_over,
        phases,
        tuple(job.sessions),
        bars.finish(),
        tuple(job.markers),
        lost_known,
    )


def _bounds(
    record: JobHistory, lines: List[Line], now: Optional[float]
) -> Tuple[float, float, bool]:
    job = record.job
    known = [line.at for line in lines if line.at]
    known += [seconds(job.get("started"))]
    for task in record.tasks:
        known += [seconds(task.get("started")), seconds(task.get("ended"))]
    known = [at for at in known if at]
    finished = seconds(job.get("finished"))
    begin = seconds(job.get("submitted")) or min(known, default=finished)
    end = finished or seconds(now) or last_seen(record)
    return begin, max(begin, end), bool(finished)
