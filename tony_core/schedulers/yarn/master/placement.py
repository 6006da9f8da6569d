"""The hosts that container requests name, and the number of containers for each. Pure.

A ResourceManager allocates containers when a node reports to it. For an ask for any node (``*``) it
allocates one container per report; for an ask that names the node, as many as fit at once. So a
gang whose asks name hosts is complete within one round of reports. Naming a host without free
resources only costs time, so hosts are chosen by what the ResourceManager reports as free.

A container is named on :data:`HOSTS_PER_CONTAINER` hosts at most; the first that reports gets it.
Containers are spread: the same number on each host, as far as they fit. Hosts with GPUs (or
another resource type) are left to requests for them while the others suffice. Hosts with equal free
resources are ordered by a hash with a salt of the application, so that two jobs do not name the
same ones.
"""

from __future__ import annotations

import zlib
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.yarn.records import Capability, NodeReport

HOSTS_PER_CONTAINER = 3


_NOTHING = Capability()


class ClusterNode(NamedTuple):
    """A node, under the name that requests use."""

    name: str
    rack: str
    free: Capability
    total: Capability
    label: str = ""
    own_usage: Capability = _NOTHING  # what this job holds of it

    @property
    def available(self) -> Capability:
        """The resources for this job there once all other applications have ended."""
        return subtract(self.total, self.own_usage)


class ContainerUsage(NamedTuple):
    """A container that this job holds; ``unreported`` if the nodes' reports do not count it yet."""

    name: str
    size: Capability
    unreported: bool = False


class NamedHosts(NamedTuple):
    """The number of containers requested on each host and rack, beside that for ``*``."""

    hosts: Mapping[str, int]
    racks: Mapping[str, int]


def cluster_nodes(reports: Iterable[NodeReport], with_port: bool) -> List[ClusterNode]:
    """The running nodes; NodeManagers with the same host name and label count as one."""
    found: Dict[Tuple[str, str], ClusterNode] = {}
    for report in reports:
        if report.state != "RUNNING":
            continue
        name = str(report.id) if with_port else report.id.host
        label = report.labels[0] if report.labels else ""
        room = subtract(report.capability, report.used)
        before = found.get((name, label))
        if before is not None:
            room = max(room, before.free, key=lambda one: one.memory_mb)
        found[name, label] = ClusterNode(name, report.rack, room, report.capability, label)
    return list(found.values())


def add_own_usage(
    nodes: Sequence[ClusterNode], given: Iterable[ContainerUsage]
) -> List[ClusterNode]:
    """The nodes with this job's own usage, including containers that they do not report yet."""
    ours: Dict[str, Capability] = {}
    late: Dict[str, Capability] = {}
    for one in given:
        ours[one.name] = _add(ours.get(one.name, _NOTHING), one.size)
        if one.unreported:
            late[one.name] = _add(late.get(one.name, _NOTHING), one.size)
    return [
        node._replace(
            own_usage=ours[node.name],
            free=subtract(node.free, late.get(node.name, _NOTHING)),
        )
        if node.name in ours
        else node
        for node in nodes
    ]


class FreeResources:
    """The nodes' free resources, minus those of the containers requested there."""

    def __init__(self, nodes: Sequence[ClusterNode], salt: str = "") -> None:
        self._nodes = nodes
        self._free: Dict[str, Capability] = {node.name: node.free for node in nodes}
        self._salt = salt

    def choose_hosts(
        self, need: Capability, count: int, label: str, avoid: FrozenSet[str] = frozenset()
    ) -> Optional[NamedHosts]:
        """Hosts for a number of containers; None if no node has room for one."""
        rooms: List[Tuple[int, ClusterNode]] = []
        for node in self._nodes:
            if node.label == label and node.name not in avoid:
                fits = count_fitting(self._free[node.name], need, count)
                if fits:
                    rooms.append((fits, node))
        if not rooms or count < 1:
            return None
        plain = [item for item in rooms if not _has_scarce_resource(item[1], need)]
        if sum(fits for fits, _ in plain) >= count:
            rooms = plain
        rooms.sort(key=lambda item: (-item[0], self._hash(item[1].name)))
        rooms = rooms[: count * HOSTS_PER_CONTAINER]
        level = _spread_level([fits for fits, _ in rooms], count)
        hosts = {node.name: min(fits, level) for fits, node in rooms}
        racks: Dict[str, int] = {}
        left = count
        for _, node in rooms:
            here = hosts[node.name]
            racks[node.rack] = min(count, racks.get(node.rack, 0) + here)
            taken = min(here, left)
            left -= taken
            self._free[node.name] = subtract(self._free[node.name], need, taken)
        return NamedHosts(hosts, {rack: number for rack, number in racks.items() if rack})

    def _hash(self, name: str) -> int:
        return zlib.crc32(f"{self._salt} {name}".encode())


def _has_scarce_resource(node: ClusterNode, need: Capability) -> bool:
    """Whether it has a resource type, such as GPUs, that these containers do not need."""
    return any(amount > 0 and not need.other.get(k) for k, amount in node.total.other.items())


def count_fitting(room: Capability, need: Capability, most: int) -> int:
    """How many containers fit, up to ``most``."""
    there = room.amounts()
    for name, amount in need.amounts().items():
        if amount > 0:
            most = min(most, there.get(name, 0) // amount)
    return max(0, most)


def _spread_level(rooms: Sequence[int], count: int) -> int:
    """The smallest number per host with which all containers have a node, as far as they fit."""
    low, high = 1, max(rooms)
    while low < high:
        middle = (low + high) // 2
        if sum(min(room, middle) for room in rooms) >= count:
            high = middle
        else:
            low = middle + 1
    return low


def subtract(room: Capability, used: Capability, often: int = 1) -> Capability:
    """Subtract amounts; no resource becomes negative."""
    amounts = used.amounts()
    other = {k: max(0, v - often * amounts.get(k, 0)) for k, v in room.other.items()}
    return Capability(
        max(0, room.memory_mb - often * used.memory_mb),
        max(0, room.vcores - often * used.vcores),
        other,
    )


def _add(one: Capability, other: Capability) -> Capability:
    names = {**one.other, **other.other}
    return Capability(
        one.memory_mb + other.memory_mb,
        one.vcores + other.vcores,
        {name: one.other.get(name, 0) + other.other.get(name, 0) for name in names},
    )
