"""TLS below the channel: what is on the wire, who is refused, words of any size."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

import pytest

from tests.protocol.ends import CONTAINER, master_end
from tests.protocol.turning import run_until
from tony_core.client import tls_key_pair
from tony_core.protocol.channel import Channel, container_key
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.job_secret import (
    JobSecret,
    executor_key,
    pack_secret,
    transport_factory,
    unpack_secret,
)
from tony_core.protocol.link import Link, dial, listen
from tony_core.protocol.messages import Heartbeat, Message, Noted
from tony_core.protocol.reactor import Reactor

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def key() -> JobSecret:
    return unpack_secret(tls_key_pair.with_tls(SECRET))


@pytest.fixture(scope="module")
def other() -> JobSecret:
    return unpack_secret(tls_key_pair.with_tls(SECRET))


class Wire:
    """A master and an executor on one reactor, and a relay between that records every byte."""

    def __init__(self, master: JobSecret, executor: JobSecret, master_dials: bool = False) -> None:
        self.reactor = Reactor()
        self.messages: List[Message] = []
        self.closed: List[str] = []
        self.links: List[Link] = []
        self.recorded = bytearray()
        self._keys = {True: master, False: executor}
        self._carriers = {
            True: transport_factory(master, True),
            False: transport_factory(executor, False),
        }
        self._listens = not master_dials
        self._sinks: Dict[socket.socket, socket.socket] = {}
        self._waiting: Dict[socket.socket, bytearray] = {}  # for it to take
        self._read: Set[socket.socket] = set()
        self._listener = listen(
            self.reactor, "127.0.0.1", 0, lambda s: self._link(s, self._listens, False)
        )
        self._relay = listen(self.reactor, "127.0.0.1", 0, self._relayed)
        dial(
            self.reactor,
            f"127.0.0.1:{self._relay.port}",
            lambda s: self._link(s, not self._listens, True),
            pytest.fail,
            50.0,
        )

    def _link(self, sock: Any, master: bool, dialler: bool) -> None:
        made = Link(
            self.reactor,
            self._carriers[master](sock),
            Channel(
                self._keys[master].secret,
                dialler,
                container_id="" if master else CONTAINER,
                binding=self._keys[master].fingerprint,
            ),
            lambda _, message: self.messages.append(message),
            lambda _, reason: self.closed.append(reason),
            handshake_s=50,
        )
        self.links.append(made)

    def _relayed(self, one: Any) -> None:
        other = socket.create_connection(("127.0.0.1", self._listener.port))
        for source, sink in ((one, other), (other, one)):
            source.setblocking(False)
            self._sinks[source] = sink
            self._waiting[source] = bytearray()
            self._read.add(source)
        for sock in (one, other):
            self._watch(sock)

    def _watch(self, sock: Any) -> None:
        self.reactor.watch(
            sock,
            partial(self._pass_on, sock) if sock in self._read else None,
            partial(self._send, sock) if self._waiting[sock] else None,
        )

    def _pass_on(self, source: Any) -> None:
        sink = self._sinks[source]
        try:
            data = source.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._read.discard(source)
            self._watch(source)
        self.recorded += data
        self._waiting[sink] += data
        self._send(sink)

    def _send(self, sink: Any) -> None:
        """Never waits: the reader at the other end runs in this thread as well."""
        waiting = self._waiting[sink]
        try:
            while waiting:
                del waiting[: sink.send(waiting)]
        except BlockingIOError:
            pass
        except OSError:
            waiting.clear()  # it has gone
        if not waiting and self._sinks[sink] not in self._read:
            try:
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        self._watch(sink)

    def until(self, condition: Callable[[], object]) -> None:
        run_until(self.reactor, condition, lambda: (self.messages, self.closed))

    def established(self) -> bool:
        return len(self.links) == 2 and all(link.established for link in self.links)

    def close(self) -> None:
        for link in self.links:
            link.close()
        for sock in self._sinks:
            self.reactor.unwatch(sock)
            sock.close()
        self._listener.close()
        self._relay.close()
        self.reactor.close()


@pytest.fixture
def wire() -> Iterator[Callable[..., Wire]]:
    made: List[Wire] = []

    def make(*words: Any, **named: Any) -> Wire:
        made.append(Wire(*words, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("master_dials", [False, True])
def test_the_wire_shows_tls_and_no_message_of_ours(
    key: JobSecret, wire: Callable[..., Wire], master_dials: bool
) -> None:
    executor = unpack_secret(executor_key(pack_secret(key), CONTAINER))
    assert executor.pem == b"" and executor.secret == container_key(SECRET, CONTAINER)
    made = wire(key, executor, master_dials)
    made.until(made.established)
    word = "a word that would be seen " * 4
    for link in made.links:
        for number in range(20):
            link.send(Heartbeat(number))
        link.send(Noted("info", word + "x" * 500_000))
    made.until(lambda: len(made.messages) == 42)
    recorded = bytes(made.recorded)
    assert recorded[0] == 0x16 and recorded[1] == 3, "a TLS handshake comes first"
    assert b"TonY" not in recorded and b"Heartbeat" not in recorded
    assert b"a word that" not in recorded and SECRET not in recorded
    assert made.closed == []


def test_without_tls_messages_can_be_read(wire: Callable[..., Wire]) -> None:
    made = wire(JobSecret(SECRET), JobSecret(container_key(SECRET, CONTAINER)))
    made.until(made.established)
    made.links[0].send(Heartbeat(5))
    made.until(lambda: len(made.messages) == 1)
    assert b'["Heartbeat"' in made.recorded and SECRET not in made.recorded


def test_another_certificate_is_refused_before_a_byte_of_ours(
    key: JobSecret, other: JobSecret, wire: Callable[..., Wire]
) -> None:
    made = wire(other, unpack_secret(executor_key(pack_secret(key), CONTAINER)))
    made.until(lambda: len(made.closed) == 2)
    assert any("another certificate than this job's master" in text for text in made.closed)
    assert made.messages == []


def test_the_right_certificate_and_a_wrong_secret(
    key: JobSecret, wire: Callable[..., Wire]
) -> None:
    made = wire(
        key, unpack_secret(executor_key(pack_secret(key), CONTAINER))._replace(secret=bytes(32))
    )
    made.until(lambda: len(made.closed) == 2)
    assert any("does not know this job's secret" in text for text in made.closed)


@pytest.mark.parametrize("who", ["master", "executor"])
def test_one_without_tls_is_refused(key: JobSecret, wire: Callable[..., Wire], who: str) -> None:
    plain, secured = JobSecret(SECRET), unpack_secret(executor_key(pack_secret(key), CONTAINER))
    made = wire(plain, secured) if who == "master" else wire(key, plain)
    made.until(lambda: len(made.closed) == 2)
    assert made.messages == []
    assert any(
        "this job has tony.task.tls" in text or "does not speak TonY's" in text
        for text in made.closed
    )


def test_the_last_messages_arrive(key: JobSecret, wire: Callable[..., Wire]) -> None:
    made = wire(key, unpack_secret(executor_key(pack_secret(key), CONTAINER)))
    made.until(made.established)
    made.links[0].send(Noted("info", "z" * 3_000_000))
    made.links[0].flush_then_close(50)
    made.until(lambda: len(made.closed) == 2)
    assert [len(word.text) for word in made.messages] == [3_000_000]  # type: ignore[union-attr]


def test_the_secret_file(key: JobSecret) -> None:
    assert (
        unpack_secret(b"plain") == JobSecret(b"plain")
        and pack_secret(JobSecret(b"plain")) == b"plain"
    )
    assert len(executor_key(b"plain", CONTAINER)) == 32
    assert unpack_secret(pack_secret(key)) == key
    assert b"PRIVATE" in key.pem and b"PRIVATE" not in executor_key(pack_secret(key), CONTAINER)
    with pytest.raises(ProtocolError, match="cut short"):
        unpack_secret(pack_secret(key)[:40])
    with pytest.raises(ProtocolError, match="32 bytes"):
        pack_secret(JobSecret(b"short", bytes(32)))
    with pytest.raises(ProtocolError, match="cannot be used here"):
        transport_factory(key._replace(pem=b"no key"), master=True)


def test_the_fingerprint_is_the_certificates(key: JobSecret) -> None:
    text = key.pem.decode()
    shown = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :].strip())
    assert hashlib.sha256(shown).digest() == key.fingerprint


class TestMakingIt:
    def fake(self, folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
        program = folder / "openssl"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def test_no_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        assert "needs the program openssl" in tls_key_pair.missing()
        with pytest.raises(tls_key_pair.NoKeyPair, match=r"tony\.task\.tls=false"):
            tls_key_pair.with_tls(SECRET)

    def test_the_machines_own_settings_do_not_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        odd = tmp_path / "openssl.cnf"
        odd.write_text("[req]\nstring_mask = nonsense\nx509_extensions = nowhere\n")
        monkeypatch.setenv("OPENSSL_CONF", str(odd))
        assert len(unpack_secret(tls_key_pair.with_tls(SECRET)).fingerprint) == 32

    @pytest.mark.parametrize(
        ("script", "words"),
        [("cat >/dev/null; echo 'no such curve' >&2; exit 1\n", "no such curve"),
         ("cat >/dev/null; exit 3\n", "exit code 3"),
         ("cat >/dev/null; echo hello\n", "made no certificate")],
    )  # fmt: skip
    def test_a_program_that_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
    ) -> None:
        self.fake(tmp_path, script, monkeypatch)
        with pytest.raises(tls_key_pair.NoKeyPair, match=words):
            tls_key_pair.with_tls(SECRET)


def test_a_job_without_tls_does_not_load_ssl() -> None:
    root = Path(__file__).resolve().parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from tony_core.protocol.job_secret import transport_factory, unpack_secret\n"
        "transport_factory(unpack_secret(b'x' * 32), False)\n"
        "print(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"ssl", "_ssl", "hashlib", "tempfile"} & set(done.stdout.split())


def test_a_python_without_ssl_is_an_error(key: JobSecret, monkeypatch: pytest.MonkeyPatch) -> None:
    import tony_core.protocol

    monkeypatch.delattr(tony_core.protocol, "tls", raising=False)
    monkeypatch.delitem(sys.modules, "tony_core.protocol.tls", raising=False)
    monkeypatch.setitem(sys.modules, "ssl", None)
    with pytest.raises(ProtocolError, match=r"no ssl: set tony\.task\.tls=false"):
        transport_factory(key, master=True)


def test_a_silent_peer_blocks_nothing(key: JobSecret) -> None:
    """Before its peer's first word a link must not ask the reactor to be called all the time."""
    reactor = Reactor()
    ours, theirs = socket.socketpair()
    ended: List[Optional[str]] = []
    link = Link(
        reactor,
        transport_factory(key, True)(ours),
        master_end(SECRET),
        lambda *_: None,
        lambda _, reason: ended.append(reason),
        handshake_s=0.2,
    )
    turns = 0
    real = reactor._turn

    def counted() -> None:
        nonlocal turns
        turns += 1
        real()

    reactor._turn = counted  # type: ignore[method-assign]
    reactor.call_later(0.3, reactor.stop)
    reactor.run()
    link.close()
    theirs.close()
    reactor.close()
    assert ended == ["the peer did not authenticate within 0.2 s"]
    assert turns < 20
