"""What a retry may mend, and what it cannot."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from tony_airflow.connection import SiteError
from tony_airflow.errors import as_airflow, message_of
from tony_core.client.errors import NotFound, PageError, UsageError
from tony_core.job.problems import JobError, Problem, Severity
from tony_core.schedulers.port import (
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
    SchedulerError,
)


@pytest.mark.parametrize(
    "error",
    [
        JobError([Problem("no such folder", "tony.client.src-dir")]),
        SiteError("the connection prod cannot be used"),
        UsageError("no"),
        NotFound("no application x"),
        NoSuchScheduler("there is no scheduler x"),
        LastingRefusal("there is no queue x"),
        AirflowNotFoundException("The conn_id `x` isn't defined"),
    ],
)
def test_what_would_go_wrong_again_fails_for_good(error: Exception) -> None:
    found = as_airflow(error)
    assert isinstance(found, AirflowFailException)
    assert str(found) == message_of(error)


@pytest.mark.parametrize(
    "error",
    [
        SchedulerError("the ResourceManager cannot be reached"),
        NoSuchApplication("x: the ResourceManager does not know it (any more)"),
        PageError("the page does not answer"),
        OSError("no space left"),
    ],
)
def test_what_may_be_mended_is_retried(error: Exception) -> None:
    found = as_airflow(error)
    assert isinstance(found, AirflowException)
    assert not isinstance(found, AirflowFailException)


def test_airflows_own_stay_what_they_are() -> None:
    own = AirflowException("as it is")
    assert as_airflow(own) is own


def test_one_clear_message_each() -> None:
    one = Problem("is no number", "tony.worker.instances", "job.xml", 3)
    hint = Problem("of no effect", "tony.http.port", severity=Severity.WARNING)
    two = Problem("unknown key", "tony.x")
    assert message_of(JobError([one, hint])) == (
        "the job was not submitted: job.xml:3: tony.worker.instances: is no number"
    )
    assert message_of(JobError([one, two])) == (
        "the job was not submitted, 2 things are wrong with it:"
        "\n  job.xml:3: tony.worker.instances: is no number\n  tony.x: unknown key"
    )
    assert message_of(OSError("full")) == "OSError: full"
    assert "hunter2" not in message_of(SchedulerError("hdfs://me:hunter2@nn/x cannot be written"))


def test_arguments_are_called_what_they_are_called_here() -> None:
    wrong = [
        Problem("no command for worker: give --executes, or tony.containers.command"),
        Problem("'1A' is not a name for an environment variable", file="--shell_env"),
        Problem("does not know --executed, a--conf or --conf-dir", file="--conf"),
    ]
    message = message_of(JobError(wrong))
    assert "give executes, or" in message and "\n  env: '1A'" in message
    assert "\n  conf: does not know --executed, a--conf or" in message
