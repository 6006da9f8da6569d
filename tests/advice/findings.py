"""Advice for tests, in place of the rules'."""

from __future__ import annotations

from typing import Any, List

import pytest

from tony_core.advice import report
from tony_core.advice.advice import LOW, SEVERE, Advice, Change

MEMORY = Advice(
    "memory",
    SEVERE,
    "worker",
    "asks for 8 GB of memory and never used more than 2.1 GB",
    "ask for less memory",
    {"asked (GB)": 8.0, "used at most (GB)": 2.1},
    (Change("tony.worker.memory", "3g", "8g"),),
    {"memory_gb_hours": 12.0, "duration_s": 80.0},
)
INPUT = Advice("input", LOW, "", "the GPUs wait for data 40 % of the time", "read ahead")


def stand_in(patch: pytest.MonkeyPatch, *found: Advice) -> None:
    """Let these be found in every job."""

    def advise(record: Any, config: bytes = b"") -> List[Advice]:
        return list(found)

    patch.setattr(report, "advise", advise)
