"""Which try of a task owns its job when Airflow tells a task to end.

A scheduler that is killed leaves the workers of its LocalExecutor alive. The next scheduler takes
their tasks for orphaned and starts a new try of each, which continues the running job. Only then
the old worker learns from the API server that its try is over, and ends its process. That process
must not end the job, since the new try needs it: so it asks Airflow first.

It asks for the task instance's state, and whether this very try is still the one that Airflow has:
each try has an id of its own. It asks from within a signal handler, in a thread with a deadline;
without an answer in time it ends the job. Airflow 2 cannot be asked so.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, NamedTuple, Optional

BEFORE_A_TRY = frozenset(("none", "scheduled", "queued", "up_for_retry"))
"""States of a task that will have a next try."""

IN_A_TRY = frozenset(("running", "deferred", "up_for_reschedule", "awaiting_input"))
"""States of a task that has a try now; this one, or another."""

SETTLED_S = 60.0
"""How long ago a try must have found or submitted its job to leave it to another. Airflow gave this
try up seconds ago, and the next one has started since: it has seen the job, and submits no
other."""

NOT_FOUND = (404, 410)


class TaskState(NamedTuple):
    """The task instance as Airflow has it.

    :param state: its state; ``none`` for one that was reset.
    :param is_this_try: whether this try is the one that Airflow has; None when that is unknown.
    """

    state: str
    is_this_try: Optional[bool] = None

    @property
    def has_another_try(self) -> bool:
        """Whether another try has the job, or will have it.

        For a task that is marked (``failed``, ``success`` ...) or cleared (``restarting``) no try
        needs the job; one that is ``running`` with this very try is shut down with its worker.
        """
        if self.state in BEFORE_A_TRY:
            return True
        return self.state in IN_A_TRY and self.is_this_try is False


def has_another_try(ti: Any, durable: bool, has_lease: bool) -> bool:
    """Whether another try of the task continues the job.

    Without a lease nothing would end a job that waits for a try that never comes. Without
    ``durable`` no try continues a job.
    """
    state = fetch_task_state(ti) if durable and has_lease else None
    return state is not None and state.has_another_try


def fetch_task_state(ti: Any) -> Optional[TaskState]:
    """Ask Airflow for the task instance's state; None where it cannot be asked."""
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
    text = "none" if state is None else str(getattr(state, "value", state))
    return TaskState(text, _is_current(ti) if text in IN_A_TRY else None)


def _is_current(ti: Any) -> Optional[bool]:
    """Whether this try's id is still a task instance's, by a call that needs one."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ValidateInletsAndOutlets

    try:
        task_runner.SUPERVISOR_COMMS.send(ValidateInletsAndOutlets(ti_id=ti.id))
    except AirflowRuntimeError as error:
        detail = getattr(error.error, "detail", None) or {}
        return False if detail.get("status_code") in NOT_FOUND else None
    return True


def is_true_within(seconds: float, question: Callable[[], bool]) -> bool:
    """The answer to a question; False when it does not come in time, or fails."""
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
