"""Unauthenticated peers at a real listener: how many, for how long, and what is logged."""

from __future__ import annotations

import errno
import socket
from typing import Callable, Iterator, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.ends import executor_end, master_end
from tests.protocol.turning import run_until
from tony_core.protocol import handshake_limiter
from tony_core.protocol.channel import HELLO_SIZE, PROOF_SIZE
from tony_core.protocol.codec import ProtocolError, decode, decode_record
from tony_core.protocol.handshake_limiter import HandshakeLimiter
from tony_core.protocol.link import Link, Listener, dial
from tony_core.protocol.messages import Ended, Heartbeat, Message
from tony_core.protocol.reactor import Reactor

SECRET = b"a secret of this job"


class House:
    """A listener behind a limiter for four, and an honest peer when one is wanted."""

    def __init__(self, most: int = 4) -> None:
        self.reactor = Reactor()
        self.logged: List[str] = []
        self.messages: List[Message] = []
        self.links: List[Link] = []
        self.raw: List[socket.socket] = []
        self.limiter = HandshakeLimiter(self.reactor, most, self.logged.append)
        self.listener: Listener = self.limiter.listen("127.0.0.1", 0, self._called)

    def _link(self, sock: socket.socket, dialler: bool) -> Link:
        made = Link(
            self.reactor,
            sock,
            executor_end(SECRET) if dialler else master_end(SECRET),
            lambda _, message: self.messages.append(message),
            self.limiter.closed if not dialler else lambda link, reason: None,
            self.limiter.remove if not dialler else None,
        )
        self.links.append(made)
        return made

    def _called(self, sock: socket.socket) -> None:
        self.limiter.add(self._link(sock, dialler=False))

    def honest(self, number: int) -> None:
        """A peer with the secret connects, and sends one message."""

        def connected(sock: socket.socket) -> None:
            self._link(sock, dialler=True).send(Heartbeat(number))

        dial(self.reactor, f"127.0.0.1:{self.listener.port}", connected, pytest.fail, 50.0)

    def strangers(self, count: int, words: bytes = b"") -> List[socket.socket]:
        made = []
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", self.listener.port), 30)
            sock.sendall(words)
            made.append(sock)
        self.raw += made
        return made

    def until(self, condition: Callable[[], object]) -> None:
        run_until(self.reactor, condition, lambda: self.logged)

    def close(self) -> None:
        self.listener.close()
        self.limiter.close()
        for link in self.links:
            link.close()
        for sock in self.raw:
            sock.close()
        self.reactor.close()


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.close()


def test_the_silent_make_room_and_an_honest_peer_comes_in(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_limiter, "PATIENCE_S", 0.1)
    house.strangers(20)
    house.honest(7)
    most = 0

    def arrived() -> bool:
        nonlocal most
        most = max(most, len(house.limiter))
        return house.messages == [Heartbeat(7)]

    house.until(arrived)
    assert most == 4
    assert house.limiter.refused_count >= 17 - 4
    assert len(house.logged) == 1, "one line for all of them"
    assert "had not authenticated in 0.1 s while others waited" in house.logged[0]
    house.limiter.close()
    assert f"({house.limiter.refused_count} in all)" in house.logged[1]


def test_many_honest_peers_only_wait(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_limiter, "PATIENCE_S", 60.0)
    for number in range(40):
        house.honest(number)
    house.until(lambda: len(house.messages) == 40)
    assert house.limiter.refused_count == 0
    assert house.logged == []


def test_peers_whose_proofs_lay_unread_are_not_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_limiter, "PATIENCE_S", 0.0)  # as after a master's long pause
    monkeypatch.setattr(handshake_limiter, "EXTENSION_S", 60.0)
    hello = executor_end(SECRET).outgoing()
    house.strangers(4, hello)
    house.until(lambda: len(house.limiter) == 4)
    house.strangers(4, hello)
    house.until(lambda: len(house.limiter._extended) == 4)
    assert house.limiter.refused_count == 0 and len(house.limiter) == 4


def test_a_full_disk_below_the_log_harms_no_link(house: House) -> None:
    def full(text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    house.limiter._log = full
    house.strangers(10, b"GET / HTTP/1.0\r\n\r\n")
    house.honest(1)
    house.until(lambda: house.limiter.refused_count == 10 and house.messages)
    house.limiter._log_count()


def test_a_minute_of_refusals_is_one_line(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.strangers(10, b"GET / HTTP/1.0\r\n\r\n")
    house.until(lambda: house.limiter.refused_count == 10)
    assert len(house.logged) == 1
    monkeypatch.setattr(handshake_limiter, "LOG_EVERY_S", 0.05)
    house.limiter._log_more()
    assert "turned away 9 more connections (10 in all); the latest 127.0.0.1:" in house.logged[1]
    assert house.logged[1].endswith("the peer does not speak TonY's protocol")


def test_an_error_that_accept_passes_on_ends_nothing(house: House) -> None:
    real = house.listener._sock
    left = [errno.EPERM, errno.ENETDOWN, errno.EPROTO, errno.ECONNABORTED, errno.EMFILE]

    class Broken:
        def accept(self) -> object:
            if left:
                raise OSError(left.pop(0), "passed on")
            return real.accept()

        def fileno(self) -> int:
            return real.fileno()

        def close(self) -> None:
            real.close()

    house.reactor.unwatch(real)
    broken: object = Broken()
    house.listener._sock = broken  # type: ignore[assignment]
    house.reactor.watch(broken, house.listener._accept)
    house.honest(1)
    house.until(lambda: house.messages == [Heartbeat(1)])
    assert left == []


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.sampled_from(
            [
                b"TonY",
                b"TonY\x00\x02",
                b"TonY\x00\x09",
                b"TonY\x00\x02Ed" + bytes(48),
                bytes(32),
                (2**32 - 1).to_bytes(4, "big"),
                b'["Shutdown",{"grace_s":0}]',
            ]
        ),
    ),
    min_size=1,
    max_size=6,
)


def test_no_message_of_an_unauthenticated_peer_is_taken() -> None:
    house = House(most=64)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(PIECES, st.booleans())
    def strange(pieces: List[bytes], hangs_up: bool) -> None:
        (sock,) = house.strangers(1)
        before = len(house.links)
        house.until(lambda: len(house.links) > before or len(house.limiter) == 64)
        for piece in pieces:
            try:
                sock.sendall(piece)
            except OSError:
                break
        if hangs_up:
            sock.close()

    try:
        strange()
        house.honest(3)
        house.until(lambda: bool(house.messages))
        assert house.messages == [Heartbeat(3)]
        held = [len(link._channel._incoming) for link in house.links]
        assert max(held) <= HELLO_SIZE + PROOF_SIZE, "what a stranger can make us hold"
    finally:
        house.close()


@pytest.mark.parametrize(
    "text",
    [
        '["Heartbeat",{"session":1e999}]',
        '["Heartbeat",{"session":99999999999999999999999}]',
        '["Measured",{"session":1,"values":{"a":1e999}}]',
        '["Measured",{"session":1,"values":{"a":%s}}]' % ("9" * 400),
    ],
)
def test_numbers_too_large_for_a_float_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode(text.encode())


def test_a_message_within_another_is_read_as_strictly() -> None:
    whole = {"session": 1, "exit_code": 0, "of_tomorrow": 1}
    assert decode_record(Ended, whole) == Ended(1, 0)
    for wrong in ({"session": 1}, {"session": "x", "exit_code": 0}, {}):
        with pytest.raises(ProtocolError):
            decode_record(Ended, wrong)
