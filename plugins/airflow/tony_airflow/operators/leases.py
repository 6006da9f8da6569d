"""How long a task's job goes on when nobody waits for it (``tony.client.lease``).

A task that waits, here or in a trigger, looks at its job's page, which renews the lease. What is
long enough depends on the task: its next try has to find the job still running.

Airflow calls no code of ours for a deferred task that is cleared or deleted before its trigger has
begun, and for one that is marked only what is in its API server (:mod:`tony_airflow.pages.marks`),
which may not reach the cluster. So until a trigger has looked for the first time, a deferred task's
job has a shorter lease. Imported as a DAG is parsed, this imports next to nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Dict, Optional

LEASE, FIRST_LEASE = "tony.client.lease", "tony.client.first-lease"
NOTICED_S = 600.0  # until Airflow has noticed that a worker is gone, and begins the next try
FIRST_LOOK_S = 40.0  # until a trigger has begun, beside two of its questions to the scheduler
MOST_DELAY_S = 24 * 3600.0  # Airflow's own bound


def lease_s(operator: Any) -> Optional[float]:
    """How long a job may be without anybody who waits for it, and still be wanted."""
    if operator.lease is False:
        return None
    if operator.lease is not None and not isinstance(operator.lease, bool):
        return float(operator.lease)
    again = longest_delay_s(operator) if operator.retries else 0.0
    return NOTICED_S + again + float(operator.unreachable_timeout)


def lease_keys(operator: Any, seconds: Optional[float], looked_for: bool) -> Dict[str, str]:
    """The keys to submit a job with, below what its job file says.

    ``looked_for``: whether a trigger has to look at it soon.
    """
    keys: Dict[str, str] = {}
    if not seconds or not operator.wait_for_completion:
        return keys
    if operator.lease in (None, True):
        keys[LEASE] = f"{seconds:g}s"
    if operator.deferrable and looked_for:
        keys[FIRST_LEASE] = f"{FIRST_LOOK_S + 2 * operator.poll_interval:g}s"
    return keys


def is_unseen(event: Any) -> bool:
    """Whether a job has ended since no trigger looked at it in time."""
    return FIRST_LEASE in str(event.get("diagnostics"))


def longest_delay_s(operator: Any) -> float:
    """How long it may be from a try that failed to the next."""
    delay = _plain_s(operator.retry_delay)
    if not operator.retry_exponential_backoff:
        return delay
    most = _plain_s(operator.max_retry_delay) if operator.max_retry_delay else MOST_DELAY_S
    # It grows by the given factor with each try; True is 2.
    factor = max(2.0, float(operator.retry_exponential_backoff))
    return float(min(most, delay * factor ** min(int(operator.retries), 30)))


def _plain_s(delay: Any) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
