"""The secrets of the fake: what signs tokens, and how passwords are found again."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Dict, Tuple

from tests.cluster.fakeyarn.digest import Malformed
from tests.cluster.fakeyarn.wire import NoSuchSecret
from tony_core.hadoop.rpc import messages
from tony_core.hadoop.rpc.protobuf import DecodeError
from tony_core.hadoop.tokens import AM_RM, CONTAINER, NM
from tony_core.hadoop.yarn.ids import AttemptId, NodeId
from tony_core.hadoop.yarn.messages import yarn


class Keys:
    """Master keys by number; the newest signs."""

    def __init__(self) -> None:
        self._keys: Dict[int, bytes] = {}
        self.current = 0
        self.roll()

    def roll(self) -> int:
        """A new one; the others go on to be valid."""
        self.current += 1
        self._keys[self.current] = os.urandom(20)
        return self.current

    def forget_old(self) -> None:
        """From now on only the newest is valid."""
        self._keys = {self.current: self._keys[self.current]}

    def password(self, identifier: bytes, number: int) -> bytes:
        """KeyError if it is not known any more."""
        return hmac.new(self._keys[number], identifier, hashlib.sha1).digest()


class Tokens:
    """All kinds that a cluster has."""

    def __init__(self) -> None:
        self.am_rm = Keys()
        self.nm = Keys()
        self.container = Keys()
        self.attempts: Dict[AttemptId, int] = {}
        """The masters whose tokens are valid, and the key that each was last seen to use."""

    # ---------------------------------------------------------------- making

    def for_master(self, attempt: AttemptId) -> messages.Token:
        identifier = yarn.AMRMTokenIdentifier(
            app_attempt_id=attempt.to_message(), key_id=self.am_rm.current
        ).encode()
        password = self.am_rm.password(identifier, self.am_rm.current)
        return messages.Token(identifier=identifier, password=password, kind=AM_RM, service="")

    def for_node(self, attempt: AttemptId, node: NodeId, user: str) -> messages.Token:
        identifier = yarn.NMTokenIdentifier(
            app_attempt_id=attempt.to_message(),
            node_id=node.to_message(),
            app_submitter=user,
            key_id=self.nm.current,
        ).encode()
        password = self.nm.password(identifier, self.nm.current)
        return messages.Token(identifier=identifier, password=password, kind=NM, service=str(node))

    def for_container(self, claims: yarn.ContainerTokenIdentifier) -> messages.Token:
        claims = claims.replace(master_key_id=self.container.current)
        identifier = claims.encode()
        password = self.container.password(identifier, self.container.current)
        return messages.Token(
            identifier=identifier, password=password, kind=CONTAINER, service=claims.nm_host_addr
        )

    # ---------------------------------------------------------------- checking

    def secret_of_master(self, identifier: bytes) -> bytes:
        attempt, key = self.master_of(identifier)
        if attempt in self.attempts:
            try:
                return self.am_rm.password(identifier, key)
            except KeyError:
                pass
        raise NoSuchSecret(f"{attempt} not found in AMRMTokenSecretManager.")

    @staticmethod
    def master_of(identifier: bytes) -> Tuple[AttemptId, int]:
        try:
            claims = yarn.AMRMTokenIdentifier.decode(identifier)
        except DecodeError:
            raise Malformed from None
        if not claims.has("app_attempt_id"):
            raise Malformed
        return AttemptId.from_message(claims.app_attempt_id), claims.key_id

    def secret_of_node(self, identifier: bytes) -> bytes:
        try:
            claims = yarn.NMTokenIdentifier.decode(identifier)
        except DecodeError:
            raise Malformed from None
        try:
            return self.nm.password(identifier, claims.key_id)
        except KeyError:
            attempt = AttemptId.from_message(claims.app_attempt_id)
            raise NoSuchSecret(f"Given NMToken for application : {attempt} is not valid.") from None

    def is_container(self, token: messages.Token) -> bool:
        try:
            claims = yarn.ContainerTokenIdentifier.decode(token.identifier)
            wanted = self.container.password(token.identifier, claims.master_key_id)
        except (DecodeError, KeyError):
            return False
        return hmac.compare_digest(wanted, token.password)
