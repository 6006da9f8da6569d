"""The advice on a job as the portal shows it: worked out once for all readers, in rows of text."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

from tony_core.advice.report import Report, report_on
from tony_core.advice.wording import (
    describe_change,
    describe_saving,
    evidence_rows,
    headline,
    snippet,
    subject,
)
from tony_core.client.advice import MOST_TASKS
from tony_core.portal.job_source import JobSource
from tony_core.unexpected_errors import UnexpectedErrors
from tony_core.view import JobView

_ERRORS = UnexpectedErrors()  # of rules: their job's page is shown without advice


class Finding(NamedTuple):
    """One piece of advice; the texts are not escaped."""

    severity: str
    problem: str
    todo: str
    evidence: Tuple[Tuple[str, str], ...]
    changes: Tuple[str, ...]
    snippet: str  # the changes as a job file has them
    saving: str


class Shown(NamedTuple):
    """All of it."""

    headline: str = ""  # "2 (1 severe)"; empty: there is none
    findings: Tuple[Finding, ...] = ()
    notes: Tuple[str, ...] = ()
    is_running: bool = False


def read_report(source: JobSource, view: JobView) -> Tuple[Report, bool]:
    """The advice on a job, and whether all of it could be read.

    Reads the metrics of all tasks, and so not of too many. ``view`` is the job as it was read
    before.
    """
    if len(view.tasks) > MOST_TASKS:
        text = (
            f"it has {len(view.tasks)} tasks, whose metrics are too many to read here; the"
            f" advice is shown by: tony advise {view.app_id}"
        )
        return Report(notes=(text,), is_running=source.is_running), True
    record = source.record(True, True, view)
    problems: List[str] = []
    config = b""
    try:
        config = source.config_file() or b""
    except (OSError, LookupError) as error:
        problems.append(f"its configuration cannot be read: {error}")
    try:
        report = report_on(record, config)
    except Exception:  # a fault of a rule
        report = Report()
        problems.append(f"its advice cannot be worked out: {_ERRORS.record('advice')}")
    found = report._replace(notes=(*report.notes, *problems))
    return found, not problems and not record.problems


def show(report: Report) -> Shown:
    """The report as a page shows it."""
    findings = tuple(
        Finding(
            each.severity,
            subject(each) + each.problem,
            each.todo,
            tuple(evidence_rows(each)),
            tuple(map(describe_change, each.changes)),
            snippet(each.changes),
            describe_saving(each),
        )
        for each in report.advice
    )
    return Shown(headline(report), findings, report.notes, report.is_running)
