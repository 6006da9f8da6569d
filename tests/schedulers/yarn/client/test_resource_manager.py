"""Whether anybody listens at the ResourceManager's addresses, and what its web server is sent."""

from __future__ import annotations

import socket
from typing import Dict, Iterator

import pytest

from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tests.schedulers.yarn.clusters import RUNTIME, job
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.identity import ClusterIdentity, act_for
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import RM_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.job.spec import Job
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn.client import resource_manager
from tony_core.schedulers.yarn.client.submission import build_request


@pytest.fixture
def listening() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Address("127.0.0.1", server.getsockname()[1])


@pytest.fixture
def closed() -> Iterator[Address]:
    with socket.socket() as bound:  # no other process takes the port meanwhile
        bound.bind(("127.0.0.1", 0))
        yield Address("127.0.0.1", bound.getsockname()[1])


def test_one_of_a_pair_is_enough(listening: Address, closed: Address) -> None:
    assert resource_manager.connection_problem(Endpoints("the RM", (listening,))) == ""
    assert resource_manager.connection_problem(Endpoints("the RM", (closed, listening))) == ""


def test_why_not(closed: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(resource_manager.time, "sleep", pauses.append)
    pair = Endpoints("the ResourceManager", (closed,), "Configuration was looked for there")
    assert resource_manager.connection_problem(pair) == (
        f"the ResourceManager cannot be reached: {closed}: connection refused."
        " Configuration was looked for there"
    )
    assert resource_manager.connection_problem(pair, retries=3).startswith(
        f"the ResourceManager cannot be reached (4 attempts): {closed}: connection refused"
    )
    assert pauses == [0.2, 0.4, 0.8]


def test_an_unknown_name() -> None:
    nowhere = Endpoints("the RM", (Address("no-such-host.invalid", 1),))
    assert "this name is not known" in resource_manager.connection_problem(nowhere)


class TestProxyUsersByHttp:
    """A web server without Hadoop's own filter ignores doAs=: the job would be the service's."""

    GATEWAY_FOR_ANN = act_for(ClusterIdentity("gateway", ScriptedLogin()), "ann")

    def connect(self, server: HandshakeServer, closed: Address) -> resource_manager.ResourceManager:
        values = {
            "hadoop.security.authentication": "kerberos",
            "hadoop.http.authentication.type": "kerberos",
            "yarn.resourcemanager.address": str(closed),
            "yarn.resourcemanager.webapp.address": server.address,
        }
        return resource_manager.connect(SiteConfiguration.of(values), self.GATEWAY_FOR_ANN)

    def test_a_server_that_takes_us_for_the_user(self, closed: Address) -> None:
        with HandshakeServer() as server:
            server.body = b'{"rmLoginUser": "yarn", "requestedUser": "ann"}'
            self.connect(server, closed).close()
            (request,) = server.requests
            assert request.path == "/ws/v1/cluster/userinfo?doAs=ann"

    @pytest.mark.parametrize("answer", [b'{"requestedUser": "gateway"}', b"{}"])
    def test_a_server_that_takes_us_for_the_service(self, closed: Address, answer: bytes) -> None:
        with HandshakeServer() as server:
            server.body = answer
            with pytest.raises(LastingRefusal, match="and not for ann, for whom gateway acts"):
                self.connect(server, closed)

    def test_a_server_that_refuses(self, closed: Address) -> None:
        with HandshakeServer() as server:
            server.status = 404
            with pytest.raises(SchedulerError, match="acting for ann"):
                self.connect(server, closed)


class TestSecretsByHttp:
    """Who drops all connections to the RPC port must not get by HTTP what RPC would encrypt."""

    def connect(
        self, server: HandshakeServer, closed: Address, identity: ClusterIdentity, **more: str
    ) -> resource_manager.ResourceManager:
        values = {
            "hadoop.security.authentication": "kerberos",
            "hadoop.http.authentication.type": "kerberos",
            "yarn.resourcemanager.address": str(closed),
            "yarn.resourcemanager.webapp.address": server.address,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return resource_manager.connect(SiteConfiguration.of(values), identity)

    def refused(self, rm: resource_manager.ResourceManager, words: str) -> None:
        request = build_request(ApplicationId(1, 2), job(), (RUNTIME,), "ann", {})
        for call in (
            lambda: rm.read_limits(Job("j", ())),
            lambda: rm.delegation_token("rm"),
            lambda: rm.submit(request, Credentials()),
        ):
            with pytest.raises(ConfigurationError, match=words):
                call()

    @pytest.mark.parametrize("protection", ["privacy", "integrity", "authentication,privacy"])
    def test_where_the_site_names_a_protection(self, closed: Address, protection: str) -> None:
        ann = ClusterIdentity("ann", ScriptedLogin())
        with HandshakeServer() as server:
            server.body = b'{"apps": {}}'
            rm = self.connect(server, closed, ann, hadoop_rpc_protection=protection)
            self.refused(rm, f"refused.*hadoop.rpc.protection is {protection}.*HTTPS_ONLY")
            assert server.requests == []
            assert rm.applications() == [], "what holds no secret is read"
            rm.close()

    def test_by_a_token_which_proves_no_server(self, closed: Address) -> None:
        token = Token(b"who", b"password", RM_DELEGATION, str(closed))
        ann = ClusterIdentity("ann", tokens=Credentials({"rm": token}))
        with HandshakeServer() as server:
            rm = self.connect(server, closed, ann)
            self.refused(rm, "refused.*proves nothing to a client with tokens.*HTTPS_ONLY")
            assert server.requests == []
            rm.close()

    @pytest.mark.parametrize("more", [{}, {"hadoop_rpc_protection": "authentication"}])
    def test_where_rpc_need_not_be_protected_either(
        self, closed: Address, more: Dict[str, str]
    ) -> None:
        with HandshakeServer() as server:
            rm = self.connect(server, closed, ClusterIdentity("ann", ScriptedLogin()), **more)
            with pytest.raises(HadoopError):
                rm.read_limits(Job("j", ()))  # its answer is another server's
            assert server.requests
            rm.close()

    def test_a_keytab_on_any_site(self, closed: Address) -> None:
        values = {
            "hadoop.security.authentication": "kerberos",
            "hadoop.http.authentication.type": "kerberos",
            "hadoop.rpc.protection": "authentication",
            "yarn.resourcemanager.address": str(closed),
        }
        ann = ClusterIdentity("ann", ScriptedLogin())
        with HandshakeServer() as server:
            values["yarn.resourcemanager.webapp.address"] = server.address
            conf = SiteConfiguration.of(values)
            rm = resource_manager.connect(conf, ann, encrypted=True)
            self.refused(rm, r"refused.*ships a keytab \(tony.kerberos.ship-keytab\).*HTTPS_ONLY")
            assert server.requests == []
            rm.close()
