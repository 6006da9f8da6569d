"""Web servers of a real cluster with Kerberos, as TonY's client asks them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.test_hadoop_base import eventually, submit
from tests.cluster.yarn.jobs import Tony
from tests.hadoop.kerberos.handshakes import HandshakeServer
from tests.master.web.behind_proxy import BehindProxy
from tests.master.web.test_behind_proxy import quiet_job
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.errors import AccessDenied, AuthenticationError, HadoopError, LoginError
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.web import WebAccess, WebClient
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.schedulers.port import AppState, SchedulerError
from tony_core.schedulers.yarn.client.resource_manager import connect
from tony_core.schedulers.yarn.client.rest import RestResourceManager
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler

pytestmark = pytest.mark.cluster

Become = Callable[[str], ClusterIdentity]
CLOSED = {"yarn.resourcemanager.address": "localhost:1"}


@pytest.fixture
def cluster(hadoop: GetHadoop) -> Hadoop:
    return hadoop("secure")


@pytest.fixture
def conf(cluster: Hadoop) -> SiteConfiguration:
    return SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))


@pytest.fixture
def become(cluster: Hadoop, conf: SiteConfiguration, monkeypatch: pytest.MonkeyPatch) -> Become:
    def make(user: str) -> ClusterIdentity:
        for name, value in cluster.environment_of(user).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_dir))
        return cluster_identity(conf, os.environ)

    return make


@pytest.fixture
def open_yarn(become: Become) -> Iterator[Callable[[str], YarnScheduler]]:
    opened: List[YarnScheduler] = []

    def make(user: str) -> YarnScheduler:
        become(user)
        opened.append(YarnScheduler())
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def by_rest(cluster: Hadoop, identity: ClusterIdentity, **more: str) -> RestResourceManager:
    """The ResourceManager when its RPC port is closed."""
    overrides = {**CLOSED, **{name.replace("_", "."): value for name, value in more.items()}}
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir), overrides=overrides)
    found = connect(conf, identity)
    assert isinstance(found, RestResourceManager)
    return found


def test_status_and_logs_of_a_running_job(
    cluster: Hadoop, open_yarn: Callable[[str], YarnScheduler]
) -> None:
    app = submit(cluster, "echo first; sleep 300")
    cluster.wait_for(app, ("ACCEPTED", "RUNNING"))
    ann = open_yarn("ann")
    assert eventually(lambda: bool(ann.log_reader.list_containers(app)))
    ((_, ref),) = ann.log_reader.list_containers(app)

    def read() -> bytes:
        try:
            return ann.log_reader.read_log(app, ref, "stdout", 0)
        except SchedulerError:
            return b""  # it is still being launched

    assert eventually(lambda: read() == b"first\n", 30)
    assert "stdout" in ann.log_reader.list_logs(app, ref)
    assert ann.status(app).user == "ann"

    bob = open_yarn("bob")
    with pytest.raises(SchedulerError, match=r"bob may not see the logs of .* belong to ann"):
        bob.log_reader.read_log(app, ref, "stdout", 0)
    ann.kill(app, "enough")
    assert ann.status(app).state is AppState.KILLED


class TestRest:
    """Where the ResourceManager's RPC port is closed to clients."""

    def test_a_job_from_its_submit_to_its_end(self, cluster: Hadoop, become: Become) -> None:
        rm = by_rest(cluster, become("ann"))
        new = rm.new_application()
        body = {
            "application-id": str(new.id),
            "application-name": "by REST",
            "am-container-spec": {"commands": {"command": "sleep 300"}},
            "resource": {"memory": 128, "vCores": 1},
        }
        rm._call("POST", "apps", body)
        report = rm.report(new.id)
        assert (report.user, report.name) == ("ann", "by REST")
        assert new.id in [one.id for one in rm.applications()]
        assert eventually(lambda: bool(rm.masters(new.id)))
        rm.kill(new.id, "enough")
        assert rm.report(new.id).state == "KILLED"
        rm.close()

    def test_another_user_may_not_end_it(self, cluster: Hadoop, become: Become) -> None:
        app = submit(cluster, "sleep 300")
        rm = by_rest(cluster, become("bob"))
        with pytest.raises(AccessDenied):
            rm.kill(ApplicationId.parse(app))
        rm.close()
        cluster.kill_application(app)

    def test_a_token_in_place_of_a_ticket(self, cluster: Hadoop, become: Become) -> None:
        ticket = by_rest(cluster, become("ann"))
        text = ticket._call("POST", "delegation-token", {"renewer": "ann"})["token"]
        ticket.close()
        web = endpoints.rm_web(SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir)))
        rm = RestResourceManager(web, "ann", WebAccess(token=text, token_for=web.addresses))
        app = rm.new_application().id
        rm._call(
            "POST",
            "apps",
            {
                "application-id": str(app),
                "am-container-spec": {"commands": {"command": "sleep 300"}},
                "resource": {"memory": 128, "vCores": 1},
            },
        )
        assert rm.report(app).user == "ann"
        rm.kill(app)
        rm.close()

    def test_a_site_whose_web_servers_do_not_authenticate(
        self, cluster: Hadoop, become: Become
    ) -> None:
        with pytest.raises(SchedulerError, match=r"hadoop\.http\.authentication\.type is simple"):
            by_rest(cluster, become("ann"), hadoop_http_authentication_type="simple")


def test_the_page_behind_the_proxy(cluster: Hadoop, become: Become, tmp_path: Path) -> None:
    ann = become("ann")
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
    nodes = cluster.folder / "data"
    with BehindProxy(str(cluster.conf_dir), ann, tmp_path, quiet_job(), nodes=nodes) as behind:
        page = JobPage(behind.url, access=ann.for_web(conf))
        assert page.job()["app_id"] == "app_1"
        assert page.events(0)[1] >= 0
        assert page.tasks()
        page.close()
        others = JobPage(behind.url, access=become("bob").for_web(conf))
        with pytest.raises(PageError, match="answered 403"):
            others.job()
        others.close()
        nobodys = JobPage(behind.url, access=WebAccess("ann"))
        with pytest.raises(PageError, match="answered 401"):
            nobodys.job()
        nobodys.close()


def test_files_by_webhdfs(cluster: Hadoop, conf: SiteConfiguration, become: Become) -> None:
    files = WebHdfsFileSystem(conf, become("ann"))
    data = os.urandom(3 << 20)
    files.mkdir("hdfs:///user/ann/d")
    files.put("hdfs:///user/ann/d/x", data)
    assert files.get("hdfs:///user/ann/d/x") == data
    assert files.checksum("hdfs:///user/ann/d/x")
    bobs = WebHdfsFileSystem(conf, become("bob"))
    with pytest.raises(PermissionError, match="bob"):
        bobs.get("hdfs:///user/ann/d/x")
    become("ann")
    assert files.delete("hdfs:///user/ann/d")
    files.close()
    bobs.close()


@pytest.mark.nightly
def test_a_job_where_web_servers_do_not_authenticate(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """By Hadoop's default, on a cluster with Kerberos too: files go by tokens, status by RPC."""
    one = tony_on(hadoop("secure", "simple_web"))
    job = one.submit("--executes", "echo done", conf={"tony.worker.instances": 1})
    job.ends(0)
    assert one.json("status", job.app_id)["state"] == "SUCCEEDED"


class TestStrangers:
    """Another program has the port, and not the server's key."""

    @pytest.fixture
    def stranger(self) -> Iterator[HandshakeServer]:
        with HandshakeServer() as made:
            made.prove = lambda token: None
            yield made

    @pytest.mark.parametrize("proof", [None, b"a proof"])
    def test_it_is_not_the_resource_manager(
        self, cluster: Hadoop, become: Become, stranger: HandshakeServer, proof: bytes
    ) -> None:
        stranger.prove = lambda token: proof
        where = f"localhost:{stranger.port}"
        rm = by_rest(cluster, become("ann"), yarn_resourcemanager_webapp_address=where)
        with pytest.raises(AuthenticationError, match="has not proved that it is HTTP/localhost"):
            rm._request("POST", "apps", {"secret": "x"}, None)
        assert not any(each.body for each in stranger.requests)
        rm.close()

    def test_it_does_not_get_through_to_the_server(
        self, cluster: Hadoop, conf: SiteConfiguration, become: Become, stranger: HandshakeServer
    ) -> None:
        """It repeats what a client has sent to it, as its own proof."""
        stranger.prove = lambda token: token
        web = WebClient(become("ann").for_web(conf, is_node=lambda host, port: True))
        with pytest.raises(AuthenticationError, match="has not proved that it is HTTP/localhost"):
            web.get(f"localhost:{stranger.port}", "/x")
        web.close()

    def test_it_is_not_the_name_node(
        self, cluster: Hadoop, become: Become, stranger: HandshakeServer
    ) -> None:
        where = {"dfs.namenode.http-address": f"localhost:{stranger.port}"}
        conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir), overrides=where)
        files = WebHdfsFileSystem(conf, become("ann"), patience_s=0.5)
        with pytest.raises(OSError, match="localhost has not proved that it is HTTP/localhost"):
            files.put("hdfs:///user/ann/x", b"x")
        files.close()

    def test_a_host_that_the_kdc_does_not_know(
        self, conf: SiteConfiguration, become: Become, stranger: HandshakeServer
    ) -> None:
        web = WebClient(become("ann").for_web(conf, is_node=lambda host, port: True))
        with pytest.raises(
            LoginError, match=r"(knows no|does not know the) service HTTP/127\.0\.0\.77"
        ):
            web.access.begin("127.0.0.77", 1).fields()  # type: ignore[union-attr]
        web.close()


def test_a_token_goes_to_no_other_server(cluster: Hadoop, conf: SiteConfiguration) -> None:
    web = WebClient(WebAccess(token="T", token_for=(Address("localhost", 1),)))
    for address in (cluster.web("nm0"), cluster.web("rm0")):
        with web.get(address, "/") as answer:
            assert answer.status in (401, 302)
    web.close()


def test_without_a_ticket(
    cluster: Hadoop, conf: SiteConfiguration, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    become("ann")
    monkeypatch.setenv("KRB5CCNAME", str(cluster.folder / "nothing"))
    with pytest.raises(HadoopError, match=r"no Kerberos ticket in .*nothing: get one by kinit"):
        cluster_identity(conf, os.environ)
