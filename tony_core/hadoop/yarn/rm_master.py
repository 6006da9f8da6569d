"""The ResourceManager as a master calls it: register, allocate, finish.

The protocol has two pieces of state, kept here. Every answer to *allocate* has a number, to
be sent with the next one: sent again with the same number, it is answered the same, so a lost
answer loses no container. And the master's token is rolled over now and then: an answer brings
the new one (again and again, until it is used), and the next call goes over a new connection
that uses it.

When the ResourceManager has restarted, *allocate* raises :class:`NotRegistered`: register
again, then ask again for all that is outstanding.
"""

from __future__ import annotations

import time
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.errors import NotRegistered
from tony_core.hadoop.rpc.connection import Deadline, Endpoints
from tony_core.hadoop.rpc.sasl import STRENGTH
from tony_core.hadoop.rpc.service import CallTimeouts, Method, Service
from tony_core.hadoop.tokens import Token, attempt_of
from tony_core.hadoop.yarn.ids import AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import master_calls as calls
from tony_core.hadoop.yarn.messages.resource_requests import (
    PlacementConstraintMapEntry,
    PreemptionMessage,
    ResourceBlacklistRequest,
    ResourceRequest,
    SchedulingRequest,
)
from tony_core.hadoop.yarn.messages.yarn import NMToken
from tony_core.hadoop.yarn.records import (
    FINAL_STATUSES,
    Capability,
    Container,
    ContainerStatus,
    NodeReport,
    ResourceType,
    containers_of,
    number_of,
)

PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"

REGISTER = Method(
    "registerApplicationMaster",
    calls.RegisterApplicationMasterRequest,
    calls.RegisterApplicationMasterResponse,
)
ALLOCATE = Method("allocate", calls.AllocateRequest, calls.AllocateResponse)
FINISH = Method(
    "finishApplicationMaster",
    calls.FinishApplicationMasterRequest,
    calls.FinishApplicationMasterResponse,
)

_RESYNC, _SHUTDOWN = 1, 2
_COMMANDS = {0: "", _RESYNC: "RESYNC", _SHUTDOWN: "SHUTDOWN"}
_REASONS = {1: "could not be placed on a node", 2: "could not be scheduled on a node"}
_FINISH_POLL_S = 0.1

NodeTokens = Mapping[NodeId, Token]


class Registered(NamedTuple):
    """The answer to a registration."""

    maximum: Capability
    queue: str
    resource_types: Tuple[ResourceType, ...]
    previous: Tuple[Container, ...]  # containers of earlier attempts that still run
    node_tokens: NodeTokens  # for the nodes of those


class Preempted(NamedTuple):
    """Containers that the ResourceManager will preempt, or will unless others are offered."""

    certain: Tuple[ContainerId, ...]
    negotiable: Tuple[ContainerId, ...]


class Rejected(NamedTuple):
    """A request with a constraint that cannot be met."""

    request_id: int
    tags: Tuple[str, ...]
    reason: str


class Allocation(NamedTuple):
    """A response to *allocate*: the changes since the last one."""

    command: str  # "", "RESYNC" or "SHUTDOWN"
    allocated: Tuple[Container, ...]
    completed: Tuple[ContainerStatus, ...]
    previous: Tuple[Container, ...]  # of earlier attempts, reported late
    headroom: Optional[Capability]  # what this application could still get; None: unknown
    updated_nodes: Tuple[NodeReport, ...]
    cluster_nodes: int
    preempted: Preempted
    rejected: Tuple[Rejected, ...]
    node_tokens: NodeTokens
    new_token: Optional[Token]  # adopted already; a journal may want it


class RmMaster:
    """The ResourceManager's protocol for the master of an application."""

    def __init__(self, service: Service, token: Token) -> None:
        self.service = service
        self.token = token
        self.attempt: Optional[AttemptId] = attempt_of(token)
        self._response_id = 0

    @classmethod
    def open(
        cls,
        found: Endpoints,
        token: Token,
        *,
        allowed: Sequence[str] = STRENGTH,
        limits: CallTimeouts = CallTimeouts(),
    ) -> RmMaster:
        """At these addresses (a master's environment does not name them); connects later."""
        service = Service(found, PROTOCOL, token.to_message(), allowed=allowed, limits=limits)
        return cls(service, token)

    def register(
        self,
        host: str,
        port: int,
        tracking_url: str,
        *,
        constraints: Sequence[PlacementConstraintMapEntry] = (),
        within_s: Optional[float] = None,
    ) -> Registered:
        """Register the attempt; again when the ResourceManager has restarted."""
        request = calls.RegisterApplicationMasterRequest(
            host=host,
            rpc_port=port,
            tracking_url=tracking_url,
            placement_constraints=tuple(constraints),
        )
        answer = self.service.call(REGISTER, request, within_s=within_s)
        self._response_id = 0
        return Registered(
            maximum=Capability.from_message(answer.maximum_capability),
            queue=answer.queue,
            resource_types=tuple(ResourceType(t.name, t.units) for t in answer.resource_types),
            previous=tuple(containers_of(answer.containers_from_previous_attempts)),
            node_tokens=_node_tokens(answer.nm_tokens_from_previous_attempts),
        )

    def allocate(
        self,
        *,
        progress: float = 0.0,
        resource_requests: Sequence[ResourceRequest] = (),
        scheduling_requests: Sequence[SchedulingRequest] = (),
        release: Sequence[ContainerId] = (),
        blacklist_additions: Sequence[str] = (),
        blacklist_removals: Sequence[str] = (),
        tracking_url: Optional[str] = None,
        within_s: Optional[float] = None,
    ) -> Allocation:
        """Send what has changed, and return what has changed; this call is the heartbeat too.

        ``asks`` are absolute, by (priority, request id, place); the blacklist names hosts.
        """
        request = calls.AllocateRequest(
            ask=tuple(resource_requests),
            release=tuple(one.to_message() for one in release),
            response_id=self._response_id,
            progress=progress,
            scheduling_requests=tuple(scheduling_requests),
        )
        if blacklist_additions or blacklist_removals:
            request = request.replace(
                blacklist_request=ResourceBlacklistRequest(
                    blacklist_additions=tuple(blacklist_additions),
                    blacklist_removals=tuple(blacklist_removals),
                )
            )
        if tracking_url is not None:
            request = request.replace(tracking_url=tracking_url)
        try:
            answer = self.service.call(ALLOCATE, request, within_s=within_s)
        except NotRegistered:
            self._response_id = 0
            raise
        self._response_id = 0 if answer.a_m_command == _RESYNC else answer.response_id
        return _allocation(answer, self._roll(answer))

    def finish(
        self, status: str, diagnostics: str, tracking_url: str = "", *, within_s: float = 30.0
    ) -> None:
        """Report the application's end; ``status`` is a name of FINAL_STATUSES."""
        deadline = Deadline(within_s, "finishApplicationMaster")
        request = calls.FinishApplicationMasterRequest(
            diagnostics=diagnostics,
            tracking_url=tracking_url,
            final_application_status=number_of(FINAL_STATUSES, status),
        )
        while not self.service.call(FINISH, request, within_s=deadline.remaining()).is_unregistered:
            if not deadline.remaining():
                raise deadline.timeout_error("the ResourceManager has not recorded the end")
            time.sleep(_FINISH_POLL_S)

    def close(self) -> None:
        """Close the connection."""
        self.service.close()

    def _roll(self, answer: calls.AllocateResponse) -> Optional[Token]:
        if not answer.am_rm_token.identifier:
            return None
        token = Token.from_message(answer.am_rm_token)
        if token == self.token:
            return None
        self.token = token
        self.service.use(token.to_message())
        return token


def _allocation(answer: calls.AllocateResponse, new_token: Optional[Token]) -> Allocation:
    return Allocation(
        command=_COMMANDS.get(answer.a_m_command, str(answer.a_m_command)),
        allocated=tuple(containers_of(answer.allocated_containers)),
        completed=tuple(
            ContainerStatus.from_message(one) for one in answer.completed_container_statuses
        ),
        previous=tuple(containers_of(answer.containers_from_previous_attempts)),
        headroom=Capability.from_message(answer.limit) if answer.has("limit") else None,
        updated_nodes=tuple(NodeReport.from_message(one) for one in answer.updated_nodes),
        cluster_nodes=answer.num_cluster_nodes,
        preempted=_preempted(answer.preempt),
        rejected=tuple(
            Rejected(
                one.request.allocation_request_id,
                tuple(one.request.allocation_tags),
                _REASONS.get(one.reason, str(one.reason)),
            )
            for one in answer.rejected_scheduling_requests
        ),
        node_tokens=_node_tokens(answer.nm_tokens),
        new_token=new_token,
    )


def _preempted(message: PreemptionMessage) -> Preempted:
    return Preempted(
        tuple(ContainerId.from_message(one.id) for one in message.strict_contract.container),
        tuple(ContainerId.from_message(one.id) for one in message.contract.container),
    )


def _node_tokens(messages: Sequence[NMToken]) -> NodeTokens:
    return {NodeId.from_message(one.node_id): Token.from_message(one.token) for one in messages}
