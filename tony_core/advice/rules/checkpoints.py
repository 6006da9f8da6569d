"""Work that restarts did again, and work that a failure would lose. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Dict, List, Optional, Sequence

from tony_core.advice.advice import MODERATE, Advice
from tony_core.advice.coverage import Coverage, subtract
from tony_core.advice.facts import HOUR_S, Facts
from tony_core.advice.thresholds import LOST, MB_OF_GB, UNSAVED, grade_above
from tony_core.history.metric_points import points_of, tasks_with
from tony_core.history.story_lines import LOST as IN_LOST
from tony_core.history.story_lines import RUNNING, Span
from tony_core.measures import SAVED, STEP

_FOLDER = "tony.application.checkpoint-dir"
_SAVE = "Save checkpoints (tony.checkpoints() in the program, its folder in " + _FOLDER + ")"
#: How many checkpoints the work that one failure loses should at most be.
_MORE_OFTEN = 4.0
_SHORTEST_S = 60.0
_NEARLY_ALL = 0.9


def advise_checkpoints(facts: Facts) -> List[Advice]:
    """One piece of advice at most: what was lost comes before what may be."""
    found = _lost(facts) or _unknown(facts) or _unsaved(facts)
    return [found] if found is not None else []


def _ran_s(facts: Facts) -> float:
    return facts.sums.get(RUNNING, 0.0) + facts.sums.get(IN_LOST, 0.0)


def saved_at(facts: Facts) -> List[float]:
    """When checkpoints were reported, in order."""
    tasks = tasks_with(facts.record, SAVED)
    return sorted({at for task in tasks for at, _ in points_of(facts.record, task, SAVED)})


def first_steps(facts: Facts) -> Dict[int, float]:
    """When the programs of each session reported their first step, by the session's number."""
    tasks = tasks_with(facts.record, STEP)[:1]
    times = [at for task in tasks for at, _ in points_of(facts.record, task, STEP)]
    found = {}
    for session in facts.line.sessions:
        first = bisect_left(times, session.begin)
        if first < len(times) and times[first] <= session.end:
            found[session.number] = times[first]
    return found


def cost_of(facts: Facts, spans: Sequence[Span]) -> Dict[str, float]:
    """What the tasks that ran in these times asked for."""
    found = {"duration_s": sum(span.end - span.begin for span in spans)}
    covered = Coverage(spans)
    for role in facts.roles:
        hours = sum(covered.overlap_s(task.spans) for task in role.tasks) / HOUR_S
        for name, each in (
            ("gpu_hours", role.gpus),
            ("memory_gb_hours", role.memory_mb / MB_OF_GB),
            ("vcore_hours", role.vcores),
        ):
            if each:
                found[name] = found.get(name, 0.0) + each * hours
    return found


def _without_stalls(facts: Facts) -> List[Span]:
    """The times that restarts lost; what a program stood still, no checkpoint could have kept."""
    return subtract((span for span in facts.line.phases if span.kind == IN_LOST), facts.stalls)


def _lost(facts: Facts) -> Optional[Advice]:
    spans = _without_stalls(facts)
    lost, ran = sum(span.end - span.begin for span in spans), _ran_s(facts)
    severity = grade_above(lost / ran, LOST) if ran > 0 else None
    if severity is None or lost < facts.least.lost_s:
        return None
    saved = saved_at(facts)
    # A program may save without a report of it: then a session went on from a later step.
    has_kept = bool(saved) or lost < _NEARLY_ALL * _stepped_s(facts)
    evidence: Dict[str, float] = {
        "lost (s)": round(lost, 1),
        "programs ran (s)": round(ran, 1),
        "sessions": float(len(facts.line.sessions)),
        "checkpoints": float(len(saved)),
    }
    if has_kept:
        restarts = max(1, len(facts.line.sessions) - 1)
        every = max(_SHORTEST_S, lost / restarts / _MORE_OFTEN)
        evidence["lost in each restart (s)"] = round(lost / restarts, 1)
        todo = f"Save checkpoints more often: every {every:.0f} s a restart loses little."
    else:
        todo = f"{_SAVE}: none was reported, so each session began anew."
    return Advice(
        "lost-work",
        severity,
        "",
        f"Restarts lost {lost:.0f} s of the {ran:.0f} s that programs ran: the next session did it"
        " again.",
        todo,
        evidence,
        (),
        cost_of(facts, spans),
    )


def _stepped_s(facts: Facts) -> float:
    """For how long programs ran in the sessions before the last, from their first step on."""
    last = facts.line.sessions[-1].number if facts.line.sessions else -1
    first = first_steps(facts)
    return sum(
        max(0.0, span.end - max(span.begin, first.get(span.session, span.begin)))
        for span in facts.line.phases
        if span.kind in (RUNNING, IN_LOST) and span.session != last
    )


def _unknown(facts: Facts) -> Optional[Advice]:
    """Restarts of a job that reports neither steps nor checkpoints."""
    before_last = {session.number for session in facts.line.sessions[:-1]}
    before = sum(
        span.end - span.begin
        for span in facts.line.phases
        if span.kind == RUNNING and span.session in before_last
    )
    if facts.line.lost_known or before < facts.least.lost_s or facts.config.get(_FOLDER):
        return None
    return Advice(
        "lost-work",
        MODERATE,
        "",
        f"Sessions before the last ran for {before:.0f} s, and the job reported neither steps nor"
        " checkpoints: all of it may have been lost.",
        f"{_SAVE}, and report steps (tony.report(step=...)), so that what restarts lose is known.",
        {"ran before restarts (s)": round(before, 1),
         "sessions": float(len(facts.line.sessions)), "checkpoints": 0.0},
    )  # fmt: skip


def _unsaved(facts: Facts) -> Optional[Advice]:
    """A long job without a checkpoint."""
    running = [span for span in facts.line.phases if span.kind == RUNNING]
    longest = max((span.end - span.begin for span in running), default=0.0)
    if longest < facts.least.unsaved_s or facts.config.get(_FOLDER) or saved_at(facts):
        return None
    hours = longest / HOUR_S
    severity = grade_above(longest / facts.least.unsaved_s, UNSAVED)
    if severity is None or not any(role.trains for role in facts.roles):
        return None
    at_risk = cost_of(facts, [max(running, key=lambda span: span.end - span.begin)])
    evidence: Dict[str, float] = {"ran without a checkpoint (h)": round(hours, 3)}
    if at_risk.get("gpu_hours"):
        evidence["a failure would lose (GPU hours)"] = round(at_risk["gpu_hours"], 2)
    return Advice(
        "no-checkpoint",
        severity,
        "",
        f"Programs ran {hours:.1f} h and reported no checkpoint: a failure at the end loses all of"
        " it.",
        f"{_SAVE}, unless the program saves its own.",
        evidence,
    )
