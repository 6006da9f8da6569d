"""The fake's ApplicationMasterProtocol: register, allocate, finish."""

from __future__ import annotations

from typing import List, Tuple

from tests.cluster.fakeyarn import reporting
from tests.cluster.fakeyarn.applications import Application, Attempt, Granted, PendingRequest
from tests.cluster.fakeyarn.manager import PREEMPTED, Manager
from tests.cluster.fakeyarn.nodes import LOST
from tests.cluster.fakeyarn.scheduling import ANY
from tests.cluster.fakeyarn.wire import Call, Fault
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.yarn.ids import ContainerId
from tony_core.hadoop.yarn.messages import master_calls as calls
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.messages.resource_requests import (
    PreemptionContainer,
    PreemptionContract,
    PreemptionMessage,
    ResourceRequest,
    SchedulingRequest,
    StrictPreemptionContract,
)
from tony_core.hadoop.yarn.records import FINAL_STATUSES, Capability, name_of

_YARN = "org.apache.hadoop.yarn.exceptions"
_GUARANTEED = 1
_COMPLETE = 3
_RESYNC = 1


class MasterProtocol:
    """What a master may call."""

    def __init__(self, manager: Manager) -> None:
        self._rm = manager

    def answer(self, host: str, call: Call) -> Message:
        attempt_id, key = self._rm.tokens.master_of(call.identifier)
        application = self._rm.applications[attempt_id.application]
        attempt = application.attempt
        if call.method == "finishApplicationMaster" and application.over:
            return calls.FinishApplicationMasterResponse(is_unregistered=True)
        if attempt_id not in self._rm.tokens.attempts or attempt.id != attempt_id:
            raise Fault(
                f"{_YARN}.ApplicationAttemptNotFoundException",
                f"Application attempt {attempt_id} doesn't exist in ApplicationMasterService "
                "cache.",
            )
        self._rm.tokens.attempts[attempt_id] = max(key, self._rm.tokens.attempts[attempt_id])
        if call.method == "registerApplicationMaster":
            register = calls.RegisterApplicationMasterRequest.decode(call.body)
            return self._register(application, attempt, register)
        if call.method == "allocate":
            return self._allocate(
                application, attempt, calls.AllocateRequest.decode(call.body), key
            )
        if call.method == "finishApplicationMaster":
            finish = calls.FinishApplicationMasterRequest.decode(call.body)
            return self._finish(application, attempt, finish)
        raise Fault("org.apache.hadoop.ipc.RpcNoSuchMethodException", call.method)

    # ---------------------------------------------------------------- register, finish

    def _register(
        self,
        application: Application,
        attempt: Attempt,
        request: calls.RegisterApplicationMasterRequest,
    ) -> Message:
        kept = application.keeps_containers
        if attempt.registered and not (application.unmanaged and kept):
            raise Fault(
                f"{_YARN}.InvalidApplicationMasterRequestException",
                f"Application Master is already registered : {application.id}",
            )
        attempt.registered = True
        attempt.state = application.state = "RUNNING"
        attempt.host, attempt.port = request.host, request.rpc_port
        attempt.diagnostics = ""
        attempt.response_id, attempt.last = 0, None
        application.tracking_url = request.tracking_url or "N/A"
        answer = calls.RegisterApplicationMasterResponse(
            maximum_capability=self._rm.resource(self._rm.limits.maximum),
            queue=f"root.{application.queue}",
            scheduler_resource_types=(0, 1),
            resource_types=reporting.resource_types(self._rm),
        )
        before = [one for one in application.live.values() if not one.master]
        before = [one for one in before if one not in attempt.granted]
        if kept and before:
            attempt.node_tokens = set()
            tokens = [self._rm.node_token(application, one.node) for one in before]
            answer = answer.replace(
                containers_from_previous_attempts=tuple(
                    self._rm.container(application, one) for one in before
                ),
                nm_tokens_from_previous_attempts=tuple(token for token in tokens if token),
            )
        return answer

    def _finish(
        self,
        application: Application,
        attempt: Attempt,
        request: calls.FinishApplicationMasterRequest,
    ) -> Message:
        if not attempt.registered:
            raise Fault(
                f"{_YARN}.ApplicationMasterNotRegisteredException",
                "Application Master is trying to unregister before registering for: "
                f"{application.id}",
            )
        if not attempt.unregistered:
            status = name_of(FINAL_STATUSES, request.final_application_status)
            words = request.diagnostics
            self._rm.unregister(application, status, words, request.tracking_url)
            return calls.FinishApplicationMasterResponse(is_unregistered=False)
        return calls.FinishApplicationMasterResponse(is_unregistered=True)

    # ---------------------------------------------------------------- allocate

    def _allocate(
        self,
        application: Application,
        attempt: Attempt,
        request: calls.AllocateRequest,
        key: int,
    ) -> Message:
        if not attempt.registered:
            raise Fault(
                f"{_YARN}.ApplicationMasterNotRegisteredException",
                f"AM is not registered for known application attempt: {attempt.id} or RM had "
                "restarted after AM registered.  AM should re-register.",
            )
        if attempt.last is not None and request.response_id + 1 == attempt.last.response_id:
            return attempt.last
        if request.response_id != attempt.response_id:
            raise Fault(
                f"{_YARN}.InvalidApplicationMasterRequestException",
                "Invalid responseId in AllocateRequest from application attempt: "
                f"{attempt.id} expect responseId to be {attempt.response_id} but get "
                f"{request.response_id}",
            )
        requests = [self._checked(one) for one in request.ask]
        if request.tracking_url:
            application.tracking_url = request.tracking_url
        application.progress = min(max(request.progress, 0.0), 1.0)
        attempt.avoid |= set(request.blacklist_request.blacklist_additions)
        attempt.avoid -= set(request.blacklist_request.blacklist_removals)
        for one, amount in requests:
            self._record(attempt, one, amount)
        for wanted in request.scheduling_requests:
            self._schedule(attempt, wanted)
        for container in request.release:
            self._release(application, ContainerId.from_message(container))
        attempt.response_id += 1
        answer = attempt.last = self._response(application, attempt, key)
        if answer.a_m_command == _RESYNC:  # Hadoop's older way to say that it has restarted
            attempt.registered, attempt.last, attempt.response_id = False, None, 0
            attempt.requests.clear()
        return answer

    def _checked(self, one: ResourceRequest) -> Tuple[ResourceRequest, Capability]:
        amount = Capability.from_message(one.capability)
        reporting.refuse_too_large(self._rm, amount)
        label = one.node_label_expression
        if label and not self._rm.limits.labels:
            raise Fault(
                f"{_YARN}.InvalidLabelResourceRequestException",
                "Invalid resource request, node label not enabled but request contains label "
                "expression",
            )
        if label and (label not in self._rm.limits.labels or one.resource_name != ANY):
            raise Fault(
                f"{_YARN}.InvalidLabelResourceRequestException",
                f"Invalid resource request, queue=default doesn't have permission to access all "
                f"labels in resource request. labelExpression of resource request={label}",
            )
        return one, self._rm.normalised(amount)

    @staticmethod
    def _record(attempt: Attempt, one: ResourceRequest, amount: Capability) -> None:
        key = (one.priority.priority, one.allocation_request_id)
        pending = attempt.requests.get(key)
        if pending is None:
            if not one.num_containers:
                return
            pending = attempt.requests[key] = PendingRequest(amount)
        pending.amount = amount
        pending.places[one.resource_name] = one.num_containers
        if one.resource_name == ANY:
            pending.label = one.node_label_expression
            if not one.num_containers:
                del attempt.requests[key]
                return
        elif not one.num_containers:
            del pending.places[one.resource_name]
        if one.relax_locality:
            pending.strict.discard(one.resource_name)
        else:
            pending.strict.add(one.resource_name)

    def _schedule(self, attempt: Attempt, wanted: SchedulingRequest) -> None:
        """With a constraint: at most so many of some tags on a node, and no other kind."""
        key = (wanted.priority.priority, wanted.allocation_request_id)
        amount = self._rm.normalised(Capability.from_message(wanted.resource_sizing.resources))
        count = wanted.resource_sizing.num_allocations
        if not count:
            attempt.requests.pop(key, None)
            return
        pending = PendingRequest(amount, {ANY: count}, tags=tuple(wanted.allocation_tags))
        simple = wanted.placement_constraint.simple_constraint
        if simple.scope == "node" and simple.target_expressions:
            pending.most_per_node = simple.max_cardinality or 1
        attempt.requests[key] = pending

    def _release(self, application: Application, container: ContainerId) -> None:
        granted = application.live.get(container)
        if granted is not None and not granted.master:
            self._rm.end(granted, LOST, "Container released by application")

    def _response(
        self, application: Application, attempt: Attempt, key: int
    ) -> calls.AllocateResponse:
        granted, attempt.granted = attempt.granted, []
        attempt.reported, attempt.completed = attempt.completed, []
        tokens: List[yarn.NMToken] = []
        for one in granted:
            one.state = "ACQUIRED"
            token = self._rm.node_token(application, one.node)
            if token is not None:
                tokens.append(token)
        answer = calls.AllocateResponse(
            a_m_command=attempt.command or None,
            response_id=attempt.response_id,
            allocated_containers=tuple(self._rm.container(application, one) for one in granted)
            or None,
            completed_container_statuses=tuple(self._status(one) for one in attempt.reported)
            or None,
            limit=self._rm.resource(self._rm.free()),
            updated_nodes=tuple(
                reporting.node(self._rm, self._rm.nodes[one]) for one in sorted(attempt.changed)
            )
            or None,
            num_cluster_nodes=len(self._rm.active()),
            nm_tokens=tuple(tokens) or None,
            application_priority=yarn.Priority(priority=0),
        )
        attempt.changed, attempt.command = set(), 0
        if key < self._rm.tokens.am_rm.current:
            answer = answer.replace(am_rm_token=self._rm.tokens.for_master(attempt.id))
        if any(attempt.preempt):
            answer = answer.replace(preempt=_preemption(attempt))
        return answer

    def _status(self, one: Granted) -> yarn.ContainerStatus:
        return yarn.ContainerStatus(
            container_id=one.id.to_message(),
            state=_COMPLETE,
            diagnostics=one.diagnostics,
            exit_status=one.exit_status,
            capability=self._rm.resource(one.amount),
            execution_type=_GUARANTEED,
            container_sub_state=0 if one.exit_status in (LOST, PREEMPTED) else 5,
        )


def _preemption(attempt: Attempt) -> PreemptionMessage:
    certain, negotiable = (
        tuple(PreemptionContainer(id=one.to_message()) for one in sorted(group))
        for group in attempt.preempt
    )
    found = PreemptionMessage()
    if certain:
        found = found.replace(strict_contract=StrictPreemptionContract(container=certain))
    if negotiable:
        found = found.replace(contract=PreemptionContract(container=negotiable))
    return found


__all__ = ["MasterProtocol"]
