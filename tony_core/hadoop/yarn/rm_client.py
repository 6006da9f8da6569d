"""The ResourceManager as clients call it: submit, report, kill.

One method for each call of ApplicationClientProtocol that we use. All of them may be sent
again: submitting an application a second time is answered like the first.
"""

from __future__ import annotations

import time
from typing import Dict, Iterable, List, Optional, Sequence, Set

from tony_core.hadoop.identity import ClusterIdentity, cluster_identity, rm_token_service
from tony_core.hadoop.rpc.connection import Deadline
from tony_core.hadoop.rpc.messages import (
    CancelDelegationTokenRequest,
    CancelDelegationTokenResponse,
    GetDelegationTokenRequest,
    GetDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tony_core.hadoop.rpc.service import CallTimeouts, Method, Service
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import client_calls as calls
from tony_core.hadoop.yarn.messages.container_calls import (
    SignalContainerRequest,
    SignalContainerResponse,
)
from tony_core.hadoop.yarn.messages.reports import YarnClusterMetrics
from tony_core.hadoop.yarn.records import (
    APPLICATION_STATES,
    NODE_STATES,
    QUEUE_ACLS,
    AppReport,
    AttemptReport,
    Capability,
    ContainerReport,
    NewApplication,
    NodeLabel,
    NodeReport,
    Queue,
    ResourceType,
    name_of,
    number_of,
)

PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"

NEW_APPLICATION = Method(
    "getNewApplication", calls.GetNewApplicationRequest, calls.GetNewApplicationResponse
)
SUBMIT = Method(
    "submitApplication", calls.SubmitApplicationRequest, calls.SubmitApplicationResponse
)
REPORT = Method(
    "getApplicationReport", calls.GetApplicationReportRequest, calls.GetApplicationReportResponse
)
APPLICATIONS = Method(
    "getApplications", calls.GetApplicationsRequest, calls.GetApplicationsResponse
)
KILL = Method("forceKillApplication", calls.KillApplicationRequest, calls.KillApplicationResponse)
FAIL_ATTEMPT = Method(
    "failApplicationAttempt",
    calls.FailApplicationAttemptRequest,
    calls.FailApplicationAttemptResponse,
)
METRICS = Method(
    "getClusterMetrics", calls.GetClusterMetricsRequest, calls.GetClusterMetricsResponse
)
NODES = Method("getClusterNodes", calls.GetClusterNodesRequest, calls.GetClusterNodesResponse)
QUEUE = Method("getQueueInfo", calls.GetQueueInfoRequest, calls.GetQueueInfoResponse)
QUEUE_USER_ACLS = Method(
    "getQueueUserAcls", calls.GetQueueUserAclsInfoRequest, calls.GetQueueUserAclsInfoResponse
)
NODE_LABELS = Method(
    "getClusterNodeLabels",
    calls.GetClusterNodeLabelsRequest,
    calls.GetClusterNodeLabelsResponse,
)
LABELS_TO_NODES = Method(
    "getLabelsToNodes", calls.GetLabelsToNodesRequest, calls.GetLabelsToNodesResponse
)
RESOURCE_TYPES = Method(
    "getResourceTypeInfo",
    calls.GetAllResourceTypeInfoRequest,
    calls.GetAllResourceTypeInfoResponse,
)
ATTEMPTS = Method(
    "getApplicationAttempts",
    calls.GetApplicationAttemptsRequest,
    calls.GetApplicationAttemptsResponse,
)
CONTAINERS = Method("getContainers", calls.GetContainersRequest, calls.GetContainersResponse)
SIGNAL = Method("signalToContainer", SignalContainerRequest, SignalContainerResponse)

# A second token, where the answer to the first request was lost, expires unused.
DELEGATION_TOKEN = Method(
    "getDelegationToken", GetDelegationTokenRequest, GetDelegationTokenResponse
)

RENEW_TOKEN = Method(
    "renewDelegationToken", RenewDelegationTokenRequest, RenewDelegationTokenResponse
)
# A second cancellation would be refused, for there is no such token any more.
CANCEL_TOKEN = Method(
    "cancelDelegationToken",
    CancelDelegationTokenRequest,
    CancelDelegationTokenResponse,
    repeatable=False,
)

SIGNALS = {"THREAD_DUMP": 1, "GRACEFUL_SHUTDOWN": 2, "FORCEFUL_SHUTDOWN": 3}

_KILL_POLL_S = 0.2


class RmClient:
    """The ResourceManager's client protocol."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @classmethod
    def open(
        cls,
        conf: SiteConfiguration,
        *,
        identity: Optional[ClusterIdentity] = None,
        limits: CallTimeouts = CallTimeouts(),
        encrypted: bool = False,
    ) -> RmClient:
        """A client of a site's ResourceManager; connects at the first call.

        ``encrypted``: no weaker protection will do (:class:`ProtectionRefused`), whatever the
        site's configuration allows.
        """
        who = identity or cluster_identity(conf)
        found = endpoints.rm_client(conf)
        return cls(
            Service(
                found,
                PROTOCOL,
                who.for_rpc(lambda: rm_token_service(conf), found.service),
                allowed=("auth-conf",) if encrypted else endpoints.allowed_protections(conf),
                limits=limits,
            )
        )

    # ---------------------------------------------------------------- applications

    def new_application(self) -> NewApplication:
        """A fresh application id, and the largest container that the cluster grants."""
        answer = self.service.call(NEW_APPLICATION, calls.GetNewApplicationRequest())
        return NewApplication(
            ApplicationId.from_message(answer.application_id),
            Capability.from_message(answer.maximum_capability),
        )

    def submit(self, context: calls.ApplicationSubmissionContext) -> None:
        """Submit an application. It may still be refused afterwards: see its report.

        Tags are kept as they come and searched in lower case: so they come in lower case.
        """
        tags = tuple(tag.lower() for tag in context.application_tags)
        if tags:
            context = context.replace(application_tags=tags)
        request = calls.SubmitApplicationRequest(application_submission_context=context)
        self.service.call(SUBMIT, request)

    def report(self, application: ApplicationId) -> AppReport:
        """An application's report; raises :class:`ApplicationNotFound`."""
        request = calls.GetApplicationReportRequest(application_id=application.to_message())
        return AppReport.from_message(self.service.call(REPORT, request).application_report)

    def applications(
        self,
        *,
        types: Iterable[str] = (),
        states: Iterable[str] = (),
        users: Iterable[str] = (),
        queues: Iterable[str] = (),
        tags: Iterable[str] = (),
        name: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> List[AppReport]:
        """The applications that match one value of each list given, the newest first."""
        request = calls.GetApplicationsRequest(
            application_types=tuple(types),
            application_states=tuple(number_of(APPLICATION_STATES, state) for state in states),
            users=tuple(users),
            queues=tuple(queues),
            application_tags=tuple(tag.lower() for tag in tags),
        )
        if name is not None:
            request = request.replace(name=name)
        if limit is not None:
            request = request.replace(limit=limit)
        found = [
            AppReport.from_message(one)
            for one in self.service.call(APPLICATIONS, request).applications
        ]
        if name is not None:
            found = [one for one in found if one.name == name]  # older ones ignore the field
        return sorted(found, key=lambda one: one.id, reverse=True)

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = 30.0
    ) -> None:
        """End an application; returns when the ResourceManager has done it."""
        deadline = Deadline(within_s, f"killing {application}")
        request = calls.KillApplicationRequest(application_id=application.to_message())
        if diagnostics:
            request = request.replace(diagnostics=diagnostics)
        while not self.service.call(KILL, request, within_s=deadline.remaining()).is_kill_completed:
            if not deadline.remaining():
                raise deadline.timeout_error("the ResourceManager has not finished it")
            time.sleep(_KILL_POLL_S)

    def fail_attempt(self, attempt: AttemptId) -> None:
        """End one attempt; the ResourceManager starts the next, if there may be one."""
        request = calls.FailApplicationAttemptRequest(application_attempt_id=attempt.to_message())
        self.service.call(FAIL_ATTEMPT, request)

    def attempts(self, application: ApplicationId) -> List[AttemptReport]:
        """The attempts of an application, by number."""
        request = calls.GetApplicationAttemptsRequest(application_id=application.to_message())
        found = self.service.call(ATTEMPTS, request).application_attempts
        return sorted((AttemptReport.from_message(one) for one in found), key=lambda one: one.id)

    def containers(self, attempt: AttemptId) -> List[ContainerReport]:
        """The containers of an attempt that are running (or remembered)."""
        request = calls.GetContainersRequest(application_attempt_id=attempt.to_message())
        found = self.service.call(CONTAINERS, request).containers
        return sorted((ContainerReport.from_message(one) for one in found), key=lambda one: one.id)

    def signal(self, container: ContainerId, signal: str) -> None:
        """Send one of :data:`SIGNALS` to a container, with its node's next heartbeat."""
        request = SignalContainerRequest(
            container_id=container.to_message(), command=SIGNALS[signal]
        )
        self.service.call(SIGNAL, request)

    # ---------------------------------------------------------------- the cluster

    def nodes(self, states: Sequence[str] = ("RUNNING",)) -> List[NodeReport]:
        """The nodes in these states; in all states when none is given."""
        wanted = states or tuple(NODE_STATES.values())
        request = calls.GetClusterNodesRequest(
            node_states=tuple(number_of(NODE_STATES, state) for state in wanted)
        )
        found = self.service.call(NODES, request).node_reports
        return sorted((NodeReport.from_message(one) for one in found), key=lambda one: one.id)

    def metrics(self) -> YarnClusterMetrics:
        """How many nodes there are in which state."""
        return self.service.call(METRICS, calls.GetClusterMetricsRequest()).cluster_metrics

    def queue(self, name: str, *, children: bool = False) -> Optional[Queue]:
        """A queue, with all below it if asked; ``None`` when there is no such queue."""
        request = calls.GetQueueInfoRequest(
            queue_name=name,
            include_applications=False,
            include_child_queues=children,
            recursive=children,
        )
        answer = self.service.call(QUEUE, request)
        return Queue.from_message(answer.queue_info) if answer.queue_info.queue_name else None

    def queue_acls(self) -> Dict[str, Set[str]]:
        """The caller's permissions by queue: names of QUEUE_ACLS."""
        answer = self.service.call(QUEUE_USER_ACLS, calls.GetQueueUserAclsInfoRequest())
        return {
            entry.queue_name: {name_of(QUEUE_ACLS, acl) for acl in entry.user_acls}
            for entry in answer.queue_user_acls
        }

    def node_labels(self) -> List[NodeLabel]:
        """The labels that the cluster knows; none when it does not use any."""
        answer = self.service.call(NODE_LABELS, calls.GetClusterNodeLabelsRequest())
        return [NodeLabel(one.name, one.is_exclusive) for one in answer.node_labels]

    def labelled_nodes(self, labels: Sequence[str] = ()) -> Dict[str, List[NodeId]]:
        """The nodes with each of these labels, or with any."""
        request = calls.GetLabelsToNodesRequest(node_labels=tuple(labels))
        answer = self.service.call(LABELS_TO_NODES, request)
        return {
            entry.node_labels: [NodeId.from_message(one) for one in entry.node_id]
            for entry in answer.labels_to_nodes
        }

    def resource_types(self) -> List[ResourceType]:
        """The cluster's resource types: memory-mb, vcores, and the site's own."""
        answer = self.service.call(RESOURCE_TYPES, calls.GetAllResourceTypeInfoRequest())
        return [ResourceType(one.name, one.units) for one in answer.resource_type_info]

    def delegation_token(self, renewer: str) -> Token:
        """A new token of the caller, which ``renewer`` may renew as well; its service is empty."""
        request = GetDelegationTokenRequest(renewer=renewer)
        return Token.from_message(self.service.call(DELEGATION_TOKEN, request).token)

    def renew_delegation_token(self, token: Token) -> float:
        """Renew a token, as its renewer; returns when it then expires (seconds since the epoch).

        Needs a login: a token renews none.
        """
        request = RenewDelegationTokenRequest(token=token.to_message())
        return self.service.call(RENEW_TOKEN, request).new_expiry_time / 1000

    def cancel_delegation_token(self, token: Token) -> None:
        """Cancel a token, as its owner or renewer."""
        request = CancelDelegationTokenRequest(token=token.to_message())
        self.service.call(CANCEL_TOKEN, request)

    def close(self) -> None:
        """Close the connection."""
        self.service.close()
