"""YARN's reports as plain values: states by name, times in seconds, resources in base units.

Numbers of states become names here, once. A number that is not known keeps its digits.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import reports, yarn

APPLICATION_STATES: Mapping[int, str] = dict(
    enumerate("NEW NEW_SAVING SUBMITTED ACCEPTED RUNNING FINISHED FAILED KILLED".split(), 1)
)
FINAL_STATUSES: Mapping[int, str] = dict(
    enumerate("UNDEFINED SUCCEEDED FAILED KILLED ENDED".split())
)
ATTEMPT_STATES: Mapping[int, str] = dict(
    enumerate(
        "NEW SUBMITTED SCHEDULED ALLOCATED_SAVING ALLOCATED LAUNCHED FAILED RUNNING "
        "FINISHING FINISHED KILLED".split(),
        1,
    )
)
NODE_STATES: Mapping[int, str] = dict(
    enumerate(
        "NEW RUNNING UNHEALTHY DECOMMISSIONED LOST REBOOTED DECOMMISSIONING SHUTDOWN".split(), 1
    )
)
CONTAINER_STATES: Mapping[int, str] = dict(enumerate("NEW RUNNING COMPLETE".split(), 1))
QUEUE_STATES: Mapping[int, str] = dict(enumerate("STOPPED RUNNING DRAINING".split(), 1))
QUEUE_ACLS: Mapping[int, str] = dict(enumerate("SUBMIT_APPLICATIONS ADMINISTER_QUEUE".split(), 1))

MEMORY, VCORES = "memory-mb", "vcores"

_UNITS: Mapping[str, Tuple[int, int]] = {
    "p": (1, 10**12),
    "n": (1, 10**9),
    "u": (1, 10**6),
    "m": (1, 10**3),
    "": (1, 1),
    **{unit: (10 ** (3 * power), 1) for power, unit in enumerate("kMGTP", 1)},
    **{f"{unit}i": (1 << (10 * power), 1) for power, unit in enumerate("KMGTP", 1)},
}


def name_of(names: Mapping[int, str], number: int) -> str:
    """The name of a number; unknown numbers stay digits."""
    return names.get(number, str(number))


def number_of(names: Mapping[int, str], name: str) -> int:
    """The number of a name; raises ValueError."""
    for number, known in names.items():
        if known == name.upper():
            return number
    raise ValueError(f"{name!r} is none of {', '.join(names.values())}")


_NO_OTHER: Mapping[str, int] = MappingProxyType({})


class Capability(NamedTuple):
    """Memory, cores and other resource types (in their base units)."""

    memory_mb: int = 0
    vcores: int = 0
    other: Mapping[str, int] = _NO_OTHER

    @classmethod
    def from_message(cls, message: yarn.Resource) -> Capability:
        other: Dict[str, int] = {}
        for item in message.resource_value_map:
            if item.key not in (MEMORY, VCORES):
                times, by = _UNITS.get(item.units, (1, 1))
                other[item.key] = item.value * times // by
        return cls(message.memory, message.virtual_cores, other)

    def to_message(self) -> yarn.Resource:
        """As a protocol message. The ResourceManager silently drops unknown resource types."""
        items = [yarn.ResourceInformation(key=MEMORY, value=self.memory_mb, units="Mi")]
        items.append(yarn.ResourceInformation(key=VCORES, value=self.vcores))
        items += [yarn.ResourceInformation(key=k, value=v) for k, v in self.other.items() if v]
        return yarn.Resource(
            memory=self.memory_mb, virtual_cores=self.vcores, resource_value_map=items
        )

    def amounts(self) -> Dict[str, int]:
        """All amounts by resource type."""
        return {MEMORY: self.memory_mb, VCORES: self.vcores, **self.other}

    def lacking(self, room: Capability) -> Dict[str, Tuple[int, int]]:
        """The amounts that exceed ``room``: wanted, and available."""
        there = room.amounts()
        return {
            name: (wanted, there.get(name, 0))
            for name, wanted in self.amounts().items()
            if wanted > there.get(name, 0)
        }


class ResourceType(NamedTuple):
    """A resource type of the cluster."""

    name: str
    units: str = ""


class NewApplication(NamedTuple):
    """A new application id, and the cluster's largest container."""

    id: ApplicationId
    maximum: Capability


class AppReport(NamedTuple):
    """The ResourceManager's report of an application."""

    id: ApplicationId
    name: str
    user: str
    queue: str
    type: str
    state: str  # a name of APPLICATION_STATES
    final_status: str  # a name of FINAL_STATUSES
    tracking_url: str  # through the proxy
    original_tracking_url: str  # what the master itself gave
    diagnostics: str
    submitted: float  # seconds since the epoch; 0 when it has not happened
    launched: float
    finished: float
    progress: float
    attempt: Optional[AttemptId]  # the current one
    tags: Tuple[str, ...]
    host: str
    rpc_port: int
    priority: int
    used: Capability
    containers: int
    lifetime_left_s: Optional[int]  # until its timeout, if it has one
    unmanaged: bool
    am_rm_token: Optional[Token]  # for the owner of an unmanaged master
    may_view: bool  # False: the server shows this caller its name, owner and state only

    @classmethod
    def from_message(cls, message: reports.ApplicationReport) -> AppReport:
        usage = message.app_resource_usage
        used = Capability.from_message(usage.used_resources)
        token = message.am_rm_token
        left = [t.application_timeout.remaining_time for t in message.app_timeouts]
        has_attempt = message.has("current_application_attempt_id")
        return cls(
            id=ApplicationId.from_message(message.application_id),
            name=message.name,
            user=message.user,
            queue=message.queue,
            type=message.application_type,
            state=name_of(APPLICATION_STATES, message.yarn_application_state),
            final_status=name_of(FINAL_STATUSES, message.final_application_status),
            tracking_url=_given(message.tracking_url),
            original_tracking_url=_given(message.original_tracking_url),
            diagnostics=_given(message.diagnostics),
            submitted=_seconds(message.submit_time or message.start_time),
            launched=_seconds(message.launch_time),
            finished=_seconds(message.finish_time),
            progress=message.progress,
            attempt=AttemptId.from_message(message.current_application_attempt_id)
            if has_attempt
            else None,
            tags=tuple(sorted(message.application_tags)),
            host=_given(message.host),
            rpc_port=message.rpc_port,
            priority=message.priority.priority,
            used=used if used.memory_mb >= 0 else Capability(),  # -1: unknown
            containers=max(0, usage.num_used_containers),
            lifetime_left_s=next((seconds for seconds in left if seconds >= 0), None),
            unmanaged=message.unmanaged_application,
            am_rm_token=Token.from_message(token) if token.identifier else None,
            # To others the server sends "N/A"; an application's own diagnostics may be empty.
            may_view=not message.has("diagnostics") or message.diagnostics != _NOT_AVAILABLE,
        )


class AttemptReport(NamedTuple):
    """An attempt of an application's master."""

    id: AttemptId
    state: str
    master_container: Optional[ContainerId]
    tracking_url: str
    diagnostics: str

    @classmethod
    def from_message(cls, message: reports.ApplicationAttemptReport) -> AttemptReport:
        return cls(
            AttemptId.from_message(message.application_attempt_id),
            name_of(ATTEMPT_STATES, message.yarn_application_attempt_state),
            ContainerId.from_message(message.am_container_id)
            if message.has("am_container_id")
            else None,
            _given(message.original_tracking_url),
            _given(message.diagnostics),
        )


class ContainerReport(NamedTuple):
    """The ResourceManager's report of a container of an attempt."""

    id: ContainerId
    node: NodeId
    node_url: str
    capability: Capability
    state: str
    exit_status: int
    diagnostics: str
    log_url: str

    @classmethod
    def from_message(cls, message: reports.ContainerReport) -> ContainerReport:
        return cls(
            ContainerId.from_message(message.container_id),
            NodeId.from_message(message.node_id),
            message.node_http_address,
            Capability.from_message(message.resource),
            name_of(CONTAINER_STATES, message.container_state),
            message.container_exit_status,
            _given(message.diagnostics_info),
            message.log_url,
        )


class NodeReport(NamedTuple):
    """The ResourceManager's report of a node."""

    id: NodeId
    state: str
    http: str
    rack: str
    capability: Capability
    used: Capability
    containers: int
    labels: Tuple[str, ...]
    health: str
    attributes: Mapping[str, str]

    @classmethod
    def from_message(cls, message: reports.NodeReport) -> NodeReport:
        return cls(
            NodeId.from_message(message.node_id),
            name_of(NODE_STATES, message.node_state),
            message.http_address,
            message.rack_name,
            Capability.from_message(message.capability),
            Capability.from_message(message.used),
            message.num_containers,
            tuple(label for label in message.node_labels if label),
            message.health_report,
            {a.attribute_key.attribute_name: a.attribute_value for a in message.node_attributes},
        )


class NodeLabel(NamedTuple):
    """A node label; an exclusive one serves only requests that name it."""

    name: str
    exclusive: bool


class Queue(NamedTuple):
    """A queue, with its children if requested. Capacities are fractions of one."""

    name: str
    path: str
    state: str
    capacity: float
    maximum_capacity: float
    used_capacity: float
    labels: Tuple[str, ...]
    default_label: str
    children: Tuple[Queue, ...]
    maximum: Mapping[str, Capability]  # by partition, what it may grow to; empty if unknown
    statistics: reports.QueueStatistics

    @classmethod
    def from_message(cls, message: reports.QueueInfo) -> Queue:
        return cls(
            name=message.queue_name,
            path=message.queue_path or message.queue_name,
            state=name_of(QUEUE_STATES, message.state),
            capacity=message.capacity,
            maximum_capacity=message.maximum_capacity,
            used_capacity=message.current_capacity,
            labels=tuple(sorted(message.accessible_node_labels)),
            default_label=message.default_node_label_expression,
            children=tuple(cls.from_message(child) for child in message.child_queues),
            maximum={
                entry.partition_name: Capability.from_message(
                    entry.queue_configurations.effective_max_capacity
                )
                for entry in message.queue_configurations_map
                if entry.queue_configurations.has("effective_max_capacity")
            },
            statistics=message.queue_statistics,
        )


class Container(NamedTuple):
    """An allocated container, with the token to start it."""

    id: ContainerId
    node: NodeId
    node_url: str
    capability: Capability
    priority: int
    request_id: int  # allocation_request_id
    tags: Tuple[str, ...]
    token: Token

    @classmethod
    def from_message(cls, message: yarn.Container) -> Container:
        return cls(
            ContainerId.from_message(message.id),
            NodeId.from_message(message.node_id),
            message.node_http_address,
            Capability.from_message(message.resource),
            message.priority.priority,
            message.allocation_request_id,
            tuple(message.allocation_tags),
            Token.from_message(message.container_token),
        )


class ContainerStatus(NamedTuple):
    """A container's state, and how it ended."""

    id: ContainerId
    state: str
    exit_status: int
    diagnostics: str

    @classmethod
    def from_message(cls, message: yarn.ContainerStatus) -> ContainerStatus:
        return cls(
            ContainerId.from_message(message.container_id),
            name_of(CONTAINER_STATES, message.state),
            message.exit_status,
            _given(message.diagnostics),
        )


def containers_of(messages: Sequence[yarn.Container]) -> List[Container]:
    return [Container.from_message(message) for message in messages]


def _seconds(milliseconds: int) -> float:
    """Seconds since the epoch; Hadoop's -1 (not yet) becomes 0."""
    return max(0, milliseconds) / 1000


_NOT_AVAILABLE = "N/A"


def _given(text: str) -> str:
    """The text; Hadoop's N/A becomes empty."""
    return "" if text == _NOT_AVAILABLE else text.strip()
