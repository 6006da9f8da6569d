"""Problems of a job, as data.

Every check appends to one list, so that a user sees all of it at once. This module runs
on nodes too (the master checks limits again): standard library only.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Optional, Sequence

if TYPE_CHECKING:
    from tony_core.job.spec import Job

_PLACE = re.compile(r"(.+):([0-9]+)", re.DOTALL)  # file:line


class Severity(str, Enum):
    """Whether a problem refuses the job."""

    ERROR = "error"
    WARNING = "warning"


class Problem(NamedTuple):
    """A mistake in a job, and its place."""

    message: str
    key: Optional[str] = None
    file: Optional[str] = None  # a path, or the word of the command line it came from
    line: Optional[int] = None
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        where = self.file or ""
        if self.file and self.line is not None:
            where = f"{self.file}:{self.line}"
        # A message may quote a value: a URL with a password in it, say.
        from tony_core.job.mask import mask_text  # 2 ms of patterns that only an error needs

        return mask_text(": ".join(part for part in (where, self.key or "", self.message) if part))


def problem_at(job: Job, key: str, message: str, severity: Severity = Severity.ERROR) -> Problem:
    """A problem with a key, placed where the key was set."""
    for item in job.settings:
        if item.key == key and item.source != "default":
            placed = _PLACE.fullmatch(item.source)
            if placed is None:
                return Problem(message, key, item.source, severity=severity)
            return Problem(message, key, placed[1], int(placed[2]), severity)
    return Problem(message, key, severity=severity)


class JobError(Exception):
    """The job cannot be accepted; ``problems`` has every reason."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: List[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`` (did you mean X?)``, or nothing when no known word is near."""
    import difflib  # only an error needs it

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def errors(problems: Iterable[Problem]) -> List[Problem]:
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def warnings(problems: Iterable[Problem]) -> List[Problem]:
    return [problem for problem in problems if problem.severity is Severity.WARNING]
