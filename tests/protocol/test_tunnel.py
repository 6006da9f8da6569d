"""A tunnel's flows of bytes: any cut, any request lost or repeated, and what breaks them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.protocol.ends import master_end
from tony_core.protocol.channel import Channel, container_key
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import CloseStream, Message, OpenStream, StreamData, StreamTaken
from tony_core.protocol.tunnel import (
    CLIENT,
    WINDOW,
    ClientKey,
    ReceivedBytes,
    SentBytes,
    StreamWindow,
    TunnelBroken,
    client_key,
    pack_data,
    packed_size,
    unpack_data,
)

SECRET = b"the secret of the test's job"

#: What happens to each request: arrives; arrives but its answer is lost; is lost; arrives twice;
#: arrives, and then a copy of an old one does that was long on its way.
FATES = st.lists(
    st.sampled_from(["arrives", "no answer", "lost", "twice", "old copy"]), max_size=60
)


@given(
    writes=st.lists(st.binary(max_size=50), max_size=12),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    fates=FATES,
)
def test_all_bytes_arrive_once_and_in_order(
    writes: List[bytes], sizes: List[int], fates: List[str]
) -> None:
    sent, received = SentBytes(), ReceivedBytes()
    arrived = b""
    at, turn = 0, 0
    copies = []
    for data in [*writes, b""]:
        sent.write(data)
        while at < sent.end:
            piece = sent.read(at, sizes[turn % len(sizes)])
            fate = fates[turn] if turn < len(fates) else "arrives"
            turn += 1
            if fate == "lost":
                continue
            for _ in range(2 if fate == "twice" else 1):
                arrived += received.accept(at, piece)
            copies.append((at, piece))
            if fate == "old copy":
                old_at, old_piece = copies[turn % len(copies)]
                assert received.accept(old_at, old_piece) == b""
                with suppress(TunnelBroken):
                    sent.read(old_at, 10)
            if fate != "no answer":
                at = received.next
    assert arrived == b"".join(writes)
    sent.read(at, 1)
    assert sent.start == sent.end, "nothing is kept that has arrived"


@given(
    texts=st.lists(st.binary(max_size=100), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 97), min_size=1, max_size=8),
    fates=FATES,
)
def test_a_channel_through_flows_that_lose_and_repeat(
    texts: List[bytes], sizes: List[int], fates: List[str]
) -> None:
    client, master = ends()
    messages: List[Message] = [StreamData(1, pack_data(text)) for text in texts]
    for message in messages:
        client.send(message)
    up, down = Flow(client, master), Flow(master, client)
    for turn in range(4000):
        fate = fates[turn] if turn < len(fates) else "arrives"
        up.step(sizes[turn % len(sizes)], fate)
        down.step(sizes[turn % len(sizes)], fate)
        if len(up.messages) == len(messages):
            break
    assert up.messages == messages
    assert master.speaks_for(CLIENT)


class Flow:
    """One direction between two channels."""

    def __init__(self, source: Channel, target: Channel) -> None:
        self._source, self._target = source, target
        self._sent, self._received = SentBytes(), ReceivedBytes()
        self._at = 0
        self._copies: List[Tuple[int, bytes]] = []
        self.messages: List[Message] = []

    def step(self, size: int, fate: str) -> None:
        self._sent.write(self._source.outgoing())
        piece = self._sent.read(self._at, size)
        if fate == "lost":
            return
        for _ in range(2 if fate == "twice" else 1):
            fresh = self._received.accept(self._at, piece)
            self.messages += self._target.receive(fresh) if fresh else []
        self._copies.append((self._at, piece))
        if fate == "old copy":
            old_at, old_piece = self._copies[size % len(self._copies)]
            assert self._received.accept(old_at, old_piece) == b""
            with suppress(TunnelBroken):
                self._sent.read(old_at, size)
        if fate != "no answer":
            self._at = self._received.next


def ends(key: bytes = b"", name: str = CLIENT, **options: Any) -> List[Channel]:
    key = key or client_key(SECRET)
    client = Channel(key, True, container_id=name, binding=options.get("client", b"tunnel a"))
    return [client, master_end(SECRET, binding=options.get("master", b"tunnel a"))]


def shake(client: Channel, master: Channel) -> None:
    for _ in range(3):
        for source, target in ((client, master), (master, client)):
            data = source.outgoing()
            if data:
                target.receive(data)


def test_the_key_makes_a_client() -> None:
    client, master = ends()
    shake(client, master)
    assert master.speaks_for(CLIENT)
    assert client_key(SECRET) != client_key(SECRET + b"x")


def test_the_keys_file() -> None:
    key = ClientKey(client_key(SECRET), "http://node:80/")
    assert ClientKey.from_json(key.to_json()) == key


@fuzz(content=mutations(ClientKey(b"k" * 32, "http://node:80/").to_json(), b"[" * 5000, b"[1]"))
def test_a_damaged_keys_file_is_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        assert len(ClientKey.from_json(content).key) < 100


def test_an_executors_key_does_not_make_a_client() -> None:
    other = container_key(SECRET, "container_1")
    with pytest.raises(ProtocolError, match="secret"):
        shake(*ends(other))
    client, master = ends(other, "container_1")
    shake(client, master)
    assert not master.speaks_for(CLIENT)


def test_a_handshake_for_another_tunnel_is_refused() -> None:
    with pytest.raises(ProtocolError, match="secret"):
        shake(*ends(client=b"tunnel a", master=b"tunnel b"))


def test_a_recorded_tunnel_opens_nothing() -> None:
    client, master = ends()
    client.send(OpenStream(1, "worker:0", "shell"))
    recorded = []
    for _ in range(3):
        data = client.outgoing()
        recorded.append(data)
        for source, target, bytes_ in ((client, master, data), (master, client, None)):
            bytes_ = source.outgoing() if bytes_ is None else bytes_
            if bytes_:
                target.receive(bytes_)
    again = master_end(SECRET, binding=b"tunnel a")
    with pytest.raises(ProtocolError, match="secret"):
        for data in recorded:
            assert again.receive(data) == [] if data else True


@pytest.mark.parametrize("at", [-1, 4, 100])
def test_positions_that_cannot_be(at: int) -> None:
    sent, received = SentBytes(), ReceivedBytes()
    sent.write(b"abc")
    received.accept(0, b"abc")
    with pytest.raises(TunnelBroken):
        sent.read(at, 10)
    with pytest.raises(TunnelBroken):
        received.accept(at, b"x")


def test_what_was_given_up_is_not_read_again() -> None:
    sent = SentBytes()
    sent.write(b"abcdef")
    assert sent.read(3, 10) == b"def"
    with pytest.raises(TunnelBroken):
        sent.read(2, 10)


def test_an_end_that_fetches_nothing_is_bounded() -> None:
    sent = SentBytes(largest=10)
    sent.write(bytes(10))
    with pytest.raises(ProtocolError, match="fetch"):
        sent.write(b"x")


@given(st.lists(st.integers(1, WINDOW // 3)))
def test_a_window_is_never_overdrawn(pieces: List[int]) -> None:
    window = StreamWindow()
    out = 0
    for size in pieces:
        if size > window.left:
            with pytest.raises(ProtocolError):
                window.send(size)
            if out:
                window.taken(out)
            out = 0
        window.send(size)
        out += size
        assert window.left + out == WINDOW
    with pytest.raises(ProtocolError):
        window.taken(out + 1)


def test_messages_without_bytes_are_refused_but_for_one_end() -> None:
    """A window would not bound how many of them come."""
    window = StreamWindow()
    with pytest.raises(ProtocolError, match="without bytes"):
        window.send(0)
    window.send(5)
    with pytest.raises(ProtocolError, match="or nothing"):
        window.taken(0)
    window.send(0, end=True)
    for count in (0, 1):
        with pytest.raises(ProtocolError, match="after its end"):
            window.send(count, end=True)
    window.taken(5)


@given(st.binary(max_size=200))
def test_the_size_of_packed_bytes_is_known(data: bytes) -> None:
    assert unpack_data(pack_data(data)) == data
    assert packed_size(pack_data(data)) == len(data)


@given(st.text(max_size=50))
def test_what_is_no_base64_is_a_protocol_error(text: str) -> None:
    try:
        unpack_data(text)
    except ProtocolError:
        pass


def test_messages_of_streams_survive_the_codec() -> None:
    client, master = ends()
    wanted: List[Message] = [
        OpenStream(1, "worker:0", "shell", ["ls", "ü"], True, 24, 80, "xterm"),
        StreamTaken(1, 17),
        CloseStream(1),
    ]
    for message in wanted:
        client.send(message)
    found: List[Message] = []
    for _ in range(3):
        found += master.receive(client.outgoing())
        data = master.outgoing()
        if data:
            client.receive(data)
        if len(found) == 3:
            break
    assert found == wanted
