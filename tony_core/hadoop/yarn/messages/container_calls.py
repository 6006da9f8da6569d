"""Messages of calls to a NodeManager (ContainerManagementProtocol).

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Sequence

from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.protobuf import EMPTY, ENUM, Message, many, one
from tony_core.hadoop.yarn.messages.yarn import (
    ContainerId,
    ContainerLaunchContext,
    ContainerStatus,
    SerializedException,
    StringBytesMap,
)


class StartContainerRequest(Message):
    container_launch_context: ContainerLaunchContext = one(1, ContainerLaunchContext, default=EMPTY)
    container_token: Token = one(2, Token, default=EMPTY)


class StartContainersRequest(Message):
    start_container_request: Sequence[StartContainerRequest] = many(
        1, StartContainerRequest, default=()
    )


class ContainerExceptionMap(Message):
    container_id: ContainerId = one(1, ContainerId, default=EMPTY)
    exception: SerializedException = one(2, SerializedException, default=EMPTY)


class StartContainersResponse(Message):
    services_meta_data: Sequence[StringBytesMap] = many(1, StringBytesMap, default=())
    succeeded_requests: Sequence[ContainerId] = many(2, ContainerId, default=())
    failed_requests: Sequence[ContainerExceptionMap] = many(3, ContainerExceptionMap, default=())


class StopContainersRequest(Message):
    container_id: Sequence[ContainerId] = many(1, ContainerId, default=())


class StopContainersResponse(Message):
    succeeded_requests: Sequence[ContainerId] = many(1, ContainerId, default=())
    failed_requests: Sequence[ContainerExceptionMap] = many(2, ContainerExceptionMap, default=())


class GetContainerStatusesRequest(Message):
    container_id: Sequence[ContainerId] = many(1, ContainerId, default=())


class GetContainerStatusesResponse(Message):
    status: Sequence[ContainerStatus] = many(1, ContainerStatus, default=())
    failed_requests: Sequence[ContainerExceptionMap] = many(2, ContainerExceptionMap, default=())


class SignalContainerRequest(Message):
    container_id: ContainerId = one(1, ContainerId, default=EMPTY, required=True)
    command: int = one(2, ENUM, default=0, required=True)


class SignalContainerResponse(Message):
    pass
