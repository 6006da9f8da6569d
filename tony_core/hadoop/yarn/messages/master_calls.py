"""Messages of masters' calls (ApplicationMasterProtocol).

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Sequence

from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.protobuf import (
    BOOL,
    BYTES,
    EMPTY,
    ENUM,
    FLOAT,
    INT32,
    STRING,
    Message,
    many,
    one,
)
from tony_core.hadoop.yarn.messages.reports import NodeReport
from tony_core.hadoop.yarn.messages.resource_requests import (
    PlacementConstraintMapEntry,
    PreemptionMessage,
    RejectedSchedulingRequest,
    ResourceBlacklistRequest,
    ResourceRequest,
    SchedulingRequest,
)
from tony_core.hadoop.yarn.messages.yarn import (
    ApplicationACLMap,
    Container,
    ContainerId,
    ContainerStatus,
    NMToken,
    Priority,
    Resource,
    ResourceTypeInfo,
)


class RegisterApplicationMasterRequest(Message):
    host: str = one(1, STRING, default="")
    rpc_port: int = one(2, INT32, default=0)
    tracking_url: str = one(3, STRING, default="")
    placement_constraints: Sequence[PlacementConstraintMapEntry] = many(
        4, PlacementConstraintMapEntry, default=()
    )


class RegisterApplicationMasterResponse(Message):
    maximum_capability: Resource = one(1, Resource, default=EMPTY)
    client_to_am_token_master_key: bytes = one(2, BYTES, default=b"")
    application_acls: Sequence[ApplicationACLMap] = many(3, ApplicationACLMap, default=())
    containers_from_previous_attempts: Sequence[Container] = many(4, Container, default=())
    queue: str = one(5, STRING, default="")
    nm_tokens_from_previous_attempts: Sequence[NMToken] = many(6, NMToken, default=())
    scheduler_resource_types: Sequence[int] = many(7, ENUM, default=())
    resource_types: Sequence[ResourceTypeInfo] = many(9, ResourceTypeInfo, default=())


class AllocateRequest(Message):
    ask: Sequence[ResourceRequest] = many(1, ResourceRequest, default=())
    release: Sequence[ContainerId] = many(2, ContainerId, default=())
    blacklist_request: ResourceBlacklistRequest = one(3, ResourceBlacklistRequest, default=EMPTY)
    response_id: int = one(4, INT32, default=0)
    progress: float = one(5, FLOAT, default=0.0)
    scheduling_requests: Sequence[SchedulingRequest] = many(10, SchedulingRequest, default=())
    tracking_url: str = one(11, STRING, default="")


class AllocateResponse(Message):
    a_m_command: int = one(1, ENUM, default=0)
    response_id: int = one(2, INT32, default=0)
    allocated_containers: Sequence[Container] = many(3, Container, default=())
    completed_container_statuses: Sequence[ContainerStatus] = many(4, ContainerStatus, default=())
    limit: Resource = one(5, Resource, default=EMPTY)
    updated_nodes: Sequence[NodeReport] = many(6, NodeReport, default=())
    num_cluster_nodes: int = one(7, INT32, default=0)
    preempt: PreemptionMessage = one(8, PreemptionMessage, default=EMPTY)
    nm_tokens: Sequence[NMToken] = many(9, NMToken, default=())
    am_rm_token: Token = one(12, Token, default=EMPTY)
    application_priority: Priority = one(13, Priority, default=EMPTY)
    containers_from_previous_attempts: Sequence[Container] = many(17, Container, default=())
    rejected_scheduling_requests: Sequence[RejectedSchedulingRequest] = many(
        18, RejectedSchedulingRequest, default=()
    )


class FinishApplicationMasterRequest(Message):
    diagnostics: str = one(1, STRING, default="")
    tracking_url: str = one(2, STRING, default="")
    final_application_status: int = one(3, ENUM, default=0)


class FinishApplicationMasterResponse(Message):
    is_unregistered: bool = one(1, BOOL, default=False)
