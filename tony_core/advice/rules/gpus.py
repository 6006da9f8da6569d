"""GPUs that were asked for and hardly used, that wait, or whose memory is nearly empty. Pure."""

from __future__ import annotations

from typing import List, Optional, Tuple

from tony_core.advice.advice import CRITICAL, SEVERE, Advice, Change
from tony_core.advice.facts import HOUR_S, Facts, RoleFacts, TaskFacts, mean, quantile
from tony_core.advice.rules.gpu_input import advise_gpu_input, is_starved
from tony_core.advice.thresholds import (
    HIGH,
    IDLE_GPU,
    IDLE_GPU_HIGH,
    IDLE_GPU_MEMORY_MB,
    MB_OF_GB,
    USED_GPU_MEMORY,
    grade_below,
)
from tony_core.measures import GPU_MEMORY_MB, GPU_MEMORY_TOTAL_MB, GPU_PERCENT

_SHOWN = 5


def advise_gpus(facts: Facts) -> List[Advice]:
    """All advice on the GPUs of each role."""
    roles = [role for role in facts.roles if role.gpus >= 1]
    found = [_idle(facts, role) or _memory(facts, role) for role in roles]
    return [each for each in found if each is not None] + advise_gpu_input(facts)


def _is_idle(task: TaskFacts) -> bool:
    values = task.values(GPU_PERCENT)
    return mean(values) < IDLE_GPU and quantile(values, HIGH) < IDLE_GPU_HIGH


def _idle(facts: Facts, role: RoleFacts) -> Optional[Advice]:
    tasks = role.measured(GPU_PERCENT, facts.least)
    idle = [task for task in tasks if _is_idle(task)]
    if not idle or not facts.has_seen_all(role):
        return None
    changes: Tuple[Change, ...] = ()
    is_all = len(idle) == len(tasks)
    filled_mb = max(max(task.values(GPU_MEMORY_MB), default=0.0) for task in idle)
    if is_all and filled_mb > IDLE_GPU_MEMORY_MB * role.gpus:
        problem = f"No task of {role.name} computed on its GPUs ({role.gpus:g} for each)."
        todo = (
            f"Look in its log why. {filled_mb / MB_OF_GB:.1f} GB of GPU memory were in use: if a"
            f" program put something there, it may fail without a GPU; else set"
            f" {facts.key_of(role, 'gpus')} to 0."
        )
    elif is_all and not facts.has_succeeded:
        problem = f"No task of {role.name} has used its GPUs ({role.gpus:g} for each)."
        todo = (
            "Look in its log why, or what it does before it uses them; if it never does, set"
            f" {facts.key_of(role, 'gpus')} to 0."
        )
    elif is_all:
        key = facts.key_of(role, "gpus")
        changes = (Change(key, "0", facts.was(key)),)
        problem = f"No task of {role.name} used its GPUs ({role.gpus:g} for each)."
        todo = (
            f"Set {key} to 0; or, if the program is meant to use them, look in its log why it"
            " finds none (a framework built without CUDA, a driver that is too old)."
        )
    else:
        names = ", ".join(task.name for task in idle[:_SHOWN])
        more = f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""
        problem = f"{names}{more} of {len(tasks)} tasks of {role.name} left their GPUs idle."
        todo = "Look in their logs why: a rank without data, or a program that found no GPU."
    held = role.tasks if is_all else tuple(idle)
    return Advice(
        "gpu-idle",
        CRITICAL if is_all else SEVERE,
        idle[0].name if len(idle) == 1 and not is_all else role.name,
        problem,
        todo,
        {"GPUs for each task": role.gpus, "idle tasks": float(len(idle)),
         "tasks": float(len(tasks)),
         "GPU busy (%)": round(mean([mean(task.values(GPU_PERCENT)) for task in idle]), 1)},
        changes,
        {"gpu_hours": role.gpus * sum(task.held_s for task in held) / HOUR_S},
    )  # fmt: skip


def _memory(facts: Facts, role: RoleFacts) -> Optional[Advice]:
    """GPUs that compute with little of their memory."""
    tasks = role.measured(GPU_MEMORY_MB, facts.least)
    if not tasks or not facts.has_seen_all(role) or is_starved(facts, role):
        return None
    shares = []
    for task in tasks:
        total = max(task.values(GPU_MEMORY_TOTAL_MB), default=0.0)
        if total <= 0:
            return None
        shares.append((max(task.values(GPU_MEMORY_MB)) / total, total))
    share, total = max(shares)
    severity = grade_below(share, USED_GPU_MEMORY)
    if severity is None:
        return None
    return Advice(
        "gpu-memory",
        severity,
        role.name,
        f"{role.name} used {share:.0%} of its GPUs' memory at most.",
        "Try a larger batch, or ask for a smaller GPU where the cluster has one.",
        {"GPU memory (GB)": round(total / MB_OF_GB, 1),
         "used at most (GB)": round(share * total / MB_OF_GB, 1),
         "used (%)": round(100 * share, 1)},
    )  # fmt: skip
