"""The client's end of a tunnel against a real master's, over HTTP that loses and repeats much."""

from __future__ import annotations

import json
import random
import threading
from email.message import Message as Head
from typing import Callable, Iterator, List, Optional, Tuple

import pytest

from tests.master.reactors import Running
from tests.master.shell import until
from tests.master.web.test_tunnels import SECRET, Site
from tony_core.client import tunnel as module
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.client.tunnel import ClientStream, Tunnel
from tony_core.master.web import tunnels
from tony_core.master.web.server import Exchange, Response, WebServer
from tony_core.protocol.messages import (
    Message,
    OpenStream,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.tunnel import (
    PIECE,
    ClientKey,
    StreamWindow,
    client_key,
    pack_data,
    unpack_data,
)

KEY = ClientKey(client_key(SECRET), "")
FATES = ["arrives", "arrives", "no answer", "lost", "twice", "old copy"]


class EchoSite(Site):
    """Its executor sends back what a stream brings."""

    def __init__(self, running: Running) -> None:
        super().__init__(running, proxied=False)
        self.window = StreamWindow()
        self.unsent = bytearray()
        self.ended = False

    def _send(self, container_id: str, message: Message) -> bool:
        if isinstance(message, OpenStream):
            self._answer(StreamOpened(1, "\x1b[31m a note\n"))
        elif isinstance(message, StreamData):
            self.unsent += unpack_data(message.data)
            self.ended = message.end
        elif isinstance(message, StreamTaken):
            self.window.taken(message.size)
        while self.unsent and self.window.left:
            piece = bytes(self.unsent[: min(PIECE, self.window.left)])
            del self.unsent[: len(piece)]
            self.window.send(len(piece))
            self._answer(StreamData(1, pack_data(piece)))
            self._answer(StreamTaken(1, len(piece)))
        if self.ended and not self.unsent:
            self._answer(StreamClosed(1, 7, "\x9b1m a\u202eb"))
        return True

    def _answer(self, message: Message) -> None:
        self.running.reactor.call_later(0, self.table.from_executor, "c0", message)


class FaultyPage(JobPage):
    """Loses requests and answers, and repeats some at once and others much later."""

    def __init__(self, url: str, seed: int, proxied: bool) -> None:
        super().__init__(url)
        self.proxied = proxied
        self._random = random.Random(seed)
        self._copies: List[Tuple[str, str, Optional[bytes]]] = []

    def exchange(
        self, method: str, path: str, content: Optional[bytes] = None, wait_s: float = 0.0
    ) -> Tuple[str, Head, bytes]:
        fate = self._random.choice(FATES)
        if fate == "lost":
            raise PageError("the request was lost")
        answer = super().exchange(method, path, content, wait_s)
        if fate == "twice":
            answer = super().exchange(method, path, content, wait_s)
        self._copies.append((method, path, content))
        if fate == "old copy":
            try:
                super().exchange(*self._random.choice(self._copies))
            except PageError:
                pass  # it is refused, and goes on being so
        if fate == "no answer":
            raise PageError("the answer was lost")
        return answer


class Sender(ClientStream):
    """Sends some bytes, and keeps what comes."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.unsent = data
        self.got = bytearray()
        self.exit_code: Optional[int] = None
        self.texts: List[str] = []
        self.over = threading.Event()

    def opened(self, note: str) -> None:
        self.texts.append(note)
        self.writable()

    def writable(self) -> None:
        piece = self.unsent[: self.window.left]
        self.unsent = self.unsent[len(piece) :]
        if piece:
            self.write(piece, end=not self.unsent)

    def received(self, data: bytes, error: bool, end: bool) -> None:
        self.got += data
        self.take(len(data))

    def ended(self, exit_code: Optional[int], message: str) -> None:
        self.exit_code = exit_code
        self.texts.append(message)
        self.over.set()


@pytest.fixture
def running() -> Iterator[Running]:
    """The client's reactor; the master has one of its own."""
    with Running() as made:
        yield made


@pytest.fixture
def site() -> Iterator[EchoSite]:
    with Running() as made:
        found = made.do(lambda: EchoSite(made))
        yield found
        made.do(found.server.close)


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_all_bytes_arrive_once_and_in_order_both_ways(
    running: Running, site: EchoSite, seed: int, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_PAUSE_S", 0.002)
    monkeypatch.setattr(module, "UP_PIECE", 20_000)
    monkeypatch.setattr(tunnels, "LARGEST_ANSWER", 20_000)
    lost: List[str] = []
    stream = Sender(random.Random(seed).randbytes(400_000))
    wanted = stream.unsent
    long_command = ["echo", "x" * 90_000]  # more than the master takes before the proof
    seeds = iter(range(100 * seed, 100 * seed + 100))

    def open_one() -> Tunnel:
        name = json.loads(site.ask("PUT", "new")[1])["tunnel"]
        url = f"http://127.0.0.1:{site.server.port}/"
        made = Tunnel(
            running.reactor, name, KEY, lambda _: FaultyPage(url, next(seeds), proxied), lost.append
        )
        made.open(stream, OpenStream(0, "worker:0", "shell", long_command))
        return made

    tunnel = running.do(open_one)
    assert stream.over.wait(60), (lost, len(stream.got))
    running.do(tunnel.close)
    assert (stream.exit_code, lost) == (7, [])
    assert stream.got == wanted
    assert stream.texts == ["?[31m a note?", "?1m a?b"], "nothing that drives a terminal"


def test_a_master_that_is_silent_but_for_pings_is_there(
    running: Running, site: EchoSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "PING_S", 0.2)
    monkeypatch.setattr(module, "LOST_S", 2.0)
    lost: List[str] = []
    name = json.loads(site.ask("PUT", "new")[1])["tunnel"]
    url = f"http://127.0.0.1:{site.server.port}/"
    tunnel = running.do(
        lambda: Tunnel(running.reactor, name, KEY, lambda _: JobPage(url), lost.append)
    )
    assert not threading.Event().wait(3.0) and not lost
    monkeypatch.setattr(tunnels, "PING_S", 60.0)
    until(lambda: lost, "the loss")
    assert "has sent nothing" in lost[0] and tunnel.closed


def losses(running: Running, answer: Callable[[Exchange], None]) -> List[str]:
    """Why a tunnel is lost to a server that answers like this."""
    lost: List[str] = []
    with Running() as other:
        server = other.do(lambda: WebServer(other.reactor, "127.0.0.1", 0, answer))
        url = f"http://127.0.0.1:{server.port}/"
        running.do(lambda: Tunnel(running.reactor, "a", KEY, lambda _: JobPage(url), lost.append))
        until(lambda: lost, "the loss")
        other.do(server.close)
    return lost


def test_another_process_at_the_masters_port_is_found_out(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers every request, and can prove nothing."""
    monkeypatch.setattr(module, "HANDSHAKE_S", 2.0)
    asked: List[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.request.method)
        body = b'{"next": 56}' if exchange.request.method == "PUT" else b""
        exchange.answer(Response(200, body))

    (why,) = losses(running, answer)
    assert "did not prove itself" in why
    assert asked.count("GET") < 60, "it is not asked without a pause"


@pytest.mark.parametrize("following", [0, 55, 57, 10**30, -1, None, "56", [], {}])
def test_positions_that_no_master_answers(running: Running, following: object) -> None:
    def answer(exchange: Exchange) -> None:
        taken = exchange.request.method == "PUT"
        exchange.answer(Response(200, json.dumps({"next": following}).encode() if taken else b""))

    assert losses(running, answer) == ["the master does not take what it is sent"]


def test_what_another_program_answers_drives_no_terminal(running: Running) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.answer(Response(410, b"gone \x1b]0;a title\x07 \xc2\x9b1m"))

    assert losses(running, answer) == ["gone ?]0;a title? ?1m"]
