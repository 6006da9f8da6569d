"""The session machine's state and the small moves every decision is made of.

:class:`Board` holds tasks, containers, waits and budgets, and collects commands. It decides
nothing; :mod:`gathering`, :mod:`judging`, :mod:`clearing` and :mod:`adoption` do, each a
part of the one machine that :mod:`session` puts together.
"""

from __future__ import annotations

import heapq
from collections import Counter
from enum import Enum
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
    Tuple,
)

from tony_core.job.spec import Job, Mode, Tracking
from tony_core.master.session.budgets import HEALTHY_S, Budgets
from tony_core.master.session.commands import (
    Command,
    Member,
    RequestContainers,
    StopContainer,
    Tell,
    Weight,
    WriteJournal,
)
from tony_core.master.session.records import (
    TERMINAL,
    ContainerRecord,
    Failure,
    Hold,
    InvalidTransition,
    TaskRecord,
    TaskState,
    may_move,
)
from tony_core.master.session.waits import Wait, Waits
from tony_core.schedulers.port import AppState, Ask

#: A node on which something of ours failed gets another chance after so long.
AVOIDED_S = HEALTHY_S

#: A container that does not end this long after its grace is given up (and said so).
STOP_ALLOWANCE_S = 20.0

_TOLD = {TaskState.LAUNCHED, TaskState.RUNNING} | TERMINAL


class Phase(str, Enum):
    """Where the job stands.

    *new* -> *preprocessing* -> *active* (a session gathers and runs) -> *settling* (after
    its first failure) -> *clearing* (its programs are ended) -> *backoff* -> *active* again;
    or *ending* (everything is ended) -> *ended*. *adopting* is a later master's *new*.
    """

    NEW = "new"
    PREPROCESSING = "preprocessing"
    ADOPTING = "adopting"
    ACTIVE = "active"
    SETTLING = "settling"
    CLEARING = "clearing"
    BACKOFF = "backoff"
    ENDING = "ending"
    ENDED = "ended"


class Board:
    """Tasks, containers, waits, budgets, and the commands so far."""

    def __init__(
        self,
        job: Job,
        *,
        settle_s: float,
        jitter: Callable[[], float],
        ends_rest: bool,
        in_place: FrozenSet[str] = frozenset(),
    ) -> None:
        self.job = job
        self.in_place = in_place  # roles whose tasks cannot go on at another address
        self.settle_s = settle_s
        self.ends_rest = ends_rest  # as in the port's PoolInfo
        self.jitter = jitter
        self.now = 0.0
        self.began: Optional[float] = None
        self.phase = Phase.NEW
        self.session = -1
        self.tasks: Dict[str, TaskRecord] = {}
        self.by_role: Dict[str, List[TaskRecord]] = {}
        self.counts: Dict[str, Counter[TaskState]] = {}  # of those in the round
        self.states: Dict[str, Counter[TaskState]] = {}  # of those outside too
        for role in job.roles:
            records = [TaskRecord(role, index) for index in range(role.instances)]
            self.by_role[role.name] = records
            self.counts[role.name] = Counter({TaskState.PENDING: len(records)})
            self.states[role.name] = Counter({TaskState.PENDING: len(records)})
            self.tasks.update((record.name, record) for record in records)
        self.containers: Dict[str, ContainerRecord] = {}
        self.open: Dict[str, ContainerRecord] = {}  # those that have not ended
        self.awaited: List[ContainerRecord] = []  # see still()
        self.unclaimed: Dict[str, List[ContainerRecord]] = {}  # by role, see has_unclaimed()
        self.waits = Waits()
        self.budgets = Budgets(job.master.user_retries, job.master.infrastructure_retries)
        self.failures: List[Failure] = []
        self.released: Dict[str, int] = {}  # role -> the wave it was released in
        self.started: Set[str] = set()  # roles whose barrier was passed in this session
        self.done: Set[str] = set()  # tasks that never run again
        self.untracked: Set[str] = set()  # tracked roles that this session no longer waits for
        self.chief_done = False
        self.parameters: Optional[str] = None
        self.waiting = ""
        self.bad_nodes: Set[str] = set()  # see avoid()
        self.outcome: Optional[AppState] = None
        self.diagnostics = ""
        self.root: Dict[str, Any] = {}
        self.allocation_tries = 0
        self.returning: Set[str] = set()  # pending tasks that are to be started again alone
        self.outside: Set[str] = set()  # tasks of elastic roles that are not in this round
        self.regrouping = False  # programs are ended for a round, not for a failure
        self.progress_seen = False
        self.result = ""  # what the chief gave by tony.result(), as JSON text
        self.out: List[Command] = []
        self._wanted: Dict[str, List[int]] = {role.name: [] for role in job.roles}
        self._asked: Set[str] = set()
        self.dependents: Set[str] = {name for role in job.roles for name in role.depends_on}

    # ------------------------------------------------------------------ saying

    def emit(self, command: Command) -> None:
        """Want something done."""
        self.out.append(command)

    def tell(
        self,
        kind: str,
        text: str,
        weight: Weight = Weight.INFO,
        task: Optional[TaskRecord] = None,
        /,
        **fields: Any,
    ) -> None:
        """Add a line to the story."""
        name = task.name if task else ""
        text = task.briefly(text) if task else text
        session = task.session if task else self.session
        self.emit(Tell(kind, text, weight, name, session, fields))

    def journal(self) -> None:
        """Write ahead what a next master could not rebuild."""
        self.emit(WriteJournal(self.journal_record()))

    def journal_record(self) -> Mapping[str, Any]:
        """The whole of it; small."""
        return {
            "session": self.session,
            "elapsed_s": self.now - (self.began if self.began is not None else self.now),
            "budgets": self.budgets.to_json(),
            "parameters": self.parameters,
            "released": dict(self.released),
            "started": sorted(self.started),
            "outside": sorted(self.outside),
            "regrouping": self.regrouping,
            "done": sorted(self.done),
            "untracked": sorted(self.untracked),
            "returning": sorted(self.returning),
            "alone": self.alone_record(),
            "chief_done": self.chief_done,
            "outcome": self.outcome.value if self.outcome else None,
            "diagnostics": self.diagnostics,
            "root": self.root,
            "result": self.result,
        }

    def alone_record(self) -> Mapping[str, Any]:
        """Which try each task is in that is started again alone."""
        raise NotImplementedError

    # ------------------------------------------------------------------ tasks

    def move(self, task: TaskRecord, state: TaskState, why: str = "", quiet: bool = False) -> None:
        """Take a task to a state, by the table."""
        if not may_move(task.state, state):
            raise InvalidTransition(task, state)
        counted = [self.states[task.role.name]]
        if task.name not in self.outside:
            counted.append(self.counts[task.role.name])
        for count in counted:
            count[task.state] -= 1
            count[state] += 1
        self.returning.discard(task.name)
        task.story.append(f"{self.now:.3f} s{task.session} {task.state.value}->{state.value} {why}")
        del task.story[:-20]
        task.state = state
        if state is TaskState.REQUESTED:
            heapq.heappush(self._wanted[task.role.name], task.index)
        if state in TERMINAL:
            task.ended = self.now
            task.note_run(state=state.value, exit_code=task.exit_code)
            for kind in ("registration", "ready", "start", "again"):
                self.waits.cancel(kind, task.name)
        if state in _TOLD and not quiet:
            node = self.node_of(task)
            text = f"{task.name} {state.value}" + (f" on {node}" if node else "")
            if why:
                text += f": {why}"
            loud = Weight.WARNING if state in (TaskState.FAILED, TaskState.LOST) else Weight.INFO
            self.tell("task-state", text, loud, task, state=state.value, node=node,
                restart=task.restarts,
            )  # fmt: skip

    def take_wanted(self, role: str) -> Optional[TaskRecord]:
        """The next task of a role that still wants a container."""
        heap = self._wanted.get(role)
        while heap:
            task = self.by_role[role][heapq.heappop(heap)]
            if task.state is TaskState.REQUESTED:
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
        return self.open.get(task.container) if task.container else None

    def node_of(self, task: TaskRecord) -> str:
        """Where it runs or ran."""
        record = self.containers.get(task.container) if task.container else None
        return record.container.node if record else ""

    def gang_roles(self, wave: int) -> List[str]:
        """The roles that wait for each other: those of a wave that are no sidecars."""
        return [
            role.name
            for role in self.job.roles
            if self.released.get(role.name) == wave and role.tracking is not Tracking.SIDECAR
        ]

    def gang_of(self, task: TaskRecord) -> Tuple[str, ...]:
        """Those that pass the barrier together with it, or did before."""
        if task.is_sidecar or self.job.mode is Mode.FCFS:
            return (task.name,)
        roles = self.gang_roles(self.released[task.role.name])
        return tuple(each.name for name in roles for each in self.inside(name))

    def count(self, states: Iterable[TaskState], roles: Iterable[str]) -> int:
        """How many tasks of these roles stand in these states."""
        wanted = tuple(states)
        return sum(self.counts[role][state] for role in roles for state in wanted)

    def tracked_roles(self) -> List[str]:
        """The roles that the job waits for."""
        tracked = (role.name for role in self.job.roles if role.tracking is Tracking.TRACKED)
        return [name for name in tracked if name not in self.untracked]

    def members(self, also: Optional[TaskRecord] = None) -> Tuple[Member, ...]:
        """The cluster spec: every gang task that has its ports, in the job's order."""
        out: List[Member] = []
        for task in self.those_told(also):
            if not task.ports or not task.container:
                continue
            gone = task.name in self.done or task.session != self.session
            gone = gone or task.name in self.outside
            if gone and task is not also:
                continue
            node = self.containers[task.container].container.node
            out.append(
                Member(task.role.name, task.index, task.container, node, task.host, task.ports)
            )
        return tuple(out)

    def those_told(self, also: Optional[TaskRecord]) -> Iterator[TaskRecord]:
        """The tasks that a cluster spec may hold."""
        for role in self.job.roles:
            if also is not None and role is also.role:
                alone = also.is_sidecar or not self.job.tells_addresses
                yield from [also] if alone else self.by_role[role.name]
            elif role.tracking is not Tracking.SIDECAR and self.job.tells_addresses:
                yield from self.by_role[role.name]

    # ------------------------------------------------------------------ elastic roles

    def is_short(self, name: str) -> bool:
        """Whether an elastic role's minimum is not there yet."""
        raise NotImplementedError

    def inside(self, role: str) -> List[TaskRecord]:
        """Its tasks that take part in this round: all, unless the role is elastic."""
        tasks = self.by_role[role]
        return [t for t in tasks if t.name not in self.outside] if self.outside else tasks

    # ------------------------------------------------------------------ containers

    def ask(self) -> None:
        """Tell the scheduler what is wanted now: absolute numbers, gang and sidecars apart."""
        gang: List[Ask] = []
        single: List[Ask] = []
        for role in self.job.roles:
            count = self.states[role.name][TaskState.REQUESTED]
            if not count and role.name not in self._asked:
                continue
            (self._asked.add if count else self._asked.discard)(role.name)
            item = Ask(
                role=role.name,
                session=self.session,
                count=count,
                resources=role.resources,
                node_label=role.node_label or self.job.node_label,
                placement_spec=role.placement_spec,
                allocation_tags=role.allocation_tags,
                avoid_nodes=tuple(sorted(self.bad_nodes)),
                spare=role.is_elastic and not self.is_short(role.name),
            )
            whole = self.job.mode is Mode.GANG and role.tracking is not Tracking.SIDECAR
            whole = whole and role.name not in self.started  # else one comes back alone
            if role.is_elastic:
                whole = self.is_short(role.name) and role.name not in self.started
            (gang if whole else single).append(item)
        if gang:
            self.emit(RequestContainers(tuple(gang), True))
        if single:
            self.emit(RequestContainers(tuple(single), False))

    def describe_asks(self, roles: List[str]) -> str:
        """``2 x worker (2048 MB, 1 core), 1 x ps ...``."""
        parts = []
        for name in roles:
            need = self.job.role(name).resources
            gpus = f", {need.gpus} GPU" if need.gpus else ""
            size = f"{need.memory_mb} MB, {need.vcores} core{'s' * (need.vcores != 1)}{gpus}"
            parts.append(f"{self.counts[name][TaskState.REQUESTED]} x {name} ({size})")
        return ", ".join(parts)

    def avoid(self, node: str) -> None:
        """Take nothing from a node for a while, since something failed there."""
        self.bad_nodes.add(node)
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return
        reason = f"node {node} to be no longer avoided"
        self.waits.set(Wait(("avoided", node), self.now + AVOIDED_S, reason))

    def avoid_no_more(self, node: str) -> None:
        """Nothing was heard of it for long: what is wanted may come from there again."""
        self.bad_nodes.discard(node)
        self.tell("node-forgiven", f"node {node} is no longer avoided")
        if self.phase is Phase.ACTIVE and self._asked:
            self.ask()

    def withdraw(self) -> None:
        """Want nothing more from the scheduler."""
        asks = tuple(
            Ask(role.name, self.session, 0, role.resources)
            for role in self.job.roles
            if role.name in self._asked
        )
        self._asked.clear()
        if asks:
            self.emit(RequestContainers(asks, False))

    def still(self, *holds: Hold) -> bool:
        """Whether a container stands there.

        Asked at the end of each of thousands: who was found is asked first, all only in the end.
        """
        while self.awaited and self.awaited[-1].hold not in holds:
            self.awaited.pop()
        if not self.awaited:
            self.awaited = [record for record in self.open.values() if record.hold in holds]
        return bool(self.awaited)

    def stop_container(self, record: ContainerRecord, grace_s: float, reason: str) -> None:
        """End a container; its completion follows, or the wait for it passes."""
        if record.hold in (Hold.STOPPING, Hold.ENDED):
            return
        record.hold = Hold.STOPPING
        if record.task is None:
            self.unclaimed.setdefault(record.container.role, []).append(record)
        self.waits.cancel("clear", record.id)
        self.emit(StopContainer(record.id, grace_s, reason))
        self.waits.set(
            Wait(
                ("stop", record.id),
                self.now + grace_s + STOP_ALLOWANCE_S,
                f"container {record.id} on {record.container.node} to end ({reason})",
            )
        )
