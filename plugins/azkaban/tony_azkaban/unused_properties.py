"""Properties that have no effect, for a warning in the job's log.

A key ``tony.`` that is unknown is refused; but ``executes``, ``src_dir`` and their like have no
prefix of their own, and stand among all the properties of Azkaban, other job types and a flow's
authors. ``srcdir=code`` cannot be refused, since a flow may have a property of that name for
itself; yet most often it is a slip, and the job does something else than its author meant. Other
properties are known and do nothing here: the JVM's, and variables of the machine that submits.
"""

from __future__ import annotations

from typing import Iterable, List, Mapping, Optional

from tony_azkaban.translation import (
    CONF,
    DATASETS,
    ENV,
    KEYS,
    LISTS,
    MAIN_ARGS,
    OF_SUBMIT,
    UNQUOTED,
    WORKER_ENV,
    has_our_conf,
    is_of_submitter,
    read_options,
)
from tony_core.job.problems import Problem, Severity
from tony_core.job.units import ENV_NAME

NAMES = (*UNQUOTED, "task_params", MAIN_ARGS, *LISTS[1:], *DATASETS)
"""Our properties without a prefix; ``conf`` is too common a name to be a slip."""
PREFIXES = (WORKER_ENV, "tony_azkaban.")
"""Prefixes; what follows is the job's own, or checked elsewhere."""

#: Properties with which other job types of Hadoop start a JVM.
_OF_JVM = (
    "Xms",
    "Xmx",
    "classpath",
    "hadoop.global.opts",
    "java.class",
    "jvm.args",
    "obtain.binary.token",
    "obtain.hcat.token",
    "obtain.jobtracker.token",
    "obtain.namenode.token",
    "other.hdfs.namenodes",
)
_INJECTED = ("hadoop-inject.", "hadoop-conf.")

_ALIKE = str.maketrans("-.", "__")


def find_misspelled(props: Iterable[str]) -> List[Problem]:
    """A warning for each property that is one slip away from one of ours."""
    found = []
    for key in sorted(props):
        meant = _meant(key)
        if meant:
            text = f"unknown property, which has no effect (did you mean {meant}?)"
            found.append(Problem(text, key, severity=Severity.WARNING))
    return found


def add_misspelled(problems: Iterable[Problem], props: Mapping[str, str]) -> List[Problem]:
    """The problems for which a job is refused, with the misspelled properties as a likely cause."""
    return [*problems, *(Problem(each.message, each.key) for each in find_misspelled(props))]


def find_unused(props: Mapping[str, str]) -> List[Problem]:
    """A warning for each kind of property that is known and has no effect."""
    found = []
    jvm = sorted(key for key, text in props.items() if _is_of_jvm(key, text))
    if jvm:
        found.append(f"of no effect here, since no JVM is started: {', '.join(jvm)}")
    ours = sorted(
        key
        for key, text in props.items()
        if text and key.startswith(ENV) and _is_unused_variable(key, props)
    )
    if ours:
        found.append(
            f"of no effect here: {', '.join(ours)} (a variable of the tasks is {WORKER_ENV}NAME)"
        )
    if props.get(CONF, "").strip() and not has_our_conf(props):
        found.append(f"of no effect here: {CONF} (no {KEYS}KEY=VALUE is in it)")
    left = len(read_options(props).unused)  # not quoted: one may be a secret
    if left:
        found.append(
            f"of no effect here: {left} of the words of {MAIN_ARGS} belong to no option (a value"
            " with blanks needs quotes)"
        )
    return [Problem(text, severity=Severity.WARNING) for text in found]


def _is_unused_variable(key: str, props: Mapping[str, str]) -> bool:
    """Whether a variable reaches no task, and means nothing to the submit."""
    name = key[len(ENV) :]
    if ENV_NAME.fullmatch(name) is None:
        return True
    return is_of_submitter(name) and name not in OF_SUBMIT and WORKER_ENV + name not in props


def _is_of_jvm(key: str, text: str) -> bool:
    if text.strip().lower() in ("", "false"):
        return False
    return key in _OF_JVM or key.startswith(_INJECTED)


def _meant(key: str) -> Optional[str]:
    if key in NAMES or key.startswith(PREFIXES):
        return None
    for name in NAMES:
        if _is_near(key, name):
            return name
    head, dot, rest = key.partition(".")
    for prefix in PREFIXES:
        if rest and _is_near(head + dot, prefix):
            return prefix + rest
    return None


def _is_near(key: str, name: str) -> bool:
    """Whether one slip, or another separator, makes the one of the other."""
    return is_one_edit(key.lower().translate(_ALIKE), name.translate(_ALIKE))


def is_one_edit(one: str, other: str) -> bool:
    """At most one character left out, added, replaced, or swapped with its neighbour."""
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1]
    return one[at + 1 :] == other[at + 1 :] or (swapped and one[at + 2 :] == other[at + 2 :])
