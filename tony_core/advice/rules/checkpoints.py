"""Work that restarts did again, and work that a failure would lose. Pure."""

from __future__ import annotations

from typing import Dict, List, Optional

from tony_core.advice.advice import MODERATE, Advice
from tony_core.advice.coverage import subtract
from tony_core.advice.facts import HOUR_S, Facts
from tony_core.advice.thresholds import LOST_GRADES, UNSAVED, grade_above
from tony_core.history.story_lines import LOST, RUNNING, Span

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
    return facts.sums.get(RUNNING, 0.0) + facts.sums.get(LOST, 0.0)


def _without_stalls(facts: Facts) -> List[Span]:
    """The times that restarts lost; what a program stood still, no checkpoint could have kept."""
    return subtract((span for span in facts.line.phases if span.kind == LOST), facts.stalls)


def _lost(facts: Facts) -> Optional[Advice]:
    spans = _without_stalls(facts)
    lost, ran = sum(span.end - span.begin for span in spans), _ran_s(facts)
    severity = grade_above(lost / ran, LOST_GRADES) if ran > 0 else None
    if severity is None or lost < facts.least.lost_s:
        return None
    saved = facts.saved_at
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
        facts.cost_of(spans),
    )


def _stepped_s(facts: Facts) -> float:
    """For how long programs ran in the sessions before the last, from their first step on."""
    last = facts.line.sessions[-1].number if facts.line.sessions else -1
    first = facts.first_steps
    return sum(
        max(0.0, span.end - max(span.begin, first.get(span.session, span.begin)))
        for span in facts.line.phases
        if span.kind in (RUNNING, LOST) and span.session != last
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
    if longest < facts.least.unsaved_s or facts.config.get(_FOLDER) or facts.saved_at:
        return None
    hours = longest / HOUR_S
    severity = grade_above(longest / facts.least.unsaved_s, UNSAVED)
    if severity is None or not any(role.trains for role in facts.roles):
        return None
    at_risk = facts.cost_of([max(running, key=lambda span: span.end - span.begin)])
    evidence: Dict[str, float] = {"ran without a checkpoint (h)": round(hours, 3)}
    if at_risk.get("gpu_hours"):
        evidence["a failure would lose (GPU hours)"] = round(at_risk["gpu_hours"], 2)
    return Advice(
        "no-checkpoint",
        severity,
        "",
        f"Programs ran {hours:.1f} h, and TonY knows of no checkpoint: if the program saves none, a"
        " failure at the end loses all of it.",
        f"{_SAVE}, unless the program saves its own.",
        evidence,
    )
