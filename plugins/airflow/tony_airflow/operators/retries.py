"""How long a task's job outlives its task, and how a failed try ends for Airflow.

A task that waits, on a worker or in a trigger, reads its job's page, which renews the job's lease
(``tony.client.lease``). The lease has to last until the task's next try finds the job still
running.

Airflow calls no code of ours for a deferred task that is cleared or deleted before its trigger has
started, and for one that a person marks only the listener in its API server
(:mod:`tony_airflow.pages.listener`), which may not reach the cluster. So a deferred task's job has
a shorter lease until a trigger has read its page for the first time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Dict, Iterable, Optional, Tuple, Type

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from tony_airflow.errors import is_final
from tony_core.client.workflow.results import failure_text
from tony_core.schedulers.port import AppState
from tony_core.view import JobView

LEASE, FIRST_LEASE = "tony.client.lease", "tony.client.first-lease"
NOTICED_S = 600.0  # until Airflow has noticed that a worker is gone, and starts the next try
FIRST_READ_S = 40.0  # until a trigger has started, besides two of its calls to the scheduler
MOST_DELAY_S = 24 * 3600.0  # Airflow's own limit
BY_AIRFLOW = "Airflow"  # in the reason of each kill by this package


def lease_s(operator: Any) -> Optional[float]:
    """For how long the task's job goes on after the last read of its page; None for ever."""
    if operator.lease is False:
        return None
    if operator.lease is not None and not isinstance(operator.lease, bool):
        return float(operator.lease)
    delay = longest_delay_s(operator) if operator.retries else 0.0
    return NOTICED_S + delay + float(operator.unreachable_timeout)


def lease_keys(operator: Any, seconds: Optional[float]) -> Dict[str, str]:
    """The keys for a job's leases, which its job file may change."""
    keys: Dict[str, str] = {}
    if not seconds or not operator.wait_for_completion:
        return keys
    if operator.lease in (None, True):
        keys[LEASE] = f"{seconds:g}s"
    if operator.deferrable and operator.has_first_lease:
        keys[FIRST_LEASE] = f"{FIRST_READ_S + 2 * operator.poll_interval:g}s"
    return keys


def is_first_lease_over(event: Any) -> bool:
    """Whether, by a trigger's event, the job ended because no trigger read its page in time."""
    return FIRST_LEASE in str(event.get("diagnostics"))


def longest_delay_s(operator: Any) -> float:
    """The longest delay between a failed try and the next one."""
    delay = _seconds(operator.retry_delay)
    if not operator.retry_exponential_backoff:
        return delay
    most = _seconds(operator.max_retry_delay) if operator.max_retry_delay else MOST_DELAY_S
    # It grows by the given factor with each try; True is 2.
    factor = max(2.0, float(operator.retry_exponential_backoff))
    return float(min(most, delay * factor ** min(int(operator.retries), 30)))


def _seconds(delay: Any) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)


def is_retried(context: Any) -> bool:
    """Whether another try follows when this one fails."""
    ti = context["ti"]
    return int(ti.try_number or 1) <= int(getattr(ti, "max_tries", None) or 0)


def is_retried_after(error: BaseException, context: Any) -> bool:
    """Whether another try follows this error: none does after a failure for good."""
    return is_retried(context) and not (isinstance(error, AirflowFailException) or is_final(error))


def failure_of(view: JobView, tail: Iterable[str], retry_killed: bool) -> AirflowException:
    """The exception of a task whose job did not succeed.

    A retry submits a job that was killed from outside again only with ``retry_killed``.
    """
    text = failure_text(view, tail)
    if retry_killed or not _was_killed_from_outside(view):
        return AirflowException(text)
    return AirflowFailException(f"{text}\nno retry submits it again (retry_killed=True would)")


def _was_killed_from_outside(view: JobView) -> bool:
    """Killed neither by this package, whose reasons say so, nor at the end of a lease."""
    ours = (BY_AIRFLOW, LEASE, FIRST_LEASE)
    return view.state is AppState.KILLED and not any(word in view.diagnostics for word in ours)


def deferral_errors() -> Tuple[Type[BaseException], ...]:
    """The exceptions of Airflow's for a deferral that failed or took too long."""
    try:
        import airflow.sdk.exceptions as exceptions
    except ImportError:  # before 3
        import airflow.exceptions as exceptions  # type: ignore[no-redef]
    return (exceptions.TaskDeferralError, exceptions.TaskDeferralTimeout)
