"""TLS below a channel: a transport like ``link.PlainTransport``.

The library's ``ssl`` works on two buffers here and not on the socket, so that the reactor sees
every byte that waits: TLS's own records may have to wait for the socket while a link has nothing
to write, and a link's messages wait for the handshake while the socket is free.

The master is the server on every connection, whichever side dialled, for it has the key pair; an
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
from tony_core.protocol.link import PlainTransport

_READ_SIZE = 64 * 1024


class PeerRejected(OSError):
    """The TLS handshake failed, or gave another certificate than the job's."""


class TlsTransport:
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
        self._plain = PlainTransport(sock)
        self._fingerprint = fingerprint
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._is_handshake_done = False
        self._encrypted = bytearray()  # what TLS has made and the socket has not taken

    def read(self) -> Optional[bytes]:
        """The bytes that are there; None when there are none yet, empty at the end."""
        data = self._plain.read()
        if not data:
            return data
        self._incoming.write(data)
        if not self._is_handshake_done and not self._do_handshake():
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
            self._flush()
        return bytes(found) if found else None

    def write(self, data: bytes) -> int:
        """Write; returns how many of the bytes were taken."""
        self._flush()
        if self._encrypted or not (self._is_handshake_done or self._do_handshake()):
            return 0
        taken = self._tls.write(data)
        self._flush()
        return taken

    def flush(self) -> None:
        """Send what waits here."""
        self._flush()

    def blocked(self, unwritten: bool) -> bool:
        """Whether it is the socket that is waited for; before the handshake it is the peer."""
        return bool(self._encrypted)

    def close(self) -> None:
        """Close it. The frames inside tell a whole conversation from one that was cut."""
        self._plain.close()

    # ------------------------------------------------------------------ inside

    def _do_handshake(self) -> bool:
        """Go on with the handshake; returns whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._send_alert()
            why = (error.reason or str(error)).lower().replace("_", " ")
            raise PeerRejected(
                f"no TLS with this peer ({why}): this job has tony.task.tls"
            ) from None
        if self._fingerprint:
            shown = self._tls.getpeercert(binary_form=True) or b""
            if not compare_digest(hashlib.sha256(shown).digest(), self._fingerprint):
                raise PeerRejected("the peer has another certificate than this job's master")
        self._is_handshake_done = True
        self._flush()
        return True

    def _flush(self) -> None:
        self._encrypted += self._outgoing.read()
        while self._encrypted:
            taken = self._plain.write(bytes(self._encrypted[:_READ_SIZE]))
            if not taken:
                return
            del self._encrypted[:taken]

    def _send_alert(self) -> None:
        try:
            self._flush()  # the alert: the peer learns why
        except OSError:
            pass


def master_context(pem: bytes) -> ssl.SSLContext:
    """A server's context with this key and certificate, which ssl reads from a file only."""
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
    import tempfile  # only on kernels without memfd_create

    return tempfile.TemporaryFile()


def executor_context() -> ssl.SSLContext:
    """A client's context; :class:`TlsTransport` checks the certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context
