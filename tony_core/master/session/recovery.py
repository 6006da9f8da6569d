"""After a failure: settle, decide, clear the old session away, begin the next; and the end.

A warm restart keeps healthy containers and executors. The next session begins only when
nothing of the old programs is left: every executor has said so (*clean*), or its container
has ended. The end of the job is the same thing for good.
"""

from __future__ import annotations

from typing import Tuple

from tony_core.master.session.budgets import Fault
from tony_core.master.session.commands import EndSession, Finish, StopContainer, StopTask, Weight
from tony_core.master.session.events import KillAsked, TaskStopped
from tony_core.master.session.group_timeouts import Groups
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    Failure,
    Hold,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.state import STOP_ALLOWANCE_S, Phase
from tony_core.master.session.verdict import (
    HOPELESS,
    NODE_CAUSES,
    as_fields,
    diagnostics,
    fault_of,
    quick,
    root_cause,
)
from tony_core.master.session.waits import Wait
from tony_core.schedulers.port import AppState

S = TaskState
RESTART_GRACE_S = 1.0


class Clearing(Groups):
    """The part of the machine that restarts and ends."""

    # ------------------------------------------------------------------ a session begins

    def start_session(self, number: int) -> None:
        """One gang over one cluster spec."""
        self.session = number
        self.phase = Phase.ACTIVE
        self.failures.clear()
        self.started.clear()
        self.untracked.clear()
        self.all_in()
        self.move_up()
        self.allocation_tries = 0
        chief = self.job.chief
        if chief is None or f"{chief[0]}:{chief[1]}" not in self.done:
            self.result = ""  # an earlier session's word is not this one's
        for kind in ("group", "chief-grace", "gather", "growth"):
            self.waits.cancel_kind(kind)
        self.waits.cancel("start")
        for task in self.tasks.values():
            if task.name in self.done or self.stays(task.name):
                continue
            self.waits.cancel("start", task.name)
            self.begins_anew(task)
            task.session = number
            if not self.regrouping:
                task.progress = task.step = None
            if task.state is not S.PENDING:
                self.move(task, S.PENDING)
            self.released.pop(task.role.name, None)
        self.regrouping = False
        self.journal()
        self.tell("session-started", f"session {number} begins", Weight.DECISION)
        self.release_roles()
        if self.done:
            self.after_end()  # the last that was waited for may have succeeded meanwhile

    def begins_anew(self, task: TaskRecord) -> None:
        """Nothing of an earlier session counts for it; a sidecar's tries are the whole job's."""
        self.waits.cancel("again", task.name)
        self.returning.discard(task.name)
        task.forget_end()
        task.forget_address()
        task.new_ports = False
        if not task.is_sidecar:
            task.restarts = 0
            task.last_quick = None

    def stays(self, name: str) -> bool:
        """A sidecar that goes on over a warm restart."""
        task = self.tasks[name]
        if not task.is_sidecar or self.is_fresh:
            return False
        return self.session > 0 and task.role.name in self.released

    # ------------------------------------------------------------------ a session fails

    def fail(self, failure: Failure) -> None:
        """Note a failure; the first one starts the settling."""
        self.failures.append(failure)
        if self.phase is Phase.ACTIVE:
            self.phase = Phase.SETTLING
            reason = "the cause to become clear"
            self.waits.set(Wait(("settle",), self.now + self.settle_s, reason))
            for kind in ("allocation", "allocation-retry"):
                self.waits.cancel_kind(kind)
        self.settle_sooner()
        if len(self.failures) == 1 and self.settle_s >= 1.0 and not self.settled():
            text = f"session {self.session} fails; its cause is known within {self.settle_s:g} s"
            self.tell("session-failed", text, Weight.WARNING)

    def settled(self) -> bool:
        """Whether the settling is over as soon as it began."""
        wait = self.waits.get("settle")
        return wait is None or wait.until <= self.now

    def decide(self) -> None:
        """The session has settled: name the cause, then try again or end."""
        cause = root_cause(self.failures)
        fault = fault_of(cause)
        if self.may_shrink(cause):
            self.shrink(cause)
            return
        self.root = as_fields(cause)
        ended = (S.FAILED, S.LOST, S.KILLED)
        others = [
            task.name
            for task in self.tasks.values()
            if task.state in ended and task.name != cause.task and not task.is_sidecar
        ]
        shown = others[:20] + ([f"{len(others) - 20} more"] if len(others) > 20 else [])
        end = ""
        if fault is Fault.USER and self.budgets.same_again(quick(cause)):
            end = (
                "not tried again: the same role failed with the same code and the same last"
                " line within 30 s of its start, twice running"
            )
        elif cause.container_cause in HOPELESS:
            end = "not tried again: no node would be able to bring its files"
        elif not self.budgets.charge(fault):
            end = self.budget_words(fault)
        text = diagnostics(cause, shown, end)
        weight = Weight.ERROR if end else Weight.DECISION
        self.tell("root-cause", text, weight, self.tasks.get(cause.task), **self.root)
        if end:
            self.begin_end(AppState.FAILED, text, RESTART_GRACE_S)
        else:
            self.restart(fault)

    def budget_words(self, fault: Fault) -> str:
        """Why there is no next try."""
        if fault is Fault.USER:
            limit = self.budgets.user_limit
            return f"no retries are left: tony.am.retry-count={limit} (the program's failures)"
        limit = self.budgets.system_limit
        return f"no retries are left: tony.task.max-infrastructure-failures={limit}"

    def restart(self, fault: Fault) -> None:
        """Take the old session down, keeping what is healthy."""
        left = self.budgets.user_left if fault is Fault.USER else self.budgets.system_left
        self.tell(
            "restarting",
            f"session {self.session + 1} follows; {left} more for the {fault.value}'s failures",
            Weight.DECISION,
            user_left=self.budgets.user_left,
            system_left=self.budgets.system_left,
        )
        self.clear_away(f"session {self.session} failed", RESTART_GRACE_S, self.is_fresh)

    def may_shrink(self, cause: Failure) -> bool:
        """Whether the job goes on with fewer tasks of its elastic roles."""
        raise NotImplementedError

    def shrink(self, cause: Failure) -> None:
        """Go on with those that are left."""
        raise NotImplementedError

    def clear_away(self, reason: str, grace_s: float, fresh: bool) -> None:
        """End the session's programs; the next session follows when nothing of them is left."""
        self.phase = Phase.CLEARING
        self.waits.cancel_kind("healthy")
        self.emit(EndSession(self.session))
        self.withdraw()
        for record in list(self.open.values()):
            task = self.tasks[record.task] if record.task else None
            if task is None or task.container != record.id:
                self.stop_container(record, 0.0, "not wanted any more")
            elif task.state is S.FAILED and task.cause in NODE_CAUSES:
                self.stop_container(record, 0.0, f"its node is avoided ({task.cause})")
            elif fresh:
                self.stop_container(record, grace_s, "a fresh session")
            elif task.is_sidecar or task.name in self.done:
                continue
            elif record.hold is Hold.LIVE:
                record.hold = Hold.CLEARING
                self.emit(StopTask(record.id, task.session, grace_s, reason))
                self.watch_clearing(record.id, grace_s)
            elif record.hold is Hold.CLEARING:
                self.watch_clearing(record.id, grace_s)
        self.waits.cancel("start")
        for task in self.tasks.values():
            if fresh or not task.is_sidecar:
                for kind in ("ready", "start", "again"):
                    self.waits.cancel(kind, task.name)
            if fresh and task.is_sidecar and task.state is S.REQUESTED:
                self.move(task, S.PENDING, "it begins with the session")
        self.check_cleared()

    def on_stopped(self, event: TaskStopped) -> None:
        """An executor ended a session's program."""
        record = self.open.get(event.container_id)
        if record is None:
            return
        if record.hold is Hold.STOPPING and self.phase is Phase.ENDING and event.clean:
            self.farewell(record)
            return
        task = self.task_of(record.id)
        if record.hold is Hold.LIVE and not event.clean and task is not None:
            self.not_clean(event, record)
            if task.state in HOLDS_CONTAINER:
                self.lose_silently(task, "not-clean", "something of its last program is left")
        if record.hold is not Hold.CLEARING:
            return
        if task is not None and event.session < task.session:
            return  # a late word on an earlier program: this one may still run
        self.waits.cancel("clear", record.id)
        if task is not None and task.state not in TERMINAL and task.session == event.session:
            self.move(task, S.KILLED, "ended by the master")
        if event.clean:
            record.hold = Hold.LIVE
        else:
            self.not_clean(event, record)
        if self.phase is Phase.CLEARING:
            self.check_cleared()

    def not_clean(self, event: TaskStopped, record: ContainerRecord) -> None:
        """A program could not be ended: nothing else runs beside what is left of it."""
        self.tell(
            "not-clean",
            f"something of session {event.session} is left in {record.id} on"
            f" {record.container.node}: the container is replaced",
            Weight.WARNING,
        )
        self.avoid(record.container.node)
        self.stop_container(record, 0.0, "its program could not be ended")

    def farewell(self, record: ContainerRecord) -> None:
        """An executor's last word at the job's end: nothing is left there but itself.

        A scheduler's word that the container has ended takes a second on a cluster, which nobody
        needs to wait for where the scheduler ends what is left anyway. Not when the job is killed:
        it may be the scheduler that does so, this very moment, and what a master still writes
        then is left for ever.
        """
        if not self.ends_rest or self.outcome is AppState.KILLED:
            return
        task = self.task_of(record.id)
        if task is not None and task.state in HOLDS_CONTAINER:
            self.move(task, S.KILLED, "the job ended")
        del self.open[record.id]
        record.hold = Hold.ENDED
        self.waits.cancel("stop", record.id)
        self.check_ended()

    def check_cleared(self) -> None:
        """Begin the next session when nothing of the old one is left."""
        if self.still(Hold.CLEARING, Hold.STOPPING):
            return
        pause = 0.0 if self.regrouping else self.budgets.backoff(self.jitter())
        self.journal()
        if pause > 0:
            self.phase = Phase.BACKOFF
            self.tell("backoff", f"next session in {pause:.1f} s")
            self.waits.set(Wait(("backoff",), self.now + pause, "the next session's time"))
        else:
            self.start_session(self.session + 1)

    # ------------------------------------------------------------------ the job ends

    def on_kill(self, event: KillAsked) -> None:
        """Somebody wants the end; asked twice, at once."""
        if self.phase is Phase.ENDED:
            return
        if self.phase is Phase.ENDING:
            if event.by_user:
                for record in self.open.values():
                    self.emit(StopContainer(record.id, 0.0, event.reason))
            return
        self.begin_end(AppState.KILLED, event.reason, self.job.timeouts.kill_grace_s)

    def begin_end(self, state: AppState, diagnostics: str, grace_s: float) -> None:
        """End everything, then finish."""
        self.phase = Phase.ENDING
        self.outcome = state
        self.diagnostics = diagnostics
        if state is not AppState.FAILED:
            self.root = {}  # an earlier session's failure did not end the job
        self.waiting = ""
        self.journal()
        weight = Weight.DECISION if state is AppState.SUCCEEDED else Weight.ERROR
        first = diagnostics.split("\n", 1)[0]  # the story has told the rest
        task = self.tasks.get(str(self.root.get("task")))
        first = task.briefly(first) if task is not None else first
        self.tell("ending", f"{state.value}: {first}", weight, state=state.value)
        self.withdraw()
        for kind in _CANCELLED_AT_END:
            self.waits.cancel_kind(kind)
        for name in sorted(self.returning):
            self.move(self.tasks[name], S.KILLED, "the job ended")
        for record in list(self.open.values()):
            wait = self.waits.get("stop", record.id)
            if wait is not None and wait.until > self.now + grace_s + STOP_ALLOWANCE_S:
                record.hold = Hold.LIVE  # told once more: it has no longer than the others
            self.stop_container(record, grace_s, f"the job ends: {state.value.lower()}")
        if self.session >= 0:
            self.emit(EndSession(self.session))
        limit = grace_s + STOP_ALLOWANCE_S + 10.0
        self.waits.set(Wait(("end",), self.now + limit, "every container to end"))
        self.check_ended()

    def check_ended(self, given_up: bool = False) -> None:
        """Finish once nothing is held."""
        if self.open and not given_up:
            return
        for task in self.tasks.values():
            if task.state not in TERMINAL and task.state is not S.PENDING:
                self.move(task, S.KILLED, "the job ended")
        self.phase = Phase.ENDED
        self.waits.cancel_kind("end")
        self.waits.cancel_kind("stop")
        if self.open:
            names = ", ".join(list(self.open)[:10])
            self.tell("left-behind", f"did not end in time: {names}", Weight.ERROR)
        assert self.outcome is not None
        self.emit(Finish(self.outcome, self.diagnostics, dict(self.root)))

    def given_up(self, container_id: str) -> None:
        """A container that was stopped did not end in its time."""
        record = self.open.pop(container_id, None)
        if record is None:
            return
        record.hold = Hold.ENDED
        self.tell("not-ended", f"container {container_id} did not end in time", Weight.WARNING)
        task = self.tasks[record.task] if record.task else None
        if task is not None and task.container == container_id and task.state in HOLDS_CONTAINER:
            self.move(task, S.LOST, "its container did not end in time")
        if self.phase is Phase.CLEARING:
            self.check_cleared()
        elif self.phase is Phase.ENDING:
            self.check_ended()
        self.container_gone(record)


_CANCELLED_AT_END: Tuple[str, ...] = (
    "allocation",
    "allocation-retry",
    "application",
    "adoption",
    "again",
    "avoided",
    "backoff",
    "chief-grace",
    "clear",
    "gather",
    "group",
    "growth",
    "healthy",
    "ready",
    "registration",
    "regrow",
    "settle",
    "start",
)
