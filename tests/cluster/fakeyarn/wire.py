"""Hadoop's RPC from the server's side: bytes in, calls out; answers in, bytes out. No I/O."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import Callable, List, Optional, Union

from tests.cluster.fakeyarn.digest import Malformed, Mismatch, ServerDigest
from tony_core.hadoop.rpc.messages import (
    IpcConnectionContext,
    RequestHeader,
    RpcRequestHeader,
    RpcResponseHeader,
    RpcSasl,
    SaslAuth,
)
from tony_core.hadoop.rpc.protobuf import DecodeError, Message, read_delimited

_SASL, _CONTEXT, _PING, _NO_CALL = -33, -3, -4, -1
_SUCCESS, _NEGOTIATE, _INITIATE, _WRAP = 0, 1, 2, 5
_ERROR, _FATAL = 1, 2
_FAILED, _UNAUTHORIZED = 1, 15  # details of an error

_INVALID_TOKEN = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
_DENIED = "org.apache.hadoop.security.AccessControlException"
_SASL_ERROR = "javax.security.sasl.SaslException"

TRACE = "\n\tat org.apache.hadoop.fake.Fake.fake(Fake.java:1)"
"""Java sends its stack along with every refusal."""


class Fault(Exception):
    """An exception of Java's as the answer to a call."""

    def __init__(self, remote_class: str, text: str) -> None:
        super().__init__(text)
        self.remote_class = remote_class
        self.text = text


class NoSuchSecret(Exception):
    """No token of ours has this identifier; the text says it in Hadoop's words."""


@dataclass(frozen=True)
class Call:
    """What came."""

    call_id: int
    client_id: bytes
    retry: int
    method: str
    protocol: str
    body: bytes
    user: str  # by SIMPLE
    identifier: bytes  # by token


class ServerWire:
    """One connection of one client."""

    def __init__(
        self,
        secret_of: Optional[Callable[[bytes], bytes]] = None,
        *,
        qop: str = "auth",
        nonce: str = "",
    ) -> None:
        """``secret_of`` gives the password of a token; without it everybody is believed."""
        self._secret_of = secret_of
        self._digest = ServerDigest(nonce or secrets.token_urlsafe(30), qop)
        self._in = bytearray()
        self._out = bytearray()
        self._greeted = self._ready = False
        self._identifier = b""
        self._user = ""
        self.over = False  # close it when all is sent

    def receive(self, data: bytes) -> List[Call]:
        """The calls that these bytes complete."""
        self._in += data
        calls: List[Call] = []
        try:
            if not self._greeted and not self._greet():
                return calls
            while not self.over:
                packet = self._next(self._in)
                if packet is None:
                    break
                self._packet(packet, calls)
        except (DecodeError, Malformed, Mismatch):
            self.over = True  # as Hadoop does it: not a word
        return calls

    def outgoing(self) -> bytes:
        """What has to be sent now."""
        data = bytes(self._out)
        del self._out[:]
        return data

    def answer(self, call: Call, body: Union[Message, bytes]) -> None:
        """A call's result."""
        data = body if isinstance(body, bytes) else body.encode()
        size = bytearray()
        rest = len(data)
        while rest > 0x7F:
            size.append(rest & 0x7F | 0x80)
            rest >>= 7
        size.append(rest)
        self._send(self._header(call).delimited() + bytes(size) + data)

    def refuse(self, call: Call, remote_class: str, text: str) -> None:
        """An exception as the answer; the connection goes on."""
        header = self._header(call).replace(
            status=_ERROR,
            exception_class_name=remote_class,
            error_msg=text,
            error_detail=_FAILED,
        )
        self._send(header.delimited())

    # ---------------------------------------------------------------- what came

    def _greet(self) -> bool:
        if len(self._in) < 7:
            return False
        hello, method = bytes(self._in[:6]), self._in[6]
        del self._in[:7]
        if hello != b"hrpc\x09\x00":
            raise Malformed
        self._greeted = True
        if self._secret_of is not None and method == 0:
            self._fatal(
                _NO_CALL, _DENIED, "SIMPLE authentication is not enabled.  Available:[TOKEN]"
            )
        elif self._secret_of is None and method != 0:
            raise Malformed
        self._ready = self._secret_of is None
        return True

    @staticmethod
    def _next(stream: bytearray) -> Optional[bytes]:
        size = int.from_bytes(stream[:4], "big")
        if len(stream) < 4 or len(stream) - 4 < size:
            return None
        packet = bytes(stream[4 : 4 + size])
        del stream[: 4 + size]
        return packet

    def _packet(self, packet: bytes, calls: List[Call]) -> None:
        head, at = read_delimited(packet, 0)
        header = RpcRequestHeader.decode(head)
        if header.call_id == _SASL:
            self._sasl(RpcSasl.decode(read_delimited(packet, at)[0]), calls)
        elif not self._ready:
            raise Malformed
        elif header.call_id == _CONTEXT:
            context = IpcConnectionContext.decode(read_delimited(packet, at)[0])
            self._user = context.user_info.effective_user
        elif header.call_id >= 0:
            what, at = read_delimited(packet, at)
            body, _ = read_delimited(packet, at)
            request = RequestHeader.decode(what)
            calls.append(
                Call(
                    header.call_id,
                    header.client_id,
                    header.retry_count,
                    request.method_name,
                    request.declaring_class_protocol_name,
                    body,
                    self._user,
                    self._identifier,
                )
            )
        elif header.call_id != _PING:
            raise Malformed

    def _sasl(self, message: RpcSasl, calls: List[Call]) -> None:
        if message.state == _WRAP and self._digest.layer is not None:
            inner = bytearray(self._digest.layer.unwrap(message.token))
            packet = self._next(inner)
            while packet is not None:
                self._packet(packet, calls)
                packet = self._next(inner)
        elif self._ready:
            raise Malformed
        elif message.state == _NEGOTIATE:
            offer = SaslAuth(
                method="TOKEN",
                mechanism="DIGEST-MD5",
                protocol="",
                server_id="default",
                challenge=self._digest.challenge(),
            )
            self._reply(RpcSasl(state=_NEGOTIATE, auths=[offer]))
        elif message.state == _INITIATE:
            self._authenticate(message.token)
        else:
            raise Malformed

    def _authenticate(self, answer: bytes) -> None:
        assert self._secret_of is not None
        user = self._digest.user(answer)
        try:
            identifier = base64.b64decode(user, validate=True)
        except ValueError:
            raise Malformed from None
        try:
            password = base64.b64encode(self._secret_of(identifier))
            proof = self._digest.verify(answer, password)
        except NoSuchSecret as error:
            self._fatal(_SASL, _INVALID_TOKEN, str(error))
            return
        except Mismatch:
            text = "DIGEST-MD5: digest response format violation. Mismatched response."
            self._fatal(_SASL, _SASL_ERROR, text)
            return
        self._identifier = identifier
        self._reply(RpcSasl(state=_SUCCESS, token=proof))
        self._ready = True

    # ---------------------------------------------------------------- what goes

    def _reply(self, message: RpcSasl) -> None:
        self._frame(self._control(_SASL).delimited() + message.delimited())

    def _fatal(self, call_id: int, remote_class: str, text: str) -> None:
        header = self._control(call_id).replace(
            status=_FATAL,
            exception_class_name=remote_class,
            error_msg=text,
            error_detail=_UNAUTHORIZED,
        )
        self._frame(header.delimited())
        self.over = True

    def _send(self, packet: bytes) -> None:
        if self._digest.layer is not None:
            framed = len(packet).to_bytes(4, "big") + packet
            header = RpcResponseHeader(call_id=_SASL & 0xFFFFFFFF, status=0)
            wrapped = RpcSasl(state=_WRAP, token=self._digest.layer.wrap(framed))
            self._frame(header.delimited() + wrapped.delimited())
        else:
            self._frame(packet)

    def _frame(self, packet: bytes) -> None:
        self._out += len(packet).to_bytes(4, "big") + packet

    @staticmethod
    def _control(call_id: int) -> RpcResponseHeader:
        return RpcResponseHeader(
            call_id=call_id & 0xFFFFFFFF,
            status=0,
            server_ipc_version_num=9,
            client_id=b"",
            retry_count=-1,
        )

    @staticmethod
    def _header(call: Call) -> RpcResponseHeader:
        return RpcResponseHeader(
            call_id=call.call_id,
            status=0,
            server_ipc_version_num=9,
            client_id=call.client_id,
            retry_count=call.retry,
        )
