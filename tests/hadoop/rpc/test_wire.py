"""The wire against recordings of a real cluster, whole, in pieces, and damaged."""

from __future__ import annotations

import itertools
from typing import Any, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations, pieces
from tests.hadoop.recorded import NAMES, Recording, described, load
from tony_core.hadoop.errors import (
    AuthenticationError,
    HadoopError,
    ProtocolError,
    short_class_name,
    strip_class,
)
from tony_core.hadoop.rpc.messages import (
    IpcConnectionContext,
    RpcRequestHeader,
    RpcResponseHeader,
    RpcSasl,
    SaslAuth,
    Token,
)
from tony_core.hadoop.rpc.protobuf import Message, read_delimited
from tony_core.hadoop.rpc.wire import Authenticated, CallFailed, CallResult, Event, User, Wire
from tony_core.hadoop.yarn.messages.client_calls import GetNewApplicationRequest

TOKENS = [name for name in NAMES if name.startswith("token_")]
PROTECTED = ["token_integrity", "token_privacy"]
TRAILER = 6  # version and number, after the MAC


def packet(*messages: Message, tail: bytes = b"") -> bytes:
    body = b"".join(message.delimited() for message in messages) + tail
    return len(body).to_bytes(4, "big") + body


def answer(call_id: int, body: bytes = b"") -> bytes:
    header = RpcResponseHeader(call_id=call_id % (1 << 32), status=0)
    return packet(header, tail=bytes([len(body)]) + body)


def token_wire() -> Wire:
    return Wire("p", b"c" * 16, Token(identifier=b"i", password=b"p", kind="k"))


def frames(came: bytes) -> List[Tuple[int, int]]:
    """Where each message begins, its size before it, and ends."""
    found: List[Tuple[int, int]] = []
    at = 0
    while at < len(came):
        end = at + 4 + int.from_bytes(came[at : at + 4], "big")
        found.append((at, end))
        at = end
    return found


def wrapped(came: bytes) -> List[Tuple[int, int]]:
    """Where each protected token begins and ends."""
    found: List[Tuple[int, int]] = []
    for start, end in frames(came):
        _, at = read_delimited(came[:end], start + 4)
        sasl = RpcSasl.decode(read_delimited(came[:end], at)[0])
        if sasl.state == 5:
            begin = came.index(sasl.token, at)
            found.append((begin, begin + len(sasl.token)))
    return found


def replay(recording: Recording, cuts: List[int]) -> List[Event]:
    """The conversation again, what came cut at other places."""
    wire = recording.wire()
    events: List[Event] = []
    calls = iter(range(len(recording.calls)))
    recording.send(wire, next(calls))
    sent = b""
    for what, data in recording.log:
        if what == "sent":
            outgoing = wire.outgoing()
            if not outgoing:  # this one was sent for the next call
                recording.send(wire, next(calls))
                outgoing = wire.outgoing()
            assert outgoing == data
            sent += outgoing
        elif what == "came":
            places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
            for start, end in itertools.pairwise(places):
                events += wire.receive(data[start:end])
    assert sent == recording.sent
    return events


def understood(recording: Recording, cuts: List[int]) -> List[Tuple[Any, ...]]:
    """The events of the conversation; a refusal of the handshake is an error of ours."""
    try:
        return described(replay(recording, cuts))
    except AuthenticationError as error:
        kind, call_id, remote_class, text, fatal = recording.events[-1]
        assert (kind, call_id, fatal) == ("CallFailed", -33, True)
        name, words = short_class_name(remote_class), strip_class(remote_class, text)
        assert str(error) == (
            f"the server refused before it has proved who it is: {words} ({name})"
        )
        return [*recording.events]


class TestRecordings:
    @pytest.mark.parametrize("name", NAMES)
    def test_we_encode_and_decode_the_same_again(self, name: str) -> None:
        recording = load(name)
        assert understood(recording, []) == list(recording.events)

    @settings(max_examples=60)
    @given(st.sampled_from(NAMES), st.lists(st.integers(0, 3000), max_size=12))
    def test_where_it_is_cut_does_not_matter(self, name: str, cuts: List[int]) -> None:
        recording = load(name)
        assert understood(recording, cuts) == list(recording.events)

    @pytest.mark.parametrize("name", NAMES)
    def test_byte_by_byte(self, name: str) -> None:
        recording = load(name)
        assert understood(recording, list(range(3000))) == list(recording.events)

    @fuzz(name=st.sampled_from(NAMES), place=st.integers(0, 10_000), by=st.integers(1, 255))
    def test_a_damaged_byte_is_an_error_or_is_seen(self, name: str, place: int, by: int) -> None:
        """No damage makes anything but an error of ours; under protection none goes unseen."""
        recording = load(name)
        data = bytearray(recording.came)
        data[place % len(data)] ^= by
        wire = recording.wire()
        events: List[Event] = []
        try:
            for index in range(len(recording.calls)):
                recording.send(wire, index)
            wire.outgoing()
            events = wire.receive(bytes(data))
        except HadoopError:
            return
        if name in PROTECTED:
            answers = [event for event in events if isinstance(event, CallResult)]
            assert all(tuple(d) in recording.events for d in described(list(answers)))

    @fuzz(
        name=st.sampled_from(NAMES),
        data=mutations(*(load(name).came for name in NAMES)),
        cuts=st.lists(st.integers(0, 3000), max_size=4),
    )
    def test_a_damaged_conversation_is_an_error_or_events(
        self, name: str, data: bytes, cuts: List[int]
    ) -> None:
        recording = load(name)
        wire = recording.wire()
        try:
            for index in range(len(recording.calls)):
                recording.send(wire, index)
            wire.outgoing()
            for piece in pieces(data, cuts):
                wire.receive(piece)
        except HadoopError:
            pass

    @pytest.mark.parametrize("name", PROTECTED)
    def test_under_protection_nothing_is_readable(self, name: str) -> None:
        recording = load(name)
        readable = b"registerApplicationMaster" in recording.sent
        assert readable == (name == "token_integrity")

    @pytest.mark.parametrize("name", PROTECTED)
    def test_no_byte_under_protection_can_be_changed(self, name: str) -> None:
        recording = load(name)
        for start, end in wrapped(recording.came):
            body = range(start, end - TRAILER)
            for place in (*body[::7], body[-1]):
                data = bytearray(recording.came)
                data[place] ^= 1
                wire = recording.wire()
                with pytest.raises(AuthenticationError, match="altered on its way"):
                    wire.receive(bytes(data))
                assert wire.broken

    @pytest.mark.parametrize("name", PROTECTED)
    def test_under_protection_nothing_can_be_replayed(self, name: str) -> None:
        recording = load(name)
        for start, end in frames(recording.came):
            if any(start < first and last <= end for first, last in wrapped(recording.came)):
                wire = recording.wire()
                wire.receive(recording.came[:end])
                with pytest.raises(AuthenticationError, match="out of its order"):
                    wire.receive(recording.came[start:end])

    @pytest.mark.parametrize("name", PROTECTED)
    def test_the_recordings_hold_something_protected(self, name: str) -> None:
        recording = load(name)
        assert len(wrapped(recording.came)) >= len(recording.calls) > 0

    def test_less_protection_than_asked_for_is_refused(self) -> None:
        recording = load("token_authentication")
        wire = recording.wire(allowed=("auth-conf",))
        with pytest.raises(AuthenticationError, match=r"hadoop\.rpc\.protection differs"):
            wire.receive(recording.came)

    def test_a_server_that_does_not_know_the_password_is_found_out(self) -> None:
        recording = load("token_authentication")
        assert isinstance(recording.identity, Token)
        other = recording.identity.replace(password=b"another")
        wire = Wire(recording.protocol, b"c" * 16, other, nonce=lambda: b"x")
        with pytest.raises(AuthenticationError, match="not who it should be"):
            wire.receive(recording.came)


class TestSimple:
    def wire(self) -> Wire:
        return Wire("proto", b"c" * 16, User("alice", real="bob"))

    def test_header_context_and_call_go_at_once(self) -> None:
        wire = self.wire()
        wire.call(5, "getNewApplication", GetNewApplicationRequest(), retry=2)
        sent = wire.outgoing()
        assert sent[:7] == b"hrpc\x09\x00\x00"
        size = int.from_bytes(sent[7:11], "big")
        head, at = read_delimited(sent[11 : 11 + size], 0)
        assert RpcRequestHeader.decode(head).call_id == -3
        context, _ = read_delimited(sent[11 : 11 + size], at)
        info = IpcConnectionContext.decode(context)
        assert info.protocol == "proto"
        assert (info.user_info.effective_user, info.user_info.real_user) == ("alice", "bob")
        head, _ = read_delimited(sent[15 + size :], 0)
        call = RpcRequestHeader.decode(head)
        assert (call.call_id, call.retry_count, call.client_id) == (5, 2, b"c" * 16)
        assert wire.outgoing() == b""

    def test_answers_come_in_any_order(self) -> None:
        wire = self.wire()
        assert wire.receive(answer(2, b"b") + answer(1, b"a")) == [
            CallResult(2, b"b"),
            CallResult(1, b"a"),
        ]

    def test_an_error_ends_its_call_only(self) -> None:
        wire = self.wire()
        header = RpcResponseHeader(
            call_id=1, status=1, exception_class_name="java.io.IOException", error_msg="no"
        )
        events = wire.receive(packet(header) + answer(2))
        assert events == [
            CallFailed(1, "java.io.IOException", "no", fatal=False),
            CallResult(2, b""),
        ]
        assert not wire.broken

    def test_a_fatal_error_ends_all(self) -> None:
        wire = self.wire()
        header = RpcResponseHeader(call_id=(1 << 32) - 1, status=2, exception_class_name="X")
        assert wire.receive(packet(header)) == [CallFailed(-1, "X", "", fatal=True)]
        assert wire.broken
        with pytest.raises(ProtocolError):
            wire.receive(b"more")
        with pytest.raises(ProtocolError):
            wire.ping()

    def test_a_ping_has_no_body(self) -> None:
        wire = self.wire()
        wire.outgoing()
        wire.ping()
        sent = wire.outgoing()
        head, at = read_delimited(sent[4:], 0)
        header = RpcRequestHeader.decode(head)
        assert (header.call_id, header.retry_count, at) == (-4, -1, len(sent) - 4)

    def test_a_web_server_is_recognised(self) -> None:
        with pytest.raises(ProtocolError, match="not the port for RPC"):
            self.wire().receive(b"HTTP/1.1 404 Not Found\r\n")

    def test_a_size_that_cannot_be_is_refused_before_it_came(self) -> None:
        with pytest.raises(ProtocolError, match="2155905152 bytes"):
            self.wire().receive(b"\x80\x80\x80\x80")

    @fuzz(data=st.binary(max_size=300) | mutations(answer(0, b"x" * 20), answer(-33), answer(-1)))
    def test_anything_is_events_or_an_error_of_ours(self, data: bytes) -> None:
        try:
            self.wire().receive(data)
        except HadoopError:
            pass

    def test_sasl_is_refused_where_it_was_not_requested(self) -> None:
        header = RpcResponseHeader(call_id=(1 << 32) - 33, status=0)
        with pytest.raises(ProtocolError, match="handshake after the handshake"):
            self.wire().receive(packet(header, RpcSasl(state=1)))


class TestHandshake:
    header = RpcResponseHeader(call_id=(1 << 32) - 33, status=0)

    def test_calls_wait_for_its_end(self) -> None:
        wire = token_wire()
        wire.call(0, "m", GetNewApplicationRequest())
        sent = wire.outgoing()
        head, at = read_delimited(sent[11:], 0)
        assert RpcRequestHeader.decode(head).call_id == -33
        assert RpcSasl.decode(read_delimited(sent[11:], at)[0]).state == 1
        assert wire.outgoing() == b""

    def test_a_server_without_tokens(self) -> None:
        auths = [SaslAuth(method="SIMPLE", mechanism=""), SaslAuth(method="KERBEROS")]
        with pytest.raises(AuthenticationError, match="it offers SIMPLE, KERBEROS"):
            token_wire().receive(packet(self.header, RpcSasl(state=1, auths=auths)))

    @pytest.mark.parametrize("state", [0, 2, 3, 4, 9])
    def test_states_out_of_order(self, state: int) -> None:
        with pytest.raises(ProtocolError, match=f"state {state} does not belong"):
            token_wire().receive(packet(self.header, RpcSasl(state=state)))

    def test_protection_that_was_not_agreed_upon(self) -> None:
        with pytest.raises(ProtocolError, match="no protection"):
            token_wire().receive(packet(self.header, RpcSasl(state=5, token=b"x" * 20)))

    @pytest.mark.parametrize("name", PROTECTED)
    def test_an_answer_without_the_protection_is_refused(self, name: str) -> None:
        recording = load(name)
        wire = recording.wire()
        handshake = [data for what, data in recording.log if what == "came"][:2]
        assert isinstance(wire.receive(b"".join(handshake))[0], Authenticated)
        with pytest.raises(AuthenticationError, match="without the protection"):
            wire.receive(answer(0))

    def test_success_without_proof_is_refused(self) -> None:
        challenge = b'realm="default",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess'
        auth = SaslAuth(
            method="TOKEN", mechanism="DIGEST-MD5", server_id="default", challenge=challenge
        )
        wire = token_wire()
        wire.receive(packet(self.header, RpcSasl(state=1, auths=[auth])))
        with pytest.raises(AuthenticationError):
            wire.receive(packet(self.header, RpcSasl(state=0)))
