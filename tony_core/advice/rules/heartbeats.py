"""Heartbeats that nearly, or really, came too late. Pure.

A master measures the largest gap between two messages of a task's executor
(``heartbeat_gap_s``), where it is long enough to matter.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import Dict, List, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.advice.facts import Facts, default_of
from tony_core.advice.thresholds import HEARTBEAT_GAP, LONGEST_ALLOWANCE_S, grade_above
from tony_core.job.units import parse_duration_s
from tony_core.measures import HEARTBEAT_GAP_S

_MISSED, _INTERVAL = "tony.task.max-missed-heartbeats", "tony.task.heartbeat-interval-ms"
_ROOM = 2.0  # of the longest gap: the next one may be longer


def advise_heartbeats(facts: Facts) -> List[Advice]:
    """For the job: a longer allowance, where a task came near to it."""
    gaps: Dict[str, float] = {}
    for task in facts.tasks:
        values = task.values(HEARTBEAT_GAP_S)
        if values:
            gaps[task.name] = max(values)
    if not gaps:
        return []
    worst = max(gaps, key=lambda name: gaps[name])
    interval, missed = _interval_s(facts), facts.count(_MISSED)
    allowed, gap = interval * missed, gaps[worst]
    severity = grade_above(gap / allowed, HEARTBEAT_GAP)
    new = ceil(gap * _ROOM / interval)
    if severity is None or gap < facts.least.gap_s or new <= missed:
        return []
    node = next((task.node for task in facts.tasks if task.name == worst), "")
    on = f" on {node}" if node else ""
    todo = "See what keeps the node busy (memory that is swapped, more threads than cores)"
    changes: Tuple[Change, ...] = ()
    if new * interval <= LONGEST_ALLOWANCE_S:
        changes = (Change(_MISSED, str(new), facts.was(_MISSED)),)
        todo += f", or set {_MISSED} to {new}"
    return [
        Advice(
            "heartbeats",
            severity,
            worst,
            f"The executor of {worst}{on} sent nothing for {gap:.1f} s; after {allowed:g} s it"
            " counts as lost.",
            f"{todo}.",
            {"longest gap (s)": round(gap, 2), "allowed (s)": round(allowed, 2),
             "tasks with gaps": float(len(gaps)), "node": node},
            changes,
        )
    ]  # fmt: skip


def _interval_s(facts: Facts) -> float:
    for text in (facts.setting(_INTERVAL), default_of(_INTERVAL)):
        with suppress(ValueError):
            found = parse_duration_s(text, "ms")
            if found:
                return found
    return 1.0
