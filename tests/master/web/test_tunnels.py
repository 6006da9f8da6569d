"""Tunnels over real HTTP: who gets one, what can be repeated, and how one ends."""

from __future__ import annotations

import binascii
import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Dict, FrozenSet, Iterator, List, Tuple

import pytest

from tests.master.reactors import Running
from tests.master.test_streams import PLACES
from tony_core.job.spec import Access
from tony_core.master.streams import StreamTable
from tony_core.master.web import proxy_gate
from tony_core.master.web import tunnels as module
from tony_core.master.web.proxy_gate import ProxyGate
from tony_core.master.web.server import MAX_CONNECTIONS, Exchange, WebServer
from tony_core.master.web.tunnels import Tunnels
from tony_core.protocol.channel import Channel, container_key
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import Message, OpenStream, Ping, StreamData, StreamOpened
from tony_core.protocol.tunnel import CLIENT, client_key, pack_data
from tony_core.schedulers.container_pool import WebProxy

SECRET = b"the secret of the test's job"


class Site:
    """A server with tunnels, and what they send to executors."""

    def __init__(self, running: Running, proxied: bool) -> None:
        self.running = running
        self.sent: List[Tuple[str, Message]] = []
        self.table = StreamTable(Access(), lambda: PLACES, self._send, lambda task, text: None)
        proxy = WebProxy(("127.0.0.1",), "http://rm/proxy/app_1/")
        gate = ProxyGate(running.reactor, "tester", proxy) if proxied else None
        self.tunnels = Tunnels(running.reactor, SECRET, self.table, gate)
        self.server = WebServer(
            running.reactor, "127.0.0.1", 0, self._handle, body_limit=self.tunnels.body_limit
        )

    def _handle(self, exchange: Exchange) -> None:
        self.tunnels.handle(exchange)

    def _send(self, container_id: str, message: Message) -> bool:
        self.sent.append((container_id, message))
        return True

    def ask(self, method: str, path: str, body: bytes = b"", user: str = "") -> Tuple[int, bytes]:
        caller = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            headers = {"Cookie": f"proxy-user={user}"} if user else {}
            caller.request(method, f"/tunnel/{path}", body, headers)
            answer = caller.getresponse()
            return answer.status, answer.read()
        finally:
            caller.close()

    def names(self) -> List[str]:
        return list(self.running.do(lambda: list(self.tunnels._tunnels)))


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with Running() as running:
        made = running.do(lambda: Site(running, getattr(request, "param", "") == "proxied"))
        yield made
        running.do(made.server.close)


#: A site that all requests reach by a proxy, whose address it has not looked up yet.
proxied = pytest.mark.parametrize("site", ["proxied"], indirect=True)


class Client:
    """The other end, one request at a time."""

    def __init__(
        self, site: Site, key: bytes = b"", container_id: str = CLIENT, name: str = ""
    ) -> None:
        self.site = site
        status, body = site.ask("PUT", "new")
        assert status == 200, body
        self.name = json.loads(body)["tunnel"]
        self.channel = Channel(
            key or client_key(SECRET),
            True,
            container_id=container_id,
            binding=b"tunnel " + (name or self.name).encode(),
        )
        self.up_at = self.down_at = 0
        self.got: List[Message] = []

    def up(self, data: bytes, at: int = -1) -> Tuple[int, bytes]:
        at = self.up_at if at < 0 else at
        return self.site.ask(
            "PUT", f"{self.name}/up?at={at}", binascii.b2a_base64(data, newline=False)
        )

    def down(self, at: int = -1, wait: float = 0.0) -> Tuple[int, bytes]:
        at = self.down_at if at < 0 else at
        return self.site.ask("GET", f"{self.name}/down?at={at}&wait={wait:g}")

    def exchange(self, wait: float = 0.0) -> Tuple[int, bytes]:
        data = self.channel.outgoing()
        status, body = self.up(data)
        if status != 200:
            return status, body
        self.up_at = json.loads(body)["next"]
        status, body = self.down(wait=wait)
        if status == 200:
            self.down_at += len(body)
            messages = self.channel.receive(body)
            self.got += [message for message in messages if not isinstance(message, Ping)]
        return status, body

    def shake(self) -> None:
        for _ in range(3):
            assert self.exchange()[0] == 200
        assert self.channel.established


def test_a_stream_opens_and_answers(site: Site) -> None:
    client = Client(site)
    client.shake()
    client.channel.send(OpenStream(5, "worker:1", "shell"))
    client.exchange()
    assert site.sent == [("c1", OpenStream(1, "worker:1", "shell"))]
    site.running.do(lambda: site.table.from_executor("c1", StreamOpened(1)))
    client.exchange()
    assert client.got == [StreamOpened(5)]


def test_a_request_that_waits_is_answered_when_there_is_something(site: Site) -> None:
    client = Client(site)
    client.shake()
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    client.exchange()
    site.running.reactor.call_soon_threadsafe(
        lambda: site.running.reactor.call_later(
            0.3, site.table.from_executor, "c0", StreamData(1, pack_data(b"now"))
        )
    )
    before = time.monotonic()
    client.exchange(wait=20)
    assert client.got == [StreamData(1, pack_data(b"now"))]
    assert 0.2 < time.monotonic() - before < 15


def test_every_request_can_be_repeated(site: Site) -> None:
    client = Client(site)
    data = client.channel.outgoing()
    assert client.up(data) == client.up(data) == client.up(data[:5], 0)
    first = client.down()
    assert client.down() == first and len(first[1]) > 50
    client.up_at, client.down_at = len(data), len(first[1])
    client.got += client.channel.receive(first[1])
    client.shake()


def test_a_late_copy_of_a_request_is_refused_and_ends_nothing(site: Site) -> None:
    client = Client(site)
    client.shake()
    assert client.down(at=0)[0] == 410
    assert client.up(b"x", at=client.up_at + 5)[0] == 410
    assert client.up(b"xyz", at=0) == (200, json.dumps({"next": client.up_at}).encode())
    client.channel.send(OpenStream(5, "worker:1", "shell"))
    assert client.exchange()[0] == 200
    assert len(site.sent) == 1


@pytest.mark.parametrize(
    ("key", "container_id", "name"),
    [
        (b"x" * 32, CLIENT, ""),
        (container_key(SECRET, "container_1"), "container_1", ""),
        (container_key(SECRET, "container_1"), CLIENT, ""),
        (client_key(SECRET), CLIENT, "0" * 32),
    ],
    ids=["another key", "an executor", "an executor as a client", "another tunnel"],
)
def test_who_cannot_prove_to_be_the_owner(
    site: Site, key: bytes, container_id: str, name: str
) -> None:
    client = Client(site, key, container_id, name)
    data = client.channel.outgoing()
    assert client.up(data)[0] == 200
    status, hello = client.down()
    assert status == 200 and len(hello) < 200
    with suppress(ProtocolError):  # the master knows the key as little
        client.channel.receive(hello)
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    status, body = client.up(client.channel.outgoing() or bytes(32), len(data))
    assert status == 410 and b"does not know" in body
    assert site.sent == [] and site.names() == []


def test_what_was_recorded_opens_nothing(site: Site) -> None:
    client = Client(site)
    recorded: List[bytes] = []
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    for _ in range(3):
        data = client.channel.outgoing()
        recorded.append(data)
        client.up_at = json.loads(client.up(data)[1])["next"]
        body = client.down()[1]
        client.down_at += len(body)
        client.channel.receive(body)
    assert len(site.sent) == 1
    again = Client(site)
    answers = []
    for data in recorded:
        answers.append(again.up(data)[0])
        again.up_at += len(data)
    assert 410 in answers and len(site.sent) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "new", 404),
        ("PUT", "", 404),
        ("GET", "nothing/down?at=0", 410),
        ("PUT", "{name}/up", 400),
        ("PUT", "{name}/up?at=-1", 400),
        ("PUT", "{name}/up?at=5", 410),
        ("GET", "{name}/down?at=500", 410),
        ("GET", "{name}/down?at=0&wait=x", 400),
        ("PUT", "{name}/other?at=0", 404),
        ("GET", "{name}/up?at=0", 404),
    ],
)
def test_requests_that_are_wrong(site: Site, method: str, path: str, status: int) -> None:
    name = Client(site).name
    assert site.ask(method, path.format(name=name), b"eA==")[0] == status


def test_the_end_ends_its_streams(site: Site) -> None:
    client = Client(site)
    client.shake()
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    client.exchange()
    assert site.ask("PUT", f"{client.name}/end")[0] == 200
    assert type(site.sent[-1][1]).__name__ == "CloseStream"
    assert client.down()[0] == 410


def test_a_client_that_is_silent_is_gone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    client = Client(site)
    client.shake()
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    client.exchange()
    deadline = time.monotonic() + 30
    while site.names():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert type(site.sent[-1][1]).__name__ == "CloseStream"


def test_strangers_cannot_fill_the_places(site: Site) -> None:
    """Who proves nothing makes room for others, and a tunnel that is open stays."""
    owner = Client(site)
    owner.shake()
    for _ in range(3 * module.MOST_UNPROVED):
        assert site.ask("PUT", "new")[0] == 200
    assert len(site.names()) == module.MOST_UNPROVED + 1 and owner.name in site.names()
    Client(site).shake()


@proxied
def test_another_user_of_the_proxy_cannot_fill_them_either(site: Site) -> None:
    status, body = site.ask("PUT", "new", user="ann")
    mine = json.loads(body)["tunnel"]
    for _ in range(2 * module.MOST_UNPROVED):
        assert site.ask("PUT", "new", user="mallory")[0] == 200
    assert status == 200 and mine in site.names()


@proxied
def test_the_first_request_of_all_is_known_as_the_proxys(site: Site) -> None:
    """No one has read the page before, so no address of a proxy was looked up."""
    client = Client(site)
    client.shake()
    before = time.monotonic()
    assert client.down(wait=20) == (200, b"")
    assert time.monotonic() - before < 10, "a thread of the ResourceManager is not held"


def test_who_has_proved_nothing_waits_for_a_moment_only(site: Site) -> None:
    client = Client(site)
    client.down_at = len(client.down()[1])
    before = time.monotonic()
    assert client.down(wait=20) == (200, b"")
    assert time.monotonic() - before < 10


@proxied
@pytest.mark.parametrize("is_known", [False, True])
def test_a_slow_name_server_holds_up_no_client_that_comes_directly(
    site: Site, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def slow(hosts: List[str]) -> Dict[str, FrozenSet[str]]:
        if is_known and not looked:
            looked.append(1)
            return {"rm": frozenset(["10.0.0.1"])}
        looked.append(2)
        answered.wait(60)
        return {}

    looked: List[int] = []
    monkeypatch.setattr(proxy_gate, "addresses_of", slow)
    try:
        if is_known:
            assert site.ask("PUT", "new")[0] == 200
            monkeypatch.setattr(proxy_gate, "AGAIN_S", 0.0)
        client = Client(site)
        client.shake()
        assert 2 in looked and not answered.is_set()
    finally:
        answered.set()


@proxied
def test_a_refusal_after_a_lookup_is_an_answer(site: Site) -> None:
    site.running.do(lambda: site.tunnels.close("the job has ended"))
    status, body = site.ask("PUT", "new")
    assert status == 503 and b"ending" in body


def test_bodies_that_strangers_announce_do_not_keep_the_owners_out(site: Site) -> None:
    """Neither those who name no tunnel, nor those who have proved nothing in theirs."""
    owner = Client(site)
    owner.shake()
    unproved = Client(site).name
    strangers = []
    for number in range(40):
        sock = socket.create_connection(("127.0.0.1", site.server.port), 30)
        name = unproved if number % 2 else "nothing"
        with suppress(OSError):
            sock.sendall(
                f"PUT /tunnel/{name}/up?at=0 HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n".encode()
            )
            sock.sendall(bytes(900_000))
        strangers.append(sock)
    owner.channel.send(StreamData(7, pack_data(bytes(30_000))))
    assert owner.exchange()[0] == 200
    assert site.running.do(lambda: site.server.held) == 0
    with suppress(ConnectionResetError):
        assert strangers[0].recv(100).startswith(b"HTTP/1.1 413 ")
    for sock in strangers:
        sock.close()


def test_who_knows_an_open_tunnel_sends_no_more_than_a_piece(site: Site) -> None:
    owner = Client(site)
    owner.shake()
    with suppress(ConnectionError):  # it is refused by its head, while it is sent
        assert site.ask("PUT", f"{owner.name}/up?at=0", b"A" * (module.LARGEST_BODY + 4))[0] == 413
    assert site.running.do(lambda: site.server.held) == 0
    assert owner.exchange()[0] == 200


def test_open_tunnels_are_bounded(site: Site) -> None:
    for _ in range(module.MOST_OPEN):
        Client(site).shake()
    status, body = site.ask("PUT", "new")
    assert status == 503 and b"tunnels already" in body


def test_a_proxys_connections_do_not_fill_the_places(site: Site) -> None:
    """It opens one for each request, and closes none by itself."""
    name = Client(site).name
    held = []
    for _ in range(2 * MAX_CONNECTIONS):
        caller = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=30)
        caller.request("GET", f"/tunnel/{name}/down?at=0&once=1")
        answer = caller.getresponse()
        assert answer.status == 200 and answer.getheader("Connection") == "close"
        held.append((caller, answer))
    assert site.running.do(lambda: len(site.server._connections)) <= 1
    for caller, answer in held:
        answer.close()
        caller.close()


def test_the_jobs_end_reaches_the_client(site: Site) -> None:
    client = Client(site)
    client.shake()
    client.channel.send(OpenStream(1, "worker:0", "shell"))
    client.exchange()
    site.running.do(lambda: site.tunnels.close("the job has ended"))
    client.exchange()
    (closed,) = client.got
    fields: Dict[str, Any] = closed._asdict()
    assert fields == {"stream": 1, "exit_code": None, "message": "the job has ended", "refused": ""}
    assert site.ask("PUT", "new")[0] == 503
