"""The relay between a rank and the master's PMI server."""

import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.pmi_service import PmiService
from tony_core.protocol.reactor import Reactor
from tony_executor.network import pmi_relay
from tony_executor.network.pmi_relay import PmiRelay


class _Container:
    """A reactor on its own thread with relays of one server."""

    def __init__(self, address: str, count: int) -> None:
        self.logged: List[str] = []
        self.reactor = Reactor()
        self.relays = [PmiRelay(self.reactor, address, self.logged.append) for _ in range(count)]
        self._thread = threading.Thread(target=self.reactor.run)
        self._thread.start()

    def close(self) -> None:
        self.reactor.call_soon_threadsafe(self._end)
        self._thread.join()
        self.reactor.close()

    def _end(self) -> None:
        for relay in self.relays:
            relay.close()
            relay.close()
        self.reactor.stop()


class _Rank:
    def __init__(self, relay: PmiRelay) -> None:
        host, _, port = relay.address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=60)
        self.file = self.sock.makefile("rb")

    def exchange(self, line: str, answers: int = 1) -> List[str]:
        self.sock.sendall(line.encode() + b"\n")
        return [self.file.readline().decode().rstrip("\n") for _ in range(answers)]

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@pytest.fixture
def service() -> Iterator[PmiService]:
    context = ServiceContext("127.0.0.1", lambda reason, task, code: None)
    made = PmiService(["worker:0", "worker:1"], context, 60.0)
    yield made
    made.close()


@pytest.fixture
def container(service: PmiService) -> Iterator[_Container]:
    made = _Container(service.address, 2)
    yield made
    made.close()


@pytest.fixture
def rank(service: PmiService, container: _Container) -> Iterator[_Rank]:
    """Rank 0, begun."""
    made = _Rank(container.relays[0])
    number = service.environment()["pmi_ids"].split(",")[0]
    assert made.exchange(f"cmd=initack pmiid={number}", 4)[2] == "cmd=set rank=0"
    yield made
    made.close()


def test_commands_and_answers_pass_through(rank: _Rank) -> None:
    (name,) = rank.exchange("cmd=get_my_kvsname")
    space = name.partition("kvsname=")[2]
    assert rank.exchange(f"cmd=put kvsname={space} key=a value=b") == [
        "cmd=put_result rc=0 msg=success"
    ]
    assert rank.exchange(f"cmd=get kvsname={space} key=a") == [
        "cmd=get_result rc=0 msg=success value=b"
    ]
    assert rank.exchange("cmd=finalize") == ["cmd=finalize_ack"]


def test_without_the_master_a_rank_can_still_finish(
    service: PmiService, container: _Container, rank: _Rank
) -> None:
    service.close()
    assert rank.exchange("cmd=barrier_in") == ["cmd=barrier_out"]
    assert rank.exchange("cmd=finalize") == ["cmd=finalize_ack"]
    assert container.logged == ["the PMI server is gone; the rank may still finish"]


def test_a_rank_that_waits_when_the_master_dies_is_answered(
    service: PmiService, rank: _Rank
) -> None:
    rank.sock.sendall(b"cmd=barrier_in\n")  # the other rank is not there
    time.sleep(0.1)
    service.close()
    assert rank.file.readline() == b"cmd=barrier_out\n"


def test_without_the_master_no_rank_gets_through_mpi_init(service: PmiService, rank: _Rank) -> None:
    service.close()
    (answer,) = rank.exchange("cmd=get kvsname=k key=a")
    assert answer.startswith("cmd=get_result rc=-1")
    assert rank.exchange("cmd=get_maxes") == [""]


def test_an_abort_without_a_master_closes_the_connection(service: PmiService, rank: _Rank) -> None:
    service.close()
    assert rank.exchange("cmd=abort exitcode=3") == [""]


def test_a_stranger_is_dropped_as_the_server_drops_it(container: _Container) -> None:
    stranger = _Rank(container.relays[0])
    assert stranger.exchange("cmd=initack pmiid=0") == [""]
    stranger.close()


def test_no_server_at_all() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        container = _Container(f"127.0.0.1:{free.getsockname()[1]}", 1)
        lonely = _Rank(container.relays[0])
        assert lonely.file.readline() == b""
        assert "cannot be reached" in container.logged[0]
        lonely.close()
        container.close()


@pytest.mark.frameworks
def test_mpich_outlives_the_master(
    environment: Callable[[str], Path], service: PmiService, container: _Container
) -> None:
    program = (
        "from mpi4py import MPI\n"
        "import sys\n"
        "world = MPI.COMM_WORLD\n"
        "print('up', flush=True)\n"
        "sys.stdin.readline()\n"
        "assert world.allreduce(1) == 2\n"
    )
    numbers = service.environment()["pmi_ids"].split(",")
    ranks = [
        subprocess.Popen(
            [environment("mpi") / "bin" / "python", "-c", program],
            env={**os.environ, "PMI_PORT": relay.address, "PMI_ID": number},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for relay, number in zip(container.relays, numbers, strict=True)
    ]
    for each in ranks:
        assert each.stdout is not None and each.stdout.readline() == "up\n"
    service.close()
    for each in ranks:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in ranks:
        each.communicate(timeout=60)
    assert [each.returncode for each in ranks] == [0, 0]


def test_an_error_of_ours_closes_only_the_ranks_connection(
    container: _Container, service: PmiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces: List[str] = []
    container.reactor.log = traces.append
    receive = pmi_relay._receive

    def broken(sock: socket.socket) -> object:
        data = receive(sock)
        if data == b"odd\n":
            raise KeyError("a bug")
        return data

    monkeypatch.setattr(pmi_relay, "_receive", broken)
    odd, rank = _Rank(container.relays[0]), _Rank(container.relays[0])
    assert odd.exchange("odd") == [""]
    number = service.environment()["pmi_ids"].split(",")[0]
    assert rank.exchange(f"cmd=initack pmiid={number}", 4)[2] == "cmd=set rank=0"
    odd.close()
    rank.close()
    assert len(traces) == 1 and "KeyError: 'a bug'" in traces[0]
