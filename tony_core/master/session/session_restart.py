"""How sessions begin, and how a failed session is restarted: cause, budget, delay, next session.

A warm restart keeps healthy containers and executors. The next session begins only when
nothing of the old programs is left: every executor has reported so (*clean*), or its container
has ended.
"""

from __future__ import annotations

from tony_core.exit_causes import Fault
from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import Level, RunPreprocess
from tony_core.master.session.deadlines import Deadline, PendingDeadline
from tony_core.master.session.elastic import (
    begin_round,
    close_gaps,
    include_all_in_round,
    may_shrink,
    shrink,
)
from tony_core.master.session.events import Begin, GangRestartRequested, PreprocessEnded
from tony_core.master.session.records import Phase, TaskRecord, TaskState
from tony_core.master.session.shutdown import stop_session
from tony_core.master.session.state import State
from tony_core.master.session.verdict import (
    as_fields,
    diagnostics,
    fault_of,
    root_cause,
    signature_of,
    why_no_retry,
)
from tony_core.schedulers.container_pool import RequestRejected
from tony_core.schedulers.port import AppState

S = TaskState
RESTART_GRACE_S = 1.0

# ------------------------------------------------------------------ the job begins


def note_begin(state: State, event: Begin) -> None:
    """Keep when the job began: the master is registered with the scheduler."""
    if state.began is None:
        state.began = state.now


def begin_job(state: State) -> None:
    """Run what comes before the first session, or begin that."""
    if state.began is None:
        state.began = state.now
    watch_application(state)
    command = state.job.master.preprocess
    if command:
        state.move_phase(Phase.PREPROCESSING)
        state.add_line(StoryKind.PREPROCESS, f"running {command}")
        state.emit(RunPreprocess(command))
    else:
        start_session(state, 0)


def watch_application(state: State) -> None:
    """Set the application's own deadline."""
    limit = state.job.timeouts.application_s
    if limit is not None and state.began is not None:
        state.set_deadline(Deadline.APPLICATION, limit, until=state.began + limit)


def note_preprocessed(state: State, event: PreprocessEnded) -> None:
    """Keep the parameters that ``tony.am.command`` gave, or end the job with its failure."""
    if state.phase is not Phase.PREPROCESSING:
        return
    if event.exit_code == 0:
        state.parameters = event.parameters
        state.preprocessed = True
        return
    text = f"tony.am.command failed with exit code {event.exit_code}"
    tail = "".join(f"\n  {line}" for line in event.stderr_tail)
    state.root_cause = {"task": "am", "exit_code": event.exit_code, "fault": "user"}
    state.request_end(AppState.FAILED, text + tail, 0.0)


def note_request_rejected(state: State, event: RequestRejected) -> None:
    """End the job: the scheduler can never grant a request."""
    if state.phase is not Phase.ENDING:
        state.root_cause = {"task": event.role, "fault": "user", "message": event.reason}
        state.request_end(AppState.FAILED, f"tony.{event.role}: {event.reason}", 0.0)


# ------------------------------------------------------------------ a session begins


def begin_first_session(state: State) -> None:
    """Begin session 0: the preprocessing has succeeded."""
    start_session(state, 0)


def begin_next_session(state: State, pending: PendingDeadline) -> None:
    """Begin the next session: the delay before it is over."""
    start_session(state, state.session + 1)


def start_session(state: State, number: int) -> None:
    """Begin a session: one gang over one cluster spec."""
    state.session = number
    state.gang_restart = ""
    state.move_phase(Phase.ACTIVE)
    state.failures.clear()
    state.barrier_passed.clear()
    state.no_longer_awaited.clear()
    include_all_in_round(state)
    close_gaps(state)
    state.allocation_tries = 0
    chief = state.job.chief
    if chief is None or f"{chief[0]}:{chief[1]}" not in state.finished_tasks:
        state.result = ""  # a result counts in the session that reported it
    state.deadlines.cancel_kinds(
        Deadline.GROUP, Deadline.CHIEF_GRACE, Deadline.ELASTIC_BARRIER, Deadline.GROWTH
    )
    state.deadlines.cancel(Deadline.START)
    for task in state.tasks.values():
        if task.name in state.finished_tasks or _survives_restart(state, task):
            continue
        state.deadlines.cancel(Deadline.START, task.name)
        state.deadlines.cancel(Deadline.TASK_RESTART, task.name)
        _forget_session(state, task)
        task.session = number
        if not state.elastic.regrouping:
            task.progress = task.step = None
        if task.state is not S.PENDING:
            state.move(task, S.PENDING)
        state.waves.pop(task.role.name, None)
    state.elastic.regrouping = False
    state.add_line(StoryKind.SESSION_STARTED, f"session {number} begins", Level.DECISION)
    # The last task that the job waited for may have succeeded meanwhile.
    state.unhandled.completion_changed = bool(state.finished_tasks)


def _forget_session(state: State, task: TaskRecord) -> None:
    """Reset a task for a new session; a sidecar's restarts are counted over the whole job."""
    state.restarts.pending.discard(task.name)
    task.forget_end()
    task.forget_address()
    task.new_ports = False
    if not task.is_sidecar:
        task.restarts = 0
        task.last_signature = None


def _survives_restart(state: State, task: TaskRecord) -> bool:
    """Whether a task is a sidecar that goes on over a warm restart."""
    if not task.is_sidecar or state.is_fresh:
        return False
    return state.session > 0 and task.role.name in state.waves


# ------------------------------------------------------------------ the gang restarts


def note_gang_restart(state: State, event: GangRestartRequested) -> None:
    """Keep the request until a session is active: the next that begins fulfils it."""
    state.gang_restart = event.reason


def restart_gang(state: State) -> None:
    """Begin a round where programs run. What has yet to start needs none."""
    reason, state.gang_restart = state.gang_restart, ""
    runs = any(t.state is S.RUNNING and not t.is_sidecar for t in state.tasks.values())
    if runs and not state.chief_done:
        begin_round(state, f"{reason}: a new round", state.job.timeouts.kill_grace_s)


# ------------------------------------------------------------------ a session fails


def conclude_session(state: State, pending: PendingDeadline) -> None:
    """Name the cause once the session has settled, then try again or end."""
    cause = root_cause(state.failures)
    fault = fault_of(cause)
    if may_shrink(state, cause):
        shrink(state, cause)
        return
    state.root_cause = as_fields(cause)
    ended = (S.FAILED, S.LOST, S.KILLED)
    others = [
        task.name
        for task in state.tasks.values()
        if task.state in ended and task.name != cause.task and not task.is_sidecar
    ]
    shown = others[:20] + ([f"{len(others) - 20} more"] if len(others) > 20 else [])
    end, ends = "", True
    if fault is Fault.USER and state.budgets.repeats_last(signature_of(cause)):
        end = (
            "not tried again: the same role failed with the same code and the same last"
            " line within 30 s of its start, twice running"
        )
    elif why_no_retry(cause, state.job.timeouts.stall_action):
        end = f"not tried again: {why_no_retry(cause, state.job.timeouts.stall_action)}"
    elif not state.budgets.charge(fault):
        end = _describe_budget(state, fault)
    else:
        ends = False
    text = diagnostics(cause, shown, end)
    level = Level.ERROR if ends else Level.DECISION
    state.add_line(
        StoryKind.ROOT_CAUSE, text, level, state.tasks.get(cause.task), **state.root_cause
    )
    if ends:
        state.request_end(AppState.FAILED, text, RESTART_GRACE_S)
    else:
        _restart(state, fault)


def _describe_budget(state: State, fault: Fault) -> str:
    """Why there is no next try; empty in a job that asked for none."""
    if fault is Fault.USER:
        limit = state.budgets.user_limit
        if not limit:
            return ""
        return f"no retries are left: tony.am.retry-count={limit} (the program's failures)"
    limit = state.budgets.system_limit
    return f"no retries are left: tony.task.max-infrastructure-failures={limit}"


def _restart(state: State, fault: Fault) -> None:
    """Take the old session down, keeping what is healthy."""
    budgets = state.budgets
    left = budgets.user_left if fault is Fault.USER else budgets.system_left
    retries = "retry" if left == 1 else "retries"
    state.add_line(
        StoryKind.RESTARTING,
        f"session {state.session + 1} follows; {left} {retries} left for {fault.value} failures",
        Level.DECISION,
        user_left=budgets.user_left,
        system_left=budgets.system_left,
    )
    stop_session(state, f"session {state.session} failed", RESTART_GRACE_S, state.is_fresh)


def schedule_next_session(state: State) -> None:
    """Begin the next session, or the delay before it: nothing of the old one is left."""
    pause = 0.0 if state.elastic.regrouping else state.budgets.backoff(state.jitter())
    if pause > 0:
        state.move_phase(Phase.BACKOFF)
        state.add_line(StoryKind.BACKOFF, f"next session in {pause:.1f} s")
        state.set_deadline(Deadline.BACKOFF, pause)
    else:
        start_session(state, state.session + 1)


def restore_system_budget(state: State, pending: PendingDeadline) -> None:
    """Restore the system's budget: ten healthy minutes have passed."""
    if state.budgets.restore_system_budget():
        left = state.budgets.system_left
        text = f"ten healthy minutes: TonY restored the retries for system failures ({left} left)"
        state.add_line(StoryKind.BUDGET_HEALED, text)
