"""What operators and sensors need while a DAG is parsed; it imports next to nothing."""

from __future__ import annotations

import functools
import inspect
from datetime import timedelta
from enum import Enum
from typing import Any, List, Mapping, Optional, Tuple, Union

from airflow.providers.common.compat.sdk import conf

JOB_ARGUMENTS = (
    "executes",
    "task_params",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "conf",
    "roles",
    "env",
    "container_env",
    "files",
    "framework",
    "job_name",
    "yarn_queue",
    "node_label",
    "tags",
    "docker_image",
    "hdfs_classpath",
    "tensorboard_log_dir",
    "checkpoint_dir",
    "model_path",
    "timeout",
)
"""The operator's arguments that describe its job; all are templates."""


class Argument(Enum):
    """The default of an argument for which ``None`` is a value, and not the same as no argument."""

    NOT_GIVEN = "not given"


GivenUser = Union[str, None, Argument]


def seconds_of(value: object) -> float:
    """A ``timedelta`` or a number as seconds; ValueError for anything else, and for 0 or less."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{value!r} is neither a timedelta nor a number of seconds above 0")
    return float(value)


def check_seconds(name: str, value: object) -> float:
    """An operator's argument as seconds; the error names the argument."""
    try:
        return seconds_of(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def check_optional_seconds(name: str, value: object) -> Optional[float]:
    """The same; None stays None."""
    return None if value is None else check_seconds(name, value)


def check_user(proxy_user: GivenUser, run_as_owner: object) -> bool:
    """Whether the arguments name a user, who may be a template; ValueError if they name two.

    ``None`` counts as named, and is refused by the run: an upstream task may have given it.
    """
    if not isinstance(run_as_owner, bool):
        raise ValueError(f"run_as_owner: {run_as_owner!r} is neither True nor False")
    is_given = proxy_user is not Argument.NOT_GIVEN
    if run_as_owner and is_given:
        raise ValueError("proxy_user and run_as_owner both name the user: give one of them")
    return is_given


def is_deferrable(argument: Optional[bool]) -> bool:
    """The argument ``deferrable``, by default as Airflow's configuration has it."""
    if argument is not None:
        return argument
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def refuse_unknown(operator: type, arguments: Mapping[str, Any]) -> None:
    """TypeError for unknown arguments, with the names that may be meant, which Airflow's lacks."""
    known = _arguments_of(operator)
    unknown = [name for name in arguments if name not in known]
    if unknown:
        from tony_core.job.problems import did_you_mean

        named = ", ".join(f"{name}{did_you_mean(name, known)}" for name in unknown)
        raise TypeError(f"{operator.__name__} has no argument {named}")


@functools.cache
def _arguments_of(operator: type) -> Tuple[str, ...]:
    found: List[str] = ["_airflow_mapped_validation_only"]
    for kind in operator.__mro__:
        if "__init__" in vars(kind):
            found += inspect.signature(vars(kind)["__init__"]).parameters
    return tuple(dict.fromkeys(found))
