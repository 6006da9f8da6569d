"""The job key: the secret that only the processes of one job share, and its TLS key.

A job's secret file (or its YARN credential) holds 32 bytes, from which master and executors
prove to each other who they are. Where the job wants TLS (``tony.task.tls``) it holds more, behind
a mark::

    "TonY-TLS-1\\n" | secret (32) | SHA-256 of the certificate (32) | key and certificate (PEM)

The client makes the pair, for one job. Every attempt of its master reads it from the secret file,
and is the TLS server on every connection, whichever side dialled. An executor's file lacks the
PEM text: it takes the one certificate of that fingerprint, and no other. Names, dates and
authorities mean nothing here. Each end proves its secret inside, as without TLS, and the proof
holds for this certificate alone.

An executor's file holds no secret of the job but its own container's key (``channel.py``).

Python 3.8: ``ssl`` is loaded only where it is used.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from tony_core.protocol.channel import container_key
from tony_core.protocol.codec import ProtocolError

MARK = b"TonY-TLS-1\n"
SIZE = 32


class JobSecret(NamedTuple):
    """The secret, and with TLS the certificate's fingerprint; ``pem`` is the master's alone."""

    secret: bytes
    fingerprint: bytes = b""
    pem: bytes = b""


def pack_secret(key: JobSecret) -> bytes:
    """The bytes of a secret file."""
    if not key.fingerprint:
        return key.secret
    if len(key.secret) != SIZE or len(key.fingerprint) != SIZE:
        raise ProtocolError("a job's secret and fingerprint have 32 bytes", fault="local")
    return MARK + key.secret + key.fingerprint + key.pem


def unpack_secret(data: bytes) -> JobSecret:
    """Read the bytes of a secret file."""
    if not data.startswith(MARK):
        return JobSecret(data)
    rest = data[len(MARK) :]
    if len(rest) < 2 * SIZE:
        raise ProtocolError("the job's secret file was cut short", fault="local")
    return JobSecret(rest[:SIZE], rest[SIZE : 2 * SIZE], rest[2 * SIZE :])


def executor_key(data: bytes, container_id: str) -> bytes:
    """The bytes of this container's secret file: its own key, and no private one."""
    key = unpack_secret(data)
    return pack_secret(key._replace(secret=container_key(key.secret, container_id), pem=b""))


def transport_factory(key: JobSecret, master: bool) -> Callable[[Any], Any]:
    """The function that makes a link's transport of a connected socket: plain, or TLS."""
    if not key.fingerprint:
        return lambda sock: sock
    try:
        from tony_core.protocol import tls  # 4 MB: for those who asked for it
    except ImportError as error:
        raise ProtocolError(
            "this Python has no ssl: set tony.task.tls=false, or another tony.runtime.python"
            f" ({error})",
            fault="local",
        ) from None

    if master:
        served = tls.master_context(key.pem)
        return lambda sock: tls.TlsTransport(sock, served, server_side=True)
    called = tls.executor_context()
    return lambda sock: tls.TlsTransport(sock, called, fingerprint=key.fingerprint)
