"""RPC with a real KDC's tickets: honest servers, strangers, and men in the middle."""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable, List, Tuple

import pytest

from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.kdc import Kdc
from tests.hadoop.kerberos.acceptor import Acceptor
from tests.hadoop.rpc.test_sasl_gssapi import kerberos_offer
from tests.hadoop.rpc.test_unproven_server import ONCE, header, packet, sasl_answer, serving
from tony_core.hadoop.errors import AuthenticationError, HadoopError, RemoteError, Unreachable
from tony_core.hadoop.kerberos.gssapi import GssError
from tony_core.hadoop.kerberos.login import Login
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.messages import RequestHeader, RpcRequestHeader, RpcSasl
from tony_core.hadoop.rpc.protobuf import read_delimited
from tony_core.hadoop.rpc.service import CallTimeouts, Method, Service
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.messages.client_calls import (
    GetNewApplicationRequest,
    GetNewApplicationResponse,
)

pytestmark = pytest.mark.cluster

SUCCESS, NEGOTIATE, INITIATE, CHALLENGE, RESPONSE, WRAP = range(6)
NEW = Method("getNewApplication", GetNewApplicationRequest, GetNewApplicationResponse)
ANSWER = GetNewApplicationResponse(
    application_id=yarn.ApplicationId(id=7, cluster_timestamp=1_700_000_000_000)
)
QOPS = {1: "auth", 2: "auth-int", 4: "auth-conf"}


class Server:
    """A server of Hadoop with the keys of a keytab; one connection. ``clients`` it has seen."""

    def __init__(
        self, keytab: str, layers: int = 7, longest: int = 1 << 16, name: str = "localhost"
    ) -> None:
        self.keytab = keytab
        self.name = name
        self.layers = layers
        self.longest = longest
        self.clients: List[str] = []
        self.methods: List[str] = []
        self.qop = 0

    def __call__(self, sock: socket.socket) -> None:
        acceptor = Acceptor(self.keytab)
        try:
            self._serve(sock, acceptor)
        except GssError:
            error = "javax.security.sasl.SaslException"
            refusal = header(-33, status=2, exception_class_name=error)
            sock.sendall(packet(refusal.replace(error_msg=f"{error}: GSS initiate failed")))
        except EOFError:
            pass
        finally:
            acceptor.close()
            sock.close()

    def _serve(self, sock: socket.socket, acceptor: Acceptor) -> None:
        read_exactly(sock, 7)
        inner = b""
        offered = False
        while True:
            size = int.from_bytes(read_exactly(sock, 4), "big")
            data = read_exactly(sock, size)
            head, at = read_delimited(data, 0)
            if RpcRequestHeader.decode(head).call_id not in (-33, (-33) & 0xFFFFFFFF):
                self._answer(sock, data, lambda answer: answer)
                continue
            sasl = RpcSasl.decode(read_delimited(data, at)[0])
            if sasl.state == NEGOTIATE:
                sock.sendall(kerberos_offer(server_id=self.name))
            elif sasl.state == INITIATE:
                sock.sendall(sasl_answer(CHALLENGE, acceptor.step(sasl.token)))
                self.clients.append(acceptor.client)
            elif sasl.state == RESPONSE and not offered:
                assert sasl.token == b""
                offered = True
                offer = bytes((self.layers,)) + self.longest.to_bytes(3, "big")
                sock.sendall(sasl_answer(CHALLENGE, acceptor.wrap(offer, False)))
            elif sasl.state == RESPONSE:
                self.qop = acceptor.unwrap(sasl.token)[0][0]
                sock.sendall(sasl_answer(SUCCESS))
            else:
                assert len(sasl.token) <= self.longest
                inner += acceptor.unwrap(sasl.token)[0]
                while len(inner) >= 4 and len(inner) >= 4 + int.from_bytes(inner[:4], "big"):
                    end = 4 + int.from_bytes(inner[:4], "big")
                    self._answer(sock, inner[4:end], lambda data: self._wrap(acceptor, data))
                    inner = inner[end:]

    def _wrap(self, acceptor: Acceptor, data: bytes) -> bytes:
        return sasl_answer(WRAP, acceptor.wrap(data, self.qop == 4))

    def _answer(self, sock: socket.socket, data: bytes, protect: Callable[[bytes], bytes]) -> None:
        head, at = read_delimited(data, 0)
        call = RpcRequestHeader.decode(head)
        if call.call_id < 1 << 31 and call.call_id >= 0:
            self.methods.append(RequestHeader.decode(read_delimited(data, at)[0]).method_name)
            sock.sendall(protect(packet(header(call.call_id), ANSWER)))


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def call(address: Address, login: Login, **more: Any) -> GetNewApplicationResponse:
    found = Endpoints("the ResourceManager", (address,), principals=(f"rm/localhost@{REALM}",))
    limits = CallTimeouts(connect_s=10.0, answer_s=10.0)
    with Service(found, "proto", login, limits=limits, failover=ONCE, **more) as service:
        return service.call(NEW, GetNewApplicationRequest(), within_s=20)


@pytest.fixture
def ann(kdc: Kdc) -> Login:
    return Login.from_ticket_cache(str(kdc.kerberos.kinit("ann")))


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 7])
def test_an_honest_server(kdc: Kdc, ann: Login, layers: int) -> None:
    server = Server(kdc.keytab_of("rm"), layers)
    with serving(server) as address:
        assert call(address, ann) == ANSWER
    assert server.clients == [f"ann@{REALM}"]
    assert QOPS[server.qop] == {1: "auth", 2: "auth-int", 3: "auth-int"}.get(layers, "auth-conf")


def test_a_server_that_takes_short_messages(kdc: Kdc, ann: Login) -> None:
    server = Server(kdc.keytab_of("rm"), 4, longest=128)
    with serving(server) as address:
        assert call(address, ann) == ANSWER


def test_less_protection_than_the_site_wants(kdc: Kdc, ann: Login) -> None:
    server = Server(kdc.keytab_of("rm"), 3)
    differs = pytest.raises(AuthenticationError, match=r"hadoop\.rpc\.protection differs")
    with serving(server) as address, differs:
        call(address, ann, allowed=("auth-conf",))
    assert server.methods == []


@pytest.mark.parametrize(
    ("name", "cause"), [("localhost", "has another key"), ("h2", "it says that it is rm/h2")]
)
def test_the_key_of_another_service(kdc: Kdc, ann: Login, name: str, cause: str) -> None:
    """It has a key of the KDC's, and not the one that the site's configuration names."""
    server = Server(kdc.keytab_of("nn"), name=name)
    refuses = pytest.raises(AuthenticationError, match=f"rm/localhost@{REALM}.*{cause}")
    with serving(server) as address, refuses:
        call(address, ann)
    assert server.methods == []


@pytest.mark.parametrize("proof", [b"", b"proof", b"\x60\x10" + b"\0" * 16])
def test_a_stranger_without_a_key(kdc: Kdc, ann: Login, proof: bytes) -> None:
    """It takes every ticket, and answers as if it could read it."""
    seen: List[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(kerberos_offer())
        sock.recv(1 << 16)
        answer = packet(header(0), ANSWER)
        sock.sendall(
            sasl_answer(CHALLENGE, proof)
            + sasl_answer(CHALLENGE, b"\x01\0\0\0")
            + sasl_answer(SUCCESS)
            + answer
        )
        seen.append(sock.recv(1 << 16))

    with serving(script) as address, pytest.raises(Unreachable) as caught:
        call(address, ann)
    assert not isinstance(caught.value, RemoteError)
    assert not any(b"getNewApplication" in data for data in seen)


def test_a_proof_from_another_handshake(kdc: Kdc, ann: Login) -> None:
    """What the true server has once answered proves nothing to the next client."""
    acceptor = Acceptor(kdc.keytab_of("rm"))
    recorded = acceptor.step(ann.authenticate(f"rm/localhost@{REALM}").step())
    acceptor.close()

    def script(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(kerberos_offer())
        sock.recv(1 << 16)
        sock.sendall(sasl_answer(CHALLENGE, recorded) + sasl_answer(SUCCESS))
        sock.recv(1 << 16)

    unproven = pytest.raises(AuthenticationError, match="has not proved that it is rm/localhost")
    with serving(script) as address, unproven:
        call(address, ann)


def relay(server: Address, change: Callable[[int, bytes], bytes]) -> Callable[[Any], None]:
    """A man in the middle: passes all on, and changes the server's packets by their number."""

    def script(client: socket.socket) -> None:
        with socket.create_connection(server, timeout=30) as upstream:

            def upwards() -> None:
                try:
                    while True:
                        data = client.recv(1 << 16)
                        if not data:
                            break
                        upstream.sendall(data)
                except OSError:
                    pass
                finally:
                    try:
                        upstream.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

            thread = threading.Thread(target=upwards)
            thread.start()
            try:
                number = 0
                while True:
                    head = read_exactly(upstream, 4)
                    body = read_exactly(upstream, int.from_bytes(head, "big"))
                    client.sendall(change(number, head + body))
                    number += 1
            except (EOFError, OSError):
                pass
            finally:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                thread.join(30)

    return script


def flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def changing(which: int, change: Callable[[bytes], bytes]) -> Callable[[int, bytes], bytes]:
    return lambda number, data: change(data) if number == which else data


ATTACKS = {
    "the proof is altered": (7, changing(1, flip_last)),
    "the offer of protections is altered": (7, changing(2, flip_last)),
    "no protection is offered instead": (
        7,
        changing(2, lambda data: sasl_answer(CHALLENGE, b"\x01\0\0\0")),
    ),
    "success comes before the offer": (7, changing(2, lambda data: sasl_answer(SUCCESS))),
    "a signed answer is altered": (2, changing(4, flip_last)),
    "an encrypted answer is altered": (4, changing(4, flip_last)),
    "an answer is put in the place of a signed one": (
        2,
        changing(4, lambda data: packet(header(0), ANSWER)),
    ),
    "an answer is put in the place of an encrypted one": (
        4,
        changing(4, lambda data: packet(header(0), ANSWER)),
    ),
    "tokens are offered instead of tickets": (
        7,
        changing(0, lambda data: kerberos_offer(method="TOKEN", mechanism="DIGEST-MD5")),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_man_in_the_middle(kdc: Kdc, ann: Login, attack: Any) -> None:
    layers, change = attack
    with (
        serving(Server(kdc.keytab_of("rm"), layers)) as server,
        serving(relay(server, change)) as address,
        pytest.raises(HadoopError) as caught,
    ):
        call(address, ann)
    assert isinstance(caught.value, AuthenticationError), caught.value


def test_who_only_passes_on_learns_nothing_of_an_encrypted_call(kdc: Kdc, ann: Login) -> None:
    passed: List[bytes] = []

    def listen(number: int, data: bytes) -> bytes:
        passed.append(data)
        return data

    with (
        serving(Server(kdc.keytab_of("rm"), 4)) as server,
        serving(relay(server, listen)) as address,
    ):
        assert call(address, ann) == ANSWER
    assert not any(ANSWER.encode() in data for data in passed)


@pytest.mark.parametrize("confidential", [False, True])
@pytest.mark.parametrize(
    "order", [(0, 0), (1,), (0, 2), (0, 1, 0)], ids=["twice", "gap at first", "gap", "again"]
)
def test_sealed_messages_come_once_and_in_their_order(
    kdc: Kdc, ann: Login, confidential: bool, order: Tuple[int, ...]
) -> None:
    """A man in the middle cannot read one, but could send it again or leave one out."""
    acceptor = Acceptor(kdc.keytab_of("rm"))
    try:
        context = ann.authenticate(f"rm/localhost@{REALM}")
        context.step(acceptor.step(context.step()))
        sealed = [acceptor.wrap(b"%d" % number, confidential) for number in range(3)]
        for number in order[:-1]:
            assert context.unwrap(sealed[number]) == (b"%d" % number, confidential)
        with pytest.raises(AuthenticationError, match="out of its order"):
            context.unwrap(sealed[order[-1]])
    finally:
        acceptor.close()
