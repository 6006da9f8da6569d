"""Calls over real sockets: retries, failover, deadlines and their words."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, Iterator, List

import pytest

from tests.hadoop.server import SILENCE, Call, Failure, Raw, Reply, Server
from tony_core.hadoop.errors import (
    AccessDenied,
    Busy,
    Closed,
    DeadlineExceeded,
    ProtocolError,
    RemoteError,
    Unreachable,
)
from tony_core.hadoop.rpc import connection as connections
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.service import CallTimeouts, Failover, Method, Service
from tony_core.hadoop.rpc.wire import User
from tony_core.hadoop.yarn.messages.yarn import NodeId, Priority

ECHO = Method("echo", NodeId, NodeId)
ONCE = Method("once", NodeId, NodeId, repeatable=False)

_STANDBY = Failure("org.apache.hadoop.ipc.StandbyException", "I stand by")


def echo(call: Call) -> Reply:
    return NodeId.decode(call.body)


def first(*replies: Reply) -> Callable[[Call], Reply]:
    """These to the first calls, then echo."""
    left = list(replies)
    return lambda call: left.pop(0) if left else echo(call)


@pytest.fixture
def open_service() -> Iterator[Callable[..., Service]]:
    opened: List[Service] = []

    def make(*addresses: Address, note: str = "", **limits: float) -> Service:
        found = Endpoints("the test server", addresses, note)
        pauses = Failover(len(addresses), first_pause=0.01, longest_pause=0.05)
        service = Service(
            found,
            "proto",
            User("alice"),
            limits=CallTimeouts(**{"total_s": 5.0, **limits}),
            failover=pauses,
        )
        opened.append(service)
        return service

    yield make
    for service in opened:
        service.close()


@pytest.fixture
def closed_port() -> Iterator[Address]:
    """An address where nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield Address("127.0.0.1", sock.getsockname()[1])


MakeService = Callable[..., Service]


class TestCalls:
    def test_an_answer(self, open_service: MakeService) -> None:
        with Server(echo) as server:
            service = open_service(server.address)
            assert service.call(ECHO, NodeId(host="a")) == NodeId(host="a")
            assert service.call(ECHO, NodeId(port=7)) == NodeId(port=7)
            service.close()
        assert [call.connection for call in server.calls] == [1, 1]
        assert {call.user for call in server.calls} == {"alice"}
        assert len({call.call_id for call in server.calls}) == 2

    def test_a_refusal_keeps_the_connection(self, open_service: MakeService) -> None:
        text = "java.io.IOException: no\n\tat org.Foo.bar(Foo.java:1)\n\tat org.Foo"
        with Server(first(Failure("java.io.IOException", text))) as server:
            service = open_service(server.address)
            with pytest.raises(RemoteError) as caught:
                service.call(ECHO, NodeId())
            error = caught.value
            assert str(error) == f"{server.address} answered to echo: no (IOException)"
            assert error.trace == text
            service.call(ECHO, NodeId())
            service.close()
        assert server.accepted == 1

    def test_a_fatal_refusal_ends_it(self, open_service: MakeService) -> None:
        denied = Failure("org.apache.hadoop.security.AccessControlException", "no", fatal=True)
        with Server(first(denied)) as server:
            service = open_service(server.address)
            with pytest.raises(AccessDenied):
                service.call(ECHO, NodeId())
            service.call(ECHO, NodeId())
            service.close()
        assert server.accepted == 2

    def test_an_answer_that_is_no_message(self, open_service: MakeService) -> None:
        with Server(lambda call: NodeId(host="x" * 20)) as server:
            service = open_service(server.address)
            wrong = Method("echo", NodeId, Priority)
            service.call(wrong, NodeId())  # unknown fields are skipped
            service.close()
        with Server(lambda call: Raw(b"\0\0\0\2\xff\xff")) as server:
            service = open_service(server.address)
            with pytest.raises(ProtocolError, match=str(server.address)):
                service.call(ECHO, NodeId())
            service.close()


class TestRetries:
    def test_a_broken_connection(self, open_service: MakeService) -> None:
        """The same call again, and it says that it is not the first time."""
        with Server(first(Raw(), Raw())) as server:
            service = open_service(server.address)
            service.call(ECHO, NodeId())
            service.close()
        assert [call.retry for call in server.calls] == [0, 1, 2]
        assert len({(call.call_id, call.client_id) for call in server.calls}) == 1

    def test_what_must_not_happen_twice_is_not_sent_twice(self, open_service: MakeService) -> None:
        with Server(first(Raw())) as server:
            service = open_service(server.address)
            with pytest.raises(Unreachable) as caught:
                service.call(ONCE, NodeId())
            assert caught.value.sent
            service.close()
        assert len(server.calls) == 1

    def test_a_connection_that_was_closed_while_idle(self, open_service: MakeService) -> None:
        with Server(echo) as server:
            service = open_service(server.address)
            service.call(ONCE, NodeId())
            server.drop_connections()
            service.call(ONCE, NodeId())
            service.close()
        assert [call.retry for call in server.calls] == [0, 0]

    def test_a_server_that_is_busy(self, open_service: MakeService) -> None:
        busy = Failure("org.apache.hadoop.ipc.RetriableException", "later")
        with Server(first(busy, busy)) as server:
            service = open_service(server.address)
            service.call(ECHO, NodeId())
            service.close()
        assert [call.connection for call in server.calls] == [1, 1, 1]

    def test_a_server_that_stays_busy(self, open_service: MakeService) -> None:
        busy = Failure("org.apache.hadoop.ipc.RetriableException", "later")
        with Server(lambda call: busy) as server:
            service = open_service(server.address)
            with pytest.raises(Busy, match="later"):
                service.call(ECHO, NodeId(), within_s=0.2)
            service.close()

    def test_a_server_that_comes_back(self, open_service: MakeService) -> None:
        with Server(echo) as before:
            service = open_service(before.address)
            service.call(ECHO, NodeId())
        with pytest.raises(Unreachable, match="connection refused"):
            service.call(ECHO, NodeId(), within_s=0.2)
        with Server(echo, port=before.address.port):
            service.call(ECHO, NodeId())
            service.close()


class TestPairs:
    def test_the_standby_leads_to_the_active_one(self, open_service: MakeService) -> None:
        with Server(lambda call: _STANDBY) as standby, Server(echo) as active:
            service = open_service(standby.address, active.address)
            service.call(ECHO, NodeId())
            service.call(ECHO, NodeId())
            service.close()
        assert len(standby.calls) == 1
        assert len(active.calls) == 2

    def test_one_that_is_down(self, open_service: MakeService, closed_port: Address) -> None:
        with Server(echo) as active:
            service = open_service(closed_port, active.address)
            service.call(ECHO, NodeId())
            assert service.address == active.address
            service.close()

    def test_one_that_is_silent(self, open_service: MakeService) -> None:
        with Server(lambda call: SILENCE) as silent, Server(echo) as active:
            service = open_service(silent.address, active.address, answer_s=0.2)
            service.call(ECHO, NodeId())
            service.close()

    def test_both_down_is_reported_of_each(
        self, open_service: MakeService, closed_port: Address
    ) -> None:
        other = Address("no-such-host.invalid", 1)
        service = open_service(closed_port, other, note="Looked in /etc")
        with pytest.raises(Unreachable) as caught:
            service.call(ECHO, NodeId(), within_s=0.3)
        words = str(caught.value)
        assert "the test server cannot be reached for echo" in words
        assert f"{closed_port}: connection refused" in words
        assert "no-such-host.invalid:1: this name is not known" in words
        assert words.endswith(". Looked in /etc")


class TestDeadlines:
    def test_no_answer(self, open_service: MakeService) -> None:
        with Server(lambda call: SILENCE) as server:
            service = open_service(server.address)
            started = time.monotonic()
            with pytest.raises(
                DeadlineExceeded, match=f"no answer from {server.address}"
            ) as caught:
                service.call(ECHO, NodeId(), within_s=0.3)
            assert time.monotonic() - started < 40
            assert caught.value.sent
            service.close()

    def test_another_call_in_the_way(self, open_service: MakeService) -> None:
        with Server(lambda call: SILENCE) as server:
            service = open_service(server.address)
            seen: List[BaseException] = []

            def wait() -> None:
                try:
                    service.call(ECHO, NodeId(), within_s=5)
                except Closed as error:
                    seen.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            while not server.calls:
                time.sleep(0.01)
            with pytest.raises(DeadlineExceeded, match="another call is still under way"):
                service.call(ECHO, NodeId(), within_s=0.1)
            service.close()
            thread.join(60)
            assert [str(error) for error in seen] == ["the test server was closed during echo"]

    def test_a_waiting_call_reports_its_wait(
        self, open_service: MakeService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "PING_S", 0.05)
        with Server(lambda call: SILENCE) as server:
            service = open_service(server.address)
            with pytest.raises(DeadlineExceeded):
                service.call(ECHO, NodeId(), within_s=0.4)
            assert server.pings >= 3
            service.close()

    def test_closing_ends_a_pause(self, open_service: MakeService, closed_port: Address) -> None:
        service = open_service(closed_port)
        timer = threading.Timer(0.2, service.close)
        timer.start()
        with pytest.raises(Closed):
            service.call(ECHO, NodeId(), within_s=30)
        timer.join()
        with pytest.raises(Closed):
            service.call(ECHO, NodeId())


class TestTokens:
    def test_another_identity_is_another_connection(self, open_service: MakeService) -> None:
        with Server(echo) as server:
            service = open_service(server.address)
            service.call(ECHO, NodeId())
            service.use(User("bob"))
            service.call(ECHO, NodeId())
            service.use(User("bob"))
            service.call(ECHO, NodeId())
            service.close()
        assert [(call.user, call.connection) for call in server.calls] == [
            ("alice", 1),
            ("bob", 2),
            ("bob", 2),
        ]
