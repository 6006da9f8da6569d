"""One piece of advice: what was seen, what to change, and what that would save. Pure."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Tuple, Union

LOW, MODERATE, SEVERE, CRITICAL = "low", "moderate", "severe", "critical"
SEVERITIES = (LOW, MODERATE, SEVERE, CRITICAL)
"""From the least to the worst."""


class Change(NamedTuple):
    """A key of the job file, and the value that would be better."""

    key: str
    value: str
    was: str = ""  # empty: it was not set

    def to_json(self) -> Dict[str, Any]:
        return dict(self._asdict())


class Advice(NamedTuple):
    """What one rule found in one job."""

    rule: str  # its name: "memory"
    severity: str
    about: str  # a role ("worker"), a task ("worker:3"), or empty: the job
    problem: str  # one sentence with the numbers that matter
    todo: str  # one sentence: what to change, for a change that no key can make as well
    #: What the rule looked at, by name: {"asked (GB)": 8.0, "used at most (GB)": 2.1}
    evidence: Mapping[str, Union[float, str]] = {}
    #: As a job file has them; empty where only the program can be changed.
    changes: Tuple[Change, ...] = ()
    #: Of a run like this one: {"memory_gb_hours": 12.0, "gpu_hours": 3.5, "duration_s": 80.0}
    saving: Mapping[str, float] = {}

    def to_json(self) -> Dict[str, Any]:
        changes = [each.to_json() for each in self.changes]
        return {**self._asdict(), "changes": changes, "evidence": dict(self.evidence),
                "saving": dict(self.saving)}  # fmt: skip
