"""A single task is restarted: its peers' programs go on, over the same cluster spec.

Theory of operation
===================

Sidecars are, and the tasks of a role with ``tony.<role>.restart-scope=task``: when the program of
one fails, or its container goes away under it, it is *restarting* (pending, with a deadline of its
own) until its next attempt has a container, or a request for one. The session stays the same, and
its peers do not notice.

*When.* Once its barrier was passed: before that no peer runs that could go on, and the rules of
sessions hold. Not when the session fails for another cause meanwhile, nor after the chief's
success. A sidecar is no part of the session: it restarts whatever becomes of that.

*Who pays.* The task, for every failure: ``tony.<role>.max-restarts`` in each session (of a
sidecar, in its whole job). The first restart follows at once (a sidecar's within a second), the
others after the delays of sessions. When no restart is left, or the same failure came twice running
within 30 s of the start, the failure is the session's as always; in the latter case the session is
not tried again either. A sidecar's is ignored.

*Where.* In its container, while that and its executor live: with the same ports, so that what its
peers know of it stays true, and not before the executor has seen the last descendant of the old
program go. Else in another container, that is requested by itself. Where its peers hold its address
(``address_bound``, which the framework decides) another container would make their spec untrue, and
the failure is the session's.

*Fencing.* Each program of a task has a number: the session, and how often the task was started
again in it. Executors send it with every message, and a report of another attempt is late. A
replacement is requested only when the old container has ended, or is given up as every container
is that does not end.

*Takeover.* The numbers and which tasks are restarting stand in the journal before an executor hears
of it. The next attempt goes to the executor that still reports the last one's end to a next master.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Mapping

from tony_core.exit_causes import ExitCause, Fault
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode
from tony_core.master.session.budgets import parse_signature, restart_delay
from tony_core.master.session.commands import Level
from tony_core.master.session.deadlines import Deadline, PendingDeadline
from tony_core.master.session.records import ContainerState, Failure, Phase, TaskRecord, TaskState
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.startup import acquire_for_task
from tony_core.master.session.state import State
from tony_core.master.session.verdict import (
    PORT_TAKEN,
    UNUSABLE_CONTAINER_CAUSES,
    fault_of,
    signature_of,
    why_no_retry,
)

S = TaskState
#: A container in which an unknown program may run, or in which none could run again.
_NO_REUSE_CAUSES: FrozenSet[str] = UNUSABLE_CONTAINER_CAUSES | {ExitCause.START_TIMEOUT}
_SIDECAR_PHASES = (Phase.ACTIVE, Phase.SETTLING, Phase.CLEANUP, Phase.BACKOFF)


def try_task_restart(state: State, task: TaskRecord, failure: Failure) -> bool:
    """Begin the restart of a task that has failed, if all allows it; return whether."""
    if not _is_restartable(state, task):
        return False
    repeats = _repeats_early_failure(state, task, failure)
    keeps_container = _may_keep_container(state, task)
    address_bound = task.role.name in state.address_bound
    if task.restarts >= task.role.max_restarts:
        why = f"tony.{task.role.name}.max-restarts"
    elif repeats:
        why = "the same code and the same last line within 30 s of its start, twice running"
    elif why_no_retry(failure, state.job.timeouts.stall_action):
        why = why_no_retry(failure, state.job.timeouts.stall_action)
    elif address_bound and not keeps_container:
        why = "its address is in the others' cluster spec"
    elif address_bound and task.cause == PORT_TAKEN:
        why = "its port is in the others' cluster spec, and taken"
    else:
        _begin_restart(state, task, keeps_container)
        return True
    kind = StoryKind.SIDECAR_GIVEN_UP if task.is_sidecar else StoryKind.TASK_GIVEN_UP
    how = "" if task.is_sidecar else " within its session"
    text = f"{task.name} is not restarted{how} ({why})"
    state.add_line(kind, text, Level.WARNING, task)
    return False


def _is_restartable(state: State, task: TaskRecord) -> bool:
    """Whether its role, the session and the time allow it."""
    begun = task.is_sidecar or state.job.mode is Mode.FCFS or task.role.name in state.barrier_passed
    return task.role.has_task_restart and begun and may_restart(state, task)


def restarts_by_itself(state: State, task: TaskRecord) -> bool:
    """Whether the loss of its container would restart this task, in another, and no other task."""
    is_free = task.role.name not in state.address_bound
    return is_free and _is_restartable(state, task) and task.restarts < task.role.max_restarts


def may_restart(state: State, task: TaskRecord) -> bool:
    """Whether the session, or for a sidecar the job, still needs another attempt of the task."""
    if task.is_sidecar:
        between = state.phase in (Phase.CLEANUP, Phase.BACKOFF)
        return state.phase in _SIDECAR_PHASES and not (between and state.is_fresh)
    return state.phase is Phase.ACTIVE and not state.chief_done


def _repeats_early_failure(state: State, task: TaskRecord, failure: Failure) -> bool:
    """Whether the program failed as it did the last time, both times soon."""
    if task.is_sidecar or fault_of(failure) is not Fault.USER:
        return False
    before, task.last_signature = task.last_signature, signature_of(failure)
    if before is None or before != task.last_signature:
        return False
    state.budgets.last_signature = before  # so the session is not tried again either
    return True


def _may_keep_container(state: State, task: TaskRecord) -> bool:
    """Whether the next attempt may have the container of the last."""
    record = state.container_of(task)
    return (
        record is not None
        and record.state is ContainerState.LIVE
        and task.cause not in _NO_REUSE_CAUSES
    )


# ------------------------------------------------------------------ the next attempt


def _begin_restart(state: State, task: TaskRecord, keeps_container: bool) -> None:
    """Take the task back to pending, and set the delay before its next attempt."""
    record = state.container_of(task)
    if not keeps_container:
        task.forget_address()
        if record is not None:
            stop_container(state, record, 0.0, f"{task.name} is restarted in another container")
    task.new_ports = task.cause == PORT_TAKEN
    task.forget_end()
    state.begin_restart(task)
    where = f" on {state.node_of(task)}" if keeps_container else " in another container"
    tries = f"{task.restarts} of {task.role.max_restarts}"
    text = f"{task.name} is restarted{where} ({tries}); the other tasks keep running"
    state.add_line(StoryKind.TASK_AGAIN, text, Level.DECISION, task)
    schedule_restart(state, task)


def schedule_restart(state: State, task: TaskRecord) -> None:
    """Set the delay, once nothing of the last attempt's program can be there any more."""
    if is_old_attempt_stopping(state, task):
        return  # until the container's end: schedule_waiting_restarts()
    count = task.restarts - 1 + task.is_sidecar
    state.set_deadline(Deadline.TASK_RESTART, restart_delay(count, state.jitter()), task.name)


def is_old_attempt_stopping(state: State, task: TaskRecord) -> bool:
    """Whether a container is being ended in which its last attempt may still run."""
    record = state.container_of(task)
    if record is not None and record.state is ContainerState.STOPPING:
        return True
    # What the previous master left, and whose executor did not register.
    return state.has_unassigned_stopping("") or state.has_unassigned_stopping(task.role.name)


def schedule_waiting_restarts(state: State) -> None:
    """Set the delays of restarts that waited for the end of a container."""
    while state.unhandled.ended_containers:
        record = state.unhandled.ended_containers.popleft()
        if record.task is not None:
            names = [record.task] if record.task in state.restarts.pending else []
        else:
            role = record.container.role
            names = [] if state.has_unassigned_stopping(role) else sorted(state.restarts.pending)
        for name in names:
            if (Deadline.TASK_RESTART, name) not in state.deadlines:
                schedule_restart(state, state.tasks[name])


def start_next_attempt(state: State, pending: PendingDeadline) -> None:
    """Acquire a container for a task's next attempt: the delay before it is over."""
    task = state.tasks[pending.name]
    if (
        task.name not in state.restarts.pending
        or not may_restart(state, task)
        or is_old_attempt_stopping(state, task)
    ):
        return
    if state.container_of(task) is None:
        task.forget_address()
    acquire_for_task(state, task)


def is_bound_to_container(state: State, task: TaskRecord) -> bool:
    """Whether its next attempt is possible in its present container only."""
    return task.name in state.restarts.pending and task.role.name in state.address_bound


def restore_restarts(state: State, journal: Mapping[str, Any]) -> None:
    """Take over each task's attempt, and which tasks are restarting."""
    for name, tries in dict(journal.get("alone", {})).items():
        if name in state.tasks:
            state.tasks[name].restarts = int(tries["restarts"])
            state.tasks[name].last_signature = parse_signature(tries["last_quick"])
    state.restarts.pending = {name for name in journal.get("returning", ()) if name in state.tasks}
