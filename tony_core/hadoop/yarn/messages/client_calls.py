"""Messages of clients' calls (ApplicationClientProtocol).

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
from tony_core.hadoop.yarn.messages.reports import (
    ApplicationAttemptReport,
    ApplicationReport,
    ContainerReport,
    LabelsToNodeIds,
    NodeLabel,
    NodeReport,
    QueueInfo,
    QueueUserACLInfo,
    YarnClusterMetrics,
)
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest
from tony_core.hadoop.yarn.messages.yarn import (
    ApplicationAttemptId,
    ApplicationId,
    ContainerLaunchContext,
    LogAggregationContext,
    Priority,
    Resource,
    ResourceTypeInfo,
    StringStringMap,
)


class ApplicationTimeoutMap(Message):
    application_timeout_type: int = one(1, ENUM, default=0)
    timeout: int = one(2, INT64, default=0)


class ApplicationSubmissionContext(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    application_name: str = one(2, STRING, default="N/A")
    queue: str = one(3, STRING, default="default")
    priority: Priority = one(4, Priority, default=EMPTY)
    am_container_spec: ContainerLaunchContext = one(5, ContainerLaunchContext, default=EMPTY)
    cancel_tokens_when_complete: bool = one(6, BOOL, default=True)
    unmanaged_am: bool = one(7, BOOL, default=False)
    max_app_attempts: int = one(8, INT32, default=0)
    resource: Resource = one(9, Resource, default=EMPTY)
    application_type: str = one(10, STRING, default="YARN")
    keep_containers_across_application_attempts: bool = one(11, BOOL, default=False)
    application_tags: Sequence[str] = many(12, STRING, default=())
    attempt_failures_validity_interval: int = one(13, INT64, default=-1)
    log_aggregation_context: LogAggregationContext = one(14, LogAggregationContext, default=EMPTY)
    node_label_expression: str = one(16, STRING, default="")
    am_container_resource_request: Sequence[ResourceRequest] = many(17, ResourceRequest, default=())
    application_timeouts: Sequence[ApplicationTimeoutMap] = many(
        18, ApplicationTimeoutMap, default=()
    )
    application_scheduling_properties: Sequence[StringStringMap] = many(
        19, StringStringMap, default=()
    )


class GetNewApplicationRequest(Message):
    pass


class GetNewApplicationResponse(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    maximum_capability: Resource = one(2, Resource, default=EMPTY)


class SubmitApplicationRequest(Message):
    application_submission_context: ApplicationSubmissionContext = one(
        1, ApplicationSubmissionContext, default=EMPTY
    )


class SubmitApplicationResponse(Message):
    pass


class GetApplicationReportRequest(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)


class GetApplicationReportResponse(Message):
    application_report: ApplicationReport = one(1, ApplicationReport, default=EMPTY)


class KillApplicationRequest(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)
    diagnostics: str = one(2, STRING, default="")


class KillApplicationResponse(Message):
    is_kill_completed: bool = one(1, BOOL, default=False)


class FailApplicationAttemptRequest(Message):
    application_attempt_id: ApplicationAttemptId = one(1, ApplicationAttemptId, default=EMPTY)


class FailApplicationAttemptResponse(Message):
    pass


class GetApplicationsRequest(Message):
    application_types: Sequence[str] = many(1, STRING, default=())
    application_states: Sequence[int] = many(2, ENUM, default=())
    users: Sequence[str] = many(3, STRING, default=())
    queues: Sequence[str] = many(4, STRING, default=())
    limit: int = one(5, INT64, default=0)
    start_begin: int = one(6, INT64, default=0)
    start_end: int = one(7, INT64, default=0)
    finish_begin: int = one(8, INT64, default=0)
    finish_end: int = one(9, INT64, default=0)
    application_tags: Sequence[str] = many(10, STRING, default=())
    scope: int = one(11, ENUM, default=0)
    name: str = one(12, STRING, default="")


class GetApplicationsResponse(Message):
    applications: Sequence[ApplicationReport] = many(1, ApplicationReport, default=())


class GetClusterMetricsRequest(Message):
    pass


class GetClusterMetricsResponse(Message):
    cluster_metrics: YarnClusterMetrics = one(1, YarnClusterMetrics, default=EMPTY)


class GetClusterNodesRequest(Message):
    node_states: Sequence[int] = many(1, ENUM, default=())


class GetClusterNodesResponse(Message):
    node_reports: Sequence[NodeReport] = many(1, NodeReport, default=())


class GetQueueInfoRequest(Message):
    queue_name: str = one(1, STRING, default="")
    include_applications: bool = one(2, BOOL, default=False)
    include_child_queues: bool = one(3, BOOL, default=False)
    recursive: bool = one(4, BOOL, default=False)


class GetQueueInfoResponse(Message):
    queue_info: QueueInfo = one(1, QueueInfo, default=EMPTY)


class GetQueueUserAclsInfoRequest(Message):
    pass


class GetQueueUserAclsInfoResponse(Message):
    queue_user_acls: Sequence[QueueUserACLInfo] = many(1, QueueUserACLInfo, default=())


class GetLabelsToNodesRequest(Message):
    node_labels: Sequence[str] = many(1, STRING, default=())


class GetLabelsToNodesResponse(Message):
    labels_to_nodes: Sequence[LabelsToNodeIds] = many(1, LabelsToNodeIds, default=())


class GetClusterNodeLabelsRequest(Message):
    pass


class GetClusterNodeLabelsResponse(Message):
    deprecated_node_labels: Sequence[str] = many(1, STRING, default=())
    node_labels: Sequence[NodeLabel] = many(2, NodeLabel, default=())


class GetAllResourceTypeInfoRequest(Message):
    pass


class GetAllResourceTypeInfoResponse(Message):
    resource_type_info: Sequence[ResourceTypeInfo] = many(1, ResourceTypeInfo, default=())


class GetApplicationAttemptsRequest(Message):
    application_id: ApplicationId = one(1, ApplicationId, default=EMPTY)


class GetApplicationAttemptsResponse(Message):
    application_attempts: Sequence[ApplicationAttemptReport] = many(
        1, ApplicationAttemptReport, default=()
    )


class GetContainersRequest(Message):
    application_attempt_id: ApplicationAttemptId = one(1, ApplicationAttemptId, default=EMPTY)


class GetContainersResponse(Message):
    containers: Sequence[ContainerReport] = many(1, ContainerReport, default=())
