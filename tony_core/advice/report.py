"""The advice on one job, with what a reader must know about its evidence. Pure."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from tony_core.advice.advice import SEVERITIES, Advice
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LEAST_EVIDENCE
from tony_core.durations import describe_duration
from tony_core.history.folder import read_time
from tony_core.history.last_seen import last_seen
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import LOST, RUNNING
from tony_core.history.timeline import timeline


class Report(NamedTuple):
    """What was found in a job, the worst first, and how much there was to look at."""

    advice: Tuple[Advice, ...] = ()
    notes: Tuple[str, ...] = ()  # why there is little evidence, a sentence each
    is_running: bool = False  # advice so far

    def counts(self) -> Dict[str, int]:
        """How many there are of each severity that there is, the worst first."""
        found = [each.severity for each in self.advice]
        return {name: found.count(name) for name in reversed(SEVERITIES) if name in found}

    def to_json(self) -> Dict[str, Any]:
        return {
            "advice": [each.to_json() for each in self.advice],
            "notes": list(self.notes),
            "running": self.is_running,
        }


def report_on(record: JobHistory, config: bytes = b"") -> Report:
    """The advice on a job, out of its history and the configuration that it ran with (XML)."""
    return Report(tuple(advise(record, config)), _notes(record, config), not _has_ended(record))


def _has_ended(record: JobHistory) -> bool:
    return bool(record.job.get("finished"))


def _notes(record: JobHistory, config: bytes) -> Tuple[str, ...]:
    notes = []
    begin, end = read_time(record.job.get("started")), read_time(record.job.get("finished"))
    if not _has_ended(record):
        notes.append("the job is still running: this is the advice so far")
        ran = _ran_so_far_s(record)
        if ran is not None and ran < LEAST_EVIDENCE.run_s:
            notes.append(
                f"its programs have run for {describe_duration(ran)} only, which shows little of"
                " what it needs"
            )
    elif 0 < begin < end < begin + LEAST_EVIDENCE.run_s:
        took = describe_duration(end - begin)
        notes.append(f"the job ran for {took} only, which shows little of what it needs")
    if record.is_cut:
        notes.append("its history is larger than is read here, so there is no advice on it")
    if not any(record.metrics.get(kind) for kind in ("task", "latest")):
        notes.append("nothing was measured of its tasks, so what they used is not known")
    if not config:
        notes.append("its configuration was not kept, so what it asked for is not known")
    return tuple(notes)


def _ran_so_far_s(record: JobHistory) -> Optional[float]:
    """For how long programs of a job have run, or its master where no story says that.

    None: neither is known.
    """
    sums = timeline(record).sums()
    if record.events:
        return sums.get(RUNNING, 0.0) + sums.get(LOST, 0.0)
    begin = read_time(record.job.get("started"))
    return max(0.0, last_seen(record) - begin) if begin > 0 else None
