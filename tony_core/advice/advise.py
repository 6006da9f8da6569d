"""All advice on one job. Pure."""

from __future__ import annotations

from typing import List

from tony_core.advice.advice import SEVERITIES, Advice
from tony_core.advice.facts import Facts
from tony_core.advice.rules import RULES
from tony_core.advice.thresholds import LEAST_EVIDENCE, LeastEvidence
from tony_core.history.reader import JobHistory


def advise(
    record: JobHistory, config: bytes = b"", *, least: LeastEvidence = LEAST_EVIDENCE
) -> List[Advice]:
    """What the rules found in a job's history and configuration (XML), the worst first.

    ``least``: what is too little evidence. Of a history that was not read to its end there is no
    advice.
    """
    if record.is_cut:
        return []
    facts = Facts(record, config, least)
    found = [each for rule in RULES for each in rule(facts)]
    return sorted(found, key=lambda each: -SEVERITIES.index(each.severity))
