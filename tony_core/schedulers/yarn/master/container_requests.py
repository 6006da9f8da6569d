"""What the master wants of the ResourceManager, and what has to be said for it. Pure.

Theory of operation
===================

The ResourceManager keeps, for each key (priority, allocation request id, place), a number: how
many containers it still owes there. It counts down what it grants, and an ask replaces the
number. So all that matters is said by the ask for the place ``*``; hosts and racks only say
where. Two rules follow:

* an ask is sent when the master's word changed, never to repeat what stands: what was granted
  and is still on its way to us would be granted again. (It may happen all the same when master
  and ResourceManager speak at the same moment; what comes too much is a *surplus*.)
* the capability is no part of the key. So a role, a session and a size have a key of their own
  (:class:`Want`): an id that tells role and session, also to a next master, and a priority that
  no other role has.

Hosts are named (see :mod:`places`) while that brings luck. When nothing came for
:data:`LUCK_S` (two reports of each node), ``*`` alone stands: any node may answer then. Now and
then, while something is outstanding, hosts with room are looked for again.

Nodes to avoid are a list of the whole application, and an ask that only they could answer would
wait for ever: the only node with GPUs, or with the label. So nodes are avoided only while the
others, with all that they have and this job does not hold itself, are enough for what is
outstanding; the rest of the cluster's load passes. That is looked at now and then as well.

What asks for tags or constraints goes as a SchedulingRequest, which knows no hosts, and never
together with other asks: of a heartbeat that holds both, the ResourceManager takes only these.

After a restart of the ResourceManager (:meth:`Asking.resync`) everything outstanding is said
again. Nothing here has a clock: time comes in as seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from tony_core.hadoop.yarn.messages.resource_requests import (
    ExecutionTypeRequest,
    ResourceRequest,
    ResourceSizing,
    SchedulingRequest,
)
from tony_core.hadoop.yarn.messages.yarn import Priority
from tony_core.hadoop.yarn.records import Capability
from tony_core.schedulers.port import Ask
from tony_core.schedulers.yarn.master.placement import Place, Room, minus, times
from tony_core.schedulers.yarn.placement_constraints import Constraint, add_node_label
from tony_core.schedulers.yarn.resources import to_capability

ANY = "*"
LUCK_S = 2.5  # two reports of every node, by default one a second
AGAIN_S = 10.0  # until hosts are named again, when it brought no luck

_ROLE_BITS, _SESSION_BITS = 12, 32
_VARIANTS = 1 << _ROLE_BITS  # priorities of one role's sizes are this far apart


@dataclass
class Want:
    """One key at the ResourceManager, and what it owes us under it."""

    ask: Ask
    need: Capability
    constraint: Optional[Constraint]
    tags: Tuple[str, ...]
    priority: int
    request_id: int
    missing: int = 0
    said: bool = True  # whether the ResourceManager knows the number
    named: Dict[str, int] = field(default_factory=dict)  # what may stand there besides ``*``
    by_name: bool = True  # whether hosts are to be named
    luck_at: float = 0.0  # when it was said, or a container came

    @property
    def role(self) -> str:
        """Whose it is."""
        return self.ask.role

    @property
    def constrained(self) -> bool:
        """Whether it goes as a SchedulingRequest."""
        return bool(self.constraint or self.tags)


class Said(NamedTuple):
    """What the next heartbeat carries."""

    asks: Tuple[ResourceRequest, ...] = ()
    scheduling: Tuple[SchedulingRequest, ...] = ()
    avoid: Tuple[str, ...] = ()
    avoid_no_more: Tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.asks or self.scheduling or self.avoid or self.avoid_no_more)

    def parts(self) -> List[Tuple[int, Said]]:
        """What is asked for under each request id, alone."""
        found: Dict[int, Said] = {}
        for ask in self.asks:
            part = found.get(ask.allocation_request_id, Said())
            found[ask.allocation_request_id] = part._replace(asks=(*part.asks, ask))
        for request in self.scheduling:
            found[request.allocation_request_id] = Said(scheduling=(request,))
        return list(found.items())


class Asking:
    """See the module. ``roles`` are the job's, in its order: ids are made of their places."""

    def __init__(self, roles: Iterable[str], salt: str = "") -> None:
        self._roles: List[str] = list(roles)
        self._salt = salt
        self._wants: Dict[int, Want] = {}  # by request id
        self._avoid: FrozenSet[str] = frozenset()  # what the master says
        self._spared: FrozenSet[str] = frozenset()  # those of them that nothing can replace
        self._avoided: FrozenSet[str] = frozenset()  # what the ResourceManager was told
        self._looked_at: Optional[float] = None  # when those were found

    # ------------------------------------------------------------------ the master's words

    def request(
        self,
        ask: Ask,
        constraint: Optional[Constraint] = None,
        tags: Tuple[str, ...] = (),
        now: float = 0.0,
    ) -> None:
        """Want this, absolutely, under its role and session."""
        self._avoid = frozenset(ask.avoid_nodes) if ask.count else self._avoid
        self._looked_at = None
        need = to_capability(ask.resources)
        found: Optional[Want] = None
        for want in self._of(ask.role, ask.session):
            if (want.need, want.ask.node_label, want.constraint, want.tags) == (
                need,
                ask.node_label,
                constraint,
                tags,
            ):
                found = want
            elif want.missing:
                want.missing, want.said = 0, False
        if found is None:
            if not ask.count:
                return
            found = self._new(ask, need, constraint, tags)
        if found.missing == ask.count:
            return  # to say it again might bring it twice
        found.ask = ask
        found.missing = ask.count
        found.said = False
        found.by_name = True
        found.luck_at = now

    def withdraw(self) -> None:
        """Want nothing more."""
        for want in self._wants.values():
            if want.missing:
                want.missing, want.said = 0, False

    def drop(self, want: Want) -> None:
        """It can never be had: nothing of it stands at the ResourceManager."""
        want.missing, want.said, want.named = 0, True, {}

    # ------------------------------------------------------------------ what is outstanding

    @property
    def outstanding(self) -> List[Want]:
        """What is wanted and was not granted."""
        return [want for want in self._wants.values() if want.missing]

    @property
    def unsaid(self) -> bool:
        """Whether the ResourceManager has to hear something now."""
        return self._to_avoid != self._avoided or any(not w.said for w in self._wants.values())

    @property
    def avoided(self) -> FrozenSet[str]:
        """The nodes from which nothing is taken."""
        return self._avoided

    def find(self, request_id: int) -> Optional[Want]:
        """What an id of ours stands for."""
        return self._wants.get(request_id)

    def role_of(self, request_id: int) -> str:
        """Which role an id stands for, whoever made it; empty if nobody knows."""
        number = (request_id & (_VARIANTS - 1)) - 1
        return self._roles[number] if 0 <= number < len(self._roles) else ""

    def granted(self, request_id: int, now: float) -> Optional[Want]:
        """A container came under an id: what it answers, or None when it is a surplus."""
        want = self._wants.get(request_id)
        if want is None or not want.missing:
            return None
        want.missing -= 1
        want.luck_at = now
        if not want.missing and want.named:
            want.said = False  # the names that are left must not outlive it
        return want

    # ------------------------------------------------------------------ what is said

    def looks_for_hosts(self, now: float) -> bool:
        """Whether :meth:`say` could use a fresh list of nodes."""
        looked = self._looked_at
        if self._avoid and self.outstanding and (looked is None or now - looked >= AGAIN_S):
            return True
        for want in self.outstanding:
            if not want.constrained and (
                (want.by_name and not want.said) or self._time_to_name(want, now)
            ):
                return True
        return False

    def say(self, places: Sequence[Place], now: float) -> Said:
        """What has to be said now; it counts as said. Anything :attr:`unsaid` is for the next."""
        room = Room(places, self._salt)
        if places:
            self._spared = self._irreplaceable(places) if self._avoid else frozenset()
            self._looked_at = now
        avoid = self._to_avoid
        asks: List[ResourceRequest] = []
        scheduling: List[SchedulingRequest] = []
        for want in self._wants.values():
            if want.constrained:
                continue
            if want.missing and want.said:
                if want.by_name and want.named and now - want.luck_at >= LUCK_S:
                    want.by_name, want.said, want.luck_at = False, False, now
                elif self._time_to_name(want, now):
                    want.luck_at = now
                    want.by_name = True
                    want.said = not self._has_room(want, places, avoid)
            if not want.said:
                asks += self._requests(want, room, avoid)
                want.said = True
        for want in self._wants.values() if not asks else ():
            if want.constrained and not want.said:
                scheduling.append(_scheduling(want))
                want.said = True
        said = Said(
            tuple(asks),
            tuple(scheduling),
            tuple(sorted(avoid - self._avoided)),
            tuple(sorted(self._avoided - avoid)),
        )
        self._avoided = avoid
        return said

    def resync(self) -> None:
        """The ResourceManager knows nothing (any more): all is to be said again."""
        self._avoided = frozenset()
        for want in self._wants.values():
            want.named = {}
            want.said = not want.missing
            want.by_name = True

    # ------------------------------------------------------------------ inside

    def _of(self, role: str, session: int) -> List[Want]:
        return [
            want
            for want in self._wants.values()
            if (want.ask.role, want.ask.session) == (role, session)
        ]

    def _new(
        self,
        ask: Ask,
        need: Capability,
        constraint: Optional[Constraint],
        tags: Tuple[str, ...],
    ) -> Want:
        if ask.role not in self._roles:
            self._roles.append(ask.role)
        number = self._roles.index(ask.role) + 1
        variant = len(self._of(ask.role, ask.session))
        sizes: List[Capability] = []
        for want in self._wants.values():
            if want.role == ask.role and want.need not in sizes:
                sizes.append(want.need)
        if need not in sizes:
            sizes.append(need)
        want = Want(
            ask,
            need,
            constraint,
            tags,
            priority=number + _VARIANTS * sizes.index(need),
            request_id=(((variant << _SESSION_BITS) + ask.session) << _ROLE_BITS) + number,
        )
        self._wants[want.request_id] = want
        return want

    def _time_to_name(self, want: Want, now: float) -> bool:
        return want.said and not want.by_name and now - want.luck_at >= AGAIN_S

    @property
    def _to_avoid(self) -> FrozenSet[str]:
        return self._avoid - self._spared

    def _irreplaceable(self, places: Sequence[Place]) -> FrozenSet[str]:
        """Those of the nodes to avoid without which something outstanding can never be had."""
        free = [place.for_more for place in places]
        spared: Set[str] = set()
        for want in self.outstanding:
            left = want.missing
            label = want.ask.node_label or ""
            bad: List[int] = []
            for at, place in enumerate(places):
                if place.label != label:
                    continue
                if place.name in self._avoid and place.name not in spared:
                    bad.append(at)
                elif want.constraint and place.ours.memory_mb:
                    continue  # it may want each on a node of its own
                else:
                    here = times(free[at], want.need, min(left, 1) if want.constraint else left)
                    free[at] = minus(free[at], want.need, here)
                    left -= here
            for at in bad if left else ():
                here = times(free[at], want.need, max(left, 1))
                if here:
                    spared.add(places[at].name)
                    here = min(here, left)
                    free[at] = minus(free[at], want.need, here)
                    left -= here
        return frozenset(spared)

    def _has_room(self, want: Want, places: Sequence[Place], avoid: FrozenSet[str]) -> bool:
        return Room(places).name(want.need, 1, want.ask.node_label or "", avoid) is not None

    def _requests(self, want: Want, room: Room, avoid: FrozenSet[str]) -> List[ResourceRequest]:
        named: Dict[str, int] = dict.fromkeys(want.named, 0)
        want.named = {}
        if want.missing and want.by_name:
            found = room.name(want.need, want.missing, want.ask.node_label or "", avoid)
            if found is None:
                want.by_name = False
            else:
                want.named = {**found.racks, **found.hosts}
                named.update(want.named)
        label = want.ask.node_label if want.ask.node_label else None
        asks = [_request(want, place, count) for place, count in sorted(named.items())]
        return [*asks, _request(want, ANY, want.missing, label)]


def _request(want: Want, place: str, count: int, label: Optional[str] = None) -> ResourceRequest:
    request = ResourceRequest(
        priority=Priority(priority=want.priority),
        resource_name=place,
        capability=want.need.message(),
        num_containers=count,
        relax_locality=True,
        allocation_request_id=want.request_id,
    )
    return request.replace(node_label_expression=label) if label else request


def _scheduling(want: Want) -> SchedulingRequest:
    request = SchedulingRequest(
        allocation_request_id=want.request_id,
        priority=Priority(priority=want.priority),
        execution_type=ExecutionTypeRequest(execution_type=1, enforce_execution_type=True),
        allocation_tags=want.tags,
        resource_sizing=ResourceSizing(num_allocations=want.missing, resources=want.need.message()),
    )
    constraint = add_node_label(want.constraint, want.ask.node_label)
    if constraint is None:
        return request
    return request.replace(placement_constraint=constraint.message())
