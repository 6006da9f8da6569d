"""A new master takes over what the previous attempt left: the training is not disturbed.

The journal says which session it was, whose barriers were passed, what is done and what
budgets are left. Everything else comes from the scheduler's list of containers and from
the executors themselves, whose reports win. Executors have a while to register; then what is
missing is judged: a task that was running and whose executor did not register is lost, by the
system's fault; a gang that had not started yet is completed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Tuple

from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode
from tony_core.master.session.commands import Level
from tony_core.master.session.completion import begin_chief_grace
from tony_core.master.session.deadlines import ADOPTION_S, Deadline
from tony_core.master.session.elastic import (
    begin_round,
    elastic_roles,
    exclude_from_round,
    registered_outside,
    request_more,
    schedule_growth,
)
from tony_core.master.session.events import ContainersInherited
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    ContainerRun,
    ContainerState,
    DeferredEnds,
    Failure,
    Phase,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.session_restart import watch_application
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.stalls import restore_stalls
from tony_core.master.session.startup import (
    acquire_for_task,
    may_start,
    register_executor,
    request_elastic_rest,
    start_gang_if_ready,
    start_tasks,
    watch_allocation,
)
from tony_core.master.session.state import READY, State
from tony_core.master.session.task_ends import fail_session, failure_of, is_fatal, judge_end
from tony_core.master.session.task_restart import (
    may_restart,
    restore_restarts,
    schedule_restart,
    try_task_restart,
)
from tony_core.master.session.verdict import describe_end
from tony_core.protocol.messages import Register
from tony_core.schedulers.port import AppState

S = TaskState
IdleExecutors = Dict[str, Deque[ContainerRecord]]  # by role: idle executors without a task
_WITHOUT_PROGRAM = (
    "idle",
    "ended",
)  # two attempts: an executor that prepares reports itself idle, too

# ------------------------------------------------------------------ what was left


def note_inherited(state: State, event: ContainersInherited) -> None:
    """Restore what the journal says, or end the containers where it says nothing of use."""
    journal = event.journal
    for container in event.containers:
        record = ContainerRecord(container, inherited=True)
        state.containers[container.id] = state.held[container.id] = record
    state.began = state.now - float(_to_number(journal.get("elapsed_s")))
    outcome = journal.get("outcome")
    if not outcome and (not journal or int(_to_number(journal.get("session"))) < 0):
        # The programs of both masters would write to the same places otherwise.
        if state.held:
            is_one = len(state.held) == 1
            words = "belongs to no session: it is" if is_one else "belong to no session: they are"
            text = f"{_count_containers(len(state.held))} of the previous attempt {words}"
            state.add_line(StoryKind.TAKEOVER, f"{text} ended first", Level.DECISION)
        _discard_inherited(state, "it belongs to no session")
        return
    _restore(state, journal)
    watch_application(state)
    text = f"a new master takes over {_count_containers(len(event.containers))}"
    state.add_line(StoryKind.TAKEOVER, f"{text} of session {state.session}", Level.DECISION)
    if outcome:
        text = str(journal.get("diagnostics", ""))
        state.request_end(AppState(str(outcome)), text, 0.0)
        return
    if not state.waves:
        # Whatever runs there began after the last record was written: its reports would look like
        # those of the programs that this session starts now.
        _discard_inherited(state, "its session was only beginning")
        return
    state.move_phase(Phase.ADOPTING)
    state.set_deadline(Deadline.ADOPTION, ADOPTION_S)


def _count_containers(count: int) -> str:
    return "1 container" if count == 1 else f"{count} containers"


def _discard_inherited(state: State, reason: str) -> None:
    """End what the previous attempt left; the job goes on when nothing of it is there."""
    state.takeover.discards_inherited = True
    state.move_phase(Phase.ADOPTING)
    for record in list(state.held.values()):
        stop_container(state, record, 0.0, reason)


def _restore(state: State, journal: Mapping[str, Any]) -> None:
    """Restore the state that the journal holds."""
    state.session = int(journal["session"])
    state.budgets.load(journal.get("budgets", {}))
    state.parameters = journal.get("parameters")
    state.chief_done = bool(journal.get("chief_done"))
    state.result = str(journal.get("result") or "")
    state.root_cause = dict(journal.get("root", {}))
    roles = {role.name for role in state.job.roles}
    state.waves = {
        str(name): int(wave)
        for name, wave in dict(journal.get("released", {})).items()
        if name in roles
    }
    state.barrier_passed = {name for name in journal.get("started", ()) if name in roles}
    state.no_longer_awaited = {name for name in journal.get("untracked", ()) if name in roles}
    for task in state.tasks.values():
        task.session = state.session
    for name in journal.get("outside", ()):
        if name in state.tasks:
            exclude_from_round(state, state.tasks[name])
    state.elastic.regrouping = bool(journal.get("regrouping"))
    state.elastic.last_barrier_at = state.now
    restore_restarts(state, journal)
    restore_stalls(state, journal)
    for name in journal.get("done", ()):
        if name in state.tasks:
            state.move(state.tasks[name], S.SUCCEEDED, "before the takeover")
            state.finished_tasks.add(name)


# ------------------------------------------------------------------ executors register


def adopt_or_register(state: State, container_id: str, message: Register) -> None:
    """Adopt an executor of the previous attempt, or register one of this."""
    record = state.held.get(container_id)
    if record is None:
        return
    if state.phase is Phase.ADOPTING and record.state is ContainerState.LAUNCHED:
        _adopt(state, record, message)
    else:
        register_executor(state, record, message)


def _adopt(state: State, record: ContainerRecord, message: Register) -> None:
    """Take over the task that an executor of the previous attempt has."""
    state.takeover.registered.add(record.id)
    state.move_container(record, ContainerState.LIVE)
    task = state.tasks.get(message.task)
    is_expected = (
        task is not None
        and task.state is S.PENDING
        and task.role.name in state.waves
        and task.container is None
        and (message.session == state.session or task.is_sidecar)
    )
    is_same_attempt = task is not None and message.restart == task.restarts
    restarting = state.restarts.pending
    if (
        task is not None
        and is_expected
        and is_same_attempt
        and message.phase in ("ready", "running", "ended")
    ):
        _bind_task(task, record, message)
        container = record.container
        run = ContainerRun(task.session, container.id, container.node, container.log_url)
        task.runs.append(run)
        task.update_run(offsets=dict(message.offsets))
        # An ended program's result follows at once; until then it counts as running.
        state.move(task, S.READY if message.phase == "ready" else S.RUNNING, "taken over")
        task.started = state.now - message.ran_s if message.phase != "ready" else None
        # It may also have ended before it was ever started: that passes no barrier.
        ran = message.phase == "running" or message.ran_s > 0.0
        if message.phase != "ready" and ran and state.job.mode is not Mode.FCFS:
            state.barrier_passed.add(task.role.name)
    elif (
        task is not None
        and is_expected
        and message.phase in _WITHOUT_PROGRAM
        and task.name in restarting
    ):
        _bind_task(task, record, message)  # its next attempt goes there
    elif message.task and message.phase != "idle":
        if message.task not in state.finished_tasks:
            state.takeover.awaited_containers.add(record.id)
        stop_container(state, record, 0.0, "its task is done, or of another session")


def _bind_task(task: TaskRecord, record: ContainerRecord, message: Register) -> None:
    record.task = task.name
    task.container = record.id
    task.session = message.session
    task.host = message.host
    task.ports = dict(message.ports)
    task.gpus = tuple(message.gpus)


# ------------------------------------------------------------------ executors that do not register


def must_await_ends(state: State) -> bool:
    """Whether a program of the previous attempt may run beside those of this one."""
    if state.takeover.discards_inherited:
        return bool(state.held)
    while state.takeover.awaited_containers:
        one = next(iter(state.takeover.awaited_containers))
        if one in state.held:
            return True
        state.takeover.awaited_containers.discard(one)
    return False


def may_begin_job(state: State) -> bool:
    """Whether all that belonged to no session is gone, and the first may begin."""
    return state.takeover.discards_inherited and state.session < 0 and not state.held


def is_registration_over(state: State) -> bool:
    """Whether every inherited executor has registered, or its time is over."""
    if state.takeover.unregistered_stopped or must_await_ends(state):
        return False
    return (Deadline.ADOPTION,) not in state.deadlines or not state.any_container(
        ContainerState.LAUNCHED
    )


def stop_unregistered(state: State) -> None:
    """End the containers whose executors did not register."""
    state.takeover.unregistered_stopped = True
    state.deadlines.cancel(Deadline.ADOPTION)
    for record in list(state.held.values()):
        if record.inherited and record.state is ContainerState.LAUNCHED:
            stop_container(state, record, 0.0, "its executor did not register with the new master")
    hiding = [record.id for record in state.held.values() if _may_hide_program(state, record)]
    state.takeover.awaited_containers.update(hiding)


def _may_hide_program(state: State, record: ContainerRecord) -> bool:
    """Whether a program may still run there that would be started elsewhere now.

    No executor has reported it, and it would not be judged as lost: its role starts one by one, or
    its start was not written down any more.
    """
    if (
        not record.inherited
        or record.state is not ContainerState.STOPPING
        or record.id in state.takeover.registered
    ):
        return False
    name = record.container.role
    return any(
        role in state.waves
        and (role not in state.barrier_passed or state.by_role[role][0].is_sidecar)
        for role in ([name] if name in state.by_role else state.by_role)
    )


def may_resume(state: State) -> bool:
    """Whether executors have had their time to register, and no old program must end first."""
    return state.takeover.unregistered_stopped and not must_await_ends(state)


# ------------------------------------------------------------------ the session goes on


def resume_session(state: State) -> None:
    """Go on with the session: acquire containers for tasks that no executor reported."""
    state.move_phase(Phase.ACTIVE)
    state.unhandled.ended_tasks.clear()  # they are found among all
    ended = [
        t
        for t in state.tasks.values()
        if t.state in TERMINAL and t.name not in state.finished_tasks
    ]
    idle: IdleExecutors = {}
    for record in state.held.values():
        if record.state is ContainerState.LIVE and record.task is None:
            idle.setdefault(record.container.role, deque()).append(record)
    if state.elastic.regrouping or _has_index_gaps(state):
        _resume_round(state, idle)
        return
    lost = _acquire_missing(state, idle)
    for records in idle.values():
        for record in records:
            stop_container(state, record, 0.0, "not needed any more")
    state.takeover.deferred = DeferredEnds(deque(ended), lost)


def judge_deferred_ends(state: State) -> None:
    """Judge what was lost with the previous attempt, then one by one what ended meanwhile.

    Each in a step of its own: what follows from one end (the journal says that the chief is done)
    comes before the commands of the next.
    """
    deferred = state.takeover.deferred
    assert deferred is not None
    if deferred.lost is not None:
        _judge_lost(state, deferred.lost)
        deferred.lost = None
        # The bad ones first, and the worst: another may be the last of the tracked tasks.
        deferred.ended = deque(
            sorted(deferred.ended, key=lambda t: (t.state is S.SUCCEEDED, not is_fatal(state, t)))
        )
    elif deferred.ended:
        task = deferred.ended.popleft()
        if state.phase is Phase.ACTIVE:
            judge_end(state, task)
        elif task.state in (S.FAILED, S.LOST) and not task.is_sidecar:
            fail_session(state, failure_of(state, task))
    else:
        state.takeover.deferred = None
        _finish_resuming(state)


def _judge_lost(state: State, lost: List[Tuple[TaskRecord, Failure]]) -> None:
    """Judge what was lost with the previous attempt."""
    watch_allocation(state)
    if state.chief_done:
        state.chief_done = False  # its deadlines went with the previous attempt
        begin_chief_grace(state)
    for task, failure in sorted(lost, key=lambda item: item[0].role.has_task_restart):
        if not try_task_restart(state, task, failure):
            fail_session(state, failure)


def _finish_resuming(state: State) -> None:
    """Request the rest, and start what need not wait: all deferred ends are judged."""
    if state.phase is not Phase.ACTIVE:
        _start_ready_sidecars(state)
        return
    request_elastic_rest(state)
    if registered_outside(state):
        schedule_growth(state)
    for wave in sorted(set(state.waves.values())):
        start_gang_if_ready(state, wave)
    _start_ready(state)
    state.unhandled.completion_changed = True


def _has_index_gaps(state: State) -> bool:
    """Whether a task that is ready has one before it whose executor did not register."""
    for name in elastic_roles(state.job):
        if name in state.waves and name not in state.barrier_passed:
            ready = [task.state is S.READY for task in state.by_role[name]]
            if True in ready[state.count_leading(name, READY) :]:
                return True
    return False


def _resume_round(state: State, idle: IdleExecutors) -> None:
    """Begin the round that the previous attempt was about to begin, or that gaps demand."""
    for name in elastic_roles(state.job):
        for task in state.by_role[name]:
            if task.state is S.PENDING:
                _assign_idle_executor(state, task, idle)
    for task in state.tasks.values():
        if task.is_sidecar and task.state is S.PENDING and task.role.name in state.waves:
            acquire_for_task(state, task)  # sidecars go on over a round
    begin_round(state, "the round that the previous attempt began", 0.0)
    _start_ready_sidecars(state)


def _assign_idle_executor(state: State, task: TaskRecord, idle: IdleExecutors) -> None:
    """Give an idle executor to a task that is in no round yet."""
    if _bind_idle_executor(task, idle, task.role.name):
        state.move(task, S.LAUNCHED, quiet=True)


def _bind_idle_executor(task: TaskRecord, idle: IdleExecutors, *roles: str) -> bool:
    """Give the task an idle executor of one of these roles; return whether there was one."""
    records = next((idle[role] for role in roles if idle.get(role)), None)
    if records is None:
        return False
    record = records.popleft()
    record.task = task.name
    task.container = record.id
    return True


def _acquire_missing(state: State, idle: IdleExecutors) -> List[Tuple[TaskRecord, Failure]]:
    """Acquire containers for tasks that no executor reported; return those that were lost."""
    lost: List[Tuple[TaskRecord, Failure]] = []
    for name in list(state.waves):
        for task in state.by_role[name]:
            if task.state in TERMINAL or task.state in HOLDS_CONTAINER:
                continue
            if task.name in state.elastic.outside_round:
                _assign_idle_executor(state, task, idle)
                continue
            address_lost = name in state.address_bound and task.container is None
            if task.name in state.restarts.pending and not address_lost:
                schedule_restart(state, task)
                continue
            if name in state.barrier_passed and not task.is_sidecar:
                task.cause = ExitCause.NOT_TAKEN_OVER
                task.message = "its executor did not register after the master's end"
                failure = failure_of(state, task)
                state.move(task, S.LOST, describe_end(failure))
                if not state.chief_done:  # else the job has succeeded without it
                    lost.append((task, failure))
                continue
            there = _bind_idle_executor(task, idle, name, "")
            if not there and state.job.role(name).is_elastic:
                task.container = None
                continue  # request_more() counts what the role lacks
            acquire_for_task(state, task)
        if state.job.role(name).is_elastic:
            request_more(state, name)
    return lost


def _start_ready_sidecars(state: State) -> None:
    """Start the sidecars, which go on where the session does not."""
    for task in state.tasks.values():
        if task.is_sidecar and task.state is S.READY and may_restart(state, task):
            start_tasks(state, [task])


def _start_ready(state: State) -> None:
    """Start tasks whose start was lost with the previous attempt."""
    gangs: Dict[Tuple[str, ...], List[TaskRecord]] = {}
    for task in state.tasks.values():
        if task.state is S.READY and may_start(state, task):
            single = task.is_sidecar or state.job.mode is Mode.FCFS or task.restarts > 0
            key = (task.name,) if single else ("", str(state.waves[task.role.name]))
            gangs.setdefault(key, []).append(task)
    for tasks in gangs.values():
        start_tasks(state, tasks)


def _to_number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
