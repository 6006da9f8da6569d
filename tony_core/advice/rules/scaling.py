"""Too many or too few workers, by the sizes that an elastic job had from session to session. Pure.

A step that got clearly faster with more workers does a fixed amount of work, shared among them: its
speed-up is held against their growth. Where each worker has a fixed batch a step keeps its time, or
gets a little slower, so only one that takes more than twice the time is advised against. From what
lies between nothing follows.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from tony_core.advice.advice import LOW, Advice, Change
from tony_core.advice.facts import HOUR_S, Facts, RoleFacts, median, number
from tony_core.advice.thresholds import (
    FASTER,
    GOOD_SPEED_UP,
    SLOWER,
    SPEED_UP,
    grade_below,
)
from tony_core.history.layout import StoryKind


class _Size(NamedTuple):
    workers: int
    steps_per_s: float
    ran_s: float


def advise_scaling(facts: Facts) -> List[Advice]:
    """For each elastic role that had several sizes."""
    found = []
    for role in facts.roles:
        if role.is_elastic:
            sizes = _sizes(facts, role)
            if len(sizes) >= 2:
                found.append(_judge(facts, role, sizes[0], sizes[-1]))
    return [each for each in found if each is not None]


def _sizes(facts: Facts, role: RoleFacts) -> List[_Size]:
    """Each size with the speed that it had, from the smallest."""
    of_session: Dict[int, int] = {}
    for line in facts.story:
        size = number(line.fields.get("size"))
        if line.kind == StoryKind.ELASTIC.value and line.fields.get("role") == role.name and size:
            of_session[line.session] = max(1, int(size))
    rates: Dict[int, List[float]] = {}
    ran: Dict[int, float] = {}
    for task in role.tasks:
        for span in task.spans:
            rate = task.steps_per_s(span, facts.least) if span.session in of_session else None
            if rate is not None:
                rates.setdefault(span.session, []).append(rate)
                ran[span.session] = max(ran.get(span.session, 0.0), span.end - span.begin)
    seen: Dict[int, List[Tuple[float, float]]] = {}
    for session, size in of_session.items():
        if session in rates:
            seen.setdefault(size, []).append((median(rates[session]), ran[session]))
    return [
        _Size(size, median([rate for rate, _ in seen[size]]), sum(ran for _, ran in seen[size]))
        for size in sorted(seen)
    ]


def _judge(facts: Facts, role: RoleFacts, few: _Size, many: _Size) -> Optional[Advice]:
    speed_up = many.steps_per_s / few.steps_per_s
    growth = many.workers / few.workers
    evidence = {
        "workers": float(many.workers),
        "fewer workers": float(few.workers),
        "steps per s": round(many.steps_per_s, 4),
        "steps per s with fewer": round(few.steps_per_s, 4),
        "speed-up": round(speed_up, 3),
    }
    seen = (
        f"{many.workers} tasks of {role.name} did {many.steps_per_s:.3g} steps per s,"
        f" {few.workers} did {few.steps_per_s:.3g}"
    )
    if speed_up >= FASTER:
        share = speed_up / growth
        severity = grade_below(share, SPEED_UP)
        if severity is not None:
            return _reduce(facts, role, few, many, severity, share, f"{seen}.", evidence)
        if share >= GOOD_SPEED_UP and many.workers >= role.instances:
            return Advice(
                "scaling", LOW, role.name,
                f"{seen}: the speed grew with the tasks.",
                f"Try more than {many.workers} (tony.{role.name}.instances), as long as it does.",
                evidence,
            )  # fmt: skip
        return None
    if speed_up >= SLOWER:
        return None
    severity = grade_below(speed_up, SPEED_UP)
    if severity is None:
        return None
    return _reduce(facts, role, few, many, severity, speed_up, f"{seen}.", evidence)


def _reduce(
    facts: Facts,
    role: RoleFacts,
    few: _Size,
    many: _Size,
    severity: str,
    share: float,
    problem: str,
    evidence: Dict[str, float],
) -> Optional[Advice]:
    key = f"tony.{role.name}.instances"
    if few.workers >= role.instances:
        return None
    todo = f"Set {key} to {few.workers}: a step then costs {share:.0%} of what it did"
    if many.steps_per_s > few.steps_per_s:
        todo += f", and takes {many.steps_per_s / few.steps_per_s:.1f} times as long"
    return Advice(
        "scaling",
        severity,
        role.name,
        problem,
        f"{todo}.",
        evidence,
        (Change(key, str(few.workers), facts.was(key)),),
        role.cost_of(many.ran_s / HOUR_S * many.workers * (1 - share)),
    )
