"""A task that is started again alone: everybody else's programs go on, over the same spec.

Theory of operation
===================

Sidecars are, and the tasks of a role with ``tony.<role>.restart-scope=task``: when the program of
one fails, or its container goes away under it, it is *returning* (pending, with a wait of its own)
until its next try is placed. The session stays the same, and nobody else is told anything.

*When.* Once its barrier was passed: before that nobody runs who could go on, and the rules of
sessions hold. Not when the session fails for another cause meanwhile, nor after the chief's
success. A sidecar is no part of the session: it is tried again whatever becomes of that.

*Who pays.* The task, whoever's fault it was: ``tony.<role>.max-restarts`` in each session (of a
sidecar, in its whole job). The first try follows at once (a sidecar's within a second), the others
after the pauses of sessions.
When no try is left, or the same failure came twice running within 30 s of the start, the failure
is the session's as always; in the latter case the session is not tried again either. A sidecar's
is ignored.

*Where.* In its container, while that and its executor live: with the same ports, so that what the
others know of it stays true, and not before the executor has seen the last descendant of the old
program go. Else in another container, that is asked for alone. Where the others hold its address
(``in_place``, the framework's word) another container would make their spec untrue, and the failure
is the session's.

*Fencing.* Each program of a task has a number: the session, and how often the task was started
again in it. Executors say it with every word, and what they say of an earlier one is late. A
replacement is asked for only when the old container has ended, or is given up as every container
is that does not end.

*Takeover.* The numbers and who is returning stand in the journal before an executor is told. An
executor that still tells a next master of the end before is the one that the next try goes to.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Mapping

from tony_core.job.spec import Mode, RestartMode
from tony_core.master.session.budgets import Fault, pause, quick_of
from tony_core.master.session.commands import Weight
from tony_core.master.session.records import ContainerRecord, Failure, Hold, TaskRecord, TaskState
from tony_core.master.session.startup import Gathering
from tony_core.master.session.state import Phase
from tony_core.master.session.verdict import HOPELESS, NODE_CAUSES, PORT_TAKEN, fault_of, quick
from tony_core.master.session.waits import Wait

S = TaskState
#: A container in which nobody knows what runs, or in which it could not run again.
_LEFT: FrozenSet[str] = NODE_CAUSES | {"start-timeout"}
_SIDECARS = (Phase.ACTIVE, Phase.SETTLING, Phase.CLEARING, Phase.BACKOFF)


class Alone(Gathering):
    """The part of the machine that starts single tasks again."""

    def comes_back(self, task: TaskRecord, failure: Failure) -> bool:
        """Whether a task that has failed is started again alone; if so, it is returning now."""
        if not self.may_come_back(task):
            return False
        same = self.is_same_again(task, failure)
        stays = self.may_stay(task)
        bound = task.role.name in self.in_place
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
            self.begin_again(task, stays)
            return True
        kind, alone = ("sidecar-given-up", "") if task.is_sidecar else ("task-given-up", " alone")
        text = f"{task.name} is not tried again{alone} ({why})"
        self.tell(kind, text, Weight.WARNING, task)
        return False

    def may_come_back(self, task: TaskRecord) -> bool:
        """Whether its role, the session and the time allow it."""
        begun = task.is_sidecar or self.job.mode is Mode.FCFS or task.role.name in self.started
        return task.role.restarts_alone and begun and self.goes_on(task)

    def goes_on(self, task: TaskRecord) -> bool:
        """Whether there is still something for it to come back to."""
        if task.is_sidecar:
            between = self.phase in (Phase.CLEARING, Phase.BACKOFF)
            return self.phase in _SIDECARS and not (between and self.is_fresh)
        return self.phase is Phase.ACTIVE and not self.chief_done

    @property
    def is_fresh(self) -> bool:
        """Whether the next session keeps nothing of this one, sidecars included."""
        return self.job.master.restart_mode is RestartMode.FRESH and not self.regrouping

    def is_same_again(self, task: TaskRecord, failure: Failure) -> bool:
        """Whether the program failed as it did the last time, both times soon."""
        if task.is_sidecar or fault_of(failure) is not Fault.USER:
            return False
        before, task.last_quick = task.last_quick, quick(failure)
        if before is None or before != task.last_quick:
            return False
        self.budgets.last_quick = before  # so the session is not tried again either
        return True

    def may_stay(self, task: TaskRecord) -> bool:
        """Whether the next try may have the container of the last."""
        record = self.container_of(task)
        return record is not None and record.hold is Hold.LIVE and task.cause not in _LEFT

    # ------------------------------------------------------------------ the way back

    def begin_again(self, task: TaskRecord, stays: bool) -> None:
        """It is returning from here on."""
        record = self.container_of(task)
        if not stays:
            task.forget_address()
            if record is not None:
                self.stop_container(record, 0.0, f"{task.name} is started again elsewhere")
        task.restarts += 1
        task.new_ports = task.cause == PORT_TAKEN
        task.forget_end()
        self.move(task, S.PENDING, "to be started again alone")
        self.returning.add(task.name)
        self.journal()
        where = f" on {self.node_of(task)}" if stays else " in another container"
        text = f"{task.name} is started again alone{where}"
        tries = f"{task.restarts} of {task.role.max_restarts}"
        self.tell("task-again", f"{text} ({tries}); the others go on", Weight.DECISION, task)
        self.await_turn(task)

    def await_turn(self, task: TaskRecord) -> None:
        """Its pause, once nothing of its last program can be there any more."""
        if self.is_going(task):
            return  # the container's end goes on with it: container_gone()
        count = task.restarts - 1 + task.is_sidecar
        seconds = pause(count, self.jitter())
        self.waits.set(Wait(("again", task.name), self.now + seconds, f"{task.name}'s next try"))

    def is_going(self, task: TaskRecord) -> bool:
        """Whether a container is being ended in which its last program may still run."""
        record = self.container_of(task)
        if record is not None and record.hold is Hold.STOPPING:
            return True
        # What an earlier master left, and no executor called for.
        return self.has_unclaimed("") or self.has_unclaimed(task.role.name)

    def has_unclaimed(self, role: str) -> bool:
        """Whether a container of that role is being ended of which no task is known.

        Asked for each of thousands: the list is looked through once.
        """
        records = self.unclaimed.get(role, [])
        while records and (records[-1].hold is not Hold.STOPPING or records[-1].task is not None):
            records.pop()
        return bool(records)

    def container_gone(self, record: ContainerRecord) -> None:
        """It has ended: whose next try waited for that may have it now."""
        if record.task is not None:
            names = [record.task] if record.task in self.returning else []
        else:
            role = record.container.role
            names = [] if self.has_unclaimed(role) else sorted(self.returning)
        for name in names:
            if ("again", name) not in self.waits:
                self.await_turn(self.tasks[name])

    def place_again(self, name: str) -> None:
        """Its pause is over."""
        task = self.tasks[name]
        if name not in self.returning or not self.goes_on(task) or self.is_going(task):
            return
        if self.container_of(task) is None:
            task.forget_address()
        self.place(task)
        if task.state is S.REQUESTED:
            self.ask()

    def depends_on_container(self, task: TaskRecord) -> bool:
        """Whether its next try has lost what it needs when its container goes away now."""
        return task.name in self.returning and task.role.name in self.in_place

    # ------------------------------------------------------------------ over masters

    def alone_record(self) -> Mapping[str, Any]:
        """For the journal: which try each task is in."""
        out: Dict[str, Any] = {}
        for role in self.job.roles:
            for task in self.by_role[role.name] if role.restarts_alone else ():
                if task.restarts:
                    last = list(task.last_quick) if task.last_quick else None
                    out[task.name] = {"restarts": task.restarts, "last_quick": last}
        return out

    def restore_alone(self, journal: Mapping[str, Any]) -> None:
        """Take the journal's word."""
        for name, told in dict(journal.get("alone", {})).items():
            if name in self.tasks:
                self.tasks[name].restarts = int(told["restarts"])
                self.tasks[name].last_quick = quick_of(told["last_quick"])
        self.returning = {name for name in journal.get("returning", ()) if name in self.tasks}
