"""Who a client is to a cluster, above all a service that acts for a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.identity import (
    PROXY_USER,
    ClusterIdentity,
    act_for,
    cluster_identity,
    read_proxy_user,
)
from tony_core.hadoop.rpc.wire import ProxyUser, User
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.hadoop.web import WebClient

OPEN = SiteConfiguration.of({})
SECURE = {"hadoop.security.authentication": "kerberos"}
AS_GATEWAY = {"HADOOP_USER_NAME": "gateway"}


def never() -> str:
    raise AssertionError("no token is needed")


def tokens_of(owner: str, path: Path) -> Dict[str, str]:
    identifier = b"\0" + bytes((len(owner),)) + owner.encode() + b"\x02rm\0"
    held = {"h": Token(identifier, b"password", HDFS_DELEGATION, "127.0.0.1:8020")}
    Credentials(held).write(str(path))
    return {LOCATION: str(path)}


@pytest.mark.parametrize("name", ["ann", "a.b-c_d+e", "svc$", "ann1", "1ann", "änne"])
def test_names(name: str) -> None:
    assert read_proxy_user({PROXY_USER: name}) == name


def test_no_name() -> None:
    assert read_proxy_user({}) == ""


@pytest.mark.parametrize(
    "name", ["", " ", "ann ", "a b", "ann@X", "ann/host@X", ".", "..", "../bob", "a,b", "*",
             "a&b=c", "ann\n", "-ann", "a\0"]
)  # fmt: skip
def test_names_that_are_none(name: str) -> None:
    """An empty one, too: what a template left empty must not become the service's own job."""
    for conf in (OPEN, SiteConfiguration.of(SECURE)):
        with pytest.raises(ConfigurationError, match=f"^{PROXY_USER} is .*or unset it"):
            cluster_identity(conf, {**AS_GATEWAY, PROXY_USER: name})


def test_an_open_cluster() -> None:
    found = cluster_identity(OPEN, {**AS_GATEWAY, PROXY_USER: "ann"})
    assert (found.user, found.real_user) == ("ann", "gateway")
    assert found.for_rpc(never, "") == User("ann", "gateway")
    assert found.for_web(OPEN).query() == {"user.name": "ann"}


def test_a_login() -> None:
    login = ScriptedLogin()
    found = act_for(ClusterIdentity("gateway", login), "ann")
    assert (found.user, found.real_user, found.is_secure) == ("ann", "gateway", True)
    assert found.for_rpc(never, "") == ProxyUser("ann", login)
    assert found != ClusterIdentity("ann", login), "they share no connections"


def test_oneself() -> None:
    """To a server that would be an impersonation, which it does not allow."""
    who = ClusterIdentity("ann", ScriptedLogin())
    assert act_for(who, "ann") == who
    assert cluster_identity(OPEN, {**AS_GATEWAY, PROXY_USER: "gateway"}).real_user == ""


def test_tokens_of_another_user_are_refused(tmp_path: Path) -> None:
    env = {**tokens_of("gateway", tmp_path / "tokens"), PROXY_USER: "ann"}
    words = f"the tokens of {LOCATION} are gateway's, and {PROXY_USER} is ann.*unset one of the two"
    with pytest.raises(ConfigurationError, match=words):
        cluster_identity(SiteConfiguration.of(SECURE), env)


def test_tokens_in_the_users_name_are_taken(tmp_path: Path) -> None:
    """So a service hands them to its own processes, with its variable."""
    env = {**tokens_of("ann", tmp_path / "tokens"), PROXY_USER: "ann"}
    found = cluster_identity(SiteConfiguration.of(SECURE), env)
    assert (found.user, found.real_user) == ("ann", "")


def test_web_servers() -> None:
    """The ResourceManager's is asked for the user; the others are not."""
    login = ScriptedLogin()
    with HandshakeServer() as rm, HandshakeServer() as node:
        conf = SiteConfiguration.of(
            {
                **SECURE,
                "hadoop.http.authentication.type": "kerberos",
                "yarn.resourcemanager.webapp.address": rm.address,
            }
        )
        identity = act_for(ClusterIdentity("gateway", login), "ann")
        web = WebClient(identity.for_web(conf, lambda host, port: port == node.port))
        for server in (rm, node):
            for target in ("/x", "/x?y=1"):
                web.get(server.address, target).close()
        web.close()
        assert [one.path for one in rm.requests] == ["/x?doAs=ann", "/x?y=1&doAs=ann"]
        assert [one.path for one in node.requests] == ["/x", "/x?y=1"]


@pytest.mark.parametrize("login", [ScriptedLogin(), None])
def test_webhdfs(login: Any) -> None:
    with HandshakeServer() as server:
        server.asks = login is not None
        server.body = b'{"boolean": true}'
        conf = SiteConfiguration.of(
            {
                **(SECURE if login else {}),
                "fs.defaultFS": "hdfs://127.0.0.1:1",
                "hadoop.http.authentication.type": "kerberos",
                "dfs.namenode.http-address": server.address,
            }
        )
        files = WebHdfsFileSystem(conf, act_for(ClusterIdentity("gateway", login), "ann"))
        files.mkdir("hdfs:///d")
        files.close()
        assert files.user == "ann"
        query = server.requests[-1].path.partition("?")[2].split("&")
        assert "doas=ann" in query
        assert ("user.name=gateway" in query) == (login is None)
        assert "user.name=ann" not in query
