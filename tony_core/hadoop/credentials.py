"""Files of credentials, as Hadoop writes and reads them: tokens and secrets by their names.

Both layouts begin with ``HDTS`` and a version. Version 0 is what the ResourceManager and the
NodeManagers exchange and what a container finds at HADOOP_TOKEN_FILE_LOCATION
(``files.webhdfs.token_file``, which programs use as well). Version 1 is a protocol buffer.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional

from tony_core.files.webhdfs import token_file
from tony_core.files.webhdfs.token_file import LOCATION as LOCATION
from tony_core.files.webhdfs.token_file import CredentialsError as CredentialsError
from tony_core.files.webhdfs.token_file import TokenEntry
from tony_core.files.webhdfs.token_file import read_vint as read_vint
from tony_core.files.webhdfs.token_file import vint as vint
from tony_core.hadoop.rpc import messages
from tony_core.hadoop.rpc.protobuf import DecodeError, read_delimited
from tony_core.hadoop.tokens import AM_RM, Token

_WRITABLE, _PROTOBUF = 0, 1


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

    def with_renewed(self, fresh: Credentials) -> Credentials:
        """A copy in which fresh tokens replace those of the same kind and service."""
        replaced = {(token.kind, token.service) for token in fresh.tokens.values()}
        kept = {
            alias: token
            for alias, token in self.tokens.items()
            if (token.kind, token.service) not in replaced
        }
        return Credentials({**kept, **fresh.tokens}, self.secrets)

    def encode(self, version: int = _WRITABLE) -> bytes:
        """The content of a credentials file, or of a launch context's ``tokens``."""
        if version == _WRITABLE:
            return token_file.encode(
                [TokenEntry(alias, *token) for alias, token in self.tokens.items()], self.secrets
            )
        if version == _PROTOBUF:
            return token_file.MAGIC + b"\1" + self._message().delimited()
        raise ValueError(f"unknown version of credentials: {version}")

    @classmethod
    def decode(cls, data: bytes) -> Credentials:
        """Decode either version; raises :class:`CredentialsError`."""
        if data[:5] != token_file.MAGIC + b"\1":
            tokens, secrets = token_file.parse(data)
            return cls({one.alias: Token(*one[1:]) for one in tokens}, secrets)
        try:
            body, _ = read_delimited(data, 5)
            return cls._from_message(messages.Credentials.decode(body))
        except DecodeError as error:
            raise CredentialsError(f"the credentials cannot be read: {error}") from None

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
        token_file.write_private(path, self.encode(version))

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


def url_string(token: Token) -> str:
    """A token as WebHDFS and the ResourceManager's REST take it: ``delegation=TEXT``."""
    return token_file.url_string(TokenEntry("", *token))


def am_rm_token(credentials: Credentials) -> Optional[Token]:
    """The master's token for the ResourceManager, found by kind: its service is empty."""
    return next(iter(credentials.find(AM_RM)), None)
