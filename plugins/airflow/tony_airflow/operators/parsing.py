"""What the operator needs while a DAG is parsed: it imports next to nothing."""

from __future__ import annotations

import functools
import inspect
from typing import Any, List, Mapping, Tuple

from airflow.providers.common.compat.sdk import conf

MOST_LOG_LINKS = 16  # buttons for single tasks; the job's page has them all


def default_deferrable() -> bool:
    """What the installation says of operators that do not say it."""
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def refuse_unknown(operator: type, words: Mapping[str, Any]) -> None:
    """Airflow's own check names what it does not know, and not what was meant."""
    known = _arguments_of(operator)
    unknown = [word for word in words if word not in known]
    if unknown:
        from tony_core.job.problems import did_you_mean

        said = ", ".join(f"{word}{did_you_mean(word, known)}" for word in unknown)
        raise TypeError(f"{operator.__name__} has no argument {said}")


def tasks_of(roles: Any) -> List[str]:
    """The tasks of a job that are known as the DAG is parsed, the first few."""
    names: List[str] = []
    for role, said in roles.items() if isinstance(roles, Mapping) else ():
        count = said.get("instances") if isinstance(said, Mapping) else said
        if isinstance(role, str) and isinstance(count, int) and not isinstance(count, bool):
            names += [f"{role}:{index}" for index in range(min(count, MOST_LOG_LINKS))]
    return names[:MOST_LOG_LINKS]


@functools.cache
def _arguments_of(operator: type) -> Tuple[str, ...]:
    found: List[str] = ["_airflow_mapped_validation_only"]
    for kind in operator.__mro__:
        if "__init__" in vars(kind):
            found += inspect.signature(vars(kind)["__init__"]).parameters
    return tuple(dict.fromkeys(found))
