"""One authenticated conversation, without a socket: bytes in, messages out.

Theory of operation
===================

The master holds the job's secret. Each executor holds a key that is derived from it for that
executor's container (:func:`container_key`), and nothing more: so it can speak for its own
container, but neither for another one nor as the master. Neither secret nor key is ever sent.
Both sides send a *hello* at once::

    "TonY" | version (2 bytes) | role (1) | side (1) | container (16) | nonce (32 bytes)

The first six bytes never change between versions, so that two of them can tell each other
apart. The role is ``M`` for the master and ``E`` for an executor, the side ``d`` for the end that
opened the connection (the dialler) and ``l`` for the listener. An executor names its container, by
a hash of its id; the master's field is empty, for a listening master does not know yet who calls.
Two masters, two executors, two diallers or two listeners are no pair.

When a side has the other's hello it derives, from the container's key, both hellos in the order
master, executor, and the *binding*, one key for each direction and one *proof* for each role, and
sends its proof (32 bytes). The binding is what the connection below is known by: with TLS the
fingerprint of the certificate that it was made with. So a proof says: this role, on this side of
this connection, for this container of this job, in answer to this nonce. Carried to another
connection, or sent back to its maker, it is wrong.

A side whose peer's proof is right is *established*: what was sent in the meantime leaves now,
and what comes is frames::

    length (4 bytes) | sequence (8 bytes) | MAC (16 bytes) | payload

The MAC is keyed blake2b over length, sequence and payload under the key of the frame's
direction; the sequence counts from 0. So a frame that was changed, dropped, repeated, moved,
reflected or taken from another conversation ends this one. Before the proof is checked a
peer can make us hold 88 bytes and compute six hashes, no more.

It authenticates; it does not hide. (TLS, when a job asks for it, lies below.)
"""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional

from tony_core.protocol.codec import ProtocolError, decode, encode
from tony_core.protocol.messages import PROTOCOL_VERSION, Message

try:  # hashlib and hmac load OpenSSL: 3 MB for each executor
    from _blake2 import blake2b
    from _operator import _compare_digest as compare_digest
except ImportError:  # a Python without these parts
    from hashlib import blake2b
    from hmac import compare_digest  # type: ignore[no-redef]


MAGIC = b"TonY"
MASTER, EXECUTOR = b"M", b"E"
DIALLER, LISTENER = b"d", b"l"
CONTAINER_SIZE = 16
NONCE_SIZE = 32
HELLO_SIZE = len(MAGIC) + 2 + 1 + 1 + CONTAINER_SIZE + NONCE_SIZE
PROOF_SIZE = 32
MAC_SIZE = 16
HEADER_SIZE = 4 + 8 + MAC_SIZE
MAX_PAYLOAD = 32 * 1024 * 1024
"""A cluster spec of ten thousand tasks is a tenth of it."""


def container_tag(container_id: str) -> bytes:
    """The container's name in a hello: of one length, whatever the id's is."""
    return _mac(b"container", b"", container_id.encode("utf-8", "surrogatepass"), CONTAINER_SIZE)


def container_key(secret: bytes, container_id: str) -> bytes:
    """The key that the executor in this container and the master share."""
    return _key_of(secret, container_tag(container_id))


class Channel:
    """One end of a conversation.

    The master's end takes the job's secret. An executor's takes its container's key, and the
    container's id. ``dialler`` is the end that opened the connection; ``binding`` must be the
    same at both ends.
    """

    def __init__(
        self,
        secret: bytes,
        dialler: bool,
        *,
        container_id: str = "",  # an executor's; empty at the master
        binding: bytes = b"",
        largest: int = MAX_PAYLOAD,  # of a message that is taken
        version: int = PROTOCOL_VERSION,
    ) -> None:
        if not secret:
            raise ProtocolError("there is no secret to authenticate with", fault="local")
        self.established = False
        self.failure: Optional[ProtocolError] = None
        self._secret = secret
        self._is_master = not container_id
        self._dialler = dialler
        self._binding = binding
        self._largest = largest
        self._version = version
        self._container = container_tag(container_id) if container_id else bytes(CONTAINER_SIZE)
        self._hello = b"".join(
            (
                MAGIC,
                version.to_bytes(2, "big"),
                MASTER if self._is_master else EXECUTOR,
                DIALLER if dialler else LISTENER,
                self._container,
                os.urandom(NONCE_SIZE),
            )
        )
        self._incoming = bytearray()
        self._outgoing = bytearray(self._hello)
        self._waiting: List[bytes] = []  # payloads sent before the peer is known
        self._peer_proof = b""
        self._send_key = b""
        self._receive_key = b""
        self._sent = 0
        self._received = 0
        self._step = self._read_hello

    def speaks_for(self, container_id: str) -> bool:
        """Whether the peer has proved to be the executor in this container."""
        return (
            self.established and self._is_master and self._container == container_tag(container_id)
        )

    # ------------------------------------------------------------------ sending and receiving

    def send(self, message: Message, raw: Mapping[str, bytes] = {}) -> None:
        """Queue a message; it leaves by :meth:`outgoing` once the peer is authenticated."""
        payload = encode(message, raw)
        if len(payload) > MAX_PAYLOAD:
            raise ProtocolError(
                f"{type(message).__name__} is {len(payload)} bytes; {MAX_PAYLOAD} can be sent",
                fault="local",
            )
        if self.established:
            self._frame(payload)
        else:
            self._waiting.append(payload)

    def outgoing(self) -> bytes:
        """The bytes to write now; they are handed out once."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def receive(self, data: bytes) -> List[Message]:
        """The whole messages that these bytes complete.

        Raises :class:`ProtocolError` when the conversation cannot go on. If there were good
        messages before the bad bytes they are returned first, ``failure`` is set, and the
        next call raises it.
        """
        if self.failure is not None:
            raise self.failure
        self._incoming += data
        found: List[Message] = []
        try:
            while self._step(found):
                pass
        except ProtocolError as error:
            self.failure = error
            self._incoming.clear()
            if not found:
                raise
        return found

    # ------------------------------------------------------------------ the steps
    # Each takes what it can from the incoming bytes; returns whether to try the next.

    def _read_hello(self, found: List[Message]) -> bool:
        start = bytes(self._incoming[: len(MAGIC)])
        if not MAGIC.startswith(start):
            raise ProtocolError("the peer does not speak TonY's protocol")
        if len(self._incoming) < len(MAGIC) + 2:
            return False
        version = int.from_bytes(self._incoming[len(MAGIC) : len(MAGIC) + 2], "big")
        if version != self._version:
            raise ProtocolError(
                f"the peer speaks version {version} of the protocol, we speak {self._version}:"
                " master and executor must come from the same runtime"
            )
        if len(self._incoming) < HELLO_SIZE:
            return False
        self._derive_keys(self._take(HELLO_SIZE))
        self._step = self._read_proof
        return True

    def _derive_keys(self, theirs: bytes) -> None:
        at = len(MAGIC) + 2
        role, side = theirs[at : at + 1], theirs[at + 1 : at + 2]
        if role != (EXECUTOR if self._is_master else MASTER):
            wanted, found = ("executor", "master") if self._is_master else ("master", "executor")
            raise ProtocolError(f"the peer is no {wanted}: another {found}, or our own hello")
        if side != (LISTENER if self._dialler else DIALLER):
            raise ProtocolError("one end must have opened the connection, and one accepted it")
        key = self._secret
        if self._is_master:
            self._container = theirs[at + 2 : at + 2 + CONTAINER_SIZE]
            key = _key_of(self._secret, self._container)
        hellos = self._hello + theirs if self._is_master else theirs + self._hello
        transcript = hellos + self._binding
        keys = [_mac(each + b" key", key, transcript, 32) for each in (MASTER, EXECUTOR)]
        proofs = [
            _mac(each + b" proof", key, transcript, PROOF_SIZE) for each in (MASTER, EXECUTOR)
        ]
        mine, other = (0, 1) if self._is_master else (1, 0)
        self._send_key, self._receive_key = keys[mine], keys[other]
        self._peer_proof = proofs[other]
        self._outgoing += proofs[mine]

    def _read_proof(self, found: List[Message]) -> bool:
        if len(self._incoming) < PROOF_SIZE:
            return False
        if not compare_digest(self._take(PROOF_SIZE), self._peer_proof):
            raise ProtocolError("the peer does not know this job's secret")
        self.established = True
        for payload in self._waiting:
            self._frame(payload)
        self._waiting = []
        self._step = self._read_frame
        return True

    def _read_frame(self, found: List[Message]) -> bool:
        if len(self._incoming) < 4:
            return False
        length = int.from_bytes(self._incoming[:4], "big")
        if length > self._largest:
            raise ProtocolError(f"a frame of {length} bytes; {self._largest} is the most")
        if len(self._incoming) < HEADER_SIZE + length:
            return False
        header = self._take(HEADER_SIZE)
        payload = self._take(length)
        authentic = compare_digest(header[12:], _mac(b"", self._receive_key, header[:12] + payload))
        if not authentic or int.from_bytes(header[4:12], "big") != self._received:
            raise ProtocolError("a frame was changed, repeated or lost on its way")
        self._received += 1
        found.append(decode(payload))
        return True

    def _frame(self, payload: bytes) -> None:
        header = len(payload).to_bytes(4, "big") + self._sent.to_bytes(8, "big")
        self._outgoing += header + _mac(b"", self._send_key, header + payload) + payload
        self._sent += 1

    def _take(self, size: int) -> bytes:
        taken = bytes(self._incoming[:size])
        del self._incoming[:size]
        return taken


def _key_of(secret: bytes, container: bytes) -> bytes:
    # A secret may be longer than blake2b's keys: it is hashed into one first.
    return _mac(b"container", _mac(b"secret", b"", secret, 64), container, 32)


def _mac(purpose: bytes, key: bytes, data: bytes, size: int = MAC_SIZE) -> bytes:
    hashed: Any = blake2b(data, digest_size=size, key=key, person=b"tony " + purpose)
    digest: bytes = hashed.digest()
    return digest
