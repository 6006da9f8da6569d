"""Elastic roles: ``tony.<role>.min-instances`` .. ``tony.<role>.instances``.

Theory of operation
===================

A *round* is a session that no budget pays for. Each has a cluster spec of its own (new ports,
ranks 0..n-1 without a gap), a working folder of its own, and a number (``SESSION_ID``), so
that fencing, journal, history and takeover are those of every session. It is begun as a restart
is, warm in any case: the programs are ended, and when nothing of them is left the next session
begins. Nothing backs off, and what tasks have reported of their progress stays.

*Startup.* The gang that is asked for whole is ``min-instances`` of each elastic role and
all of the others. Once that is there the rest is asked for as well, one by one, and the
barrier waits a short while for it (*the pause*), so that a cluster with room gives all at
once. What has not come by then stands *outside* the round: it is in no cluster spec, no task
waits for it, and its end means nothing. What is asked for stays asked for.

*Order.* The tasks of a round are always the first of their role. An executor learns which
task it is when it is prepared, so the next one to register becomes the lowest task that has
none yet; and before a session begins those with a live container close the gaps.

*Growing.* Executors that come for tasks outside wait, idle. When no further one has come for
a pause (or all have), and the round has lasted for ``tony.application.elastic-interval``, the
programs are ended (with the kill grace: a program may save on TERM) and a round with them
begins. Once a tracked task has succeeded the job is at its end: nothing grows any more, and
what waits goes back.

*Shrinking.* A failure settles as always. If its cause is the infrastructure's, everything
that it took away belongs to elastic roles, and each keeps its minimum, then a round of those
that are left begins. What was lost is asked for again in the background, at once for the
first time, then after a growing pause until nothing was lost for ten minutes. In every
other case the rules of sessions hold, budgets included.
"""

from __future__ import annotations

from typing import Dict, List

from tony_core.exit_causes import Fault
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job
from tony_core.master.session.commands import Level
from tony_core.master.session.deadlines import (
    HEALTHY_S,
    REGROW_CAP_S,
    REGROW_FIRST_S,
    Deadline,
    PendingDeadline,
)
from tony_core.master.session.reconcile import count_held, is_below_minimum
from tony_core.master.session.records import ContainerState, Failure, Phase, TaskRecord, TaskState
from tony_core.master.session.shutdown import stop_container, stop_session
from tony_core.master.session.state import PREPARED, State
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES, describe, fault_of

S = TaskState
LEAST_PAUSE_S = 1.0
MAX_PAUSES = 10  # for which the barrier waits for containers on their way
SHRINK_GRACE_S = 1.0  # that programs have when others of the gang are gone


def elastic_roles(job: Job) -> List[str]:
    """The roles that may have fewer tasks than they ask for."""
    return [role.name for role in job.roles if role.is_elastic]


def elastic_pause(state: State) -> float:
    """How long no executor must have registered before those that are there begin."""
    return max(LEAST_PAUSE_S, 2 * state.settle_s)


# ------------------------------------------------------------------ who is in the round


def exclude_from_round(state: State, task: TaskRecord) -> None:
    """Take a task out of the round."""
    state.elastic.outside_round.add(task.name)
    state.round_counts[task.role.name][task.state] -= 1


def include_all_in_round(state: State) -> None:
    """Count every task as in the round: a session begins."""
    for name in state.elastic.outside_round:
        task = state.tasks[name]
        state.round_counts[task.role.name][task.state] += 1
    state.elastic.outside_round.clear()
    state.elastic.growth_stopped = False


def is_on_its_way(state: State, roles: List[str]) -> bool:
    """Whether an elastic role's container is there whose task is not ready yet."""
    on_way = (S.ALLOCATED, S.LAUNCHED, S.REGISTERED)
    return any(state.job.role(n).is_elastic and state.count(on_way, (n,)) for n in roles)


# ------------------------------------------------------------------ order


def close_gaps(state: State) -> None:
    """Make the tasks with a live container the first of their role, before a session begins."""
    for name in elastic_roles(state.job):
        tasks = [task for task in state.by_role[name] if task.name not in state.finished_tasks]
        rank = {ContainerState.LIVE: 0, ContainerState.LAUNCHED: 1}
        keyed = [
            (rank.get(record.state, 2) if record else 2, task.index, record and record.id)
            for task in tasks
            for record in (state.container_of(task),)
        ]
        for task, (_, _, container) in zip(tasks, sorted(keyed, key=lambda item: item[:2])):
            if container != task.container:
                _bind(state, task, container)


def _bind(state: State, task: TaskRecord, container: object) -> None:
    """Make this container the task's; its executor does not know a task of its own yet."""
    task.container = container if isinstance(container, str) else None
    record = state.container_of(task)
    if record is not None:
        record.task = task.name
        state.deadlines.cancel(Deadline.REGISTRATION, task.name)
        if record.state is ContainerState.LAUNCHED:
            wait_for_registration(state, task)


def take_lowest_index(state: State, task: TaskRecord) -> TaskRecord:
    """Give this task's container to the first of the role that is not prepared; return that."""
    if not task.role.is_elastic:
        return task
    first = state.by_role[task.role.name][state.count_leading(task.role.name, PREPARED)]
    if first is task:
        return task
    mine, other = task.container, first.container
    before = first.state
    if before in (S.REQUESTED, S.PENDING):
        state.move(task, S.PENDING, f"its container is {first.name}'s")
        task.container = None
        _bind(state, first, mine)
        state.move(first, S.PENDING)
        state.move(first, S.LAUNCHED, quiet=True)
        if before is S.REQUESTED:
            state.move(task, S.REQUESTED)
    else:
        _bind(state, first, mine)
        _bind(state, task, other)
    return first


def wait_for_registration(state: State, task: TaskRecord) -> None:
    """Set the registration deadline; it stays the container's when another task gets that."""
    limit = state.job.timeouts.registration_s
    record = state.container_of(task)
    until = state.now + limit
    if record is not None:
        until = record.register_by = until if record.register_by is None else record.register_by
    node = state.node_of(task)
    state.set_deadline(Deadline.REGISTRATION, limit, task.name, until=until, node=node)


# ------------------------------------------------------------------ requests


def request_more(state: State, name: str) -> bool:
    """Request what an elastic role lacks, its minimum first; return whether that is anything."""
    role = state.job.role(name)
    requested = state.counts[name][S.REQUESTED]
    if not state.counts[name][S.PENDING] or (Deadline.ALLOCATION_RETRY,) in state.deadlines:
        return False  # the whole gang is asked for together
    if is_below_minimum(state, name) and name not in state.barrier_passed:
        number = role.least - count_held(state, name) - requested
    elif (Deadline.REGROW, name) in state.deadlines or is_ending_soon(state):
        number = 0
    else:
        number = role.instances
    lacking = [t for t in state.by_role[name] if t.state is S.PENDING and not t.container]
    chosen = lacking[: max(0, number)]
    for task in chosen:
        state.move(task, S.REQUESTED)
    return bool(chosen)


def is_ending_soon(state: State) -> bool:
    """Whether a task of this session has succeeded: the job does not grow any more."""
    return state.chief_done or any(
        state.round_counts[name][S.SUCCEEDED] and name not in state.dependents
        for name in state.tracked_roles()
    )


def regrow(state: State, pending: PendingDeadline) -> None:
    """Request again what was lost: the delay is over."""
    if pending.name in state.waves:
        request_more(state, pending.name)


def _schedule_regrow(state: State, name: str) -> None:
    """Set when the next container of an elastic role may be requested: one went away."""
    if state.now - state.elastic.lost_at.get(name, 0.0) > HEALTHY_S:
        state.elastic.losses[name] = 0
    state.elastic.lost_at[name] = state.now
    count = state.elastic.losses[name] = state.elastic.losses.get(name, 0) + 1
    pause = 0.0 if count == 1 else min(REGROW_CAP_S, REGROW_FIRST_S * 2.0 ** (count - 2))
    state.set_deadline(Deadline.REGROW, pause, name)


def release_outside(state: State, task: TaskRecord) -> None:
    """Take a task outside the round back to pending: its container went away."""
    task.forget_end()
    task.forget_address()
    task.container = None
    state.move(task, S.PENDING)
    _schedule_regrow(state, task.role.name)


# ------------------------------------------------------------------ growing


def registered_outside(state: State) -> List[TaskRecord]:
    """Tasks outside the round whose executors have registered."""
    out = []
    for name in state.elastic.outside_round:
        record = state.container_of(state.tasks[name])
        if record is not None and record.state is ContainerState.LIVE:
            out.append(state.tasks[name])
    return out


def _is_on_its_way(state: State, task: TaskRecord) -> bool:
    """Whether its executor has yet to register."""
    record = state.container_of(task)
    has_registered = record is not None and record.state is ContainerState.LIVE
    return task.state in (S.REQUESTED, S.LAUNCHED) and not has_registered


def schedule_growth(state: State) -> None:
    """Set when a round with the executors that wait outside begins."""
    if state.phase is not Phase.ACTIVE or is_ending_soon(state):
        return
    start = state.elastic.last_barrier_at + state.job.timeouts.elastic_interval_s
    on_its_way = any(
        _is_on_its_way(state, state.tasks[name]) for name in state.elastic.outside_round
    )
    if (Deadline.GROWTH,) not in state.deadlines:
        state.elastic.growing_since = state.now
    pause = elastic_pause(state)
    until = max(state.now + (pause if on_its_way else 0.0), start)
    until = min(until, max(state.elastic.growing_since, start) + MAX_PAUSES * pause)
    state.set_deadline(Deadline.GROWTH, pause, until=until)


def grow(state: State, pending: PendingDeadline) -> None:
    """Begin a round with the executors that wait outside."""
    if state.phase is not Phase.ACTIVE or is_ending_soon(state):
        return
    came = registered_outside(state)
    sizes: Dict[str, List[int]] = {}
    for name in elastic_roles(state.job):
        now = len(state.in_round(name))
        new = sum(task.role.name == name for task in came)
        if name in state.barrier_passed and new:
            sizes[name] = [now, now + new]
    if sizes:
        text = ", ".join(f"{name} grows from {a} to {b}" for name, (a, b) in sizes.items())
        begin_round(state, f"{text}: a new round", state.job.timeouts.kill_grace_s)


def should_stop_growing(state: State) -> bool:
    """Whether tasks still wait outside of a job that comes to its end."""
    waits = bool(state.elastic.outside_round) and not state.elastic.growth_stopped
    return waits and is_ending_soon(state)


def stop_growing(state: State) -> None:
    """Stop the containers outside the round: the job comes to its end."""
    state.elastic.growth_stopped = True
    state.deadlines.cancel_kinds(Deadline.GROWTH, Deadline.REGROW)
    has_held = False
    for name in sorted(state.elastic.outside_round):
        task = state.tasks[name]
        record = state.container_of(task)
        if record is not None:
            has_held = True
            stop_container(state, record, 0.0, "the job comes to its end")
        if task.state is not S.PENDING:
            state.deadlines.cancel(Deadline.REGISTRATION, name)
            state.deadlines.cancel(Deadline.READY, name)
            state.move(task, S.PENDING)
        task.container = None
    if has_held:
        text = "a task has succeeded: nothing grows any more, what waits goes back"
        state.add_line(StoryKind.ELASTIC, text, Level.DECISION)


# ------------------------------------------------------------------ shrinking


def may_shrink(state: State, cause: Failure) -> bool:
    """See the theory: only elastic roles lost something, and each keeps its minimum."""
    if fault_of(cause) is not Fault.SYSTEM or state.chief_done:
        return False
    roles = elastic_roles(state.job)
    gone = [failure for failure in state.failures if fault_of(failure) is Fault.SYSTEM]
    if not roles or any(failure.role not in roles for failure in gone):
        return False
    if is_ending_soon(state):
        return False
    # A program that ended for the infrastructure's reasons in a container that lives on
    # (a port was taken) is restarted by a budget: by no budget it might be so for ever.
    if not any(_is_lost(state, state.tasks[failure.task]) for failure in gone):
        return False
    return all(_count_left(state, name) >= state.job.role(name).least for name in roles)


def _is_lost(state: State, task: TaskRecord) -> bool:
    """Whether its container cannot serve a next session."""
    record = state.container_of(task)
    if record is None or record.state is ContainerState.STOPPING:
        return True
    return task.state is S.FAILED and task.cause in UNUSABLE_CONTAINER_CAUSES


def _count_left(state: State, role: str) -> int:
    """How many tasks of a role can go on."""
    if role not in state.waves:
        return state.job.role(role).instances
    return sum(not _is_lost(state, task) for task in state.by_role[role])


def shrink(state: State, cause: Failure) -> None:
    """Go on with those that are left, and ask for others meanwhile."""
    for name in elastic_roles(state.job):
        before = state.in_round(name)
        gone = [task for task in before if _is_lost(state, task)]
        if gone:
            _schedule_regrow(state, name)
            lost = ", ".join(f"{task.name} lost on {state.node_of(task)}" for task in gone)
            text = f"goes on with {_count_left(state, name)} of {len(before)} {name}: {lost}"
            state.add_line(
                StoryKind.ELASTIC, f"{text} ({describe(cause)})", Level.WARNING, role=name
            )
    begin_round(state, "a new round without what was lost", SHRINK_GRACE_S)


def begin_round(state: State, text: str, grace_s: float) -> None:
    """End the programs; the next session is a round."""
    state.elastic.regrouping = True
    state.add_line(StoryKind.ROUND, f"{text} (session {state.session + 1})", Level.DECISION)
    stop_session(state, "a new round begins", grace_s, False)
