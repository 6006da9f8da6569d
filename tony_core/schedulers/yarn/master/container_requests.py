"""The containers that the master requests, and the updates that heartbeats must send for it. Pure.

Theory of operation
===================

The ResourceManager keeps a number for each key (priority, allocation request id, place): how many
containers it still owes there. It counts down what it allocates, and a new ask replaces the
number. The ask for the place ``*`` decides how many; those for hosts and racks only say where.
Two rules follow:

* An ask is sent only when the number that the master wants has changed. If it were repeated,
  containers that are on their way to the master would be allocated a second time. (That can still
  happen when an ask and an allocation cross; the surplus containers are returned.)
* The capability is not part of the key. So each role, session and size has a key of its own
  (:class:`OutstandingRequest`): a request id that encodes role and session, also for a next master,
  and a priority that no other role has.

Asks name hosts (:mod:`placement`) as long as allocations follow. After :data:`NAMED_WAIT_S` without
one (two reports of each node) only the ask for ``*`` stands, which any node may serve. Every
:data:`NAME_AGAIN_S`, hosts with free resources are looked for again.

YARN's blacklist is one list for the whole application. A request that only blacklisted nodes can
serve (the only node with GPUs, or with the label) would wait forever. So a node is blacklisted
only while the other nodes, with everything that this job does not hold there itself, suffice for
what is outstanding; other applications' containers end sooner or later. That too is checked
every :data:`NAME_AGAIN_S`.

Requests with tags or constraints are sent as SchedulingRequests, which name no hosts, and never
in one heartbeat with other asks: the ResourceManager would ignore the others.

After a restart of the ResourceManager (:meth:`ContainerRequests.resync`) everything outstanding is
sent again. Nothing here reads a clock: time comes in as seconds.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from tony_core.hadoop.yarn.messages.resource_requests import (
    ExecutionTypeRequest,
    ResourceRequest,
    ResourceSizing,
    SchedulingRequest,
)
from tony_core.hadoop.yarn.messages.yarn import Priority
from tony_core.hadoop.yarn.records import Capability
from tony_core.schedulers.container_pool import ContainerRequest
from tony_core.schedulers.yarn.master.placement import (
    ClusterNode,
    FreeResources,
    count_fitting,
    subtract,
)
from tony_core.schedulers.yarn.placement_constraints import Constraint, add_node_label
from tony_core.schedulers.yarn.resources import to_capability

ANY = "*"
NAMED_WAIT_S = 2.5  # two reports of every node; by default each sends one a second
NAME_AGAIN_S = 10.0  # until hosts are named again after they did not help

_ROLE_BITS, _SESSION_BITS = 12, 32
_VARIANTS = 1 << _ROLE_BITS  # priorities of one role's sizes are this far apart


class OutstandingRequest:
    """A key at the ResourceManager, and how many containers it still owes under it."""

    def __init__(
        self,
        wanted: ContainerRequest,
        need: Capability,
        constraint: Optional[Constraint],
        tags: Tuple[str, ...],
        priority: int,
        request_id: int,
    ) -> None:
        self.wanted = wanted
        self.need = need
        self.constraint = constraint
        self.tags = tags
        self.priority = priority
        self.request_id = request_id
        self.missing = 0
        self.sent = True  # whether the ResourceManager has the current number
        self.named: Dict[str, int] = {}  # hosts and racks for which requests may stand there
        self.names_hosts = True  # whether the next request names hosts
        self.progress_at = 0.0  # when it was sent, or a container was allocated

    @property
    def role(self) -> str:
        """The role that the containers are for."""
        return self.wanted.role

    @property
    def constrained(self) -> bool:
        """Whether it is sent as a SchedulingRequest."""
        return bool(self.constraint or self.tags)


class RequestUpdate(NamedTuple):
    """The changes that the next heartbeat must send."""

    resource_requests: Tuple[ResourceRequest, ...] = ()
    scheduling_requests: Tuple[SchedulingRequest, ...] = ()
    blacklist_additions: Tuple[str, ...] = ()
    blacklist_removals: Tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self)

    def split(self) -> List[Tuple[int, RequestUpdate]]:
        """Split into an update for each request id."""
        found: Dict[int, RequestUpdate] = {}
        for one in self.resource_requests:
            part = found.get(one.allocation_request_id, RequestUpdate())
            found[one.allocation_request_id] = part._replace(
                resource_requests=(*part.resource_requests, one)
            )
        for request in self.scheduling_requests:
            found[request.allocation_request_id] = RequestUpdate(scheduling_requests=(request,))
        return list(found.items())


class ContainerRequests:
    """The outstanding requests of one master; ``roles`` in the job's order, which ids encode."""

    def __init__(self, roles: Iterable[str], salt: str = "") -> None:
        self._roles: List[str] = list(roles)
        self._salt = salt
        self._requests_by_id: Dict[int, OutstandingRequest] = {}  # by request id
        self._avoid: FrozenSet[str] = frozenset()  # nodes that the master wants to avoid
        self._irreplaceable: FrozenSet[str] = frozenset()  # of these, nodes that are needed
        self._sent_blacklist: FrozenSet[str] = frozenset()  # as the ResourceManager knows it
        self._nodes_checked_at: Optional[float] = None  # when _irreplaceable was found

    # ------------------------------------------------------------------ requests

    def request(
        self,
        wanted: ContainerRequest,
        constraint: Optional[Constraint] = None,
        tags: Tuple[str, ...] = (),
        now: float = 0.0,
    ) -> None:
        """Set the number of containers wanted for a role and session; replaces earlier ones."""
        self._avoid = frozenset(wanted.avoid_nodes) if wanted.count else self._avoid
        self._nodes_checked_at = None
        need = to_capability(wanted.resources)
        found: Optional[OutstandingRequest] = None
        for request in self._of(wanted.role, wanted.session):
            if (request.need, request.wanted.node_label, request.constraint, request.tags) == (
                need,
                wanted.node_label,
                constraint,
                tags,
            ):
                found = request
            elif request.missing:
                request.missing, request.sent = 0, False
        if found is None:
            if not wanted.count:
                return
            found = self._new(wanted, need, constraint, tags)
        if found.missing == wanted.count:
            return  # sent again, it might be allocated twice
        found.wanted = wanted
        found.missing = wanted.count
        found.sent = False
        found.names_hosts = True
        found.progress_at = now

    def withdraw(self) -> None:
        """Withdraw all requests."""
        for request in self._requests_by_id.values():
            if request.missing:
                request.missing, request.sent = 0, False

    def drop(self, request: OutstandingRequest) -> None:
        """Forget a request that the ResourceManager refused."""
        request.missing, request.sent, request.named = 0, True, {}

    # ------------------------------------------------------------------ what is outstanding

    @property
    def outstanding(self) -> List[OutstandingRequest]:
        """The requests that wait for containers."""
        return [request for request in self._requests_by_id.values() if request.missing]

    @property
    def has_unsent(self) -> bool:
        """Whether something must be sent."""
        return self._blacklist != self._sent_blacklist or any(
            not w.sent for w in self._requests_by_id.values()
        )

    @property
    def blacklisted(self) -> FrozenSet[str]:
        """The nodes that the ResourceManager has on the blacklist."""
        return self._sent_blacklist

    def find(self, request_id: int) -> Optional[OutstandingRequest]:
        """The request of an id."""
        return self._requests_by_id.get(request_id)

    def role_of(self, request_id: int) -> str:
        """The role that an id encodes, also one of a previous attempt; empty if it is none."""
        number = (request_id & (_VARIANTS - 1)) - 1
        return self._roles[number] if 0 <= number < len(self._roles) else ""

    def record_allocation(self, request_id: int, now: float) -> Optional[OutstandingRequest]:
        """Count an allocated container; its request, or None for a surplus container."""
        request = self._requests_by_id.get(request_id)
        if request is None or not request.missing:
            return None
        request.missing -= 1
        request.progress_at = now
        if not request.missing and request.named:
            request.sent = False  # withdraws the asks for hosts that are left
        return request

    # ------------------------------------------------------------------ updates

    def needs_nodes(self, now: float) -> bool:
        """Whether :meth:`next_update` needs a fresh list of nodes."""
        checked = self._nodes_checked_at
        if self._avoid and self.outstanding and (checked is None or now - checked >= NAME_AGAIN_S):
            return True
        for request in self.outstanding:
            if not request.constrained and (
                (request.names_hosts and not request.sent) or self._is_time_to_name(request, now)
            ):
                return True
        return False

    def next_update(self, nodes: Sequence[ClusterNode], now: float) -> RequestUpdate:
        """The changes to send now; they count as sent. :attr:`has_unsent`: whether more remain."""
        room = FreeResources(nodes, self._salt)
        if nodes:
            self._irreplaceable = self._find_irreplaceable(nodes) if self._avoid else frozenset()
            self._nodes_checked_at = now
        avoid = self._blacklist
        resource_requests: List[ResourceRequest] = []
        scheduling_requests: List[SchedulingRequest] = []
        for request in self._requests_by_id.values():
            if request.constrained:
                continue
            if request.missing and request.sent:
                if (
                    request.names_hosts
                    and request.named
                    and now - request.progress_at >= NAMED_WAIT_S
                ):
                    request.names_hosts, request.sent, request.progress_at = False, False, now
                elif self._is_time_to_name(request, now):
                    request.progress_at = now
                    request.names_hosts = True
                    request.sent = not self._has_room(request, nodes, avoid)
            if not request.sent:
                resource_requests += self._requests(request, room, avoid)
                request.sent = True
        for request in self._requests_by_id.values() if not resource_requests else ():
            if request.constrained and not request.sent:
                scheduling_requests.append(_scheduling_request(request))
                request.sent = True
        update = RequestUpdate(
            tuple(resource_requests),
            tuple(scheduling_requests),
            tuple(sorted(avoid - self._sent_blacklist)),
            tuple(sorted(self._sent_blacklist - avoid)),
        )
        self._sent_blacklist = avoid
        return update

    def resync(self) -> None:
        """Send everything again: the ResourceManager has restarted."""
        self._sent_blacklist = frozenset()
        for request in self._requests_by_id.values():
            request.named = {}
            request.sent = not request.missing
            request.names_hosts = True

    # ------------------------------------------------------------------ inside

    def _of(self, role: str, session: int) -> List[OutstandingRequest]:
        return [
            request
            for request in self._requests_by_id.values()
            if (request.wanted.role, request.wanted.session) == (role, session)
        ]

    def _new(
        self,
        wanted: ContainerRequest,
        need: Capability,
        constraint: Optional[Constraint],
        tags: Tuple[str, ...],
    ) -> OutstandingRequest:
        if wanted.role not in self._roles:
            self._roles.append(wanted.role)
        number = self._roles.index(wanted.role) + 1
        variant = len(self._of(wanted.role, wanted.session))
        sizes: List[Capability] = []
        for request in self._requests_by_id.values():
            if request.role == wanted.role and request.need not in sizes:
                sizes.append(request.need)
        if need not in sizes:
            sizes.append(need)
        request = OutstandingRequest(
            wanted,
            need,
            constraint,
            tags,
            priority=number + _VARIANTS * sizes.index(need),
            request_id=(((variant << _SESSION_BITS) + wanted.session) << _ROLE_BITS) + number,
        )
        self._requests_by_id[request.request_id] = request
        return request

    def _is_time_to_name(self, request: OutstandingRequest, now: float) -> bool:
        return (
            request.sent and not request.names_hosts and now - request.progress_at >= NAME_AGAIN_S
        )

    @property
    def _blacklist(self) -> FrozenSet[str]:
        return self._avoid - self._irreplaceable

    def _find_irreplaceable(self, nodes: Sequence[ClusterNode]) -> FrozenSet[str]:
        """The nodes to avoid without which an outstanding request could never be served."""
        free = [node.available for node in nodes]
        spared: Set[str] = set()
        for request in self.outstanding:
            left = request.missing
            label = request.wanted.node_label or ""
            bad: List[int] = []
            for at, node in enumerate(nodes):
                if node.label != label:
                    continue
                if node.name in self._avoid and node.name not in spared:
                    bad.append(at)
                elif request.constraint and node.own_usage.memory_mb:
                    continue  # the constraint may want one container per node
                else:
                    here = count_fitting(
                        free[at], request.need, min(left, 1) if request.constraint else left
                    )
                    free[at] = subtract(free[at], request.need, here)
                    left -= here
            for at in bad if left else ():
                here = count_fitting(free[at], request.need, max(left, 1))
                if here:
                    spared.add(nodes[at].name)
                    here = min(here, left)
                    free[at] = subtract(free[at], request.need, here)
                    left -= here
        return frozenset(spared)

    def _has_room(
        self, request: OutstandingRequest, nodes: Sequence[ClusterNode], avoid: FrozenSet[str]
    ) -> bool:
        return (
            FreeResources(nodes).choose_hosts(
                request.need, 1, request.wanted.node_label or "", avoid
            )
            is not None
        )

    def _requests(
        self, request: OutstandingRequest, room: FreeResources, avoid: FrozenSet[str]
    ) -> List[ResourceRequest]:
        named: Dict[str, int] = dict.fromkeys(request.named, 0)
        request.named = {}
        if request.missing and request.names_hosts:
            found = room.choose_hosts(
                request.need, request.missing, request.wanted.node_label or "", avoid
            )
            if found is None:
                request.names_hosts = False
            else:
                request.named = {**found.racks, **found.hosts}
                named.update(request.named)
        label = request.wanted.node_label if request.wanted.node_label else None
        resource_requests = [
            _resource_request(request, place, count) for place, count in sorted(named.items())
        ]
        return [*resource_requests, _resource_request(request, ANY, request.missing, label)]


def _resource_request(
    request: OutstandingRequest, place: str, count: int, label: Optional[str] = None
) -> ResourceRequest:
    message = ResourceRequest(
        priority=Priority(priority=request.priority),
        resource_name=place,
        capability=request.need.to_message(),
        num_containers=count,
        relax_locality=True,
        allocation_request_id=request.request_id,
    )
    return message.replace(node_label_expression=label) if label else message


def _scheduling_request(request: OutstandingRequest) -> SchedulingRequest:
    message = SchedulingRequest(
        allocation_request_id=request.request_id,
        priority=Priority(priority=request.priority),
        execution_type=ExecutionTypeRequest(execution_type=1, enforce_execution_type=True),
        allocation_tags=request.tags,
        resource_sizing=ResourceSizing(
            num_allocations=request.missing, resources=request.need.to_message()
        ),
    )
    constraint = add_node_label(request.constraint, request.wanted.node_label)
    if constraint is None:
        return message
    return message.replace(placement_constraint=constraint.to_message())
