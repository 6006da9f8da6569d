"""A GPU that waits for its input: little to do while the program's cores are busy. Pure.

One full core alone has a second reading: the thread that starts the kernels fills it as well, by
launches or by a wait for their end. What it is then only the program shows.
"""

from __future__ import annotations

from math import ceil
from typing import Dict, List, NamedTuple, Optional

from tony_core.advice.advice import LOW, MODERATE, Advice, Change
from tony_core.advice.facts import HOUR_S, Facts, RoleFacts, mean, median, quantile
from tony_core.advice.thresholds import (
    BUSY_CORES,
    BUSY_GPU,
    CORES_HEAD_ROOM,
    HIGH,
    IDLE_GPU,
    ONE_CORE,
    PULSE_HIGH,
    PULSE_LOW,
    PULSE_SHARE,
    PULSING_GPU,
    USED_GPU,
    at_most,
    grade_below,
)
from tony_core.measures import CPU_PERCENT, GPU_PERCENT


class _Starved(NamedTuple):
    """How a role's GPUs wait."""

    severity: str
    gpu_percent: float
    cores: float
    most_cores: float
    steps_per_s: float
    has_one_core: bool  # in use, of however many; else all of several


def is_starved(facts: Facts, role: RoleFacts) -> bool:
    """Whether its GPUs wait for input."""
    return _look(facts, role) is not None


def advise_gpu_input(facts: Facts) -> List[Advice]:
    """For each role whose GPUs wait for input: what to change."""
    found = []
    for role in facts.roles:
        seen = _look(facts, role)
        if seen is not None:
            found.append(_advise(facts, role, seen))
    return found


def _look(facts: Facts, role: RoleFacts) -> Optional[_Starved]:
    least = facts.least
    if role.gpus < 1 or role.vcores < 1:
        return None
    tasks = role.measured(GPU_PERCENT, least)
    if not tasks or not role.measured(CPU_PERCENT, least):
        return None
    values = [value for task in tasks for value in task.values(GPU_PERCENT)]
    busy = mean(values)
    severity = grade_below(busy, USED_GPU)
    if severity is None and busy <= PULSING_GPU:
        low = sum(value < PULSE_LOW for value in values) / len(values)
        high = sum(value > PULSE_HIGH for value in values) / len(values)
        severity = LOW if min(low, high) >= PULSE_SHARE else None
    rates = [task.steps_per_s(span, least) for task in role.tasks for span in task.spans]
    rate = max((each for each in rates if each is not None), default=None)
    if severity is None or busy < IDLE_GPU or rate is None:
        return None
    cores = median([median(task.values(CPU_PERCENT)) for task in tasks]) / 100
    most = max(quantile(task.values(CPU_PERCENT), HIGH) for task in tasks) / 100
    is_full = cores >= BUSY_CORES * role.vcores
    is_one = ONE_CORE[0] <= cores <= ONE_CORE[1]
    if is_full and most > ONE_CORE[1]:
        is_one = False  # more threads than one work, on the one core that was asked for
    if not is_full and not is_one:
        return None
    return _Starved(severity, busy, cores, most, rate, is_one)


def _advise(facts: Facts, role: RoleFacts, seen: _Starved) -> Advice:
    changes: List[Change] = []
    saving: Dict[str, float] = {}
    severity = seen.severity
    busy = f"The GPUs of {role.name} are {seen.gpu_percent:.0f}% busy"
    if seen.has_one_core:
        severity = at_most(severity, MODERATE)
        problem = (
            f"{busy}, and one core of {role.vcores:g} is full: one process prepares all the input,"
            " or its kernels are too small and the time goes into starting them."
        )
        todo = (
            "Look where the program spends its time (torch.profiler, py-spy). Input: load it in"
            " other processes (num_workers of a DataLoader, tf.data's map). Small kernels: a larger"
            " batch, or fewer and larger ones (torch.compile, CUDA graphs)"
        )
    else:
        problem = (
            f"{busy} while {seen.cores:.1f} of its {role.vcores:g} cores are busy: they wait for"
            " their input."
        )
        new = ceil(seen.most_cores * CORES_HEAD_ROOM)
        todo = "Prepare the input outside the training (smaller, decoded, cached)"
        if new > role.vcores:
            key = facts.key_of(role, "vcores")
            changes.append(Change(key, str(new), facts.was(key)))
            todo = f"Set {key} to {new}, or prepare the input outside the training"
        hours = sum(task.running_s for task in role.tasks) / HOUR_S * role.gpus
        saving["gpu_hours"] = hours * max(0.0, 1 - seen.gpu_percent / BUSY_GPU)
    return Advice(
        "gpu-input",
        severity,
        role.name,
        problem,
        f"{todo}.",
        {"GPU busy (%)": round(seen.gpu_percent, 1), "cores asked": role.vcores,
         "cores used": round(seen.cores, 2), "steps per s": round(seen.steps_per_s, 4)},
        tuple(changes),
        saving,
    )  # fmt: skip
