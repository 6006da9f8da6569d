"""Advice in words: for a terminal, a log, a page. Pure.

What a job's author wrote (names of roles and metrics) may be in every text: callers escape it.
"""

from __future__ import annotations

from typing import Iterable, List, Sequence, Tuple, Union

from tony_core.advice.advice import Advice, Change
from tony_core.advice.report import Report
from tony_core.durations import describe_duration
from tony_core.job.xml_edit import IN_TEXT
from tony_core.jsontext import is_number

LONGEST = 400  # characters of a line of a log
_SAVINGS = {
    "memory_gb_hours": "GB hours of memory",
    "gpu_hours": "GPU hours",
    "vcore_hours": "core hours",
}


def describe_change(change: Change) -> str:
    """``tony.worker.memory: 8g -> 3g``."""
    if change.was:
        return f"{change.key}: {change.was} -> {change.value}"
    return f"{change.key}: {change.value} (it was not set)"


def describe_evidence(advice: Advice) -> str:
    """``asked (GB) 8, used at most (GB) 2.1``."""
    return ", ".join(f"{name} {value}" for name, value in evidence_rows(advice))


def evidence_rows(advice: Advice) -> List[Tuple[str, str]]:
    """What the rule looked at: names and values."""
    return [(str(name), _amount(value)) for name, value in advice.evidence.items()]


def describe_saving(advice: Advice) -> str:
    """``12 GB hours of memory, 1 min 20 s of each run``; empty where nothing is known of it."""
    parts = []
    for name, value in advice.saving.items():
        if not is_number(value) or value <= 0:
            continue
        if name == "duration_s":
            parts.append(describe_duration(value))
        else:
            parts.append(f"{_amount(value)} {_SAVINGS.get(name, str(name).replace('_', ' '))}")
    return ", ".join(parts)


def snippet(changes: Iterable[Change]) -> str:
    """The changes as a job file has them."""
    return "\n".join(
        f"<property>\n  <name>{each.key.translate(IN_TEXT)}</name>\n"
        f"  <value>{each.value.translate(IN_TEXT)}</value>\n</property>"
        for each in changes
    )


def headline(report: Report) -> str:
    """``2 (1 severe)``; empty without advice."""
    if not report.advice:
        return ""
    counts = report.counts()
    named = [f"{count} {name}" for name, count in counts.items() if name in ("critical", "severe")]
    return f"{len(report.advice)}" + (f" ({', '.join(named)})" if named else "")


def log_lines(report: Report, command: str, most: int) -> List[str]:
    """At most so many lines: how much advice there is, the command that shows it, the worst."""
    if not report.advice:
        return []
    first = f"advice: {headline(report)}: {command}"
    room = most - 1
    if room >= len(report.advice):
        return [first, *(f"  {_log_line(each)}" for each in report.advice)]
    shown = report.advice[: max(0, room - 1)]
    more = [f"  and {len(report.advice) - len(shown)} more"] if room > 0 else []
    return [first, *(f"  {_log_line(each)}" for each in shown), *more]


def _log_line(advice: Advice) -> str:
    changes = "; ".join(map(describe_change, advice.changes))
    text = f"{advice.severity}: {subject(advice)}{advice.problem}"
    return _cut(f"{text} [{changes or advice.todo}]" if changes or advice.todo else text)


def subject(advice: Advice) -> str:
    """``worker: `` where the problem does not name it; empty for the job itself."""
    return f"{advice.about}: " if advice.about and advice.about not in advice.problem else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _amount(value: Union[float, str, Sequence[str]]) -> str:
    if not is_number(value):
        return str(value)
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.3g}"
