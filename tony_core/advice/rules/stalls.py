"""Time that programs stood still while their containers were held. Pure."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.advice.facts import Facts
from tony_core.advice.rules.checkpoints import cost_of, first_steps, saved_at
from tony_core.advice.thresholds import STALLED, grade_above
from tony_core.history.story_lines import LOST, RUNNING, STAGING, STARTING, Span

_ACTION = "tony.task.stall-action"


def advise_stalls(facts: Facts) -> List[Advice]:
    """One piece of advice at most, on all stalls of the job together."""
    stood = sum(span.end - span.begin for span in facts.stalls)
    severity = grade_above(stood / facts.duration_s, STALLED) if facts.duration_s > 0 else None
    if severity is None or stood < facts.least.lost_s:
        return []
    changes: Tuple[Change, ...] = ()
    spared: Sequence[Span] = facts.stalls  # where the cause is mended
    todo = "The stacks in the log of the task that lags show where it stood."
    if facts.was(_ACTION) in ("", "warn"):
        changes = (Change(_ACTION, "restart", facts.was(_ACTION)),)
        spared = _spared_by_restarts(facts)
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
            cost_of(facts, spared) if spared else {},
        )
    ]  # fmt: skip


def _spared_by_restarts(facts: Facts) -> List[Span]:
    """What is left of each stall after it was seen, programs have got to their first step again,
    and what was not saved is done again."""
    sessions = max(1, len(facts.line.sessions))
    start = (facts.sums.get(STAGING, 0.0) + facts.sums.get(STARTING, 0.0)) / sessions
    saved, steps = saved_at(facts), first_steps(facts)
    running = [span for span in facts.line.phases if span.kind in (RUNNING, LOST)]
    found = []
    for stall in facts.stalls_seen:
        begin = stall.span.begin
        before = [span for span in running if span.begin <= begin]
        session = before[-1].session if before else -1
        began = min((span.begin for span in before if span.session == session), default=begin)
        stepped = max(began, steps.get(session, began))
        # A checkpoint is a move: one that came until it was seen is from before the stall.
        kept_at = max([stepped, *(at for at in saved if at <= stall.seen_at)])
        again = stepped - began + max(0.0, begin - kept_at)
        left = stall.span._replace(begin=stall.seen_at + start + again)
        if left.begin < left.end:
            found.append(left)
    return found
