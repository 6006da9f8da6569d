"""What the fake ResourceManager keeps of applications, attempts, asks, containers and nodes."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Set, Tuple

from tests.cluster.fakeyarn.amounts import NOTHING, minus, plus
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.master_calls import AllocateResponse
from tony_core.hadoop.yarn.records import Capability

Key = Tuple[int, int]
"""Of an ask: priority and allocation request id."""


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass
class Granted:
    """A container, from the ResourceManager's point of view."""

    id: ContainerId
    node: NodeId
    amount: Capability
    priority: int
    request_id: int
    tags: Tuple[str, ...] = ()
    master: bool = False
    state: str = "ALLOCATED"  # then ACQUIRED, RUNNING, COMPLETE
    rm: int = 0  # the ResourceManager that granted it
    created: int = field(default_factory=now_ms)
    finished: int = 0
    exit_status: int = 0
    diagnostics: str = ""


@dataclass
class Node:
    """A node, from the ResourceManager's point of view."""

    id: NodeId
    capability: Capability
    rack: str = "/default-rack"
    label: str = ""
    state: str = "RUNNING"
    used: Capability = NOTHING
    live: Dict[ContainerId, Granted] = field(default_factory=dict)
    seen: int = field(default_factory=now_ms)

    @property
    def http(self) -> str:
        return f"{self.id.host}:{self.http_port}"

    http_port: int = 0

    @property
    def free(self) -> Capability:
        return minus(self.capability, self.used)

    def add(self, granted: Granted) -> None:
        self.live[granted.id] = granted
        self.used = plus(self.used, granted.amount)

    def remove(self, granted: Granted) -> None:
        if self.live.pop(granted.id, None) is not None:
            self.used = minus(self.used, granted.amount)


@dataclass
class PendingRequest:
    """What is outstanding under one key."""

    amount: Capability
    places: Dict[str, int] = field(default_factory=dict)  # "*", racks and hosts
    label: str = ""
    strict: Set[str] = field(default_factory=set)  # places whose locality is not relaxed
    tags: Tuple[str, ...] = ()
    most_per_node: Optional[int] = None  # of containers with these tags
    missed: int = 0  # chances since the last grant at a wanted place

    @property
    def count(self) -> int:
        return self.places.get("*", 0)


@dataclass
class Attempt:
    """One life of a master."""

    id: AttemptId
    master: Optional[Granted] = None
    state: str = "SCHEDULED"
    registered: bool = False
    unregistered: bool = False
    host: str = "N/A"
    port: int = -1
    started: int = field(default_factory=now_ms)
    finished: int = 0
    diagnostics: str = ""
    last: Optional[AllocateResponse] = None
    response_id: int = 0
    requests: Dict[Key, PendingRequest] = field(default_factory=dict)
    avoid: Set[str] = field(default_factory=set)
    granted: List[Granted] = field(default_factory=list)  # to be reported
    completed: List[Granted] = field(default_factory=list)  # to be reported
    reported: List[Granted] = field(default_factory=list)  # of ends, by the last answer
    changed: Set[NodeId] = field(default_factory=set)  # nodes, to be reported
    node_tokens: Set[NodeId] = field(default_factory=set)  # given already
    preempt: Tuple[Set[ContainerId], Set[ContainerId]] = field(
        default_factory=lambda: (set(), set())
    )
    command: int = 0  # for the next answer
    serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def pending(self) -> Iterator[Tuple[Key, PendingRequest]]:
        for key in sorted(self.requests):
            if self.requests[key].count > 0:
                yield key, self.requests[key]


@dataclass
class Application:
    """See the module."""

    id: ApplicationId
    context: ApplicationSubmissionContext
    user: str
    amount: Capability  # of the master
    queue: str
    state: str = "ACCEPTED"
    final: str = "UNDEFINED"
    diagnostics: str = ""
    progress: float = 0.0
    tracking_url: str = "N/A"
    submitted: int = field(default_factory=now_ms)
    launched: int = -1
    finished: int = 0
    attempts: List[Attempt] = field(default_factory=list)
    live: Dict[ContainerId, Granted] = field(default_factory=dict)
    ended: Dict[ContainerId, Granted] = field(default_factory=dict)
    killing: str = ""

    @property
    def attempt(self) -> Attempt:
        """The current one."""
        return self.attempts[-1]

    @property
    def over(self) -> bool:
        return self.state in ("FINISHED", "FAILED", "KILLED")

    @property
    def unmanaged(self) -> bool:
        return self.context.unmanaged_am

    @property
    def keeps_containers(self) -> bool:
        return self.context.keep_containers_across_application_attempts

    @property
    def tags(self) -> Tuple[str, ...]:
        return tuple(self.context.application_tags)
