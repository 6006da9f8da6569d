"""Hadoop's RPC, version 9, from the client's side: bytes in, events out. No I/O.

Theory of operation
===================

A connection opens with a header of seven bytes that says whether SASL follows. Without it
(SIMPLE), the context (user and protocol) and calls follow at once. With it (TOKEN, KERBEROS)::

    us                              server
    NEGOTIATE           ────▶
                        ◀────       NEGOTIATE: mechanisms; a token's has its challenge
    INITIATE: response  ────▶
                        ◀────       CHALLENGE   } of Kerberos only,
    RESPONSE            ────▶                   } twice
                        ◀────       SUCCESS: the server's own proof, unless it came before
    context, calls      ────▶

Everything is a *packet*: a length of four bytes, a header after its own length (a varint), a
body after its. What is no call has a negative id: SASL -33, the context -3, a ping -4. When a
protection was agreed upon, each packet after that, its length included, travels encrypted or
signed in a SASL packet with the state WRAP, in both directions; what comes out of them is one
stream again.

Until the server has proved who it is (that it knows the token, or the key of the principal that the
site's configuration names), its handshake is all that is read. An answer
before that, an error for the whole connection, a way around the proof: each of them breaks the
connection (:class:`AuthenticationError`). Without SASL nothing is proved, and all is believed.

Calls may be outstanding together, and answers come in any order. An answer with the status
*error* ends its call; *fatal* ends the connection, and stands for every call on it.

:class:`Wire` is one connection. Bytes that came go into :meth:`Wire.receive`, bytes to be
sent come out of :meth:`Wire.outgoing`. Calls made before the handshake is over wait inside.
The id of a call is the caller's business: the same id, client id and a higher retry count
tell the server that it may have seen this call before.
"""

from __future__ import annotations

import base64
from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence, Union

from tony_core.files.webhdfs.token_file import HDFS_DELEGATION, LOCATION
from tony_core.hadoop.errors import (
    AuthenticationError,
    CredentialRefused,
    HadoopError,
    ProtocolError,
    short_class_name,
    strip_class,
)
from tony_core.hadoop.rpc.messages import (
    IpcConnectionContext,
    RequestHeader,
    RpcRequestHeader,
    RpcResponseHeader,
    RpcSasl,
    SaslAuth,
    Token,
    UserInformation,
)
from tony_core.hadoop.rpc.protobuf import DecodeError, Message, read_delimited
from tony_core.hadoop.rpc.sasl import STRENGTH, DigestMd5, Mechanism, new_nonce
from tony_core.hadoop.rpc.sasl_gssapi import Context, Gssapi
from tony_core.hadoop.tokens import RM_DELEGATION

_HELLO = b"hrpc\x09\x00"  # magic, version, service class
_NO_SASL, _SASL = b"\x00", b"\xdf"
_PROTOCOL_BUFFERS = 2  # the kind of RPC

_CALL_SASL, _CALL_CONTEXT, _CALL_PING = -33, -3, -4
_UNSIGNED = 1 << 32  # answers carry ids without a sign

_SUCCESS, _NEGOTIATE, _INITIATE, _CHALLENGE, _RESPONSE, _WRAP = range(6)

_OK, _ERROR, _FATAL = range(3)

LONGEST = 128 << 20
"""Bytes of a packet at most: what Hadoop's own client accepts."""

LONGEST_UNPROVEN = 1 << 20
"""Bytes of a packet at most before the server has proved who it is."""

_WEB = b"HTTP"

_OF_USERS = (HDFS_DELEGATION, RM_DELEGATION)
_INVALID_TOKEN = "InvalidToken"  # noqa: S105
_GSSAPI_REFUSED = "GSS initiate failed"  # Java's words for whatever is wrong


class User(NamedTuple):
    """The caller on a cluster without authentication; ``real`` is who acts for that user."""

    name: str
    real: str = ""


class KerberosLogin(Protocol):
    """A login to Kerberos (``kerberos.login.Login``)."""

    def authenticate(self, principal: str) -> Context:
        """A context for a server that has to be this principal; raises :class:`HadoopError`."""


class ProxyUser(NamedTuple):
    """A user for whom the owner of a login acts, where the server allows it."""

    name: str
    login: KerberosLogin


Identity = Union[User, Token, KerberosLogin, ProxyUser]
"""Who calls: a name that is believed, the holder of a token or of a Kerberos ticket, or a user for
whom that holder acts."""


class Authenticated(NamedTuple):
    """The SASL handshake is complete: both sides are authenticated."""

    qop: str  # of the protection agreed upon


class CallResult(NamedTuple):
    """The encoded result of a call."""

    call_id: int
    body: bytes


class CallFailed(NamedTuple):
    """A call ended with an exception; ``fatal``: the connection ends, for all calls."""

    call_id: int
    remote_class: str
    message: str
    fatal: bool


Event = Union[Authenticated, CallResult, CallFailed]


class Wire:
    """The client's state of a connection to a server of Hadoop."""

    def __init__(
        self,
        protocol: str,
        client_id: bytes,
        identity: Identity,
        *,
        principal: str = "",
        allowed: Sequence[str] = STRENGTH,
        nonce: Callable[[], bytes] = new_nonce,
    ) -> None:
        self.protocol = protocol
        self._nonce = nonce
        self._client_id = client_id
        self._identity = identity
        self._principal = principal  # that the server has to be, with Kerberos
        self._allowed = allowed
        self._announced = ""  # the principal that the server says it is
        self._sasl: Optional[Mechanism] = None
        self._out = bytearray()
        self._waiting: List[bytes] = []  # packets of calls made before the handshake was over
        self._stream = bytearray()  # bytes as they came
        self._unwrapped = bytearray()  # and those out of WRAP packets
        self.ready = False
        self.broken = False
        self._out += _HELLO
        if isinstance(identity, User):
            self._out += _NO_SASL
            self._establish()
        else:
            self._out += _SASL
            self._send_sasl(RpcSasl(state=_NEGOTIATE))

    def call(self, call_id: int, method: str, request: Message, *, retry: int = 0) -> None:
        """Send a request, or queue it until the handshake is complete."""
        header = self._header(call_id, self._client_id, retry)
        what = RequestHeader(
            method_name=method,
            declaring_class_protocol_name=self.protocol,
            client_protocol_version=1,
        )
        self._send(_packet(header, what, request))

    @property
    def _protected(self) -> bool:
        return self.ready and self._sasl is not None and self._sasl.protects

    def ping(self) -> None:
        """Send a ping, which has no response."""
        self._send(_packet(self._header(_CALL_PING, self._client_id, -1)))

    def outgoing(self) -> bytes:
        """Take the bytes to be sent now."""
        data = bytes(self._out)
        del self._out[:]
        return data

    def receive(self, data: bytes) -> List[Event]:
        """Take received bytes; returns the events that they complete.

        Raises :class:`ProtocolError` or :class:`AuthenticationError`; the connection is of no
        use after that.
        """
        if self.broken:
            raise ProtocolError("more bytes after the connection broke")
        events: List[Event] = []
        self._stream += data
        try:
            while True:
                packet = _next(self._stream, LONGEST if self.ready else LONGEST_UNPROVEN)
                if packet is None:
                    break
                self._packet(packet, events, bare=True)
        except DecodeError as error:
            self.broken = True
            raise ProtocolError(f"what the server sent is no answer of Hadoop's: {error}") from None
        except HadoopError:
            self.broken = True
            raise
        return events

    # ---------------------------------------------------------------- what came

    def _packet(self, packet: bytes, events: List[Event], *, bare: bool) -> None:
        head, at = read_delimited(packet, 0)
        header = RpcResponseHeader.decode(head)
        call_id = header.call_id - _UNSIGNED if header.call_id >> 31 else header.call_id
        wraps = call_id == _CALL_SASL and header.status == _OK
        if bare and self._protected and not wraps:
            raise AuthenticationError("an answer without the protection that was agreed upon")
        if not bare and call_id == _CALL_SASL:
            raise ProtocolError("a handshake inside a protected packet")
        if not self.ready:
            self._refuse_unproven(call_id, header)
        if header.status in (_ERROR, _FATAL):
            fatal = header.status == _FATAL or call_id < 0
            self.broken = self.broken or fatal
            events.append(
                CallFailed(call_id, header.exception_class_name, header.error_msg, fatal=fatal)
            )
        elif header.status != _OK:
            raise ProtocolError(f"an answer with the unknown status {header.status}")
        elif call_id == _CALL_SASL:
            self._sasl_packet(RpcSasl.decode(read_delimited(packet, at)[0]), events)
        elif call_id < 0:
            raise ProtocolError(f"an answer to the control call {call_id}")
        else:
            body = read_delimited(packet, at)[0] if at < len(packet) else b""
            events.append(CallResult(call_id, body))

    def _refuse_unproven(self, call_id: int, header: RpcResponseHeader) -> None:
        """Refuse all but the handshake's messages from a server that is not authenticated."""
        if header.status == _OK and call_id == _CALL_SASL:
            return
        if header.status != _FATAL and call_id != _CALL_SASL:
            raise AuthenticationError("the server answered before it has proved who it is")
        name = header.exception_class_name
        words = strip_class(name, header.error_msg) or "no reason given"
        kind = short_class_name(name)
        identity, principal = self._identity, self._principal
        if isinstance(identity, Token) and identity.kind in _OF_USERS and kind == _INVALID_TOKEN:
            raise CredentialRefused(
                f"the server does not know the {identity.kind} for {identity.service} ({words}): it"
                " was cancelled, or has expired. Obtain new tokens in the file that"
                f" {LOCATION} names, or unset that variable and use a ticket (kinit)"
            )
        if words == _GSSAPI_REFUSED and principal:
            if self._announced and self._announced != principal.rpartition("@")[0]:
                raise CredentialRefused(
                    f"the server takes no ticket for {principal}; it says that it is"
                    f" {self._announced}"
                )
            words += f"; {principal} has another key than the KDC, or its clock differs"
        raise AuthenticationError(
            f"the server refused before it has proved who it is: {words} ({kind})"
        )

    def _sasl_packet(self, message: RpcSasl, events: List[Event]) -> None:
        sasl = self._sasl
        if message.state == _WRAP:
            if sasl is None or not self._protected:
                raise ProtocolError("a protected packet where no protection was agreed upon")
            self._unwrapped += sasl.unwrap(message.token)
            while True:
                packet = _next(self._unwrapped, LONGEST)
                if packet is None:
                    break
                self._packet(packet, events, bare=False)
        elif self.ready:
            raise ProtocolError("a handshake after the handshake")
        elif message.state == _NEGOTIATE and sasl is None:
            self._answer_challenge(message.auths, self._identity)
        elif message.state == _CHALLENGE and sasl is not None and not sasl.proven:
            self._send_sasl(RpcSasl(state=_RESPONSE, token=sasl.advance(message.token)))
        elif message.state == _SUCCESS and sasl is not None:
            # The proof came with this, or with a challenge before; never not at all.
            sasl.finish(message.token if message.has("token") else None)
            self._establish()
            events.append(Authenticated(sasl.qop))
        else:
            raise ProtocolError(f"the state {message.state} does not belong here in a handshake")

    def _answer_challenge(self, auths: Sequence[SaslAuth], identity: Identity) -> None:
        by_token = isinstance(identity, Token)
        method, mechanism = ("TOKEN", "DIGEST-MD5") if by_token else ("KERBEROS", "GSSAPI")
        for auth in auths:
            if auth.method == method and auth.mechanism == mechanism:
                break
        else:
            offered = ", ".join(f"{a.method} {a.mechanism}".strip() for a in auths) or "nothing"
            wanted = "tokens by DIGEST-MD5" if by_token else "Kerberos tickets"
            raise AuthenticationError(f"the server takes no {wanted}; it offers {offered}")
        if isinstance(identity, Token):
            service = f"{auth.protocol}/{auth.server_id}"
            # A token's identifier and password are any bytes; the mechanism wants text.
            user = base64.b64encode(identity.identifier)
            password = base64.b64encode(identity.password)
            self._sasl = DigestMd5(
                user, password, service, allowed=self._allowed, nonce=self._nonce
            )
        else:
            assert not isinstance(identity, User)
            login = identity.login if isinstance(identity, ProxyUser) else identity
            self._announced = f"{auth.protocol}/{auth.server_id}"
            self._sasl = Gssapi(login.authenticate(self._principal), self._allowed)
        answer = self._sasl.respond(auth.challenge)
        chosen = auth.replace(challenge=None)
        self._send_sasl(RpcSasl(state=_INITIATE, token=answer, auths=[chosen]))

    # ---------------------------------------------------------------- what goes

    def _establish(self) -> None:
        identity = self._identity
        context = IpcConnectionContext(protocol=self.protocol)
        if isinstance(identity, User):
            info = UserInformation(effective_user=identity.name)
            if identity.real:
                info = info.replace(real_user=identity.real)
            context = context.replace(user_info=info)
        elif isinstance(identity, ProxyUser):
            # The real user is the one that the handshake has proved.
            context = context.replace(user_info=UserInformation(effective_user=identity.name))
        self.ready = True
        waiting, self._waiting = self._waiting, []
        self._send(_packet(self._header(_CALL_CONTEXT, self._client_id, -1), context))
        for packet in waiting:
            self._send(packet)

    def _send(self, packet: bytes) -> None:
        if self.broken:
            raise ProtocolError("the connection is broken")
        if not self.ready:
            self._waiting.append(packet)
        elif self._sasl is not None and self._protected:
            longest = self._sasl.longest or len(packet)
            for at in range(0, len(packet), longest):
                piece = packet[at : at + longest]
                self._send_sasl(RpcSasl(state=_WRAP, token=self._sasl.wrap(piece)))
        else:
            self._out += packet

    def _send_sasl(self, message: RpcSasl) -> None:
        self._out += _packet(self._header(_CALL_SASL, b"", -1), message)

    @staticmethod
    def _header(call_id: int, client_id: bytes, retry: int) -> RpcRequestHeader:
        return RpcRequestHeader(
            rpc_kind=_PROTOCOL_BUFFERS,
            rpc_op=0,
            call_id=call_id,
            client_id=client_id,
            retry_count=retry,
        )


def _packet(header: RpcRequestHeader, *messages: Message) -> bytes:
    body = b"".join(message.delimited() for message in (header, *messages))
    return len(body).to_bytes(4, "big") + body


_GSSAPI_REFUSED = "GSS initiate failed"  # Java's words for whatever is wrong


def _next(stream: bytearray, longest: int) -> Optional[bytes]:
    """Take the first packet of a stream, if it is complete."""
    if len(stream) < 4:
        return None
    size = int.from_bytes(stream[:4], "big")
    if stream[:4] == _WEB:
        raise ProtocolError("a web server answered: this is not the port for RPC")
    if size > longest:
        raise ProtocolError(f"a packet of {size} bytes: this is no server of Hadoop's RPC")
    if len(stream) - 4 < size:
        return None
    packet = bytes(stream[4 : 4 + size])
    del stream[: 4 + size]
    return packet
