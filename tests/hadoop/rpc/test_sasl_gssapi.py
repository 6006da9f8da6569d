"""SASL's GSSAPI, and the wire with it: order, proof, protection. The context is a script."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Tuple

import pytest

from tests.hadoop.rpc.test_unproven_server import answers, header, packet, refuses, sasl_answer
from tony_core.hadoop.errors import (
    AuthenticationError,
    CredentialRefused,
    HadoopError,
    LoginError,
    ProtectionRefused,
    Remedy,
)
from tony_core.hadoop.rpc.messages import (
    IpcConnectionContext,
    RpcRequestHeader,
    RpcSasl,
    SaslAuth,
)
from tony_core.hadoop.rpc.protobuf import read_delimited
from tony_core.hadoop.rpc.sasl_gssapi import Gssapi
from tony_core.hadoop.rpc.wire import Authenticated, CallResult, Event, ProxyUser, Wire
from tony_core.hadoop.yarn.messages.client_calls import GetNewApplicationRequest

PRINCIPAL = "rm/localhost@EXAMPLE"
SUCCESS, NEGOTIATE, INITIATE, CHALLENGE, RESPONSE, WRAP = range(6)
ALL = 7  # the layers none, integrity and privacy


class Context:
    """``steps`` tokens are exchanged; a message is wrapped as ``<...>``, encrypted as ``{...}``."""

    def __init__(self, steps: int = 2, mutual: bool = True) -> None:
        self._left = steps
        self._mutual = mutual
        self.taken: List[bytes] = []
        self.overhead = 16

    @property
    def complete(self) -> bool:
        return not self._left

    @property
    def is_mutual(self) -> bool:
        return self.complete and self._mutual

    def step(self, token: bytes = b"") -> bytes:
        assert self._left, "a step after the last"
        if token == b"forged":
            raise AuthenticationError("the server has not proved that it is rm")
        self.taken.append(token)
        self._left -= 1
        return b"" if self.complete else b"ours%d" % self._left

    def wrap(self, data: bytes, confidential: bool) -> bytes:
        return b"{" + data[::-1] + b"}" if confidential else b"<" + data + b">"

    def unwrap(self, token: bytes) -> Tuple[bytes, bool]:
        if token[:1] + token[-1:] == b"<>":
            return token[1:-1], False
        if token[:1] + token[-1:] == b"{}":
            return token[-2:0:-1], True
        raise AuthenticationError("a message was altered on its way")

    def size_limit(self, confidential: bool, longest: int) -> int:
        return max(0, longest - self.overhead)


class Login:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.asked = ""

    def authenticate(self, principal: str) -> Context:
        self.asked = principal
        return self.context


def offer(layers: int = ALL, longest: int = 1 << 16) -> bytes:
    return b"<" + bytes((layers,)) + longest.to_bytes(3, "big") + b">"


def made(context: Context, allowed: Sequence[str] = ("auth-conf", "auth-int", "auth")) -> Gssapi:
    """A mechanism whose context is complete."""
    found = Gssapi(context, allowed)
    found.respond(b"")
    found.advance(b"theirs")
    return found


class TestTheMechanism:
    def test_the_order_of_it(self) -> None:
        context = Context()
        sasl = Gssapi(context)
        assert sasl.respond(b"") == b"ours1"
        assert sasl.advance(b"theirs") == b""  # an empty answer, which must be sent
        assert not sasl.proven
        assert sasl.advance(offer()) == b"<\x04\xff\xff\xff>"
        assert (sasl.proven, sasl.qop, sasl.protects) == (True, "auth-conf", True)
        assert context.taken == [b"", b"theirs"]
        sasl.finish(None)

    @pytest.mark.parametrize(
        ("layers", "allowed", "qop"),
        [
            (1, ("auth-conf", "auth-int", "auth"), "auth"),
            (3, ("auth-conf", "auth-int", "auth"), "auth-int"),
            (7, ("auth-int",), "auth-int"),
            (7, ("auth",), "auth"),
        ],
    )
    def test_the_strongest_that_both_allow(
        self, layers: int, allowed: Sequence[str], qop: str
    ) -> None:
        sasl = made(Context(), allowed)
        answer = sasl.advance(offer(layers))
        assert sasl.qop == qop
        if qop == "auth":
            assert answer == b"<\x01\0\0\0>"
            assert not sasl.protects

    @pytest.mark.parametrize("layers", [0, 1, 2, 3, 8])
    def test_a_weaker_one_than_the_site_wants(self, layers: int) -> None:
        sasl = made(Context(), ("auth-conf",))
        with pytest.raises(ProtectionRefused, match=r"hadoop\.rpc\.protection differs"):
            sasl.advance(offer(layers))
        assert not sasl.proven
        assert ProtectionRefused.remedy is Remedy.NONE, "what was signed is so the next time, too"

    def test_no_mutual_proof(self) -> None:
        sasl = made(Context(mutual=False))
        with pytest.raises(AuthenticationError, match="has not proved who it is"):
            sasl.advance(offer())
        assert not sasl.proven

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_success_too_early(self, steps: int) -> None:
        sasl = Gssapi(Context())
        for number in range(steps):
            sasl.respond(b"") if not number else sasl.advance(b"theirs")
        for last in (None, b"", b"theirs", offer()):
            with pytest.raises(AuthenticationError, match="before its proof"):
                sasl.finish(last)

    @pytest.mark.parametrize(
        "token", [b"", b"theirs", b"\x07\0\0\0", b"<\x07\0\0>", b"<\x07\0\0\0\0>", b"<>"]
    )
    def test_an_offer_that_is_none(self, token: bytes) -> None:
        sasl = made(Context())
        with pytest.raises(AuthenticationError):
            sasl.advance(token)
        assert not sasl.proven

    def test_a_server_that_takes_no_message(self) -> None:
        sasl = made(Context())
        with pytest.raises(AuthenticationError, match="takes messages of 16 bytes only"):
            sasl.advance(offer(longest=16))
        assert not sasl.proven

    def test_a_message_that_is_only_signed_where_privacy_was_agreed(self) -> None:
        sasl = made(Context())
        sasl.advance(offer())
        assert sasl.unwrap(b"{olleh}") == b"hello"
        with pytest.raises(AuthenticationError, match="not encrypted"):
            sasl.unwrap(b"<hello>")

    def test_a_message_that_was_altered(self) -> None:
        sasl = made(Context())
        sasl.advance(offer())
        with pytest.raises(AuthenticationError, match="altered"):
            sasl.unwrap(b"{olleh>")


# ------------------------------------------------------------------ on the wire


def kerberos_offer(
    method: str = "KERBEROS", mechanism: str = "GSSAPI", server_id: str = "evil"
) -> bytes:
    auth = SaslAuth(method=method, mechanism=mechanism, protocol="rm", server_id=server_id)
    token = SaslAuth(method="TOKEN", mechanism="DIGEST-MD5", server_id="default")
    return sasl_answer(NEGOTIATE, auths=[token, auth])


def wire(context: Optional[Context] = None, **more: Any) -> Wire:
    return Wire("proto", b"c" * 16, Login(context or Context()), principal=PRINCIPAL, **more)


HANDSHAKE = (
    kerberos_offer(),
    sasl_answer(CHALLENGE, b"theirs"),
    sasl_answer(CHALLENGE, offer(1)),
    sasl_answer(SUCCESS),
)


def packets(stream: bytes) -> Iterable[bytes]:
    while stream:
        end = 4 + int.from_bytes(stream[:4], "big")
        yield stream[4:end]
        stream = stream[end:]


def sent(stream: bytes) -> List[RpcSasl]:
    """The messages of the handshake that a client sends."""
    found = []
    for each in packets(stream):
        head, at = read_delimited(each, 0)
        if RpcRequestHeader.decode(head).call_id in (-33, (-33) & 0xFFFFFFFF):
            found.append(RpcSasl.decode(read_delimited(each, at)[0]))
    return found


def test_the_handshake() -> None:
    login = Login(Context())
    made = Wire("proto", b"c" * 16, login, principal=PRINCIPAL)
    made.call(0, "getNewApplication", GetNewApplicationRequest())
    events: List[Event] = []
    states: List[Tuple[int, bytes]] = []
    made.outgoing()
    for data in HANDSHAKE:
        assert not made.ready
        events += made.receive(data)
        states += [(one.state, one.token) for one in sent(made.outgoing())]
    assert events == [Authenticated("auth")]
    assert states == [(INITIATE, b"ours1"), (RESPONSE, b""), (RESPONSE, b"<\x01\0\0\0>")]
    assert login.asked == PRINCIPAL  # whatever the server says that it is


def test_a_proxy_user_is_named_after_the_proof_and_not_before() -> None:
    made = Wire("proto", b"c" * 16, ProxyUser("ann", Login(Context())), principal=PRINCIPAL)
    before = [made.outgoing()]
    for data in HANDSHAKE[:-1]:
        made.receive(data)
        before.append(made.outgoing())
    assert b"ann" not in b"".join(before)
    made.receive(HANDSHAKE[-1])
    (packet,) = packets(made.outgoing())
    head, at = read_delimited(packet, 0)
    assert RpcRequestHeader.decode(head).call_id in (-3, (-3) & 0xFFFFFFFF)
    info = IpcConnectionContext.decode(read_delimited(packet, at)[0]).user_info
    assert (info.effective_user, info.has("real_user")) == ("ann", False)


LIES = {
    "an answer instead of an offer": answers(GetNewApplicationRequest()),
    "success at once": sasl_answer(SUCCESS),
    "success after the offer": kerberos_offer() + sasl_answer(SUCCESS),
    "success with a token": kerberos_offer() + sasl_answer(SUCCESS, b"theirs"),
    "success after one challenge": kerberos_offer()
    + sasl_answer(CHALLENGE, b"theirs")
    + sasl_answer(SUCCESS),
    "success with the offer of protections": kerberos_offer()
    + sasl_answer(CHALLENGE, b"theirs")
    + sasl_answer(SUCCESS, offer()),
    "a forged token": kerberos_offer() + sasl_answer(CHALLENGE, b"forged"),
    "a forged offer of protections": kerberos_offer()
    + sasl_answer(CHALLENGE, b"theirs")
    + sasl_answer(CHALLENGE, b"\x01\0\0\0"),
    "an answer before success": b"".join(HANDSHAKE[:3]) + answers(GetNewApplicationRequest()),
    "a challenge too many": b"".join(HANDSHAKE[:3]) + sasl_answer(CHALLENGE, b"theirs"),
    "tokens only": sasl_answer(NEGOTIATE, auths=[SaslAuth(method="TOKEN", mechanism="DIGEST-MD5")]),
    "no authentication": sasl_answer(NEGOTIATE, auths=[SaslAuth(method="SIMPLE")]),
    "kerberos by another mechanism": kerberos_offer(mechanism="PLAIN"),
    "a refusal of a call": refuses(0, "org.example.Gone", fatal=False),
    "a protected answer": kerberos_offer() + sasl_answer(WRAP, b"<x>"),
    "a second offer": kerberos_offer() + kerberos_offer(),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_server_without_proof_is_not_believed(lie: bytes) -> None:
    made = wire()
    with pytest.raises(HadoopError) as caught:
        assert made.receive(lie) == []
    assert not isinstance(caught.value, LoginError)
    assert made.broken and not made.ready
    assert not any(b"getNewApplication" in each for each in packets(made.outgoing()[7:]))


def test_no_mutual_proof_on_the_wire() -> None:
    made = wire(Context(mutual=False))
    with pytest.raises(AuthenticationError, match="has not proved who it is"):
        made.receive(b"".join(HANDSHAKE))
    assert not made.ready


def test_a_refusal_of_java_is_explained() -> None:
    error = "javax.security.sasl.SaslException"
    text = f"{error}: GSS initiate failed"
    lie = packet(
        header(-33, status=2, exception_class_name=error, error_msg=text),
    )
    with pytest.raises(AuthenticationError, match=f"{PRINCIPAL} has another key than the KDC"):
        wire().receive(kerberos_offer(server_id="localhost") + lie)


def test_a_server_that_is_another_than_configured() -> None:
    error = "javax.security.sasl.SaslException"
    text = f"{error}: GSS initiate failed"
    lie = packet(header(-33, status=2, exception_class_name=error, error_msg=text))
    with pytest.raises(CredentialRefused) as caught:
        wire().receive(kerberos_offer(server_id="h2") + lie)
    assert str(caught.value) == (
        f"the server takes no ticket for {PRINCIPAL}; it says that it is rm/h2"
    )


@pytest.mark.parametrize("layers", [2, 4])
def test_messages_are_cut_as_the_server_takes_them(layers: int) -> None:
    """No wrapped message is longer; put together they are the calls."""
    context = Context()
    made = wire(context)
    made.call(0, "x" * 200, GetNewApplicationRequest())
    made.outgoing()
    data = [*HANDSHAKE[:2], sasl_answer(CHALLENGE, offer(layers, longest=64)), HANDSHAKE[3]]
    made.receive(b"".join(data))
    wrapped = [one.token for one in sent(made.outgoing()) if one.state == WRAP]
    assert len(wrapped) > 4
    whole = b"".join(context.unwrap(one)[0] for one in wrapped)
    assert all(len(context.unwrap(one)[0]) <= 64 - context.overhead for one in wrapped)
    assert len(list(packets(whole))) == 2  # the context and the call
    assert b"x" * 200 in whole


def test_protected_answers() -> None:
    context = Context()
    made = wire(context)
    made.call(0, "getNewApplication", GetNewApplicationRequest())
    made.receive(b"".join([*HANDSHAKE[:2], sasl_answer(CHALLENGE, offer()), HANDSHAKE[3]]))
    inner = packet(header(0), tail=b"\0")
    first, second = context.wrap(inner[:7], True), context.wrap(inner[7:], True)
    assert made.receive(sasl_answer(WRAP, first)) == []
    assert made.receive(sasl_answer(WRAP, second)) == [CallResult(0, b"")]
    with pytest.raises(AuthenticationError, match="not encrypted"):
        made.receive(sasl_answer(WRAP, context.wrap(inner, False)))


def test_a_bare_answer_after_protection_was_agreed() -> None:
    made = wire()
    made.call(0, "getNewApplication", GetNewApplicationRequest())
    made.receive(b"".join([*HANDSHAKE[:2], sasl_answer(CHALLENGE, offer()), HANDSHAKE[3]]))
    with pytest.raises(AuthenticationError, match="without the protection"):
        made.receive(packet(header(0), tail=b"\0"))
