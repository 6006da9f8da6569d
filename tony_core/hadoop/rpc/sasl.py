"""DIGEST-MD5 (RFC 2831) from the client's side, as Hadoop uses it with tokens. No I/O.

Theory of operation
===================

The server sends a challenge; :meth:`DigestMd5.respond` answers it; the server's last word
proves that it knows the password too (:meth:`DigestMd5.verify`). What the challenge offers as
*quality of protection* decides what happens then to every message:

* ``auth``: nothing.
* ``auth-int``: a message carries a MAC over itself and its number.
* ``auth-conf``: message and MAC are encrypted too, by RC4 here, whose state goes on from
  message to message; so wrapping and unwrapping follow the order of the wire.

The server picks what it offers. We take the strongest of it that is allowed; a site that asks
for privacy allows nothing less, so that no man in the middle can weaken it.

MD5 is what the protocol demands, and protects nothing by itself: ``usedforsecurity=False``
lets Pythons in FIPS mode compute it. ``_md5`` is tried first because ``hashlib`` brings
OpenSSL along, 4 MB of it.
"""

from __future__ import annotations

import base64
import importlib
import os
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Tuple

from tony_core.hadoop.errors import AuthenticationError, ProtocolError


def _find_md5() -> Callable[..., Any]:
    for name in ("_md5", "hashlib"):
        try:
            found: Callable[..., Any] = importlib.import_module(name).md5
        except ImportError:
            continue
        return found
    raise ImportError("this Python has no MD5, which Hadoop's tokens need")


_new = _find_md5()

STRENGTH = ("auth-conf", "auth-int", "auth")
"""The qualities of protection, the strongest first."""

PROTECTIONS = {
    "authentication": "auth",
    "integrity": "auth-int",
    "privacy": "auth-conf",
}
"""The names of ``hadoop.rpc.protection``, and SASL's for them."""

_EMPTY_BODY = b":00000000000000000000000000000000"
_CIPHERS = {"rc4": 16, "rc4-56": 7, "rc4-40": 5}  # bytes of H(A1) that make the key
_TO_SERVER_SIGN = b"Digest session key to client-to-server signing key magic constant"
_TO_CLIENT_SIGN = b"Digest session key to server-to-client signing key magic constant"
_TO_SERVER_SEAL = b"Digest H(A1) to client-to-server sealing key magic constant"
_TO_CLIENT_SEAL = b"Digest H(A1) to server-to-client sealing key magic constant"
_MAC_LENGTH = 10
_TRAILER_LENGTH = 6  # version and number, after the MAC


def md5(data: bytes) -> bytes:
    """MD5 of the data; not for security, see above."""
    digest: bytes = _new(data, usedforsecurity=False).digest()
    return digest


def hmac_md5(key: bytes, data: bytes) -> bytes:
    """HMAC-MD5 (RFC 2104); the standard library's refuses MD5 in FIPS mode."""
    key = (md5(key) if len(key) > 64 else key).ljust(64, b"\0")
    inner = md5(bytes(byte ^ 0x36 for byte in key) + data)
    return md5(bytes(byte ^ 0x5C for byte in key) + inner)


def equal_in_constant_time(one: bytes, other: bytes) -> bool:
    difference = len(one) ^ len(other)
    for a, b in zip(one, other):
        difference |= a ^ b
    return not difference


def new_nonce() -> bytes:
    """A fresh nonce."""
    return base64.b64encode(os.urandom(30))


class Mechanism(Protocol):
    """A mechanism of SASL from the client's side."""

    qop: str
    """The quality of protection agreed upon."""
    proven: bool
    """The server has proved who it is."""
    longest: int
    """The bytes that one wrapped message may hold; 0: any number."""

    @property
    def protects(self) -> bool:
        """Whether messages must be wrapped."""

    def respond(self, challenge: bytes) -> bytes:
        """The first response; the challenge is empty where a mechanism has none."""

    def advance(self, challenge: bytes) -> bytes:
        """The response to a further challenge."""

    def finish(self, last: Optional[bytes]) -> None:
        """Take what the server sent with its success, if anything: it has proved itself now."""

    def wrap(self, message: bytes) -> bytes:
        """Protect a message."""

    def unwrap(self, token: bytes) -> bytes:
        """Unprotect a message; raises :class:`AuthenticationError` if it was altered."""


class DigestMd5:
    """An authentication, and the protection of the messages after it: a :class:`Mechanism`."""

    longest = 0

    def __init__(
        self,
        user: bytes,
        password: bytes,
        service: str,
        *,
        allowed: Sequence[str] = STRENGTH,
        nonce: Callable[[], bytes] = new_nonce,
    ) -> None:
        self._user = user
        self._password = password
        self._service = service.encode()
        self._allowed = tuple(allowed)
        self._nonce = nonce
        self._expected = b""
        self._layer: Optional[_Layer] = None
        self.qop = ""
        self.proven = False  # the server has shown that it knows the password

    @property
    def protects(self) -> bool:
        """Whether messages must be wrapped."""
        return self._layer is not None

    def respond(self, challenge: bytes) -> bytes:
        """The response to the server's challenge."""
        directives = parse_directives(challenge)
        for name in ("nonce", "algorithm"):
            if name not in directives:
                raise ProtocolError(f"a challenge of DIGEST-MD5 without {name}")
        if directives["algorithm"].lower() != b"md5-sess":
            raise AuthenticationError(f"the server asks for {_decode(directives['algorithm'])}")
        offered = directives.get("qop", b"auth").decode("ascii", "replace")
        self.qop = choose_protection([name.strip() for name in offered.split(",")], self._allowed)
        realm, nonce, cnonce = directives.get("realm", b""), directives["nonce"], self._nonce()
        start = md5(b":".join((self._user, realm, self._password)))
        session = md5(b":".join((start, nonce, cnonce)))
        tail = b"" if self.qop == "auth" else _EMPTY_BODY

        def proof(prefix: bytes) -> bytes:
            what = md5(prefix + b":" + self._service + tail)
            parts = (_hex(session), nonce, b"00000001", cnonce, self.qop.encode(), _hex(what))
            return _hex(md5(b":".join(parts)))

        self._expected = proof(b"")
        fields: List[Tuple[bytes, bytes]] = [
            (b"charset", b"utf-8"),
            (b"username", _quoted(self._user)),
            (b"realm", _quoted(realm)),
            (b"nonce", _quoted(nonce)),
            (b"nc", b"00000001"),
            (b"cnonce", _quoted(cnonce)),
            (b"digest-uri", _quoted(self._service)),
            (b"maxbuf", b"65536"),
            (b"response", proof(b"AUTHENTICATE")),
            (b"qop", self.qop.encode()),
        ]
        if self.qop == "auth-conf":
            cipher = self._cipher(directives.get("cipher", b""))
            fields.append((b"cipher", _quoted(cipher.encode())))
            self._layer = _Layer(session, session[: _CIPHERS[cipher]])
        elif self.qop == "auth-int":
            self._layer = _Layer(session, None)
        return b",".join(name + b"=" + value for name, value in fields)

    def verify(self, last: bytes) -> None:
        """Verify the server's proof; raises :class:`AuthenticationError`."""
        proof = parse_directives(last).get("rspauth", b"")
        if not self._expected or not equal_in_constant_time(proof, self._expected):
            raise AuthenticationError(
                "the server does not know the token's password: it is not who it should be"
            )
        self.proven = True

    def advance(self, challenge: bytes) -> bytes:
        """Take the server's proof when it comes before its success."""
        self.verify(challenge)
        return b""

    def finish(self, last: Optional[bytes]) -> None:
        """Take the server's proof, unless it came before."""
        if last is not None or not self.proven:
            self.verify(last or b"")

    def wrap(self, message: bytes) -> bytes:
        """Protect a message."""
        if self._layer is None:
            raise ValueError("nothing is wrapped with the protection auth")
        return self._layer.wrap(message)

    def unwrap(self, token: bytes) -> bytes:
        """Unprotect a message; raises :class:`AuthenticationError` if it was altered."""
        if self._layer is None:
            raise ValueError("nothing is wrapped with the protection auth")
        return self._layer.unwrap(token)

    def _cipher(self, offered: bytes) -> str:
        names = {name.strip() for name in offered.decode("ascii", "replace").split(",")}
        for cipher in _CIPHERS:
            if cipher in names:
                return cipher
        raise AuthenticationError(
            f"the server encrypts by {', '.join(sorted(names))} only, and we by rc4"
        )


class _Layer:
    """MACs, ciphers and message counters of both directions."""

    def __init__(self, session: bytes, seal: Optional[bytes]) -> None:
        self._sign = md5(session + _TO_SERVER_SIGN)
        self._check = md5(session + _TO_CLIENT_SIGN)
        self._encrypt = self._decrypt = None
        if seal is not None:
            self._encrypt = Rc4(md5(seal + _TO_SERVER_SEAL))
            self._decrypt = Rc4(md5(seal + _TO_CLIENT_SEAL))
        self._sent = 0
        self._received = 0

    def wrap(self, message: bytes) -> bytes:
        number = self._sent.to_bytes(4, "big")
        self._sent = (self._sent + 1) & 0xFFFFFFFF
        body = message + hmac_md5(self._sign, number + message)[:_MAC_LENGTH]
        if self._encrypt is not None:
            body = self._encrypt.apply(body)
        return body + b"\0\1" + number

    def unwrap(self, token: bytes) -> bytes:
        body, trailer = token[:-_TRAILER_LENGTH], token[-_TRAILER_LENGTH:]
        number = self._received.to_bytes(4, "big")
        if len(body) < _MAC_LENGTH or trailer != b"\0\1" + number:
            raise AuthenticationError("a protected message is cut off, or out of its order")
        self._received = (self._received + 1) & 0xFFFFFFFF
        if self._decrypt is not None:
            body = self._decrypt.apply(body)
        message, mac = body[:-_MAC_LENGTH], body[-_MAC_LENGTH:]
        if not equal_in_constant_time(mac, hmac_md5(self._check, number + message)[:_MAC_LENGTH]):
            raise AuthenticationError("a protected message was altered on its way")
        return message


def choose_protection(offered: Sequence[str], allowed: Sequence[str]) -> str:
    """The strongest protection that both sides allow."""
    for qop in STRENGTH:
        if qop in offered and qop in allowed:
            return qop
    raise AuthenticationError(
        f"the server offers the protection {', '.join(sorted(set(offered)))}, and "
        f"{', '.join(allowed)} is asked for here: hadoop.rpc.protection differs"
    )


def parse_directives(text: bytes) -> Dict[str, bytes]:
    """Parse ``name=value,name="quoted"`` of a challenge; the first of a name counts."""
    found: Dict[str, bytes] = {}
    at = 0
    while at < len(text):
        if text[at] in b", \t\r\n":
            at += 1
            continue
        equals = text.find(b"=", at)
        if equals < 0:
            raise ProtocolError("a challenge of DIGEST-MD5 with a name without value")
        name = text[at:equals].strip().decode("ascii", "replace").lower()
        at = equals + 1
        if text[at : at + 1] == b'"':
            value, at = _read_quoted(text, at + 1)
        else:
            comma = text.find(b",", at)
            end = len(text) if comma < 0 else comma
            value, at = text[at:end].strip(), end
        found.setdefault(name, value)
    return found


def _read_quoted(text: bytes, at: int) -> Tuple[bytes, int]:
    value = bytearray()
    while at < len(text) and text[at] != 0x22:
        if text[at] == 0x5C:
            at += 1  # the next one as it is
        value += text[at : at + 1]
        at += 1
    if at >= len(text):
        raise ProtocolError("a challenge of DIGEST-MD5 with an open quote")
    return bytes(value), at + 1


def _hex(data: bytes) -> bytes:
    return data.hex().encode()


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _decode(value: bytes) -> str:
    return value.decode("ascii", "replace")


class Rc4:
    """RC4; the state continues from one message to the next."""

    def __init__(self, key: bytes) -> None:
        state = list(range(256))
        j = 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) & 255
            state[i], state[j] = state[j], state[i]
        self._state = state
        self._i = 0
        self._j = 0

    def apply(self, data: bytes) -> bytes:
        """Encrypt or decrypt, which is the same."""
        state, i, j = self._state, self._i, self._j
        stream = bytearray(len(data))
        for n in range(len(data)):
            i = (i + 1) & 255
            a = state[i]
            j = (j + a) & 255
            b = state[j]
            state[i] = b
            state[j] = a
            stream[n] = state[(a + b) & 255]
        self._i, self._j = i, j
        # One operation on two long numbers is much faster than one on each byte.
        mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
        return mixed.to_bytes(len(data), "little")
