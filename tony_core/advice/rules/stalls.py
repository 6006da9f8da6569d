"""Time that programs stood still while their containers were held. Pure.

A stall that passed by itself may have been work (an evaluation, a checkpoint) that takes longer
than the job allows: a restart in the midst of it would come again and again until the job fails. So
where any passed, a longer allowance is advised, and a restart only where none did.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from math import ceil
from typing import Dict, List, Sequence, Tuple

from tony_core.advice.advice import MODERATE, Advice, Change
from tony_core.advice.facts import Facts, Stall
from tony_core.advice.thresholds import (
    LONGEST_PAUSE_S,
    PAUSE_ROOM,
    STALLED_GRADES,
    at_most,
    grade_above,
)
from tony_core.durations import describe_duration
from tony_core.history.story_lines import LOST, RUNNING, STAGING, STARTING, Span
from tony_core.job.units import parse_duration_s

_ACTION, _TIMEOUT = "tony.task.stall-action", "tony.task.stall-timeout"
_RETRIES = "tony.am.retry-count"
_STACKS = "The stacks in the log of the task that lags show where it stood."


def advise_stalls(facts: Facts) -> List[Advice]:
    """One piece of advice at most, on all stalls of the job together."""
    stood = sum(span.end - span.begin for span in facts.stalls)
    severity = (
        grade_above(stood / facts.duration_s, STALLED_GRADES) if facts.duration_s > 0 else None
    )
    if severity is None or stood < facts.least.lost_s:
        return []
    count = len(facts.stalls_seen)
    problem = (
        f"Programs stood still for {stood:.0f} s, in {count} stall{'' if count == 1 else 's'}."
    )
    advice = Advice(
        "stalled",
        severity,
        "",
        problem,
        _STACKS,
        {"stood still (s)": round(stood, 1), "stalls": float(count),
         "job (s)": round(facts.duration_s, 1)},
    )  # fmt: skip
    if facts.was(_ACTION).strip().lower() not in ("", "warn"):
        return [advice._replace(saving=facts.cost_of(facts.stalls))]  # where the cause is mended
    passed = [stall for stall in facts.stalls_seen if stall.has_passed]
    return [_allow_longer(facts, advice, passed) if passed else _restart(facts, advice)]


# ------------------------------------------------------------------ stalls that pass


def _allow_longer(facts: Facts, advice: Advice, passed: Sequence[Stall]) -> Advice:
    longest = max(stall.length_s for stall in passed)
    is_all = len(passed) == len(facts.stalls_seen)
    which = "the programs" if is_all else f"in {len(passed)} of them the programs"
    after = f"{describe_duration(longest)}{' at most' if len(passed) > 1 else ''}"
    advice = advice._replace(
        problem=f"{advice.problem[:-1]}; {which} went on by themselves after {after}.",
        evidence={**advice.evidence, "went on by themselves": float(len(passed)),
                  "longest of those (s)": round(longest, 1)},
    )  # fmt: skip
    if is_all:
        advice = advice._replace(severity=at_most(advice.severity, MODERATE))
    changes = _longer_timeouts(facts, passed, longest) if longest <= LONGEST_PAUSE_S else ()
    if not changes:
        return advice
    named = " and ".join(change.key for change in changes)
    todo = (
        f"{_STACKS} If it was at work there (a step, an evaluation, a checkpoint), the job has to"
        f" allow for it: set {named} to {changes[0].value}."
    )
    return advice._replace(todo=todo, changes=changes)


def _longer_timeouts(facts: Facts, passed: Sequence[Stall], longest: float) -> Tuple[Change, ...]:
    """The allowances of the roles that paused, of those that were too short."""
    minutes = ceil(longest * PAUSE_ROOM / 60)
    named = {role for stall in passed for role in stall.roles}
    own = [f"tony.{role.name}.stall-timeout" for role in facts.roles if role.name in named]
    keys = dict.fromkeys(key if key in facts.config else _TIMEOUT for key in own or [_TIMEOUT])
    changes = []
    for key in keys:
        was = facts.was(key)
        with suppress(ValueError):
            allowed = parse_duration_s(was, "s") if was else 0.0
            if allowed is not None and allowed < 60 * minutes:
                changes.append(Change(key, f"{minutes}m", was))
    return tuple(changes)


# ------------------------------------------------------------------ stalls that do not


def _restart(facts: Facts, advice: Advice) -> Advice:
    spared = _spared_by_restarts(facts)
    changes = [Change(_ACTION, "restart", facts.was(_ACTION))]
    words = f"{_ACTION}=restart"
    if facts.was(_RETRIES).strip() == "0":  # which pays for it: without, the job would fail
        changes.append(Change(_RETRIES, "1", facts.was(_RETRIES)))
        words += f" and {_RETRIES}=1"
    how = "goes on from its checkpoint" if facts.saved_at else "starts again"
    return advice._replace(
        todo=f"{_STACKS} With {words} the job {how} by itself.",
        changes=tuple(changes),
        saving=facts.cost_of(spared) if spared else {},
    )


def _spared_by_restarts(facts: Facts) -> List[Span]:
    """What is left of each stall after it was seen, programs have got to their first step again,
    and what was not saved is done again.

    Where a failure ended the stall and a session followed, that start was only later.
    """
    sessions = max(1, len(facts.line.sessions))
    start = (facts.sums.get(STAGING, 0.0) + facts.sums.get(STARTING, 0.0)) / sessions
    saved, steps = facts.saved_at, facts.first_steps
    running = [span for span in facts.line.phases if span.kind in (RUNNING, LOST)]
    begins = [span.begin for span in running]
    began_at: Dict[int, float] = {}
    for span in running:
        began_at.setdefault(span.session, span.begin)
    last_session = facts.line.sessions[-1].begin if facts.line.sessions else 0.0
    found = []
    for stall in facts.stalls_seen:
        begin = stall.span.begin
        before = bisect_right(begins, begin)
        session = running[before - 1].session if before else -1
        began = began_at[session] if before else begin
        stepped = max(began, steps.get(session, began))
        # A checkpoint is a move: one that came until it was seen is from before the stall.
        kept = bisect_right(saved, stall.seen_at)
        kept_at = max(stepped, saved[kept - 1] if kept else 0.0)
        again = start + stepped - began + max(0.0, begin - kept_at)
        if last_session >= stall.span.end:
            again = 0.0
        left = stall.span._replace(begin=stall.seen_at + again)
        if left.begin < left.end:
            found.append(left)
    return found
