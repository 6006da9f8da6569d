"""A tunnel: a client's authenticated conversation with the master, over plain HTTP requests.

Theory of operation
===================

A client of a running job reaches its containers through the master alone, and the master perhaps
only through a ResourceManager's proxy, which passes on GET and PUT, one answer for one request. So
a tunnel is two flows of bytes with numbered positions, below ``/tunnel/`` of the job's page::

    PUT  tunnel/new                   ->  {"tunnel": ID}
    PUT  tunnel/ID/up?at=N            ->  {"next": M}   the client's bytes from N on, in base64
    GET  tunnel/ID/down?at=N&wait=S   ->  the master's bytes from N on; S: seconds to wait for some
    PUT  tunnel/ID/end                ->  {}

Until the client's handshake has come whole, a request brings :data:`FIRST_PIECE` bytes at most.
With ``once`` in its query a request's answer is the last on its connection.

Every request can be repeated: bytes that came before are passed over (:class:`ReceivedBytes`), and
what was sent is kept until the peer asks for what follows it (:class:`SentBytes`). A request for
what was given up, or for what was never sent, is refused, and changes nothing: it may be an old one
that was long on its way. A client that is refused gives the tunnel up.

Through these flows goes a channel (``channel.py``), in which the client stands where an executor
would, as the container :data:`CLIENT`, which no scheduler has. Its key is derived from the job's
secret (:func:`client_key`), and the master writes it into a file that only the job's owner can
read. The handshake is bound to the tunnel's number. So who can read the page, and even who is the
proxy, can break a tunnel, but cannot open one, nor put a byte into it; and a recorded tunnel opens
nothing. As on every channel without TLS, the bytes are not hidden. Who answers may also be another
process by now, at a port that the master has left: so the master sends a Ping every :data:`PING_S`,
and a client that got no message for :data:`LOST_S` takes it for gone.

In the channel go streams (``messages.py``). Each direction of a stream has a window: a sender
that has :data:`WINDOW` bytes out waits until the peer has taken some. So nothing between a
program that prints without end and a terminal that is stopped holds more than that. A message
without bytes is none of a stream's, but for the one that ends its direction: the window would not
bound how many of them come.

Python 3.8.
"""

from __future__ import annotations

import binascii
import json
from enum import Enum
from typing import NamedTuple

from tony_core.protocol.channel import HELLO_SIZE, PROOF_SIZE, container_key
from tony_core.protocol.codec import ProtocolError

CLIENT = "client"
PREFIX = "/tunnel/"
KEY_FILE = "client-key.json"  # beside the master's state

WINDOW = 128 * 1024  # bytes of a stream that the peer has not taken
PIECE = 32 * 1024  # bytes in one message
HANDSHAKE_SIZE = HELLO_SIZE + PROOF_SIZE
FIRST_PIECE = 2048  # bytes in one request of a client that has proved nothing yet
MAX_STREAMS = 100  # of a job: all of their windows stay below what a link holds
MAX_UNSENT = 32 * 1024 * 1024  # bytes of a tunnel that the other end has not fetched
PING_S = 20.0
LOST_S = 60.0


class StreamKind(str, Enum):
    """What a stream leads to."""

    SHELL = "shell"  # a shell, or a command
    NOTEBOOK = "notebook"  # a connection to the task's Jupyter


class Refused(str, Enum):
    """Why a stream did not begin: whether another try can succeed."""

    FINAL = "final"  # none can
    NO_PROGRAM = "no program"  # the task's program does not run (yet)
    NOT_READY = "not ready"  # it runs, and what the stream leads to does not answer (yet)


def client_key(secret: bytes) -> bytes:
    """The key by which a job's owner proves himself to its master."""
    return container_key(secret, CLIENT)


class ClientKey(NamedTuple):
    """The content of the key's file."""

    key: bytes
    page_url: str  # where the master itself listens

    def to_json(self) -> bytes:
        """The file."""
        return json.dumps({"key": self.key.hex(), "page_url": self.page_url}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> ClientKey:
        """Read the file; raises ValueError for anything else."""
        try:
            found = json.loads(content)
            made = cls(bytes.fromhex(found["key"]), str(found["page_url"]))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"it holds no key and page_url: {error}") from None
        if not made.key:
            raise ValueError("its key is empty")
        return made


class TunnelBroken(ProtocolError):
    """The two ends do not agree on what was sent; nothing was changed."""


class SentBytes:
    """What was written at one end of a flow and not taken at the other one."""

    def __init__(self, largest: int = MAX_UNSENT) -> None:
        self.start = 0  # position of the first byte that is kept
        self._kept = bytearray()
        self._largest = largest

    @property
    def end(self) -> int:
        """The position of the next byte to be written."""
        return self.start + len(self._kept)

    def write(self, data: bytes) -> None:
        """Add bytes."""
        if len(self._kept) + len(data) > self._largest:
            raise ProtocolError("the other end does not fetch what it is sent")
        self._kept += data

    def read(self, at: int, most: int) -> bytes:
        """Bytes from a position on, and forget those before it: the peer has them."""
        if not self.start <= at <= self.end:
            raise TunnelBroken(f"position {at} is not between {self.start} and {self.end}")
        del self._kept[: at - self.start]
        self.start = at
        return bytes(self._kept[:most])


class ReceivedBytes:
    """The receiving end of a flow."""

    def __init__(self) -> None:
        self.next = 0  # position of the first byte that has not come

    def accept(self, at: int, data: bytes) -> bytes:
        """What is new of the bytes that begin at that position."""
        if at < 0 or at > self.next:
            raise TunnelBroken(f"bytes from {at} on have come, and those from {self.next} are lost")
        fresh = data[self.next - at :]
        self.next += len(fresh)
        return fresh


class StreamWindow:
    """One direction of a stream at its sender, or at the master in between."""

    def __init__(self, size: int = WINDOW) -> None:
        self.left = size
        self.ended = False  # no bytes follow
        self._size = size

    def send(self, count: int, end: bool = False) -> None:
        """Note bytes that go out in one message; none at all only with the end."""
        if self.ended:
            raise ProtocolError("a stream sends more after its end")
        if count > self.left:
            raise ProtocolError("a stream sends more than its window")
        if count < 1 and not end:
            raise ProtocolError("a stream sends a message without bytes")
        self.left -= count
        self.ended = end

    def taken(self, count: int) -> None:
        """Note bytes that the receiver has taken."""
        if not 1 <= count <= self._size - self.left:
            raise ProtocolError("a stream takes more than it was sent, or nothing")
        self.left += count


def pack_data(data: bytes) -> str:
    """Bytes as a message carries them."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def unpack_data(text: str) -> bytes:
    """The bytes of a message, or of a request's body."""
    try:
        return binascii.a2b_base64(text.encode("ascii"))
    except ValueError:
        raise ProtocolError("the bytes of a stream are no base64") from None


def packed_size(text: str) -> int:
    """How many bytes a message carries, without unpacking them; at least one of any text."""
    return max(len(text) // 4 * 3 - text[-2:].count("="), 1 if text else 0)
