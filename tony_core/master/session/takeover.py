"""A later master takes over what an earlier one left: the training is not disturbed.

The journal says which session it was, whose barriers were passed, what is done and what
budgets are left. Everything else comes from the scheduler's list of containers and from
the executors themselves, whose word wins. Executors have a while to call (or to be
called); then what is missing is judged: a task that was running and did not come back is
lost, by the system's fault; a gang that had not started yet is completed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Set, Tuple

from tony_core.job.spec import Mode
from tony_core.master.session.commands import Weight
from tony_core.master.session.elastic import elastic_roles
from tony_core.master.session.events import ContainersInherited, ExecutorRegistered
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    Failure,
    Hold,
    Run,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.rounds import Rounds
from tony_core.master.session.state import Phase
from tony_core.master.session.verdict import how_it_ended
from tony_core.master.session.waits import Wait
from tony_core.schedulers.port import AppState

S = TaskState
Spare = Dict[str, Deque[ContainerRecord]]  # by role: idle executors that are nobody's
ADOPTION_S = 20.0
_BETWEEN = ("idle", "ended")  # two tries: idle is also how an executor that prepares is told


class Adoption(Rounds):
    """The part of the machine that a later master begins with."""

    leaving = False  # nothing is taken over: what is left ends, and then the job goes on
    judged = False  # who did not call is being ended
    strangers: Set[str]  # containers in which programs may run that are to begin once more
    heard: Set[str]  # inherited containers whose executors have called

    def on_inherited(self, event: ContainersInherited) -> None:
        """An earlier master left these."""
        self.strangers, self.heard = set(), set()
        journal = event.journal
        for container in event.containers:
            record = ContainerRecord(container, Hold.LAUNCHED, inherited=True)
            self.containers[container.id] = self.open[container.id] = record
        self.began = event.at - float(_number(journal.get("elapsed_s")))
        outcome = journal.get("outcome")
        if not outcome and (not journal or int(_number(journal.get("session"))) < 0):
            self.begin_anew()
            return
        self.restore(journal)
        self.watch_application()
        text = f"a new master takes over {len(event.containers)} containers"
        self.tell("takeover", f"{text} of session {self.session}", Weight.DECISION)
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
        self.untracked = {name for name in journal.get("untracked", ()) if name in roles}
        for task in self.tasks.values():
            task.session = self.session
        for name in journal.get("outside", ()):
            if name in self.tasks:
                self.leave(self.tasks[name])
        self.regrouping = bool(journal.get("regrouping"))
        self.since = self.now
        self.restore_alone(journal)
        for name in journal.get("done", ()):
            if name not in self.tasks:
                continue
            task = self.tasks[name]
            self.move(task, S.SUCCEEDED, "before the takeover")
            self.done.add(name)

    def adopt(self, event: ExecutorRegistered, record: ContainerRecord) -> None:
        """An executor of the earlier master called."""
        self.heard.add(record.id)
        record.hold = Hold.LIVE
        task = self.tasks.get(event.task)
        fits = (
            task is not None
            and task.state is S.PENDING
            and task.role.name in self.released
            and task.container is None
            and (event.session == self.session or task.is_sidecar)
        )
        same = task is not None and event.restart == task.restarts
        if task is not None and fits and same and event.phase in ("ready", "running", "ended"):
            self.knows(task, event, record)
            container = record.container
            task.runs.append(Run(task.session, container.id, container.node, container.log_url))
            task.note_run(offsets=dict(event.offsets))
            # An ended program's result follows at once; until then it counts as running.
            self.move(task, S.READY if event.phase == "ready" else S.RUNNING, "taken over")
            task.started = event.at - event.ran_s if event.phase != "ready" else None
            # It may also have ended before it was ever started: that passes no barrier.
            ran = event.phase == "running" or event.ran_s > 0.0
            if event.phase != "ready" and ran and self.job.mode is not Mode.FCFS:
                self.started.add(task.role.name)
        elif task is not None and fits and task.name in self.returning and event.phase in _BETWEEN:
            self.knows(task, event, record)  # its next try goes there
        elif event.task and event.phase != "idle":
            if event.task not in self.done:
                self.strangers.add(record.id)
            self.stop_container(record, 0.0, "its task is done, or of another session")
        self.check_adopted()

    def knows(self, task: TaskRecord, event: ExecutorRegistered, record: ContainerRecord) -> None:
        """The executor has this task."""
        record.task = task.name
        task.container = record.id
        task.session = event.session
        task.host = event.host
        task.ports = dict(event.ports)
        task.gpus = event.gpus

    def check_adopted(self, late: bool = False) -> None:
        """Go on once every inherited executor has called, or its time is over."""
        if self.phase is not Phase.ADOPTING:
            return
        if self.waits_for_ends():
            return
        if self.leaving and self.session < 0:
            self.begin(self.now)
            return
        late = late or ("adoption",) not in self.waits
        if not late and self.still(Hold.LAUNCHED):
            return
        if not self.judged:
            self.judged = True
            self.waits.cancel("adoption")
            for record in list(self.open.values()):
                if record.hold is Hold.LAUNCHED:
                    self.stop_container(record, 0.0, "its executor did not call the new master")
            self.strangers.update(x.id for x in self.open.values() if self.may_hide(x))
            if self.waits_for_ends():
                return
        self.phase = Phase.ACTIVE
        ended = [t for t in self.tasks.values() if t.state in TERMINAL and t.name not in self.done]
        spare: Spare = {}
        for record in self.open.values():
            if record.hold is Hold.LIVE and record.task is None:
                spare.setdefault(record.container.role, deque()).append(record)
        if self.regrouping or self.has_gaps():
            self.go_on_regrouping(spare)
            return
        lost = self.place_missing(spare)
        for records in spare.values():
            for record in records:
                self.stop_container(record, 0.0, "not wanted any more")
        self.journal()
        self.release_roles()
        self.ask()
        self.watch_allocation()
        if self.chief_done:
            self.chief_done = False  # its clocks died with the earlier master
            self.chief_ended()
        for task, failure in sorted(lost, key=lambda item: item[0].role.restarts_alone):
            if not self.comes_back(task, failure):
                self.fail(failure)
        # The bad ones first, and the worst of them: another may be the last of the tracked tasks.
        for task in sorted(ended, key=lambda t: (t.state is S.SUCCEEDED, not self.is_fatal(t))):
            self.judge(task)
        if self.is_active():
            self.ask_for_the_rest()
            if self.newcomers():
                self.came()
            for wave in sorted(set(self.released.values())):
                self.check_barrier(wave)
            self.start_the_ready()
            self.after_end()
        else:
            self.start_ready_sidecars()

    def waits_for_ends(self) -> bool:
        """Whether something of the earlier master's is there that this one would run beside."""
        if self.leaving:
            return bool(self.open)
        while self.strangers:
            one = next(iter(self.strangers))
            if one in self.open:
                return True
            self.strangers.discard(one)
        return False

    def may_hide(self, record: ContainerRecord) -> bool:
        """Whether a program may still run there that would be started elsewhere now.

        Nobody has told of it, and it would not be judged as lost: its role starts one by one, or
        its start was not written down any more.
        """
        if not record.inherited or record.hold is not Hold.STOPPING or record.id in self.heard:
            return False
        name = record.container.role
        return any(
            role in self.released and (role not in self.started or self.by_role[role][0].is_sidecar)
            for role in ([name] if name in self.by_role else self.by_role)
        )

    def has_gaps(self) -> bool:
        """Whether a task that is ready has one before it that nobody spoke for."""
        for name in elastic_roles(self.job):
            if name in self.released and name not in self.started:
                ready = [task.state is S.READY for task in self.by_role[name]]
                if True in ready[self.ready_in_order(name) :]:
                    return True
        return False

    def go_on_regrouping(self, spare: Spare) -> None:
        """The earlier master was about to begin a round, or this one must."""
        for name in elastic_roles(self.job):
            for task in self.by_role[name]:
                if task.state is S.PENDING:
                    self.take_spare(task, spare)
        for task in self.tasks.values():
            if task.is_sidecar and task.state is S.PENDING and task.role.name in self.released:
                self.place(task)  # sidecars go on over a round
        self.begin_round("the round that an earlier master began", 0.0, Weight.DECISION)
        self.start_ready_sidecars()

    def take_spare(self, task: TaskRecord, spare: Spare) -> None:
        """Bind an idle executor to a task that is in no round yet."""
        if self.bind_spare(task, spare, task.role.name):
            self.move(task, S.LAUNCHED, quiet=True)

    def bind_spare(self, task: TaskRecord, spare: Spare, *roles: str) -> bool:
        """Whether there was an idle executor of one of these roles, which is the task's now."""
        records = next((spare[role] for role in roles if spare.get(role)), None)
        if records is None:
            return False
        record = records.popleft()
        record.task = task.name
        task.container = record.id
        return True

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

    def place_missing(self, spare: Spare) -> List[Tuple[TaskRecord, Failure]]:
        """Judge the tasks that no executor spoke for."""
        lost: List[Tuple[TaskRecord, Failure]] = []
        for name in list(self.released):
            for task in self.by_role[name]:
                if task.state in TERMINAL or task.state in HOLDS_CONTAINER:
                    continue
                if task.name in self.outside:
                    self.take_spare(task, spare)
                    continue
                bound = name in self.in_place and task.container is None
                if task.name in self.returning and not bound:
                    self.await_turn(task)
                    continue
                if name in self.started and not task.is_sidecar:
                    task.cause = "not-taken-over"
                    task.message = "its executor did not come back after the master's end"
                    failure = self.failure_of(task)
                    self.move(task, S.LOST, how_it_ended(failure))
                    if not self.chief_done:  # else the job has succeeded without it
                        lost.append((task, failure))
                    continue
                there = self.bind_spare(task, spare, name, "")
                if not there and self.job.role(name).is_elastic:
                    task.container = None
                    continue  # only so many are asked for as the role lacks
                self.place(task)
            if self.job.role(name).is_elastic:
                self.want_more(name)
        return lost

    def start_ready_sidecars(self) -> None:
        """The session does not go on, and they do."""
        for task in self.tasks.values():
            if task.is_sidecar and task.state is S.READY and self.goes_on(task):
                self.start([task])

    def start_the_ready(self) -> None:
        """Tasks whose start was lost with the earlier master."""
        gangs: Dict[Tuple[str, ...], List[TaskRecord]] = {}
        for task in self.tasks.values():
            if task.state is S.READY and self.may_start(task):
                alone = task.is_sidecar or self.job.mode is Mode.FCFS or task.restarts > 0
                key = ("alone", task.name) if alone else ("", str(self.released[task.role.name]))
                gangs.setdefault(key, []).append(task)
        for tasks in gangs.values():
            self.start(tasks)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
