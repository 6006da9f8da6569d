"""The session machine: everything a job decides, as one pure function of its events.

Theory of operation
===================

One mutator, :meth:`SessionMachine.handle`, takes an event and returns commands. There is no
clock, socket, thread or environment inside; time is an event (:class:`Tick`), and
:meth:`next_deadline` says when the next one is due. The shell performs commands and feeds
their results back as events. So a thousand failures can be tried in a second.

The machine is one class in ten rooms, each standing on the one below::

    session     dispatch, timers, preprocess, the view          (this module)
    adoption    a later master takes over
    rounds      elastic roles grow, and go on with fewer
    clearing    settle, decide, clear away, restart, end
    groups      clocks that the end of a group starts
    judging     what an end means
    alone       one task is started again, and nobody else
    gathering   containers, executors, the barrier
    elastic     who is in the round, who comes next
    board       the state, and its small moves

A *job* is a row of *sessions*. A session is one gang over one cluster spec: its stages are
released in the order of their dependencies (gathering), its programs run until all tracked
tasks have succeeded or the first fatal failure (judging); then it settles, the root cause
is named, a budget pays, the programs are cleared away and the next session begins; or the
job ends (clearing). Roles that others depend on, and tasks of FCFS jobs, keep their success
over sessions: they are done, and their containers go back.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Type

from tony_core.job.spec import Job, Mode
from tony_core.master.session.commands import Command, RunPreprocess, StopContainer, Weight
from tony_core.master.session.events import (
    AllocationRefused,
    AllocationWaits,
    Begin,
    ContainerCompleted,
    ContainersAllocated,
    ContainersInherited,
    ContainerStarted,
    Event,
    ExecutorLost,
    ExecutorRegistered,
    KillAsked,
    NodeWentAway,
    PreemptionWarned,
    PreprocessEnded,
    ServiceFailed,
    TaskEnded,
    TaskReady,
    TaskReported,
    TaskRunning,
    TaskStopped,
    Tick,
)
from tony_core.master.session.records import HOLDS_CONTAINER, TERMINAL, Hold, TaskRecord, TaskState
from tony_core.master.session.state import Phase
from tony_core.master.session.takeover import Adoption
from tony_core.master.session.waits import Wait
from tony_core.schedulers.port import AppState

S = TaskState


class SessionMachine(Adoption):
    """See the module's docstring."""

    def __init__(
        self,
        job: Job,
        settle_s: float = 3.0,
        jitter: Callable[[], float] = lambda: 0.5,
        ends_rest: bool = False,
        in_place: FrozenSet[str] = frozenset(),
    ) -> None:
        super().__init__(
            job, settle_s=settle_s, jitter=jitter, ends_rest=ends_rest, in_place=in_place
        )
        self._handlers: Dict[Type[Event], Callable[[Any], None]] = {
            Begin: self.on_begin,
            Tick: lambda event: None,
            KillAsked: self.on_kill,
            PreprocessEnded: self.on_preprocessed,
            ContainersAllocated: self.on_allocated,
            ContainersInherited: self.on_inherited,
            ContainerStarted: lambda event: None,
            ContainerCompleted: self.on_completed,
            NodeWentAway: self.on_node_lost,
            PreemptionWarned: self.on_preemption,
            AllocationWaits: self.on_waits,
            AllocationRefused: self.on_refused,
            ExecutorRegistered: self.on_registered,
            ExecutorLost: self.on_lost,
            TaskReady: self.on_ready,
            TaskRunning: self.on_running,
            TaskEnded: self.on_ended,
            TaskStopped: self.on_stopped,
            TaskReported: self.on_reported,
            ServiceFailed: self.on_service_failed,
        }

    def handle(self, event: Event) -> List[Command]:
        """Take an event in; say what is to be done."""
        self.out = []
        if self.over:
            return self.out
        self.now = max(self.now, event.at)
        self._handlers[type(event)](event)
        while not self.over:
            wait = self.waits.take_expired(self.now)
            if wait is None:
                break
            self.on_deadline(wait)
        if self.phase is Phase.ADOPTING:
            self.check_adopted()
        return self.out

    def next_deadline(self) -> Optional[float]:
        """When a :class:`Tick` is due at the latest."""
        return None if self.over else self.waits.next()

    @property
    def over(self) -> bool:
        """Whether the job has ended: nothing is decided any more."""
        return self.phase is Phase.ENDED

    # ------------------------------------------------------------------ the beginning

    def on_begin(self, event: Begin) -> None:
        """The master stands."""
        if self.phase is Phase.NEW:
            self.begin(event.at)

    def begin(self, at: float) -> None:
        """Start from nothing."""
        if self.began is None:
            self.began = at
        self.watch_application()
        command = self.job.master.preprocess
        if command:
            self.phase = Phase.PREPROCESSING
            self.tell("preprocess", f"running {command}")
            self.emit(RunPreprocess(command))
        else:
            self.start_session(0)

    def watch_application(self) -> None:
        """Arm the application's own timeout."""
        limit = self.job.timeouts.application_s
        if limit is not None and self.began is not None:
            setting = f"tony.application.timeout={limit:g}s"
            self.waits.set(Wait(("application",), self.began + limit, "the job to end", setting))

    def on_preprocessed(self, event: PreprocessEnded) -> None:
        """``tony.am.command`` ended."""
        if self.phase is not Phase.PREPROCESSING:
            return
        if event.exit_code == 0:
            self.parameters = event.parameters
            self.start_session(0)
            return
        text = f"tony.am.command failed with exit code {event.exit_code}"
        tail = "".join(f"\n  {line}" for line in event.stderr_tail)
        self.root = {"task": "am", "exit_code": event.exit_code, "fault": "user"}
        self.begin_end(AppState.FAILED, text + tail, 0.0)

    # ------------------------------------------------------------------ executors

    def on_registered(self, event: ExecutorRegistered) -> None:
        """An executor called."""
        record = self.open.get(event.container_id)
        if record is None:
            return
        record.address = event.address
        if record.hold is Hold.STOPPING:
            self.emit(StopContainer(record.id, 0.0, "it is being ended"))
        elif self.phase is Phase.ADOPTING and record.hold is Hold.LAUNCHED:
            self.adopt(event, record)
        else:
            self.registered(event, record)

    # ------------------------------------------------------------------ the scheduler's words

    def on_node_lost(self, event: NodeWentAway) -> None:
        """Its containers' ends follow."""
        self.avoid(event.node)
        self.tell("node-lost", f"node {event.node} went away", Weight.WARNING)

    def on_preemption(self, event: PreemptionWarned) -> None:
        """Said, so that the end that follows is understood."""
        records = [self.open[name] for name in event.container_ids if name in self.open]
        names = [record.task or record.id for record in records]
        text = "the scheduler will take back the containers of " + ", ".join(names)
        self.tell("preemption-warned", text, Weight.WARNING)

    def on_waits(self, event: AllocationWaits) -> None:
        """Why nothing comes."""
        if event.reason != self.waiting:
            self.waiting = event.reason
            if event.reason:
                self.tell("waiting", event.reason)

    def on_refused(self, event: AllocationRefused) -> None:
        """What was asked for can never be had."""
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return
        self.root = {"task": event.role, "fault": "user", "message": event.reason}
        text = f"tony.{event.role}: {event.reason}"
        self.begin_end(AppState.FAILED, text, 0.0)

    # ------------------------------------------------------------------ time

    def on_deadline(self, wait: Wait) -> None:
        """A wait was in vain (or just over)."""
        kind = wait.key[0]
        name = wait.key[1] if len(wait.key) > 1 else ""
        if kind == "settle":
            self.decide()
        elif kind == "backoff":
            self.start_session(self.session + 1)
        elif kind == "application":
            text = f"timed out: {wait.setting} passed"
            self.begin_end(AppState.TIMED_OUT, text, self.job.timeouts.kill_grace_s)
        elif kind == "allocation":
            self.give_back(wait)
        elif kind == "allocation-retry":
            self.ask_again()
        elif kind in ("registration", "ready"):
            self.on_not_registered(wait, name)
        elif kind == "start":
            self.on_not_started(wait, name)
        elif kind == "clear":
            record = self.open.get(name)
            if record is not None:
                text = f"its program did not end ({wait.reason})"
                self.stop_container(record, 0.0, text)
        elif kind == "stop":
            self.given_up(name)
        elif kind == "end":
            self.check_ended(given_up=True)
        elif kind == "gather":
            self.check_barrier(int(name), late=True)
        elif kind == "growth":
            self.grow()
        elif kind == "regrow":
            self.regrow(name)
        elif kind == "chief-grace":
            self.chief_grace_over(name)
        elif kind == "group":
            self.group_timeout(int(name), wait)
        elif kind == "again":
            self.place_again(name)
        elif kind == "adoption":
            self.check_adopted(late=True)
        elif kind == "avoided":
            self.avoid_no_more(name)
        elif kind == "healthy" and self.budgets.healthy():
            self.tell("budget-healed", "ten healthy minutes: the system's budget is whole again")
            self.journal()

    def on_not_registered(self, wait: Wait, name: str) -> None:
        """An executor did not call, or did not get ready, in time."""
        task = self.tasks[name]
        record = self.container_of(task)
        if record is not None:
            self.stop_container(record, 0.0, f"waited for {wait.reason}")
        if task.state in HOLDS_CONTAINER:
            message = f"waited for {wait.reason}; {wait.setting} passed"
            self.lose_silently(task, "registration-timeout", message)

    def on_not_started(self, wait: Wait, name: str) -> None:
        """An executor did not say that its program runs."""
        late = [
            task
            for task in ([self.tasks[name]] if name else self.tasks.values())
            if task.state is S.READY
            and task.name not in self.outside
            and (name or (self.may_start(task) and not self.has_own(task)))
        ]
        for task in late:
            message = f"waited for {wait.reason}; {wait.setting} passed"
            self.lose_silently(task, "start-timeout", message)

    def has_own(self, task: TaskRecord) -> bool:
        """Whether it is started by itself, and has until another time."""
        return ("start", task.name) in self.waits

    # ------------------------------------------------------------------ invariants

    def validate(self) -> None:
        """Every invariant; tests call it after each event."""
        bound: Dict[str, str] = {}
        for task in self.tasks.values():
            assert task.state not in HOLDS_CONTAINER or task.container, f"{task.name}: no container"
            if task.container and task.container in self.open:
                other = bound.setdefault(task.container, task.name)
                assert other == task.name, f"{task.container} belongs to {other} and {task.name}"
        for role in self.by_role:
            counted = {state: count for state, count in self.counts[role].items() if count}
            inside = Counter(task.state for task in self.inside(role))
            assert counted == inside, f"{role}: miscounted"
            everywhere = {state: count for state, count in self.states[role].items() if count}
            assert everywhere == Counter(task.state for task in self.by_role[role]), role
        for record in self.open.values():
            assert record.hold is not Hold.ENDED, f"{record.id} has ended and is still open"
            if record.hold is Hold.STOPPING:
                assert ("stop", record.id) in self.waits, f"{record.id}: a stop with no deadline"
            if record.hold is Hold.CLEARING:
                assert ("clear", record.id) in self.waits, f"{record.id}: cleared for ever"
            bound_to = self.task_of(record.id) is not None or record.hold is Hold.STOPPING
            assert bound_to or self.phase not in _ALL_BOUND, f"{record.id}: nobody's, and kept"
        key = _TIMED.get(self.phase)
        timed = key is None or key in self.waits or (key == ("adoption",) and self.waits_for_ends())
        assert timed, f"{self.phase.value} with no deadline"
        if self.phase is Phase.CLEARING:
            assert self.still(Hold.CLEARING, Hold.STOPPING), "cleared, and no next session"
        if self.phase is Phase.ACTIVE and self.holds_half():
            assert ("allocation",) in self.waits, "half a gang, for ever"
        if self.phase is Phase.ENDED:
            live = [task.name for task in self.tasks.values() if task.state in HOLDS_CONTAINER]
            assert not live, f"ended with {live}"
        assert self.budgets.user_left >= 0 and self.budgets.system_left >= 0
        for task in self.tasks.values():
            if task.state is S.LAUNCHED and self.phase is Phase.ACTIVE:
                waits = ("registration", task.name) in self.waits
                waits = waits or (task.name in self.outside and ("growth",) in self.waits)
                assert waits, f"{task.name}: no deadline"
            if task.state is S.REGISTERED and self.phase is Phase.ACTIVE:
                assert ("ready", task.name) in self.waits, f"{task.name}: no deadline"
            assert task.state in TERMINAL or task.name not in self.done
        for name in self.returning:
            task = self.tasks[name]
            assert task.state is S.PENDING, f"{name} is {task.state.value}, and to come back"
            if self.phase is Phase.ACTIVE:
                waits = ("again", name) in self.waits or self.is_going(task)
                assert waits, f"{name}: comes back without a time"

    def holds_half(self) -> bool:
        """Whether some of a gang is there, and some that it needs is still asked for."""
        if self.job.mode is not Mode.GANG:
            return False
        roles = [role for wave in set(self.released.values()) for role in self.gang_roles(wave)]
        gang = [task for name in roles if name not in self.started for task in self.by_role[name]]
        missing = any(t.state is S.REQUESTED and self.needs(t.role.name) for t in gang)
        return missing and any(task.state in HOLDS_CONTAINER for task in gang)


_TIMED = {
    Phase.ADOPTING: ("adoption",),
    Phase.SETTLING: ("settle",),
    Phase.BACKOFF: ("backoff",),
    Phase.ENDING: ("end",),
}
_ALL_BOUND = (Phase.ACTIVE, Phase.SETTLING, Phase.CLEARING, Phase.BACKOFF)
