"""The client of YARN's web servers: handshakes, kept connections, tokens, secrets in a body."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Iterator, Tuple

import pytest

from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.errors import AuthenticationError, LoginError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import RM_DELEGATION, Token
from tony_core.hadoop.web import (
    ForeignServer,
    ServerNotProved,
    WebAccess,
    WebClient,
    WebUnreachable,
)

SECURE = {"hadoop.security.authentication": "kerberos"}


@pytest.fixture
def server() -> Iterator[HandshakeServer]:
    with HandshakeServer() as made:
        yield made


@pytest.fixture
def login() -> ScriptedLogin:
    return ScriptedLogin()


@pytest.fixture
def web(login: ScriptedLogin, server: HandshakeServer) -> Iterator[WebClient]:
    access = WebAccess(login=login, login_for=(Address("127.0.0.1", server.port),))
    made = WebClient(access, timeout_s=10)
    yield made
    made.close()


def get(web: WebClient, server: HandshakeServer, target: str = "/x") -> Tuple[int, bytes]:
    with web.get(server.address, target) as answer:
        return answer.status, answer.text()


class TestHandshake:
    def test_one_for_a_connection(
        self, server: HandshakeServer, web: WebClient, login: ScriptedLogin
    ) -> None:
        for _ in range(3):
            assert get(web, server) == (200, b"{}")
        assert login.targets == ["HTTP/127.0.0.1"]
        assert [(each.connection, bool(each.cookie)) for each in server.requests] == [
            (1, False),
            (1, True),
            (1, True),
        ]

    def test_another_connection_begins_anew(self, server: HandshakeServer, web: WebClient) -> None:
        get(web, server)
        web.close()
        get(web, server)
        assert server.greetings == [1, 2]
        assert server.requests[1].cookie == "", "the first one's cookie stays there"

    def test_a_server_that_closes_is_greeted_each_time(
        self, server: HandshakeServer, web: WebClient
    ) -> None:
        server.closes = True
        assert [get(web, server) for _ in range(2)] == [(200, b"{}")] * 2
        assert server.greetings == [1, 2]

    def test_an_expired_cookie(self, server: HandshakeServer, web: WebClient) -> None:
        get(web, server)
        server.expire_cookies()
        assert get(web, server) == (200, b"{}")
        assert [bool(each.cookie) for each in server.requests] == [False, True, False]
        assert {each.connection for each in server.requests} == {1}

    def test_an_expired_cookie_and_a_closed_connection(
        self, server: HandshakeServer, web: WebClient
    ) -> None:
        get(web, server)
        server.expire_cookies()
        server.closes = True
        assert get(web, server) == (200, b"{}")
        assert server.greetings == [1, 2]

    def test_a_login_that_is_refused(self, server: HandshakeServer, web: WebClient) -> None:
        server.prove = lambda token: None
        server.status = 401
        assert get(web, server)[0] == 401

    @pytest.mark.parametrize("proof", [None, b"", b"proof of something else"])
    def test_a_stranger_is_not_believed(
        self, server: HandshakeServer, web: WebClient, proof: bytes
    ) -> None:
        server.prove = lambda token: proof
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"127\.0\.0\.1 has not proved that it"):
                get(web, server)
        assert server.greetings == [1, 2], "the connection is not used again"

    def test_no_login(self, server: HandshakeServer, web: WebClient, login: ScriptedLogin) -> None:
        login.broken = "no Kerberos ticket"
        with pytest.raises(LoginError, match="no Kerberos ticket"):
            get(web, server)
        assert server.requests == []


class TestWhoGetsALogin:
    """Addresses come from pages and histories: a stranger could pass the handshake on."""

    SITE = {
        **SECURE,
        "yarn.resourcemanager.webapp.address": "rm.invalid:8088",
        "yarn.web-proxy.address": "Proxy.invalid:9099",
        "yarn.log.server.web-service.url": "http://timeline.invalid/ws/v1/applicationhistory",
    }

    @pytest.fixture
    def access(self, login: ScriptedLogin) -> WebAccess:
        identity = ClusterIdentity("ann", login)
        conf = SiteConfiguration.of(self.SITE)
        return identity.for_web(conf, lambda host, port: (host, port) == ("node.invalid", 8042))

    def test_no_server_that_the_cluster_does_not_name(
        self, server: HandshakeServer, login: ScriptedLogin, access: WebAccess
    ) -> None:
        web = WebClient(access, timeout_s=10)
        with pytest.raises(
            ForeignServer, match=r"^127\.0\.0\.1:\d+ gets no login, for the cluster"
        ):
            web.get(server.address, "/x")
        assert (server.connections, login.targets) == (0, [])

    @pytest.mark.parametrize(
        ("host", "port"),
        [
            ("rm.invalid", 8088),
            ("RM.invalid", 8088),
            ("proxy.invalid", 9099),
            ("timeline.invalid", 80),
            ("node.invalid", 8042),
        ],
    )
    def test_those_of_the_site_and_the_nodes(self, access: WebAccess, host: str, port: int) -> None:
        assert access.begin(host, port) is not None

    @pytest.mark.parametrize(
        ("host", "port"),
        [("rm.invalid", 8089), ("rm.invalid", 8042), ("node.invalid", 8088), ("x.invalid", 8088)],
    )
    def test_no_other_port_or_host(self, access: WebAccess, host: str, port: int) -> None:
        with pytest.raises(ForeignServer):
            access.begin(host, port)

    def test_a_configured_server_by_another_of_its_names(self, login: ScriptedLogin) -> None:
        access = WebAccess(login=login, login_for=(Address("localhost", 8088),))
        assert access.begin("127.0.0.1", 8088) is not None
        with pytest.raises(ForeignServer):
            access.begin("127.0.0.2", 8088)


class TestSecretsInABody:
    def test_they_follow_the_proof(self, server: HandshakeServer, web: WebClient) -> None:
        with web.request("POST", server.address, "/apps", b"secret", proof="/info") as answer:
            assert answer.text() == b"{}"
        assert [(each.path, each.body) for each in server.requests] == [
            ("/info", b""),
            ("/apps", b"secret"),
        ]
        assert {each.connection for each in server.requests} == {1}
        web.request("POST", server.address, "/apps", b"secret", proof="/info").close()
        assert len(server.requests) == 3, "once for a connection"

    def test_a_stranger_gets_none(self, server: HandshakeServer, web: WebClient) -> None:
        server.prove = lambda token: b"proof of something else"
        with pytest.raises(AuthenticationError):
            web.request("POST", server.address, "/apps", b"secret", proof="/info")
        assert [each.body for each in server.requests] == [b""]

    def test_nor_a_server_that_refuses(self, server: HandshakeServer, web: WebClient) -> None:
        server.prove = lambda token: None
        server.status = 401
        with pytest.raises(ServerNotProved, match="does not take this login"):
            web.request("POST", server.address, "/apps", b"secret", proof="/info")
        assert [each.body for each in server.requests] == [b""]

    def test_nor_one_that_closes_after_its_proof(
        self, server: HandshakeServer, web: WebClient
    ) -> None:
        server.closes = True
        with pytest.raises(ServerNotProved, match="closes each connection"):
            web.request("POST", server.address, "/apps", b"secret", proof="/info")
        assert [each.body for each in server.requests] == [b""]

    def test_an_expired_cookie_is_a_new_proof(
        self, server: HandshakeServer, web: WebClient
    ) -> None:
        get(web, server)
        server.expire_cookies()
        with web.request("POST", server.address, "/apps", b"secret", proof="/info") as answer:
            assert answer.text() == b"{}"
        assert {each.connection for each in server.requests} == {1}


class TestIdentity:
    """What a client of a site shows to its web servers."""

    def access(self, identity: ClusterIdentity, **more: str) -> WebAccess:
        values = {
            **SECURE,
            "yarn.resourcemanager.address": "127.0.0.1:8032",
            "yarn.resourcemanager.webapp.address": "127.0.0.1:8088",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return identity.for_web(SiteConfiguration.of(values))

    def test_a_name_on_an_open_cluster(self) -> None:
        access = self.access(ClusterIdentity("ann"))
        assert (access.query(), access.begin("h", 1)) == ({"user.name": "ann"}, None)

    def test_a_login_and_no_name(self, login: ScriptedLogin) -> None:
        access = self.access(ClusterIdentity("ann", login))
        assert access.query() == {}
        assert access.begin("127.0.0.1", 8088) is not None

    def test_where_web_servers_do_not_authenticate(self, login: ScriptedLogin) -> None:
        found = self.access(ClusterIdentity("ann", login), hadoop_http_authentication_type="simple")
        assert (found.query(), found.begin("h", 1)) == ({"user.name": "ann"}, None)

    def test_a_token_goes_to_the_resource_manager_only(self) -> None:
        token = Token(b"who", b"password", RM_DELEGATION, "127.0.0.1:8032")
        access = self.access(ClusterIdentity("ann", tokens=Credentials({"rm": token})))
        assert access.query() == {}
        begun = access.begin("127.0.0.1", 8088)
        assert begun is not None
        assert begun.fields() == {"X-Hadoop-Delegation-Token": url_string(token)}
        for other in (("127.0.0.1", 8042), ("127.0.0.2", 8088)):
            assert access.begin(*other) is None

    def test_without_the_resource_managers_token(self) -> None:
        access = self.access(ClusterIdentity("ann", tokens=Credentials()))
        assert (access.query(), access.begin("127.0.0.1", 8088)) == ({}, None)

    def test_a_token_is_sent_in_a_header(self, server: HandshakeServer) -> None:
        web = WebClient(WebAccess(token="T", token_for=(Address("127.0.0.1", server.port),)))
        with web.get(server.address, "/x") as answer:
            assert answer.status == 401  # this server knows no tokens
        web.close()
        assert (server.requests[0].path, server.requests[0].authorization) == ("/x", "")


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate with openssl")
def test_https(server: HandshakeServer, login: ScriptedLogin, tmp_path: Path) -> None:
    authority = server.secure(tmp_path)
    address = f"localhost:{server.port}"
    servers = (Address("localhost", server.port),)
    web = WebClient(WebAccess(login=login, login_for=servers), timeout_s=10)
    with pytest.raises(WebUnreachable, match=r"certificate is not trusted here .*tony\.https\.ca"):
        web.get(address, "/x", tls=True)
    assert login.targets == [], "nothing was sent"
    web = WebClient(WebAccess(login=login, login_for=servers, authorities=authority), timeout_s=10)
    with web.get(address, "/x", tls=True) as answer:
        assert answer.text() == b"{}"
    web.close()
    assert login.targets == ["HTTP/localhost"]


def test_certificates_that_are_none() -> None:
    web = WebClient(WebAccess("ann", authorities="no certificate"), timeout_s=1)
    with pytest.raises(WebUnreachable):
        web.get("127.0.0.1:1", "/x", tls=True)
