"""From the begin of a wave to running programs: containers, executors, the barrier.

A *wave* is the set of roles that the same event lets begin: at the start those that depend on
nothing, later those whose last dependency has succeeded. In ``GANG`` mode the tracked and
untracked tasks of a wave start together, once all of them are ready; sidecars, and every
task in ``FCFS`` mode, start as soon as they are ready themselves.

The allocation deadline runs only while the job holds some of a gang's containers but not all
(two jobs that each hold half would wait for ever). When it expires, the job releases what it
holds, names what was missing, and tries again after a growing delay.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Mapping, Tuple

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode, Tracking
from tony_core.master.session.commands import (
    LaunchExecutor,
    Level,
    PrepareTask,
    ReleaseContainer,
    StartTasks,
    StopContainer,
    StopTask,
)
from tony_core.master.session.deadlines import (
    ALLOCATION_BACKOFF_CAP_S,
    ALLOCATION_BACKOFF_S,
    HEALTHY_S,
    Deadline,
    PendingDeadline,
)
from tony_core.master.session.elastic import (
    MAX_PAUSES,
    elastic_pause,
    exclude_from_round,
    is_on_its_way,
    registered_outside,
    request_more,
    schedule_growth,
    take_lowest_index,
    wait_for_registration,
)
from tony_core.master.session.reconcile import count_granted, is_below_minimum
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    ContainerRecord,
    ContainerRun,
    ContainerState,
    Phase,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.state import READY, State
from tony_core.protocol.messages import Ready, Register, Running
from tony_core.schedulers.container_pool import Allocated

S = TaskState

# ------------------------------------------------------------------ waves


def _due_roles(state: State) -> List[str]:
    if len(state.waves) == len(state.job.roles):
        return []
    return [
        role.name
        for role in state.job.roles
        if role.name not in state.waves
        and all(state.has_succeeded(name) for name in role.depends_on)
    ]


def is_wave_due(state: State) -> bool:
    """Whether all that some role depends on has succeeded."""
    return bool(_due_roles(state))


def begin_wave(state: State) -> None:
    """Request containers for the roles whose dependencies have succeeded, as one wave."""
    wave = max(state.waves.values(), default=-1) + 1
    due = _due_roles(state)
    for name in due:
        state.waves[name] = wave
        acquire_for_role(state, name)
    wanted = [name for name in due if state.round_counts[name][S.REQUESTED]]
    if wanted:
        text = "asking for " + _describe_requests(state, wanted)
        state.add_line(StoryKind.WAVE_BEGUN, text, roles=wanted)
    watch_allocation(state)


def _describe_requests(state: State, roles: List[str]) -> str:
    """``2 x worker (2048 MB, 1 core), 1 x ps ...``."""
    parts = []
    for name in roles:
        need = state.job.role(name).resources
        gpus = f", {need.gpus} GPU" if need.gpus else ""
        size = f"{need.memory_mb} MB, {need.vcores} core{'s' * (need.vcores != 1)}{gpus}"
        parts.append(f"{state.round_counts[name][S.REQUESTED]} x {name} ({size})")
    return ", ".join(parts)


def acquire_for_role(state: State, name: str) -> None:
    """Acquire containers for a role's pending tasks; an elastic role's as far as it may."""
    elastic = state.job.role(name).is_elastic
    for task in state.by_role[name]:
        if task.state is not S.PENDING or task.name in state.finished_tasks:
            continue
        if task.name in state.restarts.pending:
            continue  # its own deadline starts its next attempt
        record = state.container_of(task)
        if not elastic or (
            record is not None and record.state in (ContainerState.LIVE, ContainerState.LAUNCHED)
        ):
            acquire_for_task(state, task)
        else:
            task.container = None
    if elastic:
        request_more(state, name)


def acquire_for_task(state: State, task: TaskRecord) -> None:
    """Give a pending task its old container, or request one."""
    record = state.container_of(task)
    if record is not None and record.state is ContainerState.LIVE:
        _prepare(state, task, record)
    elif record is not None and record.state is ContainerState.LAUNCHED:
        state.move(task, S.LAUNCHED)
        if (Deadline.REGISTRATION, task.name) not in state.deadlines:
            wait_for_registration(state, task)  # its last end had cancelled the deadline
    else:
        task.container = None
        state.move(task, S.REQUESTED)


def _prepare(state: State, task: TaskRecord, record: ContainerRecord) -> None:
    """Send a registered executor the task that it runs now."""
    state.move(task, S.REGISTERED)
    state.set_deadline(Deadline.READY, state.job.timeouts.registration_s, task.name)
    container = record.container
    last = task.runs[-1] if task.runs else None
    if last is None or (last.session, last.container) != (task.session, container.id):
        run = ContainerRun(task.session, container.id, container.node, container.log_url)
        task.runs.append(run)
    _send_prepare(state, task, record)


def _send_prepare(state: State, task: TaskRecord, record: ContainerRecord) -> None:
    same_ports = task.restarts > 0 and not task.new_ports
    state.emit(PrepareTask(record.id, task.name, *task.attempt, same_ports))


# ------------------------------------------------------------------ containers


def note_allocated(state: State, event: Allocated) -> None:
    """Keep granted containers, and take them off what was requested."""
    state.unhandled.granted.extend(event.containers)
    for role, count in Counter(container.role for container in event.containers).items():
        count_granted(state, role, count)


def launch_executors(state: State) -> None:
    """Launch an executor in each granted container; release what no task needs any more."""
    ends = state.phase is Phase.ENDING
    while state.unhandled.granted:
        container = state.unhandled.granted.popleft()
        task = None if ends else state.pop_requested(container.role)
        if task is None:
            state.emit(ReleaseContainer(container.id))
            continue
        record = ContainerRecord(container, task.name)
        state.containers[container.id] = state.held[container.id] = record
        task.container = container.id
        state.move(task, S.ALLOCATED)
        state.move(task, S.LAUNCHED)
        state.emit(LaunchExecutor(container.id, task.name))
        wait_for_registration(state, task)
    if not ends:
        request_elastic_rest(state)
    watch_allocation(state)


def request_elastic_rest(state: State) -> None:
    """Request more for the elastic roles, once the minimum of each is there."""
    gang = [name for name in state.waves if name not in state.barrier_passed]
    if any(state.round_counts[name][S.REQUESTED] and is_required(state, name) for name in gang):
        return
    for name in state.waves:
        if state.job.role(name).is_elastic:
            request_more(state, name)


def is_required(state: State, name: str) -> bool:
    """Whether the gang cannot start without what a role has asked for."""
    role = state.job.role(name)
    return (
        is_below_minimum(state, name) if role.is_elastic else role.tracking is not Tracking.SIDECAR
    )


def _count_gang_containers(state: State) -> Tuple[int, int]:
    """How many containers the gangs that have not started lack, and hold."""
    missing = held = 0
    if state.job.mode is Mode.GANG:
        for name in state.waves:
            if name in state.barrier_passed or state.job.role(name).tracking is Tracking.SIDECAR:
                continue
            counts = state.round_counts[name]
            missing += counts[S.REQUESTED] if is_required(state, name) else 0
            held += sum(counts[each] for each in HOLDS_CONTAINER)
    return missing, held


def watch_allocation(state: State) -> None:
    """Run the allocation deadline while a gang is held in part; forget why once it is whole."""
    missing, held = _count_gang_containers(state)
    if not missing:
        state.waiting = ""
        state.allocation_tries = 0 if held else state.allocation_tries
    if missing and held:
        if (Deadline.ALLOCATION,) not in state.deadlines:
            state.set_deadline(Deadline.ALLOCATION, state.job.timeouts.allocation_s)
    else:
        state.deadlines.cancel(Deadline.ALLOCATION)


def release_incomplete_gang(state: State, pending: PendingDeadline) -> None:
    """Release the incomplete gang and retry later: the allocation deadline expired."""
    missing: Dict[str, str] = {}
    for name in state.waves:
        if name in state.barrier_passed or state.job.role(name).tracking is Tracking.SIDECAR:
            continue
        total = len(state.by_role[name])
        wanted = state.round_counts[name][S.REQUESTED]
        if wanted:
            missing[name] = f"{wanted} of {total} {name}"
        for task in state.by_role[name]:
            record = state.container_of(task)
            if task.state in HOLDS_CONTAINER or task.state is S.REQUESTED:
                state.deadlines.cancel(Deadline.REGISTRATION, task.name)
                state.deadlines.cancel(Deadline.READY, task.name)
                state.move(task, S.PENDING, "released")
                task.container = None
            if record is not None:
                stop_container(state, record, 0.0, "the gang is not complete")
    pause = min(ALLOCATION_BACKOFF_CAP_S, ALLOCATION_BACKOFF_S * 2.0**state.allocation_tries)
    pause *= 0.5 + state.jitter() / 2
    state.allocation_tries += 1
    text = "missing " + ", ".join(missing.values()) if missing else "not complete"
    where = f" in queue {state.job.queue}"
    why = f" ({state.waiting})" if state.waiting else ""
    state.add_line(
        StoryKind.ALLOCATION_TIMEOUT,
        f"after {pending.setting} the gang is not complete: {text}{where}{why}; the job releases"
        f" its containers and requests them again in {pause:.1f} s",
        Level.DECISION,
        missing=missing,
    )
    state.set_deadline(Deadline.ALLOCATION_RETRY, pause)


def retry_allocation(state: State, pending: PendingDeadline) -> None:
    """Request the whole gang again."""
    for name in state.waves:
        acquire_for_role(state, name)
    watch_allocation(state)


# ------------------------------------------------------------------ executors register


def register_executor(state: State, record: ContainerRecord, message: Register) -> None:
    """Mark the container of a new executor as live; send again what a lost connection lost."""
    if record.state is ContainerState.STOPPING:
        state.emit(StopContainer(record.id, 0.0, "it is being ended"))
        return
    task = state.task_of(record.id)
    if record.state is ContainerState.LAUNCHED:
        state.move_container(record, ContainerState.LIVE)
        if task is not None:
            state.deadlines.cancel(Deadline.REGISTRATION, task.name)
            state.unhandled.registered.append(record)
    elif task is not None:
        _resend(state, task, record, message)


def prepare_registered(state: State) -> None:
    """Prepare each newly registered executor for its task."""
    while state.unhandled.registered:
        record = state.unhandled.registered.popleft()
        task = state.task_of(record.id)
        if task is None:
            continue
        if task.name in state.elastic.outside_round:
            schedule_growth(state)
        elif task.state is S.LAUNCHED and (state.phase is Phase.ACTIVE or task.is_sidecar):
            _prepare(state, take_lowest_index(state, task), record)


def _resend(state: State, task: TaskRecord, record: ContainerRecord, message: Register) -> None:
    """Send again what may have been lost with the connection that this one replaces."""
    state.preemptions.repeat(task.name)
    if record.state is ContainerState.CLEANUP:
        state.emit(StopTask(record.id, task.session, 0.0, "sent again"))
    elif task.state is S.REGISTERED and message.phase in ("idle", "ended"):
        _send_prepare(state, task, record)
    elif (message.session, message.restart) != task.attempt:
        return
    elif task.state is S.REGISTERED and message.phase == "ready":
        _become_ready(state, task, message.host, message.ports)
    elif task.state is S.READY and message.phase == "running":
        _become_running(state, task, message.offsets)
    elif task.state is S.READY and message.phase == "ready" and may_start(state, task):
        start_tasks(state, [task])


# ------------------------------------------------------------------ the barrier


def note_ready(state: State, container_id: str, message: Ready) -> None:
    """Mark a task as ready: its folder is laid out, and its ports are held."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.REGISTERED:
        return
    if (message.session, message.restart) == task.attempt:
        _become_ready(state, task, message.host, message.ports)


def _become_ready(state: State, task: TaskRecord, host: str, ports: Mapping[str, int]) -> None:
    state.deadlines.cancel(Deadline.READY, task.name)
    task.host = host
    task.ports = dict(ports)
    state.move(task, S.READY)
    state.unhandled.ready.append(task)


def start_ready_tasks(state: State) -> None:
    """Start ready tasks that need not wait, and each gang that is ready as a whole."""
    while state.unhandled.ready:
        task = state.unhandled.ready.popleft()
        if task.name in state.elastic.outside_round:
            schedule_growth(state)
        elif may_start(state, task):
            start_tasks(state, [task])
        else:
            start_gang_if_ready(state, state.waves[task.role.name])


def may_start(state: State, task: TaskRecord) -> bool:
    """Whether a ready task need not wait (any more)."""
    by_itself = task.is_sidecar or state.job.mode is Mode.FCFS
    return by_itself or (
        task.role.name in state.barrier_passed and task.name not in state.elastic.outside_round
    )


def start_without_rest(state: State, pending: PendingDeadline) -> None:
    """Start a gang without the rest of its elastic roles."""
    start_gang_if_ready(state, int(pending.name), is_wait_over=True)


def start_gang_if_ready(state: State, wave: int, is_wait_over: bool = False) -> None:
    """Start a wave's gang once all of it is ready."""
    roles = state.gang_roles(wave)
    if state.phase is not Phase.ACTIVE or not roles or roles[0] in state.barrier_passed:
        return
    whole = all(state.round_counts[name][S.READY] == len(state.by_role[name]) for name in roles)
    if not whole and not _is_complete_enough(state, wave, roles, is_wait_over):
        return
    for name in roles:
        for task in state.by_role[name][state.count_leading(name, READY) :]:
            exclude_from_round(state, task)
    state.deadlines.cancel(Deadline.ELASTIC_BARRIER, str(wave))
    state.barrier_passed.update(roles)
    state.elastic.last_barrier_at = state.now
    for name in roles:
        role, size = state.job.role(name), len(state.in_round(name))
        if role.is_elastic:
            text = f"{size} of {role.least}..{role.instances} {name} begin"
            state.add_line(StoryKind.ELASTIC, text, Level.DECISION, role=name, size=size)
    start_tasks(state, [task for name in roles for task in state.in_round(name)])
    if registered_outside(state):
        schedule_growth(state)


def _is_complete_enough(state: State, wave: int, roles: List[str], is_wait_over: bool) -> bool:
    """Whether a gang with elastic roles begins without those that are not ready.

    It waits a short while for those that are on their way, and for what a scheduler with room
    grants at once.
    """
    least = {name: state.job.role(name).least for name in roles}
    if any(state.round_counts[name][S.READY] < least[name] for name in roles):
        return False
    if any(state.count_leading(name, READY) < least[name] for name in roles):
        return False
    on_its_way = is_on_its_way(state, roles)
    if not on_its_way and state.session > 0:
        return True
    pause = elastic_pause(state)
    if not is_wait_over:
        if (Deadline.ELASTIC_BARRIER, str(wave)) not in state.deadlines:
            state.elastic.barrier_since[wave] = state.now
            state.set_deadline(Deadline.ELASTIC_BARRIER, pause, str(wave))
        return False
    if on_its_way and state.now - state.elastic.barrier_since[wave] < MAX_PAUSES * pause:
        state.set_deadline(Deadline.ELASTIC_BARRIER, pause, str(wave))
        return False
    return True


def start_tasks(state: State, tasks: List[TaskRecord]) -> None:
    """Run these programs over the cluster spec as it stands."""
    single = tasks[0] if tasks[0].is_sidecar or state.job.mode is Mode.FCFS else None
    names = tuple(task.name for task in tasks)
    gang = state.gang_of(tasks[0])
    restart = tasks[0].restarts if len(names) == 1 else 0
    members = state.members(single)
    state.emit(StartTasks(tasks[0].session, names, members, state.parameters, gang, restart))
    by_itself = names[0] if len(names) == 1 else ""
    state.set_deadline(Deadline.START, state.job.timeouts.registration_s, by_itself)


def note_running(state: State, container_id: str, message: Running) -> None:
    """Mark a task as running: its executor reports that the program has started."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.READY:
        return
    if (message.session, message.restart) == task.attempt:
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
        task.update_run(offsets=dict(offsets))
    task.started = state.now
    state.deadlines.cancel(Deadline.START, task.name)
    state.move(task, S.RUNNING)
    if not task.is_sidecar and not state.count((S.READY,), state.barrier_passed):
        state.deadlines.cancel(Deadline.START)
    if state.budgets.system_used and (Deadline.HEALTHY,) not in state.deadlines:
        state.set_deadline(Deadline.HEALTHY, HEALTHY_S)
