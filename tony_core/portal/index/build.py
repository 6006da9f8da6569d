"""A row of the index, made of one job's history. Pure.

The files were written by a user, another version, or by chance: every text is bounded and every
number is one. Only the folder's name says which job it is, and only its owner whose.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Tuple

from tony_core.history.figures import job_figures, pipeline_of
from tony_core.history.reader import JobHistory
from tony_core.jsontext import is_number
from tony_core.portal.index.rows import JobRow
from tony_core.portal.viewer import readers

UNKNOWN = "UNKNOWN"
"""The state of a job whose files do not say it."""

_NAME, _ERROR, _TAG, _TAGS, _FIGURES, _PIPELINE = 200, 500, 200, 50, 200, 400
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def build_row(location: str, app_id: str, owner: str, record: JobHistory, changed: float) -> JobRow:
    """The row of a job; ``changed`` is when its files last changed."""
    job = record.job
    state = _text(job.get("state"), 20) or UNKNOWN
    tags = _tags(job.get("tags"))
    submitted = _time(job.get("submitted")) or _time(job.get("started")) or changed
    figures, problem = _figures(record)
    return JobRow(
        location=location,
        app_id=app_id,
        owner=owner,
        name=_text(job.get("name")),
        queue=_text(job.get("queue")),
        framework=_text(job.get("framework")),
        state=state,
        submitted=submitted,
        started=_time(job.get("started")),
        finished=_time(job.get("finished")),
        progress=min(1.0, max(0.0, _number(job.get("progress")))),
        tasks=len(record.tasks),
        error="" if state == "SUCCEEDED" else _error(job),
        tags=tags,
        pipeline=_text(pipeline_of(tags), _PIPELINE),
        figures=figures,
        readers=tuple(sorted(readers(owner, _text(job.get("view_acl"), 2000)))),
        problem=_text("; ".join((*record.problems, *problem)), _ERROR),
    )


def problem_row(location: str, app_id: str, owner: str, problem: str, changed: float) -> JobRow:
    """The row of a job whose files cannot be read."""
    return JobRow(
        location=location,
        app_id=app_id,
        owner=owner,
        state=UNKNOWN,
        submitted=changed,
        readers=tuple(sorted(readers(owner, ""))) if owner else (),
        problem=_text(problem, _ERROR),
    )


def words_of(row: JobRow) -> str:
    """What a search finds a job by."""
    parts = (row.name, row.app_id, row.owner, row.queue, row.framework, row.state, row.pipeline)
    return " ".join(part for part in (*parts, *row.tags, row.error, row.problem) if part)


def _figures(record: JobHistory) -> Tuple[Dict[str, float], Tuple[str, ...]]:
    try:
        found = job_figures(record)
    except Exception as error:  # one odd job hides no other
        return {}, (f"its figures cannot be computed: {type(error).__name__}: {error}",)
    kept = [(_text(name, 100), value) for name, value in found.items() if is_number(value, 1e15)]
    return {name: float(f"{value:.9g}") for name, value in kept[:_FIGURES]}, ()


def _error(job: Mapping[str, Any]) -> str:
    """What failed, with the last line of its program, which says why; then the rest."""
    root = job.get("root_cause")
    cause = root if isinstance(root, dict) else {}
    found = cause.get("message") or job.get("diagnostics")
    first, _, rest = (found.strip() if isinstance(found, str) else "").partition("\n")
    tail = cause.get("stderr_tail")
    lines = [_text(line, _ERROR) for line in tail[-5:]] if isinstance(tail, (list, tuple)) else []
    why = next((line for line in reversed(lines) if line), "")
    if why and why not in first:
        first = f"{first}: {why}" if first else why
    return _text(f"{first} {rest}", _ERROR)


def _tags(value: Any) -> Tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    found = (_text(tag, _TAG) for tag in value[:_TAGS])
    return tuple(dict.fromkeys(tag for tag in found if tag))


def _text(value: Any, limit: int = _NAME) -> str:
    """A line of text that any place can hold."""
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        return ""
    text = _UNPRINTABLE.sub(" ", str(value)[: 4 * limit]).strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _time(value: Any) -> Optional[float]:
    return float(value) if is_number(value, 1e15) and value > 0 else None


def _number(value: Any) -> float:
    return float(value) if is_number(value, 1e15) else 0.0
