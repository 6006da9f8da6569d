"""Messages of the ResourceManager's reports: applications, nodes, queues.

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Sequence

from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.protobuf import (
    BOOL,
    EMPTY,
    ENUM,
    FLOAT,
    INT32,
    INT64,
    STRING,
    Message,
    many,
    one,
)
from tony_core.hadoop.yarn.messages.yarn import (
    ApplicationAttemptId,
    ApplicationId,
    ContainerId,
    NodeId,
    Priority,
    Resource,
)


class ApplicationTimeout(Message):
    application_timeout_type: int = one(1, ENUM, default=0, required=True)
    expire_time: str = one(2, STRING, default="")
    remaining_time: int = one(3, INT64, default=0)


class AppTimeoutsMap(Message):
    application_timeout_type: int = one(1, ENUM, default=0)
    application_timeout: ApplicationTimeout = one(2, ApplicationTimeout, default=EMPTY)


class StringLongMap(Message):
    key: str = one(1, STRING, default="", required=True)
    value: int = one(2, INT64, default=0, required=True)


class ApplicationResourceUsageReport(Message):
    num_used_containers: int = one(1, INT32, default=0)
    num_reserved_containers: int = one(2, INT32, default=0)
    used_resources: Resource = one(3, Resource, default=EMPTY)
    reserved_resources: Resource = one(4, Resource, default=EMPTY)
    needed_resources: Resource = one(5, Resource, default=EMPTY)
    memory_seconds: int = one(6, INT64, default=0)
    vcore_seconds: int = one(7, INT64, default=0)
    queue_usage_percentage: float = one(8, FLOAT, default=0.0)
    cluster_usage_percentage: float = one(9, FLOAT, default=0.0)
    preempted_memory_seconds: int = one(10, INT64, default=0)
    preempted_vcore_seconds: int = one(11, INT64, default=0)
    application_resource_usage_map: Sequence[StringLongMap] = many(12, StringLongMap, default=())
    application_preempted_resource_usage_map: Sequence[StringLongMap] = many(
        13, StringLongMap, default=()
    )


class ApplicationReport(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    user: str = one(2, STRING, default="")
    queue: str = one(3, STRING, default="")
    name: str = one(4, STRING, default="")
    host: str = one(5, STRING, default="")
    rpc_port: int = one(6, INT32, default=0)
    yarn_application_state: int = one(8, ENUM, default=0)
    tracking_url: str = one(9, STRING, default="")
    diagnostics: str = one(10, STRING, default="N/A")
    start_time: int = one(11, INT64, default=0)
    finish_time: int = one(12, INT64, default=0)
    final_application_status: int = one(13, ENUM, default=0)
    app_resource_usage: ApplicationResourceUsageReport = one(
        14, ApplicationResourceUsageReport, default=EMPTY
    )
    original_tracking_url: str = one(15, STRING, default="")
    current_application_attempt_id: ApplicationAttemptId = one(
        16, ApplicationAttemptId, default=EMPTY
    )
    progress: float = one(17, FLOAT, default=0.0)
    application_type: str = one(18, STRING, default="")
    am_rm_token: Token = one(19, Token, default=EMPTY)
    application_tags: Sequence[str] = many(20, STRING, default=())
    unmanaged_application: bool = one(22, BOOL, default=False)
    priority: Priority = one(23, Priority, default=EMPTY)
    app_node_label_expression: str = one(24, STRING, default="")
    am_node_label_expression: str = one(25, STRING, default="")
    app_timeouts: Sequence[AppTimeoutsMap] = many(26, AppTimeoutsMap, default=())
    launch_time: int = one(27, INT64, default=0)
    submit_time: int = one(28, INT64, default=0)


class ApplicationAttemptReport(Message):
    application_attempt_id: ApplicationAttemptId = one(1, ApplicationAttemptId, default=EMPTY)
    host: str = one(2, STRING, default="")
    rpc_port: int = one(3, INT32, default=0)
    tracking_url: str = one(4, STRING, default="")
    diagnostics: str = one(5, STRING, default="N/A")
    yarn_application_attempt_state: int = one(6, ENUM, default=0)
    am_container_id: ContainerId = one(7, ContainerId, default=EMPTY)
    original_tracking_url: str = one(8, STRING, default="")
    start_time: int = one(9, INT64, default=0)
    finish_time: int = one(10, INT64, default=0)


class ContainerReport(Message):
    container_id: ContainerId = one(1, ContainerId, default=EMPTY)
    resource: Resource = one(2, Resource, default=EMPTY)
    node_id: NodeId = one(3, NodeId, default=EMPTY)
    priority: Priority = one(4, Priority, default=EMPTY)
    creation_time: int = one(5, INT64, default=0)
    finish_time: int = one(6, INT64, default=0)
    diagnostics_info: str = one(7, STRING, default="N/A")
    log_url: str = one(8, STRING, default="")
    container_exit_status: int = one(9, INT32, default=0)
    container_state: int = one(10, ENUM, default=0)
    node_http_address: str = one(11, STRING, default="")
    execution_type: int = one(12, ENUM, default=1)
    exposed_ports: str = one(13, STRING, default="")


class NodeAttributeKey(Message):
    attribute_prefix: str = one(1, STRING, default="rm.yarn.io")
    attribute_name: str = one(2, STRING, default="", required=True)


class NodeAttribute(Message):
    attribute_key: NodeAttributeKey = one(1, NodeAttributeKey, default=EMPTY, required=True)
    attribute_type: int = one(2, ENUM, default=1)
    attribute_value: str = one(3, STRING, default="")


class NodeReport(Message):
    node_id: NodeId = one(1, NodeId, default=EMPTY)
    http_address: str = one(2, STRING, default="")
    rack_name: str = one(3, STRING, default="")
    used: Resource = one(4, Resource, default=EMPTY)
    capability: Resource = one(5, Resource, default=EMPTY)
    num_containers: int = one(6, INT32, default=0)
    node_state: int = one(7, ENUM, default=0)
    health_report: str = one(8, STRING, default="")
    last_health_report_time: int = one(9, INT64, default=0)
    node_labels: Sequence[str] = many(10, STRING, default=())
    node_attributes: Sequence[NodeAttribute] = many(15, NodeAttribute, default=())


class NodeLabel(Message):
    name: str = one(1, STRING, default="")
    is_exclusive: bool = one(2, BOOL, default=True)


class LabelsToNodeIds(Message):
    node_labels: str = one(1, STRING, default="")
    node_id: Sequence[NodeId] = many(2, NodeId, default=())


class YarnClusterMetrics(Message):
    num_node_managers: int = one(1, INT32, default=0)
    num_decommissioned_nms: int = one(2, INT32, default=0)
    num_active_nms: int = one(3, INT32, default=0)
    num_lost_nms: int = one(4, INT32, default=0)
    num_unhealthy_nms: int = one(5, INT32, default=0)
    num_rebooted_nms: int = one(6, INT32, default=0)
    num_decommissioning_nms: int = one(7, INT32, default=0)
    num_shutdown_nms: int = one(8, INT32, default=0)


class QueueStatistics(Message):
    num_apps_submitted: int = one(1, INT64, default=0)
    num_apps_running: int = one(2, INT64, default=0)
    num_apps_pending: int = one(3, INT64, default=0)
    num_apps_completed: int = one(4, INT64, default=0)
    num_apps_killed: int = one(5, INT64, default=0)
    num_apps_failed: int = one(6, INT64, default=0)
    num_active_users: int = one(7, INT64, default=0)
    available_memory_mb: int = one(8, INT64, default=0)
    allocated_memory_mb: int = one(9, INT64, default=0)
    pending_memory_mb: int = one(10, INT64, default=0)
    reserved_memory_mb: int = one(11, INT64, default=0)
    available_vcores: int = one(12, INT64, default=0)
    allocated_vcores: int = one(13, INT64, default=0)
    pending_vcores: int = one(14, INT64, default=0)
    reserved_vcores: int = one(15, INT64, default=0)
    allocated_containers: int = one(16, INT64, default=0)
    pending_containers: int = one(17, INT64, default=0)
    reserved_containers: int = one(18, INT64, default=0)


class QueueConfigurations(Message):
    capacity: float = one(1, FLOAT, default=0.0)
    absolute_capacity: float = one(2, FLOAT, default=0.0)
    max_capacity: float = one(3, FLOAT, default=0.0)
    absolute_max_capacity: float = one(4, FLOAT, default=0.0)
    max_ampercentage: float = one(5, FLOAT, default=0.0)
    effective_min_capacity: Resource = one(6, Resource, default=EMPTY)
    effective_max_capacity: Resource = one(7, Resource, default=EMPTY)
    configured_min_capacity: Resource = one(8, Resource, default=EMPTY)
    configured_max_capacity: Resource = one(9, Resource, default=EMPTY)


class QueueConfigurationsMap(Message):
    partition_name: str = one(1, STRING, default="", required=True)
    queue_configurations: QueueConfigurations = one(2, QueueConfigurations, default=EMPTY)


class QueueInfo(Message):
    queue_name: str = one(1, STRING, default="")
    capacity: float = one(2, FLOAT, default=0.0)
    maximum_capacity: float = one(3, FLOAT, default=0.0)
    current_capacity: float = one(4, FLOAT, default=0.0)
    state: int = one(5, ENUM, default=0)
    child_queues: Sequence[QueueInfo] = many(6, "QueueInfo", default=())
    accessible_node_labels: Sequence[str] = many(8, STRING, default=())
    default_node_label_expression: str = one(9, STRING, default="")
    queue_statistics: QueueStatistics = one(10, QueueStatistics, default=EMPTY)
    preemption_disabled: bool = one(11, BOOL, default=False)
    queue_configurations_map: Sequence[QueueConfigurationsMap] = many(
        12, QueueConfigurationsMap, default=()
    )
    queue_path: str = one(15, STRING, default="")


class QueueUserACLInfo(Message):
    queue_name: str = one(1, STRING, default="")
    user_acls: Sequence[int] = many(2, ENUM, default=())
