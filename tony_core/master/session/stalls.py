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
known, at most :data:`EVIDENCE_S` after the first program was seen to stand still. While it lasts,
programs may come to stand, and a suspended one may go on: the episode is reviewed once what is
known has changed, :data:`REVIEW_S` after the last time at the earliest. The page's sentence
follows, and stays as it is where only time has passed; the story has a further line where another
lag is named, :data:`MOST_LINES` in all.

*Cost.* A report is judged by counts. Only a review looks at all of a gang, and those of tasks with
episodes of their own are made together, once in :data:`BATCH_S`: each step with a line writes the
journal. What a program that flaps can cause is bounded by :data:`MOST_EPISODES` and
:data:`MOST_ASKED`.

*Action.* ``warn`` writes the line. ``restart`` and ``fail`` end the program of the task that lags,
by its executor and as failed for :attr:`ExitCause.STALLED`; what follows is what follows from
any failure: a restart of the task or of the session, which the program's budget pays for, or with
``fail`` the end. Those that still stand when as long as a stall takes has passed are acted upon
again, by new evidence: another task's restart did not help them. When a suspended one goes on, that
time begins anew: those that waited for it have a whole stall's time to move. Programs that were
warned of preemption are left alone: they may have saved, and wait for their end.

*Takeover.* Which lines were written is in the journal; that programs stand still, in each
executor's Register. A next master acts where it finds both, and writes no line again; it asks
silent programs itself. (The journal comes first: of a master that dies between the two only the end
of the episode has a line.)
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Sequence

from tony_core.durations import describe_duration
from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.job.spec import StallAction
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
REVIEW_S = 5.0  # from one review of an episode to the next
BATCH_S = 1.0
GANG = ""  # the one episode of a gang
MOST_NAMED = 10
MOST_LINES = 5  # of one episode, without its end
MOST_EPISODES = 500  # of one gang or task that have lines
MOST_ASKED = 20  # how often one program's stacks are asked for, as of stall_watch.MOST_LOOKS

# ------------------------------------------------------------------ reports of executors


def note_stalled(state: State, container_id: str, message: Stalled) -> None:
    """Keep that a program stands still, or that it moves again."""
    task = state.task_of(container_id)
    if task is None or task.state is not S.RUNNING:
        return
    if (message.session, message.restart) != task.attempt:
        return
    if state.job.stall_timeout(task.role) is None:
        return  # no executor of ours watches it
    stalls = state.stalls
    if not message.kind:
        before = stalls.remove(task.name)
        if before is not None:
            state.deadlines.cancel(Deadline.STALLED_PROGRAM, task.name)
            if before.report.kind == StallKind.SUSPENDED:
                _put_off_action(state, stalls.group_of(task.name), task)
        return
    before = stalls.still.get(task.name)
    since, seen = state.now - message.still_s, state.now
    if before is not None:
        since, seen = before.since, before.seen
    stalls.add(task.name, StalledProgram(message, since, seen))
    if message.step is not None and task.step is None:
        task.step = message.step


def note_stacks(state: State, container_id: str, message: StacksDumped) -> None:
    """Keep what the stacks of a silent program show, where they were asked for."""
    task, stalls = state.task_of(container_id), state.stalls
    if task is None or (message.session, message.restart) != task.attempt:
        return
    if task.name in stalls.unanswered:
        stalls.unanswered.discard(task.name)
        stalls.stacks[task.name] = message
        stalls.stale.add(stalls.group_of(task.name))


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
    if task.name in state.stalls.unanswered:
        _ask_for_stacks(state, [task])


# ------------------------------------------------------------------ episodes


def judge_stalls(state: State) -> None:
    """Begin, review and end episodes, by the programs that stand still now."""
    stalls = state.stalls
    groups, stalls.stale = stalls.stale, set()
    if stalls.by_task:
        stalls.due |= groups
        if (Deadline.STALL,) not in state.deadlines:
            state.set_deadline(Deadline.STALL, BATCH_S)
    elif not _is_stalled(state, GANG):
        state.deadlines.cancel(Deadline.STALL)
        stalls.forget_stacks()
        if GANG in stalls.episodes:
            _end_episode(state, GANG)
    else:
        _gather_evidence(state)


def _gather_evidence(state: State) -> None:
    """Have a gang's episode begun or reviewed once its evidence is there."""
    stalls = state.stalls
    episode = stalls.episodes.get(GANG)
    must_act = episode is None or GANG in stalls.unhandled
    if (Deadline.STALL,) not in state.deadlines:
        state.set_deadline(Deadline.STALL, EVIDENCE_S)
        first = state.tasks[next(iter(stalls.still))]
        since_s = REVIEW_S if must_act else _stall_s(state, first) + EVIDENCE_S
        if stalls.asked_at is None or state.now >= stalls.asked_at + since_s:
            stalls.asked_at = state.now
            _ask_for_stacks(state, _silent_in(state))
    is_complete = not stalls.unlooked and not stalls.unanswered
    if must_act:  # those that move may be about to stand still
        known = len(stalls.still) + len(stalls.stacks)
        is_complete = is_complete and known >= _count_running(state)
    if is_complete:
        at = state.now if must_act or episode is None else episode.reviewed + REVIEW_S
        pending = state.deadlines.get(Deadline.STALL)
        if pending is None or at < pending.until:
            state.set_deadline(Deadline.STALL, max(0.0, at - state.now))


def _ask_for_stacks(state: State, tasks: Sequence[TaskRecord]) -> None:
    stalls = state.stalls
    reason = f"{_list(stalls.still)} {'has' if len(stalls.still) == 1 else 'have'} stalled"
    for task in tasks:
        stalls.stacks.pop(task.name, None)
        if stalls.asked[task.name] < MOST_ASKED:
            stalls.asked[task.name] += 1
            stalls.unanswered.add(task.name)
            state.emit(DumpStacks(task.container or "", *task.attempt, reason))


def review_stalls(state: State, pending: PendingDeadline) -> None:
    """Write what is known now of the programs that stand still, and act as the job says."""
    stalls = state.stalls
    if state.phase is not Phase.ACTIVE:
        stalls.stale |= stalls.due if stalls.by_task else {GANG}  # judged when the session goes on
        return
    if not stalls.by_task:
        if _is_stalled(state, GANG):
            _review(state, GANG)
        return
    due, stalls.due = sorted(stalls.due), set()
    for group in due:
        if not _is_stalled(state, group):
            if group in stalls.episodes:
                _end_episode(state, group)
        elif group in stalls.unlooked and state.now < stalls.still[group].seen + EVIDENCE_S:
            stalls.due.add(group)
        else:
            _review(state, group)
    if stalls.due:
        state.set_deadline(Deadline.STALL, BATCH_S)


def _review(state: State, group: str) -> None:
    """Begin an episode, or follow what has changed in it."""
    stalls = state.stalls
    still = _still_in(state, group)
    lag = _find_lag(state, group)
    named = _list(lag.names)
    since = min(stalls.still[task.name].since for task in still)
    text = now = describe(state, still, lag, describe_duration(state.now - since))
    facts = describe(state, still, lag, "")
    before = stalls.episodes.get(group)
    is_new = before is None
    if before is None:
        before = Episode(since)
        stalls.begun[group] += 1
        has_line = stalls.begun[group] <= MOST_EPISODES
        if stalls.begun[group] == MOST_EPISODES:
            text += "; further stalls are not written here"
    else:
        has_line = bool(lag.names) and named != before.named and 0 < before.lines < MOST_LINES
    if facts == before.facts:
        text = before.text
    episode = before._replace(text=text, facts=facts, reviewed=state.now)
    if has_line:
        episode = episode._replace(named=named, lines=before.lines + 1)
        _add_line(state, StoryKind.STALLED if is_new else StoryKind.STALL_LAG, text, still, lag)
    stalls.episodes[group] = episode
    if is_new or group in stalls.unhandled:
        stalls.unhandled.discard(group)
        _act(state, group, still, lag, now)


def _add_line(
    state: State, kind: StoryKind, text: str, still: Sequence[TaskRecord], lag: Lag
) -> None:
    state.stalls.changes += 1
    about = state.tasks[lag.names[0]] if len(lag.names) == 1 else None
    state.add_line(
        kind,
        text,
        Level.DECISION,  # a next master counts on it
        about or (still[0] if len(still) == 1 else None),
        tasks=[task.name for task in still][:MOST_NAMED],
        count=len(still),
        lagging=list(lag.names)[:MOST_NAMED],
        still_s=round(state.now - min(state.stalls.still[t.name].since for t in still), 1),
        step=min((t.step for t in still if t.step is not None), default=None),
    )


def _act(state: State, group: str, still: Sequence[TaskRecord], lag: Lag, text: str) -> None:
    """End the program of the one that lags, where the job says so."""
    action = state.job.timeouts.stall_action
    if action is StallAction.WARN:
        return
    task = state.tasks[lag.names[0]] if lag.names and lag.is_certain else still[0]
    is_suspended = any(_kind(state, each) == StallKind.SUSPENDED for each in still)
    is_warned = any(each.name in state.preemptions.sent for each in (*still, task))
    if not is_suspended and not is_warned:
        setting = f"tony.task.stall-action={action.value}"
        name, _, what = text.partition(" has stalled: ")
        why = what if name == task.name else text  # what it becomes a part of names the task
        _end_program(state, task, f"{why} ({setting})")
    _set_repeat(state, group, task)


def _set_repeat(state: State, group: str, task: TaskRecord) -> None:
    again_s = state.job.timeouts.kill_grace_s + _stall_s(state, task) + EVIDENCE_S
    state.set_deadline(Deadline.STALL_REPEAT, again_s, group, task=task.name)


def _put_off_action(state: State, group: str, task: TaskRecord) -> None:
    """Give those that waited for a suspended program the time of a stall to move."""
    stalls = state.stalls
    if group in stalls.episodes and state.job.timeouts.stall_action is not StallAction.WARN:
        stalls.unhandled.discard(group)
        _set_repeat(state, group, task)


def repeat_action(state: State, pending: PendingDeadline) -> None:
    """Act again upon an episode that lasts, once its evidence is there."""
    stalls = state.stalls
    if pending.name in stalls.episodes:
        stalls.unhandled.add(pending.name)
        stalls.stale.add(pending.name)
        if not stalls.by_task:
            state.deadlines.cancel(Deadline.STALL)  # a review's; it has asked for no stacks


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
    episode = state.stalls.episodes.pop(group)
    since = episode.since
    state.stalls.unhandled.discard(group)
    state.deadlines.cancel(*((Deadline.STALL_REPEAT, group) if group else (Deadline.STALL_REPEAT,)))
    if not episode.lines:
        return
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
    stalls = state.stalls
    for group, (named, lines) in journal.get("stalled", {}).items():
        if group == GANG or group in state.tasks:
            stalls.episodes[group] = Episode(None, named=named, lines=lines)
            stalls.unhandled.add(group)
            stalls.stale.add(group)


# ------------------------------------------------------------------ what holds


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
    """The programs of a group that stand still, in the job's order."""
    still = state.stalls.still
    tasks = state.tasks.values() if group == GANG else [state.tasks[group]]
    return [task for task in tasks if task.name in still]


def _silent_in(state: State) -> List[TaskRecord]:
    """The running tasks of a gang that do not stand still, and report no step."""
    still = state.stalls.still
    return [
        task
        for task in _watched(state, GANG)
        if task.state is S.RUNNING and task.step is None and task.name not in still
    ]


def _stall_s(state: State, task: TaskRecord) -> float:
    return state.job.stall_timeout(task.role) or 0.0


def _kind(state: State, task: TaskRecord) -> str:
    return state.stalls.still[task.name].report.kind


def _is_stalled(state: State, group: str) -> bool:
    """Whether those of a group that stand still make a stall."""
    stalls = state.stalls
    if group != GANG:
        kind = stalls.still[group].report.kind if group in stalls.still else StallKind.SUSPENDED
        return kind != StallKind.SUSPENDED
    if stalls.kinds[StallKind.STEPS]:
        return True
    if not stalls.still or stalls.kinds[StallKind.SUSPENDED]:
        return False
    return len(stalls.still) >= _count_running(state) and not _has_unstarted(state)


def _count_running(state: State) -> int:
    return state.count((S.RUNNING,), _watched_roles(state))


def _watched_roles(state: State) -> List[str]:
    return [role.name for role in state.job.roles if state.job.stall_timeout(role) is not None]


def _has_unstarted(state: State) -> bool:
    """Whether a task is to start that the quiet ones may wait for, since they have started."""
    to_start = [each for each in S if each is not S.RUNNING and each not in TERMINAL]
    passed = [name for name in _watched_roles(state) if name in state.barrier_passed]
    return state.count(to_start, passed) > 0


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


def describe(state: State, still: Sequence[TaskRecord], lag: Lag, lasted: str) -> str:
    """A sentence for a person: which programs stand still, since when, which of them lags."""
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
        is_or_are = "is" if len(suspended) == 1 else "are"
        text += f"; {_list(suspended)} {is_or_are} suspended by a signal (SIGSTOP)"
    return text


def describe_trouble(state: State) -> str:
    """What the job's page says of the stalls that last; empty without any.

    As they were when they were last reviewed: a text that changed with the time would be written
    into history every second.
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
