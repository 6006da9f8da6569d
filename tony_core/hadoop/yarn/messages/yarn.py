"""Messages of all YARN protocols: ids, resources, containers, launch contexts.

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Optional, Sequence

from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.protobuf import (
    BYTES,
    EMPTY,
    ENUM,
    INT32,
    INT64,
    STRING,
    Message,
    many,
    one,
)


class ApplicationId(Message):
    id: int = one(1, INT32, default=0)
    cluster_timestamp: int = one(2, INT64, default=0)


class ApplicationAttemptId(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    attempt_id: int = one(2, INT32, default=0)


class ContainerId(Message):
    app_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    app_attempt_id: ApplicationAttemptId = one(2, ApplicationAttemptId, default=EMPTY)
    id: int = one(3, INT64, default=0)


class NodeId(Message):
    host: str = one(1, STRING, default="")
    port: int = one(2, INT32, default=0)


class StringStringMap(Message):
    key: str = one(1, STRING, default="")
    value: str = one(2, STRING, default="")


class StringBytesMap(Message):
    key: str = one(1, STRING, default="")
    value: bytes = one(2, BYTES, default=b"")


class SerializedException(Message):
    message: str = one(1, STRING, default="")
    trace: str = one(2, STRING, default="")
    class_name: str = one(3, STRING, default="")
    cause: Optional[SerializedException] = one(4, "SerializedException", default=None)


class ResourceInformation(Message):
    key: str = one(1, STRING, default="", required=True)
    value: int = one(2, INT64, default=0)
    units: str = one(3, STRING, default="")
    type: int = one(4, ENUM, default=0)


class ResourceTypeInfo(Message):
    name: str = one(1, STRING, default="", required=True)
    units: str = one(2, STRING, default="")
    type: int = one(3, ENUM, default=0)


class Resource(Message):
    memory: int = one(1, INT64, default=0)
    virtual_cores: int = one(2, INT32, default=0)
    resource_value_map: Sequence[ResourceInformation] = many(3, ResourceInformation, default=())


class Priority(Message):
    priority: int = one(1, INT32, default=0)


class Container(Message):
    id: ContainerId = one(1, ContainerId, default=EMPTY)
    node_id: NodeId = one(2, NodeId, default=EMPTY)
    node_http_address: str = one(3, STRING, default="")
    resource: Resource = one(4, Resource, default=EMPTY)
    priority: Priority = one(5, Priority, default=EMPTY)
    container_token: Token = one(6, Token, default=EMPTY)
    execution_type: int = one(7, ENUM, default=1)
    allocation_request_id: int = one(8, INT64, default=-1)
    version: int = one(9, INT32, default=0)
    allocation_tags: Sequence[str] = many(10, STRING, default=())
    exposed_ports: str = one(11, STRING, default="")


class ContainerStatus(Message):
    container_id: ContainerId = one(1, ContainerId, default=EMPTY)
    state: int = one(2, ENUM, default=0)
    diagnostics: str = one(3, STRING, default="N/A")
    exit_status: int = one(4, INT32, default=-1000)
    capability: Resource = one(5, Resource, default=EMPTY)
    execution_type: int = one(6, ENUM, default=1)
    container_attributes: Sequence[StringStringMap] = many(7, StringStringMap, default=())
    container_sub_state: int = one(8, ENUM, default=0)


class URL(Message):
    scheme: str = one(1, STRING, default="")
    host: str = one(2, STRING, default="")
    port: int = one(3, INT32, default=0)
    file: str = one(4, STRING, default="")
    user_info: str = one(5, STRING, default="")


class LocalResource(Message):
    resource: URL = one(1, URL, default=EMPTY)
    size: int = one(2, INT64, default=0)
    timestamp: int = one(3, INT64, default=0)
    type: int = one(4, ENUM, default=0)
    visibility: int = one(5, ENUM, default=0)
    pattern: str = one(6, STRING, default="")


class StringLocalResourceMap(Message):
    key: str = one(1, STRING, default="")
    value: LocalResource = one(2, LocalResource, default=EMPTY)


class ApplicationACLMap(Message):
    access_type: int = one(1, ENUM, default=0)
    acl: str = one(2, STRING, default=" ")


class ContainerRetryContext(Message):
    retry_policy: int = one(1, ENUM, default=0)
    error_codes: Sequence[int] = many(2, INT32, default=())
    max_retries: int = one(3, INT32, default=0)
    retry_interval: int = one(4, INT32, default=0)
    failures_validity_interval: int = one(5, INT64, default=-1)


class ContainerLaunchContext(Message):
    local_resources: Sequence[StringLocalResourceMap] = many(1, StringLocalResourceMap, default=())
    tokens: bytes = one(2, BYTES, default=b"")
    service_data: Sequence[StringBytesMap] = many(3, StringBytesMap, default=())
    environment: Sequence[StringStringMap] = many(4, StringStringMap, default=())
    command: Sequence[str] = many(5, STRING, default=())
    application_acls: Sequence[ApplicationACLMap] = many(6, ApplicationACLMap, default=())
    container_retry_context: ContainerRetryContext = one(7, ContainerRetryContext, default=EMPTY)


class NMToken(Message):
    node_id: NodeId = one(1, NodeId, default=EMPTY)
    token: Token = one(2, Token, default=EMPTY)


class AMRMTokenIdentifier(Message):
    app_attempt_id: ApplicationAttemptId = one(1, ApplicationAttemptId, default=EMPTY)
    key_id: int = one(2, INT32, default=-1)


class NMTokenIdentifier(Message):
    app_attempt_id: ApplicationAttemptId = one(1, ApplicationAttemptId, default=EMPTY)
    node_id: NodeId = one(2, NodeId, default=EMPTY)
    app_submitter: str = one(3, STRING, default="")
    key_id: int = one(4, INT32, default=-1)


class YARNDelegationTokenIdentifier(Message):
    owner: str = one(1, STRING, default="")
    renewer: str = one(2, STRING, default="")
    real_user: str = one(3, STRING, default="")
    issue_date: int = one(4, INT64, default=0)
    max_date: int = one(5, INT64, default=0)


class LogAggregationContext(Message):
    include_pattern: str = one(1, STRING, default=".*")
    exclude_pattern: str = one(2, STRING, default="")
    rolled_logs_include_pattern: str = one(3, STRING, default="")
    rolled_logs_exclude_pattern: str = one(4, STRING, default=".*")
    log_aggregation_policy_class_name: str = one(5, STRING, default="")
    log_aggregation_policy_parameters: str = one(6, STRING, default="")


class ContainerTokenIdentifier(Message):
    container_id: ContainerId = one(1, ContainerId, default=EMPTY)
    nm_host_addr: str = one(2, STRING, default="")
    app_submitter: str = one(3, STRING, default="")
    resource: Resource = one(4, Resource, default=EMPTY)
    expiry_time_stamp: int = one(5, INT64, default=0)
    master_key_id: int = one(6, INT32, default=-1)
    rm_identifier: int = one(7, INT64, default=0)
    priority: Priority = one(8, Priority, default=EMPTY)
    creation_time: int = one(9, INT64, default=0)
    node_label_expression: str = one(11, STRING, default="")
    container_type: int = one(12, ENUM, default=0)
    execution_type: int = one(13, ENUM, default=1)
    version: int = one(14, INT32, default=0)
    allocation_request_id: int = one(15, INT64, default=-1)
    allocation_tags: Sequence[str] = many(16, STRING, default=())
