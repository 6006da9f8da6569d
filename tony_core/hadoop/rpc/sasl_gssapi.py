"""SASL's mechanism GSSAPI (RFC 4752) from the client's side, as Hadoop uses it with Kerberos.

The context (of Kerberos) exchanges its own tokens first, and is mutual: the server has proved who
it is by its key. Then the server sends what protections it offers and how long a message may be,
signed; the answer is the protection chosen. Which principal the server has to be was decided
when the context was made, by the site's configuration and not by the server.

The context may ask a KDC for a ticket at its first step; nothing else here does input or output.
"""

from __future__ import annotations

from typing import Optional, Protocol, Sequence, Tuple

from tony_core.hadoop.errors import AuthenticationError, ProtectionRefused
from tony_core.hadoop.rpc.sasl import STRENGTH, choose_protection

_LAYERS = {"auth": 1, "auth-int": 2, "auth-conf": 4}
_LONGEST = 0xFFFFFF  # bytes that we take in one message


class Context(Protocol):
    """A context of GSSAPI (``kerberos.login.LoginContext``)."""

    @property
    def complete(self) -> bool:
        """Whether nothing more is to be sent."""

    @property
    def is_mutual(self) -> bool:
        """Whether the server has proved who it is."""

    def step(self, token: bytes = b"") -> bytes:
        """Take the server's token (none at first); returns ours."""

    def wrap(self, data: bytes, confidential: bool) -> bytes:
        """Sign a message, and encrypt it if it is confidential."""

    def unwrap(self, token: bytes) -> Tuple[bytes, bool]:
        """A message of the server's, and whether it was encrypted.

        Raises :class:`AuthenticationError` if it was altered.
        """

    def size_limit(self, confidential: bool, longest: int) -> int:
        """The bytes that fit into a wrapped message of at most ``longest``."""


class Gssapi:
    """An authentication, and the protection of the messages after it: a ``sasl.Mechanism``."""

    def __init__(self, context: Context, allowed: Sequence[str] = STRENGTH) -> None:
        self._context = context
        self._allowed = tuple(allowed)
        self.qop = ""
        self.proven = False
        self.longest = 0

    @property
    def protects(self) -> bool:
        """Whether messages must be wrapped."""
        return self.qop in ("auth-int", "auth-conf")

    def respond(self, challenge: bytes) -> bytes:
        """The context's first token."""
        return self._context.step()

    def advance(self, challenge: bytes) -> bytes:
        """The context's next token; after the last, the protection chosen."""
        if not self._context.complete:
            return self._context.step(challenge)
        if not self._context.is_mutual:
            raise AuthenticationError("the server has not proved who it is")
        return self._choose(challenge)

    def finish(self, last: Optional[bytes]) -> None:
        """Check that nothing was left out."""
        if not self.proven:
            raise AuthenticationError("the server ended the handshake before its proof")

    def wrap(self, message: bytes) -> bytes:
        """Protect a message."""
        return self._context.wrap(message, self.qop == "auth-conf")

    def unwrap(self, token: bytes) -> bytes:
        """Unprotect a message; raises :class:`AuthenticationError` if it was altered."""
        message, encrypted = self._context.unwrap(token)
        if self.qop == "auth-conf" and not encrypted:
            raise AuthenticationError("a message is not encrypted, as was agreed upon")
        return message

    def _choose(self, challenge: bytes) -> bytes:
        offer, _ = self._context.unwrap(challenge)
        if len(offer) != 4:
            raise AuthenticationError("the server's offer of protections cannot be read")
        offered = [qop for qop, bit in _LAYERS.items() if offer[0] & bit]
        try:
            self.qop = choose_protection(offered, self._allowed)
        except AuthenticationError as error:
            raise ProtectionRefused(str(error)) from None  # what it offers was signed
        ours = 0
        if self.protects:
            ours = _LONGEST
            theirs = int.from_bytes(offer[1:], "big")
            self.longest = self._context.size_limit(self.qop == "auth-conf", theirs)
            if not self.longest:
                raise AuthenticationError(f"the server takes messages of {theirs} bytes only")
        answer = bytes((_LAYERS[self.qop],)) + ours.to_bytes(3, "big")
        self.proven = True
        return self._context.wrap(answer, False)
