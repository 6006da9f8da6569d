"""A server that has not proved that it knows the token: nothing that it says counts."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Sequence

import pytest
from hypothesis import strategies as st

from tests.cluster.fakeyarn.wire import ServerWire
from tests.fuzzing import fuzz, mutations
from tony_core.hadoop.errors import (
    AuthenticationError,
    CredentialRefused,
    HadoopError,
    RemoteError,
    Unreachable,
)
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.messages import RpcResponseHeader, RpcSasl, SaslAuth
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.rpc.sasl import DigestMd5
from tony_core.hadoop.rpc.service import CallTimeouts, Failover, Method, Service
from tony_core.hadoop.rpc.wire import Wire
from tony_core.hadoop.tokens import AM_RM, NM, RM_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages import master_calls, yarn
from tony_core.hadoop.yarn.messages.client_calls import GetNewApplicationRequest
from tony_core.hadoop.yarn.node_manager import NodeManager
from tony_core.hadoop.yarn.rm_master import RmMaster

ATTEMPT = AttemptId(ApplicationId(1_700_000_000_000, 42), 1)
TOKEN = Token(
    yarn.AMRMTokenIdentifier(app_attempt_id=ATTEMPT.to_message()).encode(), b"secret", AM_RM
)
CHALLENGE = b'realm="default",nonce="n",qop="%s",charset=utf-8,algorithm=md5-sess,cipher="rc4"'
SASL, NO_CALL = -33, -1
ASK = GetNewApplicationRequest()


def packet(*messages: Message, tail: bytes = b"") -> bytes:
    body = b"".join(message.delimited() for message in messages) + tail
    return len(body).to_bytes(4, "big") + body


def header(call_id: int, **more: Any) -> RpcResponseHeader:
    return RpcResponseHeader(call_id=call_id & 0xFFFFFFFF, status=0).replace(**more)


def sasl_answer(state: int, token: bytes = b"", auths: Sequence[SaslAuth] = ()) -> bytes:
    message = RpcSasl(state=state, auths=tuple(auths))
    return packet(header(SASL), message.replace(token=token) if token else message)


def offer(qop: bytes = b"auth", method: str = "TOKEN", mechanism: str = "DIGEST-MD5") -> bytes:
    challenge = CHALLENGE % qop
    auth = SaslAuth(method=method, mechanism=mechanism, server_id="default", challenge=challenge)
    return sasl_answer(1, auths=[auth])


def container() -> yarn.Container:
    identifier = ContainerId(ATTEMPT, 2)
    return yarn.Container(
        id=identifier.to_message(),
        node_id=NodeId("evil", 1).to_message(),
        resource=yarn.Resource(memory=1, virtual_cores=1),
    )


GIVEN = master_calls.AllocateResponse(response_id=1, allocated_containers=[container()])
TRUE = master_calls.AllocateResponse(response_id=1, num_cluster_nodes=7)
SHUTDOWN = master_calls.AllocateResponse(response_id=1, a_m_command=2)


def answers(message: Message) -> bytes:
    """To any call that may have been made."""
    return b"".join(packet(header(number), message) for number in range(3))


def refuses(call_id: int, remote_class: str, *, fatal: bool) -> bytes:
    return packet(
        header(
            call_id,
            status=2 if fatal else 1,
            exception_class_name=remote_class,
            error_msg=f"{ATTEMPT} not found",
        )
    )


NOT_FOUND = "org.apache.hadoop.yarn.exceptions.ApplicationAttemptNotFoundException"
INVALID = "org.apache.hadoop.security.token.SecretManager$InvalidToken"

LIES = {
    "containers before the handshake": answers(GIVEN),
    "an order to end before the handshake": answers(SHUTDOWN),
    "containers after the challenge": offer() + answers(GIVEN),
    "success without a challenge": sasl_answer(0) + answers(GIVEN),
    "success without a proof": offer() + sasl_answer(0) + answers(GIVEN),
    "success with an empty proof": offer() + sasl_answer(0, b"rspauth=") + answers(GIVEN),
    "success with another proof": offer()
    + sasl_answer(0, b"rspauth=" + b"0" * 32)
    + answers(GIVEN),
    "a challenge that proves nothing": offer()
    + sasl_answer(3, b"rspauth=" + b"0" * 32)
    + sasl_answer(0),
    "a second offer": offer() + offer() + sasl_answer(0),
    "a refusal of the call": refuses(0, NOT_FOUND, fatal=False),
    "a fatal refusal of the call": refuses(0, NOT_FOUND, fatal=True),
    "a fatal refusal of the connection": refuses(NO_CALL, NOT_FOUND, fatal=True),
    "a refusal of the handshake": refuses(SASL, INVALID, fatal=True),
    "a refusal of the handshake that goes on": refuses(SASL, NOT_FOUND, fatal=False),
    "a refusal after the challenge": offer() + refuses(SASL, INVALID, fatal=True),
    "an answer to a control call": packet(header(-3)),
    "simple in place of tokens": offer(method="SIMPLE", mechanism=""),
    "a protected packet": sasl_answer(5, b"x" * 40),
    "a web server": b"HTTP/1.1 200 OK\r\n\r\n",
    "no message": b"\0\0\0\2\xff\xff",
    "a packet without an end": b"\0\x20\0\0" + b"x" * 4096,
}


@contextmanager
def serving(script: Callable[[socket.socket], None]) -> Iterator[Address]:
    """A server that does this with each connection, until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: List[socket.socket] = []
    threads: List[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        try:
            script(sock)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            opened.append(sock)
            threads.append(threading.Thread(target=serve, args=(sock,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield Address(*listener.getsockname()[:2])
    finally:
        for sock in (listener, *opened):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        accepting.join(60)
        for thread in threads:
            thread.join(60)
        for sock in (listener, *opened):
            sock.close()


def liar(data: bytes) -> Callable[[socket.socket], None]:
    def script(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(data)
        while sock.recv(4096):
            pass

    return script


def honest(qop: str = "auth", answer: Message = TRUE) -> Callable[[socket.socket], None]:
    def script(sock: socket.socket) -> None:
        wire = ServerWire(lambda identifier: TOKEN.password, qop=qop)
        while not wire.over:
            data = sock.recv(4096)
            if not data:
                return
            for call in wire.receive(data):
                wire.answer(call, answer)
            sock.sendall(wire.outgoing())

    return script


#: One attempt: the next would begin after the deadline.
ONCE = Failover(1, first_pause=100, longest_pause=100, jitter=lambda: 1.0)


def master(*addresses: Address, once: bool = False, **more: Any) -> RmMaster:
    limits = CallTimeouts(connect_s=10.0, answer_s=10.0)
    rm = RmMaster.open(Endpoints("the ResourceManager", addresses), TOKEN, limits=limits, **more)
    often = Failover(len(addresses), first_pause=0.02, longest_pause=0.1)
    rm.service._failover = ONCE if once else often
    return rm


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_nothing_from_it_is_believed(lie: bytes) -> None:
    """It is trouble with a connection, whatever it says: no word of the cluster's."""
    with serving(liar(lie)) as address:
        rm = master(address, once=True)
        with pytest.raises(Unreachable) as caught:
            rm.allocate(within_s=20)
        rm.close()
    assert not isinstance(caught.value, RemoteError)
    assert not caught.value.sent
    assert str(address) in str(caught.value)


@pytest.mark.parametrize(
    "lie", ["containers before the handshake", "a refusal of the handshake", "no message"]
)
def test_the_true_server_is_asked_next(lie: str) -> None:
    with serving(liar(LIES[lie])) as stranger, serving(honest()) as active:
        rm = master(stranger, active)
        assert rm.allocate(within_s=20).cluster_nodes == 7
        rm.close()


@pytest.mark.parametrize("offered", ["auth", "auth-int", "auth,auth-int"])
def test_less_protection_than_the_site_wants(offered: str) -> None:
    with serving(liar(offer(offered.encode()))) as address:
        rm = master(address, once=True, allowed=("auth-conf",))
        with pytest.raises(AuthenticationError, match=r"hadoop\.rpc\.protection differs"):
            rm.allocate(within_s=20)
        rm.close()


BARE = {
    "an answer": lambda call_id: packet(header(call_id), SHUTDOWN),
    "a refusal": lambda call_id: refuses(call_id, NOT_FOUND, fatal=False),
    "a fatal refusal": lambda call_id: refuses(NO_CALL, NOT_FOUND, fatal=True),
    "a refusal as of the handshake": lambda call_id: refuses(SASL, NOT_FOUND, fatal=False),
    "a fatal refusal as of the handshake": lambda call_id: refuses(SASL, NOT_FOUND, fatal=True),
}


@pytest.mark.parametrize("bare", BARE.values(), ids=BARE.keys())
@pytest.mark.parametrize("qop", ["auth-int", "auth-conf"])
def test_a_bare_answer_after_protection_was_agreed(qop: str, bare: Callable[[int], bytes]) -> None:
    """A man in the middle adds an answer of his own; only the server's counts."""
    first = [True]

    def script(sock: socket.socket) -> None:
        wire = ServerWire(lambda identifier: TOKEN.password, qop=qop)
        while True:
            data = sock.recv(4096)
            if not data:
                return
            for call in wire.receive(data):
                if first.pop() if first else False:
                    sock.sendall(bare(call.call_id))
                wire.answer(call, TRUE)
            sock.sendall(wire.outgoing())

    with serving(script) as address:
        rm = master(address)
        allocation = rm.allocate(within_s=20)
        rm.close()
    assert (allocation.command, allocation.cluster_nodes) == ("", 7)


def calls_of_a_user(address: Address, identity: Any, **more: Any) -> Service:
    endpoints = Endpoints("the ResourceManager", (address,), "its address", **more)
    return Service(endpoints, "proto", identity)


def test_a_token_that_was_cancelled_is_refused_at_once() -> None:
    """The remedy stands in the message, not the note about the server's address."""
    token = Token(b"id", b"secret", RM_DELEGATION, "h:8032").to_message()
    refusal = packet(
        header(SASL, status=2, exception_class_name=INVALID, error_msg="token not in cache")
    )
    with serving(liar(offer() + refusal)) as address:
        service = calls_of_a_user(address, token)
        with pytest.raises(CredentialRefused) as caught:
            service.call(Method("ask", GetNewApplicationRequest, GetNewApplicationRequest), ASK)
        service.close()
    assert str(caught.value) == (
        f"{address}: the server does not know the RM_DELEGATION_TOKEN for h:8032 (token not in"
        " cache): it was cancelled, or has expired. Obtain new tokens in the file that"
        " HADOOP_TOKEN_FILE_LOCATION names, or unset that variable and use a ticket (kinit)"
    )


def test_another_principal_names_its_property() -> None:
    class Login:
        def authenticate(self, principal: str) -> Any:
            return self

        def step(self, token: bytes = b"") -> bytes:
            return b"ours"

    kerberos = SaslAuth(method="KERBEROS", mechanism="GSSAPI", protocol="rm", server_id="h")
    refusal = packet(
        header(
            SASL,
            status=2,
            exception_class_name="javax.security.sasl.SaslException",
            error_msg="GSS initiate failed",
        )
    )
    with serving(liar(sasl_answer(1, auths=[kerberos]) + refusal)) as address:
        more = {"principals": ("nn/h@R",), "principal_note": "KEY is nn/_HOST@R"}
        service = calls_of_a_user(address, Login(), **more)
        with pytest.raises(CredentialRefused) as caught:
            service.call(Method("ask", GetNewApplicationRequest, GetNewApplicationRequest), ASK)
        service.close()
    assert str(caught.value) == (
        f"{address}: the server takes no ticket for nn/h@R; it says that it is rm/h."
        " KEY is nn/_HOST@R"
    )


def test_a_node_is_not_believed_either() -> None:
    started = packet(header(0), tail=b"\0")
    with serving(liar(started)) as address:
        token = Token(b"identifier", b"secret", NM)
        limits = CallTimeouts(connect_s=10.0, answer_s=10.0)
        node = NodeManager(NodeId(address.host, address.port), token, limits=limits)
        node.service._failover = ONCE
        with pytest.raises(AuthenticationError, match="before it has proved who it is"):
            node.start([(token, Launch(("true",)))], within_s=20)
        node.close()


@fuzz(data=mutations(*LIES.values(), offer() + sasl_answer(0, b"rspauth=" + b"0" * 32)))
def test_any_bytes_before_the_proof_are_an_error(data: bytes) -> None:
    """Never an event: their sender has not proved anything."""
    wire = Wire("proto", b"c" * 16, TOKEN.to_message())
    try:
        assert wire.receive(data) == []
    except HadoopError:
        pass
    assert not wire.ready


@fuzz(
    data=mutations(CHALLENGE % b"auth", CHALLENGE % b"auth-conf,auth-int", b"rspauth=0"),
    last=mutations(b"rspauth=" + b"0" * 32),
    token=st.binary(max_size=60),
)
def test_any_challenge_is_answered_or_an_error(data: bytes, last: bytes, token: bytes) -> None:
    sasl = DigestMd5(b"user", b"secret", "/default")
    try:
        sasl.respond(data)
        sasl.verify(last)
    except HadoopError:
        pass
    assert not sasl.proven
    if sasl.protects:
        with pytest.raises(HadoopError):
            sasl.unwrap(token)


def test_what_comes_before_the_proof_is_short() -> None:
    with serving(liar((64 << 20).to_bytes(4, "big"))) as address:
        rm = master(address, once=True)
        with pytest.raises(HadoopError, match="67108864 bytes"):
            rm.allocate(within_s=20)
        rm.close()
