"""Programs that stand still: when that is a stall of the job, who lags, and what follows.

Theory of operation
===================

An executor judges its own program (``tony_executor/monitoring/stall.py``) and reports that it
stands still, what its stacks show, and that it moves again. Here is what only the master sees:

*Whose stall.* In a gang the stall is the gang's; with FCFS it is each task's own. A program whose
steps have stopped makes one at once. Programs that are only *quiet* (no step yet) make one when all
of the gang's running programs stand still: the others wait for rank 0 while it downloads. One that
is *suspended* by a signal is no stall, and while there is one in the gang nothing is done about
those who wait for it.

*Evidence.* The executors of those that stand still look at their stacks by themselves. Those of a
gang's *silent* programs are asked to: they move by their own rule, but report no step, and may spin
in a collective or be the one that does not join it (:mod:`.lagging`).

*An episode* begins with one line of the story and ends with one. The line comes when all stacks are
known, at most :data:`EVIDENCE_S` after the first program was seen to stand still.

*Action.* ``warn`` writes the line. ``restart`` and ``fail`` end the program of the task that lags,
by its executor and as failed for :attr:`ExitCause.STALLED`; what follows is what follows from
any failure: a restart of the task or of the session, which the program's budget pays for, or with
``fail`` the end. Those that still stand when as long as a stall takes has passed are acted upon
again, by new evidence: another task's restart did not help them. Programs that were warned of
preemption are left alone: they may have saved, and wait for their end.

*Takeover.* That a line was written is in the journal; that programs stand still, in each
executor's Register. A next master acts where it finds both, and writes no line again; it asks
silent programs itself. (The journal comes first: of a master that dies between the two only the end
of the episode has a line.)
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Sequence

from tony_core.durations import describe_duration
from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.job.spec import Mode, StallAction
from tony_core.master.session.commands import DumpStacks, EndProgram, Level
from tony_core.master.session.deadlines import (
    CLEANUP_ALLOWANCE_S,
    Deadline,
    PendingDeadline,
)
from tony_core.master.session.lagging import Lag, StandingTask, find_lagging
from tony_core.master.session.records import (
    TERMINAL,
    Episode,
    Phase,
    StalledProgram,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.state import State
from tony_core.master.session.task_ends import give_up_task
from tony_core.protocol.messages import Register, StacksDumped, Stalled, StallKind

S = TaskState
EVIDENCE_S = 20.0
GANG = ""  # the one episode of a gang
MOST_NAMED = 10

# ------------------------------------------------------------------ reports of executors


def note_stalled(state: State, container_id: str, message: Stalled) -> None:
    """Keep that a program stands still, or that it moves again."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.RUNNING:
        return
    if (message.session, message.restart) != task.attempt:
        return
    if not message.kind:
        if state.stalls.still.pop(task.name, None) is not None:
            state.deadlines.cancel(Deadline.STALLED_PROGRAM, task.name)
            state.stalls.is_stale = True
        return
    before = state.stalls.still.get(task.name)
    since = state.now - message.still_s if before is None else before.since
    state.stalls.stacks.pop(task.name, None)
    state.stalls.still[task.name] = StalledProgram(message, since)
    if message.step is not None and task.step is None:
        task.step = message.step
    state.stalls.is_stale = True


def note_stacks(state: State, container_id: str, message: StacksDumped) -> None:
    """Keep what the stacks of a silent program show, where they were asked for."""
    task = state.task_of(container_id)
    if task is None or (message.session, message.restart) != task.attempt:
        return
    if task.name in state.stalls.stacks:
        state.stalls.stacks[task.name] = message
        state.stalls.is_stale = True


def note_registered(state: State, container_id: str, message: Register) -> None:
    """Take what a Register says of a stall, and send again what a lost connection lost."""
    task = state.task_of(container_id)
    if task is None or message.phase != "running":
        return
    fields = message.stalled or {"session": message.session, "restart": message.restart}
    note_stalled(state, container_id, Stalled(**fields))
    pending = state.deadlines.get(Deadline.STALLED_PROGRAM, task.name)
    if pending is not None:
        _end_program(state, task, state.stalls.why_ended.get(task.name, ""))
    if task.name in state.stalls.stacks:
        _ask_for_stacks(state, task)


# ------------------------------------------------------------------ episodes


def judge_stalls(state: State) -> None:
    """Begin and end episodes, by the programs that stand still now."""
    stalls = state.stalls
    stalls.is_stale = False
    for group in sorted({*(_group_of(state, name) for name in stalls.still), *stalls.episodes}):
        pending = (Deadline.STALL, group) if group else (Deadline.STALL,)
        if not _is_stalled(state, group):
            state.deadlines.cancel(*pending)
            state.stalls.stacks.clear()
            if group in stalls.episodes:
                _end_episode(state, group)
        elif group not in stalls.episodes or group in stalls.unhandled:
            if pending not in state.deadlines:
                state.set_deadline(Deadline.STALL, EVIDENCE_S, group)
                for task in _silent_in(state, group):
                    _ask_for_stacks(state, task)
            if _is_evidence_complete(state, group):
                state.set_deadline(Deadline.STALL, 0.0, group)


def _ask_for_stacks(state: State, task: TaskRecord) -> None:
    state.stalls.stacks[task.name] = None
    names = _list(state.stalls.still)
    reason = f"{names} {'has' if len(state.stalls.still) == 1 else 'have'} stalled"
    state.emit(DumpStacks(task.container or "", *task.attempt, reason))


def begin_episode(state: State, pending: PendingDeadline) -> None:
    """Write that programs stand still, and act as the job says."""
    group, stalls = pending.name, state.stalls
    if state.phase is not Phase.ACTIVE or not _is_stalled(state, group):
        return
    lag = _find_lag(state, group)
    still = _still_in(state, group)
    text = describe(state, group, lag)
    if group in stalls.episodes:
        stalls.episodes[group] = stalls.episodes[group]._replace(text=text)
    else:
        since = min(stalls.still[task.name].since for task in still)
        stalls.episodes[group] = Episode(since, text)
        stalls.changes += 1
        lagging = state.tasks[lag.names[0]] if len(lag.names) == 1 else None
        state.add_line(
            StoryKind.STALLED,
            text,
            Level.DECISION,  # a next master counts on it
            lagging or (still[0] if len(still) == 1 else None),
            tasks=[task.name for task in still][:MOST_NAMED],
            count=len(still),
            lagging=list(lag.names)[:MOST_NAMED],
            still_s=round(state.now - since, 1),
            step=min((t.step for t in still if t.step is not None), default=None),
        )
    stalls.unhandled.discard(group)
    stalls.stacks.clear()
    action = state.job.timeouts.stall_action
    suspended = [task.name for task in still if _kind(state, task) == StallKind.SUSPENDED]
    if action is StallAction.WARN:
        return
    task = state.tasks[lag.names[0]] if lag.names and lag.is_certain else still[0]
    is_warned = any(each.name in state.preemptions.sent for each in (*still, task))
    if not suspended and not is_warned:
        setting = f"tony.task.stall-action={action.value}"
        _end_program(state, task, f"{text} ({setting})")
    again_s = (state.job.stall_timeout(task.role) or 0.0) + EVIDENCE_S
    state.set_deadline(
        Deadline.STALL_REPEAT, state.job.timeouts.kill_grace_s + again_s, group, task=task.name
    )


def repeat_action(state: State, pending: PendingDeadline) -> None:
    """Act again upon an episode that lasts, once its evidence is there."""
    if pending.name in state.stalls.episodes:
        state.stalls.unhandled.add(pending.name)
        state.stalls.is_stale = True


def _end_program(state: State, task: TaskRecord, why: str) -> None:
    """End the program of a task as one that failed; its executor reports, or a deadline passes."""
    grace_s = state.job.timeouts.kill_grace_s
    state.stalls.why_ended[task.name] = why
    state.emit(
        EndProgram(task.container or "", *task.attempt, grace_s, ExitCause.STALLED.value, why)
    )
    state.set_deadline(Deadline.STALLED_PROGRAM, grace_s + CLEANUP_ALLOWANCE_S, task.name)


def give_up_stalled(state: State, pending: PendingDeadline) -> None:
    """Give up a task whose executor could not end its program."""
    task = state.tasks[pending.name]
    record = state.container_of(task)
    if task.state is not S.RUNNING or state.phase is not Phase.ACTIVE:
        return
    if record is not None:
        stop_container(state, record, 0.0, f"waited for {pending.reason}")
    message = state.stalls.why_ended.get(task.name, "it stands still")
    give_up_task(state, task, ExitCause.STALLED, message)


def _end_episode(state: State, group: str) -> None:
    since = state.stalls.episodes.pop(group).since
    state.stalls.unhandled.discard(group)
    state.deadlines.cancel(*((Deadline.STALL_REPEAT, group) if group else (Deadline.STALL_REPEAT,)))
    state.stalls.changes += 1
    running = [task for task in _watched(state, group) if task.state is S.RUNNING]
    whose = group or ("the programs" if len(running) != 1 else running[0].name)
    moves = "move" if whose == "the programs" else "moves"
    how = f"{whose} {moves} again" if running else "the programs that stood still have ended"
    lasted = f" after {describe_duration(state.now - since)}" if since is not None else ""
    task = state.tasks.get(group) or (running[0] if len(running) == 1 else None)
    state.add_line(StoryKind.STALL_OVER, f"{how}{lasted}", Level.DECISION, task)


def restore_stalls(state: State, journal: Mapping[str, Any]) -> None:
    """Take over what the previous attempt wrote in the story."""
    for group in journal.get("stalled", ()):
        if group == GANG or group in state.tasks:
            state.stalls.episodes[group] = Episode(None, "")
            state.stalls.unhandled.add(group)
    state.stalls.is_stale = True


# ------------------------------------------------------------------ what holds


def _group_of(state: State, name: str) -> str:
    return name if state.job.mode is Mode.FCFS else GANG


def _watched(state: State, group: str) -> List[TaskRecord]:
    """The tasks of a group whose executors watch their programs."""
    if group != GANG:
        return [state.tasks[group]]
    return [
        task
        for role in state.job.roles
        if state.job.stall_timeout(role) is not None
        for task in state.in_round(role.name)
    ]


def _still_in(state: State, group: str) -> List[TaskRecord]:
    still = state.stalls.still
    if group != GANG:
        return [state.tasks[group]] if group in still else []
    return [state.tasks[name] for name in still]


def _silent_in(state: State, group: str) -> List[TaskRecord]:
    """The running tasks of a group that do not stand still, and report no step."""
    return [
        task
        for task in _watched(state, group)
        if task.state is S.RUNNING and task.step is None and task.name not in state.stalls.still
    ]


def _kind(state: State, task: TaskRecord) -> str:
    return state.stalls.still[task.name].report.kind


def _is_stalled(state: State, group: str) -> bool:
    """Whether those of a group that stand still make a stall."""
    still = _still_in(state, group)
    if any(_kind(state, task) == StallKind.STEPS for task in still):
        return True
    if len(still) < _count_running(state, group) or _has_unstarted(state, group):
        return False
    return bool(still) and not any(_kind(state, task) == StallKind.SUSPENDED for task in still)


def _count_running(state: State, group: str) -> int:
    if group != GANG:
        return int(state.tasks[group].state is S.RUNNING)
    watched = [role.name for role in state.job.roles if state.job.stall_timeout(role) is not None]
    return state.count((S.RUNNING,), watched)


def _has_unstarted(state: State, group: str) -> bool:
    """Whether a task is to start that the quiet ones may wait for, since they have started."""
    return any(
        task.state is not S.RUNNING and task.state not in TERMINAL
        for task in _watched(state, group)
        if task.role.name in state.barrier_passed
    )


def _is_evidence_complete(state: State, group: str) -> bool:
    """Whether the stacks of every running program were looked at."""
    still, stacks = _still_in(state, group), state.stalls.stacks
    if len(still) + len(stacks) < _count_running(state, group) or None in stacks.values():
        return False
    return all(
        state.stalls.still[task.name].report.looked or _kind(state, task) == StallKind.SUSPENDED
        for task in still
    )


def _find_lag(state: State, group: str) -> Lag:
    tasks = []
    for task in _watched(state, group):
        if task.state is S.RUNNING:
            found, stacks = state.stalls.still.get(task.name), state.stalls.stacks.get(task.name)
            standing = StandingTask(task.name, task.step, found is not None, stacks is not None)
            report = found.report if found is not None else stacks
            if report is not None:
                standing = standing._replace(
                    cpu_percent=report.cpu_percent,
                    frame=report.frame,
                    in_collective=report.in_collective,
                )
            tasks.append(standing)
    return find_lagging(tasks)


# ------------------------------------------------------------------ words


def describe(state: State, group: str, lag: Lag) -> str:
    """A sentence for a person: which programs stand still, since when, which of them lags."""
    still = _still_in(state, group)
    since = min(state.stalls.still[task.name].since for task in still)
    lasted = describe_duration(state.now - since)
    by_steps = any(_kind(state, task) == StallKind.STEPS for task in still)
    what = f"no step for {lasted}" if by_steps else f"no output and no computing for {lasted}"
    if len(still) == 1:
        report = state.stalls.still[still[0].name].report
        step = f", the last was {still[0].step}" if still[0].step is not None else ""
        where = f"; it stands in {report.frame}" if report.frame else ""
        text = f"{still[0].name} has stalled: {what}{step}{where}"
    else:
        text = f"{len(still)} tasks have stalled ({_list(t.name for t in still)}): {what}"
    if len(lag.names) == 1:
        how = "lags" if lag.is_certain else "may lag"
        text += f"; {lag.names[0]} {how}: {lag.why}" if len(still) > 1 or lag.why else ""
    elif lag.names:
        how = "lag" if lag.is_certain else "may lag"
        text += f"; {_list(lag.names)} {how}: {lag.why}"
    elif lag.why:
        text += f"; {lag.why}"
    suspended = [task.name for task in still if _kind(state, task) == StallKind.SUSPENDED]
    if suspended:
        text += f"; {_list(suspended)} is suspended by a signal (SIGSTOP)"
    return text


def describe_trouble(state: State) -> str:
    """What the job's page says of the stalls that last; empty without any.

    As they were when they were seen: a text that changed with the time would be written into
    history every second.
    """
    if state.phase is not Phase.ACTIVE:
        return ""
    texts = [episode.text for _, episode in sorted(state.stalls.episodes.items()) if episode.text]
    more = [f"{len(texts) - 3} more tasks have stalled"] if len(texts) > 3 else []
    return ". ".join([*texts[:3], *more])


def _list(names: Iterable[str]) -> str:
    found: Sequence[str] = list(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more
