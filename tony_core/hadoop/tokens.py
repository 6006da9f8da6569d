"""Tokens, by which a caller authenticates itself to a server of Hadoop.

A token has an identifier, which is public, and a password, which the server derives from it. No
message shows either. The kind says what the token is for.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Optional

from tony_core.files.webhdfs.token_file import AM_RM as AM_RM
from tony_core.files.webhdfs.token_file import HDFS_DELEGATION as HDFS_DELEGATION
from tony_core.files.webhdfs.token_file import read_vint
from tony_core.hadoop.rpc import messages
from tony_core.hadoop.yarn.ids import AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages import yarn

NM = "NMToken"
CONTAINER = "ContainerToken"
LOCALIZER = "Localizer"
RM_DELEGATION = "RM_DELEGATION_TOKEN"


class Token(NamedTuple):
    """A token of Hadoop; its repr and text show neither identifier nor password."""

    identifier: bytes
    password: bytes
    kind: str
    service: str = ""

    def __repr__(self) -> str:
        return f"Token(kind={self.kind!r}, service={self.service!r})"

    def __str__(self) -> str:
        return f"{self.kind} for {self.service}"

    @classmethod
    def from_message(cls, message: messages.Token) -> Token:
        return cls(message.identifier, message.password, message.kind, message.service)

    def to_message(self) -> messages.Token:
        return messages.Token(
            identifier=self.identifier,
            password=self.password,
            kind=self.kind,
            service=self.service,
        )


class Lifetime(NamedTuple):
    """When a token was issued, and until when servers renew it, in seconds since the epoch."""

    issued_s: float
    ends_s: float


def lifetime_of(token: Token) -> Optional[Lifetime]:
    """The lifetime that a delegation token's identifier states; None for tokens of other kinds."""
    try:
        if token.kind == RM_DELEGATION:
            found = yarn.YARNDelegationTokenIdentifier.decode(token.identifier)
            issued, ends = found.issue_date, found.max_date
        elif token.kind == HDFS_DELEGATION:
            at = 1  # after the version: owner, renewer, real user, then the dates
            for _ in range(3):
                size, at = read_vint(token.identifier, at)
                at += max(0, size)
            issued, at = read_vint(token.identifier, at)
            ends, at = read_vint(token.identifier, at)
        else:
            return None
    except ValueError:
        return None  # of another version
    return Lifetime(issued / 1000, ends / 1000) if 0 < issued < ends else None


def shortest_lifetime(tokens: Iterable[Token]) -> Optional[Lifetime]:
    """The lifetime of the token that ends first; None without a delegation token."""
    found = [one for one in map(lifetime_of, tokens) if one is not None]
    return min(found, key=lambda one: one.ends_s, default=None)


class ContainerClaim(NamedTuple):
    """The content of a container's token, signed by the ResourceManager."""

    container: ContainerId
    node: str
    user: str
    memory_mb: int
    vcores: int
    expires: float  # seconds since the epoch: to be started by then
    rm: int  # the ResourceManager's own mark, new after a restart without recovery


def attempt_of(token: Token) -> Optional[AttemptId]:
    """The attempt whose master a token is for; ``None`` for tokens of other kinds."""
    if token.kind == AM_RM:
        return AttemptId.from_message(
            yarn.AMRMTokenIdentifier.decode(token.identifier).app_attempt_id
        )
    if token.kind == NM:
        return AttemptId.from_message(
            yarn.NMTokenIdentifier.decode(token.identifier).app_attempt_id
        )
    return None


def node_of(token: Token) -> Optional[NodeId]:
    """The node that an NM token is for."""
    if token.kind != NM:
        return None
    return NodeId.from_message(yarn.NMTokenIdentifier.decode(token.identifier).node_id)


def claim_of(token: Token) -> ContainerClaim:
    """Decode a container's token."""
    if token.kind != CONTAINER:
        raise ValueError(f"a {token.kind} is no token of a container")
    claim = yarn.ContainerTokenIdentifier.decode(token.identifier)
    return ContainerClaim(
        container=ContainerId.from_message(claim.container_id),
        node=claim.nm_host_addr,
        user=claim.app_submitter,
        memory_mb=claim.resource.memory,
        vcores=claim.resource.virtual_cores,
        expires=claim.expiry_time_stamp / 1000,
        rm=claim.rm_identifier,
    )
