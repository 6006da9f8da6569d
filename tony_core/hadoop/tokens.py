"""Tokens, by which a caller authenticates itself to a server of Hadoop.

A token has an identifier, which is public, and a password, which the server derives from it. No
message shows either. The kind says what the token is for.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from tony_core.hadoop.rpc import messages
from tony_core.hadoop.yarn.ids import AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import yarn

AM_RM = "YARN_AM_RM_TOKEN"
NM = "NMToken"
CONTAINER = "ContainerToken"


class Token(NamedTuple):
    """What proves to a server who calls; its text form never shows identifier and password."""

    identifier: bytes
    password: bytes
    kind: str
    service: str = ""

    def __repr__(self) -> str:
        return f"Token(kind={self.kind!r}, service={self.service!r})"

    @classmethod
    def of(cls, message: messages.Token) -> Token:
        """From a message."""
        return cls(message.identifier, message.password, message.kind, message.service)

    def message(self) -> messages.Token:
        """For a message, and for a connection."""
        return messages.Token(
            identifier=self.identifier,
            password=self.password,
            kind=self.kind,
            service=self.service,
        )


class ContainerClaim(NamedTuple):
    """What a container's token says of it (and is signed by the ResourceManager for)."""

    container: ContainerId
    node: str
    user: str
    memory_mb: int
    vcores: int
    expires: float  # seconds since the epoch: to be started by then
    rm: int  # the ResourceManager's own mark, new after a restart without recovery


def attempt_of(token: Token) -> Optional[AttemptId]:
    """Whose master a token is for; ``None`` for tokens of other kinds."""
    if token.kind == AM_RM:
        return AttemptId.of(yarn.AMRMTokenIdentifier.decode(token.identifier).app_attempt_id)
    if token.kind == NM:
        return AttemptId.of(yarn.NMTokenIdentifier.decode(token.identifier).app_attempt_id)
    return None


def node_of(token: Token) -> Optional[NodeId]:
    """Which node an NM token is for."""
    if token.kind != NM:
        return None
    return NodeId.of(yarn.NMTokenIdentifier.decode(token.identifier).node_id)


def claim_of(token: Token) -> ContainerClaim:
    """What a container's token says."""
    if token.kind != CONTAINER:
        raise ValueError(f"a {token.kind} is no token of a container")
    claim = yarn.ContainerTokenIdentifier.decode(token.identifier)
    return ContainerClaim(
        container=ContainerId.of(claim.container_id),
        node=claim.nm_host_addr,
        user=claim.app_submitter,
        memory_mb=claim.resource.memory,
        vcores=claim.resource.virtual_cores,
        expires=claim.expiry_time_stamp / 1000,
        rm=claim.rm_identifier,
    )
