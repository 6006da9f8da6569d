"""The end of a container, of a session's programs, of the job.

A container is ended by moving it to *stopping*: its executor gets the command first, then the
scheduler, and a deadline is set. A session's programs are ended where containers and executors stay
(*cleanup*): the next session begins when nothing of them is left. The end of the job is the same
for good.
"""

from __future__ import annotations

from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import (
    EndSession,
    Finish,
    Level,
    StopContainer,
    StopTask,
)
from tony_core.master.session.deadlines import (
    CANCELLED_AT_END,
    CLEANUP_ALLOWANCE_S,
    END_ALLOWANCE_S,
    STOP_ALLOWANCE_S,
    Deadline,
    PendingDeadline,
)
from tony_core.master.session.events import TokensExpiring
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    ContainerState,
    Phase,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.state import State
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES
from tony_core.schedulers.container_pool import ShutdownRequested
from tony_core.schedulers.port import AppState

S = TaskState

# ------------------------------------------------------------------ a container


def stop_container(state: State, record: ContainerRecord, grace_s: float, reason: str) -> None:
    """End a container; its completion follows, or the deadline for it passes."""
    if record.state in (ContainerState.STOPPING, ContainerState.ENDED):
        return
    state.move_container(record, ContainerState.STOPPING)
    if record.task is None:
        state.unassigned_stopping.setdefault(record.container.role, []).append(record)
    state.deadlines.cancel(Deadline.CLEANUP, record.id)
    _ask_to_stop(state, record, grace_s, reason)


def _ask_to_stop(state: State, record: ContainerRecord, grace_s: float, reason: str) -> None:
    state.emit(StopContainer(record.id, grace_s, reason))
    limit = grace_s + STOP_ALLOWANCE_S
    state.set_deadline(Deadline.STOP, limit, record.id, node=record.container.node, why=reason)


def give_up_container(state: State, pending: PendingDeadline) -> None:
    """Count a container that did not end in its time as gone."""
    record = state.held.pop(pending.name, None)
    if record is None:
        return
    state.move_container(record, ContainerState.ENDED)
    text = f"container {record.id} did not end in time"
    state.add_line(StoryKind.NOT_ENDED, text, Level.WARNING)
    task = state.tasks[record.task] if record.task else None
    if task is not None and task.container == record.id and task.state in HOLDS_CONTAINER:
        state.move(task, S.LOST, "its container did not end in time")
    state.unhandled.ended_containers.append(record)


# ------------------------------------------------------------------ programs


def stop_program(state: State, record: ContainerRecord, grace_s: float, reason: str) -> None:
    """End the program in a container that stays; the executor reports, or a deadline expires."""
    task = state.tasks[record.task or ""]
    state.move_container(record, ContainerState.CLEANUP)
    state.emit(StopTask(record.id, task.session, grace_s, reason))
    wait_for_program(state, record, grace_s)


def wait_for_program(state: State, record: ContainerRecord, grace_s: float) -> None:
    """Set the deadline by which an executor must have ended its program."""
    state.set_deadline(Deadline.CLEANUP, grace_s + CLEANUP_ALLOWANCE_S, record.id)


def stop_overdue_program(state: State, pending: PendingDeadline) -> None:
    """End the container of an executor that could not end its program in time."""
    record = state.held.get(pending.name)
    if record is not None:
        stop_container(state, record, 0.0, f"its program did not end ({pending.reason})")


def end_task(state: State, task: TaskRecord, reason: str) -> None:
    """End a task that need not go on."""
    if task.state in TERMINAL:
        return
    record = state.container_of(task)
    if task.state is S.RUNNING and record is not None and record.state is ContainerState.LIVE:
        stop_program(state, record, state.job.timeouts.kill_grace_s, reason)
    state.move(task, S.KILLED, f"ended by the master: {reason}")


def stop_session(state: State, reason: str, grace_s: float, fresh: bool) -> None:
    """End the session's programs; the next session follows when nothing of them is left."""
    state.move_phase(Phase.CLEANUP)
    state.deadlines.cancel_kinds(Deadline.HEALTHY)
    state.emit(EndSession(state.session))
    for record in list(state.held.values()):
        task = state.tasks[record.task] if record.task else None
        if task is None or task.container != record.id:
            stop_container(state, record, 0.0, "not needed any more")
        elif task.state is S.FAILED and task.cause in UNUSABLE_CONTAINER_CAUSES:
            stop_container(state, record, 0.0, f"its node is avoided ({task.cause})")
        elif fresh:
            stop_container(state, record, grace_s, "a fresh session")
        elif task.is_sidecar or task.name in state.finished_tasks:
            continue
        elif record.state is ContainerState.LIVE:
            stop_program(state, record, grace_s, reason)
        elif record.state is ContainerState.CLEANUP:
            wait_for_program(state, record, grace_s)
    state.deadlines.cancel(Deadline.START)
    for task in state.tasks.values():
        if fresh or not task.is_sidecar:
            for kind in (Deadline.READY, Deadline.START, Deadline.TASK_RESTART):
                state.deadlines.cancel(kind, task.name)
        if fresh and task.is_sidecar and task.state is S.REQUESTED:
            state.move(task, S.PENDING, "it begins with the session")


def is_cleanup_over(state: State) -> bool:
    """Whether nothing of the old session's programs is left."""
    return not state.any_container(ContainerState.CLEANUP, ContainerState.STOPPING)


# ------------------------------------------------------------------ the job


def note_shutdown_requested(state: State, event: ShutdownRequested) -> None:
    """Request the job's end; of a job that is ending already a user may order the end at once."""
    if state.phase is not Phase.ENDING:
        grace = state.job.timeouts.kill_grace_s
        state.request_end(AppState.KILLED, event.reason, grace)
    elif event.by_user:
        for record in state.held.values():
            state.emit(StopContainer(record.id, 0.0, event.reason))


def note_tokens_expiring(state: State, event: TokensExpiring) -> None:
    """Request the job's end; no session follows, since its programs would have no tokens."""
    if state.phase is not Phase.ENDING:
        cause = ExitCause.TOKENS_EXPIRING
        state.root_cause = {
            "task": "am",
            "cause": cause.value,
            "fault": cause.fault.value,
            "message": event.reason,
        }
        state.request_end(AppState.FAILED, event.reason, state.job.timeouts.kill_grace_s)


def time_out_application(state: State, pending: PendingDeadline) -> None:
    """End a job that took longer than its own timeout."""
    text = f"timed out: {pending.setting} passed"
    state.request_end(AppState.TIMED_OUT, text, state.job.timeouts.kill_grace_s)


def begin_shutdown(state: State) -> None:
    """Turn from whatever the job was doing to its end."""
    end = state.end
    assert end is not None
    state.move_phase(Phase.ENDING)
    state.outcome, state.diagnostics = end.state, end.diagnostics
    if end.state is not AppState.FAILED:
        state.root_cause = {}  # the failure of a session before did not end the job
    state.waiting = ""
    level = Level.DECISION if end.state is AppState.SUCCEEDED else Level.ERROR
    first = end.diagnostics.split("\n", 1)[0]  # the rest is in the story
    task = state.tasks.get(str(state.root_cause.get("task")))
    first = task.shorten(first) if task is not None else first
    state.add_line(StoryKind.ENDING, f"{end.state.value}: {first}", level, state=end.state.value)
    state.deadlines.cancel_kinds(*CANCELLED_AT_END)


def must_stop_all(state: State) -> bool:
    """Whether the job's end has been decided, and nothing is being ended yet."""
    return (Deadline.END,) not in state.deadlines and not state.leaves_containers


def stop_all(state: State) -> None:
    """End everything that is held."""
    end = state.end
    assert end is not None
    for name in sorted(state.restarts.pending):
        state.move(state.tasks[name], S.KILLED, "the job ended")
    reason = f"the job ends: {end.state.value.lower()}"
    for record in list(state.held.values()):
        pending = state.deadlines.get(Deadline.STOP, record.id)
        if pending is not None and pending.until > state.now + end.grace_s + STOP_ALLOWANCE_S:
            _ask_to_stop(state, record, end.grace_s, reason)  # it has no longer than the others
        stop_container(state, record, end.grace_s, reason)
    if state.session >= 0:
        state.emit(EndSession(state.session))
    state.set_deadline(Deadline.END, end.grace_s + END_ALLOWANCE_S)


def leave_containers(state: State, pending: PendingDeadline) -> None:
    """Leave behind the containers that have not ended by now."""
    state.leaves_containers = True


def is_finished(state: State) -> bool:
    """Whether nothing is held any more, or what is must be left behind."""
    return not state.held or state.leaves_containers


def finish(state: State) -> None:
    """Finish the application; the last command."""
    for task in state.tasks.values():
        if task.state not in TERMINAL and task.state is not S.PENDING:
            state.move(task, S.KILLED, "the job ended")
    state.move_phase(Phase.ENDED)
    state.deadlines.cancel_kinds(Deadline.END, Deadline.STOP)
    if state.held:
        names = ", ".join(list(state.held)[:10])
        state.add_line(StoryKind.LEFT_BEHIND, f"did not end in time: {names}", Level.ERROR)
    assert state.outcome is not None
    state.emit(Finish(state.outcome, state.diagnostics, dict(state.root_cause)))
