"""Messages of container requests: by location, by tags and constraints; and of preemption.

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Sequence

from tony_core.hadoop.rpc.protobuf import (
    BOOL,
    EMPTY,
    ENUM,
    INT32,
    INT64,
    STRING,
    Message,
    many,
    one,
)
from tony_core.hadoop.yarn.messages.yarn import ContainerId, Priority, Resource


class ExecutionTypeRequest(Message):
    execution_type: int = one(1, ENUM, default=1)
    enforce_execution_type: bool = one(2, BOOL, default=False)


class ResourceRequest(Message):
    priority: Priority = one(1, Priority, default=EMPTY)
    resource_name: str = one(2, STRING, default="")
    capability: Resource = one(3, Resource, default=EMPTY)
    num_containers: int = one(4, INT32, default=0)
    relax_locality: bool = one(5, BOOL, default=True)
    node_label_expression: str = one(6, STRING, default="")
    execution_type_request: ExecutionTypeRequest = one(7, ExecutionTypeRequest, default=EMPTY)
    allocation_request_id: int = one(8, INT64, default=-1)


class ResourceSizing(Message):
    num_allocations: int = one(1, INT32, default=0)
    resources: Resource = one(2, Resource, default=EMPTY)


class PlacementConstraintTarget(Message):
    target_type: int = one(1, ENUM, default=0, required=True)
    target_key: str = one(2, STRING, default="")
    target_values: Sequence[str] = many(3, STRING, default=())


class SimplePlacementConstraint(Message):
    scope: str = one(1, STRING, default="", required=True)
    target_expressions: Sequence[PlacementConstraintTarget] = many(
        2, PlacementConstraintTarget, default=()
    )
    min_cardinality: int = one(3, INT32, default=0)
    max_cardinality: int = one(4, INT32, default=0)
    attribute_op_code: int = one(5, ENUM, default=0)


class CompositePlacementConstraint(Message):
    composite_type: int = one(1, ENUM, default=0, required=True)
    child_constraints: Sequence[PlacementConstraint] = many(2, "PlacementConstraint", default=())


class PlacementConstraint(Message):
    simple_constraint: SimplePlacementConstraint = one(1, SimplePlacementConstraint, default=EMPTY)
    composite_constraint: CompositePlacementConstraint = one(
        2, CompositePlacementConstraint, default=EMPTY
    )


class PlacementConstraintMapEntry(Message):
    allocation_tags: Sequence[str] = many(1, STRING, default=())
    placement_constraint: PlacementConstraint = one(2, PlacementConstraint, default=EMPTY)


class SchedulingRequest(Message):
    allocation_request_id: int = one(1, INT64, default=0)
    priority: Priority = one(2, Priority, default=EMPTY)
    execution_type: ExecutionTypeRequest = one(3, ExecutionTypeRequest, default=EMPTY)
    allocation_tags: Sequence[str] = many(4, STRING, default=())
    resource_sizing: ResourceSizing = one(5, ResourceSizing, default=EMPTY)
    placement_constraint: PlacementConstraint = one(6, PlacementConstraint, default=EMPTY)


class RejectedSchedulingRequest(Message):
    reason: int = one(1, ENUM, default=0, required=True)
    request: SchedulingRequest = one(2, SchedulingRequest, default=EMPTY, required=True)


class PreemptionContainer(Message):
    id: ContainerId = one(1, ContainerId, default=EMPTY)


class PreemptionResourceRequest(Message):
    resource: ResourceRequest = one(1, ResourceRequest, default=EMPTY)


class StrictPreemptionContract(Message):
    container: Sequence[PreemptionContainer] = many(1, PreemptionContainer, default=())


class PreemptionContract(Message):
    resource: Sequence[PreemptionResourceRequest] = many(1, PreemptionResourceRequest, default=())
    container: Sequence[PreemptionContainer] = many(2, PreemptionContainer, default=())


class PreemptionMessage(Message):
    strict_contract: StrictPreemptionContract = one(1, StrictPreemptionContract, default=EMPTY)
    contract: PreemptionContract = one(2, PreemptionContract, default=EMPTY)


class ResourceBlacklistRequest(Message):
    blacklist_additions: Sequence[str] = many(1, STRING, default=())
    blacklist_removals: Sequence[str] = many(2, STRING, default=())
