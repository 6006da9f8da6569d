"""The conversation without a socket: borders, tampering, strangers, limits."""

from __future__ import annotations

import itertools
from typing import Callable, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations, pieces
from tests.protocol.ends import executor_end, master_end
from tony_core.protocol.channel import (
    HEADER_SIZE,
    HELLO_SIZE,
    MAX_PAYLOAD,
    PROOF_SIZE,
    Channel,
    container_key,
)
from tony_core.protocol.codec import ProtocolError, encode
from tony_core.protocol.messages import (
    Ended,
    Heartbeat,
    Measured,
    Message,
    Noted,
    Ping,
    Prepare,
    Register,
    Reported,
    Start,
    Welcome,
)

SECRET = b"a secret of this job"
GOOD_HELLO = Channel(SECRET, True, container_id="container_1").outgoing()


def pair() -> Tuple[Channel, Channel]:
    return executor_end(SECRET), master_end(SECRET)


def shake(one: Channel, other: Channel) -> None:
    for _ in range(2):
        first, second = one.outgoing(), other.outgoing()
        other.receive(first)
        one.receive(second)
    assert one.established and other.established


def _frames() -> List[bytes]:
    one, other = pair()
    shake(one, other)
    data = []
    for message in (Heartbeat(1), Noted("info", "a word")):
        one.send(message)
        data.append(one.outgoing())
    return data


FRAMES = _frames()
PAYLOADS = [
    encode(message)
    for message in (
        Register("c", "h", 1, 2, "0", "w:0", 3, ports={"main": 4}, ended={"session": 1}),
        Ended(1, 2, stderr_tail=["last"], usage={"cpu_s": 1.5}),
        Reported(1, 0.5, {"loss": 1e-9}, step=3, result="{}", saved=2),
        Measured(1, {"rss": 1.0}),
        Welcome(1, 1.0, 2.0, 3.0, 4.0, True, 5, 6.0),
        Prepare("w:0", 1, ["main"], [1, 2]),
        Start(1, "true", {"A": "b"}, {"c": "d"}, ["e"], tensorboard={"port": "x"}),
    )
]


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
    again = master_end(SECRET)
    with pytest.raises(ProtocolError, match="secret"):
        again.receive(recorded)


@pytest.mark.parametrize("dialler", [True, False])
@pytest.mark.parametrize("end", [master_end, executor_end])
def test_an_echo_is_no_peer(end: Callable[..., Channel], dialler: bool) -> None:
    channel = end(SECRET, dialler)
    with pytest.raises(ProtocolError, match="our own hello"):
        channel.receive(channel.outgoing())


@pytest.mark.parametrize("end", [master_end, executor_end])
def test_two_of_the_same_role_are_no_pair(end: Callable[..., Channel]) -> None:
    one, other = end(SECRET, True), end(SECRET, False)
    hellos = one.outgoing(), other.outgoing()
    for channel, hello in ((one, hellos[1]), (other, hellos[0])):
        with pytest.raises(ProtocolError, match="the peer is no "):
            channel.receive(hello)


@pytest.mark.parametrize("dialler", [True, False])
def test_two_of_the_same_side_are_no_pair(dialler: bool) -> None:
    one, other = executor_end(SECRET, dialler), master_end(SECRET, dialler)
    with pytest.raises(ProtocolError, match="one end must have opened"):
        other.receive(one.outgoing())


def test_the_key_of_one_container_makes_no_master_of_another() -> None:
    """Who has the key of one container is no master to another."""
    one = executor_end(SECRET, True, "container_1")
    forged = master_end(container_key(SECRET, "container_2"), False)
    one.receive(forged.outgoing())
    forged.receive(one.outgoing()[:HELLO_SIZE])
    with pytest.raises(ProtocolError, match="secret"):
        one.receive(forged.outgoing())


def test_an_executor_speaks_for_its_own_container_only() -> None:
    one, other = executor_end(SECRET, container_id="container_1"), master_end(SECRET)
    assert not other.speaks_for("container_1")
    shake(one, other)
    assert other.speaks_for("container_1")
    assert not other.speaks_for("container_2")
    assert not one.speaks_for("container_1"), "the peer is the master"
    thief = executor_end(SECRET, container_id="container_2")
    thief._secret = container_key(SECRET, "container_1")  # and claims to be the second
    other = master_end(SECRET)
    other.receive(thief.outgoing())
    thief.receive(other.outgoing()[:HELLO_SIZE])
    with pytest.raises(ProtocolError, match="secret"):
        other.receive(thief.outgoing())


def test_another_certificate_below_is_another_connection() -> None:
    one = executor_end(SECRET, binding=b"1" * 32)
    other = master_end(SECRET, binding=b"2" * 32)
    first, second = one.outgoing(), other.outgoing()
    one.receive(second)
    other.receive(first)
    with pytest.raises(ProtocolError, match="secret"):
        other.receive(one.outgoing())


def test_proofs_do_not_mix_between_two_connections_of_one_container() -> None:
    """A relay that answers each connection of an executor with the other's proof."""
    calls = [(executor_end(SECRET), master_end(SECRET)) for _ in range(2)]
    proofs = []
    for one, other in calls:
        one.receive(other.outgoing())
        other.receive(one.outgoing()[:HELLO_SIZE])
        proofs.append(other.outgoing())
    for (one, _), proof in zip(calls, proofs[::-1], strict=True):
        with pytest.raises(ProtocolError, match="secret"):
            one.receive(proof)


@pytest.mark.parametrize("container_id", ["", "container_1"])
@fuzz(data=mutations(GOOD_HELLO, GOOD_HELLO + bytes(32)), cuts=st.lists(st.integers(0, 99)))
def test_any_bytes_before_the_proof(container_id: str, data: bytes, cuts: List[int]) -> None:
    channel = Channel(SECRET, not container_id, container_id=container_id)
    try:
        for piece in pieces(data, cuts):
            assert channel.receive(piece) == []
            assert len(channel._incoming) <= HELLO_SIZE + PROOF_SIZE
    except ProtocolError:
        pass
    assert not channel.established


@fuzz(data=mutations(*FRAMES), cuts=st.lists(st.integers(0, 99), max_size=4))
def test_any_bytes_after_the_proof(data: bytes, cuts: List[int]) -> None:
    """Bytes below the frames' own check: what a man in the middle can make of them."""
    one, other = pair()
    shake(one, other)
    try:
        for piece in pieces(data, cuts):
            assert other.receive(piece) == []
    except ProtocolError:
        pass


@fuzz(payload=mutations(*PAYLOADS))
def test_any_payload_of_an_authenticated_peer(payload: bytes) -> None:
    one, other = pair()
    shake(one, other)
    one._frame(payload)
    try:
        other.receive(one.outgoing())
    except ProtocolError:
        pass


@pytest.mark.parametrize("secret", [b"another", SECRET + b"\0", SECRET[:-1]])
def test_a_wrong_secret_is_found_out_by_both(secret: bytes) -> None:
    one, other = executor_end(SECRET), master_end(secret)
    first, second = one.outgoing(), other.outgoing()
    one.receive(second)
    other.receive(first)
    for channel, data in ((one, other.outgoing()), (other, one.outgoing())):
        with pytest.raises(ProtocolError, match="does not know this job's secret"):
            channel.receive(data)
        assert not channel.established


def test_another_version_is_named_before_anything_else() -> None:
    one = executor_end(SECRET, version=2)
    other = master_end(SECRET, version=1)
    with pytest.raises(ProtocolError, match="speaks version 2 of the protocol, we speak 1"):
        other.receive(one.outgoing()[:6])


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"TonZ", b"Tonx"])
def test_another_protocol_is_seen_at_its_first_bytes(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak TonY"):
        master_end(SECRET).receive(data)


def test_before_the_proof_nothing_is_kept_or_read() -> None:
    one, other = pair()
    one.receive(other.outgoing())
    with pytest.raises(ProtocolError, match="secret"):
        other.receive(one.outgoing()[:HELLO_SIZE] + b"x" * 10_000_000)
    assert len(other._incoming) == 0


def test_a_frame_too_long_is_refused_by_its_length_field() -> None:
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
        master_end(b"")
