"""TLS below a channel: a transport as ``link.Plain`` is one.

The library's ``ssl`` works on two buffers here and not on the socket, so that the reactor sees
every byte that waits: what TLS itself wants to say may have to wait for the socket while a
link has nothing to write, and a link's words wait for the handshake while the socket is free.

The master is the server on every connection, whoever dialled, for it has the key pair; an
executor that is called by a next master begins the handshake on the connection it accepted.
The certificate is the job's own and known by its fingerprint: no authority has signed it, and
its name and dates say nothing, so the library's verification is off, and the comparison with
the fingerprint, before the first byte of ours is sent, takes its place.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from hmac import compare_digest
from typing import Any, Optional

from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.link import Plain

_READ_SIZE = 64 * 1024


class Refused(OSError):
    """The TLS handshake failed, or gave another certificate than the job's."""


class Secured:
    """A non-blocking TCP socket with TLS on it. ``fingerprint`` pins the server's certificate."""

    def __init__(
        self,
        sock: Any,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        fingerprint: bytes = b"",
    ) -> None:
        self.sock = sock
        self._plain = Plain(sock)
        self._fingerprint = fingerprint
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._shaken = False
        self._sealed = bytearray()  # what TLS has made and the socket has not taken

    def read(self) -> Optional[bytes]:
        """What is there; None when nothing is yet, empty at the end."""
        data = self._plain.read()
        if not data:
            return data
        self._incoming.write(data)
        if not self._shaken and not self._shake():
            return None
        found = bytearray()
        try:
            while True:
                found += self._tls.read(_READ_SIZE)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            if not found:
                return b""
        finally:
            self._say()
        return bytes(found) if found else None

    def write(self, data: bytes) -> int:
        """How many of the bytes were taken."""
        self._say()
        if self._sealed or not (self._shaken or self._shake()):
            return 0
        taken = self._tls.write(data)
        self._say()
        return taken

    def flush(self) -> None:
        """Send what waits here."""
        self._say()

    def blocked(self, unwritten: bool) -> bool:
        """Whether it is the socket that is waited for; before the handshake it is the peer."""
        return bool(self._sealed)

    def close(self) -> None:
        """Close it. The frames inside tell a whole conversation from one that was cut."""
        self._plain.close()

    # ------------------------------------------------------------------ inside

    def _shake(self) -> bool:
        """Go on with the handshake; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._say()
            return False
        except ssl.SSLError as error:
            self._last_word()
            why = (error.reason or str(error)).lower().replace("_", " ")
            raise Refused(f"no TLS with this peer ({why}): this job has tony.task.tls") from None
        if self._fingerprint:
            shown = self._tls.getpeercert(binary_form=True) or b""
            if not compare_digest(hashlib.sha256(shown).digest(), self._fingerprint):
                raise Refused("the peer has another certificate than this job's master")
        self._shaken = True
        self._say()
        return True

    def _say(self) -> None:
        self._sealed += self._outgoing.read()
        while self._sealed:
            taken = self._plain.write(bytes(self._sealed[:_READ_SIZE]))
            if not taken:
                return
            del self._sealed[:taken]

    def _last_word(self) -> None:
        try:
            self._say()  # the alert: the peer learns why
        except OSError:
            pass


def master_context(pem: bytes) -> ssl.SSLContext:
    """A server's, with this key and certificate; the library reads them from a file only."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # nothing is resumed, and nothing kept for it
    with _file() as file:
        file.write(pem)
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        except (ssl.SSLError, OSError) as error:
            raise ProtocolError(
                f"the job's TLS key cannot be used here: {error}", fault="local"
            ) from None
    return context


def _file() -> Any:
    """Something with a name below /proc, and none that outlives it."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("tony"), "w+b")
    import tempfile  # executors need none of it

    return tempfile.TemporaryFile()


def executor_context() -> ssl.SSLContext:
    """A client's. Which certificate it takes is :class:`Secured`'s to say."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context
