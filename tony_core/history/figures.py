"""The numbers of a job that lists, sums, trends and comparisons share. Pure."""

from __future__ import annotations

from typing import Dict

from tony_core.history.reader import JobHistory


def job_figures(record: JobHistory) -> Dict[str, float]:
    """Of one job, by name; what is not known is left out."""
    submitted, finished = record.job.get("submitted"), record.job.get("finished")
    if not submitted or not finished:
        return {}
    return {"duration_s": max(0.0, finished - submitted)}
