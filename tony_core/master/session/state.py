"""The state of the session machine, and the guarded moves by which it changes.

:class:`State` holds what is known of the job, its tasks and containers, the deadlines, and the
commands so far. It decides nothing. Task, container and phase each move by a table of
:mod:`.records`, and only by :meth:`State.move`, :meth:`State.move_container` and
:meth:`State.move_phase`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job, Mode, RestartMode, Tracking
from tony_core.master.session.budgets import Budgets
from tony_core.master.session.commands import AddStoryLine, Command, Level, Member
from tony_core.master.session.deadlines import Deadline, DeadlineQueue, PendingDeadline
from tony_core.master.session.records import (
    CONTAINER_MOVES,
    PHASE_MOVES,
    TASK_MOVES,
    TERMINAL,
    ContainerRecord,
    ContainerState,
    ElasticRounds,
    Failure,
    InvalidTransition,
    Phase,
    Preemptions,
    Reconciled,
    Stalls,
    Takeover,
    TaskRecord,
    TaskRestarts,
    TaskState,
    Unhandled,
)
from tony_core.schedulers.port import AppState

S = TaskState
_IN_STORY = {S.LAUNCHED, S.RUNNING} | TERMINAL
#: What the end of a task makes meaningless.
_CANCELLED_AT_TASK_END = (
    Deadline.REGISTRATION,
    Deadline.READY,
    Deadline.START,
    Deadline.TASK_RESTART,
)

#: Two sets of states of which State.count_leading() counts.
READY: FrozenSet[TaskState] = frozenset({S.READY})
PREPARED: FrozenSet[TaskState] = frozenset({S.REGISTERED, S.READY, S.RUNNING})


class End(NamedTuple):
    """The end of the job, as it was decided."""

    state: AppState
    diagnostics: str
    grace_s: float


class State:
    """Tasks, containers, deadlines, budgets, and the commands so far."""

    def __init__(
        self,
        job: Job,
        settle_s: float,
        jitter: Callable[[], float],
        ends_containers_at_finish: bool,
        address_bound: FrozenSet[str],
        scheduler: str,
    ) -> None:
        self.job = job
        self.scheduler = scheduler  # its name for people, as in the port's PoolInfo
        self.address_bound = address_bound  # roles whose tasks cannot move to another address
        self.settle_s = settle_s
        self.ends_containers_at_finish = ends_containers_at_finish  # as in the port's PoolInfo
        self.jitter = jitter
        self.now = 0.0
        self.commands: List[Command] = []
        self.deadlines = DeadlineQueue()
        self.budgets = Budgets(job.master.user_retries, job.master.infrastructure_retries)

        # the job
        self.phase = Phase.NEW
        self.phases: List[str] = []  # the story of its moves
        self.began: Optional[float] = None
        self.preprocessed = False
        self.parameters: Optional[str] = None  # what the preprocessing gave for every task
        self.waiting = ""  # why the scheduler grants nothing yet
        self.result = ""  # what the chief gave by tony.result(), as JSON text
        self.progress_seen = False
        self.end: Optional[End] = None  # decided; the phase follows
        self.outcome: Optional[AppState] = None
        self.diagnostics = ""
        self.root_cause: Dict[str, Any] = {}
        self.gang_restart = ""  # why the programs are to start anew, until they do
        self.leaves_containers = False  # those that do not end with the job are left behind

        # the session
        self.session = -1
        self.waves: Dict[str, int] = {}  # role -> its wave, once that has begun
        self.barrier_passed: Set[str] = set()  # roles whose barrier was passed in this session
        self.finished_tasks: Set[str] = set()  # tasks that never run again
        self.finished_roles: Set[str] = (
            set()
        )  # roles that others depend on, and that have succeeded
        self.no_longer_awaited: Set[str] = (
            set()
        )  # tracked roles that this session no longer waits for
        self.chief_succeeded = False  # in an active session; see .completion
        self.chief_done = False
        self.failures: List[Failure] = []
        self.allocation_tries = 0

        # tasks
        self.tasks: Dict[str, TaskRecord] = {}
        self.by_role: Dict[str, List[TaskRecord]] = {}
        self.round_counts: Dict[str, Counter[TaskState]] = {}  # of those in the round
        self.counts: Dict[str, Counter[TaskState]] = {}  # of those outside too
        for role in job.roles:
            records = [TaskRecord(role, index) for index in range(role.instances)]
            self.by_role[role.name] = records
            self.round_counts[role.name] = Counter({S.PENDING: len(records)})
            self.counts[role.name] = Counter({S.PENDING: len(records)})
            self.tasks.update((record.name, record) for record in records)
        self.dependents: Set[str] = {name for role in job.roles for name in role.depends_on}
        self._requested_indices: Dict[str, List[int]] = {role.name: [] for role in job.roles}
        self._leading: Dict[Tuple[str, FrozenSet[TaskState]], int] = {}  # see count_leading()

        # containers
        self.containers: Dict[str, ContainerRecord] = {}
        self.held: Dict[str, ContainerRecord] = {}  # those that have not ended
        #: By role: see has_unassigned_stopping().
        self.unassigned_stopping: Dict[str, List[ContainerRecord]] = {}
        self.avoided_nodes: Set[str] = set()
        self._found: List[ContainerRecord] = []  # see any_container()

        # parts, each of the rules of one module
        self.elastic = ElasticRounds()
        self.restarts = TaskRestarts()
        self.takeover = Takeover()
        self.preemptions = Preemptions()
        self.stalls = Stalls(by_task=job.mode is Mode.FCFS)
        self.unhandled = Unhandled()
        self.reconciled = Reconciled()

    # ------------------------------------------------------------------ commands, deadlines

    def emit(self, command: Command) -> None:
        """Add a command; the shell performs commands in this order, after the event."""
        self.commands.append(command)

    def add_line(
        self,
        kind: StoryKind,
        text: str,
        level: Level = Level.INFO,
        task: Optional[TaskRecord] = None,
        /,
        **fields: Any,
    ) -> None:
        """Add a line to the story."""
        name = task.name if task else ""
        text = task.shorten(text) if task else text
        session = task.session if task else self.session
        self.emit(AddStoryLine(kind, text, level, name, session, fields))

    def set_deadline(
        self,
        kind: Deadline,
        limit: float,
        name: str = "",
        /,
        *,
        until: Optional[float] = None,
        **words: str,
    ) -> None:
        """Set a deadline, by default ``limit`` seconds from now."""
        key = (kind, name) if name else (kind,)
        setting = kind.setting
        if setting:
            setting = f"{setting.format(**words)}={limit:g}s"
        reason = kind.reason.format(name=name, **words)
        self.deadlines.set(
            PendingDeadline(key, self.now + limit if until is None else until, reason, setting)
        )

    # ------------------------------------------------------------------ moves

    def move_phase(self, new: Phase) -> None:
        """Take the job to a phase, by the table."""
        if new not in PHASE_MOVES[self.phase]:
            raise InvalidTransition("the job", self.phase, new, self.phases)
        self.phases.append(f"{self.now:.3f} s{self.session} {self.phase.value}->{new.value}")
        del self.phases[:-20]
        self.phase = new
        self.reconciled.is_stale = True

    def move_container(self, record: ContainerRecord, new: ContainerState) -> None:
        """Take a container to a state, by the table."""
        if new not in CONTAINER_MOVES[record.state]:
            story = self.tasks[record.task].story if record.task else self.phases
            raise InvalidTransition(record.id, record.state, new, story)
        record.state = new
        if new in (ContainerState.STOPPING, ContainerState.ENDED):
            self.preemptions.forget(record.id)

    def move(self, task: TaskRecord, new: TaskState, why: str = "", quiet: bool = False) -> None:
        """Take a task to a state, by the table."""
        old = task.state
        if new not in TASK_MOVES[old]:
            raise InvalidTransition(task.name, old, new, task.story)
        role = task.role.name
        counted = [self.counts[role]]
        if task.name not in self.elastic.outside_round:
            counted.append(self.round_counts[role])
        for count in counted:
            count[old] -= 1
            count[new] += 1
        if task.name in self.restarts.pending:
            self.restarts.pending.discard(task.name)
            self.deadlines.cancel(Deadline.TASK_RESTART, task.name)
        task.story.append(f"{self.now:.3f} s{task.session} {old.value}->{new.value} {why}")
        del task.story[:-20]
        task.state = new
        for states in (PREPARED, READY):
            if new not in states:
                key = (role, states)
                self._leading[key] = min(task.index, self._leading.get(key, 0))
        if old is S.RUNNING:
            self.stalls.forget(task.name)
            self.deadlines.cancel(Deadline.STALLED_PROGRAM, task.name)
        if S.REQUESTED in (old, new):
            self.reconciled.is_stale = True
        waited: Dict[str, float] = {}
        if new is S.READY:
            task.ready = self.now
        elif new is S.RUNNING and task.ready is not None:
            waited["ready_s"] = round(self.now - task.ready, 3)
        if new is S.RUNNING and self.preemptions.asked:
            self.preemptions.is_stale = True
        if old is S.READY and new is S.RUNNING and task.restarts:
            self.restarts.running += 1
        if new is S.REQUESTED:
            heapq.heappush(self._requested_indices[role], task.index)
        if new in TERMINAL:
            self.unhandled.completion_changed = True
            task.ended = self.now
            task.update_run(state=new.value, exit_code=task.exit_code)
            for kind in _CANCELLED_AT_TASK_END:
                self.deadlines.cancel(kind, task.name)
        if new in _IN_STORY and not quiet:
            node = self.node_of(task)
            text = f"{task.name} {new.value}" + (f" on {node}" if node else "")
            if why:
                text += f": {why}"
            loud = Level.WARNING if new in (S.FAILED, S.LOST) else Level.INFO
            self.add_line(StoryKind.TASK_STATE, text, loud, task, state=new.value, node=node,
                restart=task.restarts, **waited,
            )  # fmt: skip

    def begin_restart(self, task: TaskRecord) -> None:
        """Take a task that has failed back to pending: it restarts in this session."""
        task.restarts += 1
        self.restarts.begun += 1
        self.move(task, S.PENDING, "to be restarted")
        self.restarts.pending.add(task.name)

    # ------------------------------------------------------------------ tasks

    def pop_requested(self, role: str) -> Optional[TaskRecord]:
        """Take the next task of a role that still needs a container."""
        heap = self._requested_indices.get(role)
        while heap:
            task = self.by_role[role][heapq.heappop(heap)]
            if task.state is S.REQUESTED:
                return task
        return None

    def task_of(self, container_id: str) -> Optional[TaskRecord]:
        """The task a container belongs to."""
        record = self.containers.get(container_id)
        if record is None or record.task is None:
            return None
        task = self.tasks[record.task]
        return task if task.container == container_id else None

    def container_of(self, task: TaskRecord) -> Optional[ContainerRecord]:
        """The task's container, if it has one that has not ended."""
        return self.held.get(task.container) if task.container else None

    def node_of(self, task: TaskRecord) -> str:
        """Where it runs or ran."""
        record = self.containers.get(task.container) if task.container else None
        return record.container.node if record else ""

    def count_leading(self, role: str, states: FrozenSet[TaskState]) -> int:
        """How many of a role's first tasks are in these states, without a scan each time."""
        tasks = self.by_role[role]
        at = self._leading.get((role, states), 0)
        while at < len(tasks) and tasks[at].state in states:
            at += 1
        self._leading[(role, states)] = at
        return at

    def in_round(self, role: str) -> List[TaskRecord]:
        """Its tasks that take part in this round: all, unless the role is elastic."""
        tasks = self.by_role[role]
        outside = self.elastic.outside_round
        return [task for task in tasks if task.name not in outside] if outside else tasks

    def count(self, states: Iterable[TaskState], roles: Iterable[str]) -> int:
        """How many tasks of these roles stand in these states."""
        wanted = tuple(states)
        return sum(self.round_counts[role][state] for role in roles for state in wanted)

    def has_succeeded(self, role: str) -> bool:
        """Whether every task of a role has succeeded."""
        return self.round_counts[role][S.SUCCEEDED] == sum(self.round_counts[role].values())

    def tracked_roles(self) -> List[str]:
        """The roles that the job waits for."""
        tracked = (role.name for role in self.job.roles if role.tracking is Tracking.TRACKED)
        return [name for name in tracked if name not in self.no_longer_awaited]

    def gang_roles(self, wave: int) -> List[str]:
        """The roles that wait for each other: those of a wave that are no sidecars."""
        return [
            role.name
            for role in self.job.roles
            if self.waves.get(role.name) == wave and role.tracking is not Tracking.SIDECAR
        ]

    def gang_of(self, task: TaskRecord) -> Tuple[str, ...]:
        """Those that pass the barrier together with it, or did before."""
        if task.is_sidecar or self.job.mode is Mode.FCFS:
            return (task.name,)
        roles = self.gang_roles(self.waves[task.role.name])
        return tuple(each.name for name in roles for each in self.in_round(name))

    def members(self, single: Optional[TaskRecord] = None) -> Tuple[Member, ...]:
        """The cluster spec: every gang task that has its ports, in the job's order."""
        out: List[Member] = []
        for task in self._addressed(single):
            if not task.ports or not task.container:
                continue
            gone = task.name in self.finished_tasks or task.session != self.session
            gone = gone or task.name in self.elastic.outside_round
            if gone and task is not single:
                continue
            node = self.containers[task.container].container.node
            out.append(
                Member(task.role.name, task.index, task.container, node, task.host, task.ports)
            )
        return tuple(out)

    def _addressed(self, single: Optional[TaskRecord]) -> Iterator[TaskRecord]:
        """The tasks that a cluster spec may hold."""
        for role in self.job.roles:
            if single is not None and role is single.role:
                by_itself = single.is_sidecar or not self.job.shares_addresses
                yield from [single] if by_itself else self.by_role[role.name]
            elif role.tracking is not Tracking.SIDECAR and self.job.shares_addresses:
                yield from self.by_role[role.name]

    @property
    def is_fresh(self) -> bool:
        """Whether the next session keeps nothing of this one, sidecars included."""
        return self.job.master.restart_mode is RestartMode.FRESH and not self.elastic.regrouping

    # ------------------------------------------------------------------ containers

    def any_container(self, *states: ContainerState) -> bool:
        """Whether a container stands there.

        Asked at the end of each of thousands: those found before are asked first, all in the end.
        """
        while self._found and self._found[-1].state not in states:
            self._found.pop()
        if not self._found:
            self._found = [record for record in self.held.values() if record.state in states]
        return bool(self._found)

    def has_unassigned_stopping(self, role: str) -> bool:
        """Whether a container of that role is being ended of which no task is known.

        Asked for each of thousands: the list is looked through once.
        """
        records = self.unassigned_stopping.get(role, [])
        while records and (
            records[-1].state is not ContainerState.STOPPING or records[-1].task is not None
        ):
            records.pop()
        return bool(records)

    # ------------------------------------------------------------------ the end

    def request_end(self, state: AppState, diagnostics: str, grace_s: float) -> None:
        """Decide that the job ends so, unless its end is decided already."""
        if self.end is None:
            self.end = End(state, diagnostics, grace_s)
