"""A single task is started again: its peers' programs go on, over the same cluster spec.

Theory of operation
===================

Sidecars are, and the tasks of a role with ``tony.<role>.restart-scope=task``: when the program of
one fails, or its container goes away under it, it is *returning* (pending, with a deadline of its
own) until its next try is placed. The session stays the same, and its peers do not notice.

*When.* Once its barrier was passed: before that no peer runs that could go on, and the rules of
sessions hold. Not when the session fails for another cause meanwhile, nor after the chief's
success. A sidecar is no part of the session: it is tried again whatever becomes of that.

*Who pays.* The task, for every failure: ``tony.<role>.max-restarts`` in each session (of a
sidecar, in its whole job). The first try follows at once (a sidecar's within a second), the others
after the pauses of sessions.
When no try is left, or the same failure came twice running within 30 s of the start, the failure
is the session's as always; in the latter case the session is not tried again either. A sidecar's
is ignored.

*Where.* In its container, while that and its executor live: with the same ports, so that what its
peers know of it stays true, and not before the executor has seen the last descendant of the old
program go. Else in another container, that is asked for by itself. Where its peers hold its address
(``in_place``, the framework's word) another container would make their spec untrue, and the failure
is the session's.

*Fencing.* Each program of a task has a number: the session, and how often the task was started
again in it. Executors send it with every message, and what they report of an earlier one is late. A
replacement is asked for only when the old container has ended, or is given up as every container
is that does not end.

*Takeover.* The numbers and which tasks are returning stand in the journal before an executor hears
of it. An executor that still reports the end before to a next master is the one that the next try
goes to.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Mapping

from tony_core.exit_causes import ExitCause, Fault
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode
from tony_core.master.session.budgets import pause, quick_of
from tony_core.master.session.commands import Weight
from tony_core.master.session.records import ContainerState, Failure, Phase, TaskRecord, TaskState
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.startup import place
from tony_core.master.session.state import State
from tony_core.master.session.verdict import (
    HOPELESS,
    NODE_CAUSES,
    PORT_TAKEN,
    fault_of,
    quick,
)
from tony_core.master.session.waits import Deadline, Wait

S = TaskState
#: A container in which an unknown program may run, or in which none could run again.
_LEFT: FrozenSet[str] = NODE_CAUSES | {ExitCause.START_TIMEOUT}
_SIDECARS = (Phase.ACTIVE, Phase.SETTLING, Phase.CLEANUP, Phase.BACKOFF)


def comes_back(state: State, task: TaskRecord, failure: Failure) -> bool:
    """Whether a task that has failed alone is started again; if so, it is returning now."""
    if not _may_come_back(state, task):
        return False
    same = _is_same_again(state, task, failure)
    stays = _may_stay(state, task)
    bound = task.role.name in state.in_place
    if task.restarts >= task.role.max_restarts:
        why = f"tony.{task.role.name}.max-restarts"
    elif same:
        why = "the same code and the same last line within 30 s of its start, twice running"
    elif failure.container_cause in HOPELESS:
        why = "no node would be able to bring its files"
    elif bound and not stays:
        why = "its address is in the others' cluster spec"
    elif bound and task.cause == PORT_TAKEN:
        why = "its port is in the others' cluster spec, and taken"
    else:
        _begin_again(state, task, stays)
        return True
    kind = StoryKind.SIDECAR_GIVEN_UP if task.is_sidecar else StoryKind.TASK_GIVEN_UP
    how = "" if task.is_sidecar else " alone"
    text = f"{task.name} is not tried again{how} ({why})"
    state.add_line(kind, text, Weight.WARNING, task)
    return False


def _may_come_back(state: State, task: TaskRecord) -> bool:
    """Whether its role, the session and the time allow it."""
    begun = task.is_sidecar or state.job.mode is Mode.FCFS or task.role.name in state.started
    return task.role.has_task_restart and begun and goes_on(state, task)


def goes_on(state: State, task: TaskRecord) -> bool:
    """Whether there is still something for it to come back to."""
    if task.is_sidecar:
        between = state.phase in (Phase.CLEANUP, Phase.BACKOFF)
        return state.phase in _SIDECARS and not (between and state.is_fresh)
    return state.phase is Phase.ACTIVE and not state.chief_done


def _is_same_again(state: State, task: TaskRecord, failure: Failure) -> bool:
    """Whether the program failed as it did the last time, both times soon."""
    if task.is_sidecar or fault_of(failure) is not Fault.USER:
        return False
    before, task.last_quick = task.last_quick, quick(failure)
    if before is None or before != task.last_quick:
        return False
    state.budgets.last_quick = before  # so the session is not tried again either
    return True


def _may_stay(state: State, task: TaskRecord) -> bool:
    """Whether the next try may have the container of the last."""
    record = state.container_of(task)
    return record is not None and record.state is ContainerState.LIVE and task.cause not in _LEFT


# ------------------------------------------------------------------ the way back


def _begin_again(state: State, task: TaskRecord, stays: bool) -> None:
    """It is returning from here on."""
    record = state.container_of(task)
    if not stays:
        task.forget_address()
        if record is not None:
            stop_container(state, record, 0.0, f"{task.name} is started again elsewhere")
    task.new_ports = task.cause == PORT_TAKEN
    task.forget_end()
    state.begin_restart(task)
    where = f" on {state.node_of(task)}" if stays else " in another container"
    text = f"{task.name} is started again alone{where}"
    tries = f"{task.restarts} of {task.role.max_restarts}"
    state.add_line(
        StoryKind.TASK_AGAIN, f"{text} ({tries}); the others go on", Weight.DECISION, task
    )
    wait_for_turn(state, task)


def wait_for_turn(state: State, task: TaskRecord) -> None:
    """Set its pause, once nothing of its last program can be there any more."""
    if is_going(state, task):
        return  # the container's end goes on with it: give_turns()
    count = task.restarts - 1 + task.is_sidecar
    state.wait(Deadline.AGAIN, pause(count, state.jitter()), task.name)


def is_going(state: State, task: TaskRecord) -> bool:
    """Whether a container is being ended in which its last program may still run."""
    record = state.container_of(task)
    if record is not None and record.state is ContainerState.STOPPING:
        return True
    # What an earlier master left, and whose executor did not call.
    return state.has_unclaimed("") or state.has_unclaimed(task.role.name)


def give_turns(state: State) -> None:
    """Containers have ended: set the pauses of the tasks whose next tries waited for that."""
    while state.gone:
        record = state.gone.popleft()
        if record.task is not None:
            names = [record.task] if record.task in state.returning else []
        else:
            role = record.container.role
            names = [] if state.has_unclaimed(role) else sorted(state.returning)
        for name in names:
            if (Deadline.AGAIN, name) not in state.waits:
                wait_for_turn(state, state.tasks[name])


def place_again(state: State, wait: Wait) -> None:
    """Place a task's next try: its pause is over."""
    task = state.tasks[wait.name]
    if task.name not in state.returning or not goes_on(state, task) or is_going(state, task):
        return
    if state.container_of(task) is None:
        task.forget_address()
    place(state, task)


def needs_container(state: State, task: TaskRecord) -> bool:
    """Whether its next try has lost what it needs when its container goes away now."""
    return task.name in state.returning and task.role.name in state.in_place


def restore_restarts(state: State, journal: Mapping[str, Any]) -> None:
    """Take over which try each task is in, and which are returning."""
    for name, tries in dict(journal.get("alone", {})).items():
        if name in state.tasks:
            state.tasks[name].restarts = int(tries["restarts"])
            state.tasks[name].last_quick = quick_of(tries["last_quick"])
    state.returning = {name for name in journal.get("returning", ()) if name in state.tasks}
