"""The PMI server's sockets and clock, spoken to by hand."""

import contextlib
import resource
import socket
import time
from typing import Iterator, List, Sequence

import pytest

from tests.frameworks.failures import Failures
from tony_core.frameworks import pmi_service, session_server
from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.pmi import Outcome, PmiServer
from tony_core.frameworks.pmi_service import PmiService


class _Rank:
    """One rank's side of the line."""

    def __init__(self, service: PmiService) -> None:
        host, _, port = service.address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=10)
        self.file = self.sock.makefile("rb")

    def send(self, line: str) -> None:
        self.sock.sendall(line.encode() + b"\n")

    def receive(self) -> str:
        return self.file.readline().decode().rstrip("\n")

    def begin(self, number: str) -> str:
        self.send(f"cmd=initack pmiid={number}")
        return [self.receive() for _ in range(4)][2]

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@pytest.fixture
def service(failures: Failures) -> Iterator[PmiService]:
    made = PmiService(["chief:0", "worker:0"], ServiceContext("127.0.0.1", failures), 60.0)
    yield made
    made.close()


@pytest.fixture
def ranks(service: PmiService) -> Iterator[List[_Rank]]:
    made = [_Rank(service), _Rank(service)]
    yield made
    for rank in made:
        rank.close()


def _ids(service: PmiService) -> List[str]:
    return service.environment()["pmi_ids"].split(",")


def test_two_ranks_meet_at_a_barrier(service: PmiService, ranks: List[_Rank]) -> None:
    assert service.environment()["pmi_port"] == service.address
    for number, (rank, secret) in enumerate(zip(ranks, _ids(service), strict=True)):
        assert rank.begin(secret) == f"cmd=set rank={number}"
    ranks[0].send("cmd=barrier_in")
    ranks[0].sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        ranks[0].sock.recv(1)
    ranks[1].send("cmd=barrier_in")
    ranks[0].sock.settimeout(10)
    assert ranks[0].sock.recv(100) == b"cmd=barrier_out\n"
    assert ranks[1].receive() == "cmd=barrier_out"


def test_numbers_are_of_one_session_and_no_ranks(failures: Failures, service: PmiService) -> None:
    other = PmiService(["chief:0", "worker:0"], ServiceContext("127.0.0.1", failures), 60.0)
    other.close()
    assert not set(_ids(other)) & set(_ids(service))
    assert all(0 < int(number) < 2**31 for number in _ids(service))


def test_abort_fails_the_session_by_the_ranks_name_and_once(
    service: PmiService, failures: Failures, ranks: List[_Rank]
) -> None:
    for rank, secret in zip(ranks, _ids(service), strict=True):
        rank.begin(secret)
    ranks[1].send("cmd=abort exitcode=3 message=no_luck")
    assert failures.first() == (
        "rank 1 (worker:0) called MPI_Abort with code 3: no_luck",
        "worker:0",
        3,
    )
    ranks[0].send("cmd=abort exitcode=4")
    ranks[0].sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        ranks[0].sock.recv(1)
    assert len(failures.reported) == 1


def test_a_rank_that_dies_is_its_executors_to_judge(
    service: PmiService, failures: Failures, ranks: List[_Rank]
) -> None:
    for rank, secret in zip(ranks, _ids(service), strict=True):
        rank.begin(secret)
    ranks[1].close()
    ranks[0].send("cmd=get_appnum")
    assert ranks[0].receive() == "cmd=appnum appnum=0"
    assert failures.reported == []


def test_who_never_comes_is_named(failures: Failures) -> None:
    tasks = ["chief:0", "worker:0", "worker:1"]
    service = PmiService(tasks, ServiceContext("127.0.0.1", failures), 0.2)
    try:
        time.sleep(0.4)
        assert failures.reported == []  # no rank waits for another yet
        rank = _Rank(service)
        rank.begin(_ids(service)[1])
        reason, task, code = failures.first()
        rank.close()
    finally:
        service.close()
    assert "2 of 3 MPI ranks (chief:0, worker:1) did not call MPI_Init within 0.2 s" in reason
    assert "tony.container.registration.timeout" in reason
    assert (task, code) == ("chief:0", 1)


def test_a_stranger_waits_and_gets_no_word(
    service: PmiService, ranks: List[_Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmi_service, "_PENALTY_S", 0.3)
    started = time.monotonic()
    ranks[0].send("cmd=initack pmiid=0")
    assert ranks[0].receive() == ""
    assert time.monotonic() - started > 0.25


def test_a_silent_stranger_is_closed(service: PmiService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi_service, "_INTRODUCTION_S", 0.2)
    silent = _Rank(service)
    assert silent.receive() == ""
    silent.close()


@pytest.mark.parametrize("named", [False, True])
def test_an_endless_line_ends_the_connection(
    service: PmiService, ranks: List[_Rank], named: bool
) -> None:
    if named:
        ranks[0].begin(_ids(service)[0])
    try:
        ranks[0].sock.sendall(b"x" * 100_000)
        assert ranks[0].receive() == ""
    except (BrokenPipeError, ConnectionResetError):
        pass
    # The other one is served as before.
    assert ranks[1].begin(_ids(service)[1]) == "cmd=set rank=1"


def test_a_crowd_of_strangers_only_delays_a_rank(
    service: PmiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmi_service, "_MAX_UNKNOWN", 4)
    monkeypatch.setattr(pmi_service, "_PENALTY_S", 0.3)
    crowd = [_Rank(service) for _ in range(12)]
    for each in crowd:
        each.send("cmd=initack pmiid=1")
    rank = _Rank(service)
    assert rank.begin(_ids(service)[0]) == "cmd=set rank=0"
    for each in [*crowd, rank]:
        each.close()


def test_close_is_idempotent(failures: Failures) -> None:
    service = PmiService(["worker:0"], ServiceContext("127.0.0.1", failures), 60.0)
    service.close()
    service.close()
    assert failures.reported == []


def test_it_listens_on_an_address_for_other_hosts(failures: Failures) -> None:
    # A name may stand for 127.0.1.1 in this machine's own /etc/hosts.
    for host, where in (("node.nowhere", "0.0.0.0"), ("10.9.8.7", "0.0.0.0"),
                        ("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")):  # fmt: skip
        service = PmiService(["worker:0"], ServiceContext(host, failures), 60.0)
        assert service._listener.getsockname()[0] == where
        assert service.address.startswith(f"{host}:")
        service.close()


def test_without_a_descriptor_left_it_waits_for_one(
    service: PmiService, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_server, "_FULL_S", 0.05)
    late = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        late.connect(("127.0.0.1", int(service.address.rpartition(":")[2])))
        deadline = time.monotonic() + 30
        while service._full_until is None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert service._full_until is not None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    late.settimeout(30)
    late.sendall(f"cmd=initack pmiid={_ids(service)[0]}\n".encode())
    assert late.recv(100).startswith(b"cmd=initack")
    late.close()
    assert failures.reported == []


def test_it_may_have_broken_when_it_is_closed(failures: Failures) -> None:
    service = PmiService(["worker:0"], ServiceContext("127.0.0.1", failures), 60.0)
    service._wake_write.close()  # as its thread does when it ends
    with contextlib.suppress(OSError):  # it may have ended by now, and closed that one too
        service._wake_read.shutdown(socket.SHUT_RDWR)
    service.close()


def test_a_caller_that_meets_a_bug_of_ours_loses_its_connection_and_no_more(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: List[str] = []
    received = PmiServer.received

    def broken(self: PmiServer, connection: int, line: str) -> Sequence[Outcome]:
        if line == "odd":
            raise KeyError("a bug")
        return received(self, connection, line)

    monkeypatch.setattr(PmiServer, "received", broken)
    context = ServiceContext("127.0.0.1", failures, logged.append)
    service = PmiService(["chief:0"], context, 60.0)
    try:
        odd, rank = _Rank(service), _Rank(service)
        odd.send("odd")
        assert odd.sock.recv(100) == b""
        assert rank.begin(_ids(service)[0]) == "cmd=set rank=0"
        odd.close()
        rank.close()
    finally:
        service.close()
    assert len(logged) == 1 and "KeyError: 'a bug'" in logged[0] and "tony-pmi" in logged[0]
    assert not failures.reported
