"""Cores of a role: idle ones, or too few. Pure.

Both sides aim at the same number, :func:`needed_cores`, so that what one says the other does not
take back.
"""

from __future__ import annotations

from math import ceil
from typing import List, Optional, Tuple

from tony_core.advice.advice import LOW, Advice, Change
from tony_core.advice.facts import Facts, RoleFacts, median, quantile
from tony_core.advice.rules.gpu_input import is_starved
from tony_core.advice.rules.parameter_servers import full_servers
from tony_core.advice.thresholds import (
    CORES_HEAD_ROOM,
    FEW_CORES,
    FULL_CORES,
    HIGH,
    OVER_CORES,
    USED_CORES,
    grade_above,
    grade_below,
)
from tony_core.measures import CPU_PERCENT


def advise_cores(facts: Facts) -> List[Advice]:
    """For each role: fewer cores, or more."""
    if full_servers(facts):
        return []  # workers are idle and servers full for one reason, and that rule has it
    found = []
    for role in facts.roles:
        used = cores_used(facts, role)
        if used is None or is_starved(facts, role):
            continue
        found.append(_reduce(facts, role, *used) or _raise(facts, role, *used))
    return [each for each in found if each is not None]


def cores_used(facts: Facts, role: RoleFacts) -> Optional[Tuple[float, float]]:
    """(mostly, at most) of the busiest task, in cores; None: that is not known."""
    tasks = role.measured(CPU_PERCENT, facts.least)
    if not tasks or role.vcores < 1:
        return None
    mostly = max(median(task.values(CPU_PERCENT)) for task in tasks) / 100
    return mostly, max(quantile(task.values(CPU_PERCENT), HIGH) for task in tasks) / 100


def needed_cores(most: float) -> int:
    """What to ask for, for a task that uses so many."""
    return max(1, ceil(most * CORES_HEAD_ROOM))


def _reduce(facts: Facts, role: RoleFacts, mostly: float, most: float) -> Optional[Advice]:
    severity = grade_below(most / role.vcores, USED_CORES)
    new = needed_cores(most)
    if severity is None or new >= role.vcores or not facts.has_seen_all(role):
        return None
    key = facts.key_of(role, "vcores")
    return Advice(
        "cores",
        severity,
        role.name,
        f"{role.name} asked for {_cores(role.vcores)} for each task, and its busiest task used"
        f" {most:.1f} or less {HIGH:.0%} of the time.",
        f"Set {key} to {new}, or let the program use more threads or processes.",
        {"asked (cores)": role.vcores, "used at most (cores)": round(most, 2),
         "used half of the time (cores)": round(mostly, 2), "tasks": float(len(role.tasks))},
        (Change(key, str(new), facts.was(key)),),
        {"vcore_hours": (role.vcores - new) * role.held_h},
    )  # fmt: skip


def _raise(facts: Facts, role: RoleFacts, mostly: float, most: float) -> Optional[Advice]:
    share = mostly / role.vcores
    is_full = share >= FULL_CORES and 2 <= role.vcores <= FEW_CORES
    severity = grade_above(share, OVER_CORES) or (LOW if is_full else None)
    new = needed_cores(most)
    if severity is None or new <= role.vcores:
        return None
    key = facts.key_of(role, "vcores")
    return Advice(
        "cores-short",
        severity,
        role.name,
        f"{role.name} asked for {_cores(role.vcores)} for each task, and its busiest task used"
        f" {mostly:.1f} or more half of the time.",
        f"Set {key} to {new}: where nodes enforce cores the program is held back, and where they"
        " do not it takes its neighbours'.",
        {"asked (cores)": role.vcores, "used half of the time (cores)": round(mostly, 2),
         "used at most (cores)": round(most, 2), "tasks": float(len(role.tasks))},
        (Change(key, str(new), facts.was(key)),),
    )  # fmt: skip


def _cores(count: float) -> str:
    return f"{count:g} core" + ("" if count == 1 else "s")
