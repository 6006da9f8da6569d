"""A task that is well behind its peers: by the steps that it reported, or the time of one. Pure.

In a gang that averages its gradients after each step all tasks do as many steps as the slowest; who
it is stands only in what programs report of their own part: the time of a step without the waiting,
under one of the names in :data:`STEP_TIMES`, or a rate, under one in :data:`RATES`.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

from tony_core.advice.advice import Advice
from tony_core.advice.facts import HOUR_S, Facts, RoleFacts, TaskFacts, median
from tony_core.advice.thresholds import PEER_SPEED, STRAGGLERS, grade_below
from tony_core.job.spec import Tracking
from tony_core.measures import STEP

#: Names of reported metrics that are seconds (or milliseconds: only ratios count) of one step.
STEP_TIMES = (
    "step_time", "step_time_s", "step_time_ms", "step_s", "step_ms", "step_seconds",
    "seconds_per_step", "s_per_step", "batch_time", "batch_time_s", "batch_seconds",
    "compute_time", "compute_time_s", "compute_s",
)  # fmt: skip
#: ... and of those that are steps or examples in a second.
RATES = (
    "steps_per_s", "steps_per_sec", "steps_per_second", "batches_per_s", "batches_per_second",
    "examples_per_s", "examples_per_sec", "examples_per_second", "samples_per_s",
    "samples_per_sec", "samples_per_second", "images_per_s", "images_per_sec", "images_per_second",
    "tokens_per_s", "tokens_per_sec", "tokens_per_second", "throughput",
)  # fmt: skip


class _Straggler(NamedTuple):
    severity: str
    task: TaskFacts
    metric: str
    speed: float  # of its peers', 0 to 1
    mine: float
    peers: float


def advise_stragglers(facts: Facts) -> List[Advice]:
    """For each role: the tasks that hold up the others."""
    found: List[Advice] = []
    for role in facts.roles:
        seen = _look(facts, role)
        found += [_advise(facts, role, each) for each in seen]
    return found


def _look(facts: Facts, role: RoleFacts) -> List[_Straggler]:
    if (
        role.tracking == Tracking.SIDECAR
        or len(role.tasks) < 2
        or facts.line.end <= facts.line.begin
    ):
        return []
    names = {name for task in role.tasks for name in task.metrics()}
    known = [name for name in (*STEP_TIMES, *RATES) if name in names]
    for metric in [*known, STEP]:
        found = _behind(role, metric, _speeds(facts, role, metric))
        if found:
            return found
    return []


def _speeds(facts: Facts, role: RoleFacts, metric: str) -> Dict[str, float]:
    """Task -> how fast it is, by one metric; of the last session that each ran in."""
    least = facts.least
    found: Dict[str, float] = {}
    newest = max((task.spans[-1].session for task in role.tasks if task.spans), default=-1)
    for task in role.tasks:
        span = task.spans[-1] if task.spans else None
        if span is None or span.end - span.begin < least.run_s or span.session != newest:
            continue
        speed: Optional[float] = None
        if metric == STEP:
            speed = task.steps_per_s(span, least)
        else:
            values = [value for _, value in task.within(metric, span) if value > 0]
            if len(values) >= max(1, least.steps):
                middle = median(values)
                speed = middle if metric in RATES else 1 / middle
        if speed is not None and speed > 0:
            found[task.name] = speed
    return found


def _behind(role: RoleFacts, metric: str, speeds: Dict[str, float]) -> List[_Straggler]:
    tasks = {task.name: task for task in role.tasks}
    found = []
    for name, speed in speeds.items():
        peers = median([other for task, other in speeds.items() if task != name])
        if peers <= 0:
            continue
        severity = grade_below(speed / peers, PEER_SPEED)
        if severity is not None:
            found.append(_Straggler(severity, tasks[name], metric, speed / peers, speed, peers))
    if len(found) > STRAGGLERS or 2 * len(found) > len(speeds):
        return []  # the tasks differ, and none is behind
    return sorted(found, key=lambda each: each.speed)


def _advise(facts: Facts, role: RoleFacts, seen: _Straggler) -> Advice:
    task, share = seen.task, 1 - seen.speed
    on = f" on {task.node}" if task.node else ""
    running = task.spans[-1].end - task.spans[-1].begin
    saving: Dict[str, float] = {}
    waits = ""
    others = max(0, len(role.tasks) - 1)
    if facts.is_gang:
        waits = f", so {share:.0%} of the gang's time is spent waiting for it"
        waited_s = share * running
        saving = {"duration_s": waited_s, **role.cost_of(others * waited_s / HOUR_S)}
    in_steps = seen.metric in STEP_TIMES
    mine, peers = (1 / seen.mine, 1 / seen.peers) if in_steps else (seen.mine, seen.peers)
    unit = "steps per s" if seen.metric == STEP else seen.metric
    return Advice(
        "straggler",
        seen.severity,
        task.name,
        f"{task.name}{on} works at {seen.speed:.0%} of the speed of its peers{waits}.",
        "Look at that node (other load, its network, a GPU that is throttled) and at what the task"
        " does that the others do not (a larger part of the data, checkpoints, evaluation).",
        {f"{unit} of {task.name}": round(mine, 4), f"{unit} of its peers": round(peers, 4),
         "speed of its peers' (%)": round(100 * seen.speed, 1), "node": task.node},
        (),
        saving,
    )  # fmt: skip
