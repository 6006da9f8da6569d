"""Compares what a job demands with what a cluster and its queue can hold, in numbers. Pure.

The roles that wait for no other role are one gang and must fit together with the master. A role
that waits for others must fit by itself, a sidecar container by container.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from tony_core.hadoop.yarn.records import MEMORY, VCORES, Queue
from tony_core.job.spec import Job, Mode, Resources, Role, Tracking
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits, NodeCapacity
from tony_core.schedulers.yarn.resources import (
    GPU,
    format_amount,
    format_amounts,
    multiply_amounts,
    sum_amounts,
    to_capability,
)


class _Demand(NamedTuple):
    """A number of containers of one kind."""

    who: str
    key: str  # of the job's keys: tony.KEY.memory
    instances: int
    need: Dict[str, int]
    label: str

    @classmethod
    def of(
        cls,
        limits: ClusterLimits,
        who: str,
        key: str,
        instances: int,
        resources: Resources,
        label: str,
    ) -> _Demand:
        need = to_capability(resources).amounts()
        if limits.types is not None:  # _resource_types reports what is not counted
            need = {k: v for k, v in need.items() if k in (MEMORY, VCORES) or k in limits.types}
        return cls(who, key, instances, need, label)


def find_excess(job: Job, limits: ClusterLimits) -> List[str]:
    """The parts of the job that are too large even for the empty cluster."""
    demands = _demands(job, limits)
    return _container_sizes(demands, limits) or _gang_sizes(job, demands, limits)


def find_shortages(job: Job, limits: ClusterLimits) -> List[str]:
    """Why the job will wait: a line for each resource of which too little is free now."""
    demands = _demands(job, limits)
    first = next(iter(_start_groups(job)), [])
    chosen = [demands[role.name] for role in first] or [demands[""]]
    found: List[str] = []
    if limits.nodes is None and not limits.by_rest:
        found.append("the job will wait: no node of the cluster runs now")
    for label in sorted({demand.label for demand in chosen}):
        same = [demand for demand in chosen if demand.label == label]
        beside = [demands[""]] if demands[""].label == label and chosen != [demands[""]] else []
        found += _shortages(same, beside, label, limits)
    queue = limits.queue
    if queue is not None and queue.statistics.num_apps_pending > 0:
        pending = queue.statistics.num_apps_pending
        found.append(
            f"{pending} application{'s' if pending > 1 else ''} already"
            f" wait{'' if pending > 1 else 's'} in the queue {queue.path}"
            f" ({queue.statistics.num_apps_running} run): the job may have to wait"
        )
    return found


def _demands(job: Job, limits: ClusterLimits) -> Dict[str, _Demand]:
    default = job.node_label or (limits.queue.default_label if limits.queue else "") or ""
    master = job.master
    demands = {
        "": _Demand.of(
            limits, "the master", "am", 1, master.resources, master.node_label or default
        ),
    }
    for role in job.roles:
        label = role.node_label or default
        demands[role.name] = _Demand.of(
            limits, role.name, role.name, role.least, role.resources, label
        )
    return demands


def _container_sizes(demands: Dict[str, _Demand], limits: ClusterLimits) -> List[str]:
    """Containers that are larger than the cluster's maximum or than every node."""
    found = []
    most = limits.maximum.amounts()
    for demand in demands.values():
        over = [
            (name, amount)
            for name, amount in demand.need.items()
            if name in most and amount > most[name]
        ]
        for name, amount in over:
            found.append(
                f"tony.{demand.key}.{_key_suffix(name)}: {demand.who} asks for"
                f" {format_amount(name, amount)} in a container; the cluster gives"
                f" {format_amount(name, most[name])} at most"
            )
        nodes = _eligible_nodes(limits, demand.label)
        if (
            not over
            and nodes
            and not any(_containers_per_node(node, demand.need) for node in nodes)
        ):
            found.append(
                f"tony.{demand.key}: {demand.who} asks for {format_amounts(demand.need)} in a"
                f" container; {_where(demand.label)} no node has that much"
                f" ({_describe_largest(nodes)})"
            )
    return found


def _gang_sizes(job: Job, demands: Dict[str, _Demand], limits: ClusterLimits) -> List[str]:
    """Gangs that are too large for the nodes they may run on, or for the queue."""
    found: List[str] = []
    for group in _start_groups(job):
        chosen = [demands[role.name] for role in group]
        for label in sorted({demand.label for demand in chosen}):
            same = [demand for demand in chosen if demand.label == label]
            beside = [demands[""]] if demands[""].label == label else []
            over = _over_cluster(same, beside, label, limits) or _over_queue(
                same, beside, label, limits
            )
            found += over or [
                words for demand in same for words in _over_nodes(demand, limits)
            ]  # though the sums fit
    return list(dict.fromkeys(found))


def _over_cluster(
    demands: List[_Demand], beside: List[_Demand], label: str, limits: ClusterLimits
) -> List[str]:
    nodes = _eligible_nodes(limits, label)
    if nodes is None:
        return []
    there = sum_amounts(node.capability.amounts() for node in nodes)
    place = f"the nodes labelled {label} have" if label else "the cluster has"
    found = []
    for name, (amount, words) in _sum_demands(demands, beside).items():
        if amount > there.get(name, 0):
            having = [node for node in nodes if node.capability.amounts().get(name, 0)]
            on = f" on {len(having)} node{'s' if len(having) != 1 else ''}" if having else ""
            found.append(
                f"the job asks for {format_amount(name, amount)} in all ({words});"
                f" {place} {there.get(name, 0)}{on}"
            )
    return found


def _over_queue(
    demands: List[_Demand], beside: List[_Demand], label: str, limits: ClusterLimits
) -> List[str]:
    if limits.queue is None or label not in limits.queue.maximum:
        return []
    most = limits.queue.maximum[label].amounts()
    return [
        f"the job asks for {format_amount(name, amount)} in all ({words});"
        f" the queue {limits.queue.path} may grow to {most[name]} at most"
        for name, (amount, words) in _sum_demands(demands, beside).items()
        if name in most and amount > most[name]
    ]


def _over_nodes(demand: _Demand, limits: ClusterLimits) -> List[str]:
    nodes = _eligible_nodes(limits, demand.label)
    if nodes is None:
        return []
    fit = sum(_containers_per_node(node, demand.need) for node in nodes)
    if fit >= demand.instances:
        return []
    return [
        f"{demand.who}: {demand.instances} containers of {format_amounts(demand.need)} are needed;"
        f" {_where(demand.label)} there is room for {fit} of them, even when all nodes are empty"
    ]


def _sum_demands(demands: List[_Demand], beside: List[_Demand]) -> Dict[str, Tuple[int, str]]:
    """The total of each resource, and the terms it is the sum of."""
    everything = [*demands, *beside]
    sums = sum_amounts(multiply_amounts(demand.need, demand.instances) for demand in everything)
    return {
        name: (
            amount,
            " + ".join(
                f"{demand.who} {demand.instances} x {demand.need[name]}"
                if demand.instances > 1
                else f"{demand.who} {demand.need[name]}"
                for demand in everything
                if demand.need.get(name)
            ),
        )
        for name, amount in sums.items()
    }


def _start_groups(job: Job) -> List[List[Role]]:
    """The roles that start together, then each role that waits for others, by itself."""
    if job.mode is not Mode.GANG:
        return []
    gang = [role for role in job.roles if role.tracking is not Tracking.SIDECAR]
    first = [role for role in gang if not role.depends_on]
    return ([first] if first else []) + [[role] for role in gang if role.depends_on]


def _eligible_nodes(limits: ClusterLimits, label: str) -> Optional[List[NodeCapacity]]:
    """The nodes that serve a label; without one, also those of labels that share their nodes."""
    if limits.nodes is None:
        return None
    if label:
        return [
            node for node in limits.nodes if label in node.labels
        ] or None  # _labels reports that
    shared = {name for name, exclusive in (limits.labels or {}).items() if not exclusive}
    known = limits.labels is not None
    return [node for node in limits.nodes if not known or not (node.labels - shared)]


def _containers_per_node(node: NodeCapacity, need: Dict[str, int]) -> int:
    """How many such containers an empty node has room for."""
    has = node.capability.amounts()
    return min((has.get(name, 0) // amount for name, amount in need.items() if amount), default=0)


def _where(label: str) -> str:
    return f"among the nodes labelled {label}" if label else "in the cluster"


def _describe_largest(nodes: List[NodeCapacity]) -> str:
    top = max(nodes, key=lambda node: tuple(node.capability.amounts().values()))
    return f"{top.name} has {format_amounts(top.capability.amounts())}"


def _key_suffix(name: str) -> str:
    return {MEMORY: "memory", VCORES: "vcores", GPU: "gpus"}.get(name, f"resource.{name}")


def _shortages(
    demands: List[_Demand], beside: List[_Demand], label: str, limits: ClusterLimits
) -> List[str]:
    found = []
    nodes = _eligible_nodes(limits, label) or []
    used = sum_amounts(node.used.amounts() for node in nodes)
    there = sum_amounts(node.capability.amounts() for node in nodes)
    queue = limits.queue
    for name, (amount, _) in _sum_demands(demands, beside).items():
        free = there.get(name, 0) - used.get(name, 0)
        if nodes and used.get(name, 0) and free < amount <= there.get(name, 0):
            place = f"the nodes labelled {label}" if label else "the cluster"
            found.append(
                f"the job will wait: it asks for {format_amount(name, amount)},"
                f" and {free} of {there[name]} are free in {place} now"
            )
        elif queue is not None and not label and "" in queue.maximum:
            held = _queue_usage(queue, name)
            most = queue.maximum[""].amounts().get(name, 0)
            if held and most - held < amount <= most:
                found.append(
                    f"the job will wait: it asks for {format_amount(name, amount)}, and the queue"
                    f" {queue.path} holds {held} of the {most} that it may have"
                )
    return found


def _queue_usage(queue: Queue, name: str) -> int:
    statistics = queue.statistics
    return {MEMORY: statistics.allocated_memory_mb, VCORES: statistics.allocated_vcores}.get(
        name, 0
    )
