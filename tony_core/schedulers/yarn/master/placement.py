"""Where to ask for containers: which hosts to name, and for how many on each.

A ResourceManager hands out containers when a node reports to it. To who says "anywhere" (``*``)
it gives one for each report of a node; to who names the node, as many as fit, at once. So a gang
that names its hosts stands within one round of reports. To name a host that has no room only
costs time; so hosts are chosen by what the ResourceManager says is free on each.

A container is named on three hosts at most: the first that reports takes it. What is wanted is
spread: the same number on each host, as far as they have room. Hosts with GPUs (or another
resource type) are left to those who ask for them, while the others have room for all. Hosts of
equal room are told apart by a word of the application's own, so that two jobs do not name the
same ones.

Pure: no clock, no input or output.
"""

from __future__ import annotations

import zlib
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.yarn.records import Capability, NodeReport

HOSTS_EACH = 3
"""A container is named on so many hosts at most."""

_NOTHING = Capability()


class Place(NamedTuple):
    """A node, as asks name it."""

    name: str
    rack: str
    room: Capability  # what is free there
    size: Capability  # what it has in all
    label: str = ""
    ours: Capability = _NOTHING  # what of it this job holds itself

    @property
    def for_more(self) -> Capability:
        """What may come to be free for this job: all but what it holds."""
        return minus(self.size, self.ours)


class Given(NamedTuple):
    """A container that this job holds; ``late`` if the nodes' report does not count it yet."""

    name: str
    size: Capability
    late: bool = False


class Named(NamedTuple):
    """What an ask says besides ``*``: how many at most on each host and rack."""

    hosts: Mapping[str, int]
    racks: Mapping[str, int]


def places_of(reports: Iterable[NodeReport], with_port: bool) -> List[Place]:
    """The nodes that take containers; those that share a host's name are one place."""
    found: Dict[Tuple[str, str], Place] = {}
    for report in reports:
        if report.state != "RUNNING":
            continue
        name = str(report.id) if with_port else report.id.host
        label = report.labels[0] if report.labels else ""
        room = minus(report.capability, report.used)
        before = found.get((name, label))
        if before is not None:
            room = max(room, before.room, key=lambda one: one.memory_mb)
        found[name, label] = Place(name, report.rack, room, report.capability, label)
    return list(found.values())


def with_ours(places: Sequence[Place], given: Iterable[Given]) -> List[Place]:
    """The nodes with what this job holds on them."""
    ours: Dict[str, Capability] = {}
    late: Dict[str, Capability] = {}
    for one in given:
        ours[one.name] = _plus(ours.get(one.name, _NOTHING), one.size)
        if one.late:
            late[one.name] = _plus(late.get(one.name, _NOTHING), one.size)
    return [
        place._replace(
            ours=ours[place.name],
            room=minus(place.room, late.get(place.name, _NOTHING)),
        )
        if place.name in ours
        else place
        for place in places
    ]


class Room:
    """What is free, less what has been named in it meanwhile."""

    def __init__(self, places: Sequence[Place], salt: str = "") -> None:
        self._places = places
        self._free: Dict[str, Capability] = {place.name: place.room for place in places}
        self._salt = salt

    def name(
        self, need: Capability, count: int, label: str, avoid: FrozenSet[str] = frozenset()
    ) -> Optional[Named]:
        """Hosts for so many containers; none when nothing here has room for one."""
        rooms: List[Tuple[int, Place]] = []
        for place in self._places:
            if place.label == label and place.name not in avoid:
                fits = times(self._free[place.name], need, count)
                if fits:
                    rooms.append((fits, place))
        if not rooms or count < 1:
            return None
        plain = [item for item in rooms if not _is_scarce(item[1], need)]
        if sum(fits for fits, _ in plain) >= count:
            rooms = plain
        rooms.sort(key=lambda item: (-item[0], self._mark(item[1].name)))
        rooms = rooms[: count * HOSTS_EACH]
        level = _level([fits for fits, _ in rooms], count)
        hosts = {place.name: min(fits, level) for fits, place in rooms}
        racks: Dict[str, int] = {}
        left = count
        for _, place in rooms:
            here = hosts[place.name]
            racks[place.rack] = min(count, racks.get(place.rack, 0) + here)
            taken = min(here, left)
            left -= taken
            self._free[place.name] = minus(self._free[place.name], need, taken)
        return Named(hosts, {rack: number for rack, number in racks.items() if rack})

    def _mark(self, name: str) -> int:
        return zlib.crc32(f"{self._salt} {name}".encode())


def _is_scarce(place: Place, need: Capability) -> bool:
    """Whether it has what this does not ask for and others may: GPUs, above all."""
    return any(amount > 0 and not need.other.get(k) for k, amount in place.size.other.items())


def times(room: Capability, need: Capability, most: int) -> int:
    """How often something fits into a room, up to ``most``."""
    there = room.amounts()
    for name, amount in need.amounts().items():
        if amount > 0:
            most = min(most, there.get(name, 0) // amount)
    return max(0, most)


def _level(rooms: Sequence[int], count: int) -> int:
    """The least number, the same for each, that makes enough (or all there is)."""
    low, high = 1, max(rooms)
    while low < high:
        middle = (low + high) // 2
        if sum(min(room, middle) for room in rooms) >= count:
            high = middle
        else:
            low = middle + 1
    return low


def minus(room: Capability, used: Capability, often: int = 1) -> Capability:
    """What is left, never less than nothing."""
    amounts = used.amounts()
    other = {k: max(0, v - often * amounts.get(k, 0)) for k, v in room.other.items()}
    return Capability(
        max(0, room.memory_mb - often * used.memory_mb),
        max(0, room.vcores - often * used.vcores),
        other,
    )


def _plus(one: Capability, other: Capability) -> Capability:
    names = {**one.other, **other.other}
    return Capability(
        one.memory_mb + other.memory_mb,
        one.vcores + other.vcores,
        {name: one.other.get(name, 0) + other.other.get(name, 0) for name in names},
    )
