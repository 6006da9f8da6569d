"""Retries that could not help: the program failed each time for the same cause. Pure."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.advice.facts import Facts
from tony_core.advice.thresholds import RETRIED, grade_above
from tony_core.exit_causes import Fault
from tony_core.history.layout import StoryKind
from tony_core.history.metric_points import points_of, tasks_with
from tony_core.measures import SAVED, STEP

_KEY = "tony.am.retry-count"
_DIGITS = re.compile(r"\d+")
_LONGEST = 200

_Signature = Tuple[str, str, str, str]


def advise_retries(facts: Facts) -> List[Advice]:
    """Where a job failed as it had failed before."""
    causes = [line for line in facts.story if line.kind == StoryKind.ROOT_CAUSE.value]
    if not facts.has_failed or len(causes) < 2 or causes[-1].fields.get("fault") != Fault.USER:
        return []
    last = _signature(causes[-1].fields)
    same = [causes[-1]]
    for line in reversed(causes[:-1]):
        if line.fields.get("fault") != Fault.USER or _signature(line.fields) != last:
            break
        same.insert(0, line)
    wasted = facts.line.end - same[0].at
    if len(same) < 2 or wasted < facts.least.retried_s or _has_progressed(facts, same[0].at):
        return []
    severity = grade_above(wasted / max(facts.duration_s, 1.0), RETRIED)
    if severity is None:
        return []
    changes: Tuple[Change, ...] = ()
    saved = wasted
    todo = "Mend the program: another try ends like the last one"
    if facts.count(_KEY) > 1 and len(same) > 2:
        changes = (Change(_KEY, "1", facts.was(_KEY)),)
        saved = facts.line.end - same[1].at  # one retry is left
        todo += f". Until then {_KEY}=1 ends the job sooner"
    text = _last_line(causes[-1].fields) or f"exit code {last[1]}"
    return [
        Advice(
            "retries",
            severity,
            str(causes[-1].fields.get("task") or ""),
            f"The job failed {len(same)} times for the same cause ({text}); the retries took"
            f" {wasted:.0f} s.",
            f"{todo}.",
            {"same failures": float(len(same)), "retries took (s)": round(wasted, 1),
             "role": last[0], "exit code": last[1]},
            changes,
            {"duration_s": saved},
        )
    ]  # fmt: skip


def _signature(fields: Mapping[str, Any]) -> _Signature:
    """What makes two failures the same; numbers (times, pids, steps) do not count."""
    text = _DIGITS.sub("#", _last_line(fields))
    role, exit_code, cause = (str(fields.get(each)) for each in ("role", "exit_code", "cause"))
    return role, exit_code, cause, text


def _last_line(fields: Mapping[str, Any]) -> str:
    tail = fields.get("stderr_tail")
    last = tail[-1] if isinstance(tail, (list, tuple)) and tail else ""
    return str(last or fields.get("message") or "")[:_LONGEST]


def _has_progressed(facts: Facts, since: float) -> bool:
    """Whether a later session got further than the first one that failed so."""
    for metric in (STEP, SAVED):
        for task in tasks_with(facts.record, metric):
            points = points_of(facts.record, task, metric)
            before = max((value for at, value in points if at <= since), default=None)
            after = max((value for at, value in points if at > since), default=None)
            if before is not None and after is not None and after > before:
                return True
    return False
