"""A later master takes over what an earlier one left: the training is not disturbed.

The journal says which session it was, whose barriers were passed, what is done and what
budgets are left. Everything else comes from the scheduler's list of containers and from
the executors themselves, whose reports win. Executors have a while to call (or to be
called); then what is missing is judged: a task that was running and did not come back is
lost, by the system's fault; a gang that had not started yet is completed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Tuple

from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode
from tony_core.master.session.commands import Weight
from tony_core.master.session.completion import follow_chief
from tony_core.master.session.elastic import (
    begin_round,
    elastic_roles,
    newcomers,
    put_outside,
    wait_to_grow,
    want_more,
)
from tony_core.master.session.events import ContainersInherited
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    ContainerRecord,
    ContainerState,
    Failure,
    Phase,
    Run,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.recovery import watch_application
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.startup import (
    check_barrier,
    may_start,
    note_allocation,
    note_registered,
    place,
    start,
    want_the_rest,
)
from tony_core.master.session.state import READY, Late, State
from tony_core.master.session.task_ends import fail, failure_of, is_fatal, judge
from tony_core.master.session.task_restart import (
    comes_back,
    goes_on,
    restore_restarts,
    wait_for_turn,
)
from tony_core.master.session.verdict import how_it_ended
from tony_core.master.session.waits import Deadline
from tony_core.protocol.messages import Register
from tony_core.schedulers.port import AppState

S = TaskState
Spare = Dict[str, Deque[ContainerRecord]]  # by role: idle executors without a task
ADOPTION_S = 20.0
_BETWEEN = ("idle", "ended")  # two tries: an executor that prepares reports itself idle, too

# ------------------------------------------------------------------ what the earlier master left


def note_inherited(state: State, event: ContainersInherited) -> None:
    """An earlier master left these containers, and this journal."""
    journal = event.journal
    for container in event.containers:
        record = ContainerRecord(container, ContainerState.LAUNCHED, inherited=True)
        state.containers[container.id] = state.open[container.id] = record
    state.began = state.now - float(_number(journal.get("elapsed_s")))
    outcome = journal.get("outcome")
    if not outcome and (not journal or int(_number(journal.get("session"))) < 0):
        # The programs of both masters would write to the same places otherwise.
        if state.open:
            text = f"{len(state.open)} containers of an earlier master belong to no session"
            state.add_line(StoryKind.TAKEOVER, f"{text}: they are ended first", Weight.DECISION)
        _end_what_is_left(state, "it belongs to no session")
        return
    _restore(state, journal)
    watch_application(state)
    text = f"a new master takes over {len(event.containers)} containers"
    state.add_line(StoryKind.TAKEOVER, f"{text} of session {state.session}", Weight.DECISION)
    if outcome:
        text = str(journal.get("diagnostics", ""))
        state.request_end(AppState(str(outcome)), text, 0.0)
        return
    if not state.released:
        # Whatever runs there began after the last record that was written: it could not be
        # told from the programs that this session starts now.
        _end_what_is_left(state, "its session was only beginning")
        return
    state.move_phase(Phase.ADOPTING)
    state.wait(Deadline.ADOPTION, ADOPTION_S)


def _end_what_is_left(state: State, reason: str) -> None:
    """Go on when nothing of the earlier master's is there any more."""
    state.leaving = True
    state.move_phase(Phase.ADOPTING)
    for record in list(state.open.values()):
        stop_container(state, record, 0.0, reason)


def _restore(state: State, journal: Mapping[str, Any]) -> None:
    """Take over what the journal says."""
    state.session = int(journal["session"])
    state.budgets.restore(journal.get("budgets", {}))
    state.parameters = journal.get("parameters")
    state.chief_done = bool(journal.get("chief_done"))
    state.result = str(journal.get("result") or "")
    state.root = dict(journal.get("root", {}))
    roles = {role.name for role in state.job.roles}
    state.released = {
        str(name): int(wave)
        for name, wave in dict(journal.get("released", {})).items()
        if name in roles
    }
    state.started = {name for name in journal.get("started", ()) if name in roles}
    state.untracked = {name for name in journal.get("untracked", ()) if name in roles}
    for task in state.tasks.values():
        task.session = state.session
    for name in journal.get("outside", ()):
        if name in state.tasks:
            put_outside(state, state.tasks[name])
    state.regrouping = bool(journal.get("regrouping"))
    state.since = state.now
    restore_restarts(state, journal)
    for name in journal.get("done", ()):
        if name in state.tasks:
            state.move(state.tasks[name], S.SUCCEEDED, "before the takeover")
            state.done.add(name)


# ------------------------------------------------------------------ executors call


def note_call(state: State, container_id: str, message: Register) -> None:
    """An executor called: of this master, or of the earlier one."""
    record = state.open.get(container_id)
    if record is None:
        return
    if state.phase is Phase.ADOPTING and record.state is ContainerState.LAUNCHED:
        _adopt(state, record, message)
    else:
        note_registered(state, record, message)


def _adopt(state: State, record: ContainerRecord, message: Register) -> None:
    """Take over the task that an executor of the earlier master has."""
    state.callers.add(record.id)
    state.move_container(record, ContainerState.LIVE)
    task = state.tasks.get(message.task)
    fits = (
        task is not None
        and task.state is S.PENDING
        and task.role.name in state.released
        and task.container is None
        and (message.session == state.session or task.is_sidecar)
    )
    same = task is not None and message.restart == task.restarts
    if task is not None and fits and same and message.phase in ("ready", "running", "ended"):
        _bind_task(task, record, message)
        container = record.container
        task.runs.append(Run(task.session, container.id, container.node, container.log_url))
        task.note_run(offsets=dict(message.offsets))
        # An ended program's result follows at once; until then it counts as running.
        state.move(task, S.READY if message.phase == "ready" else S.RUNNING, "taken over")
        task.started = state.now - message.ran_s if message.phase != "ready" else None
        # It may also have ended before it was ever started: that passes no barrier.
        ran = message.phase == "running" or message.ran_s > 0.0
        if message.phase != "ready" and ran and state.job.mode is not Mode.FCFS:
            state.started.add(task.role.name)
    elif task is not None and fits and task.name in state.returning and message.phase in _BETWEEN:
        _bind_task(task, record, message)  # its next try goes there
    elif message.task and message.phase != "idle":
        if message.task not in state.done:
            state.strangers.add(record.id)
        stop_container(state, record, 0.0, "its task is done, or of another session")


def _bind_task(task: TaskRecord, record: ContainerRecord, message: Register) -> None:
    record.task = task.name
    task.container = record.id
    task.session = message.session
    task.host = message.host
    task.ports = dict(message.ports)
    task.gpus = tuple(message.gpus)


# ------------------------------------------------------------------ who did not call


def waits_for_ends(state: State) -> bool:
    """Whether something of the earlier master's is there that this one would run beside."""
    if state.leaving:
        return bool(state.open)
    while state.strangers:
        one = next(iter(state.strangers))
        if one in state.open:
            return True
        state.strangers.discard(one)
    return False


def may_begin(state: State) -> bool:
    """Whether all that belonged to no session is gone, and the first may begin."""
    return state.leaving and state.session < 0 and not state.open and not _is_due(state)


def is_time_to_judge(state: State) -> bool:
    """Whether every inherited executor has called, or its time is over."""
    if state.judged or waits_for_ends(state) or _is_due(state):
        return False
    return (Deadline.ADOPTION,) not in state.waits or not state.any_container(
        ContainerState.LAUNCHED
    )


def end_silent(state: State) -> None:
    """End the containers whose executors did not call."""
    state.judged = True
    state.waits.cancel(Deadline.ADOPTION)
    for record in list(state.open.values()):
        if record.state is ContainerState.LAUNCHED:
            stop_container(state, record, 0.0, "its executor did not call the new master")
    state.strangers.update(x.id for x in state.open.values() if _may_hide(state, x))


def _may_hide(state: State, record: ContainerRecord) -> bool:
    """Whether a program may still run there that would be started elsewhere now.

    No executor has reported it, and it would not be judged as lost: its role starts one by one, or
    its start was not written down any more.
    """
    if (
        not record.inherited
        or record.state is not ContainerState.STOPPING
        or record.id in state.callers
    ):
        return False
    name = record.container.role
    return any(
        role in state.released and (role not in state.started or state.by_role[role][0].is_sidecar)
        for role in ([name] if name in state.by_role else state.by_role)
    )


def is_adopted(state: State) -> bool:
    """Whether the session may go on."""
    return state.judged and not waits_for_ends(state) and not _is_due(state)


def _is_due(state: State) -> bool:
    """Whether a deadline of this very moment has yet to be dealt with."""
    due = state.waits.next()
    return due is not None and due <= state.now


# ------------------------------------------------------------------ the session goes on


def go_on(state: State) -> None:
    """Go on with the session: place the tasks that no executor reported."""
    state.move_phase(Phase.ACTIVE)
    state.ended.clear()  # they are found among all
    ended = [t for t in state.tasks.values() if t.state in TERMINAL and t.name not in state.done]
    spare: Spare = {}
    for record in state.open.values():
        if record.state is ContainerState.LIVE and record.task is None:
            spare.setdefault(record.container.role, deque()).append(record)
    if state.regrouping or _has_gaps(state):
        _go_on_with_round(state, spare)
        return
    lost = _place_missing(state, spare)
    for records in spare.values():
        for record in records:
            stop_container(state, record, 0.0, "not wanted any more")
    state.late = Late(deque(ended), lost)


def judge_late(state: State) -> None:
    """Judge what was lost with the earlier master, then one by one what ended meanwhile.

    Each in a step of its own: what follows from one end (the journal says that the chief is done)
    comes before the commands of the next.
    """
    late = state.late
    assert late is not None
    if late.lost is not None:
        _judge_lost(state, late.lost)
        late.lost = None
        # The bad ones first, and the worst: another may be the last of the tracked tasks.
        order = sorted(late.ended, key=lambda t: (t.state is S.SUCCEEDED, not is_fatal(state, t)))
        late.ended = deque(order)
    elif late.ended:
        task = late.ended.popleft()
        if state.phase is Phase.ACTIVE:
            judge(state, task)
        elif task.state in (S.FAILED, S.LOST) and not task.is_sidecar:
            fail(state, failure_of(state, task))
    else:
        state.late = None
        _start_what_is_ready(state)


def _judge_lost(state: State, lost: List[Tuple[TaskRecord, Failure]]) -> None:
    """Judge what was lost with the earlier master."""
    note_allocation(state)
    if state.chief_done:
        state.chief_done = False  # its deadlines were the earlier master's
        follow_chief(state)
    for task, failure in sorted(lost, key=lambda item: item[0].role.has_task_restart):
        if not comes_back(state, task, failure):
            fail(state, failure)


def _start_what_is_ready(state: State) -> None:
    """Ask for the rest, and start what waits for nothing any more: all that is late is judged."""
    if state.phase is not Phase.ACTIVE:
        _start_ready_sidecars(state)
        return
    want_the_rest(state)
    if newcomers(state):
        wait_to_grow(state)
    for wave in sorted(set(state.released.values())):
        check_barrier(state, wave)
    _start_ready(state)
    state.has_ended = True


def _has_gaps(state: State) -> bool:
    """Whether a task that is ready has one before it whose executor did not call."""
    for name in elastic_roles(state.job):
        if name in state.released and name not in state.started:
            ready = [task.state is S.READY for task in state.by_role[name]]
            if True in ready[state.first_not(name, READY) :]:
                return True
    return False


def _go_on_with_round(state: State, spare: Spare) -> None:
    """The earlier master was about to begin a round, or this one must."""
    for name in elastic_roles(state.job):
        for task in state.by_role[name]:
            if task.state is S.PENDING:
                _take_spare(state, task, spare)
    for task in state.tasks.values():
        if task.is_sidecar and task.state is S.PENDING and task.role.name in state.released:
            place(state, task)  # sidecars go on over a round
    begin_round(state, "the round that an earlier master began", 0.0)
    _start_ready_sidecars(state)


def _take_spare(state: State, task: TaskRecord, spare: Spare) -> None:
    """Bind an idle executor to a task that is in no round yet."""
    if _bind_spare(task, spare, task.role.name):
        state.move(task, S.LAUNCHED, quiet=True)


def _bind_spare(task: TaskRecord, spare: Spare, *roles: str) -> bool:
    """Whether there was an idle executor of one of these roles, which is the task's now."""
    records = next((spare[role] for role in roles if spare.get(role)), None)
    if records is None:
        return False
    record = records.popleft()
    record.task = task.name
    task.container = record.id
    return True


def _place_missing(state: State, spare: Spare) -> List[Tuple[TaskRecord, Failure]]:
    """Place the tasks that no executor reported; those that were lost, and how."""
    lost: List[Tuple[TaskRecord, Failure]] = []
    for name in list(state.released):
        for task in state.by_role[name]:
            if task.state in TERMINAL or task.state in HOLDS_CONTAINER:
                continue
            if task.name in state.outside:
                _take_spare(state, task, spare)
                continue
            bound = name in state.in_place and task.container is None
            if task.name in state.returning and not bound:
                wait_for_turn(state, task)
                continue
            if name in state.started and not task.is_sidecar:
                task.cause = ExitCause.NOT_TAKEN_OVER
                task.message = "its executor did not come back after the master's end"
                failure = failure_of(state, task)
                state.move(task, S.LOST, how_it_ended(failure))
                if not state.chief_done:  # else the job has succeeded without it
                    lost.append((task, failure))
                continue
            there = _bind_spare(task, spare, name, "")
            if not there and state.job.role(name).is_elastic:
                task.container = None
                continue  # only so many are asked for as the role lacks
            place(state, task)
        if state.job.role(name).is_elastic:
            want_more(state, name)
    return lost


def _start_ready_sidecars(state: State) -> None:
    """Start the sidecars, which go on where the session does not."""
    for task in state.tasks.values():
        if task.is_sidecar and task.state is S.READY and goes_on(state, task):
            start(state, [task])


def _start_ready(state: State) -> None:
    """Start tasks whose start was lost with the earlier master."""
    gangs: Dict[Tuple[str, ...], List[TaskRecord]] = {}
    for task in state.tasks.values():
        if task.state is S.READY and may_start(state, task):
            single = task.is_sidecar or state.job.mode is Mode.FCFS or task.restarts > 0
            key = (task.name,) if single else ("", str(state.released[task.role.name]))
            gangs.setdefault(key, []).append(task)
    for tasks in gangs.values():
        start(state, tasks)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
