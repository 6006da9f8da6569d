"""Rows of the index."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

from tony_core.history.reader import JobHistory
from tony_core.portal.index.build import build_row

DIAGNOSTICS = "worker:0 on n1 failed with exit code 1\nlast lines of its stderr:\n  OSError: full"


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        (
            {
                "diagnostics": DIAGNOSTICS,
                "root_cause": {"stderr_tail": ["at x", "OSError: full", " "]},
            },
            "worker:0 on n1 failed with exit code 1: OSError: full last lines",
        ),
        ({"diagnostics": "killed by ann\nat noon"}, "killed by ann at noon"),
        ({"root_cause": {"message": "no GPU: none", "stderr_tail": ["none"]}}, "no GPU: none"),
        ({"root_cause": {"stderr_tail": ["only a line"]}}, "only a line"),
        ({"diagnostics": 7, "root_cause": {"message": [], "stderr_tail": [{}, None]}}, ""),
        ({"diagnostics": "\x1b[31m red", "root_cause": []}, "[31m red"),
    ],
)
def test_the_list_shows_why_a_job_failed_first(job: Mapping[str, Any], shown: str) -> None:
    row = build_row("here", "app_1", "ann", JobHistory("app_1", {"state": "FAILED", **job}), 5.0)
    assert row.error.startswith(shown)
    assert bool(row.error) == bool(shown)
