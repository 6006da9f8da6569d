"""Whose a job is when its task is told to end.

A scheduler that is killed leaves the workers of its LocalExecutor alive. The next one takes their
tasks for orphaned and gives each a new try, which takes up the running job; only then the old
worker hears from the API server that its try is over, and tells its process to end. That process
must not end a job which the new try needs: so it asks Airflow first.

What is asked is the task instance's state, and whether this very try is still the one that Airflow
knows: each try has an id of its own. Asked is from within a signal handler, in a thread with a
deadline; whatever is not known in time counts as a task that was told to end. Airflow 2 cannot be
asked so.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional

BEGINS = frozenset(("none", "scheduled", "queued", "up_for_retry"))
"""States of a task that a next try is to come of."""

RUNS = frozenset(("running", "deferred", "up_for_reschedule", "awaiting_input"))
"""States of a task that some try is at; this one, or another."""

SETTLED_S = 60.0
"""So long ago a try must have found or submitted its job. The try after it has begun since Airflow
gave this one up, seconds ago: it has seen the job, and submits none beside it."""

NOT_FOUND = (404, 410)


@dataclass(frozen=True)
class Ownership:
    """What Airflow says of the task instance.

    :param state: its state; ``none`` for one that was reset.
    :param current: whether this try is the one that Airflow knows; None when that is unknown.
    """

    state: str
    current: Optional[bool] = None

    @property
    def is_anothers(self) -> bool:
        """Whether another try has the job, or will have it: this one must leave it alone.

        Marked tasks (``failed``, ``success`` ...) and cleared ones (``restarting``) have nobody
        who wants the job; one that is ``running`` by this very try is shut down with its worker.
        """
        if self.state in BEGINS:
            return True
        return self.state in RUNS and self.current is False


def is_anothers(ti: Any, durable: bool, leased: bool) -> bool:
    """Whether another try takes the job up.

    Without a lease nothing would end one that waits for a try that never comes; where jobs are not
    taken up (``durable``) no try needs it.
    """
    told = ask(ti) if durable and leased else None
    return told is not None and told.is_anothers


def ask(ti: Any) -> Optional[Ownership]:
    """Airflow's word; None where it cannot be asked."""
    if not hasattr(ti, "get_task_states"):
        return None
    map_index = getattr(ti, "map_index", None)
    mapped = map_index is not None and map_index >= 0
    found = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=map_index if mapped else None,
    )
    tasks = found.get(ti.run_id) or {}
    name = f"{ti.task_id}_{map_index}" if mapped else ti.task_id
    if name not in tasks:
        return None
    state = tasks[name]
    told = "none" if state is None else str(getattr(state, "value", state))
    return Ownership(told, _is_current(ti) if told in RUNS else None)


def _is_current(ti: Any) -> Optional[bool]:
    """Whether the id of this try is still a task instance's, by a question that needs one."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ValidateInletsAndOutlets

    try:
        task_runner.SUPERVISOR_COMMS.send(ValidateInletsAndOutlets(ti_id=ti.id))
    except AirflowRuntimeError as error:
        detail = getattr(error.error, "detail", None) or {}
        return False if detail.get("status_code") in NOT_FOUND else None
    return True


def within(seconds: float, question: Callable[[], bool]) -> bool:
    """Its answer; False when there is none in time, or only an error."""
    answers = []

    def run() -> None:
        try:
            answers.append(question())
        except Exception:  # noqa: S110 - in a signal handler nothing may be logged
            pass

    thread = threading.Thread(target=run, name="tony-owner", daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers and answers[0])
