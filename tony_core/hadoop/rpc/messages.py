"""The messages of RPC version 9 itself, and of what it authenticates with.

Names and numbers are those of Hadoop's own definitions (its class names less "Proto"); what
we have no use for is left out, and skipped when it comes.
"""

from __future__ import annotations

from typing import Sequence

from tony_core.hadoop.rpc.protobuf import (
    BYTES,
    EMPTY,
    ENUM,
    SINT32,
    STRING,
    UINT32,
    UINT64,
    Message,
    many,
    one,
)


class Token(Message):
    identifier: bytes = one(1, BYTES, default=b"", required=True)
    password: bytes = one(2, BYTES, default=b"", required=True)
    kind: str = one(3, STRING, default="", required=True)
    service: str = one(4, STRING, default="", required=True)


class GetDelegationTokenRequest(Message):
    renewer: str = one(1, STRING, default="", required=True)


class GetDelegationTokenResponse(Message):
    token: Token = one(1, Token, default=EMPTY)


class RenewDelegationTokenRequest(Message):
    token: Token = one(1, Token, default=EMPTY)


class RenewDelegationTokenResponse(Message):
    new_expiry_time: int = one(1, UINT64, default=0)  # ms since the epoch


class CancelDelegationTokenRequest(Message):
    token: Token = one(1, Token, default=EMPTY)


class CancelDelegationTokenResponse(Message):
    pass


class GetServerDefaultsRequest(Message):
    pass


class GetServerDefaultsResponse(Message):  # its content is not read
    pass


class CredentialsKV(Message):
    alias: str = one(1, STRING, default="", required=True)
    token: Token = one(2, Token, default=EMPTY)
    secret: bytes = one(3, BYTES, default=b"")


class Credentials(Message):
    tokens: Sequence[CredentialsKV] = many(1, CredentialsKV, default=())
    secrets: Sequence[CredentialsKV] = many(2, CredentialsKV, default=())


class RpcRequestHeader(Message):
    rpc_kind: int = one(1, ENUM, default=0)
    rpc_op: int = one(2, ENUM, default=0)
    call_id: int = one(3, SINT32, default=0, required=True)
    client_id: bytes = one(4, BYTES, default=b"", required=True)
    retry_count: int = one(5, SINT32, default=-1)


class RpcResponseHeader(Message):
    call_id: int = one(1, UINT32, default=0, required=True)
    status: int = one(2, ENUM, default=0, required=True)
    server_ipc_version_num: int = one(3, UINT32, default=0)
    exception_class_name: str = one(4, STRING, default="")
    error_msg: str = one(5, STRING, default="")
    error_detail: int = one(6, ENUM, default=0)
    client_id: bytes = one(7, BYTES, default=b"")
    retry_count: int = one(8, SINT32, default=-1)


class SaslAuth(Message):
    method: str = one(1, STRING, default="", required=True)
    mechanism: str = one(2, STRING, default="", required=True)
    protocol: str = one(3, STRING, default="")
    server_id: str = one(4, STRING, default="")
    challenge: bytes = one(5, BYTES, default=b"")


class RpcSasl(Message):
    version: int = one(1, UINT32, default=0)
    state: int = one(2, ENUM, default=0, required=True)
    token: bytes = one(3, BYTES, default=b"")
    auths: Sequence[SaslAuth] = many(4, SaslAuth, default=())


class UserInformation(Message):
    effective_user: str = one(1, STRING, default="")
    real_user: str = one(2, STRING, default="")


class IpcConnectionContext(Message):
    user_info: UserInformation = one(2, UserInformation, default=EMPTY)
    protocol: str = one(3, STRING, default="")


class RequestHeader(Message):
    method_name: str = one(1, STRING, default="", required=True)
    declaring_class_protocol_name: str = one(2, STRING, default="", required=True)
    client_protocol_version: int = one(3, UINT64, default=0, required=True)
