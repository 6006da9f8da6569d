"""What the fake ResourceManager says of itself, field by field as Hadoop's does."""

from __future__ import annotations

from typing import List, Tuple

from tests.cluster.fakeyarn import amounts
from tests.cluster.fakeyarn.applications import Application, Attempt, Granted, Node
from tests.cluster.fakeyarn.manager import Manager
from tests.cluster.fakeyarn.wire import Fault
from tony_core.hadoop.yarn.messages import reports, yarn
from tony_core.hadoop.yarn.records import (
    APPLICATION_STATES,
    ATTEMPT_STATES,
    CONTAINER_STATES,
    FINAL_STATUSES,
    MEMORY,
    NODE_STATES,
    VCORES,
    Capability,
    number_of,
)

_UNKNOWN = Capability(-1, -1)


def refuse_too_large(rm: Manager, amount: Capability) -> None:
    """What no node can ever give."""
    lacking = amount.lacking(rm.limits.maximum)
    if lacking:
        most = amounts.words(rm.limits.maximum)
        raise Fault(
            "org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException",
            "Invalid resource request! Cannot allocate containers as requested resource is "
            f"greater than maximum allowed allocation. Requested resource type=[{min(lacking)}], "
            f"Requested resource={amounts.words(amount)}, maximum allowed allocation={most}, "
            "please note that maximum allowed allocation is calculated by scheduler based on "
            "maximum resource of registered NodeManagers, which might be less than configured "
            f"maximum allocation={most}",
        )


def resource_types(rm: Manager) -> Tuple[yarn.ResourceTypeInfo, ...]:
    return (
        *(yarn.ResourceTypeInfo(name=name, units="", type=0) for name in rm.limits.others),
        yarn.ResourceTypeInfo(name=MEMORY, units="Mi", type=0),
        yarn.ResourceTypeInfo(name=VCORES, units="", type=0),
    )


def node(rm: Manager, one: Node) -> reports.NodeReport:
    found = reports.NodeReport(
        node_id=one.id.to_message(),
        http_address=one.http,
        rack_name=one.rack,
        used=rm.resource(one.used),
        capability=rm.resource(one.capability),
        node_state=number_of(NODE_STATES, one.state),
        health_report="",
        last_health_report_time=one.seen,
    )
    if one.live:
        found = found.replace(num_containers=len(one.live))
    return found.replace(node_labels=(one.label,)) if one.label else found


def application(rm: Manager, one: Application) -> reports.ApplicationReport:
    attempt = one.attempt
    page = f"http://{rm.web}"
    if one.unmanaged:
        tracking = one.tracking_url
    elif one.over and one.tracking_url == "N/A":
        tracking = f"{page}/cluster/app/{one.id}"
    else:
        tracking = f"{page}/proxy/{one.id}/"
    words = one.diagnostics
    if not one.over:
        words = attempt.diagnostics or words
    found = reports.ApplicationReport(
        application_id=one.id.to_message(),
        user=one.user,
        queue=f"root.{one.queue}",
        name=one.context.application_name,
        host=attempt.host,
        rpc_port=attempt.port,
        yarn_application_state=number_of(APPLICATION_STATES, one.state),
        tracking_url=tracking,
        diagnostics=words,
        start_time=one.submitted,
        finish_time=one.finished,
        final_application_status=number_of(FINAL_STATUSES, one.final),
        app_resource_usage=_usage(rm, one),
        original_tracking_url=one.tracking_url,
        current_application_attempt_id=attempt.id.to_message(),
        progress=one.progress,
        application_type=one.context.application_type,
        application_tags=tuple(one.tags) or None,
        unmanaged_application=one.unmanaged,
        priority=yarn.Priority(priority=0),
        app_node_label_expression="<DEFAULT_PARTITION>",
        am_node_label_expression=None if one.unmanaged else "<DEFAULT_PARTITION>",
        app_timeouts=(
            reports.AppTimeoutsMap(
                application_timeout_type=1,
                application_timeout=reports.ApplicationTimeout(
                    application_timeout_type=1, expire_time="UNLIMITED", remaining_time=-1
                ),
            ),
        ),
        launch_time=one.launched,
    )
    if one.unmanaged and one.state == "ACCEPTED":
        found = found.replace(am_rm_token=rm.tokens.for_master(attempt.id))
    return found


def _usage(rm: Manager, one: Application) -> reports.ApplicationResourceUsageReport:
    zeros = tuple(reports.StringLongMap(key=n, value=0) for n in (MEMORY, VCORES))
    used = _UNKNOWN if one.over else amounts.total(c.amount for c in one.live.values())
    none = rm.resource(_UNKNOWN if one.over else amounts.NOTHING)
    found = reports.ApplicationResourceUsageReport(
        num_used_containers=-1 if one.over else len(one.live),
        num_reserved_containers=-1 if one.over else 0,
        used_resources=rm.resource(used),
        reserved_resources=none,
        needed_resources=none if one.over else rm.resource(used),
        memory_seconds=0,
        vcore_seconds=0,
        preempted_memory_seconds=0,
        preempted_vcore_seconds=0,
        application_resource_usage_map=zeros,
        application_preempted_resource_usage_map=zeros,
    )
    if not one.over:
        found = found.replace(queue_usage_percentage=0.0, cluster_usage_percentage=0.0)
    return found


def attempt(rm: Manager, app: Application, one: Attempt) -> reports.ApplicationAttemptReport:
    report = application(rm, app)
    found = reports.ApplicationAttemptReport(
        application_attempt_id=one.id.to_message(),
        host=one.host,
        rpc_port=one.port,
        tracking_url=report.tracking_url,
        diagnostics=one.diagnostics,
        yarn_application_attempt_state=number_of(ATTEMPT_STATES, one.state),
        original_tracking_url=app.tracking_url,
        start_time=one.started,
        finish_time=one.finished,
    )
    return found.replace(am_container_id=one.master.id.to_message()) if one.master else found


def container(rm: Manager, app: Application, one: Granted) -> reports.ContainerReport:
    http = rm.nodes[one.node].http
    found = reports.ContainerReport(
        container_id=one.id.to_message(),
        resource=rm.resource(one.amount),
        node_id=one.node.to_message(),
        priority=yarn.Priority(priority=one.priority),
        creation_time=one.created,
        finish_time=one.finished,
        log_url=f"http://{http}/node/containerlogs/{one.id}/{app.user}",
        container_exit_status=one.exit_status,
        container_state=number_of(
            CONTAINER_STATES, "COMPLETE" if one.state == "COMPLETE" else "RUNNING"
        ),
        node_http_address=f"http://{http}",
        execution_type=1,
    )
    return found.replace(diagnostics_info=one.diagnostics) if one.diagnostics else found


def queue(rm: Manager, name: str, children: bool) -> reports.QueueInfo:
    """One of the queues, each of which may use all that there is, or ``root``."""
    names: List[str] = [] if name != "root" or not children else list(rm.limits.queues)
    mine = [one for one in rm.applications.values() if name in ("root", one.queue) and not one.over]
    used = amounts.total(c.amount for one in mine for c in one.live.values())
    all_of_it = amounts.total(one.capability for one in rm.active())
    free = amounts.minus(all_of_it, used)
    zero = rm.resource(amounts.NOTHING)
    share = 1.0 if name == "root" else 1.0 / len(rm.limits.queues)
    ended = [one.state for one in rm.applications.values() if one.over]
    return reports.QueueInfo(
        queue_name=name,
        capacity=share,
        maximum_capacity=1.0,
        current_capacity=used.memory_mb / max(1, all_of_it.memory_mb) / share,
        state=2,
        child_queues=tuple(queue(rm, child, children) for child in names) or None,
        accessible_node_labels=("*",),
        queue_statistics=reports.QueueStatistics(
            num_apps_submitted=len(rm.applications),
            num_apps_running=sum(one.state == "RUNNING" for one in mine),
            num_apps_pending=sum(one.state == "ACCEPTED" for one in mine),
            num_apps_completed=ended.count("FINISHED"),
            num_apps_killed=ended.count("KILLED"),
            num_apps_failed=ended.count("FAILED"),
            num_active_users=len({one.user for one in mine}),
            available_memory_mb=max(0, free.memory_mb),
            allocated_memory_mb=used.memory_mb,
            pending_memory_mb=0,
            reserved_memory_mb=0,
            available_vcores=max(0, free.vcores),
            allocated_vcores=used.vcores,
            pending_vcores=0,
            reserved_vcores=0,
            allocated_containers=sum(len(one.live) for one in mine),
            pending_containers=0,
            reserved_containers=0,
        ),
        preemption_disabled=True,
        queue_configurations_map=(
            reports.QueueConfigurationsMap(
                partition_name="",
                queue_configurations=reports.QueueConfigurations(
                    capacity=share,
                    absolute_capacity=share,
                    max_capacity=1.0,
                    absolute_max_capacity=1.0,
                    max_ampercentage=1.0,
                    effective_min_capacity=zero,
                    effective_max_capacity=rm.resource(all_of_it),
                    configured_min_capacity=zero,
                    configured_max_capacity=zero,
                ),
            ),
        ),
        queue_path=name if name == "root" else f"root.{name}",
    )
