"""How tries end, in Airflow's words. Imported as a DAG is parsed, it imports next to nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Tuple, Type

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from tony_airflow.operators.leases import FIRST_LEASE, LEASE

if TYPE_CHECKING:
    from tony_core.client.view import JobView

BY_AIRFLOW = "Airflow"  # in the reason of each kill that is ours

UNHURRIED_S = 45.0  # for a kill that nobody waits for


def is_retried(context: Any) -> bool:
    """Whether another try follows when this one fails."""
    ti = context["ti"]
    return int(ti.try_number or 1) <= int(getattr(ti, "max_tries", None) or 0)


def is_retried_after(error: BaseException, context: Any) -> bool:
    """Whether another try follows this error: what fails for good has none, whatever is left."""
    from tony_airflow.errors import FOR_GOOD

    return is_retried(context) and not isinstance(error, (AirflowFailException, *FOR_GOOD))


def failure_of(view: JobView, tail: Iterable[str], retry_killed: bool) -> AirflowException:
    """What a task raises for a job that did not succeed.

    One that was killed from outside was not wanted any more: no retry submits it again, unless
    ``retry_killed``.
    """
    from tony_airflow.reporting import failure_text

    text = failure_text(view, tail)
    if retry_killed or not _was_killed_from_outside(view):
        return AirflowException(text)
    return AirflowFailException(f"{text}\nno retry submits it again (retry_killed=True would)")


def _was_killed_from_outside(view: JobView) -> bool:
    """Neither by Airflow, which says so in the reason, nor by a lease that has passed."""
    from tony_core.schedulers.port import AppState

    ours = (BY_AIRFLOW, LEASE, FIRST_LEASE)
    return view.state is AppState.KILLED and not any(word in view.diagnostics for word in ours)


def deferral_errors() -> Tuple[Type[BaseException], ...]:
    """What a deferral that went wrong raises on resuming."""
    try:
        import airflow.sdk.exceptions as exceptions
    except ImportError:  # before 3
        import airflow.exceptions as exceptions  # type: ignore[no-redef]
    return (exceptions.TaskDeferralError, exceptions.TaskDeferralTimeout)


@contextmanager
def spoken() -> Iterator[None]:
    """What the client raises as what Airflow does, which says whether a retry may mend it."""
    from tony_airflow.connection import SiteError
    from tony_airflow.errors import as_airflow
    from tony_core.client.errors import ClientError
    from tony_core.job.problems import JobError
    from tony_core.schedulers.port import SchedulerError

    told = (JobError, ClientError, SchedulerError, SiteError, AirflowNotFoundException)
    try:
        yield
    except told as error:
        # Its message says all of it; a second traceback would only bury it in the task's log.
        raise as_airflow(error) from None
