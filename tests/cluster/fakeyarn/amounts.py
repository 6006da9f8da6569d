"""Arithmetic with what a cluster counts, and the messages that say it in full, as Hadoop does."""

from __future__ import annotations

from typing import Iterable, Sequence

from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.records import MEMORY, VCORES, Capability

NOTHING = Capability()


def total(amounts: Iterable[Capability]) -> Capability:
    found = NOTHING
    for one in amounts:
        found = plus(found, one)
    return found


def plus(one: Capability, other: Capability) -> Capability:
    names = {*one.other, *other.other}
    return Capability(
        one.memory_mb + other.memory_mb,
        one.vcores + other.vcores,
        {name: one.other.get(name, 0) + other.other.get(name, 0) for name in names},
    )


def minus(one: Capability, other: Capability) -> Capability:
    names = {*one.other, *other.other}
    return Capability(
        one.memory_mb - other.memory_mb,
        one.vcores - other.vcores,
        {name: one.other.get(name, 0) - other.other.get(name, 0) for name in names},
    )


def to_message(amount: Capability, others: Sequence[str]) -> yarn.Resource:
    """With every resource that the cluster counts, whether there is any of it or not."""
    items = [
        yarn.ResourceInformation(key=MEMORY, value=amount.memory_mb, units="Mi", type=0),
        yarn.ResourceInformation(key=VCORES, value=amount.vcores, units="", type=0),
    ]
    for name in others:
        value = max(0, amount.other.get(name, 0))
        items.append(yarn.ResourceInformation(key=name, value=value, units="", type=0))
    return yarn.Resource(
        memory=amount.memory_mb, virtual_cores=amount.vcores, resource_value_map=items
    )


def words(amount: Capability) -> str:
    """As Java prints it."""
    others = "".join(f", {name}: {value}" for name, value in sorted(amount.other.items()) if value)
    return f"<memory:{amount.memory_mb}, vCores:{amount.vcores}{others}>"


def normalised(requested: Capability, least_mb: int, others: Sequence[str]) -> Capability:
    """As a ResourceManager grants it: memory in steps, and what it does not know dropped."""
    steps = max(1, -(-requested.memory_mb // least_mb))
    known = {name: value for name, value in requested.other.items() if name in others and value}
    return Capability(steps * least_mb, max(1, requested.vcores), known)
