"""From a released stage to running programs: containers, executors, the barrier.

A *wave* is the set of roles released by the same event: at the start those that depend on
nothing, later those whose last dependency has succeeded. In ``GANG`` mode the tracked and
untracked tasks of a wave start together, once all of them are ready; sidecars, and every
task in ``FCFS`` mode, start as soon as they are ready themselves.

The allocation clock runs only while the job holds some of a gang's containers but not all
(two jobs that each hold half would wait for ever). When it passes, the job gives back what
it holds, says what was missing, and tries again after a growing pause.
"""

from __future__ import annotations

from typing import Dict, List

from tony_core.job.spec import Mode, Tracking
from tony_core.master.session.budgets import HEALTHY_S
from tony_core.master.session.commands import (
    LaunchExecutor,
    PrepareTask,
    ReleaseContainer,
    StartTasks,
    StopTask,
    Weight,
)
from tony_core.master.session.elastic import MOST_PAUSES, Elastic
from tony_core.master.session.events import (
    ContainersAllocated,
    ExecutorRegistered,
    TaskReady,
    TaskRunning,
)
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    ContainerRecord,
    Hold,
    Run,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.state import Phase
from tony_core.master.session.waits import Wait
from tony_core.schedulers.port import Container

S = TaskState
ALLOCATION_BACKOFF_S = 5.0
ALLOCATION_BACKOFF_CAP_S = 300.0


class Gathering(Elastic):
    """The part of the machine that brings a stage to life."""

    def release_roles(self) -> None:
        """Release every role whose dependencies have succeeded, as one wave."""
        wave = max(self.released.values(), default=-1) + 1
        fresh = [
            role.name
            for role in self.job.roles
            if role.name not in self.released
            and all(self.succeeded(name) for name in role.depends_on)
        ]
        if not fresh:
            return
        for name in fresh:
            self.released[name] = wave
            self.place_role(name)
        wanted = [name for name in fresh if self.counts[name][S.REQUESTED]]
        if wanted:
            self.tell("stage-released", "asking for " + self.describe_asks(wanted), roles=wanted)
        if self.job.mode is Mode.FCFS:
            self.journal()  # no barrier will tell a later master that programs run
        self.ask()
        self.watch_allocation()

    def succeeded(self, role: str) -> bool:
        """Whether every task of a role has succeeded."""
        return self.counts[role][S.SUCCEEDED] == sum(self.counts[role].values())

    def place_role(self, name: str) -> None:
        """Place all of a role's pending tasks; of an elastic role's only those it may ask for."""
        elastic = self.job.role(name).is_elastic
        for task in self.by_role[name]:
            if task.state is not S.PENDING or task.name in self.done:
                continue
            if task.name in self.returning:
                continue  # it has a time of its own
            record = self.container_of(task)
            if not elastic or (record is not None and record.hold in (Hold.LIVE, Hold.LAUNCHED)):
                self.place(task)
            else:
                task.container = None
        if elastic:
            self.want_more(name)

    def place(self, task: TaskRecord) -> None:
        """Give a pending task its old container, or want one."""
        record = self.container_of(task)
        if record is not None and record.hold is Hold.LIVE:
            self.prepare(task, record)
        elif record is not None and record.hold is Hold.LAUNCHED:
            self.move(task, S.LAUNCHED)
            if ("registration", task.name) not in self.waits:
                self.watch_registration(task)  # its last end had taken the clock away
        else:
            task.container = None
            self.move(task, S.REQUESTED)

    def prepare(self, task: TaskRecord, record: ContainerRecord) -> None:
        """Tell a living executor which task it is now."""
        self.move(task, S.REGISTERED)
        limit = self.job.timeouts.registration_s
        self.waits.set(
            Wait(
                ("ready", task.name),
                self.now + limit,
                f"{task.name} to lay out its working folder and hold its ports",
                f"tony.container.registration.timeout={limit:g}s",
            )
        )
        container = record.container
        run = Run(task.session, container.id, container.node, container.log_url)
        if not task.runs or task.runs[-1] != run:
            task.runs.append(run)
        self.tell_again(task, record)

    def tell_again(self, task: TaskRecord, record: ContainerRecord) -> None:
        """Which task and which try of it the executor is."""
        same_ports = task.restarts > 0 and not task.new_ports
        self.emit(PrepareTask(record.id, task.name, *task.number, same_ports))

    # ------------------------------------------------------------------ containers come

    def on_allocated(self, event: ContainersAllocated) -> None:
        """Start an executor in each; give back what is not wanted any more."""
        ending = self.phase in (Phase.ENDING, Phase.ENDED)
        for container in event.containers:
            task = None if ending else self.take_wanted(container.role)
            if task is None:
                self.emit(ReleaseContainer(container.id))
                continue
            self.launch(task, container)
        if not ending:
            self.ask_for_the_rest()
        self.watch_allocation()

    def ask_for_the_rest(self) -> None:
        """Once the minimum of every elastic role is there."""
        gang = [name for name in self.released if name not in self.started]
        if any(self.counts[name][S.REQUESTED] and self.needs(name) for name in gang):
            return
        elastic = [name for name in self.released if self.job.role(name).is_elastic]
        asked = [self.want_more(name) for name in elastic]
        if any(asked):
            self.ask()

    def needs(self, name: str) -> bool:
        """Whether the gang cannot start without what a role has asked for."""
        role = self.job.role(name)
        return self.is_short(name) if role.is_elastic else role.tracking is not Tracking.SIDECAR

    def launch(self, task: TaskRecord, container: Container) -> None:
        """Bind a container to a task and start our executor in it."""
        record = ContainerRecord(container, Hold.LAUNCHED, task.name)
        self.containers[container.id] = self.open[container.id] = record
        task.container = container.id
        self.move(task, S.ALLOCATED)
        self.move(task, S.LAUNCHED)
        self.emit(LaunchExecutor(container.id, task.name))
        self.watch_registration(task)

    def watch_allocation(self) -> None:
        """Run the allocation clock exactly while some of a gang's containers are held."""
        missing = held = 0
        if self.job.mode is Mode.GANG:
            for name in self.released:
                if name in self.started or self.job.role(name).tracking is Tracking.SIDECAR:
                    continue
                counts = self.counts[name]
                missing += counts[S.REQUESTED] if self.needs(name) else 0
                held += sum(counts[state] for state in HOLDS_CONTAINER)
        if not missing:
            self.waiting = ""
            self.allocation_tries = 0 if held else self.allocation_tries
        if missing and held:
            if ("allocation",) not in self.waits:
                limit = self.job.timeouts.allocation_s
                self.waits.set(
                    Wait(
                        ("allocation",),
                        self.now + limit,
                        "the rest of the gang's containers",
                        f"tony.container.allocation.timeout={limit:g}s",
                    )
                )
        else:
            self.waits.cancel("allocation")

    def give_back(self, wait: Wait) -> None:
        """The allocation clock passed: hold nothing, and try again later."""
        missing: Dict[str, str] = {}
        for name in self.released:
            if name in self.started or self.job.role(name).tracking is Tracking.SIDECAR:
                continue
            total = len(self.by_role[name])
            wanted = self.counts[name][S.REQUESTED]
            if wanted:
                missing[name] = f"{wanted} of {total} {name}"
            for task in self.by_role[name]:
                record = self.container_of(task)
                if task.state in HOLDS_CONTAINER or task.state is S.REQUESTED:
                    self.waits.cancel("registration", task.name)
                    self.waits.cancel("ready", task.name)
                    self.move(task, S.PENDING, "given back")
                    task.container = None
                if record is not None:
                    self.stop_container(record, 0.0, "given back: the gang is not complete")
        self.withdraw()
        self.ask()  # sidecars go on
        pause = min(ALLOCATION_BACKOFF_CAP_S, ALLOCATION_BACKOFF_S * 2.0**self.allocation_tries)
        pause *= 0.5 + self.jitter() / 2
        self.allocation_tries += 1
        text = "missing " + ", ".join(missing.values()) if missing else "not complete"
        where = f" in queue {self.job.queue}"
        why = f" ({self.waiting})" if self.waiting else ""
        self.tell(
            "allocation-timeout",
            f"after {wait.setting} the gang is not complete: {text}{where}{why}; everything"
            f" held was given back, next try in {pause:.1f} s",
            Weight.DECISION,
            missing=missing,
        )
        self.waits.set(Wait(("allocation-retry",), self.now + pause, "the next try"))

    def ask_again(self) -> None:
        """Want the whole gang once more."""
        for name in self.released:
            self.place_role(name)
        self.ask()
        self.watch_allocation()

    # ------------------------------------------------------------------ executors call

    def registered(self, event: ExecutorRegistered, record: ContainerRecord) -> None:
        """An executor called, for the first time or again."""
        task = self.task_of(record.id)
        first = record.hold is Hold.LAUNCHED
        if first:
            record.hold = Hold.LIVE
        if task is None:
            return
        if first:
            self.waits.cancel("registration", task.name)
            if task.name in self.outside:
                self.came()
            elif task.state is S.LAUNCHED and (self.phase is Phase.ACTIVE or task.is_sidecar):
                self.prepare(self.lowest(task), record)
            return
        self.repeat(task, record, event)

    def repeat(self, task: TaskRecord, record: ContainerRecord, event: ExecutorRegistered) -> None:
        """A connection came back: say again what may have been lost with the old one."""
        if record.hold is Hold.CLEARING:
            self.emit(StopTask(record.id, task.session, 0.0, "said again"))
        elif task.state is S.REGISTERED and event.phase in ("idle", "ended"):
            self.tell_again(task, record)
        elif (event.session, event.restart) != task.number:
            return
        elif task.state is S.REGISTERED and event.phase == "ready":
            self.on_ready(
                TaskReady(event.at, record.id, task.session, event.host, event.ports, task.restarts)
            )
        elif task.state is S.READY and event.phase == "running":
            self.on_running(
                TaskRunning(event.at, record.id, task.session, 0, event.offsets, task.restarts)
            )
        elif task.state is S.READY and event.phase == "ready" and self.may_start(task):
            self.start([task])

    def on_ready(self, event: TaskReady) -> None:
        """One more task stands at the barrier."""
        task = self.task_of(event.container_id)
        if task is None or task.state is not S.REGISTERED:
            return
        if (event.session, event.restart) != task.number:
            return
        self.waits.cancel("ready", task.name)
        task.host = event.host
        task.ports = dict(event.ports)
        self.move(task, S.READY)
        if task.name in self.outside:
            self.came()
        elif self.may_start(task):
            self.start([task])
        else:
            self.check_barrier(self.released[task.role.name])

    def may_start(self, task: TaskRecord) -> bool:
        """Whether a ready task need not wait (any more)."""
        alone = task.is_sidecar or self.job.mode is Mode.FCFS
        return alone or (task.role.name in self.started and task.name not in self.outside)

    def check_barrier(self, wave: int, late: bool = False) -> None:
        """Start a wave's gang once all of it is ready."""
        roles = self.gang_roles(wave)
        if self.phase is not Phase.ACTIVE or not roles or roles[0] in self.started:
            return
        whole = all(self.counts[name][S.READY] == len(self.by_role[name]) for name in roles)
        if not whole and not self.enough(wave, roles, late):
            return
        for name in roles:
            for task in self.by_role[name][self.ready_in_order(name) :]:
                self.leave(task)
        self.waits.cancel("gather", str(wave))
        self.started.update(roles)
        self.since = self.now
        self.journal()
        self.tell_size(roles)
        self.start([task for name in roles for task in self.inside(name)])
        if self.newcomers():
            self.came()

    def enough(self, wave: int, roles: List[str], late: bool) -> bool:
        """Whether a gang with elastic roles begins without those that are not ready.

        Those that are on their way are waited for, and so is what a scheduler with room gives
        at once; neither for long.
        """
        least = {name: self.job.role(name).least for name in roles}
        if any(self.counts[name][S.READY] < least[name] for name in roles):
            return False
        if any(self.ready_in_order(name) < least[name] for name in roles):
            return False
        coming = self.on_their_way(roles)
        if not coming and self.session > 0:
            return True
        key = ("gather", str(wave))
        wait = self.waits.get(*key)
        if wait is None and not late:
            self.gathering[wave] = self.now
            reason = "the rest of the elastic roles"
            self.waits.set(Wait(key, self.now + self.pause_s, reason))
        if not late:
            return False
        if coming and self.now - self.gathering[wave] < MOST_PAUSES * self.pause_s:
            self.waits.set(Wait(key, self.now + self.pause_s, "those that are on their way"))
            return False
        return True

    def tell_size(self, roles: List[str]) -> None:
        """How many of an elastic role begin."""
        for name in roles:
            role = self.job.role(name)
            if role.is_elastic:
                text = f"{len(self.inside(name))} of {role.least}..{role.instances} {name} begin"
                self.tell("elastic", text, Weight.DECISION, role=name, size=len(self.inside(name)))

    def start(self, tasks: List[TaskRecord]) -> None:
        """Run these programs over the cluster spec as it stands."""
        also = tasks[0] if tasks[0].is_sidecar or self.job.mode is Mode.FCFS else None
        names = tuple(task.name for task in tasks)
        gang = self.gang_of(tasks[0])
        restart = tasks[0].restarts if len(names) == 1 else 0
        members = self.members(also)
        self.emit(StartTasks(tasks[0].session, names, members, self.parameters, gang, restart))
        limit = self.job.timeouts.registration_s
        key = ("start", *(names if len(names) == 1 else ()))
        self.waits.set(
            Wait(
                key,
                self.now + limit,
                "the executors to start their programs",
                f"tony.container.registration.timeout={limit:g}s",
            )
        )

    def on_running(self, event: TaskRunning) -> None:
        """A program runs."""
        task = self.task_of(event.container_id)
        if task is None or task.state is not S.READY:
            return
        if (event.session, event.restart) != task.number:
            return
        task.pid, task.gpus = event.pid, event.gpus
        if event.offsets:
            task.note_run(offsets=dict(event.offsets))
        task.started = event.at
        self.waits.cancel("start", task.name)
        self.move(task, S.RUNNING)
        if task.restarts:
            self.journal()  # it is returning no more
        if not task.is_sidecar and not self.count((S.READY,), self.started):
            self.waits.cancel("start")
        if self.budgets.system_used and ("healthy",) not in self.waits:
            self.waits.set(Wait(("healthy",), self.now + HEALTHY_S, "ten healthy minutes"))
