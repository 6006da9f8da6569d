"""The session machine: all that a job decides, as one pure function of its events.

Theory of operation
===================

One mutator, :meth:`SessionMachine.handle`, takes an event and the time, and returns commands. There
is no clock, socket, thread or environment inside; that time has passed is an event (:class:`Tick`),
and :meth:`~SessionMachine.next_deadline` says when the next one is due. The shell performs commands
and feeds their results back as events. So a thousand failures can be tried in a second.

A *job* is a row of *sessions*. A session is one gang over one cluster spec: its waves are
begun in the order of their dependencies (:mod:`.startup`), its programs run until all tracked
tasks have succeeded (:mod:`.completion`) or the first fatal failure (:mod:`.task_ends`); then it
settles, the root cause is named, a budget pays, the programs are ended and the next session
begins (:mod:`.session_restart`); or the job ends (:mod:`.shutdown`). Roles that others depend on,
and tasks of FCFS jobs, keep their success over sessions: they have finished, and their containers
go back.

An event goes through four tables::

    event -> FACTS      one function by the event's type: writes records, judges nothing
          -> RULES      in order, each in its phases and on its condition; after one has fired,
                        from the top again, until none fires
    time  -> DEADLINES  one function by the kind of deadline that expired, and the rules after each
    all   -> moves      of tasks, containers and phase, by the tables of .records; a move brings the
                        commands and deadlines with it that belong to it (.shutdown, .startup)

A fact sends only what answers its own event: an acknowledgement, again what a lost connection may
have lost (*prepare*, *start*, *stop*), and the stop of a container that the event itself makes
useless or that a user orders to end now.

Each fact, rule and deadline is a *step*. :mod:`.reconcile` compares what the scheduler and the
journal are to hold with what they were last given, and is the one place that asks for containers
and writes the journal: before the commands of the step that made it necessary.

The modules, each importing only from those below it::

    machine         the tables, the invariants                     (this module)
    takeover        a new master resumes the session of the previous attempt
    session_restart sessions begin, fail, and follow each other
    stalls          programs that stand still: which of them lags, what follows
    completion      the job has done its work; chief; groups
    preemption      programs are warned that containers are taken back
    task_ends       what the end of a task means; a session fails
    task_restart    a single task is started again
    startup         waves, containers, executors, the barrier
    elastic         elastic roles: order, growing, shrinking, rounds
    shutdown        containers, programs and the job are ended
    reconcile       container requests and journal, as differences
    state           the state, and its guarded moves
    records         of tasks and containers; the tables of moves
    verdict, lagging, budgets, deadlines, events, commands
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple, Type

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job, Mode
from tony_core.master.session import (
    completion,
    elastic,
    preemption,
    session_restart,
    shutdown,
    stalls,
    startup,
    takeover,
    task_ends,
    task_restart,
)
from tony_core.master.session.commands import Command, Level
from tony_core.master.session.deadlines import Deadline, PendingDeadline
from tony_core.master.session.events import (
    Begin,
    ContainersInherited,
    Event,
    ExecutorLost,
    ExecutorReported,
    GangRestartRequested,
    PreprocessEnded,
    ServiceFailed,
    Tick,
    TokensExpiring,
)
from tony_core.master.session.reconcile import request_containers, take_step
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerState,
    Phase,
    TaskState,
)
from tony_core.master.session.state import State
from tony_core.protocol import messages
from tony_core.schedulers import container_pool

S, P, D = TaskState, Phase, Deadline

# ------------------------------------------------------------------ facts


def note_node_lost(state: State, event: container_pool.NodeLost) -> None:
    """Avoid a node that went away; the ends of its containers follow."""
    task_ends.avoid_node(state, event.node)
    state.add_line(StoryKind.NODE_LOST, f"node {event.node} went away", Level.WARNING)


def note_waiting(state: State, event: container_pool.AllocationPending) -> None:
    """Keep the reason why the scheduler grants nothing yet."""
    if event.reason != state.waiting:
        state.waiting = event.reason
        if event.reason:
            state.add_line(StoryKind.WAITING, event.reason)


def note_nothing(state: State, event: Event) -> None:
    """Write nothing: time has passed, or the executor's registration follows."""


def note_report(state: State, event: ExecutorReported) -> None:
    """Write down what an executor reported, by the table of its messages."""
    REPORTS[type(event.message)](state, event.container_id, event.message)


def note_register(state: State, container_id: str, message: messages.Register) -> None:
    """Adopt or register the executor, and take what it says of its program."""
    takeover.adopt_or_register(state, container_id, message)
    stalls.note_registered(state, container_id, message)


FACTS: Mapping[Type[Any], Callable[[State, Any], None]] = {
    Begin: session_restart.note_begin,
    Tick: note_nothing,
    PreprocessEnded: session_restart.note_preprocessed,
    ContainersInherited: takeover.note_inherited,
    ExecutorReported: note_report,
    ExecutorLost: task_ends.note_executor_lost,
    ServiceFailed: task_ends.note_service_failed,
    GangRestartRequested: session_restart.note_gang_restart,
    TokensExpiring: shutdown.note_tokens_expiring,
    # of the scheduler
    container_pool.Allocated: startup.note_allocated,
    container_pool.Started: note_nothing,
    container_pool.Completed: task_ends.note_completed,
    container_pool.NodeLost: note_node_lost,
    container_pool.PreemptionRequested: preemption.note_preemption,
    container_pool.PreemptionWithdrawn: preemption.note_withdrawn,
    container_pool.ShutdownRequested: shutdown.note_shutdown_requested,
    container_pool.AllocationPending: note_waiting,
    container_pool.RequestRejected: session_restart.note_request_rejected,
}

REPORTS: Mapping[Type[Any], Callable[[State, str, Any], None]] = {
    messages.Register: note_register,
    messages.Ready: startup.note_ready,
    messages.Running: startup.note_running,
    messages.Ended: task_ends.note_ended,
    messages.Stopped: task_ends.note_stopped,
    messages.Reported: task_ends.note_reported,
    messages.Stalled: stalls.note_stalled,
    messages.StacksDumped: stalls.note_stacks,
}

# ------------------------------------------------------------------ rules


class Rule(NamedTuple):
    """An action for wherever a condition holds; acting makes the condition false."""

    phases: Tuple[Phase, ...]
    holds: Callable[[State], object]
    act: Callable[[State], None]


_OPEN = tuple(phase for phase in Phase if phase is not P.ENDED)
_NOT_ENDING = tuple(phase for phase in _OPEN if phase is not P.ENDING)
_RUNNING = (P.ACTIVE, P.SETTLING)

RULES: Tuple[Rule, ...] = (
    Rule(_NOT_ENDING, lambda state: state.end, shutdown.begin_shutdown),
    Rule((P.ENDING,), shutdown.must_stop_all, shutdown.stop_all),
    Rule((P.NEW,), lambda state: state.began is not None, session_restart.begin_job),
    Rule((P.PREPROCESSING,), lambda state: state.preprocessed, session_restart.begin_first_session),
    Rule(_OPEN, lambda state: state.unhandled.granted, startup.launch_executors),
    Rule(_OPEN, lambda state: state.unhandled.registered, startup.prepare_registered),
    Rule(_RUNNING, lambda state: state.unhandled.ended_tasks, task_ends.judge_ends),
    Rule(_RUNNING, lambda state: state.unhandled.service_failures, task_ends.fail_for_services),
    Rule(_OPEN, lambda state: state.unhandled.ready, startup.start_ready_tasks),
    Rule((P.ADOPTING,), takeover.may_begin_job, session_restart.begin_job),
    Rule((P.ADOPTING,), takeover.is_registration_over, takeover.stop_unregistered),
    Rule((P.ADOPTING,), takeover.may_resume, takeover.resume_session),
    Rule((P.ACTIVE,), lambda state: state.gang_restart, session_restart.restart_gang),
    Rule((P.ACTIVE,), startup.is_wave_due, startup.begin_wave),
    Rule((P.ACTIVE,), lambda state: state.stalls.stale, stalls.judge_stalls),
    Rule((P.ACTIVE,), elastic.should_stop_growing, elastic.stop_growing),
    Rule((P.ACTIVE,), lambda state: state.chief_succeeded, completion.begin_chief_grace),
    Rule((P.ACTIVE,), lambda state: state.restarts.cancelled, completion.cancel_task_restarts),
    Rule(_RUNNING, lambda state: state.takeover.deferred, takeover.judge_deferred_ends),
    Rule(_RUNNING, lambda state: state.unhandled.completion_changed, completion.end_if_complete),
    Rule((P.ACTIVE,), lambda state: state.preemptions.is_stale, preemption.warn_programs),
    Rule((P.CLEANUP,), preemption.must_give_back, preemption.give_back),
    Rule((P.CLEANUP,), shutdown.is_cleanup_over, session_restart.schedule_next_session),
    Rule(_OPEN, lambda state: state.reconciled.is_stale, request_containers),
    Rule((P.ENDING,), shutdown.is_finished, shutdown.finish),
    Rule(
        _OPEN,
        lambda state: state.unhandled.ended_containers,
        task_restart.schedule_waiting_restarts,
    ),
)

_RULES_OF: Mapping[Phase, Tuple[Rule, ...]] = {
    phase: tuple(rule for rule in RULES if phase in rule.phases) for phase in Phase
}

# ------------------------------------------------------------------ deadlines


def note_expired(state: State, pending: PendingDeadline) -> None:
    """Do nothing: a rule's condition reads that the deadline is no longer pending."""


DEADLINES: Mapping[str, Callable[[State, PendingDeadline], None]] = {
    D.APPLICATION: shutdown.time_out_application,
    D.ADOPTION: note_expired,
    D.ALLOCATION: startup.release_incomplete_gang,
    D.ALLOCATION_RETRY: startup.retry_allocation,
    D.REGISTRATION: task_ends.give_up_unregistered,
    D.READY: task_ends.give_up_unregistered,
    D.ELASTIC_BARRIER: startup.start_without_rest,
    D.START: task_ends.give_up_unstarted,
    D.GROWTH: elastic.grow,
    D.REGROW: elastic.regrow,
    D.GROUP: completion.time_out_dependency,
    D.CHIEF_GRACE: completion.end_after_chief,
    D.TASK_RESTART: task_restart.start_next_attempt,
    D.SETTLE: session_restart.conclude_session,
    D.CLEANUP: shutdown.stop_overdue_program,
    D.BACKOFF: session_restart.begin_next_session,
    D.STALL: stalls.review_stalls,
    D.STALL_REPEAT: stalls.repeat_action,
    D.STALLED_PROGRAM: stalls.give_up_stalled,
    D.STOP: shutdown.give_up_container,
    D.END: shutdown.leave_containers,
    D.AVOIDED: task_ends.readmit_node,
    D.HEALTHY: session_restart.restore_system_budget,
}


class SessionMachine:
    """One job's machine; see the module's docstring."""

    def __init__(
        self,
        job: Job,
        settle_s: float = 3.0,
        jitter: Callable[[], float] = lambda: 0.5,
        ends_containers_at_finish: bool = False,
        address_bound: FrozenSet[str] = frozenset(),
        scheduler: str = "the scheduler",
    ) -> None:
        self.state = State(
            job, settle_s, jitter, ends_containers_at_finish, address_bound, scheduler
        )

    def handle(self, event: Event, now: float) -> List[Command]:
        """Take in what happened at this time; return what is to be done."""
        state = self.state
        state.commands = []
        if self.over:
            return state.commands
        state.now = max(state.now, now)
        take_step(state, FACTS[type(event)], event)
        self._apply_rules()
        while not self.over:
            pending = state.deadlines.take_expired(state.now)
            if pending is None:
                break
            take_step(state, DEADLINES[pending.key[0]], pending)
            self._apply_rules()
        state.unhandled.ended_tasks.clear()  # what ends between two sessions means nothing
        return state.commands

    def _apply_rules(self) -> None:
        state = self.state
        fires = True
        while fires:
            fires = False
            for rule in _RULES_OF[state.phase]:
                if rule.holds(state):
                    take_step(state, rule.act)
                    fires = True
                    break

    def next_deadline(self) -> Optional[float]:
        """When a :class:`Tick` is due at the latest."""
        return None if self.over else self.state.deadlines.next()

    @property
    def over(self) -> bool:
        """Whether the job has ended: nothing is decided any more."""
        return self.state.phase is P.ENDED

    def validate(self) -> None:
        """Check every invariant; tests call it after each event."""
        check_tasks(self.state)
        check_containers(self.state)
        check_deadlines(self.state)


# ------------------------------------------------------------------ invariants


def check_tasks(state: State) -> None:
    """What must hold of tasks, and of what is counted of them."""
    bound: Dict[str, str] = {}
    for task in state.tasks.values():
        assert task.state not in HOLDS_CONTAINER or task.container, f"{task.name}: no container"
        if task.container and task.container in state.held:
            other = bound.setdefault(task.container, task.name)
            assert other == task.name, f"{task.container} belongs to {other} and {task.name}"
        assert task.state in TERMINAL or task.name not in state.finished_tasks
    for name in state.restarts.pending:
        assert state.tasks[name].state is S.PENDING, f"{name} restarts, and is not pending"
    for role in state.by_role:
        counted = {each: count for each, count in state.round_counts[role].items() if count}
        inside = Counter(task.state for task in state.in_round(role))
        assert counted == inside, f"{role}: miscounted"
        everywhere = {each: count for each, count in state.counts[role].items() if count}
        assert everywhere == Counter(task.state for task in state.by_role[role]), role
    if state.phase is P.ENDED:
        live = [task.name for task in state.tasks.values() if task.state in HOLDS_CONTAINER]
        assert not live, f"ended with {live}"
    assert state.budgets.user_left >= 0 and state.budgets.system_left >= 0


_ALL_BOUND = (P.ACTIVE, P.SETTLING, P.CLEANUP, P.BACKOFF)


def check_containers(state: State) -> None:
    """What must hold of containers that have not ended."""
    for record in state.held.values():
        assert record.state is not ContainerState.ENDED, f"{record.id} has ended and is still held"
        if record.state is ContainerState.STOPPING:
            assert (D.STOP, record.id) in state.deadlines, f"{record.id}: a stop with no deadline"
        if record.state is ContainerState.CLEANUP:
            assert (D.CLEANUP, record.id) in state.deadlines, f"{record.id}: no deadline"
        is_bound = state.task_of(record.id) is not None or record.state is ContainerState.STOPPING
        assert is_bound or state.phase not in _ALL_BOUND, f"{record.id}: kept without a task"
    if state.phase is P.CLEANUP:
        assert not shutdown.is_cleanup_over(state), "clean, and no next session"


_TIMED = {P.ADOPTING: D.ADOPTION, P.SETTLING: D.SETTLE, P.BACKOFF: D.BACKOFF, P.ENDING: D.END}


def check_deadlines(state: State) -> None:
    """Whatever is waited for has a deadline."""
    kind = _TIMED.get(state.phase)
    is_timed = kind is None or (kind,) in state.deadlines
    is_timed = is_timed or (kind is D.ADOPTION and takeover.must_await_ends(state))
    assert is_timed, f"{state.phase.value} with no deadline"
    if state.phase is not P.ACTIVE:
        return
    assert (D.ALLOCATION,) in state.deadlines or not _holds_half(state), "half a gang, for ever"
    for task in state.tasks.values():
        if task.state is S.LAUNCHED:
            waits = (D.REGISTRATION, task.name) in state.deadlines
            waits = waits or (
                task.name in state.elastic.outside_round and (D.GROWTH,) in state.deadlines
            )
            assert waits, f"{task.name}: no deadline"
        if task.state is S.REGISTERED:
            assert (D.READY, task.name) in state.deadlines, f"{task.name}: no deadline"
        if task.name in state.restarts.pending:
            waits = (
                D.TASK_RESTART,
                task.name,
            ) in state.deadlines or task_restart.is_old_attempt_stopping(state, task)
            assert waits, f"{task.name}: restarts without a deadline"


def _holds_half(state: State) -> bool:
    """Whether some of a gang is there, and some that it needs is still asked for."""
    if state.job.mode is not Mode.GANG:
        return False
    roles = [role for wave in set(state.waves.values()) for role in state.gang_roles(wave)]
    gang = [
        task for name in roles if name not in state.barrier_passed for task in state.by_role[name]
    ]
    missing = any(t.state is S.REQUESTED and startup.is_required(state, t.role.name) for t in gang)
    return missing and any(task.state in HOLDS_CONTAINER for task in gang)
