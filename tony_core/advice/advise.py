"""All advice on one job. Pure."""

from __future__ import annotations

from typing import List

from tony_core.advice.advice import SEVERITIES, Advice
from tony_core.history.reader import JobHistory


def advise(record: JobHistory, config: bytes = b"") -> List[Advice]:
    """What the rules found in a job's history and configuration (XML), the worst first."""
    found: List[Advice] = []
    return sorted(found, key=lambda each: -SEVERITIES.index(each.severity))
