"""Work that restarts did again, and work that a failure would lose. Pure."""

from __future__ import annotations

from typing import Dict, List, Optional

from tony_core.advice.advice import MODERATE, Advice
from tony_core.advice.facts import HOUR_S, Facts
from tony_core.advice.thresholds import LOST, MB_OF_GB, UNSAVED, grade_above
from tony_core.history.metric_points import SAVED, points_of, tasks_with
from tony_core.history.story_lines import LOST as IN_LOST
from tony_core.history.story_lines import RUNNING

_FOLDER = "tony.application.checkpoint-dir"
_SAVE = "Save checkpoints (tony.checkpoints() in the program, its folder in " + _FOLDER + ")"
#: How many checkpoints the work that one failure loses should at most be.
_MORE_OFTEN = 4.0
_SHORTEST_S = 60.0
_NEARLY_ALL = 0.95


def advise_checkpoints(facts: Facts) -> List[Advice]:
    """One piece of advice at most: what was lost comes before what may be."""
    found = _lost(facts) or _unknown(facts) or _unsaved(facts)
    return [found] if found is not None else []


def _ran_s(facts: Facts) -> float:
    return facts.sums.get(RUNNING, 0.0) + facts.sums.get(IN_LOST, 0.0)


def _saved_at(facts: Facts) -> List[float]:
    """When checkpoints were reported, in order."""
    tasks = tasks_with(facts.record, SAVED)
    return sorted({at for task in tasks for at, _ in points_of(facts.record, task, SAVED)})


def _cost(facts: Facts, seconds: float) -> Dict[str, float]:
    """What all roles that run with the gang ask for, for so long."""
    found = {"duration_s": seconds}
    for role in facts.roles:
        for name, each in (
            ("gpu_hours", role.gpus),
            ("memory_gb_hours", role.memory_mb / MB_OF_GB),
            ("vcore_hours", role.vcores),
        ):
            if each:
                found[name] = found.get(name, 0.0) + each * len(role.tasks) * seconds / HOUR_S
    return found


def _lost(facts: Facts) -> Optional[Advice]:
    lost, ran = facts.sums.get(IN_LOST, 0.0), _ran_s(facts)
    severity = grade_above(lost / ran, LOST) if ran > 0 else None
    if severity is None or lost < facts.thin.lost_s:
        return None
    saved = _saved_at(facts)
    last = facts.line.sessions[-1].number if facts.line.sessions else -1
    # A program may save without a report of it: then a session went on from a later step.
    has_kept = bool(saved) or lost < _NEARLY_ALL * sum(
        span.end - span.begin
        for span in facts.line.phases
        if span.kind in (RUNNING, IN_LOST) and span.session != last
    )
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
        _cost(facts, lost),
    )


def _unknown(facts: Facts) -> Optional[Advice]:
    """Restarts of a job that reports neither steps nor checkpoints."""
    before_last = {session.number for session in facts.line.sessions[:-1]}
    before = sum(
        span.end - span.begin
        for span in facts.line.phases
        if span.kind == RUNNING and span.session in before_last
    )
    if facts.line.lost_known or before < facts.thin.lost_s or facts.config.get(_FOLDER):
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
    longest = max(
        (span.end - span.begin for span in facts.line.phases if span.kind == RUNNING), default=0.0
    )
    if longest < facts.thin.unsaved_s or facts.config.get(_FOLDER) or _saved_at(facts):
        return None
    hours = longest / HOUR_S
    severity = grade_above(longest / facts.thin.unsaved_s, UNSAVED)
    if severity is None or not any(role.tracking == "tracked" for role in facts.roles):
        return None
    at_risk = _cost(facts, longest)
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
