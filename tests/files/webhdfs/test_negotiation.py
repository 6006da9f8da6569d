"""WebHDFS with a login: each connection to a NameNode begins with a handshake."""

from __future__ import annotations

import json
from typing import Callable, Iterator, List

import pytest

from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import url_string
from tony_core.hadoop.errors import AuthenticationError
from tony_core.hadoop.hdfs import namenode_client
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token

DONE = json.dumps({"boolean": True}).encode()

Make = Callable[..., WebHdfsFileSystem]


@pytest.fixture
def server() -> Iterator[HandshakeServer]:
    with HandshakeServer() as made:
        made.body = DONE
        yield made


@pytest.fixture
def other() -> Iterator[HandshakeServer]:
    with HandshakeServer() as made:
        made.body = DONE
        yield made


@pytest.fixture
def login() -> ScriptedLogin:
    return ScriptedLogin()


@pytest.fixture
def make(login: ScriptedLogin) -> Iterator[Make]:
    made: List[WebHdfsFileSystem] = []

    def open_files(*servers: HandshakeServer) -> WebHdfsFileSystem:
        values = {
            "fs.defaultFS": "hdfs://ns",
            "hadoop.http.authentication.type": "kerberos",
            "dfs.nameservices": "ns",
            "dfs.ha.namenodes.ns": ",".join(f"n{n}" for n, _ in enumerate(servers)),
        }
        for number, server in enumerate(servers):
            values[f"dfs.namenode.rpc-address.ns.n{number}"] = "127.0.0.1:1"
            values[f"dfs.namenode.http-address.ns.n{number}"] = server.address
        conf = SiteConfiguration.of(values)
        made.append(WebHdfsFileSystem(conf, ClusterIdentity("ann", login), patience_s=0.2))
        return made[-1]

    yield open_files
    for files in made:
        files.close()


def test_one_for_a_connection(server: HandshakeServer, make: Make, login: ScriptedLogin) -> None:
    files = make(server)
    for _ in range(3):
        files.mkdir("hdfs:///d")
    assert login.targets == ["HTTP/127.0.0.1"]
    assert {each.connection for each in server.requests} == {1}
    assert [bool(each.cookie) for each in server.requests] == [False, True, True]
    assert not any("user.name" in each.path for each in server.requests)


def test_another_connection_begins_anew(server: HandshakeServer, make: Make) -> None:
    server.closes = True
    files = make(server)
    files.mkdir("hdfs:///d")
    files.mkdir("hdfs:///d")
    assert server.greetings == [1, 2]
    assert not any(each.cookie for each in server.requests)


def test_an_expired_cookie(server: HandshakeServer, make: Make) -> None:
    files = make(server)
    files.mkdir("hdfs:///d")
    server.expire_cookies()
    files.mkdir("hdfs:///d")
    assert [bool(each.cookie) for each in server.requests] == [False, True, False]


@pytest.mark.parametrize("proof", [None, b"", b"proof of something else"])
@pytest.mark.parametrize("status", [200, 403, 404])
def test_a_stranger_is_not_believed(
    server: HandshakeServer, make: Make, proof: bytes, status: int
) -> None:
    server.prove = lambda token: proof
    server.status = status
    words = r"ns \(127.0.0.1:\d+\) did not serve us.*has not proved that it is HTTP/127.0.0.1"
    with pytest.raises(OSError, match=words):
        make(server).mkdir("hdfs:///d")


def test_of_a_pair_the_one_that_proves_itself_serves(
    server: HandshakeServer, other: HandshakeServer, make: Make
) -> None:
    server.prove = lambda token: b"proof of something else"
    make(server, other).mkdir("hdfs:///d")
    assert len(other.requests) == 1


def test_a_refusal(server: HandshakeServer, make: Make) -> None:
    server.prove = lambda token: None
    server.status = 401
    with pytest.raises(OSError):
        make(server).mkdir("hdfs:///d")


def test_without_a_ticket_it_fails_at_once(
    server: HandshakeServer, make: Make, login: ScriptedLogin
) -> None:
    login.broken = "no Kerberos ticket"
    with pytest.raises(PermissionError, match="no Kerberos ticket"):
        make(server).mkdir("hdfs:///d")
    assert server.requests == []


def test_where_web_servers_do_not_negotiate(
    server: HandshakeServer, login: ScriptedLogin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the NameNode's RPC, where both sides prove who they are, is shown instead."""
    obtained: List[object] = []

    def obtain(*words: object) -> Token:
        obtained.append(words[-1])
        return Token(b"who", b"password", HDFS_DELEGATION, "127.0.0.1:8020")

    monkeypatch.setattr(namenode_client, "obtain_token", obtain)
    server.asks = False
    conf = SiteConfiguration.of(
        {"fs.defaultFS": "hdfs://127.0.0.1:8020", "dfs.namenode.http-address": server.address}
    )
    files = WebHdfsFileSystem(conf, ClusterIdentity("ann", login))
    files.mkdir("hdfs:///d")
    files.mkdir("hdfs:///d")
    files.close()
    assert obtained == ["ann"], "one for all calls"
    token = url_string(Token(b"who", b"password", HDFS_DELEGATION, "127.0.0.1:8020"))
    for each in server.requests:
        assert f"delegation={token}" in each.path
        assert "user.name" not in each.path
        assert (each.authorization, each.cookie) == ("", "")


def test_a_redirect_takes_neither_login_nor_cookie(
    server: HandshakeServer, other: HandshakeServer, make: Make
) -> None:
    """The NameNode puts a token of its own into the DataNode's address."""
    files = make(server)
    files.mkdir("hdfs:///d")
    server.status = 307
    server.headers = {"Location": f"http://{other.address}/webhdfs/v1/f?op=OPEN&delegation=T"}
    other.asks, other.body = False, b"content"
    assert files.get("hdfs:///f") == b"content"
    (asked,) = other.requests
    assert (asked.authorization, asked.cookie) == ("", "")
    assert asked.path.endswith("delegation=T")


def test_an_unproved_redirect_is_not_followed(
    server: HandshakeServer, other: HandshakeServer, make: Make
) -> None:
    server.status = 307
    server.headers = {"Location": f"http://{other.address}/webhdfs/v1/f?op=OPEN"}
    server.prove = lambda token: None
    with pytest.raises(OSError, match="has not proved"):
        make(server).get("hdfs:///f")
    assert other.requests == []


def test_a_web_server_of_another_site_gets_no_login(
    server: HandshakeServer, other: HandshakeServer, make: Make, login: ScriptedLogin
) -> None:
    """A job names its places: any process may listen there, and pass the handshake on."""
    files = make(server)
    for scheme in ("webhdfs", "swebhdfs"):
        with pytest.raises(OSError, match="none of the site's own NameNodes"):
            files.get(f"{scheme}://{other.address}/job.xml")
    assert (other.connections, login.targets) == (0, [])
    files.mkdir(f"webhdfs://{server.address}/d")
    assert server.greetings == [1], "the site's own"


def test_another_name_node_proves_itself_by_rpc_first(
    server: HandshakeServer,
    other: HandshakeServer,
    make: Make,
    login: ScriptedLogin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: List[str] = []
    problems = [AuthenticationError("it is no nn/127.0.0.1")]

    def ask(conf: object, identity: object, found: endpoints.NameService) -> None:
        asked.append(found.name)
        if problems:
            raise problems.pop()

    monkeypatch.setattr(namenode_client, "ask_name_node", ask)
    monkeypatch.setattr(endpoints, "NAME_NODE_WEB_PORT", other.port)
    files = make(server)
    with pytest.raises(OSError, match=r"it is no nn/127\.0\.0\.1"):
        files.mkdir("hdfs://127.0.0.1:8020/d")
    assert (other.connections, login.targets) == (0, [])
    for _ in range(2):
        files.mkdir("hdfs://127.0.0.1:8020/d")
    assert other.greetings == [1]
    assert asked == ["127.0.0.1:8020"] * 2, "once until it has proved itself"
    files.mkdir("hdfs:///d")
    assert len(asked) == 2, "the site's own needs no other proof"
