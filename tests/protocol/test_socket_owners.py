"""Who owns a socket of this machine: real connections and listeners, asked of the real kernel."""

from __future__ import annotations

import os
import resource
import socket
import struct
from contextlib import ExitStack
from typing import Any, Iterator, List, Tuple

import pytest

from tests.fuzzing import fuzz, mutations
from tests.second_user import UID, needs_root, start_stranger
from tony_core.protocol import socket_owners
from tony_core.protocol.socket_owners import SocketOwner, SocketTable, Unavailable

WORLDS = [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "::ffff:127.0.0.1")]
LISTEN = """
listeners = []
for family, host, port, v6_only, reuse in argument:
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
    listener.bind((host, port))
    listener.listen()
    listeners.append(listener)
print("listening")
time.sleep(60)
"""


@pytest.fixture
def table() -> Iterator[SocketTable]:
    made = SocketTable()
    yield made
    made.close()


def listening(host: str, port: int = 0, *options: Tuple[int, int, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option in options:
            made.setsockopt(*option)
        made.bind((host, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


@pytest.mark.parametrize(("bound", "called"), WORLDS)
def test_the_owner_of_the_other_end(table: SocketTable, bound: str, called: str) -> None:
    try:
        listener = listening(bound)
    except OSError:
        pytest.skip(f"there is no {bound} here")
    with listener:
        caller = socket.create_connection((called, listener.getsockname()[1]), 10)
        there, _ = listener.accept()
        with there:
            with caller:
                assert table.owner_of_peer(there) == (os.getuid(), inode(caller))
                assert table.owner_of_peer(caller) == (os.getuid(), inode(there))
                caller.shutdown(socket.SHUT_WR)
                assert table.owner_of_peer(there) == (os.getuid(), inode(caller))
            assert table.owner_of_peer(there) is None, "closed: no process's, and not root's"


@needs_root
def test_another_users_connection_is_that_users(table: SocketTable) -> None:
    with listening("127.0.0.1") as listener:
        code = """
        caller = socket.socket()
        caller.connect(("127.0.0.1", argument))
        caller.recv(1)
        """
        listener.settimeout(20)
        stranger = start_stranger(code, listener.getsockname()[1])
        with stranger, listener.accept()[0] as there:
            owner = table.owner_of_peer(there)
            assert owner is not None
            assert owner.uid == UID


def test_the_listener_of_a_port(table: SocketTable) -> None:
    with listening("127.0.0.1") as one:
        port = one.getsockname()[1]
        ours = SocketOwner(os.getuid(), inode(one))
        assert table.listeners("127.0.0.1", port) == [ours]
        assert table.listeners("::ffff:127.0.0.1", port) == [ours]
        assert table.listeners("127.0.0.2", port) == []
        assert table.listeners("::1", port) == []
    assert table.listeners("127.0.0.1", port) == []


@pytest.mark.parametrize(
    ("bound", "v6_only", "reached"),
    [
        ("0.0.0.0", 0, ["127.0.0.1", "127.9.9.9"]),
        ("::", 0, ["127.0.0.1", "127.9.9.9", "::1", "::2"]),
        ("::", 1, ["::1", "::2"]),
        ("::1", 0, ["::1"]),
    ],
)
def test_listeners_at_all_addresses(
    table: SocketTable, bound: str, v6_only: int, reached: List[str]
) -> None:
    options = [(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)] if ":" in bound else []
    try:
        listener = listening(bound, 0, *options)
    except OSError:
        pytest.skip(f"there is no {bound} here")
    with listener:
        port, number = listener.getsockname()[1], inode(listener)
        for host in ("127.0.0.1", "127.9.9.9", "::1", "::2"):
            found = [owner.inode for owner in table.listeners(host, port)]
            assert found == ([number] if host in reached else []), host


def test_all_that_share_a_port(table: SocketTable) -> None:
    shared = (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    with ExitStack() as stack:
        first = stack.enter_context(listening("127.0.0.1", 0, shared))
        port = first.getsockname()[1]
        more = [stack.enter_context(listening("127.0.0.1", port, shared)) for _ in range(300)]
        found = {owner.inode for owner in table.listeners("127.0.0.1", port)}
        assert found == {inode(sock) for sock in (first, *more)}


@needs_root
def test_another_users_listener_beside_ours(table: SocketTable) -> None:
    """At the same port of another address; one at all addresses would get our connections."""
    with listening("127.0.0.1") as ours:
        port = ours.getsockname()[1]
        places = [(socket.AF_INET, "127.0.0.2", port, 0, False)]
        places.append((socket.AF_INET6, "::", port, 1, False))
        stranger = start_stranger(LISTEN, places)
        with stranger:
            try:
                assert stranger.stdout is not None
                assert stranger.stdout.readline() == "listening\n"
                assert table.listeners("127.0.0.1", port) == [(os.getuid(), inode(ours))]
                assert [owner.uid for owner in table.listeners("127.0.0.2", port)] == [UID]
                assert [owner.uid for owner in table.listeners("::1", port)] == [UID]
            finally:
                stranger.kill()


def test_a_name_is_no_address(table: SocketTable) -> None:
    with pytest.raises(ValueError, match="not a numeric address"):
        table.listeners("localhost", 80)


@pytest.mark.parametrize(
    ("host", "wanted"),
    [("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
     ("localhost", True), ("10.0.0.1", False), ("::", False), ("0.0.0.0", False),
     ("fe80::1%lo", False), ("node1", False), ("", False), ("127.1", False)],
)  # fmt: skip
def test_loopback_addresses(host: str, wanted: bool) -> None:
    assert socket_owners.is_loopback(host) is wanted


# ---------------------------------------------------------------------- no answer


def test_without_a_descriptor_left_the_open_socket_still_asks(table: SocketTable) -> None:
    with listening("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        with exhausted():
            assert table.listeners("127.0.0.1", port)
            late = SocketTable()
            with pytest.raises(Unavailable, match="open files"):
                late.listeners("127.0.0.1", port)
        assert late.listeners("127.0.0.1", port), "it recovers"
        late.close()


class exhausted:
    """No descriptor can be opened inside."""

    def __enter__(self) -> None:
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.dup(0)
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe, self._limits[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


class Scripted:
    """A netlink socket that answers what the test wants."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sequence = 0

    def settimeout(self, seconds: float) -> None:
        pass

    def sendto(self, data: bytes, where: Tuple[int, int]) -> None:
        self.sequence = struct.unpack_from("=I", data, 8)[0]

    def recvfrom(self, size: int) -> Tuple[bytes, Tuple[int, int]]:
        answer = self.answers.pop(0) if self.answers else TimeoutError()
        if isinstance(answer, Exception):
            raise answer
        data, sender = answer(self.sequence) if callable(answer) else answer
        return data, (sender, 0)

    def close(self) -> None:
        pass


def message(kind: int, body: bytes, sequence: int) -> bytes:
    data = struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body
    return data + b"\0" * (-len(data) % 4)


def described(here: str, there: str, uid: int, state: int = 1, number: int = 7) -> bytes:
    ends = []
    for end in (here, there):
        host, _, port = end.rpartition(":")
        ends.append((socket.inet_aton(host), int(port)))
    identity = struct.pack("!HH16s16s", ends[0][1], ends[1][1], ends[0][0], ends[1][0])
    return struct.pack("=BBBB48sIIIII", 2, state, 0, 0, identity, 0, 0, 0, uid, number)


def scripted(table: SocketTable, *answers: Any) -> None:
    table.close()
    table._sock = Scripted(*answers)  # type: ignore[assignment]


class Ends:
    """A connection for which only its addresses matter."""

    def getsockname(self) -> Tuple[str, int]:
        return "127.0.0.1", 80

    def getpeername(self) -> Tuple[str, int]:
        return "127.0.0.1", 5000


OTHER_WAY = described("127.0.0.1:80", "127.0.0.1:5000", 0)
RIGHT = described("127.0.0.1:5000", "127.0.0.1:80", 42)


def test_the_answer_as_the_test_writes_it(table: SocketTable) -> None:
    scripted(table, lambda number: (message(20, RIGHT, number), 0))
    assert table.owner_of_peer(Ends()) == (42, 7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [OTHER_WAY, described("127.0.0.1:5001", "127.0.0.1:80", 0),
     described("127.0.0.1:5000", "127.0.0.2:80", 0),
     described("127.0.0.1:5000", "127.0.0.1:80", 0, state=10),
     described("127.0.0.1:5000", "127.0.0.1:80", 0, state=2),
     described("127.0.0.1:5000", "127.0.0.1:80", 0, number=0)],
)  # fmt: skip
def test_an_answer_about_another_socket_is_none(table: SocketTable, answer: bytes) -> None:
    scripted(table, lambda number: (message(20, answer, number), 0))
    assert table.owner_of_peer(Ends()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "before",
    [lambda number: (message(20, described("127.0.0.1:5000", "127.0.0.1:80", 0), number), 99),
     lambda number: (message(20, described("127.0.0.1:5000", "127.0.0.1:80", 0), number - 1), 0)],
)  # fmt: skip
def test_answers_of_other_processes_and_to_other_questions_are_passed_over(
    table: SocketTable, before: Any
) -> None:
    scripted(table, before, lambda number: (message(20, RIGHT, number), 0))
    assert table.owner_of_peer(Ends()) == (42, 7)  # type: ignore[arg-type]


def refusal(code: int) -> Any:
    return lambda number: (message(2, struct.pack("=i", -code) + b"\0" * 16, number), 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(refusal(1), "not permitted"), (refusal(95), "not supported"), (TimeoutError(), "within"),
     (OSError(105, "No buffer space available"), "buffer space"),
     (lambda number: (message(20, b"short", number), 0), "parsed"),
     (lambda number: (b"\xff" * 40, 0), "parsed")],
)  # fmt: skip
def test_no_answer_is_an_error_and_never_an_owner(
    table: SocketTable, answer: Any, words: str
) -> None:
    scripted(table, answer)
    with pytest.raises(Unavailable, match=words):
        table.owner_of_peer(Ends())  # type: ignore[arg-type]
    with listening("127.0.0.1") as listener:  # and the next question goes to a fresh socket
        assert table.listeners("127.0.0.1", listener.getsockname()[1])


def test_a_kernel_that_never_ends_its_answer(
    table: SocketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_owners, "ANSWER_S", 0.1)
    scripted(table, *[(message(20, RIGHT, 0), 0)] * 1_000_000)
    answers = table._sock.answers  # type: ignore[union-attr]
    with pytest.raises(Unavailable):
        table.owner_of_peer(Ends())  # type: ignore[arg-type]
    assert answers, "it has not read to the end"


def test_a_kernel_without_sock_diag(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*kind: int) -> socket.socket:
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(socket_owners.socket, "socket", refuse)
    table = SocketTable()
    with pytest.raises(Unavailable, match="Protocol not supported"):
        table.listeners("127.0.0.1", 80)


@fuzz(data=mutations(message(20, RIGHT, 2) + message(20, OTHER_WAY, 2), refusal(2)(2)[0]))
def test_damaged_answers(data: bytes) -> None:
    table = SocketTable()
    scripted(table, (data, 0))
    table._sequence = 1
    try:
        owner = table.owner_of_peer(Ends())  # type: ignore[arg-type]
    except Unavailable:
        pass
    else:
        assert owner is None or isinstance(owner, SocketOwner)
    finally:
        table.close()
