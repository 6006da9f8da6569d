"""Channels on real sockets: how a link begins, and every way it ends."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import pytest

from tests.protocol.ends import executor_end, master_end
from tests.protocol.test_reactor import set_clock
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.link import Link, Listener, dial, listen, split_address
from tony_core.protocol.messages import Heartbeat, Message, Noted
from tony_core.protocol.reactor import Reactor

SECRET = b"s"


class World:
    """A reactor, a listener whose links are kept, and what happened."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.links: List[Link] = []
        self.messages: List[Message] = []
        self.closed: List[str] = []
        self.secret = SECRET
        self.handshake_s = 5.0
        self.listener: Listener = listen(self.reactor, "127.0.0.1", 0, self.accept)
        self.raw: List[socket.socket] = []

    def link(self, sock: socket.socket, dialler: bool) -> Link:
        link = Link(
            self.reactor,
            sock,
            executor_end(self.secret) if dialler else master_end(self.secret),
            lambda _, message: self.messages.append(message),
            lambda _, reason: self.closed.append(reason),
            handshake_s=self.handshake_s,
        )
        self.links.append(link)
        return link

    def accept(self, sock: socket.socket) -> None:
        self.link(sock, dialler=False)

    def connect(self) -> Link:
        """Our own link to the listener, established."""
        found: List[Link] = []
        dial(
            self.reactor,
            f"127.0.0.1:{self.listener.port}",
            lambda sock: found.append(self.link(sock, dialler=True)),
            pytest.fail,
        )
        self.until(lambda: len(self.links) == 2 and all(link.established for link in self.links))
        return found[0]

    def stranger(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.listener.port))
        self.raw.append(sock)
        return sock

    def until(self, condition: Callable[[], bool], within: float = 60.0) -> None:
        """Run until something is so."""
        deadline = time.monotonic() + within
        late: List[bool] = []

        def look() -> None:
            if condition():
                self.reactor.stop()
            elif time.monotonic() > deadline:
                late.append(True)
                self.reactor.stop()
            else:
                self.reactor.call_later(0.005, look)

        look_first = self.reactor.call_later(0, look)
        self.reactor.run()
        look_first.cancel()
        assert not late, f"not within {within} s; closed: {self.closed}"

    def close(self) -> None:
        for link in self.links:
            link.close()
        for sock in self.raw:
            sock.close()
        self.listener.close()
        self.reactor.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_messages_arrive_in_order_even_large_ones(world: World) -> None:
    link = world.connect()
    sent: List[Message] = []
    for number in range(200):
        sent += [Heartbeat(number), Noted("info", "x" * (number * 500))]
    for message in sent:
        link.send(message)
    world.until(lambda: len(world.messages) == len(sent))
    assert world.messages == sent


def test_the_last_messages_arrive_before_the_end(world: World) -> None:
    link = world.connect()
    link.send(Noted("info", "z" * 5_000_000))
    link.flush_then_close()
    link.send(Heartbeat(1))  # after the end: silence
    world.until(lambda: len(world.closed) == 2)
    assert [type(m) for m in world.messages] == [Noted]
    assert sorted(world.closed) == ["closed by us", "the peer closed the connection"]


def test_a_silent_peer_is_closed(world: World) -> None:
    world.handshake_s = 0.2
    world.stranger()
    world.until(lambda: bool(world.closed))
    assert world.closed == ["the peer did not authenticate within 0.2 s"]


def test_a_slow_peer_is_closed_as_soon(world: World) -> None:
    world.handshake_s = 0.3
    started = time.monotonic()
    sock = world.stranger()
    hello = iter(executor_end(SECRET).outgoing())

    def drip() -> None:
        try:
            sock.send(bytes([next(hello)]))
            world.reactor.call_later(0.05, drip)
        except (OSError, StopIteration):
            pass

    drip()
    world.until(lambda: bool(world.closed))
    assert time.monotonic() - started > 0.25
    assert "did not authenticate" in world.closed[0]


def test_garbage_closes_the_link_at_once(world: World) -> None:
    world.stranger().sendall(b"GET / HTTP/1.0\r\n\r\n")
    world.until(lambda: bool(world.closed))
    assert world.closed == ["the peer does not speak TonY's protocol"]


def test_a_wrong_secret_closes_both_ends_with_a_reason(world: World) -> None:
    sock = world.stranger()
    world.secret = b"another"
    world.link(sock, dialler=True)
    world.raw.remove(sock)
    world.secret = SECRET
    world.until(lambda: len(world.closed) == 2)
    assert "the peer does not know this job's secret" in world.closed


def test_who_gets_hello_and_wrong_proof_at_once_still_sends_its_own(world: World) -> None:
    stranger = world.stranger()
    channel = executor_end(b"guessed")
    world.until(lambda: len(world.links) == 1)
    hello = channel.outgoing()
    # The listener gets both in one piece: it has read nothing when the answer is made.
    world.until(lambda: bool(stranger.recv(1, socket.MSG_PEEK)))
    theirs = stranger.recv(1024)
    channel.receive(theirs)
    stranger.sendall(hello + channel.outgoing())
    world.until(lambda: bool(world.closed))
    assert world.closed == ["the peer does not know this job's secret"]
    stranger.settimeout(5)
    with pytest.raises(ProtocolError, match="does not know this job's secret"):
        channel.receive(stranger.recv(1024))


def test_a_peer_that_vanishes_is_noticed_at_once(world: World) -> None:
    link = world.connect()
    sock = link._transport.sock
    # A reset, as from a process that was killed with data unread.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    world.until(lambda: bool(world.closed))
    assert "the connection broke" in world.closed[0] or "closed" in world.closed[0]


def test_silence_ends_it_and_any_message_puts_it_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(world.reactor, monkeypatch)
    link = world.connect()
    other = next(each for each in world.links if each is not link)
    other.limit_silence(0.4)
    started = world.reactor.now()
    for wait in (0.2, 0.4, 0.6):
        world.reactor.call_later(wait, link.send, Heartbeat(1))
    world.until(lambda: bool(world.closed))
    assert 0.9 < world.reactor.now() - started < 1.2
    assert world.closed[0].startswith("nothing was received for 0.")


def test_a_peer_that_does_not_read_is_closed(world: World) -> None:
    link = world.connect()
    other = next(each for each in world.links if each is not link)
    world.reactor.unwatch(other._transport.sock)
    for _ in range(4):
        link.send(Noted("info", "x" * 20_000_000))
    world.until(lambda: bool(world.closed))
    assert world.closed == ["the peer does not read what it is sent"]


def test_closing_is_silent_and_may_be_repeated(world: World) -> None:
    link = world.connect()
    link.close()
    link.close()
    link.flush_then_close()
    link.send(Heartbeat(1))
    world.until(lambda: bool(world.closed))
    assert world.closed == ["the peer closed the connection"]


def test_a_link_may_be_closed_from_its_own_message(world: World) -> None:
    link = world.connect()
    other = next(each for each in world.links if each is not link)
    got: List[Message] = []

    def first_only(found: Link, message: Message) -> None:
        got.append(message)
        found.close()

    other._on_message = first_only
    for number in range(5):
        link.send(Heartbeat(number))
    world.until(lambda: bool(world.closed))
    assert got == [Heartbeat(0)]


class TestDialling:
    def outcome(self, address: str, timeout_s: float = 60.0) -> Tuple[Optional[Any], str]:
        reactor = Reactor()
        got: List[Any] = []
        failed: List[str] = []

        def end(into: List[Any], value: Any) -> None:
            into.append(value)
            reactor.stop()

        dial(reactor, address, lambda s: end(got, s), lambda r: end(failed, r), timeout_s)
        reactor.run()
        reactor.close()
        assert len(got) + len(failed) == 1
        return (got[0] if got else None), (failed[0] if failed else "")

    def test_no_process_listens(self) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            _, reason = self.outcome(f"127.0.0.1:{port}")
        assert reason == f"cannot connect to 127.0.0.1:{port}: Connection refused"

    @pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "h:99999", "h:x", "h:0"])
    def test_what_is_no_address(self, address: str) -> None:
        _, reason = self.outcome(address)
        assert "is not host:port" in reason

    def test_a_name_that_does_not_exist(self) -> None:
        _, reason = self.outcome("no-such-host.invalid:80")
        assert reason.startswith("cannot connect to no-such-host.invalid:80: ")

    def test_a_peer_that_does_not_answer(self) -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            address = deaf.getsockname()
            filler = [socket.socket() for _ in range(4)]
            for sock in filler:
                sock.setblocking(False)
                sock.connect_ex(address)
            time.sleep(0.05)
            _, reason = self.outcome(f"127.0.0.1:{address[1]}", timeout_s=0.3)
            for sock in filler:
                sock.close()
        assert reason.endswith("no answer within 0.3 s")

    def test_split(self) -> None:
        assert split_address("host:80") == ("host", 80)
        assert split_address("[::1]:80") == ("::1", 80)

    def test_a_cancelled_dial_calls_nothing_back(self) -> None:
        reactor = Reactor()
        attempt = dial(reactor, "127.0.0.1:9", pytest.fail, pytest.fail, 1)
        attempt.cancel()
        reactor.call_later(0.1, reactor.stop)
        reactor.run()
        reactor.close()


class TestReactor:
    def test_timers_fire_in_order_and_cancelled_ones_do_not(self) -> None:
        reactor = Reactor()
        fired: List[str] = []
        reactor.call_later(0.02, fired.append, "b")
        reactor.call_later(0.01, fired.append, "a")
        cancelled = reactor.call_later(0.015, fired.append, "never")
        cancelled.cancel()
        assert not cancelled.active
        reactor.call_later(0.02, fired.append, "c")
        reactor.call_later(0.05, reactor.stop)
        reactor.run()
        reactor.close()
        assert fired == ["a", "b", "c"]

    def test_another_thread_wakes_it(self) -> None:
        reactor = Reactor()
        thread = threading.Timer(0.05, reactor.call_soon_threadsafe, [reactor.stop])
        thread.start()
        reactor.run()
        thread.join()
        reactor.close()

    def test_a_signal_handler_wakes_it(self) -> None:
        reactor = Reactor()
        before = signal.signal(
            signal.SIGUSR1, lambda *_: reactor.call_soon_threadsafe(reactor.stop)
        )
        try:
            reactor.call_later(0.05, os.kill, os.getpid(), signal.SIGUSR1)
            reactor.run()
        finally:
            signal.signal(signal.SIGUSR1, before)
            reactor.close()

    def test_many_wakings_do_not_block(self) -> None:
        reactor = Reactor()
        seen: List[int] = []
        for number in range(100_000):
            reactor.call_soon_threadsafe(seen.append, number)
        reactor.call_soon_threadsafe(reactor.stop)
        reactor.run()
        reactor.close()
        assert seen == list(range(100_000))

    def test_an_exception_is_not_passed_over(self) -> None:
        reactor = Reactor()
        reactor.call_later(0, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reactor.run()
        reactor.close()

    def test_many_cancelled_timers_hold_nothing(self) -> None:
        reactor = Reactor()
        for _ in range(10_000):
            reactor.call_later(1000, reactor.stop).cancel()
        assert len(reactor._timers) < 2000
        reactor.close()


def test_the_import_graph_is_light() -> None:
    """Thousands of executors: what the protocol brings in is paid for in each."""
    root = Path(__file__).resolve().parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import tony_core.protocol.link\n"
        "print(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    heavy = {"dataclasses", "inspect", "asyncio", "hashlib", "_hashlib", "ssl", "hmac", "logging"}
    assert loaded & (heavy | {"subprocess", "encodings.idna"}) == set()


# ------------------------------------------------------------------ our own bugs


def test_an_error_over_an_unauthenticated_peer_closes_only_its_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: List[str] = []
    world.reactor.log = logged.append
    channel = type(master_end(world.secret))
    receive = channel.receive

    def broken(self: Any, data: bytes) -> Any:
        if data.startswith(b"odd"):
            raise KeyError("a bug")
        return receive(self, data)

    monkeypatch.setattr(channel, "receive", broken)
    world.stranger().sendall(b"odd bytes")
    world.until(lambda: bool(world.closed))
    assert world.closed == ["what it sent made our own code fail: KeyError"]
    assert len(logged) == 1 and "Traceback" in logged[0] and "a bug" in logged[0]
    world.links.clear()
    world.connect()


def test_an_error_over_an_authenticated_message_is_not_swallowed(world: World) -> None:
    link = world.connect()
    other = next(item for item in world.links if item is not link)

    def broken(_link: Link, _message: Message) -> None:
        raise KeyError("the session machine's")

    other._on_message = broken
    link.send(Heartbeat())
    with pytest.raises(KeyError, match="session machine"):
        world.until(lambda: False, within=5)
