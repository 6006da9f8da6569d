"""The secrets in a container's credentials file: what every executor reads first.

Not ``hadoop.credentials``, which reads all there is, and not :mod:`parcel`, which packs and
unpacks: both load a megabyte of modules that an executor's start has no other use for.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

SECRET = "tony.secret"  # noqa: S105 (its name, not its value)
SITE = "tony.site"


class ParcelError(ValueError):
    """A container was started without what a job brings, or with something else."""


def read_secrets(data: bytes) -> Dict[str, bytes]:
    """The secrets of a container's credentials file; the tokens are skipped.

    What NodeManagers write (version 0) is read right here.
    """
    if data[:4] != b"HDTS":
        raise ParcelError("no credentials of Hadoop: they begin with HDTS")
    if data[4:5] != b"\0":
        from tony_core.hadoop.credentials import Credentials, CredentialsError

        try:
            return dict(Credentials.decode(data).secrets)
        except CredentialsError as error:
            raise ParcelError(str(error)) from None
    at = 5
    tokens, at = _number(data, at)
    for _ in range(tokens * 5):  # alias, identifier, password, kind, service
        _, at = _blob(data, at)
    count, at = _number(data, at)
    found: List[bytes] = []
    for _ in range(count * 2):
        part, at = _blob(data, at)
        found.append(part)
    names = [name.decode("utf-8", "replace") for name in found[::2]]
    return dict(zip(names, found[1::2]))


def _blob(data: bytes, at: int) -> Tuple[bytes, int]:
    size, at = _number(data, at)
    if size > len(data) - at:
        raise ParcelError("credentials that are cut off")
    return data[at : at + size], at + size


def _number(data: bytes, at: int) -> Tuple[int, int]:
    """A length in Hadoop's own variable numbers; there are no negative ones here."""
    if at >= len(data):
        raise ParcelError("credentials that are cut off")
    first = data[at]
    if first <= 127:
        return first, at + 1
    size = 256 - 112 - first
    if not 0 < size <= 8 or at + 1 + size > len(data):
        raise ParcelError("credentials with a length that makes no sense")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size
