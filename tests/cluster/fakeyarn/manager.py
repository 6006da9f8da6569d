"""The fake ResourceManager: applications, attempts and containers, moved on by heartbeats.

Nothing happens between heartbeats of nodes but what calls do at once: a grant, a start, an end
reach the master as late as on a real cluster, only that a heartbeat may be as short as a test
likes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from tests.cluster.fakeyarn import amounts, scheduling
from tests.cluster.fakeyarn.applications import (
    Application,
    Attempt,
    Granted,
    Key,
    Node,
    PendingRequest,
    now_ms,
)
from tests.cluster.fakeyarn.nodes import LOST, STOPPED_BY_RM, Hands, NodeManager
from tests.cluster.fakeyarn.tokens import Tokens
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.rpc import messages
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.records import Capability

_EPOCH_BITS = 40
_MASTER_KEY: Key = (0, -1)
PREEMPTED = -102
_MAXIMUM = Capability(8192, 32)


@dataclass
class Limits:
    """What a site's configuration would say."""

    least_mb: int = 64
    maximum: Capability = _MAXIMUM
    others: Tuple[str, ...] = ()  # resources besides memory and cores
    drops: Tuple[str, ...] = ()  # those of them of which it grants nothing, without a word
    queues: Tuple[str, ...] = ("default",)
    labels: Tuple[str, ...] = ()
    attempts: int = 2
    names_with_port: bool = False
    start_within_s: float = 600.0
    user: str = "nobody"  # whom unmanaged calls are from


@dataclass
class Manager:
    """See the module."""

    tokens: Tokens
    hands: Hands
    limits: Limits
    web: str = "localhost:8088"
    cluster: int = field(default_factory=now_ms)
    nodes: Dict[NodeId, Node] = field(default_factory=dict)
    managers: Dict[NodeId, NodeManager] = field(default_factory=dict)
    applications: Dict[ApplicationId, Application] = field(default_factory=dict)
    last_application: int = 0
    epoch: int = 0
    mark: int = field(default_factory=now_ms)
    down: bool = False

    # ---------------------------------------------------------------- the cluster

    def add_node(self, node: Node) -> NodeManager:
        manager = NodeManager(node.id, node.http_port, self.tokens, self.hands)
        manager.rm = self.mark
        manager.others = self.limits.others
        self.nodes[node.id] = node
        self.managers[node.id] = manager
        self._node_changed(node)
        return manager

    def active(self) -> List[Node]:
        return [node for node in self.nodes.values() if node.state == "RUNNING"]

    def free(self) -> Capability:
        return amounts.total(node.free for node in self.active())

    def resource(self, amount: Capability) -> yarn.Resource:
        """For a message."""
        return amounts.to_message(amount, self.limits.others)

    def normalised(self, requested: Capability) -> Capability:
        known = [name for name in self.limits.others if name not in self.limits.drops]
        return amounts.normalised(requested, self.limits.least_mb, known)

    # ---------------------------------------------------------------- applications

    def submit(self, application: Application) -> None:
        self.applications[application.id] = application
        self._new_attempt(application)

    def _new_attempt(self, application: Application) -> None:
        number = len(application.attempts) + 1
        attempt = Attempt(AttemptId(application.id, number))
        if application.attempts:
            before = application.attempt
            if application.keeps_containers:
                attempt.completed = [*before.reported, *before.completed]
        application.attempts.append(attempt)
        self.tokens.attempts = {
            known: key
            for known, key in self.tokens.attempts.items()
            if known.application != application.id
        }
        self.tokens.attempts[attempt.id] = self.tokens.am_rm.current
        if application.unmanaged:
            attempt.state = "LAUNCHED"
            application.launched = now_ms()
            attempt.diagnostics = self.waiting
        else:
            pending = PendingRequest(application.amount, {scheduling.ANY: 1})
            pending.label = application.context.node_label_expression
            for one in application.context.am_container_resource_request:
                pending.label = one.node_label_expression or pending.label
            attempt.requests[_MASTER_KEY] = pending

    waiting = "AM container is launched, waiting for AM container to Register with RM"

    def kill(self, application: Application, why: str) -> None:
        application.diagnostics = why
        self._over(application, "KILLED", "KILLED")

    def unregister(self, application: Application, status: str, words: str, url: str) -> None:
        """The master's last word."""
        attempt = application.attempt
        attempt.unregistered = True
        attempt.state = "FINISHING" if attempt.master else "FINISHED"
        attempt.diagnostics = application.diagnostics = words
        application.tracking_url = url or "N/A"
        application.final = status
        application.progress = 1.0
        application.state = "FINISHED"
        application.finished = attempt.finished = now_ms()
        if attempt.master is None:
            self._clear(application)

    def _over(self, application: Application, state: str, final: str) -> None:
        attempt = application.attempt
        application.state, application.final = state, final
        application.finished = attempt.finished = now_ms()
        attempt.state = state
        self._clear(application)

    def _clear(self, application: Application) -> None:
        """Everything of it goes back."""
        application.attempt.requests.clear()
        self.tokens.attempts.pop(application.attempt.id, None)
        for granted in list(application.live.values()):
            text = "Container killed by the ResourceManager: its application is over.\n"
            self.end(granted, STOPPED_BY_RM, text)

    # ---------------------------------------------------------------- heartbeats

    def heartbeat(self, node: Node) -> None:
        """A node calls: it says what has ended, and is given what is wanted."""
        manager = self.managers[node.id]
        if self.down or node.state != "RUNNING":
            return
        node.seen = now_ms()
        if manager.running or manager.ended:
            self._receive(node, manager)
        given = elsewhere = 0
        while given < scheduling.MOST_PER_HEARTBEAT and elsewhere < scheduling.MOST_ELSEWHERE:
            waiting = [app for app in self.applications.values() if self._wants(app)]
            if not waiting:
                return
            found = scheduling.choose(
                node, waiting, len(self.nodes), names_with_port=self.limits.names_with_port
            )
            if found is None:
                return
            application, key, pending, where = found
            scheduling.take(pending, node, where, names_with_port=self.limits.names_with_port)
            self._grant(application, node, key, pending)
            given += 1
            elsewhere += where == scheduling.ELSEWHERE

    @staticmethod
    def _wants(application: Application) -> bool:
        return not application.over and bool(application.attempt.requests)

    def _receive(self, node: Node, manager: NodeManager) -> None:
        for container in manager.running:
            granted = node.live.get(container)
            if granted is not None and granted.state == "ACQUIRED":
                granted.state = "RUNNING"
        for container, one in list(manager.ended.items()):
            manager.acknowledge(container)
            granted = node.live.get(container)
            if granted is not None:
                assert one.exit_status is not None
                self.end(granted, one.exit_status, one.diagnostics)

    def _grant(
        self, application: Application, node: Node, key: Key, pending: PendingRequest
    ) -> None:
        attempt = application.attempt
        serial = self.epoch << _EPOCH_BITS | next(attempt.serials)
        granted = Granted(
            ContainerId(attempt.id, serial),
            node.id,
            pending.amount,
            key[0],
            key[1],
            pending.tags,
            rm=self.mark,
        )
        application.live[granted.id] = granted
        node.add(granted)
        if pending.count <= 0:
            attempt.requests.pop(key, None)
        if attempt.master is None and key == _MASTER_KEY and not application.unmanaged:
            self._launch_master(application, granted)
        else:
            attempt.granted.append(granted)

    def _launch_master(self, application: Application, granted: Granted) -> None:
        attempt = application.attempt
        granted.master = True
        granted.state = "ACQUIRED"
        attempt.master = granted
        attempt.state = "LAUNCHED"
        attempt.diagnostics = self.waiting
        application.launched = now_ms()
        launch = application.context.am_container_spec
        given = Credentials.decode(launch.tokens) if launch.tokens else Credentials()
        token = Token.from_message(self.tokens.for_master(attempt.id))
        claim = self.claim(application, granted)
        self.managers[granted.node].start(
            granted.id, claim, launch.replace(tokens=given.with_token("", token).encode())
        )

    # ---------------------------------------------------------------- containers

    def claim(self, application: Application, one: Granted) -> yarn.ContainerTokenIdentifier:
        """What a container's token says."""
        expires = time.time() + self.limits.start_within_s
        return yarn.ContainerTokenIdentifier(
            container_id=one.id.to_message(),
            nm_host_addr=str(one.node),
            app_submitter=application.user,
            resource=self.resource(one.amount),
            expiry_time_stamp=int(expires * 1000),
            rm_identifier=one.rm,
            priority=yarn.Priority(priority=one.priority),
            creation_time=one.created,
            execution_type=1,
            allocation_request_id=one.request_id,
            allocation_tags=one.tags,
        )

    def container(self, application: Application, one: Granted) -> yarn.Container:
        """For a message."""
        return yarn.Container(
            id=one.id.to_message(),
            node_id=one.node.to_message(),
            node_http_address=self.nodes[one.node].http,
            resource=self.resource(one.amount),
            priority=yarn.Priority(priority=one.priority),
            container_token=self.tokens.for_container(self.claim(application, one)),
            execution_type=1,
            allocation_request_id=one.request_id,
            allocation_tags=one.tags or None,
        )

    def node_token(self, application: Application, node: NodeId) -> Optional[yarn.NMToken]:
        """Unless this master has it."""
        attempt = application.attempt
        if node in attempt.node_tokens:
            return None
        attempt.node_tokens.add(node)
        token: messages.Token = self.tokens.for_node(attempt.id, node, application.user)
        return yarn.NMToken(node_id=node.to_message(), token=token)

    def end(self, granted: Granted, status: int, diagnostics: str) -> None:
        """A container is over, for whatever reason; what runs of it is killed."""
        application = self.applications[granted.id.attempt.application]
        if granted.id not in application.live:
            return
        del application.live[granted.id]
        application.ended[granted.id] = granted
        self.nodes[granted.node].remove(granted)
        granted.state = "COMPLETE"
        granted.finished = now_ms()
        granted.exit_status, granted.diagnostics = status, diagnostics
        self.managers[granted.node].kill(granted.id, status, diagnostics)
        attempt = application.attempt
        if granted.master:
            if granted is attempt.master:
                self._master_ended(application, granted)
            return
        attempt.granted = [one for one in attempt.granted if one is not granted]
        attempt.completed.append(granted)
        for requested in attempt.preempt:
            requested.discard(granted.id)

    def _master_ended(self, application: Application, granted: Granted) -> None:
        attempt = application.attempt
        if application.over:
            if attempt.state == "FINISHING":
                attempt.state = "FINISHED"
            self._clear(application)
            return
        page = f"http://{self.web}/cluster/app/{application.id}"
        words = (
            f"AM Container for {attempt.id} exited with  exitCode: {granted.exit_status}\n"
            f"Failing this attempt.Diagnostics: {granted.diagnostics}"
            f"For more detailed output, check the application tracking page: {page} "
            "Then click on links to logs of each attempt.\n"
        )
        attempt.state, attempt.diagnostics, attempt.finished = "FAILED", words, now_ms()
        mine = application.context.max_app_attempts or self.limits.attempts
        most = min(mine, max(mine, self.limits.attempts))
        if len(application.attempts) < most:
            for one in list(application.live.values()):
                # One that its node has not reported yet is not kept either.
                if not application.keeps_containers or one.state != "RUNNING":
                    self.end(one, LOST, "Container of a completed application")
            application.state = "ACCEPTED"
            self._new_attempt(application)
            return
        application.diagnostics = (
            f"Application {application.id} failed {len(application.attempts)} times "
            f"(global limit ={self.limits.attempts}; local limit is ={mine}) due to "
            f"{words}. Failing the application."
        )
        self._over(application, "FAILED", "FAILED")

    # ---------------------------------------------------------------- what goes wrong

    def lose(self, node: Node, state: str = "LOST") -> None:
        """A node is not heard of any more."""
        node.state = state
        for granted in list(node.live.values()):
            self.end(granted, LOST, "Container released on a *lost* node")
        self._node_changed(node)

    def _node_changed(self, node: Node) -> None:
        for application in self.applications.values():
            if not application.over:
                application.attempt.changed.add(node.id)

    def restart(self) -> None:
        """It has forgotten what only it knew, and the nodes tell it what they run."""
        self.epoch += 1
        self.mark = max(now_ms(), self.mark + 1)
        for application in self.applications.values():
            attempt = application.attempt
            attempt.registered = False
            attempt.last, attempt.response_id = None, 0
            attempt.granted, attempt.changed = [], set()
            attempt.preempt = (set(), set())
            attempt.node_tokens = set()
            if attempt.master is not None:
                attempt.requests.clear()
            ends = [*attempt.reported, *attempt.completed]
            attempt.reported = []
            attempt.completed = [one for one in ends if one.exit_status != LOST]
            for granted in list(application.live.values()):
                known = self.managers[granted.node]
                if granted.id not in known.running and granted.id not in known.ended:
                    del application.live[granted.id]
                    self.nodes[granted.node].remove(granted)
        for manager in self.managers.values():
            manager.rm = self.mark
