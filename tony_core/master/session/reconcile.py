"""What the scheduler and the journal are to hold, as differences to what they were last given.

No fact and no rule has to remember to request, to withdraw or to write.

*Requests* are absolute numbers: as many containers of a role as it has tasks in *requested*. What
was granted is taken off both sides. :func:`request_containers` is the rule that comes when all that
an event changed is decided, and before the job ends. While a session settles nothing new is
requested; between two sessions only for sidecars, which go on.

*The journal* is written when something changed that a next master acts upon, and could not find
out: what :func:`_journal_key` names. :func:`take_step` makes every step (a fact, a rule, a
deadline), and the record goes *before* the commands of the step: whatever a step decided is in the
journal before anything is done about it. The rest of the record (what programs reported, where
tasks are) is only as new as the last of these changes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tony_core.job.spec import Mode, Role, Tracking
from tony_core.master.session.commands import Command, RequestContainers, WriteJournal
from tony_core.master.session.records import HOLDS_CONTAINER, Phase, TaskState
from tony_core.master.session.state import State
from tony_core.schedulers.container_pool import ContainerRequest

_UNWRITTEN = (Phase.NEW, Phase.PREPROCESSING, Phase.ENDED)
_REQUESTING = (Phase.ACTIVE, Phase.SETTLING)
_BETWEEN_SESSIONS = (Phase.CLEANUP, Phase.BACKOFF)


# ------------------------------------------------------------------ the journal


def take_step(state: State, act: Callable[..., None], *about: object) -> None:
    """Act, and write before its commands what a next master must know of it."""
    before = len(state.commands)
    act(state, *about)
    state.commands[before:before] = _journal_commands(state)


def _journal_commands(state: State) -> List[Command]:
    """What must be written before the commands of the step that was just made."""
    if state.phase in _UNWRITTEN:
        return []
    key = _journal_key(state)
    if key == state.reconciled.journal_key:
        return []
    is_written = state.reconciled.journal_key is None and state.phase is Phase.ADOPTING
    state.reconciled.journal_key = key
    return [] if is_written else [WriteJournal(journal_record(state))]


def _journal_key(state: State) -> Tuple[Any, ...]:
    """What a next master acts upon; cheap, since it is looked at after every step."""
    if state.phase is Phase.ADOPTING:
        # The rest is as the previous attempt wrote it, until all executors have registered.
        return (state.restarts.running, state.budgets.times_restored)
    return (
        state.session,
        state.outcome,
        state.phase is Phase.BACKOFF,  # the failed session has ended, and is paid for
        state.elastic.regrouping,
        state.chief_done,
        len(state.barrier_passed),
        len(state.finished_roles),
        len(state.no_longer_awaited),
        # Where no barrier is passed, nothing else shows that programs may run.
        len(state.waves) if state.job.mode is Mode.FCFS else 0,
        state.restarts.begun,
        state.restarts.running,
        state.budgets.times_restored,
        state.stalls.changes,
    )


def journal_record(state: State) -> Mapping[str, Any]:
    """All that a next master reads; small."""
    return {
        "session": state.session,
        "elapsed_s": state.now - (state.began if state.began is not None else state.now),
        "budgets": state.budgets.to_json(),
        "parameters": state.parameters,
        "released": dict(state.waves),
        "started": sorted(state.barrier_passed),
        "outside": sorted(state.elastic.outside_round),
        "regrouping": state.elastic.regrouping,
        "done": sorted(state.finished_tasks),
        "untracked": sorted(state.no_longer_awaited),
        "returning": sorted(state.restarts.pending),
        "alone": _restarts_to_json(state),
        "chief_done": state.chief_done,
        "outcome": state.outcome.value if state.outcome else None,
        "diagnostics": state.diagnostics,
        "root": state.root_cause,
        "result": state.result,
        "stalled": state.stalls.to_json(),
    }


def _restarts_to_json(state: State) -> Mapping[str, Any]:
    """The attempt of each task that was started again within its session."""
    out: Dict[str, Any] = {}
    for role in state.job.roles:
        for task in state.by_role[role.name] if role.has_task_restart else ():
            if task.restarts:
                last = list(task.last_signature) if task.last_signature else None
                out[task.name] = {"restarts": task.restarts, "last_quick": last}
    return out


# ------------------------------------------------------------------ containers


def count_granted(state: State, role: str, count: int) -> None:
    """Take granted containers off what was requested."""
    last = state.reconciled.requests.get(role)
    if last is not None:
        state.reconciled.requests[role] = last._replace(count=max(0, last.count - count))


def request_containers(state: State) -> None:
    """Request what differs from the last requests, a gang's containers together."""
    state.reconciled.is_stale = False
    withdrawn: List[ContainerRequest] = []
    requests: Dict[bool, List[ContainerRequest]] = {True: [], False: []}
    changed = set()
    for role in state.job.roles:
        count, last = _count_needed(state, role), state.reconciled.requests.get(role.name)
        if last is not None and (not count or last.session != state.session):
            del state.reconciled.requests[role.name]
            if last.count:
                withdrawn.append(last._replace(count=0))
            last = None
        if count:
            gang = _is_gang_request(state, role)
            requests[gang].append(_build_request(state, role, count))
            if _differs(state, last, requests[gang][-1]):
                changed.add(gang)
    if withdrawn:
        state.emit(RequestContainers(tuple(withdrawn), False))
    for gang in (True, False):
        if gang in changed:
            state.reconciled.requests.update((item.role, item) for item in requests[gang])
            state.emit(RequestContainers(tuple(requests[gang]), gang))


def _count_needed(state: State, role: Role) -> int:
    """How many containers of a role the scheduler is to give."""
    may_request = state.phase in _REQUESTING
    if state.phase in _BETWEEN_SESSIONS and not state.is_fresh:
        may_request = role.tracking is Tracking.SIDECAR
    return state.counts[role.name][TaskState.REQUESTED] if may_request else 0


def _build_request(state: State, role: Role, count: int) -> ContainerRequest:
    return ContainerRequest(
        role=role.name,
        session=state.session,
        count=count,
        resources=role.resources,
        node_label=role.node_label or state.job.node_label,
        placement_spec=role.placement_spec,
        allocation_tags=role.allocation_tags,
        avoid_nodes=tuple(sorted(state.avoided_nodes)),
        optional=role.is_elastic and not is_below_minimum(state, role.name),
    )


def _is_gang_request(state: State, role: Role) -> bool:
    """Whether a role's containers are requested with the rest of the gang, or not at all."""
    if role.is_elastic:
        return is_below_minimum(state, role.name) and role.name not in state.barrier_passed
    gang = state.job.mode is Mode.GANG and role.tracking is not Tracking.SIDECAR
    return gang and role.name not in state.barrier_passed  # else a single task restarts


def _differs(state: State, last: Optional[ContainerRequest], new: ContainerRequest) -> bool:
    if state.phase is Phase.SETTLING:
        return last is not None and new.count < last.count
    return new != last


# ------------------------------------------------------------------ elastic roles


def is_below_minimum(state: State, role: str) -> bool:
    """Whether an elastic role's minimum is not there yet."""
    spec = state.job.role(role)
    return spec.is_elastic and count_held(state, role) < spec.least


def count_held(state: State, role: str) -> int:
    """How many tasks of a role have a container, outside the round too."""
    return sum(state.counts[role][each] for each in HOLDS_CONTAINER)
