"""Hadoop's files of credentials in version 0, and tokens as WebHDFS takes them.

A file begins with ``HDTS`` and a version. Version 0 is what a container finds at
HADOOP_TOKEN_FILE_LOCATION: tokens, then secrets, each list with its length, in the variable
numbers of Hadoop's ``WritableUtils``. It is read in three places: the first process of a
container, TonY's own code, and the user's program.
"""

from __future__ import annotations

import binascii
import os
from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple

LOCATION = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable of the environment that names a file of credentials."""

AM_RM = "YARN_AM_RM_TOKEN"
HDFS_DELEGATION = "HDFS_DELEGATION_TOKEN"
"""The kinds of a master's own token, and of a user's for HDFS."""

MAGIC = b"HDTS"
VERSION = b"\0"
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


class CredentialsError(ValueError):
    """The bytes are not a valid credentials file."""


class TokenEntry(NamedTuple):
    """A token by the name that it has in a file; its repr shows neither identifier nor password."""

    alias: str
    identifier: bytes
    password: bytes
    kind: str
    service: str

    def __repr__(self) -> str:
        return f"TokenEntry(kind={self.kind!r}, service={self.service!r})"


def parse(data: bytes) -> Tuple[List[TokenEntry], Dict[str, bytes]]:
    """The tokens and the secrets in a file's content; raises :class:`CredentialsError`."""
    if data[:4] != MAGIC:
        raise CredentialsError("not a Hadoop credentials file: it does not begin with HDTS")
    if data[4:5] != VERSION:
        version = data[4] if len(data) > 4 else None
        raise CredentialsError(f"the credentials have the unknown version {version}")
    reader = _Reader(data, 5)
    tokens = []
    for _ in range(reader.number()):
        alias = reader.text()
        tokens.append(TokenEntry(alias, reader.blob(), reader.blob(), reader.text(), reader.text()))
    secrets: Dict[str, bytes] = {}
    for _ in range(reader.number()):
        name = reader.text()
        secrets[name] = reader.blob()
    return tokens, secrets


def encode(tokens: Iterable[TokenEntry], secrets: Mapping[str, bytes]) -> bytes:
    """The content of a file."""
    parts: List[bytes] = []
    count = 0
    for token in tokens:
        count += 1
        parts += [token.alias.encode(), token.identifier, token.password]
        parts += [token.kind.encode(), token.service.encode()]
    named = [part for name, secret in secrets.items() for part in (name.encode(), secret)]
    return b"".join(
        (MAGIC, VERSION, vint(count), *map(_blob, parts), vint(len(secrets)), *map(_blob, named))
    )


def url_string(token: TokenEntry) -> str:
    """A token as WebHDFS and the ResourceManager's REST take it: ``delegation=TEXT``."""
    parts = (token.identifier, token.password, token.kind.encode(), token.service.encode())
    # Not base64: it loads re, and this module is in every executor.
    text = binascii.b2a_base64(b"".join(map(_blob, parts)), newline=False).rstrip(b"=")
    return text.translate(_TO_URL).decode("ascii")


def parse_url_string(text: str) -> TokenEntry:
    """Undo :func:`url_string`; raises :class:`CredentialsError`."""
    try:
        data = binascii.a2b_base64(text.encode().translate(_FROM_URL) + b"=" * (-len(text) % 4))
    except ValueError:
        raise CredentialsError("a token that is not written in base64") from None
    reader = _Reader(data, 0)
    return TokenEntry("", reader.blob(), reader.blob(), reader.text(), reader.text())


def write_private(path: str, data: bytes) -> None:
    """Write a file atomically that only its owner may read, whatever the umask."""
    scratch = f"{path}.{os.getpid()}"
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def number(self) -> int:
        value, self._at = read_vint(self._data, self._at)
        if value < 0:
            raise CredentialsError(f"the credentials contain a negative length: {value}")
        return value

    def blob(self) -> bytes:
        size = self.number()
        if size > len(self._data) - self._at:
            raise CredentialsError("the credentials are cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.blob().decode("utf-8", "replace")


def _blob(data: bytes) -> bytes:
    return vint(len(data)) + data


def vint(value: int) -> bytes:
    """Encode a number as Hadoop's ``WritableUtils.writeVInt`` does."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    base, magnitude = (-112, value) if value >= 0 else (-120, ~value)
    size = (magnitude.bit_length() + 7) // 8
    return ((base - size) & 0xFF).to_bytes(1, "big") + magnitude.to_bytes(size, "big")


def read_vint(data: bytes, at: int) -> Tuple[int, int]:
    """Decode the vint at a position; also returns the position after it."""
    if at >= len(data):
        raise CredentialsError("the credentials are cut off")
    first = data[at] - 256 if data[at] > 127 else data[at]
    at += 1
    if first >= -112:
        return first, at
    size = -112 - first if first >= -120 else -120 - first
    if at + size > len(data):
        raise CredentialsError("the credentials are cut off")
    magnitude = int.from_bytes(data[at : at + size], "big")
    return (magnitude if first >= -120 else ~magnitude), at + size
