"""Files of credentials, as Hadoop writes and reads them: tokens and secrets by their names.

Both layouts begin with ``HDTS`` and a version. Version 0 is what the ResourceManager and the
NodeManagers exchange and what a container finds at HADOOP_TOKEN_FILE_LOCATION: lists with
lengths in Hadoop's own variable numbers. Version 1 is a protocol buffer.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.hadoop.rpc import messages
from tony_core.hadoop.rpc.protobuf import DecodeError, read_delimited
from tony_core.hadoop.tokens import Token

LOCATION = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable of the environment that names a container's file."""

_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1


class CredentialsError(ValueError):
    """The bytes are not a valid credentials file."""


class Credentials(NamedTuple):
    """Tokens and secrets by alias."""

    tokens: Mapping[str, Token] = {}
    secrets: Mapping[str, bytes] = {}

    def __repr__(self) -> str:  # without the secrets
        return f"Credentials(tokens={self.tokens!r})"

    def find(self, kind: str) -> List[Token]:
        """All tokens of a kind."""
        return [token for token in self.tokens.values() if token.kind == kind]

    def with_token(self, alias: str, token: Token) -> Credentials:
        """A copy with this one added or replaced."""
        return Credentials({**self.tokens, alias: token}, self.secrets)

    def with_secret(self, alias: str, secret: bytes) -> Credentials:
        """A copy with this one added or replaced."""
        return Credentials(self.tokens, {**self.secrets, alias: secret})

    def without(self, kind: str) -> Credentials:
        """A copy without the tokens of a kind: containers get all but the master's own."""
        kept = {alias: token for alias, token in self.tokens.items() if token.kind != kind}
        return Credentials(kept, self.secrets)

    def encode(self, version: int = _WRITABLE) -> bytes:
        """The content of a credentials file, or of a launch context's ``tokens``."""
        if version == _WRITABLE:
            return b"".join((_MAGIC, b"\0", *self._writable()))
        if version == _PROTOBUF:
            return _MAGIC + b"\1" + self._message().delimited()
        raise ValueError(f"unknown version of credentials: {version}")

    @classmethod
    def decode(cls, data: bytes) -> Credentials:
        """Decode either version; raises :class:`CredentialsError`."""
        if data[:4] != _MAGIC:
            raise CredentialsError("not a Hadoop credentials file: it does not begin with HDTS")
        version = data[4] if len(data) > 4 else None
        try:
            if version == _WRITABLE:
                return cls._from_writable(_Reader(data, 5))
            if version == _PROTOBUF:
                body, _ = read_delimited(data, 5)
                return cls._from_message(messages.Credentials.decode(body))
        except DecodeError as error:
            raise CredentialsError(f"the credentials cannot be read: {error}") from None
        raise CredentialsError(f"the credentials have the unknown version {version}")

    @classmethod
    def of_container(cls, env: Mapping[str, str]) -> Credentials:
        """The credentials of this process's container; empty outside of a container."""
        path = env.get(LOCATION)
        if not path:
            return cls()
        with open(path, "rb") as file:
            return cls.decode(file.read())

    def write(self, path: str, version: int = _WRITABLE) -> None:
        """Write a file atomically that only its owner may read."""
        scratch = f"{path}.{os.getpid()}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(self.encode(version))
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise

    # ---------------------------------------------------------------- version 0

    def _writable(self) -> List[bytes]:
        out = [vint(len(self.tokens))]
        for alias, token in self.tokens.items():
            for part in (alias.encode(), token.identifier, token.password):
                out += [vint(len(part)), part]
            for part in (token.kind.encode(), token.service.encode()):
                out += [vint(len(part)), part]
        out.append(vint(len(self.secrets)))
        for alias, secret in self.secrets.items():
            for part in (alias.encode(), secret):
                out += [vint(len(part)), part]
        return out

    @classmethod
    def _from_writable(cls, reader: _Reader) -> Credentials:
        tokens: Dict[str, Token] = {}
        for _ in range(reader.number()):
            alias = reader.text()
            tokens[alias] = Token(reader.blob(), reader.blob(), reader.text(), reader.text())
        secrets: Dict[str, bytes] = {}
        for _ in range(reader.number()):
            alias = reader.text()
            secrets[alias] = reader.blob()
        return cls(tokens, secrets)

    # ---------------------------------------------------------------- version 1

    def _message(self) -> messages.Credentials:
        return messages.Credentials(
            tokens=[
                messages.CredentialsKV(alias=alias, token=token.to_message())
                for alias, token in self.tokens.items()
            ],
            secrets=[
                messages.CredentialsKV(alias=alias, secret=secret)
                for alias, secret in self.secrets.items()
            ],
        )

    @classmethod
    def _from_message(cls, message: messages.Credentials) -> Credentials:
        return cls(
            {entry.alias: Token.from_message(entry.token) for entry in message.tokens},
            {entry.alias: entry.secret for entry in message.secrets},
        )


class _Reader:
    """Reads version 0."""

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


def am_rm_token(credentials: Credentials) -> Optional[Token]:
    """The master's token for the ResourceManager, found by kind: its service is empty."""
    return next(iter(credentials.find("YARN_AM_RM_TOKEN")), None)
