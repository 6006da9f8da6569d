"""DIGEST-MD5 from the server's side, as Hadoop's servers speak it. No I/O.

Written from RFC 2831 with the library's own digests, apart from the client's side on purpose:
an error made on both sides would not show.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Dict, Optional

from tony_core.hadoop.rpc.sasl import Rc4, parse_directives

CIPHERS = "3des,rc4,des,rc4-56,rc4-40"
_INTEGRITY = b":" + b"0" * 32


class Mismatch(Exception):
    """The client does not know the password."""


class Malformed(Exception):
    """What came is no answer to a challenge."""


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


class ServerDigest:
    """One authentication of one client."""

    def __init__(self, nonce: str, qop: str) -> None:
        self.nonce = nonce
        self.qop = qop
        self.layer: Optional[Layer] = None

    def challenge(self) -> bytes:
        """The server's first word."""
        cipher = f',cipher="{CIPHERS}"' if self.qop == "auth-conf" else ""
        return (
            f'realm="default",nonce="{self.nonce}",qop="{self.qop}",charset=utf-8'
            f"{cipher},algorithm=md5-sess"
        ).encode()

    @staticmethod
    def user(answer: bytes) -> bytes:
        """Who says to be there."""
        try:
            return parse_directives(answer)["username"]
        except Exception:
            raise Malformed from None

    def verify(self, answer: bytes, password: bytes) -> bytes:
        """The server's own proof; :class:`Mismatch` if the client's is none."""
        directives = parse_directives(answer)
        needed = ("username", "realm", "nonce", "cnonce", "nc", "digest-uri", "response")
        if (
            any(name not in directives for name in needed)
            or directives["nonce"] != self.nonce.encode()
        ):
            raise Malformed
        if directives.get("qop", b"auth") != self.qop.encode():
            raise Malformed
        secret = md5(b":".join((directives["username"], directives["realm"], password)))
        session = md5(secret + b":" + directives["nonce"] + b":" + directives["cnonce"])
        tail = b"" if self.qop == "auth" else _INTEGRITY

        def proof(method: bytes) -> bytes:
            second = md5(method + b":" + directives["digest-uri"] + tail).hex().encode()
            words = (
                directives["nonce"],
                directives["nc"],
                directives["cnonce"],
                self.qop.encode(),
                second,
            )
            return md5(session.hex().encode() + b":" + b":".join(words)).hex().encode()

        if not hmac.compare_digest(proof(b"AUTHENTICATE"), directives["response"]):
            raise Mismatch
        if self.qop != "auth":
            self.layer = Layer(session, self._cipher(directives))
        return b"rspauth=" + proof(b"")

    def _cipher(self, directives: Dict[str, bytes]) -> Optional[str]:
        if self.qop != "auth-conf":
            return None
        cipher = directives.get("cipher", b"").decode()
        if cipher not in ("rc4", "rc4-56", "rc4-40"):
            raise Malformed
        return cipher


class Layer:
    """What protects the messages of a connection, in both directions."""

    def __init__(self, session: bytes, cipher: Optional[str]) -> None:
        side = b"Digest session key to %s signing key magic constant"
        self._to_client = md5(session + side % b"server-to-client")
        self._to_server = md5(session + side % b"client-to-server")
        self._encryption = self._decryption = None
        if cipher is not None:
            part = session[: {"rc4": 16, "rc4-56": 7, "rc4-40": 5}[cipher]]
            seal = b"Digest H(A1) to %s sealing key magic constant"
            self._encryption = Rc4(md5(part + seal % b"server-to-client"))
            self._decryption = Rc4(md5(part + seal % b"client-to-server"))
        self._sent = self._came = 0

    def wrap(self, message: bytes) -> bytes:
        number = self._sent.to_bytes(4, "big")
        self._sent += 1
        body = message + self._mac(self._to_client, number, message)
        if self._encryption is not None:
            body = self._encryption.apply(body)
        return body + b"\0\1" + number

    def unwrap(self, token: bytes) -> bytes:
        body, number = token[:-6], token[-4:]
        if int.from_bytes(number, "big") != self._came:
            raise Malformed
        self._came += 1
        if self._decryption is not None:
            body = self._decryption.apply(body)
        message, mac = body[:-10], body[-10:]
        if not hmac.compare_digest(mac, self._mac(self._to_server, number, message)):
            raise Mismatch
        return message

    @staticmethod
    def _mac(key: bytes, number: bytes, message: bytes) -> bytes:
        return hmac.new(key, number + message, "md5").digest()[:10]
