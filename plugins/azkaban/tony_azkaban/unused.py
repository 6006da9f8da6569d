"""Properties that look like one of ours, and are none.

A key ``tony.`` that nobody knows is refused; but ``executes``, ``src_dir`` and their like have no
beginning of their own, and stand among whatever Azkaban, other job types and a flow's authors put
into a job's properties. ``srcdir=code`` cannot be refused, since a flow may have a property of that
name for itself; yet most often the job would only do something else than was meant. So it is worth
a line in the log, as one edit away is seldom an accident.
"""

from __future__ import annotations

from typing import Iterable, List, Mapping, Optional

from tony_core.job.problems import Problem, Severity

WORDS = (
    "executes",
    "task_params",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "hdfs_classpath",
    "main.args",
    "shell_env",
    "container_env",
    "azkaban.input.dataset",
    "azkaban.output.dataset",
)
FAMILIES = ("worker_env.", "tony_azkaban.")
"""Beginnings; what follows is the job's own, or looked at elsewhere."""

_ALIKE = str.maketrans("-.", "__")


def misspelt(props: Iterable[str]) -> List[Problem]:
    """A warning for each property that is one slip away from one of ours."""
    found = []
    for key in sorted(props):
        meant = _meant(key)
        if meant:
            text = (
                f"is nothing that the job type knows, and changes nothing (did you mean {meant}?)"
            )
            found.append(Problem(text, key, severity=Severity.WARNING))
    return found


def refused(problems: Iterable[Problem], props: Mapping[str, str]) -> List[Problem]:
    """The same, told with what a job is refused for: it may be the reason."""
    return [*problems, *(Problem(each.message, each.key) for each in misspelt(props))]


def _meant(key: str) -> Optional[str]:
    if key in WORDS or key.startswith(FAMILIES):
        return None
    for word in WORDS:
        if _is_near(key, word):
            return word
    head, dot, rest = key.partition(".")
    for family in FAMILIES:
        if rest and _is_near(head + dot, family):
            return family + rest
    return None


def _is_near(said: str, word: str) -> bool:
    """Whether one slip, or another way to write the words apart, makes one of the other."""
    return is_one_edit(said.lower().translate(_ALIKE), word.translate(_ALIKE))


def is_one_edit(one: str, other: str) -> bool:
    """At most one mark left out, put in, taken for another, or swapped with its neighbour."""
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1]
    return one[at + 1 :] == other[at + 1 :] or (swapped and one[at + 2 :] == other[at + 2 :])
