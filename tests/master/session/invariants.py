"""What must hold of a session machine at every moment, as a world outside of it sees it.

Each rule uses the world's own records (which programs run, which messages were sent and reported),
not in the machine's: a fault in the machine's records must not hide itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Set, Tuple

from tony_core.job.spec import Job, Mode
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.elastic import is_ending_soon
from tony_core.master.session.machine import SessionMachine
from tony_core.master.session.records import HOLDS_CONTAINER, TERMINAL, Phase, TaskRecord, TaskState
from tony_core.master.session.startup import may_start
from tony_core.master.session.task_restart import is_old_attempt_stopping
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES
from tony_core.protocol.messages import Ended
from tony_core.schedulers import container_pool
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.port import AppState

OPEN = frozenset(TaskState) - TERMINAL
ENDING = (Phase.ENDING, Phase.ENDED)
EVALUATORS_MAY_S = 600.0


@dataclass
class Executor:
    """One container and the executor in it, as the world sees them."""

    container: Container
    launched: bool = False
    registered: bool = False
    task: str = ""
    session: int = -1
    restart: int = 0
    phase: str = "idle"
    ran: bool = False  # its program was started, for as long as it has the same one
    stopped: int = -1  # no program of this session or an earlier one starts any more
    gone: bool = False  # the container ended (whether the machine knows or not)
    prepared: Tuple[int, int] = (-1, 0)  # which program it was last sent to prepare
    broken: bool = False  # every program fails there, as the machine knows from a report

    @property
    def gpus(self) -> Tuple[str, ...]:
        """Those of its container."""
        return (f"GPU-{self.container.id}",)


def _chief(task: TaskRecord) -> Tuple[str, int]:
    return (task.role.name, task.index)


class Rules:
    """What a world has seen, and whether that may be."""

    job: Job
    machine: SessionMachine
    now: float

    def __init__(self) -> None:
        self.executors: Dict[str, Executor] = {}
        self.wanted: Dict[str, Tuple[int, int]] = {}  # role -> (session, count)
        self.masters = 1
        self.given_up: Set[str] = set()  # containers reported as not ended in time
        self.killed = False  # a kill was requested before the end had begun
        self.chief_at = 0.0  # when the chief's success was reported
        self.ends: Set[Tuple[int, str, int, int]] = set()  # (master, task, session, restart)
        self.good: Set[Tuple[str, str, int, int]] = set()  # (container, task, session, restart)
        self.reported: Set[Tuple[str, int, int]] = set()  # ends: (container, session, restart)
        self.over = -1  # the last session whose services were stopped
        self.tries: Counter[Tuple[str, int]] = Counter()  # (task, session or -1) -> tries
        self.places: Dict[Tuple[str, int], str] = {}  # (task, session) -> where others know it

    # ------------------------------------------------------------------ reports and story lines

    def note(self, event: e.Event) -> None:
        """It is fed now."""
        if (
            isinstance(event, container_pool.ShutdownRequested)
            and self.machine.state.phase not in ENDING
        ):
            self.killed = True
        elif isinstance(event, e.ExecutorReported) and isinstance(event.message, Ended):
            self.note_end(event.container_id, event.message)

    def note_end(self, container_id: str, message: Ended) -> None:
        """An executor reports an end."""
        executor = self.executors[container_id]
        number = (message.session, message.restart)
        self.reported.add((container_id, *number))
        if (message.exit_code, message.cause) == (0, "exited"):
            self.good.add((container_id, executor.task, *number))
        # What an executor says of its program may be true of each that follows.
        state = self.machine.state
        task = state.task_of(container_id)
        if task is None or task.state in TERMINAL or task.name in state.restarts.pending:
            return  # it is late
        if message.cause in UNUSABLE_CONTAINER_CAUSES and number == task.attempt:
            executor.broken = True

    def check_story_line(self, line: c.AddStoryLine) -> None:
        """Checks that this line may stand in the story now."""
        if line.kind == "session-started":
            self.check_cleared(line)
        elif line.kind == "not-ended":
            self.given_up.add(line.text.split()[1])
        elif line.kind == "ending" and line.fields["state"] == AppState.SUCCEEDED:
            self.check_success()
        elif line.kind == "chief-done":
            self.chief_at = self.now
        elif line.kind == "task-again":
            role = self.machine.state.tasks[line.task].role
            key = (
                line.task,
                -1 if self.machine.state.tasks[line.task].is_sidecar else line.session,
            )
            self.tries[key] += 1
            assert self.tries[key] <= role.max_restarts, f"{line}: too many tries"
        elif line.kind == "task-state" and line.fields["state"] in TERMINAL:
            self.check_end(line, line.fields)

    def check_cleared(self, line: c.AddStoryLine) -> None:
        """Nothing of a session runs when the next begins."""
        for name, executor in self.executors.items():
            runs = executor.phase == "running" and not executor.gone
            if runs and name not in self.given_up:
                sidecar = self.machine.state.tasks[executor.task].is_sidecar
                assert sidecar, f"{line}, and {executor.task} still runs in {name}"

    def check_end(self, line: c.AddStoryLine, fields: Mapping[str, Any]) -> None:
        """A task ends once, and with success only if its executor reported so."""
        assert line.session <= self.machine.state.session, str(line)
        end = (self.masters, line.task, line.session, fields["restart"])
        assert end not in self.ends, f"{line} a second time"
        self.ends.add(end)
        task = self.machine.state.tasks[line.task]
        if fields["state"] == TaskState.SUCCEEDED:
            report = (task.container, task.name, line.session, fields["restart"])
            before = task.container is None and any(x[1] == task.name for x in self.good)
            assert report in self.good or before, f"{line}, which no executor reported"
        if task.role.name == "evaluator" and line.text.endswith("the chief has succeeded"):
            assert self.now >= self.chief_at + EVALUATORS_MAY_S, f"{line} too soon"

    def check_start(self, command: c.StartTasks) -> None:
        """A gang begins with as many of each role as it must have."""
        if self.job.mode is not Mode.GANG or self.machine.state.tasks[command.tasks[0]].is_sidecar:
            return
        assert set(command.tasks) <= set(command.gang), str(command)
        for role, number in Counter(name.partition(":")[0] for name in command.gang).items():
            least = self.job.role(role).least
            assert number >= least, f"{command.gang} begins with fewer than {least} {role}"

    def check_place(self, executor: Executor, command: c.PrepareTask) -> None:
        """Its task can be prepared there."""
        name = executor.container.id
        assert not executor.broken, f"{name} serves no program, and gets one"
        executor.prepared = (command.session, command.restart)
        if executor.phase == "running":
            mine = (executor.session, executor.restart)
            assert mine == executor.prepared, (
                f"{name} runs {mine}, and is to prepare {executor.prepared}"
            )

    def check_late(self, event: e.Event, commands: List[c.Command]) -> None:
        """A report on a previous program decides nothing."""
        if not isinstance(event, e.ExecutorReported) or not isinstance(event.message, Ended):
            return
        executor = self.executors[event.container_id]
        if (event.message.session, event.message.restart) >= executor.prepared:
            return
        for line in commands:
            if isinstance(line, c.AddStoryLine) and line.task == executor.task:
                ends = line.fields.get("state") in (TaskState.SUCCEEDED, TaskState.FAILED)
                assert not ends, f"{line} by a late {event}"

    def check_success(self) -> None:
        """A job that succeeds has lost nothing that it may not lose."""
        job, state = self.job, self.machine.state
        for task in state.tasks.values():
            lost = task.state in (TaskState.FAILED, TaskState.LOST) and not task.is_sidecar
            if lost and not state.chief_done:
                may = task.is_tracked and not task.role.stop_on_failure
                may = may and not job.fail_on_worker_failure and job.chief != _chief(task)
                assert may, f"the job succeeds, and {task.name} is {task.state.value}"

    # ------------------------------------------------------------------ after each event

    def check(self) -> None:
        """What must hold outside of the machine after each event."""
        state = self.machine.state
        ending = state.phase in ENDING
        if self.killed:
            assert state.outcome is AppState.KILLED, "a kill was requested"
        running: Dict[str, Executor] = {}
        for name, executor in self.executors.items():
            if executor.gone:
                assert name not in state.held, f"{name} has ended, and is held"
                continue
            assert executor.launched, f"{name} is neither used nor given back"
            # At the end a farewell may be enough: the scheduler ends what is left.
            known = name in state.held or name in self.given_up or ending
            assert known, f"{name} is held, and the machine does not know it"
            if executor.phase == "running" and name not in self.given_up:
                task = state.tasks[executor.task]
                other = running.setdefault(task.name, executor)
                twice = f"{task.name} runs in {name} and in {other.container.id}"
                assert other is executor, twice
        sessions = {x.session for t, x in running.items() if not state.tasks[t].is_sidecar}
        assert len(sessions) <= 1, f"programs of sessions {sorted(sessions)} at once"
        for task in state.tasks.values():
            assert task.restarts <= task.role.max_restarts, f"{task.name}: too many tries"
            assert not task.restarts or task.role.has_task_restart, f"{task.name}: not alone"
        budgets = state.budgets
        assert 0 <= budgets.user_used <= budgets.user_limit
        assert 0 <= budgets.system_used <= budgets.system_limit
        if state.phase is Phase.ACTIVE:
            self.check_progress()
            self.check_ends_come()

    def may_be_pending(self, name: str) -> bool:
        """Whether an elastic role may want no more: later, no more at all, or others first."""
        state = self.machine.state
        first = state.count((TaskState.REQUESTED,), state.waves)
        later = ("regrow", name) in state.deadlines
        return later or is_ending_soon(state) or (name not in state.barrier_passed and first > 0)

    def check_progress(self) -> None:
        """Whatever is waited for was asked for, or has a deadline."""
        state = self.machine.state
        for task in state.tasks.values():
            if task.role.name not in state.waves:
                continue
            if task.state is TaskState.PENDING:
                if task.role.is_elastic and self.may_be_pending(task.role.name):
                    continue
                waits = (("allocation-retry",), ("again", task.name))
                comes = any(key in state.deadlines for key in waits)
                comes = comes or (
                    task.name in state.restarts.pending and is_old_attempt_stopping(state, task)
                )
                assert comes, f"{task.name}: for ever pending"
            elif task.state is TaskState.READY and may_start(state, task):
                waits = (("start",), ("start", task.name))
                assert any(key in state.deadlines for key in waits), f"{task.name}: never starts"
        for name in state.waves:
            requested = sum(t.state is TaskState.REQUESTED for t in state.by_role[name])
            wanted = self.wanted.get(name, (0, 0))[1]
            assert requested == wanted, f"{name}: {requested} waited for, {wanted} asked for"

    def check_ends_come(self) -> None:
        """Who needs not go on, or only for a while, has a deadline."""
        state = self.machine.state
        for number, item in enumerate(self.job.group_dependencies):
            group = dict(self.job.groups)[item.group]
            untracked = item.ignored and item.role in state.no_longer_awaited
            if not self.goes_on(group) and self.goes_on((item.role,)) and not untracked:
                waits = ("group", str(number)) in state.deadlines
                assert waits, f"{item.role}: for ever after {item.group}"
        if state.chief_done:
            for role in state.tracked_roles():
                which = "evaluators" if role == "evaluator" else "others"
                waits = ("chief-grace", which) in state.deadlines or not self.goes_on((role,))
                assert waits, f"{role}: for ever after the chief"

    def goes_on(self, roles: Iterable[str]) -> bool:
        """Whether a task of these is still waited for."""
        return any(
            task.state in OPEN for name in roles for task in self.machine.state.in_round(name)
        )

    def check_nothing_is_left(self) -> None:
        """After the end no container is unaccounted for."""
        for executor in self.executors.values():
            assert executor.gone, f"{executor.container.id} is left behind"
        assert not any(t.state in HOLDS_CONTAINER for t in self.machine.state.tasks.values())
