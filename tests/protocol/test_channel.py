"""The conversation without a socket: borders, tampering, strangers, limits."""

from __future__ import annotations

import itertools
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.protocol.channel import (
    HEADER_SIZE,
    HELLO_SIZE,
    MAX_PAYLOAD,
    PROOF_SIZE,
    Channel,
)
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import Heartbeat, Message, Noted, Ping

SECRET = b"a secret of this job"


def pair() -> Tuple[Channel, Channel]:
    return Channel(SECRET, dialler=True), Channel(SECRET, dialler=False)


def shake(one: Channel, other: Channel) -> None:
    for _ in range(2):
        first, second = one.outgoing(), other.outgoing()
        other.receive(first)
        one.receive(second)
    assert one.established and other.established


def chunks(data: bytes, borders: List[int]) -> List[bytes]:
    cuts = [0, *sorted(border % (len(data) + 1) for border in borders), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(cuts)]


def frames(*messages: Message) -> Tuple[Channel, List[bytes]]:
    """An established receiver, and a frame per message that was sent to it."""
    one, other = pair()
    shake(one, other)
    made = []
    for message in messages:
        one.send(message)
        made.append(one.outgoing())
    return other, made


@given(st.lists(st.integers(0, 10_000), max_size=12), st.lists(st.text(max_size=50), max_size=5))
def test_borders_of_chunks_mean_nothing(borders: List[int], texts: List[str]) -> None:
    one, other = pair()
    hello = other.outgoing()
    sent = [Noted("info", text) for text in texts]
    for message in sent:
        one.send(message)
    stream = one.outgoing()
    one.receive(hello)
    stream += one.outgoing()
    # The listener's proof depends on the dialler's hello only.
    twin = stream[:HELLO_SIZE]
    got: List[Message] = []
    for chunk in chunks(twin, borders):
        got += other.receive(chunk)
    one.receive(other.outgoing())
    stream += one.outgoing()
    for chunk in chunks(stream[HELLO_SIZE:], borders):
        got += other.receive(chunk)
    assert other.established
    assert got == sent


def test_what_is_sent_early_arrives_after_the_handshake() -> None:
    one, other = pair()
    one.send(Heartbeat(7))
    assert len(one.outgoing()) == HELLO_SIZE
    one.receive(other.outgoing())
    one, other = pair()
    one.send(Heartbeat(7))
    first, second = one.outgoing(), other.outgoing()
    other.receive(first)
    one.receive(second + other.outgoing())
    assert other.receive(one.outgoing()) == [Heartbeat(7)]


def test_both_ways() -> None:
    one, other = pair()
    shake(one, other)
    for number in range(50):
        one.send(Heartbeat(number))
        other.send(Ping())
        assert other.receive(one.outgoing()) == [Heartbeat(number)]
        assert one.receive(other.outgoing()) == [Ping()]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_of_a_frame_ends_it(place: int, change: int) -> None:
    receiver, (frame, following) = frames(Noted("info", "the quick brown fox"), Heartbeat(1))
    changed = bytearray(frame)
    changed[place % len(frame)] ^= change
    try:
        # A longer length only waits for more, which then does not fit.
        got = receiver.receive(bytes(changed) + following * 3)
    except ProtocolError:
        return
    assert got == []
    assert len(frame) < int.from_bytes(changed[:4], "big") <= MAX_PAYLOAD


@given(st.integers(0, HELLO_SIZE + PROOF_SIZE - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_handshake_ends_it(place: int, change: int) -> None:
    one, other = pair()
    hello = one.outgoing()
    one.receive(other.outgoing())
    stream = bytearray(hello + one.outgoing())
    stream[place] ^= change
    with pytest.raises(ProtocolError):
        other.receive(bytes(stream))
    assert not other.established


def test_a_repeated_frame_ends_it() -> None:
    receiver, (frame,) = frames(Heartbeat(1))
    assert receiver.receive(frame) == [Heartbeat(1)]
    with pytest.raises(ProtocolError, match="repeated"):
        receiver.receive(frame)


def test_a_lost_frame_ends_it() -> None:
    receiver, (_, second) = frames(Heartbeat(1), Heartbeat(2))
    with pytest.raises(ProtocolError, match="lost"):
        receiver.receive(second)


def test_frames_in_another_order_end_it() -> None:
    receiver, (first, second) = frames(Heartbeat(1), Heartbeat(2))
    with pytest.raises(ProtocolError):
        receiver.receive(second + first)


def test_a_frame_sent_back_to_its_sender_ends_it() -> None:
    one, other = pair()
    shake(one, other)
    one.send(Heartbeat(1))
    with pytest.raises(ProtocolError):
        one.receive(one.outgoing())


def test_a_frame_of_another_conversation_ends_it() -> None:
    _, (frame,) = frames(Heartbeat(1))
    receiver, _ = frames()
    with pytest.raises(ProtocolError):
        receiver.receive(frame)


def test_a_recorded_conversation_cannot_be_played_again() -> None:
    one, other = pair()
    recorded = one.outgoing()
    one.receive(other.outgoing())
    recorded += one.outgoing()
    again = Channel(SECRET, dialler=False)
    with pytest.raises(ProtocolError, match="secret"):
        again.receive(recorded)


@pytest.mark.parametrize("dialler", [True, False])
def test_an_echo_is_no_peer(dialler: bool) -> None:
    channel = Channel(SECRET, dialler=dialler)
    with pytest.raises(ProtocolError, match="our own hello"):
        channel.receive(channel.outgoing())


def test_two_diallers_are_no_pair() -> None:
    one, other = Channel(SECRET, dialler=True), Channel(SECRET, dialler=True)
    other.receive(one.outgoing())
    with pytest.raises(ProtocolError, match="secret"):
        one.receive(other.outgoing())


@pytest.mark.parametrize("secret", [b"another", SECRET + b"\0", SECRET[:-1]])
def test_a_wrong_secret_is_found_out_by_both(secret: bytes) -> None:
    one, other = Channel(SECRET, dialler=True), Channel(secret, dialler=False)
    first, second = one.outgoing(), other.outgoing()
    one.receive(second)
    other.receive(first)
    for channel, data in ((one, other.outgoing()), (other, one.outgoing())):
        with pytest.raises(ProtocolError, match="does not know this job's secret"):
            channel.receive(data)
        assert not channel.established


def test_another_version_is_named_before_anything_else() -> None:
    one = Channel(SECRET, dialler=True, version=2)
    other = Channel(SECRET, dialler=False, version=1)
    with pytest.raises(ProtocolError, match="speaks version 2 of the protocol, we speak 1"):
        other.receive(one.outgoing()[:6])


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"TonZ", b"Tonx"])
def test_another_protocol_is_seen_at_its_first_bytes(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak TonY"):
        Channel(SECRET, dialler=False).receive(data)


def test_before_the_proof_nothing_is_kept_or_read() -> None:
    one, other = pair()
    one.receive(other.outgoing())
    with pytest.raises(ProtocolError, match="secret"):
        other.receive(one.outgoing()[:HELLO_SIZE] + b"x" * 10_000_000)
    assert len(other._incoming) == 0


def test_a_frame_too_long_is_refused_by_its_length_alone() -> None:
    receiver, _ = frames()
    with pytest.raises(ProtocolError, match=r"is the most"):
        receiver.receive((MAX_PAYLOAD + 1).to_bytes(4, "big"))


def test_a_message_too_long_is_not_sent() -> None:
    one, _ = pair()
    with pytest.raises(ProtocolError, match="can be sent") as caught:
        one.send(Noted("info", "x" * MAX_PAYLOAD))
    assert caught.value.fault == "local"


def test_good_messages_before_bad_bytes_are_not_lost() -> None:
    receiver, (first, second) = frames(Heartbeat(1), Heartbeat(2))
    broken = second[:-1] + bytes([second[-1] ^ 1])
    assert receiver.receive(first + broken) == [Heartbeat(1)]
    assert receiver.failure is not None
    with pytest.raises(ProtocolError):
        receiver.receive(b"")


def test_after_a_failure_nothing_is_read_any_more() -> None:
    receiver, (first, second) = frames(Heartbeat(1), Heartbeat(2))
    with pytest.raises(ProtocolError):
        receiver.receive(second)
    with pytest.raises(ProtocolError):
        receiver.receive(first)


def test_a_long_message_in_small_pieces_arrives() -> None:
    text = "y" * 300_000
    receiver, (frame,) = frames(Noted("info", text))
    got: List[Message] = []
    for start in range(0, len(frame), 1000):
        got += receiver.receive(frame[start : start + 1000])
    assert got == [Noted("info", text)]
    assert len(frame) < 300_000 + HEADER_SIZE + 100


def test_the_secret_is_never_on_the_wire() -> None:
    one, other = pair()
    wire = b""
    one.send(Heartbeat(1))
    for _ in range(3):
        first, second = one.outgoing(), other.outgoing()
        wire += first + second
        other.receive(first)
        one.receive(second)
    assert SECRET not in wire


def test_no_secret_is_our_own_fault() -> None:
    with pytest.raises(ProtocolError, match="no secret"):
        Channel(b"", dialler=True)
