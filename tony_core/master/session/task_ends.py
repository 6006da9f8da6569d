"""What a task's end means: for its role, its session, its job.

A program that was warned of a preemption (:mod:`.preemption`), has noticed it, and then exits by
itself has ended for that: by a failure, and by 0 when its work is not done (:func:`is_work_over`).
That is the scheduler's doing, not the program's. One that takes no notice is judged as always.

The first authenticated report on a program (task, session, and how often the task was started again
in it) is final. A container's exit decides only when no such report came; a later one is written
down and never decides again.

A session fails with its first failure that counts. It then *settles*: one death drags its peers
down within milliseconds, and the scheduler's reason for a lost container comes last.
"""

from __future__ import annotations

from tony_core.exit_causes import ExitCause, Fault
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode, Tracking
from tony_core.master.session.commands import AcknowledgeEnd, Level
from tony_core.master.session.deadlines import AVOIDED_S, Deadline, PendingDeadline
from tony_core.master.session.elastic import release_outside
from tony_core.master.session.events import ExecutorLost, ServiceFailed
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    OPEN,
    TERMINAL,
    ContainerRecord,
    ContainerState,
    Failure,
    Phase,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.startup import may_start
from tony_core.master.session.state import State
from tony_core.master.session.task_restart import is_bound_to_container, try_task_restart
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES, describe_end, fault_of
from tony_core.protocol.messages import Ended, Reported, Stopped
from tony_core.schedulers.container_pool import Completed
from tony_core.schedulers.port import AppState

S = TaskState
JUDGING = (Phase.ACTIVE, Phase.SETTLING)
#: Ends of containers after which another on the same node would fare no better.
_AVOID_NODE_CAUSES = (ExitCause.LOST, ExitCause.DISKS, ExitCause.LAUNCH)

# ------------------------------------------------------------------ reports of executors


def note_ended(state: State, container_id: str, message: Ended) -> None:
    """Keep how a program ended, as its executor reports."""
    state.emit(AcknowledgeEnd(container_id, message.session, message.restart))
    task = state.task_of(container_id)
    if task is None or task.state in TERMINAL:
        return
    if (message.session, message.restart) != task.attempt or task.name in state.restarts.pending:
        return
    task.exit_code = message.exit_code
    task.signal = message.signal
    task.cause = message.cause
    task.message = message.message
    task.stderr_tail = tuple(message.stderr_tail)
    task.usage = dict(message.usage)
    stopped_early = message.preempted and not (message.exit_code == 0 and is_work_over(state, task))
    if stopped_early:
        task.cause = ExitCause.PREEMPTED
        code = message.exit_code
        task.message = f"warned that containers are taken back, it exited by itself with {code}"
    record = state.held.get(container_id)
    asked = record is not None and record.state in (ContainerState.CLEANUP, ContainerState.STOPPING)
    if message.exit_code == 0 and message.cause == ExitCause.EXITED and not stopped_early:
        state.move(task, S.SUCCEEDED)
    elif message.cause == ExitCause.STOPPED and (asked or state.phase not in JUDGING):
        state.move(task, S.KILLED, "ended by the master")
    else:
        outside = task.name in state.elastic.outside_round
        state.move(task, S.FAILED, describe_end(failure_of(state, task)), quiet=outside)
    if message.cause in UNUSABLE_CONTAINER_CAUSES and record is not None:
        avoid_node(state, record.container.node)
        if record.state is ContainerState.CLEANUP:
            stop_container(state, record, 0.0, f"its node is avoided ({message.cause})")
    if stopped_early and container_id in state.preemptions.asked and record is not None:
        stop_container(state, record, 0.0, "the scheduler asks for it back")
    if task.state is not S.KILLED:
        state.unhandled.ended_tasks.append(task)


def is_work_over(state: State, task: TaskRecord) -> bool:
    """Whether a program that was warned, and exited with 0, had done its work.

    By what it has reported: its progress, else the chief's, else a result. Where there is nothing
    of that it counts as not done: to begin once more from the last checkpoint costs a session, and
    a success without the work would be wrong.
    """
    chief = state.job.chief
    leader = state.by_role[chief[0]][chief[1]] if chief is not None else task
    progress = task.progress if task.progress is not None else leader.progress
    return progress >= 1.0 if progress is not None else bool(state.result)


def note_stopped(state: State, container_id: str, message: Stopped) -> None:
    """Free the container whose executor has ended a session's program, or replace it."""
    record = state.held.get(container_id)
    if record is None:
        return
    if record.state is ContainerState.STOPPING and state.phase is Phase.ENDING and message.clean:
        _count_as_ended(state, record)
        return
    task = state.task_of(record.id)
    if record.state is ContainerState.LIVE and not message.clean and task is not None:
        _replace_container(state, record, message)
        if task.state in HOLDS_CONTAINER:
            survivors = f"{_describe_survivors(message)} of its last program survived KILL"
            give_up_task(state, task, ExitCause.NOT_CLEAN, survivors)
    if record.state is not ContainerState.CLEANUP:
        return
    if task is not None and message.session < task.session:
        return  # late, of the session before: this program may still run
    state.deadlines.cancel(Deadline.CLEANUP, record.id)
    if task is not None and task.state not in TERMINAL and task.session == message.session:
        state.move(task, S.KILLED, "ended by the master")
    if message.clean:
        state.move_container(record, ContainerState.LIVE)
    else:
        _replace_container(state, record, message)


def _describe_survivors(message: Stopped) -> str:
    pids = ", ".join(map(str, message.survivors[:5]))
    return f"processes ({pids})" if pids else "processes"


def _replace_container(state: State, record: ContainerRecord, message: Stopped) -> None:
    """Replace a container where processes survived KILL: no other program may run beside them."""
    state.add_line(
        StoryKind.NOT_CLEAN,
        f"{_describe_survivors(message)} of session {message.session} survived KILL in {record.id}"
        f" on {record.container.node}: the container is replaced",
        Level.WARNING,
    )
    avoid_node(state, record.container.node)
    stop_container(state, record, 0.0, "processes of its program survived KILL")


def _count_as_ended(state: State, record: ContainerRecord) -> None:
    """Count a container as ended when its executor reports, at the job's end, that all else has.

    The scheduler's report takes a second on a cluster, which is not worth waiting for where
    the scheduler ends what is left anyway. Not when the job is killed: it may be the scheduler that
    does so, this very moment, and what a master still writes then is left for ever.
    """
    if not state.ends_containers_at_finish or state.outcome is AppState.KILLED:
        return
    task = state.task_of(record.id)
    if task is not None and task.state in HOLDS_CONTAINER:
        state.move(task, S.KILLED, "the job ended")
    del state.held[record.id]
    state.move_container(record, ContainerState.ENDED)
    state.deadlines.cancel(Deadline.STOP, record.id)


def note_reported(state: State, container_id: str, message: Reported) -> None:
    """Keep what the program reports of its progress, its result and its checkpoints."""
    task = state.task_of(container_id)
    if task is None or message.session != task.session:
        return
    task.reported.update(message.metrics)
    if message.progress is not None:
        task.progress = message.progress
        state.progress_seen = True
    if message.step is not None:
        task.step = message.step
    if message.result and state.job.chief == (task.role.name, task.index):
        state.result = message.result
    # One measure only: progress where the program reports it, else the step.
    value = message.progress if state.progress_seen else message.step
    healed = value is not None and state.budgets.note_progress(float(value))
    if message.saved is not None:
        if task.saved is None or message.saved > task.saved:
            task.saved, task.last_signature = message.saved, None
        healed = state.budgets.note_checkpoint(message.saved) or healed
    if healed:
        text = (
            "the program got further than any session before: TonY restored its retries"
            f" ({state.budgets.user_left} left)"
        )
        state.add_line(StoryKind.BUDGET_HEALED, text, Level.DECISION, task)


def note_executor_lost(state: State, event: ExecutorLost) -> None:
    """Count a task as lost whose executor is silent for longer than the heartbeats allow."""
    record = state.held.get(event.container_id)
    if record is None or record.state is ContainerState.STOPPING:
        return
    task = state.task_of(record.id)
    stop_container(state, record, 0.0, event.reason)
    if task is not None and (task.state in HOLDS_CONTAINER or is_bound_to_container(state, task)):
        give_up_task(state, task, ExitCause.SILENT, event.reason)


# ------------------------------------------------------------------ containers end


def note_completed(state: State, event: Completed) -> None:
    """Keep how a container ended, as the scheduler reports, and what that means for its task."""
    record = state.held.pop(event.container_id, None)
    if record is None:
        return
    before = record.state
    state.move_container(record, ContainerState.ENDED)
    state.deadlines.cancel(Deadline.STOP, record.id)
    state.deadlines.cancel(Deadline.CLEANUP, record.id)
    state.unhandled.ended_containers.append(record)
    # One that the previous attempt left may have registered with that.
    unregistered = before is ContainerState.LAUNCHED and not record.inherited
    if event.cause in _AVOID_NODE_CAUSES or (event.cause is ExitCause.EXITED and unregistered):
        avoid_node(state, record.container.node)
    task = state.tasks[record.task] if record.task else None
    if task is None or task.container != record.id:
        return
    outside = task.name in state.elastic.outside_round
    if task.state in HOLDS_CONTAINER and before is ContainerState.STOPPING:
        state.move(task, S.KILLED, "ended by the master", quiet=outside)
        if outside:
            state.unhandled.ended_tasks.append(task)
    elif task.state in HOLDS_CONTAINER or is_bound_to_container(state, task):
        task.exit_code = event.exit_code
        task.cause = event.cause.value
        task.container_cause = event.cause
        task.message = event.diagnostics
        lost = S.FAILED if event.cause is ExitCause.MEMORY else S.LOST
        state.move(task, lost, describe_end(failure_of(state, task)), quiet=outside)
        state.unhandled.ended_tasks.append(task)
    elif task.state is S.FAILED and before is not ContainerState.STOPPING:
        _add_cause(state, task, event)


def _add_cause(state: State, task: TaskRecord, event: Completed) -> None:
    """Keep the infrastructure's cause for a task that has failed: it may be the root cause."""
    by_itself = event.cause is ExitCause.EXITED
    if state.phase is Phase.SETTLING and not by_itself and not task.is_sidecar:
        failure = failure_of(state, task)
        message = event.diagnostics or task.message
        state.failures.append(failure._replace(container_cause=event.cause, message=message))
        state.unhandled.completion_changed = True


def give_up_task(state: State, task: TaskRecord, cause: str, message: str) -> None:
    """Count a task as lost by the master's own clock."""
    task.cause = cause
    task.message = message
    state.move(task, S.LOST, message, quiet=task.name in state.elastic.outside_round)
    state.unhandled.ended_tasks.append(task)


def avoid_node(state: State, node: str) -> None:
    """Take nothing from a node for a while, since something failed there."""
    state.avoided_nodes.add(node)
    state.reconciled.is_stale = True
    if state.phase is not Phase.ENDING:
        state.set_deadline(Deadline.AVOIDED, AVOIDED_S, node)


def readmit_node(state: State, pending: PendingDeadline) -> None:
    """Take containers from a node again: nothing of ours has failed there for long."""
    state.avoided_nodes.discard(pending.name)
    state.reconciled.is_stale = True
    state.add_line(StoryKind.NODE_FORGIVEN, f"node {pending.name} is no longer avoided")


def give_up_unregistered(state: State, pending: PendingDeadline) -> None:
    """Give up a task whose executor did not register, or did not get ready, in time."""
    task = state.tasks[pending.name]
    record = state.container_of(task)
    if record is not None:
        stop_container(state, record, 0.0, f"waited for {pending.reason}")
    if task.state in HOLDS_CONTAINER:
        message = f"waited for {pending.reason}; {pending.setting} passed"
        give_up_task(state, task, ExitCause.REGISTRATION_TIMEOUT, message)


def give_up_unstarted(state: State, pending: PendingDeadline) -> None:
    """Give up the tasks whose executors did not report that their programs run."""
    late = [
        task
        for task in ([state.tasks[pending.name]] if pending.name else state.tasks.values())
        if task.state is S.READY
        and task.name not in state.elastic.outside_round
        and (pending.name or (may_start(state, task) and not _has_own_deadline(state, task)))
    ]
    for task in late:
        message = f"waited for {pending.reason}; {pending.setting} passed"
        give_up_task(state, task, ExitCause.START_TIMEOUT, message)
        judge_ends(state)  # one by one: what it means depends on those that are left


def _has_own_deadline(state: State, task: TaskRecord) -> bool:
    return (Deadline.START, task.name) in state.deadlines


# ------------------------------------------------------------------ meaning


def failure_of(state: State, task: TaskRecord) -> Failure:
    """The task's end as data for the verdict."""
    return Failure(
        task=task.name,
        role=task.role.name,
        node=state.node_of(task),
        at=state.now,
        exit_code=task.exit_code if task.exit_code is not None else -1,
        signal=task.signal,
        cause=task.cause,
        container_cause=task.container_cause,
        message=task.message,
        stderr_tail=task.stderr_tail,
        ran_s=state.now - task.started if task.started is not None else None,
    )


def judge_ends(state: State) -> None:
    """Judge each task that has ended, in order."""
    while state.unhandled.ended_tasks:
        task = state.unhandled.ended_tasks.popleft()
        if state.phase in JUDGING:
            judge_end(state, task)


def judge_end(state: State, task: TaskRecord) -> None:
    """Judge what the end of a task means while its session goes on, or settles."""
    if task.state is S.SUCCEEDED:
        _succeeded(state, task)
    elif task.name in state.elastic.outside_round:
        _ended_outside(state, task)
    elif task.state in (S.FAILED, S.LOST):
        _failed(state, task)


def _succeeded(state: State, task: TaskRecord) -> None:
    name = task.role.name
    if state.job.mode is Mode.FCFS and not task.is_sidecar:
        _retire(state, task)
    if name in state.dependents and state.has_succeeded(name):
        state.finished_roles.add(name)
        for peer in state.in_round(name):
            _retire(state, peer)
    if name == "chief" and state.phase is Phase.ACTIVE:
        state.chief_succeeded = state.has_succeeded(name)


def _retire(state: State, task: TaskRecord) -> None:
    """Stop the container of a task that never runs again in this job."""
    state.finished_tasks.add(task.name)
    record = state.container_of(task)
    if record is not None:
        grace = state.job.timeouts.kill_grace_s
        stop_container(state, record, grace, f"{task.name} is done")


def _ended_outside(state: State, task: TaskRecord) -> None:
    """Take back to pending a task outside the round; its end is no loss to that."""
    record = state.container_of(task)
    if record is not None:
        stop_container(state, record, 0.0, "its task could not be prepared")
    if state.phase is not Phase.ACTIVE:
        return
    if task.state is not S.KILLED:
        text = f"{task.name}, which waits for the next round, lost its container"
        how = describe_end(failure_of(state, task))
        state.add_line(StoryKind.ELASTIC, f"{text}: {how}", Level.WARNING)
    release_outside(state, task)


def _failed(state: State, task: TaskRecord) -> None:
    """Restart a task that failed, ignore it, or fail the session."""
    failure = failure_of(state, task)
    if state.chief_done and task.role.name != "chief":
        return  # the job has succeeded all the same
    if try_task_restart(state, task, failure):
        return
    if fails_session(state, task, fault_of(failure)):
        fail_session(state, failure)


def fails_session(state: State, task: TaskRecord, fault: Fault) -> bool:
    """Whether the end of a task by this party's fault fails the session; restarts do not count."""
    if state.chief_done and task.role.name != "chief":
        return False
    if task.is_sidecar and not task.role.stop_on_failure:
        return False
    return is_fatal(state, task) or (task.role.is_elastic and fault is Fault.SYSTEM)


def is_fatal(state: State, task: TaskRecord) -> bool:
    """Whether this task's failure fails the session."""
    role = task.role
    if role.stop_on_failure or role.tracking is Tracking.UNTRACKED:
        return True
    if task.cause == ExitCause.STALLED and not task.is_sidecar:
        return True  # its gang stands still with it, or the job is to fail
    if role.name in state.no_longer_awaited:
        return True
    if state.job.fail_on_worker_failure or role.name in state.dependents:
        return True
    if state.job.mode is Mode.GANG and role.name not in state.barrier_passed:
        return True  # the gang cannot start without it
    if state.job.chief == (role.name, task.index) or role.name == "chief":
        return True
    return state.count((S.SUCCEEDED, *OPEN), state.tracked_roles()) == 0


def note_service_failed(state: State, event: ServiceFailed) -> None:
    """Keep that the framework's service in the master ended the session (an MPI abort)."""
    if event.session != state.session or state.phase not in JUDGING or state.chief_done:
        return
    task = state.tasks.get(event.task)
    failure = Failure(
        task=event.task or "the framework",
        role=task.role.name if task else "",
        node=state.node_of(task) if task else "",
        at=state.now,
        exit_code=event.exit_code,
        signal=0,
        cause=ExitCause.ABORTED,
        message=event.reason,
        ran_s=state.now - task.started if task and task.started is not None else None,
    )
    state.unhandled.service_failures.append(failure)


def fail_for_services(state: State) -> None:
    """Fail the session for what a service of the framework reported."""
    while state.unhandled.service_failures:
        fail_session(state, state.unhandled.service_failures.popleft())


def fail_session(state: State, failure: Failure) -> None:
    """Note a failure; the first one starts the settling."""
    state.failures.append(failure)
    if state.phase is Phase.ACTIVE:
        state.move_phase(Phase.SETTLING)
        state.set_deadline(Deadline.SETTLE, state.settle_s)
        state.deadlines.cancel(Deadline.ALLOCATION)
        state.deadlines.cancel(Deadline.ALLOCATION_RETRY)
    shorten_settling(state)
    pending = state.deadlines.get(Deadline.SETTLE)
    settled = pending is None or pending.until <= state.now
    if len(state.failures) == 1 and state.settle_s >= 1.0 and not settled:
        text = f"session {state.session} fails; its cause is known within {state.settle_s:g} s"
        state.add_line(StoryKind.SESSION_FAILED, text, Level.WARNING)


def shorten_settling(state: State) -> None:
    """Settling ends when no task is left whose end could still change the cause."""
    gang = [role.name for role in state.job.roles if role.tracking is not Tracking.SIDECAR]
    pending = state.deadlines.get(Deadline.SETTLE)
    if pending is not None and pending.until > state.now and not state.count(HOLDS_CONTAINER, gang):
        state.set_deadline(Deadline.SETTLE, 0.0)
