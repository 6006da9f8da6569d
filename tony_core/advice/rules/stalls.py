"""Time that programs stood still while their containers were held. Pure."""

from __future__ import annotations

from typing import List, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.advice.facts import Facts
from tony_core.advice.rules.checkpoints import cost_of
from tony_core.advice.thresholds import STALLED, grade_above

_ACTION = "tony.task.stall-action"


def advise_stalls(facts: Facts) -> List[Advice]:
    """One piece of advice at most, on all stalls of the job together."""
    stood = sum(span.end - span.begin for span in facts.stalls)
    severity = grade_above(stood / facts.duration_s, STALLED) if facts.duration_s > 0 else None
    if severity is None or stood < facts.least.lost_s:
        return []
    changes: Tuple[Change, ...] = ()
    todo = "The stacks in the log of the task that lags show where it stood."
    if facts.was(_ACTION) in ("", "warn"):
        changes = (Change(_ACTION, "restart", facts.was(_ACTION)),)
        todo += f" With {_ACTION}=restart the job goes on from its checkpoint by itself."
    return [
        Advice(
            "stalled",
            severity,
            "",
            f"Programs stood still for {stood:.0f} s, in {len(facts.stalls)} stalls.",
            todo,
            {"stood still (s)": round(stood, 1), "stalls": float(len(facts.stalls)),
             "job (s)": round(facts.duration_s, 1)},
            changes,
            cost_of(facts, facts.stalls),
        )
    ]  # fmt: skip
