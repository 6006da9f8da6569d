"""The real master's ports under attack: strangers are refused, honest ones go on being served."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.master.shell import SECRET, Shell, a_job, until
from tests.protocol.ends import executor_end
from tony_core.client import tls_key_pair
from tony_core.job.spec import Resources, Role
from tony_core.master.web import server as webserver
from tony_core.protocol import handshake_limiter
from tony_core.protocol.channel import Channel
from tony_core.protocol.job_secret import unpack_secret
from tony_core.protocol.messages import Heartbeat, Register
from tony_core.protocol.tls import executor_context

ONE = Role("worker", 1, Resources(), "true")


class Attack:
    """A master with one container launched and no executor in it, and connections to its port."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        (self.container,) = shell.launched(1)
        host, port = shell.address.split(":")
        self.where: Tuple[str, int] = (host, int(port))
        host, port = shell.pool.page_url[len("http://") : -1].split(":")
        self.page: Tuple[str, int] = (host, int(port))
        self.log: List[str] = []
        shell.master._executors._log = self.log.append
        shell.master._executors.limiter._log = self.log.append
        self._open = contextlib.ExitStack()

    @property
    def limiter(self) -> handshake_limiter.HandshakeLimiter:
        return self.shell.master._executors.limiter

    def call(self, where: Tuple[str, int] = ("", 0)) -> socket.socket:
        sock = socket.create_connection(where if where[0] else self.where, 30)
        return self._open.enter_context(sock)

    def end(self, secret: bytes = SECRET, **options: Any) -> Channel:
        """An executor's, of the one container that there is."""
        binding = unpack_secret(self.shell.context.secret).fingerprint
        options = {"container_id": self.container, "binding": binding, **options}
        return executor_end(unpack_secret(secret).secret, **options)

    def shake(self) -> Tuple[socket.socket, Channel]:
        """A connection that has proved itself, as far as it can."""
        sock, channel = self.carried(self.call()), self.end()
        sock.sendall(channel.outgoing())
        while not channel.established:
            channel.receive(sock.recv(4096))
            sock.sendall(channel.outgoing())
        return sock, channel

    def carried(self, sock: socket.socket) -> socket.socket:
        """What the job's words travel in: TLS, where it has a key."""
        if not unpack_secret(self.shell.context.secret).fingerprint:
            return sock
        return self._open.enter_context(executor_context().wrap_socket(sock))

    def refused(self, sock: socket.socket) -> bytes:
        """What arrived before the server closed the connection."""
        answer_bytes = b""
        try:
            while True:
                data = sock.recv(65536)
                if not data:
                    return answer_bytes
                answer_bytes += data
        except ConnectionResetError:
            return answer_bytes

    def serves(self) -> None:
        """An honest executor is welcomed, and the page is answered."""
        executor = self.shell.executor(self.container)
        assert executor.received
        assert self.shell.get("/api/job")[0] == 200

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    with Shell(tmp_path, a_job(ONE)) as shell:
        made = Attack(shell)
        yield made
        made.close()
        shell.kill("the test is over")
        shell.pool.end(made.container)


def test_every_kind_of_stranger_is_refused_and_reported_in_one_line(attack: Attack) -> None:
    ours = attack.end(b"guessed")
    wrong = attack.call()
    wrong.sendall(ours.outgoing() + bytes(32))
    version = attack.call()
    version.sendall(attack.end(version=9).outgoing())
    garbage = attack.call()
    garbage.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80))
    echo = attack.call()
    echo.sendall(echo.recv(4096))
    replayed = self_recorded(attack)
    two = attack.call(), attack.call()  # each is sent the other's hello: a reflection
    first, second = two[0].recv(4096), two[1].recv(4096)
    two[0].sendall(second)
    two[1].sendall(first)
    proofs = two[0].recv(4096), two[1].recv(4096)
    two[0].sendall(proofs[1])
    two[1].sendall(proofs[0])
    cut = attack.call()
    cut.sendall(attack.end().outgoing()[:20])
    cut.shutdown(socket.SHUT_WR)
    for sock in (wrong, version, garbage, echo, replayed, *two, cut):
        attack.refused(sock)
    until(lambda: attack.limiter.refused_count == 8, "eight refusals")
    assert len(attack.log) == 1 and attack.log[0].startswith("turned away 127.0.0.1:")
    assert len(attack.limiter) == 0
    attack.serves()


def self_recorded(attack: Attack) -> socket.socket:
    """All that an honest peer sent on another connection, once more."""
    sock, channel = attack.call(), attack.end()
    recorded = channel.outgoing()
    sock.sendall(recorded)
    while not channel.established:
        channel.receive(sock.recv(4096))
        answer_bytes = channel.outgoing()
        recorded += answer_bytes
        sock.sendall(answer_bytes)
    until(lambda: len(attack.limiter) == 0, "the honest one")
    sock.close()
    again = attack.call()
    again.sendall(recorded)
    return again


@pytest.mark.parametrize("how", ["repeated", "reordered", "changed", "oversized", "not-json"])
def test_frames_of_one_who_knows_the_secret(attack: Attack, how: str) -> None:
    sock, channel = attack.shake()
    frames = []
    for message in (
        Register(attack.container, "127.0.0.1", 0, 1, "0"),
        Heartbeat(0),
        Heartbeat(0),
    ):
        channel.send(message)
        frames.append(channel.outgoing())
    if how == "repeated":
        frames = [frames[0], frames[0]]
    elif how == "reordered":
        frames = [frames[0], frames[2], frames[1]]
    elif how == "changed":
        frames = [frames[0], frames[1][:-1] + b"?"]
    elif how == "oversized":
        frames = [frames[0], (2**31).to_bytes(4, "big") + bytes(60)]
    else:
        channel._sent = 1  # its next frame is authentic, and says nothing
        channel._frame(b"{]")
        frames = [frames[0], channel.outgoing()]
    sock.sendall(b"".join(frames))
    attack.refused(sock)
    until(lambda: any("connection lost" in line for line in attack.log), "the story of it")
    attack.serves()


def test_half_a_frame_delays_no_other_connection(attack: Attack) -> None:
    sock, channel = attack.shake()
    channel.send(Register(attack.container, "127.0.0.1", 0, 1, "0"))
    sock.sendall(channel.outgoing()[:-3])
    attack.serves()


def test_a_thousand_silent_connections_and_one_slow_one(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4000:
        pytest.skip("this machine lets a process have too few descriptors")
    monkeypatch.setattr(handshake_limiter, "PATIENCE_S", 0.2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4000), hard))
    try:
        hello = attack.end().outgoing()
        for number in range(1000):
            sock = attack.call()
            if number % 100 == 0:
                sock.sendall(hello[: number // 100 + 1])
        attack.serves()
        assert len(attack.limiter) <= attack.limiter._limit
        assert len(attack.log) <= 2
    finally:
        attack.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


STRANGE: Dict[str, Any] = {
    "first": st.sampled_from(["register", "word", "unknown"]),
    "session": st.integers(-(2**70), 2**70),
    "number": st.one_of(st.floats(), st.integers(-(2**2000), 2**2000)),
    "text": st.text(st.characters(), max_size=30),
    "data": st.dictionaries(st.text(max_size=9), st.one_of(st.none(), st.integers()), max_size=3),
}
often = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
less_often = settings(often, max_examples=8)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


@often
@given(**STRANGE)
def test_strange_words_of_one_who_knows_the_secret_end_its_connection_at_most(
    open_attack: Attack, **words: Any
) -> None:
    send_strange_messages(open_attack, **words)


@needs_openssl
@less_often
@given(**STRANGE)
def test_so_they_do_inside_tls(tls_attack: Attack, **words: Any) -> None:
    send_strange_messages(tls_attack, **words)


@needs_openssl
@less_often
@given(
    garbage=st.binary(min_size=1, max_size=600),
    after=st.sampled_from(["nothing", "half-a-hello", "handshake"]),
)
def test_bytes_that_are_no_tls_end_only_their_connection(
    tls_attack: Attack, garbage: bytes, after: str
) -> None:
    sock = tls_attack.call()
    with contextlib.suppress(OSError):  # it may be hung up on us in the middle
        if after == "handshake":
            sock = tls_attack.carried(sock)
        elif after == "half-a-hello":
            sock.sendall(client_hello()[: len(garbage) % 200 + 6])
        socket.socket.sendall(sock, garbage)  # as it is
        sock.shutdown(socket.SHUT_WR)
    with sock:
        tls_attack.refused(sock)
    assert tls_attack.shell.error is None
    tls_attack.shake()[0].close()


def client_hello() -> bytes:
    """What TLS says first."""
    answer_bytes = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        executor_context().wrap_bio(ssl.MemoryBIO(), answer_bytes).do_handshake()
    return answer_bytes.read()


def send_strange_messages(
    open_attack: Attack, first: str, session: int, number: float, text: str, data: object
) -> None:
    """All of them over one connection, which may end for it; the master may not."""
    sock, channel = open_attack.shake()
    words = [
        ["Measured", {"session": session, "values": {text: number}}],
        ["Noted", {"level": "info", "text": text}],
        ["Ready", {"session": session, "host": text, "ports": {text: session}}],
        ["Reported", {"session": session, "progress": number, "metrics": {text: number}}],
        ["Stopped", {"session": session, "clean": False, "survivors": [session]}],
        ["Running", {"session": session, "pid": session}],
    ]
    register = {
        "container_id": text if first == "unknown" else open_attack.container,
        "host": text,
        "listen_port": session,
        "pid": 1,
        "runtime": text,
        "ended": data,
    }
    if first != "word":
        words.insert(0, ["Register", register])
    for word in words:
        channel._frame(json.dumps(word).encode())
    try:
        sock.sendall(channel.outgoing())
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it was hung up on us in the middle
    open_attack.refused(sock)
    sock.close()
    assert open_attack.shell.error is None


@pytest.fixture(scope="module")
def open_attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    with attacked(tmp_path_factory.mktemp("attack"), SECRET) as made:
        yield made


@pytest.fixture(scope="module")
def tls_attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    with attacked(tmp_path_factory.mktemp("attack"), tls_key_pair.with_tls(SECRET)) as made:
        yield made


@contextlib.contextmanager
def attacked(folder: Path, secret: bytes) -> Iterator[Attack]:
    """A master that is there for others when all is over."""
    with Shell(folder, a_job(ONE), secret=secret) as shell:
        made = Attack(shell)
        yield made
        made.shake()
        made.close()
        assert shell.error is None
        assert shell.get("/api/job")[0] == 200


class TestThePage:
    def test_bodies_that_never_come_whole_have_one_purse(self, attack: Attack) -> None:
        piece = b"x" * 1_000_000
        answers = []
        for _ in range(8):
            sock = attack.call(attack.page)
            with contextlib.suppress(OSError):
                sock.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n")
                for _ in range(4):
                    sock.sendall(piece)
            answers.append(sock)
        server = attack.shell.master._server
        assert attack.shell.get("/api/job")[0] == 200
        until(lambda: server.held < 17 * 1024 * 1024 + 65536, "a bound on what is held")
        attack.close()
        until(lambda: server.held == 0, "all of it to be given back")

    def test_who_asks_without_end_and_reads_nothing(self, attack: Attack) -> None:
        sock = attack.call(attack.page)
        sock.settimeout(0.2)
        with contextlib.suppress(OSError):
            for _ in range(40):
                sock.sendall(b"GET /api/job HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 500)
        assert attack.shell.get("/api/job")[0] == 200
        for connection in list(attack.shell.master._server._connections):
            assert connection.backlog < 3 * 1024 * 1024
            assert len(connection._in) < 256 * 1024

    def test_a_long_head_is_read_once(self, attack: Attack) -> None:
        sock = attack.call(attack.page)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = b"POST /x HTTP/1.1\r\nContent-Length: 90000\r\n" + b"a:b\r\n" * 2500 + b"\r\n"
        sock.sendall(head)
        (connection,) = until(
            lambda: [c for c in list(attack.shell.master._server._connections) if c._head],
            "the head",
        )
        known = connection._head
        for _ in range(50):
            sock.sendall(b"x")
        until(lambda: len(connection._in) == len(head) + 50, "what came behind it")
        assert connection._head is known

    def test_a_request_that_drips_is_ended(
        self, attack: Attack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(webserver, "REQUEST_S", 0.1)
        server = attack.shell.master._server
        sock = attack.call(attack.page)
        sock.sendall(b"G")
        until(
            lambda: [x for x in list(server._connections) if x.request_began_at], "its first byte"
        )
        with contextlib.suppress(OSError):  # it may be ended before all of it is sent
            for byte in b"ET /":
                time.sleep(0.03)
                sock.sendall(bytes([byte]))
        attack.shell.master.reactor.call_soon_threadsafe(server._sweep)
        assert attack.refused(sock) == b""
        assert attack.shell.get("/api/job")[0] == 200
