"""The scheduler asks for containers back: which programs are warned of it, and what is given back.

Theory of operation
===================

*Who is warned.* Every program that ends with the container: the task's own, and where its loss
fails the session, all the programs of the session (sidecars go on). A checkpoint of a gang needs
all of its ranks, and all of them start again with the next session. Whether the loss fails the
session is asked of the same rules that judge it when it comes (:mod:`.task_ends`,
:mod:`.task_restart`); the framework makes no difference.

*How.* :func:`warn_programs` compares what each program should know with what it was sent, and
sends the difference: a warning, another time, that it is withdrawn. So a program that starts
later, and one whose executor has lost its connection, gets it too.

*Time* is the scheduler's to give: it is counted from the event on, and may be unknown.

*What follows.* The container ends: the rules for preempted containers hold. Or the program ends by
itself before: :func:`tony_core.master.session.task_ends.note_ended` judges that. The next session
does not begin in a container that is asked for: it goes back to the scheduler first.
"""

from __future__ import annotations

from typing import Dict, List, Optional

from tony_core.durations import describe_duration
from tony_core.exit_causes import Fault
from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import Level, WarnProgram
from tony_core.master.session.records import (
    TERMINAL,
    ContainerRecord,
    ContainerState,
    SentWarning,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.shutdown import stop_container
from tony_core.master.session.state import State
from tony_core.master.session.task_ends import fails_session
from tony_core.master.session.task_restart import restarts_by_itself
from tony_core.schedulers.container_pool import PreemptionRequested, PreemptionWithdrawn

RETURN_GRACE_S = 1.0  # as at each end of a session
_SHOWN = 20

# ------------------------------------------------------------------ facts


def note_preemption(state: State, event: PreemptionRequested) -> None:
    """Keep which containers the scheduler asks for, and until when they last."""
    until = None if event.seconds is None else state.now + event.seconds
    names: List[str] = []
    for container_id in event.container_ids:
        record = state.held.get(container_id)
        if record is not None and record.state is not ContainerState.STOPPING:
            state.preemptions.asked[container_id] = until
            names.append(record.task or record.id)
    if not names:
        return
    state.preemptions.is_stale = True
    left = (
        "it gives no time" if event.seconds is None else f"{describe_duration(event.seconds)} left"
    )
    text = f"{state.scheduler} asks for {_containers(names)} back; {left}"
    state.add_line(
        StoryKind.PREEMPTION_WARNED, text, Level.WARNING, tasks=names, seconds=event.seconds
    )


def note_withdrawn(state: State, event: PreemptionWithdrawn) -> None:
    """Keep that the scheduler does not take these containers back any more."""
    names: List[str] = []
    for container_id in event.container_ids:
        record = state.held.get(container_id)
        if state.preemptions.forget(container_id) and record is not None:
            names.append(record.task or record.id)
    if names:
        text = f"{state.scheduler} no longer asks for {_containers(names)}"
        state.add_line(StoryKind.PREEMPTION_WITHDRAWN, text, tasks=names)


# ------------------------------------------------------------------ rules


def warn_programs(state: State) -> None:
    """Send each program what it does not know yet of containers that are asked for."""
    preemptions = state.preemptions
    preemptions.is_stale = False
    wanted = _wanted(state)
    warned: List[str] = []
    for name, warning in wanted.items():
        if preemptions.sent.get(name) != warning:
            preemptions.sent[name] = warning
            _send(state, state.tasks[name], warning)
            warned.append(name)
    for name in [name for name in preemptions.sent if name not in wanted]:
        before, task = preemptions.sent.pop(name), state.tasks[name]
        if task.state is TaskState.RUNNING and task.attempt == before.attempt:
            _send(state, task, None)
    if warned:
        known = [w.until for w in (wanted[name] for name in warned) if w.until is not None]
        left = f" ({describe_duration(max(0.0, min(known) - state.now))} left)" if known else ""
        programs = "program" if len(warned) == 1 else f"{len(warned)} programs"
        text = f"TonY warned the {programs} of {_list(warned)}{left}"
        state.add_line(StoryKind.PREEMPTION_SENT, text, tasks=warned)


def must_give_back(state: State) -> bool:
    """Whether the next session would begin in a container that the scheduler asks for."""
    return bool(state.preemptions.asked) and any(
        _is_given_back(state, state.held[name]) for name in state.preemptions.asked
    )


def give_back(state: State) -> None:
    """End the containers that the scheduler asks for: their programs are being ended anyway."""
    for container_id in list(state.preemptions.asked):
        record = state.held[container_id]
        if _is_given_back(state, record):
            stop_container(state, record, RETURN_GRACE_S, "the scheduler asks for it back")


def _is_given_back(state: State, record: ContainerRecord) -> bool:
    task = state.tasks[record.task] if record.task else None
    return task is None or not task.is_sidecar


# ------------------------------------------------------------------ inside


def _wanted(state: State) -> Dict[str, SentWarning]:
    """What each running program should know."""
    own: Dict[str, Optional[float]] = {}
    ends: List[Optional[float]] = []  # of containers with which the session ends
    for container_id, until in state.preemptions.asked.items():
        task = state.task_of(container_id)
        if task is None or task.state in TERMINAL or task.name in state.elastic.outside_round:
            continue
        own[task.name] = until
        if fails_session(state, task, Fault.SYSTEM) and not restarts_by_itself(state, task):
            ends.append(until)
    every = _earliest(ends)
    out: Dict[str, SentWarning] = {}
    for task in state.tasks.values() if ends else (state.tasks[name] for name in own):
        if task.state is not TaskState.RUNNING or task.name in state.elastic.outside_round:
            continue
        is_own = task.name in own
        if not is_own and task.is_sidecar:
            continue
        times = [own[task.name]] if is_own else []
        until = _earliest([*times, *([every] if ends and not task.is_sidecar else [])])
        out[task.name] = SentWarning(task.attempt, until, is_own)
    return out


def _earliest(times: List[Optional[float]]) -> Optional[float]:
    known = [time for time in times if time is not None]
    return min(known) if known else None


def _send(state: State, task: TaskRecord, warning: Optional[SentWarning]) -> None:
    """Warn a program, or withdraw its warning."""
    record = state.container_of(task)
    if record is None or record.state is not ContainerState.LIVE:
        return
    seconds = None
    if warning is not None and warning.until is not None:
        seconds = round(max(0.0, warning.until - state.now), 3)
    is_own = warning is not None and warning.is_own
    session, restart = task.attempt
    state.emit(WarnProgram(record.id, session, restart, seconds, is_own, warning is None))


def _containers(names: List[str]) -> str:
    return f"the container{'s' if len(names) > 1 else ''} of {_list(names)}"


def _list(names: List[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
