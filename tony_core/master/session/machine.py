"""The session machine: all that a job decides, as one pure function of its events.

Theory of operation
===================

One mutator, :meth:`SessionMachine.handle`, takes an event and the time, and returns commands. There
is no clock, socket, thread or environment inside; that time has passed is an event (:class:`Tick`),
and :meth:`~SessionMachine.next_deadline` says when the next one is due. The shell performs commands
and feeds their results back as events. So a thousand failures can be tried in a second.

A *job* is a row of *sessions*. A session is one gang over one cluster spec: its stages are
released in the order of their dependencies (:mod:`.startup`), its programs run until all tracked
tasks have succeeded (:mod:`.completion`) or the first fatal failure (:mod:`.task_ends`); then it
settles, the root cause is named, a budget pays, the programs are cleared away and the next session
begins (:mod:`.recovery`); or the job ends (:mod:`.shutdown`). Roles that others depend on, and
tasks of FCFS jobs, keep their success over sessions: they are done, and their containers go back.

An event goes through four tables::

    event -> FACTS      one function by the event's type: writes records, decides nothing
          -> RULES      in order, each in its phases and on its condition; after one has fired,
                        from the top again, until none fires
    time  -> DEADLINES  one function by what was waited for, and the rules after each
    all   -> moves      of tasks, containers and phase, by the tables of .records; a move brings the
                        commands and deadlines with it that belong to it (.shutdown, .startup)

Each fact, rule and deadline is a *step*. :mod:`.reconcile` compares what the scheduler and the
journal are to hold with what they were last given, and is the one place that asks for containers
and writes the journal: before the commands of the step that made it necessary.

The modules, each importing only from those below it::

    machine       the tables, the invariants                     (this module)
    takeover      a later master takes over
    recovery      sessions begin, and follow each other
    completion    the job has done its work; chief; groups
    task_ends     what an end means; a session fails
    task_restart  a single task is started again
    startup       stages, containers, executors, the barrier
    elastic       elastic roles: order, growing, shrinking, rounds
    shutdown      containers, programs and the job are ended
    reconcile     asks and journal, as differences
    state         the state, and its guarded moves
    records       of tasks and containers; the tables of moves
    verdict, budgets, waits, events, commands
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple, Type

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job, Mode
from tony_core.master.session import (
    completion,
    elastic,
    recovery,
    shutdown,
    startup,
    takeover,
    task_ends,
    task_restart,
)
from tony_core.master.session.commands import Command, Weight
from tony_core.master.session.events import (
    Begin,
    ContainersInherited,
    Event,
    ExecutorLost,
    ExecutorReported,
    PreprocessEnded,
    ServiceFailed,
    Tick,
)
from tony_core.master.session.reconcile import ask, take_step
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerState,
    Phase,
    TaskState,
)
from tony_core.master.session.state import State
from tony_core.master.session.waits import Deadline, Wait
from tony_core.protocol import messages
from tony_core.schedulers import port

S, P, D = TaskState, Phase, Deadline

# ------------------------------------------------------------------ facts


def note_node_lost(state: State, event: port.NodeLost) -> None:
    """A node went away; the ends of its containers follow."""
    task_ends.avoid(state, event.node)
    state.add_line(StoryKind.NODE_LOST, f"node {event.node} went away", Weight.WARNING)


def note_preemption(state: State, event: port.PreemptionRequested) -> None:
    """Explain the ends that follow."""
    records = [state.open[name] for name in event.container_ids if name in state.open]
    names = [record.task or record.id for record in records]
    text = "the scheduler will take back the containers of " + ", ".join(names)
    state.add_line(StoryKind.PREEMPTION_WARNED, text, Weight.WARNING)


def note_waiting(state: State, event: port.AllocationPending) -> None:
    """Why the scheduler grants nothing yet."""
    if event.reason != state.waiting:
        state.waiting = event.reason
        if event.reason:
            state.add_line(StoryKind.WAITING, event.reason)


def note_nothing(state: State, event: Event) -> None:
    """Nothing to write down."""


def note_report(state: State, event: ExecutorReported) -> None:
    """An executor sent a message."""
    REPORTS[type(event.message)](state, event.container_id, event.message)


FACTS: Mapping[Type[Any], Callable[[State, Any], None]] = {
    Begin: recovery.note_begin,
    Tick: note_nothing,
    PreprocessEnded: recovery.note_preprocessed,
    ContainersInherited: takeover.note_inherited,
    ExecutorReported: note_report,
    ExecutorLost: task_ends.note_lost,
    ServiceFailed: task_ends.note_service_failed,
    # of the scheduler
    port.Allocated: startup.note_allocated,
    port.Started: note_nothing,
    port.Completed: task_ends.note_completed,
    port.NodeLost: note_node_lost,
    port.PreemptionRequested: note_preemption,
    port.ShutdownRequested: shutdown.note_kill,
    port.AllocationPending: note_waiting,
    port.RequestRejected: recovery.note_refused,
}

REPORTS: Mapping[Type[Any], Callable[[State, str, Any], None]] = {
    messages.Register: takeover.note_call,
    messages.Ready: startup.note_ready,
    messages.Running: startup.note_running,
    messages.Ended: task_ends.note_ended,
    messages.Stopped: task_ends.note_stopped,
    messages.Reported: task_ends.note_reported,
}

# ------------------------------------------------------------------ rules


class Rule(NamedTuple):
    """What follows by itself wherever its condition holds; acting makes the condition false."""

    phases: Tuple[Phase, ...]
    holds: Callable[[State], object]
    act: Callable[[State], None]


_OPEN = tuple(phase for phase in Phase if phase is not P.ENDED)
_NOT_ENDING = tuple(phase for phase in _OPEN if phase is not P.ENDING)
_RUNNING = (P.ACTIVE, P.SETTLING)

RULES: Tuple[Rule, ...] = (
    Rule(_NOT_ENDING, lambda state: state.end, shutdown.begin_end),
    Rule((P.ENDING,), shutdown.holds_on, shutdown.stop_all),
    Rule((P.NEW,), lambda state: state.began is not None, recovery.begin),
    Rule((P.PREPROCESSING,), lambda state: state.preprocessed, recovery.begin_first),
    Rule(_OPEN, lambda state: state.granted, startup.take_containers),
    Rule(_OPEN, lambda state: state.called, startup.prepare_called),
    Rule(_RUNNING, lambda state: state.ended, task_ends.judge_ended),
    Rule(_RUNNING, lambda state: state.aborts, task_ends.fail_aborted),
    Rule(_OPEN, lambda state: state.ready, startup.start_ready),
    Rule((P.ADOPTING,), takeover.may_begin, recovery.begin),
    Rule((P.ADOPTING,), takeover.is_time_to_judge, takeover.end_silent),
    Rule((P.ADOPTING,), takeover.is_adopted, takeover.go_on),
    Rule((P.ACTIVE,), startup.is_stage_due, startup.release_stage),
    Rule((P.ACTIVE,), elastic.is_grown, elastic.stop_growing),
    Rule((P.ACTIVE,), lambda state: state.chief_succeeded, completion.follow_chief),
    Rule((P.ACTIVE,), lambda state: state.none_returns, completion.end_returning),
    Rule(_RUNNING, lambda state: state.late, takeover.judge_late),
    Rule(_RUNNING, lambda state: state.has_ended, completion.look_at_the_rest),
    Rule((P.CLEANUP,), shutdown.is_cleared, recovery.follow_session),
    Rule(_OPEN, lambda state: state.asks_changed, ask),
    Rule((P.ENDING,), shutdown.is_finished, shutdown.finish),
    Rule(_OPEN, lambda state: state.gone, task_restart.give_turns),
)

_RULES_OF: Mapping[Phase, Tuple[Rule, ...]] = {
    phase: tuple(rule for rule in RULES if phase in rule.phases) for phase in Phase
}

# ------------------------------------------------------------------ deadlines


def note_passed(state: State, wait: Wait) -> None:
    """Nothing to do: a rule asks whether the deadline still stands."""


DEADLINES: Mapping[str, Callable[[State, Wait], None]] = {
    D.APPLICATION: shutdown.application_overdue,
    D.ADOPTION: note_passed,
    D.ALLOCATION: startup.give_back,
    D.ALLOCATION_RETRY: startup.try_allocation_again,
    D.REGISTRATION: task_ends.registration_overdue,
    D.READY: task_ends.registration_overdue,
    D.GATHER: startup.gather_overdue,
    D.START: task_ends.start_overdue,
    D.GROWTH: elastic.grow,
    D.REGROW: elastic.regrow,
    D.GROUP: completion.group_overdue,
    D.CHIEF_GRACE: completion.chief_grace_over,
    D.AGAIN: task_restart.place_again,
    D.SETTLE: recovery.decide,
    D.CLEAR: shutdown.program_overdue,
    D.BACKOFF: recovery.begin_next,
    D.STOP: shutdown.give_up_container,
    D.END: shutdown.end_overdue,
    D.AVOIDED: task_ends.forgive,
    D.HEALTHY: recovery.heal_budget,
}


class SessionMachine:
    """One job's machine; see the module's docstring."""

    def __init__(
        self,
        job: Job,
        settle_s: float = 3.0,
        jitter: Callable[[], float] = lambda: 0.5,
        ends_rest: bool = False,
        in_place: FrozenSet[str] = frozenset(),
    ) -> None:
        self.state = State(job, settle_s, jitter, ends_rest, in_place)

    def handle(self, event: Event, now: float) -> List[Command]:
        """Take in what happened at this time; return what is to be done."""
        state = self.state
        state.out = []
        if self.over:
            return state.out
        state.now = max(state.now, now)
        take_step(state, FACTS[type(event)], event)
        self._apply_rules()
        while not self.over:
            wait = state.waits.take_expired(state.now)
            if wait is None:
                break
            take_step(state, DEADLINES[wait.key[0]], wait)
            self._apply_rules()
        state.ended.clear()  # what ends between two sessions means nothing
        return state.out

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
        return None if self.over else self.state.waits.next()

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
        if task.container and task.container in state.open:
            other = bound.setdefault(task.container, task.name)
            assert other == task.name, f"{task.container} belongs to {other} and {task.name}"
        assert task.state in TERMINAL or task.name not in state.done
    for name in state.returning:
        assert state.tasks[name].state is S.PENDING, f"{name} is to come back, and not pending"
    for role in state.by_role:
        counted = {each: count for each, count in state.counts[role].items() if count}
        inside = Counter(task.state for task in state.inside(role))
        assert counted == inside, f"{role}: miscounted"
        everywhere = {each: count for each, count in state.states[role].items() if count}
        assert everywhere == Counter(task.state for task in state.by_role[role]), role
    if state.phase is P.ENDED:
        live = [task.name for task in state.tasks.values() if task.state in HOLDS_CONTAINER]
        assert not live, f"ended with {live}"
    assert state.budgets.user_left >= 0 and state.budgets.system_left >= 0


_ALL_BOUND = (P.ACTIVE, P.SETTLING, P.CLEANUP, P.BACKOFF)


def check_containers(state: State) -> None:
    """What must hold of containers that have not ended."""
    for record in state.open.values():
        assert record.state is not ContainerState.ENDED, f"{record.id} has ended and is still open"
        if record.state is ContainerState.STOPPING:
            assert (D.STOP, record.id) in state.waits, f"{record.id}: a stop with no deadline"
        if record.state is ContainerState.CLEANUP:
            assert (D.CLEAR, record.id) in state.waits, f"{record.id}: cleared for ever"
        is_bound = state.task_of(record.id) is not None or record.state is ContainerState.STOPPING
        assert is_bound or state.phase not in _ALL_BOUND, f"{record.id}: kept without a task"
    if state.phase is P.CLEANUP:
        assert not shutdown.is_cleared(state), "cleared, and no next session"


_TIMED = {P.ADOPTING: D.ADOPTION, P.SETTLING: D.SETTLE, P.BACKOFF: D.BACKOFF, P.ENDING: D.END}


def check_deadlines(state: State) -> None:
    """Whatever is waited for has a deadline."""
    kind = _TIMED.get(state.phase)
    is_timed = kind is None or (kind,) in state.waits
    is_timed = is_timed or (kind is D.ADOPTION and takeover.waits_for_ends(state))
    assert is_timed, f"{state.phase.value} with no deadline"
    if state.phase is not P.ACTIVE:
        return
    assert (D.ALLOCATION,) in state.waits or not _holds_half(state), "half a gang, for ever"
    for task in state.tasks.values():
        if task.state is S.LAUNCHED:
            waits = (D.REGISTRATION, task.name) in state.waits
            waits = waits or (task.name in state.outside and (D.GROWTH,) in state.waits)
            assert waits, f"{task.name}: no deadline"
        if task.state is S.REGISTERED:
            assert (D.READY, task.name) in state.waits, f"{task.name}: no deadline"
        if task.name in state.returning:
            waits = (D.AGAIN, task.name) in state.waits or task_restart.is_going(state, task)
            assert waits, f"{task.name}: comes back without a time"


def _holds_half(state: State) -> bool:
    """Whether some of a gang is there, and some that it needs is still asked for."""
    if state.job.mode is not Mode.GANG:
        return False
    roles = [role for wave in set(state.released.values()) for role in state.gang_roles(wave)]
    gang = [task for name in roles if name not in state.started for task in state.by_role[name]]
    missing = any(t.state is S.REQUESTED and startup.needs(state, t.role.name) for t in gang)
    return missing and any(task.state in HOLDS_CONTAINER for task in gang)
