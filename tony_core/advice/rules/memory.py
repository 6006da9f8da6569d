"""Memory of a role: far more than was used, or so little that tasks were killed for it. Pure."""

from __future__ import annotations

from math import ceil
from typing import Dict, List, Optional, Union

from tony_core.advice.advice import CRITICAL, MODERATE, SEVERE, Advice, Change
from tony_core.advice.facts import Facts, RoleFacts, mapping
from tony_core.advice.thresholds import (
    EXECUTOR_MB,
    LEAST_MEMORY_MB,
    LEAST_MEMORY_SAVED_MB,
    MB_OF_GB,
    MEMORY_HEAD_ROOM,
    MEMORY_STEP_MB,
    NEAR_LIMIT,
    USED_MEMORY,
    WHOLE_GB_FROM_MB,
    grade_below,
)
from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.job.units import format_memory
from tony_core.measures import PEAK_RSS_MB, RSS_MB


def advise_memory(facts: Facts) -> List[Advice]:
    """For each role: less memory, or more."""
    found = (_raise(facts, role) or _reduce(facts, role) for role in facts.roles)
    return [each for each in found if each is not None]


def needed_mb(peak_mb: float) -> int:
    """What to ask for, for a task that uses so much."""
    size_mb = peak_mb * MEMORY_HEAD_ROOM + EXECUTOR_MB
    step_mb = MEMORY_STEP_MB if size_mb < WHOLE_GB_FROM_MB else int(MB_OF_GB)
    return max(LEAST_MEMORY_MB, ceil(size_mb / step_mb) * step_mb)


def _peak_mb(role: RoleFacts) -> Optional[float]:
    """The most that any task used in any session; None: it was not measured."""
    sampled = [value for task in role.tasks for value in task.values(RSS_MB)]
    whole = [task.usage(PEAK_RSS_MB) for task in role.tasks]
    return max([*sampled, *(peak for peak in whole if peak is not None)], default=None)


def _evidence(
    role: RoleFacts, peak_mb: Optional[float], new_mb: int
) -> Dict[str, Union[float, str]]:
    found: Dict[str, Union[float, str]] = {"asked (GB)": round(role.memory_mb / MB_OF_GB, 2)}
    if peak_mb is not None:
        found["used at most (GB)"] = round(peak_mb / MB_OF_GB, 2)
    found["with head room (GB)"] = round(new_mb / MB_OF_GB, 2)
    found["tasks"] = float(len(role.tasks))
    return found


def _change(facts: Facts, role: RoleFacts, new_mb: int) -> Change:
    key = facts.key_of(role, "memory")
    return Change(key, format_memory(new_mb), facts.was(key))


# ------------------------------------------------------------------ less


def _reduce(facts: Facts, role: RoleFacts) -> Optional[Advice]:
    peak = _peak_mb(role)
    if peak is None or role.memory_mb <= 0 or not facts.has_seen_all(role):
        return None
    if not role.measured(RSS_MB, facts.least):
        return None
    severity = grade_below(peak / role.memory_mb, USED_MEMORY)
    new = needed_mb(peak)
    saved_mb = role.memory_mb - new
    if severity is None or saved_mb < LEAST_MEMORY_SAVED_MB:
        return None
    change = _change(facts, role, new)
    if new > LEAST_MEMORY_MB:
        why = f"the largest use, with room for {MEMORY_HEAD_ROOM - 1:.0%} more"
    else:
        why = "the largest use has room in it, and less is not advised"
    return Advice(
        "memory",
        severity,
        role.name,
        f"{role.name} asked for {_size(role.memory_mb)} for each task and used"
        f" {_size(peak)} at most.",
        f"Set {change.key} to {change.value}: {why}.",
        _evidence(role, peak, new),
        (change,),
        {"memory_gb_hours": saved_mb / MB_OF_GB * role.held_h},
    )


# ------------------------------------------------------------------ more


def _raise(facts: Facts, role: RoleFacts) -> Optional[Advice]:
    if role.memory_mb <= 0:
        return None
    peak = _peak_mb(role)
    killed = _killed(facts, role)
    if killed:
        # It used at least what it asked for; how much it would have used is not known.
        new = needed_mb(max(role.memory_mb, peak or 0.0))
        task = killed[0]
        more = f" and {len(killed) - 1} more" if len(killed) > 1 else ""
        severity = CRITICAL if facts.has_failed else SEVERE
        problem = f"{task}{more} went over the {_size(role.memory_mb)} that {role.name} asked for."
    elif peak is not None and (peak + EXECUTOR_MB) / role.memory_mb >= NEAR_LIMIT:
        new = needed_mb(peak)
        severity = MODERATE
        problem = (
            f"{role.name} used {_size(peak)} of the {_size(role.memory_mb)} that a task asked"
            " for: with a little more the scheduler ends it."
        )
    else:
        return None
    if new <= role.memory_mb:
        return None
    change = _change(facts, role, new)
    evidence = {**_evidence(role, peak, new), "tasks killed for memory": float(len(killed))}
    return Advice(
        "memory-limit",
        severity,
        role.name,
        problem,
        f"Set {change.key} to {change.value}, or let the program use less.",
        evidence,
        (change,),
    )


def _killed(facts: Facts, role: RoleFacts) -> List[str]:
    """The tasks of a role that were ended for their memory, in any session."""
    names = [task.name for task in role.tasks]
    last = [task.name for task in role.tasks if task.cause == ExitCause.MEMORY]
    root = mapping(facts.job.get("root_cause"))
    seen = [line.fields for line in facts.story if line.kind == StoryKind.ROOT_CAUSE.value]
    causes = [root, *seen]
    named = [each.get("task") for each in causes if each.get("cause") == ExitCause.MEMORY]
    return [name for name in names if name in last or name in named]


def _size(size_mb: float) -> str:
    return f"{size_mb / MB_OF_GB:.1f} GB" if size_mb >= MB_OF_GB else f"{size_mb:.0f} MB"
