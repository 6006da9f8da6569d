"""The fake's ApplicationClientProtocol: what clients ask and submit."""

from __future__ import annotations

import signal
from typing import Callable, Dict, List

from tests.cluster.fakeyarn import reporting
from tests.cluster.fakeyarn.applications import Application
from tests.cluster.fakeyarn.manager import Manager
from tests.cluster.fakeyarn.nodes import STOPPED_BY_RM
from tests.cluster.fakeyarn.wire import Call, Fault
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.messages import client_calls as calls
from tony_core.hadoop.yarn.messages import reports, yarn
from tony_core.hadoop.yarn.messages.container_calls import (
    SignalContainerRequest,
    SignalContainerResponse,
)
from tony_core.hadoop.yarn.records import APPLICATION_STATES, NODE_STATES, Capability, name_of

_YARN = "org.apache.hadoop.yarn.exceptions"


class ClientProtocol:
    """What anybody may call."""

    def __init__(self, manager: Manager) -> None:
        self._rm = manager
        self._methods: Dict[str, Callable[[Call], Message]] = {
            "getNewApplication": self._new_application,
            "submitApplication": self._submit,
            "getApplicationReport": self._report,
            "getApplications": self._applications,
            "forceKillApplication": self._kill,
            "failApplicationAttempt": self._fail_attempt,
            "getClusterMetrics": self._metrics,
            "getClusterNodes": self._nodes,
            "getQueueInfo": self._queue,
            "getQueueUserAcls": self._acls,
            "getClusterNodeLabels": self._labels,
            "getLabelsToNodes": self._labelled,
            "getResourceTypeInfo": self._types,
            "getApplicationAttempts": self._attempts,
            "getContainers": self._containers,
            "signalToContainer": self._signal,
        }

    def answer(self, host: str, call: Call) -> Message:
        method = self._methods.get(call.method)
        if method is None:
            raise Fault("org.apache.hadoop.ipc.RpcNoSuchMethodException", call.method)
        return method(call)

    # ---------------------------------------------------------------- applications

    def _new_application(self, call: Call) -> Message:
        self._rm.last_application += 1
        found = ApplicationId(self._rm.cluster, self._rm.last_application)
        return calls.GetNewApplicationResponse(
            application_id=found.to_message(),
            maximum_capability=self._rm.resource(self._rm.limits.maximum),
        )

    def _submit(self, call: Call) -> Message:
        context = calls.SubmitApplicationRequest.decode(call.body).application_submission_context
        found = ApplicationId.from_message(context.application_id)
        if found in self._rm.applications:
            return calls.SubmitApplicationResponse()
        amount = Capability.from_message(context.resource)
        for one in context.am_container_resource_request:
            amount = Capability.from_message(one.capability)
        if not context.unmanaged_am:
            reporting.refuse_too_large(self._rm, amount)
        queue = context.queue.removeprefix("root.")
        one = Application(found, context, call.user, self._rm.normalised(amount), queue)
        if queue not in self._rm.limits.queues:
            # Taken in, and rejected a moment later.
            self._rm.submit(one)
            words = f"Application {found} submitted by user {call.user} to unknown queue: {queue}"
            self._rm.kill(one, words)
            one.state = one.final = "FAILED"
            return calls.SubmitApplicationResponse()
        self._rm.submit(one)
        return calls.SubmitApplicationResponse()

    def _find(self, message: yarn.ApplicationId) -> Application:
        found = ApplicationId.from_message(message)
        if found not in self._rm.applications:
            raise Fault(
                f"{_YARN}.ApplicationNotFoundException",
                f"Application with id '{found}' doesn't exist in RM. Please check that the job "
                "submission was successful.",
            )
        return self._rm.applications[found]

    def _report(self, call: Call) -> Message:
        request = calls.GetApplicationReportRequest.decode(call.body)
        report = reporting.application(self._rm, self._find(request.application_id))
        return calls.GetApplicationReportResponse(application_report=report)

    def _applications(self, call: Call) -> Message:
        wanted = calls.GetApplicationsRequest.decode(call.body)
        states = {name_of(APPLICATION_STATES, number) for number in wanted.application_states}
        queues = {name.removeprefix("root.") for name in wanted.queues}
        found: List[reports.ApplicationReport] = []
        for one in self._rm.applications.values():
            kind = one.context.application_type
            if (
                (not states or one.state in states)
                and (not wanted.application_types or kind in wanted.application_types)
                and (not wanted.users or one.user in wanted.users)
                and (not queues or one.queue in queues)
                and (not wanted.application_tags or {*wanted.application_tags} & {*one.tags})
                and (not wanted.name or one.context.application_name == wanted.name)
            ):
                report = reporting.application(self._rm, one)
                if not one.unmanaged:
                    # Lists say less of it than its own report does.
                    report = report.replace(am_node_label_expression="<DEFAULT_PARTITION>")
                found.append(report)
        if wanted.limit:
            found = found[-wanted.limit :]
        return calls.GetApplicationsResponse(applications=tuple(found) or None)

    def _kill(self, call: Call) -> Message:
        request = calls.KillApplicationRequest.decode(call.body)
        found = ApplicationId.from_message(request.application_id)
        one = self._rm.applications.get(found)
        if one is None:
            raise Fault(
                f"{_YARN}.ApplicationNotFoundException",
                f"Trying to kill an absent application {found}",
            )
        if one.over:
            return calls.KillApplicationResponse(is_kill_completed=True)
        if not one.killing:
            why = f"Application {found} was killed by user {call.user} at 127.0.0.1"
            if request.diagnostics:
                why += f" with diagnostic message: {request.diagnostics}"
            one.killing = why
            return calls.KillApplicationResponse(is_kill_completed=False)
        self._rm.kill(one, one.killing)
        return calls.KillApplicationResponse(is_kill_completed=True)

    def _fail_attempt(self, call: Call) -> Message:
        request = calls.FailApplicationAttemptRequest.decode(call.body)
        attempt = AttemptId.from_message(request.application_attempt_id)
        one = self._find(request.application_attempt_id.application_id)
        if one.attempt.id == attempt and one.attempt.master:
            why = "Attempt failed by user.\n"
            self._rm.end(one.attempt.master, STOPPED_BY_RM, why)
        return calls.FailApplicationAttemptResponse()

    def _attempts(self, call: Call) -> Message:
        request = calls.GetApplicationAttemptsRequest.decode(call.body)
        one = self._find(request.application_id)
        return calls.GetApplicationAttemptsResponse(
            application_attempts=tuple(
                reporting.attempt(self._rm, one, attempt) for attempt in one.attempts
            )
        )

    def _containers(self, call: Call) -> Message:
        request = calls.GetContainersRequest.decode(call.body)
        one = self._find(request.application_attempt_id.application_id)
        attempt = AttemptId.from_message(request.application_attempt_id)
        if attempt.number > len(one.attempts):
            raise Fault(
                f"{_YARN}.ApplicationAttemptNotFoundException",
                f"ApplicationAttempt with id '{attempt}' doesn't exist in RM.",
            )
        current = attempt == one.attempt.id
        found = [
            reporting.container(self._rm, one, granted)
            for granted in one.live.values()
            if current or granted.id.attempt == attempt
        ]
        return calls.GetContainersResponse(containers=tuple(found) or None)

    def _signal(self, call: Call) -> Message:
        request = SignalContainerRequest.decode(call.body)
        container = ContainerId.from_message(request.container_id)
        one = self._find(request.container_id.app_attempt_id.application_id)
        granted = one.live.get(container)
        if granted is None:
            raise Fault(
                f"{_YARN}.YarnException", f"Container with id '{container}' doesn't exist in RM."
            )
        if request.command in (2, 3):
            manager = self._rm.managers[granted.node]
            manager.signal(container, signal.SIGTERM if request.command == 2 else signal.SIGKILL)
        return SignalContainerResponse()

    # ---------------------------------------------------------------- the cluster

    def _metrics(self, call: Call) -> Message:
        states = [node.state for node in self._rm.nodes.values()]
        return calls.GetClusterMetricsResponse(
            cluster_metrics=reports.YarnClusterMetrics(
                num_node_managers=states.count("RUNNING"),
                num_decommissioned_nms=states.count("DECOMMISSIONED"),
                num_active_nms=states.count("RUNNING"),
                num_lost_nms=states.count("LOST"),
                num_unhealthy_nms=states.count("UNHEALTHY"),
                num_rebooted_nms=0,
                num_decommissioning_nms=states.count("DECOMMISSIONING"),
                num_shutdown_nms=states.count("SHUTDOWN"),
            )
        )

    def _nodes(self, call: Call) -> Message:
        request = calls.GetClusterNodesRequest.decode(call.body)
        states = {name_of(NODE_STATES, number) for number in request.node_states}
        found = [
            reporting.node(self._rm, node)
            for node in self._rm.nodes.values()
            if node.state in (states or {"RUNNING"})
        ]
        return calls.GetClusterNodesResponse(node_reports=tuple(found) or None)

    def _queue(self, call: Call) -> Message:
        request = calls.GetQueueInfoRequest.decode(call.body)
        name = request.queue_name.removeprefix("root.")
        if name != "root" and name not in self._rm.limits.queues:
            return calls.GetQueueInfoResponse()
        return calls.GetQueueInfoResponse(
            queue_info=reporting.queue(self._rm, name, request.include_child_queues)
        )

    def _acls(self, call: Call) -> Message:
        names = [f"root.{name}" for name in self._rm.limits.queues]
        return calls.GetQueueUserAclsInfoResponse(
            queue_user_acls=(
                reports.QueueUserACLInfo(queue_name="root"),
                *(reports.QueueUserACLInfo(queue_name=one, user_acls=(1,)) for one in names),
            )
        )

    def _labels(self, call: Call) -> Message:
        found = [reports.NodeLabel(name=name, is_exclusive=True) for name in self._rm.limits.labels]
        return calls.GetClusterNodeLabelsResponse(node_labels=tuple(found) or None)

    def _labelled(self, call: Call) -> Message:
        wanted = calls.GetLabelsToNodesRequest.decode(call.body).node_labels
        found: List[reports.LabelsToNodeIds] = []
        for label in self._rm.limits.labels:
            nodes = [node.id.to_message() for node in self._rm.active() if node.label == label]
            if nodes and (not wanted or label in wanted):
                found.append(reports.LabelsToNodeIds(node_labels=label, node_id=tuple(nodes)))
        return calls.GetLabelsToNodesResponse(labels_to_nodes=tuple(found) or None)

    def _types(self, call: Call) -> Message:
        return calls.GetAllResourceTypeInfoResponse(
            resource_type_info=reporting.resource_types(self._rm)
        )
