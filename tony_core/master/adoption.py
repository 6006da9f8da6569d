"""A later master takes over what an earlier one left: the training is not disturbed.

The journal says which session it was, whose barriers were passed, what is done and what
budgets are left. Everything else comes from the scheduler's list of containers and from
the executors themselves, whose word wins. Executors have a while to call (or to be
called); then what is missing is judged: a task that was running and did not come back is
lost, by the system's fault; a gang that had not started yet is completed.
"""

from __future__ import annotations

from typing import Any, List, Mapping

from tony_core.master.board import Phase
from tony_core.master.commands import Weight
from tony_core.master.elastic import elastic_roles
from tony_core.master.events import ContainersInherited, ExecutorRegistered
from tony_core.master.lifecycle import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    Failure,
    Hold,
    Run,
    TaskRecord,
    TaskState,
)
from tony_core.master.rounds import Rounds
from tony_core.master.verdict import how_it_ended
from tony_core.master.waits import Wait
from tony_core.schedulers.port import AppState

S = TaskState
ADOPTION_S = 20.0


class Adoption(Rounds):
    """The part of the machine that a later master begins with."""

    leaving = False  # nothing is taken over: what is left ends, and then the job goes on

    def on_inherited(self, event: ContainersInherited) -> None:
        """An earlier master left these."""
        journal = event.journal
        for container in event.containers:
            record = ContainerRecord(container, Hold.LAUNCHED, inherited=True)
            self.containers[container.id] = self.open[container.id] = record
        self.began = event.at - float(_number(journal.get("elapsed_s")))
        if not journal or int(_number(journal.get("session"))) < 0:
            self.begin_anew()
            return
        self.restore(journal)
        self.watch_application()
        text = f"a new master takes over {len(event.containers)} containers"
        self.tell("takeover", f"{text} of session {self.session}", Weight.DECISION)
        outcome = journal.get("outcome")
        if outcome:
            self.begin_end(AppState(str(outcome)), str(journal.get("diagnostics", "")), 0.0)
            return
        if not self.released:
            # Whatever runs there began after the last word that was written: it could not be
            # told from the programs that this session starts now.
            self.end_what_is_left("its session was only beginning")
            return
        self.phase = Phase.ADOPTING
        reason = "the executors of the earlier master to call"
        self.waits.set(Wait(("adoption",), self.now + ADOPTION_S, reason))
        self.check_adopted()

    def begin_anew(self) -> None:
        """Nothing can be taken over: what is there is ended, and only then the job begins.

        The programs of both would write to the same places otherwise.
        """
        if self.open:
            text = f"{len(self.open)} containers of an earlier master belong to no session"
            self.tell("takeover", f"{text}: they are ended first", Weight.DECISION)
        self.end_what_is_left("it belongs to no session")

    def end_what_is_left(self, reason: str) -> None:
        """Go on when nothing of the earlier master's is there any more."""
        self.leaving = True
        self.phase = Phase.ADOPTING
        for record in list(self.open.values()):
            self.stop_container(record, 0.0, reason)
        self.check_adopted()

    def begin(self, at: float) -> None:
        """Start from nothing."""
        raise NotImplementedError

    def watch_application(self) -> None:
        """Arm the application's own timeout."""
        raise NotImplementedError

    def restore(self, journal: Mapping[str, Any]) -> None:
        """Take the journal's word."""
        self.session = int(journal["session"])
        self.budgets.restore(journal.get("budgets", {}))
        self.parameters = journal.get("parameters")
        self.chief_done = bool(journal.get("chief_done"))
        self.result = str(journal.get("result") or "")
        self.root = dict(journal.get("root", {}))
        roles = {role.name for role in self.job.roles}
        self.released = {
            str(name): int(wave)
            for name, wave in dict(journal.get("released", {})).items()
            if name in roles
        }
        self.started = {name for name in journal.get("started", ()) if name in roles}
        for task in self.tasks.values():
            task.session = self.session
        for name in journal.get("outside", ()):
            if name in self.tasks:
                self.leave(self.tasks[name])
        self.regrouping = bool(journal.get("regrouping"))
        self.since = self.now
        for name in journal.get("done", ()):
            task = self.tasks[name]
            self.move(task, S.SUCCEEDED, "before the takeover")
            self.done.add(name)

    def adopt(self, event: ExecutorRegistered, record: ContainerRecord) -> None:
        """An executor of the earlier master called."""
        record.hold = Hold.LIVE
        task = self.tasks.get(event.task)
        fits = (
            task is not None
            and task.state is S.PENDING
            and task.role.name in self.released
            and (event.session == self.session or task.is_sidecar)
        )
        if task is not None and fits and event.phase in ("ready", "running", "ended"):
            record.task = task.name
            task.container = record.id
            task.session = event.session
            task.host = event.host
            task.ports = dict(event.ports)
            container = record.container
            task.runs.append(Run(task.session, container.id, container.node, container.log_url))
            task.note_run(offsets=dict(event.offsets))
            # An ended program's result follows at once; until then it counts as running.
            self.move(task, S.READY if event.phase == "ready" else S.RUNNING, "taken over")
            task.started = event.at - event.ran_s if event.phase != "ready" else None
            if event.phase != "ready":
                self.started.add(task.role.name)
        elif event.task and event.phase != "idle":
            self.stop_container(record, 0.0, "its task is done, or of another session")
        self.check_adopted()

    def check_adopted(self, late: bool = False) -> None:
        """Go on once every inherited executor has called, or its time is over."""
        if self.phase is not Phase.ADOPTING:
            return
        if self.leaving:
            if self.open:
                return
            if self.session < 0:
                self.begin(self.now)
                return
        if not late and any(record.hold is Hold.LAUNCHED for record in self.open.values()):
            return
        self.waits.cancel("adoption")
        self.phase = Phase.ACTIVE
        for record in list(self.open.values()):
            if record.hold is Hold.LAUNCHED:
                self.stop_container(record, 0.0, "its executor did not call the new master")
        ended = [t for t in self.tasks.values() if t.state in TERMINAL and t.name not in self.done]
        spare = [r for r in self.open.values() if r.hold is Hold.LIVE and r.task is None]
        if self.regrouping or self.has_gaps():
            self.go_on_regrouping(spare)
            return
        failures = self.place_missing(spare)
        for record in spare:
            if record.task is None:
                self.stop_container(record, 0.0, "not wanted any more")
        self.journal()
        self.release_roles()
        self.ask()
        self.watch_allocation()
        if self.chief_done:
            self.chief_done = False  # its clocks died with the earlier master
            self.chief_ended()
        for failure in failures:
            self.fail(failure)
        # The bad ones first: a good one may be the last of the tracked tasks.
        for task in sorted(ended, key=lambda task: task.state is S.SUCCEEDED):
            self.judge(task)
        if not failures and self.is_active():
            self.ask_for_the_rest()
            if self.newcomers():
                self.came()
            for wave in sorted(set(self.released.values())):
                self.check_barrier(wave)
            self.start_the_ready()
            self.after_end()

    def has_gaps(self) -> bool:
        """Whether a task that is ready has one before it that nobody spoke for."""
        for name in elastic_roles(self.job):
            if name in self.released and name not in self.started:
                ready = [task.state is S.READY for task in self.by_role[name]]
                if True in ready[self.ready_in_order(name) :]:
                    return True
        return False

    def go_on_regrouping(self, spare: List[ContainerRecord]) -> None:
        """The earlier master was about to begin a round, or this one must."""
        for name in elastic_roles(self.job):
            for task in self.by_role[name]:
                if task.state is S.PENDING:
                    self.take_spare(task, spare)
        for task in self.tasks.values():
            if task.is_sidecar and task.state is S.PENDING and task.role.name in self.released:
                self.place(task)  # sidecars go on over a round
        self.begin_round("the round that an earlier master began", 0.0, Weight.DECISION)

    def take_spare(self, task: TaskRecord, spare: List[ContainerRecord]) -> None:
        """Bind an idle executor to a task that is in no round yet."""
        for record in spare:
            if record.task is None and record.container.role == task.role.name:
                record.task = task.name
                task.container = record.id
                self.move(task, S.LAUNCHED, quiet=True)
                return

    def is_active(self) -> bool:
        """Whether the session still goes on."""
        return self.phase is Phase.ACTIVE

    def judge(self, task: TaskRecord) -> None:
        """What ended while the executors were still calling is judged now."""
        if not self.is_active():
            if task.state in (S.FAILED, S.LOST) and not task.is_sidecar:
                self.fail(self.failure_of(task))
        elif task.state is S.SUCCEEDED:
            self.task_succeeded(task)
        elif task.state in (S.FAILED, S.LOST):
            self.task_failed(task, self.failure_of(task))

    def place_missing(self, spare: List[ContainerRecord]) -> List[Failure]:
        """Judge the tasks that no executor spoke for."""
        failures: List[Failure] = []
        for name in list(self.released):
            for task in self.by_role[name]:
                if task.state in TERMINAL or task.state in HOLDS_CONTAINER:
                    continue
                if task.name in self.outside:
                    self.take_spare(task, spare)
                    continue
                if name in self.started and not task.is_sidecar and not self.chief_done:
                    task.cause = "not-taken-over"
                    task.message = "its executor did not come back after the master's end"
                    failures.append(self.failure_of(task))
                    self.move(task, S.LOST, how_it_ended(failures[-1]))
                    continue
                record = next(
                    (r for r in spare if r.task is None and r.container.role in ("", name)), None
                )
                if record is not None:
                    record.task = task.name
                    task.container = record.id
                elif self.job.role(name).is_elastic:
                    task.container = None
                    continue  # only so many are asked for as the role lacks
                self.place(task)
            if self.job.role(name).is_elastic:
                self.want_more(name)
        return failures

    def start_the_ready(self) -> None:
        """Tasks whose start was lost with the earlier master."""
        for task in self.tasks.values():
            if task.state is S.READY and self.may_start(task):
                self.start([task])


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
