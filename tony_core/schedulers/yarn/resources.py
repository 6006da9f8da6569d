"""What a job asks for and what YARN counts: the same amounts under two names.

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
    """As YARN is asked."""
    other = {name: amount for name, amount in resources.other if amount}
    if resources.gpus:
        other[GPU] = resources.gpus
    return Capability(resources.memory_mb, resources.vcores, other)


def to_resources(capability: Capability) -> Resources:
    """As a job says it."""
    other = {name: amount for name, amount in capability.other.items() if name != GPU and amount}
    return Resources(
        memory_mb=capability.memory_mb,
        vcores=capability.vcores,
        gpus=capability.other.get(GPU, 0),
        other=tuple(sorted(other.items())),
    )


def sum_amounts(amounts: Iterable[Mapping[str, int]]) -> Dict[str, int]:
    """All of them together."""
    summed: Dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            summed[name] = summed.get(name, 0) + amount
    return summed


def multiply_amounts(amounts: Mapping[str, int], count: int) -> Dict[str, int]:
    """So many of it."""
    return {name: amount * count for name, amount in amounts.items()}


def format_amount(name: str, amount: int) -> str:
    """One amount for a person: ``6 GPUs``."""
    words = _SINGULARS.get(name) if amount == 1 else None
    return f"{amount} {words or _PLURALS.get(name, name)}"


def unit_name(name: str) -> str:
    """What a resource type is called where no number stands before it."""
    return _PLURALS.get(name, name)


def format_amounts(amounts: Mapping[str, int]) -> str:
    """Several amounts: ``512 MB of memory, 1 vcore``."""
    parts = [format_amount(name, amount) for name, amount in amounts.items() if amount]
    return ", ".join(parts) or "nothing"
