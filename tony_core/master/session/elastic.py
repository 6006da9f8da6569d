"""Elastic roles: ``tony.<role>.min-instances`` .. ``tony.<role>.instances``.

Theory of operation
===================

A *round* is a session that nobody pays for. Each has a cluster spec of its own (new ports,
ranks 0..n-1 without a gap), a working folder of its own, and a number (``SESSION_ID``), so
that fencing, journal, history and takeover are those of every session.

*Gathering.* The gang that is asked for whole is ``min-instances`` of each elastic role and
all of the others. Once that is there the rest is asked for as well, one by one, and the
barrier waits a short while for it (*the pause*), so that a room with space gives all at
once. Whoever has not come by then stands *outside* the round: it is in no cluster spec, is
waited for by nobody, and its end means nothing. What is asked for stays asked for.

*Order.* The tasks of a round are always the first of their role. An executor learns which
task it is when it is prepared, so the next one to call becomes the lowest task that has
none yet; and before a session begins the living ones move up into the gaps.

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

from typing import Callable, Dict, FrozenSet, List, Tuple

from tony_core.job.spec import Job
from tony_core.master.session.budgets import HEALTHY_S
from tony_core.master.session.commands import Weight
from tony_core.master.session.records import HOLDS_CONTAINER, Hold, TaskRecord, TaskState
from tony_core.master.session.state import Board, Phase
from tony_core.master.session.waits import Wait

S = TaskState
LEAST_PAUSE_S = 1.0
MOST_PAUSES = 10  # that those on their way are waited for
REGROW_FIRST_S = 5.0
REGROW_CAP_S = 300.0
_READY = frozenset((S.READY,))
_PREPARED = frozenset((S.REGISTERED, S.READY, S.RUNNING))


def elastic_roles(job: Job) -> List[str]:
    """The roles that may have fewer tasks than they ask for."""
    return [role.name for role in job.roles if role.is_elastic]


class Elastic(Board):
    """The part of the machine that knows who is in the round, and who comes next."""

    def __init__(
        self,
        job: Job,
        *,
        settle_s: float,
        jitter: Callable[[], float],
        ends_rest: bool,
        in_place: FrozenSet[str] = frozenset(),
    ) -> None:
        super().__init__(
            job, settle_s=settle_s, jitter=jitter, ends_rest=ends_rest, in_place=in_place
        )
        self.losses: Dict[str, int] = {}  # role -> how many of its containers went away lately
        self.lost_at: Dict[str, float] = {}
        self.gathering: Dict[int, float] = {}  # wave -> since when the rest of it is waited for
        self.growing_since = 0.0  # since when newcomers are waited for
        self.since = 0.0  # when the session's last barrier was passed
        self.grown = False  # the job comes to its end: nobody waits outside any more
        self.firsts: Dict[Tuple[str, FrozenSet[TaskState]], int] = {}  # see first_not()

    @property
    def pause_s(self) -> float:
        """How long nobody must have come before those that are there begin."""
        return max(LEAST_PAUSE_S, 2 * self.settle_s)

    def is_short(self, name: str) -> bool:
        """Whether a role asks for fewer than it would like: its minimum is not there yet."""
        role = self.job.role(name)
        return role.is_elastic and self.held(name) < role.least

    def held(self, name: str) -> int:
        """How many tasks of a role have a container, outside the round too."""
        return sum(self.states[name][state] for state in HOLDS_CONTAINER)

    def move(self, task: TaskRecord, state: TaskState, why: str = "", quiet: bool = False) -> None:
        """Take a task to a state, by the table."""
        super().move(task, state, why, quiet)
        for states in (_PREPARED, _READY):
            if state not in states:
                key = (task.role.name, states)
                self.firsts[key] = min(task.index, self.firsts.get(key, 0))

    def first_not(self, name: str, states: FrozenSet[TaskState]) -> int:
        """How many of a role's first tasks are in these states, without asking all each time."""
        tasks = self.by_role[name]
        at = self.firsts.get((name, states), 0)
        while at < len(tasks) and tasks[at].state in states:
            at += 1
        self.firsts[(name, states)] = at
        return at

    # ------------------------------------------------------------------ who is in the round

    def leave(self, task: TaskRecord) -> None:
        """It stands outside from here on."""
        self.outside.add(task.name)
        self.counts[task.role.name][task.state] -= 1

    def all_in(self) -> None:
        """A session begins: nobody stands outside."""
        for name in self.outside:
            task = self.tasks[name]
            self.counts[task.role.name][task.state] += 1
        self.outside.clear()
        self.grown = False

    def ready_in_order(self, name: str) -> int:
        """How many of a role's first tasks are ready."""
        return self.first_not(name, _READY)

    def on_their_way(self, roles: List[str]) -> bool:
        """Whether an elastic role's container is there whose task is not ready yet."""
        on_way = (S.ALLOCATED, S.LAUNCHED, S.REGISTERED)
        return any(self.job.role(n).is_elastic and self.count(on_way, (n,)) for n in roles)

    # ------------------------------------------------------------------ order

    def move_up(self) -> None:
        """Before a session begins: the living are the first of their role."""
        for name in elastic_roles(self.job):
            tasks = [task for task in self.by_role[name] if task.name not in self.done]
            rank = {Hold.LIVE: 0, Hold.LAUNCHED: 1}
            keyed = [
                (rank.get(record.hold, 2) if record else 2, task.index, record and record.id)
                for task in tasks
                for record in (self.container_of(task),)
            ]
            for task, (_, _, container) in zip(tasks, sorted(keyed, key=lambda item: item[:2])):
                if container != task.container:
                    self.bind(task, container)

    def bind(self, task: TaskRecord, container: object) -> None:
        """This container is that task's now; its executor was not told otherwise."""
        task.container = container if isinstance(container, str) else None
        record = self.container_of(task)
        if record is not None:
            record.task = task.name
            self.waits.cancel("registration", task.name)
            if record.hold is Hold.LAUNCHED:
                self.watch_registration(task)

    def lowest(self, task: TaskRecord) -> TaskRecord:
        """The first task of the role that is not prepared, with this one's container."""
        if not task.role.is_elastic:
            return task
        first = self.by_role[task.role.name][self.first_not(task.role.name, _PREPARED)]
        if first is task:
            return task
        mine, other = task.container, first.container
        before = first.state
        if before in (S.REQUESTED, S.PENDING):
            self.move(task, S.PENDING, f"its container is {first.name}'s")
            task.container = None
            self.bind(first, mine)
            self.move(first, S.PENDING)
            self.move(first, S.LAUNCHED, quiet=True)
            if before is S.REQUESTED:
                self.move(task, S.REQUESTED)
        else:
            self.bind(first, mine)
            self.bind(task, other)
        return first

    def watch_registration(self, task: TaskRecord) -> None:
        """An executor must call in time, which goes on when it becomes another task."""
        limit = self.job.timeouts.registration_s
        record = self.container_of(task)
        until = self.now + limit
        if record is not None:
            until = record.call_by = until if record.call_by is None else record.call_by
        self.waits.set(
            Wait(
                ("registration", task.name),
                until,
                f"the executor of {task.name} on {self.node_of(task)} to call the master",
                f"tony.container.registration.timeout={limit:g}s",
            )
        )

    # ------------------------------------------------------------------ what is asked for

    def want_more(self, name: str) -> bool:
        """Ask for what an elastic role lacks: its minimum first, then all; whether it changed."""
        role = self.job.role(name)
        requested = self.states[name][S.REQUESTED]
        if not self.states[name][S.PENDING] or ("allocation-retry",) in self.waits:
            return False  # the whole gang is asked for together
        if self.is_short(name) and name not in self.started:
            number = role.least - self.held(name) - requested
        elif ("regrow", name) in self.waits or self.ending_soon():
            number = 0
        else:
            number = role.instances
        lacking = [t for t in self.by_role[name] if t.state is S.PENDING and not t.container]
        chosen = lacking[: max(0, number)]
        for task in chosen:
            self.move(task, S.REQUESTED)
        return bool(chosen)

    def ending_soon(self) -> bool:
        """Whether a task of this session has succeeded: the job does not grow any more."""
        return self.chief_done or any(
            self.counts[name][S.SUCCEEDED] and name not in self.dependents
            for name in self.tracked_roles()
        )

    def lost_more(self, name: str) -> None:
        """A container of an elastic role went away: the next may be asked for, now or soon."""
        if self.now - self.lost_at.get(name, 0.0) > HEALTHY_S:
            self.losses[name] = 0
        self.lost_at[name] = self.now
        count = self.losses[name] = self.losses.get(name, 0) + 1
        pause = 0.0 if count == 1 else min(REGROW_CAP_S, REGROW_FIRST_S * 2.0 ** (count - 2))
        reason = f"the time to ask for more {name}"
        self.waits.set(Wait(("regrow", name), self.now + pause, reason))

    def lost_outside(self, task: TaskRecord) -> None:
        """A container outside the round went away: nobody needed it."""
        task.forget_end()
        task.forget_address()
        task.container = None
        self.move(task, S.PENDING)
        self.lost_more(task.role.name)

    def regrow(self, name: str) -> None:
        """Its pause is over."""
        if name in self.released and self.want_more(name):
            self.ask()

    def newcomers(self) -> List[TaskRecord]:
        """Tasks outside the round whose executors have called."""
        out = []
        for name in self.outside:
            record = self.container_of(self.tasks[name])
            if record is not None and record.hold is Hold.LIVE:
                out.append(self.tasks[name])
        return out

    def is_coming(self, task: TaskRecord) -> bool:
        """Whether its executor has yet to call."""
        record = self.container_of(task)
        called = record is not None and record.hold is Hold.LIVE
        return task.state in (S.REQUESTED, S.LAUNCHED) and not called

    def came(self) -> None:
        """One more waits outside: the round that takes it in follows soon."""
        if self.phase is not Phase.ACTIVE or self.ending_soon():
            return
        start = self.since + self.job.timeouts.elastic_interval_s
        coming = any(self.is_coming(self.tasks[name]) for name in self.outside)
        if ("growth",) not in self.waits:
            self.growing_since = self.now
        until = max(self.now + (self.pause_s if coming else 0.0), start)
        until = min(until, max(self.growing_since, start) + MOST_PAUSES * self.pause_s)
        self.waits.set(Wait(("growth",), until, "more tasks to come before a new round"))

    def stop_growing(self) -> None:
        """The job comes to its end: what waits outside goes back."""
        if not self.outside or self.grown:
            return
        self.grown = True
        self.waits.cancel_kind("growth")
        self.waits.cancel_kind("regrow")
        held = False
        for name in sorted(self.outside):
            task = self.tasks[name]
            record = self.container_of(task)
            if record is not None:
                held = True
                self.stop_container(record, 0.0, "the job comes to its end")
            if task.state is not S.PENDING:
                self.waits.cancel("registration", name)
                self.waits.cancel("ready", name)
                self.move(task, S.PENDING)
            task.container = None
        self.ask()
        if held:
            text = "a task has succeeded: nothing grows any more, what waits goes back"
            self.tell("elastic", text, Weight.DECISION)
