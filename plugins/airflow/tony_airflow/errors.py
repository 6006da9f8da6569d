"""The client's errors as Airflow's exceptions, which decide whether Airflow retries the task.

``AirflowFailException`` fails a task for good, ``AirflowException`` while retries are left. An
error in the job, its arguments or the connection would occur again; what a cluster cannot do now
may work in five minutes.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from tony_core.client.errors import ClientError, UsageError
from tony_core.job.mask import mask_text
from tony_core.job.problems import JobError, errors
from tony_core.schedulers.port import (
    LastingRefusal,
    NoSuchScheduler,
    NotLoggedIn,
    SchedulerError,
)

FOR_GOOD = (JobError, UsageError, NoSuchScheduler, LastingRefusal, AirflowNotFoundException)
"""Errors that a retry cannot mend."""

_ARGUMENTS = {"shell_env": "env", "sidecar_tensorboard_log_dir": "tensorboard_log_dir"}
_OPTIONS = re.compile(
    r"(?<![\w-])--(executes|task_params|src_dir|python_venv|python_binary_path|conf_file|conf"
    r"|hdfs_classpath|scheduler|shell_env|container_env|sidecar_tensorboard_log_dir)\b"
)
"""The options of ``tony submit`` that are arguments here."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the client's errors as Airflow's."""
    try:
        yield
    except (JobError, ClientError, SchedulerError, AirflowNotFoundException) as error:
        # The message has all of it; a second traceback would only bury it in the task's log.
        raise as_airflow(error) from None


def is_final(error: BaseException) -> bool:
    """Whether no retry can mend an error. It may have a ticket that is missing now."""
    return isinstance(error, FOR_GOOD) and not isinstance(error, NotLoggedIn)


def as_airflow(error: BaseException) -> AirflowException:
    """The exception that a task raises for an error: ``raise as_airflow(error) from error``."""
    if is_final(error):
        return AirflowFailException(message_of(error))
    if isinstance(error, AirflowException):
        return error
    return AirflowException(message_of(error))


def message_of(error: BaseException) -> str:
    """One message, without secrets."""
    if isinstance(error, JobError):
        wrong = [with_arguments(str(each)) for each in errors(error.problems) or error.problems]
        if len(wrong) == 1:
            return f"the job was not submitted: {wrong[0]}"
        lines = "".join(f"\n  {each}" for each in wrong)
        return f"the job was not submitted, {len(wrong)} things are wrong with it:{lines}"
    if isinstance(error, (SchedulerError, ClientError, AirflowException)):
        return mask_text(str(error))
    return mask_text(f"{type(error).__name__}: {error}")


def with_arguments(text: str) -> str:
    """The text with arguments' names in place of options: ``env`` for ``--shell_env``."""
    return _OPTIONS.sub(lambda found: _ARGUMENTS.get(found[1], found[1]), text)
