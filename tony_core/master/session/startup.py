"""From a released stage to running programs: containers, executors, the barrier.

A *wave* is the set of roles released by the same event: at the start those that depend on
nothing, later those whose last dependency has succeeded. In ``GANG`` mode the tracked and
untracked tasks of a wave start together, once all of them are ready; sidecars, and every
task in ``FCFS`` mode, start as soon as they are ready themselves.

The allocation deadline runs only while the job holds some of a gang's containers but not all
(two jobs that each hold half would wait for ever). When it passes, the job gives back what
it holds, says what was missing, and tries again after a growing pause.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Mapping, Tuple

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode, Tracking
from tony_core.master.session.budgets import HEALTHY_S
from tony_core.master.session.commands import (
    LaunchExecutor,
    PrepareTask,
    ReleaseContainer,
    StartTasks,
    StopContainer,
    StopTask,
    Weight,
)
from tony_core.master.session.elastic import (
    MOST_PAUSES,
    is_on_its_way,
    lowest,
    newcomers,
    pause_of,
    put_outside,
    wait_for_registration,
    wait_to_grow,
    want_more,
)
from tony_core.master.session.reconcile import is_short, note_granted
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    ContainerRecord,
    ContainerState,
    Phase,
    Run,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.state import READY, State
from tony_core.master.session.waits import Deadline, Wait
from tony_core.protocol.messages import Ready, Register, Running
from tony_core.schedulers.port import Allocated

S = TaskState
ALLOCATION_BACKOFF_S = 5.0
ALLOCATION_BACKOFF_CAP_S = 300.0

# ------------------------------------------------------------------ stages


def _releasable(state: State) -> List[str]:
    if len(state.released) == len(state.job.roles):
        return []
    return [
        role.name
        for role in state.job.roles
        if role.name not in state.released
        and all(state.has_succeeded(name) for name in role.depends_on)
    ]


def is_stage_due(state: State) -> bool:
    """Whether all that some role depends on has succeeded."""
    return bool(_releasable(state))


def release_stage(state: State) -> None:
    """Release every role whose dependencies have succeeded, as one wave."""
    wave = max(state.released.values(), default=-1) + 1
    fresh = _releasable(state)
    for name in fresh:
        state.released[name] = wave
        place_role(state, name)
    wanted = [name for name in fresh if state.counts[name][S.REQUESTED]]
    if wanted:
        text = "asking for " + _describe_asks(state, wanted)
        state.add_line(StoryKind.STAGE_RELEASED, text, roles=wanted)
    note_allocation(state)


def _describe_asks(state: State, roles: List[str]) -> str:
    """``2 x worker (2048 MB, 1 core), 1 x ps ...``."""
    parts = []
    for name in roles:
        need = state.job.role(name).resources
        gpus = f", {need.gpus} GPU" if need.gpus else ""
        size = f"{need.memory_mb} MB, {need.vcores} core{'s' * (need.vcores != 1)}{gpus}"
        parts.append(f"{state.counts[name][S.REQUESTED]} x {name} ({size})")
    return ", ".join(parts)


def place_role(state: State, name: str) -> None:
    """Place all of a role's pending tasks; of an elastic role's only those it may ask for."""
    elastic = state.job.role(name).is_elastic
    for task in state.by_role[name]:
        if task.state is not S.PENDING or task.name in state.done:
            continue
        if task.name in state.returning:
            continue  # it has a time of its own
        record = state.container_of(task)
        if not elastic or (
            record is not None and record.state in (ContainerState.LIVE, ContainerState.LAUNCHED)
        ):
            place(state, task)
        else:
            task.container = None
    if elastic:
        want_more(state, name)


def place(state: State, task: TaskRecord) -> None:
    """Give a pending task its old container, or want one."""
    record = state.container_of(task)
    if record is not None and record.state is ContainerState.LIVE:
        _prepare(state, task, record)
    elif record is not None and record.state is ContainerState.LAUNCHED:
        state.move(task, S.LAUNCHED)
        if (Deadline.REGISTRATION, task.name) not in state.waits:
            wait_for_registration(state, task)  # its last end had taken the deadline away
    else:
        task.container = None
        state.move(task, S.REQUESTED)


def _prepare(state: State, task: TaskRecord, record: ContainerRecord) -> None:
    """Tell a registered executor which task it runs now."""
    state.move(task, S.REGISTERED)
    state.wait(Deadline.READY, state.job.timeouts.registration_s, task.name)
    container = record.container
    run = Run(task.session, container.id, container.node, container.log_url)
    if not task.runs or task.runs[-1] != run:
        task.runs.append(run)
    _send_prepare(state, task, record)


def _send_prepare(state: State, task: TaskRecord, record: ContainerRecord) -> None:
    same_ports = task.restarts > 0 and not task.new_ports
    state.emit(PrepareTask(record.id, task.name, *task.number, same_ports))


# ------------------------------------------------------------------ containers come


def note_allocated(state: State, event: Allocated) -> None:
    """The scheduler gave containers."""
    state.granted.extend(event.containers)
    for role, count in Counter(container.role for container in event.containers).items():
        note_granted(state, role, count)


def take_containers(state: State) -> None:
    """Start an executor in each; give back what is not wanted any more."""
    ends = state.phase is Phase.ENDING
    while state.granted:
        container = state.granted.popleft()
        task = None if ends else state.take_wanted(container.role)
        if task is None:
            state.emit(ReleaseContainer(container.id))
            continue
        record = ContainerRecord(container, ContainerState.LAUNCHED, task.name)
        state.containers[container.id] = state.open[container.id] = record
        task.container = container.id
        state.move(task, S.ALLOCATED)
        state.move(task, S.LAUNCHED)
        state.emit(LaunchExecutor(container.id, task.name))
        wait_for_registration(state, task)
    if not ends:
        want_the_rest(state)
    note_allocation(state)


def want_the_rest(state: State) -> None:
    """Want more for the elastic roles, once the minimum of each is there."""
    gang = [name for name in state.released if name not in state.started]
    if any(state.counts[name][S.REQUESTED] and needs(state, name) for name in gang):
        return
    for name in state.released:
        if state.job.role(name).is_elastic:
            want_more(state, name)


def needs(state: State, name: str) -> bool:
    """Whether the gang cannot start without what a role has asked for."""
    role = state.job.role(name)
    return is_short(state, name) if role.is_elastic else role.tracking is not Tracking.SIDECAR


def _gangs_containers(state: State) -> Tuple[int, int]:
    """How many containers a gang that has not started lacks, and holds."""
    missing = held = 0
    if state.job.mode is Mode.GANG:
        for name in state.released:
            if name in state.started or state.job.role(name).tracking is Tracking.SIDECAR:
                continue
            counts = state.counts[name]
            missing += counts[S.REQUESTED] if needs(state, name) else 0
            held += sum(counts[each] for each in HOLDS_CONTAINER)
    return missing, held


def note_allocation(state: State) -> None:
    """Forget why the scheduler gave nothing, and how often it was tried, once all is there."""
    missing, held = _gangs_containers(state)
    if not missing:
        state.waiting = ""
        state.allocation_tries = 0 if held else state.allocation_tries
    if missing and held:
        if (Deadline.ALLOCATION,) not in state.waits:
            state.wait(Deadline.ALLOCATION, state.job.timeouts.allocation_s)
    else:
        state.waits.cancel(Deadline.ALLOCATION)


def give_back(state: State, wait: Wait) -> None:
    """Release the incomplete gang and retry later: the allocation deadline passed."""
    missing: Dict[str, str] = {}
    for name in state.released:
        if name in state.started or state.job.role(name).tracking is Tracking.SIDECAR:
            continue
        total = len(state.by_role[name])
        wanted = state.counts[name][S.REQUESTED]
        if wanted:
            missing[name] = f"{wanted} of {total} {name}"
        for task in state.by_role[name]:
            record = state.container_of(task)
            if task.state in HOLDS_CONTAINER or task.state is S.REQUESTED:
                state.waits.cancel(Deadline.REGISTRATION, task.name)
                state.waits.cancel(Deadline.READY, task.name)
                state.move(task, S.PENDING, "given back")
                task.container = None
            if record is not None:
                stop_container(state, record, 0.0, "given back: the gang is not complete")
    pause = min(ALLOCATION_BACKOFF_CAP_S, ALLOCATION_BACKOFF_S * 2.0**state.allocation_tries)
    pause *= 0.5 + state.jitter() / 2
    state.allocation_tries += 1
    text = "missing " + ", ".join(missing.values()) if missing else "not complete"
    where = f" in queue {state.job.queue}"
    why = f" ({state.waiting})" if state.waiting else ""
    state.add_line(
        StoryKind.ALLOCATION_TIMEOUT,
        f"after {wait.setting} the gang is not complete: {text}{where}{why}; everything"
        f" held was given back, next try in {pause:.1f} s",
        Weight.DECISION,
        missing=missing,
    )
    state.wait(Deadline.ALLOCATION_RETRY, pause)


def try_allocation_again(state: State, wait: Wait) -> None:
    """Want the whole gang once more."""
    for name in state.released:
        place_role(state, name)
    note_allocation(state)


# ------------------------------------------------------------------ executors call


def note_registered(state: State, record: ContainerRecord, message: Register) -> None:
    """An executor called, for the first time or again."""
    if record.state is ContainerState.STOPPING:
        state.emit(StopContainer(record.id, 0.0, "it is being ended"))
        return
    task = state.task_of(record.id)
    if record.state is ContainerState.LAUNCHED:
        state.move_container(record, ContainerState.LIVE)
        if task is not None:
            state.waits.cancel(Deadline.REGISTRATION, task.name)
            state.called.append(record)
    elif task is not None:
        _repeat(state, task, record, message)


def prepare_called(state: State) -> None:
    """Prepare each newly registered executor for its task."""
    while state.called:
        record = state.called.popleft()
        task = state.task_of(record.id)
        if task is None:
            continue
        if task.name in state.outside:
            wait_to_grow(state)
        elif task.state is S.LAUNCHED and (state.phase is Phase.ACTIVE or task.is_sidecar):
            _prepare(state, lowest(state, task), record)


def _repeat(state: State, task: TaskRecord, record: ContainerRecord, message: Register) -> None:
    """Send again what may have been lost with the connection that this one replaces."""
    if record.state is ContainerState.CLEANUP:
        state.emit(StopTask(record.id, task.session, 0.0, "said again"))
    elif task.state is S.REGISTERED and message.phase in ("idle", "ended"):
        _send_prepare(state, task, record)
    elif (message.session, message.restart) != task.number:
        return
    elif task.state is S.REGISTERED and message.phase == "ready":
        _become_ready(state, task, message.host, message.ports)
    elif task.state is S.READY and message.phase == "running":
        _become_running(state, task, message.offsets)
    elif task.state is S.READY and message.phase == "ready" and may_start(state, task):
        start(state, [task])


# ------------------------------------------------------------------ the barrier


def note_ready(state: State, container_id: str, message: Ready) -> None:
    """A task's folder stands, and its ports are held."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.REGISTERED:
        return
    if (message.session, message.restart) == task.number:
        _become_ready(state, task, message.host, message.ports)


def _become_ready(state: State, task: TaskRecord, host: str, ports: Mapping[str, int]) -> None:
    state.waits.cancel(Deadline.READY, task.name)
    task.host = host
    task.ports = dict(ports)
    state.move(task, S.READY)
    state.ready.append(task)


def start_ready(state: State) -> None:
    """Start what need not wait; look whether the gang of what must is whole."""
    while state.ready:
        task = state.ready.popleft()
        if task.name in state.outside:
            wait_to_grow(state)
        elif may_start(state, task):
            start(state, [task])
        else:
            check_barrier(state, state.released[task.role.name])


def may_start(state: State, task: TaskRecord) -> bool:
    """Whether a ready task need not wait (any more)."""
    by_itself = task.is_sidecar or state.job.mode is Mode.FCFS
    return by_itself or (task.role.name in state.started and task.name not in state.outside)


def gather_overdue(state: State, wait: Wait) -> None:
    """Start a gang without the rest of its elastic roles."""
    check_barrier(state, int(wait.name), late=True)


def check_barrier(state: State, wave: int, late: bool = False) -> None:
    """Start a wave's gang once all of it is ready."""
    roles = state.gang_roles(wave)
    if state.phase is not Phase.ACTIVE or not roles or roles[0] in state.started:
        return
    whole = all(state.counts[name][S.READY] == len(state.by_role[name]) for name in roles)
    if not whole and not _is_enough(state, wave, roles, late):
        return
    for name in roles:
        for task in state.by_role[name][state.first_not(name, READY) :]:
            put_outside(state, task)
    state.waits.cancel(Deadline.GATHER, str(wave))
    state.started.update(roles)
    state.since = state.now
    for name in roles:
        role, size = state.job.role(name), len(state.inside(name))
        if role.is_elastic:
            text = f"{size} of {role.least}..{role.instances} {name} begin"
            state.add_line(StoryKind.ELASTIC, text, Weight.DECISION, role=name, size=size)
    start(state, [task for name in roles for task in state.inside(name)])
    if newcomers(state):
        wait_to_grow(state)


def _is_enough(state: State, wave: int, roles: List[str], late: bool) -> bool:
    """Whether a gang with elastic roles begins without those that are not ready.

    Those that are on their way are waited for, and so is what a scheduler with room gives
    at once; neither for long.
    """
    least = {name: state.job.role(name).least for name in roles}
    if any(state.counts[name][S.READY] < least[name] for name in roles):
        return False
    if any(state.first_not(name, READY) < least[name] for name in roles):
        return False
    coming = is_on_its_way(state, roles)
    if not coming and state.session > 0:
        return True
    pause = pause_of(state)
    if not late:
        if (Deadline.GATHER, str(wave)) not in state.waits:
            state.gather_since[wave] = state.now
            state.wait(Deadline.GATHER, pause, str(wave))
        return False
    if coming and state.now - state.gather_since[wave] < MOST_PAUSES * pause:
        state.wait(Deadline.GATHER, pause, str(wave))
        return False
    return True


def start(state: State, tasks: List[TaskRecord]) -> None:
    """Run these programs over the cluster spec as it stands."""
    also = tasks[0] if tasks[0].is_sidecar or state.job.mode is Mode.FCFS else None
    names = tuple(task.name for task in tasks)
    gang = state.gang_of(tasks[0])
    restart = tasks[0].restarts if len(names) == 1 else 0
    members = state.members(also)
    state.emit(StartTasks(tasks[0].session, names, members, state.parameters, gang, restart))
    by_itself = names[0] if len(names) == 1 else ""
    state.wait(Deadline.START, state.job.timeouts.registration_s, by_itself)


def note_running(state: State, container_id: str, message: Running) -> None:
    """A program runs."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.READY:
        return
    if (message.session, message.restart) == task.number:
        _become_running(state, task, message.offsets, message.pid, tuple(message.gpus))


def _become_running(
    state: State,
    task: TaskRecord,
    offsets: Mapping[str, int],
    pid: int = 0,
    gpus: Tuple[str, ...] = (),
) -> None:
    task.pid, task.gpus = pid, gpus
    if offsets:
        task.note_run(offsets=dict(offsets))
    task.started = state.now
    state.waits.cancel(Deadline.START, task.name)
    state.move(task, S.RUNNING)
    if not task.is_sidecar and not state.count((S.READY,), state.started):
        state.waits.cancel(Deadline.START)
    if state.budgets.system_used and (Deadline.HEALTHY,) not in state.waits:
        state.wait(Deadline.HEALTHY, HEALTHY_S)
