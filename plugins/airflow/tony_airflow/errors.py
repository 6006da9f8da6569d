"""Whose fault it is, in Airflow's terms: what a retry may mend, and what it cannot.

Airflow knows two ends of a task that went wrong: failed for good (``AirflowFailException``) and
failed, to be retried while there are retries. What the job, its arguments or the connection got
wrong would go wrong again; what the cluster could not do just now may work in five minutes.
"""

from __future__ import annotations

import re

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from tony_airflow.connection import SiteError
from tony_core.client.errors import ClientError, UsageError
from tony_core.job.mask import mask_text
from tony_core.job.problems import JobError, errors
from tony_core.schedulers.port import LastingRefusal, NoSuchScheduler, SchedulerError

FOR_GOOD = (
    JobError,
    SiteError,
    UsageError,
    NoSuchScheduler,
    LastingRefusal,
    AirflowNotFoundException,
)
"""What asking again cannot mend."""

_CALLED = {"shell_env": "env", "sidecar_tensorboard_log_dir": "tensorboard_log_dir"}
_COMMAND_LINES = re.compile(
    r"(?<![\w-])--(executes|task_params|src_dir|python_venv|python_binary_path|conf_file|conf"
    r"|hdfs_classpath|scheduler|shell_env|container_env|sidecar_tensorboard_log_dir)\b"
)
"""The words of ``tony submit`` for what are arguments here."""


def as_airflow(error: BaseException) -> AirflowException:
    """The exception that a task raises for it: ``raise as_airflow(error) from error``."""
    if isinstance(error, FOR_GOOD):
        return AirflowFailException(words(error))
    if isinstance(error, AirflowException):
        return error
    return AirflowException(words(error))


def words(error: BaseException) -> str:
    """One clear message, without what is secret."""
    if isinstance(error, JobError):
        wrong = [in_our_words(str(each)) for each in errors(error.problems) or error.problems]
        if len(wrong) == 1:
            return f"the job was not submitted: {wrong[0]}"
        lines = "".join(f"\n  {each}" for each in wrong)
        return f"the job was not submitted, {len(wrong)} things are wrong with it:{lines}"
    if isinstance(error, (SchedulerError, ClientError, SiteError, AirflowException)):
        return mask_text(str(error))
    return mask_text(f"{type(error).__name__}: {error}")


def in_our_words(text: str) -> str:
    """With the operator's arguments for the command line's words: ``executes``, ``env``."""
    return _COMMAND_LINES.sub(lambda found: _CALLED.get(found[1], found[1]), text)
