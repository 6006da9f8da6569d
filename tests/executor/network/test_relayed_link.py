"""A relay without the secret between two executors: neither takes the other for its master."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from tests.executor.standin import Executor
from tests.sockets import listening_ports, session_of
from tony_core.protocol.channel import HELLO_SIZE, PROOF_SIZE


class Relay:
    """Takes the master's place at a port, and passes on what comes to another port."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def caller(self) -> socket.socket:
        self.listener.settimeout(20)
        return self.listener.accept()[0]

    def close(self) -> None:
        self.listener.close()


def carry(one: socket.socket, other: socket.socket, within_s: float) -> List[bytes]:
    """Pass bytes both ways until one end closes; returns the bytes of each."""
    sent: Dict[socket.socket, bytearray] = {one: bytearray(), other: bytearray()}
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        for sock in select.select([one, other], [], [], 0.05)[0]:
            try:
                data = sock.recv(65536)
                (other if sock is one else one).sendall(data)
            except OSError:
                data = b""
            if not data:
                return [bytes(text) for text in sent.values()]
            sent[sock] += data
    pytest.fail(f"neither end closed within {within_s} s: {sent}")


def until_listening(executor: Executor) -> int:
    """The port at which the executor accepts a next master."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = listening_ports(session_of(executor.pid))
        if found:
            return found[0]
        time.sleep(0.02)
    pytest.fail("it listens at no port: " + executor.errors())


@pytest.fixture
def relay() -> Iterator[Relay]:
    made = Relay()
    yield made
    made.close()


def test_a_relay_to_another_executor_gets_no_register(tmp_path: Path, relay: Relay) -> None:
    one = Executor(tmp_path, relay.address, name="container_1")
    other = Executor(tmp_path, relay.address, name="container_2")
    try:
        called = {}
        for executor in (one, other):
            called[executor] = relay.caller()  # whichever it is
        port = until_listening(other)
        caller = called[one]
        with socket.create_connection(("127.0.0.1", port), 20) as answering:
            sent = carry(caller, answering, within_s=30)
        for sock in called.values():
            sock.close()
        # A Register would be more: it goes to a master, and to no other.
        assert all(len(text) <= HELLO_SIZE + PROOF_SIZE for text in sent), sent
    finally:
        one.close()
        other.close()


def test_a_relay_back_to_the_executor_gets_no_register(tmp_path: Path, relay: Relay) -> None:
    executor = Executor(tmp_path, relay.address)
    try:
        with relay.caller() as caller:
            port = until_listening(executor)
            with socket.create_connection(("127.0.0.1", port), 20) as answering:
                sent = carry(caller, answering, within_s=30)
        assert all(len(text) <= HELLO_SIZE + PROOF_SIZE for text in sent), sent
    finally:
        executor.close()
