"""Resources of a job and of YARN, and amounts in words.

YARN knows a GPU as the resource type ``yarn.io/gpu``; memory and cores are types as well.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping

from tony_core.hadoop.yarn.records import MEMORY, VCORES, Capability
from tony_core.job.spec import Resources

GPU = "yarn.io/gpu"

_PLURALS = {MEMORY: "MB of memory", VCORES: "vcores", GPU: "GPUs"}
_SINGULARS = {VCORES: "vcore", GPU: "GPU"}


def to_capability(resources: Resources) -> Capability:
    """Convert a job's resources to YARN's."""
    other = {name: amount for name, amount in resources.other if amount}
    if resources.gpus:
        other[GPU] = resources.gpus
    return Capability(resources.memory_mb, resources.vcores, other)


def to_resources(capability: Capability) -> Resources:
    """Convert YARN's resources to a job's."""
    other = {name: amount for name, amount in capability.other.items() if name != GPU and amount}
    return Resources(
        memory_mb=capability.memory_mb,
        vcores=capability.vcores,
        gpus=capability.other.get(GPU, 0),
        other=tuple(sorted(other.items())),
    )


def sum_amounts(amounts: Iterable[Mapping[str, int]]) -> Dict[str, int]:
    """The sum of several amounts, by resource type."""
    summed: Dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            summed[name] = summed.get(name, 0) + amount
    return summed


def multiply_amounts(amounts: Mapping[str, int], count: int) -> Dict[str, int]:
    """An amount a number of times."""
    return {name: amount * count for name, amount in amounts.items()}


def format_amount(name: str, amount: int) -> str:
    """An amount in words: ``6 GPUs``."""
    words = _SINGULARS.get(name) if amount == 1 else None
    return f"{amount} {words or _PLURALS.get(name, name)}"


def format_amounts(amounts: Mapping[str, int]) -> str:
    """Several amounts in words: ``512 MB of memory, 1 vcore``."""
    parts = [format_amount(name, amount) for name, amount in amounts.items() if amount]
    return ", ".join(parts) or "nothing"
