"""A node as a master calls it: start containers, ask for their state, stop them.

Each node has a token of its own, which the ResourceManager gives with the first container
there, and again when it changes. :class:`NodeTokens` keeps the newest for each.
"""

from __future__ import annotations

import threading
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.errors import HadoopError, RemoteError, remote_error
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.sasl import STRENGTH
from tony_core.hadoop.rpc.service import CallTimeouts, Method, Service
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages import container_calls as calls
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.records import ContainerStatus

PROTOCOL = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

START = Method("startContainers", calls.StartContainersRequest, calls.StartContainersResponse)
STOP = Method("stopContainers", calls.StopContainersRequest, calls.StopContainersResponse)
STATUSES = Method(
    "getContainerStatuses", calls.GetContainerStatusesRequest, calls.GetContainerStatusesResponse
)


_STARTED_BEFORE = ("relaunch the same container", "already is running on this node")


class NoNodeToken(HadoopError):
    """The ResourceManager has sent no token for this node."""


class NodeTokens:
    """The newest token for each node. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tokens: Dict[NodeId, Token] = {}
        self._lock = threading.Lock()

    def update(self, tokens: Mapping[NodeId, Token]) -> None:
        """Add the tokens of a response of the ResourceManager."""
        with self._lock:
            self._tokens.update(tokens)

    def get(self, node: NodeId) -> Token:
        """The token for a node; raises :class:`NoNodeToken`."""
        with self._lock:
            token = self._tokens.get(node)
        if token is None:
            raise NoNodeToken(f"the ResourceManager has given no token for the node {node}")
        return token


class Started(NamedTuple):
    """The result of a batch; containers in neither were not processed."""

    done: Tuple[ContainerId, ...]
    failed: Mapping[ContainerId, RemoteError]


class NodeManager:
    """The NodeManager of one node."""

    def __init__(
        self,
        node: NodeId,
        token: Token,
        *,
        allowed: Sequence[str] = STRENGTH,
        limits: CallTimeouts = CallTimeouts(),
    ) -> None:
        self.node = node
        self.token = token
        self.service = Service(
            Endpoints(f"the NodeManager {node}", (Address(node.host, node.port),)),
            PROTOCOL,
            token.to_message(),
            allowed=allowed,
            limits=limits,
        )

    def use(self, token: Token) -> None:
        """Use a new token from the next call on."""
        if token != self.token:
            self.token = token
            self.service.use(token.to_message())

    def start(
        self, launches: Sequence[Tuple[Token, Launch]], *, within_s: Optional[float] = None
    ) -> Started:
        """Start containers, each given by its own token.

        The node refuses to start a container twice. Only its master can have started it
        before, by a call whose answer was lost: that counts as done. A token that does not
        verify fails the whole batch.
        """
        request = calls.StartContainersRequest(
            start_container_request=[
                calls.StartContainerRequest(
                    container_launch_context=launch.to_message(), container_token=token.to_message()
                )
                for token, launch in launches
            ]
        )
        answer = self.service.call(START, request, within_s=within_s)
        result = self._started("startContainers", answer.succeeded_requests, answer.failed_requests)
        before = {
            container
            for container, error in result.failed.items()
            if any(words in error.text for words in _STARTED_BEFORE)
        }
        failed = {one: error for one, error in result.failed.items() if one not in before}
        return Started((*result.done, *sorted(before)), failed)

    def stop(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Started:
        """Stop containers; those that have ended count as done."""
        request = calls.StopContainersRequest(
            container_id=tuple(one.to_message() for one in containers)
        )
        answer = self.service.call(STOP, request, within_s=within_s)
        return self._started("stopContainers", answer.succeeded_requests, answer.failed_requests)

    def statuses(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Tuple[Mapping[ContainerId, ContainerStatus], Mapping[ContainerId, RemoteError]]:
        """The status of each container, and why some have none."""
        request = calls.GetContainerStatusesRequest(
            container_id=tuple(one.to_message() for one in containers)
        )
        answer = self.service.call(STATUSES, request, within_s=within_s)
        known = {
            ContainerId.from_message(one.container_id): ContainerStatus.from_message(one)
            for one in answer.status
        }
        return known, self._errors("getContainerStatuses", answer.failed_requests)

    def close(self) -> None:
        """Give back the connection."""
        self.service.close()

    def _started(
        self,
        method: str,
        done: Sequence[yarn.ContainerId],
        failed: Sequence[calls.ContainerExceptionMap],
    ) -> Started:
        return Started(
            tuple(ContainerId.from_message(one) for one in done), self._errors(method, failed)
        )

    def _errors(
        self, method: str, failed: Sequence[calls.ContainerExceptionMap]
    ) -> Dict[ContainerId, RemoteError]:
        return {
            ContainerId.from_message(one.container_id): remote_error(
                one.exception.class_name,
                one.exception.message,
                method=method,
                server=str(self.node),
            )
            for one in failed
        }
