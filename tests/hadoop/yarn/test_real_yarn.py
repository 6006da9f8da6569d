"""Clients and masters on a real cluster: every call, three protections, restarts, pairs."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import (
    AlreadyRegistered,
    ApplicationNotFound,
    AuthenticationError,
    InvalidRequest,
    InvalidToken,
    NotRegistered,
    RemoteError,
    WrongService,
)
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc.service import Failover
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token, attempt_of, claim_of
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.master_calls import AllocateRequest
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest
from tony_core.hadoop.yarn.messages.yarn import ContainerLaunchContext, Priority
from tony_core.hadoop.yarn.node_manager import NodeManager, NodeTokens
from tony_core.hadoop.yarn.records import Capability, Container, ContainerStatus
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.hadoop.yarn.rm_master import ALLOCATE, Allocation, RmMaster

pytestmark = pytest.mark.cluster

SMALL = Capability(64, 1)


def until(what: Callable[[], bool], limit: float = 60.0, pause: float = 0.1) -> None:
    deadline = time.monotonic() + limit
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)


def configuration(cluster: Hadoop) -> SiteConfiguration:
    return SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))


def unmanaged(application: ApplicationId, **more: object) -> ApplicationSubmissionContext:
    context = ApplicationSubmissionContext(
        application_id=application.to_message(),
        application_name="unmanaged",
        queue="default",
        unmanaged_am=True,
        application_type="TONY",
        am_container_spec=ContainerLaunchContext(),
        resource=SMALL.to_message(),
        max_app_attempts=1,
    )
    return context.replace(**more)


def resource_request(count: int, request_id: int) -> ResourceRequest:
    return ResourceRequest(
        priority=Priority(priority=1),
        resource_name="*",
        capability=SMALL.to_message(),
        num_containers=count,
        allocation_request_id=request_id,
    )


@dataclass
class Master:
    """An unmanaged master and what it needs."""

    conf: SiteConfiguration
    client: RmClient
    rm: RmMaster
    application: ApplicationId
    tokens: NodeTokens
    completed: List[ContainerStatus]

    def heartbeat(self, requests: Sequence[ResourceRequest] = ()) -> Allocation:
        answer = self.rm.allocate(resource_requests=requests, progress=0.5)
        self.tokens.update(answer.node_tokens)
        self.completed += answer.completed
        return answer

    def get(self, count: int, request_id: int = 7) -> List[Container]:
        found: List[Container] = list(
            self.heartbeat([resource_request(count, request_id)]).allocated
        )

        def enough() -> bool:
            found.extend(self.heartbeat().allocated)
            return len(found) >= count

        until(enough)
        return found

    def ended(self, count: int) -> Dict[ContainerId, ContainerStatus]:
        def enough() -> bool:
            self.heartbeat()
            return len(self.completed) >= count

        until(enough)
        return {status.id: status for status in self.completed}


@pytest.fixture
def open_client() -> Iterator[Callable[[Hadoop], RmClient]]:
    opened: List[RmClient] = []

    def make(cluster: Hadoop) -> RmClient:
        client = RmClient.open(configuration(cluster), identity=ClusterIdentity(cluster.user))
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def make_master(open_client: Callable[[Hadoop], RmClient]) -> Iterator[Callable[..., Master]]:
    opened: List[RmMaster] = []

    def make(cluster: Hadoop) -> Master:
        conf = configuration(cluster)
        client = open_client(cluster)
        application = client.new_application().id
        client.submit(unmanaged(application))
        until(lambda: client.report(application).am_rm_token is not None)
        token = client.report(application).am_rm_token
        assert token is not None
        rm = RmMaster.open(
            endpoints.rm_scheduler(conf), token, allowed=endpoints.allowed_protections(conf)
        )
        opened.append(rm)
        return Master(conf, client, rm, application, NodeTokens(), [])

    yield make
    for rm in opened:
        rm.close()


@pytest.fixture
def open_node() -> Iterator[Callable[..., NodeManager]]:
    opened: List[NodeManager] = []

    def make(master: Master, node: NodeId, token: Optional[Token] = None) -> NodeManager:
        allowed = endpoints.allowed_protections(master.conf)
        manager = NodeManager(node, token or master.tokens.get(node), allowed=allowed)
        opened.append(manager)
        return manager

    yield make
    for manager in opened:
        manager.close()


MakeMaster = Callable[[Hadoop], Master]
OpenClient = Callable[[Hadoop], RmClient]
OpenNode = Callable[..., NodeManager]


class TestClients:
    def test_applications(self, hadoop: GetHadoop, open_client: OpenClient) -> None:
        cluster = hadoop()
        client = open_client(cluster)
        new = client.new_application()
        assert new.maximum.memory_mb >= 64
        with pytest.raises(ApplicationNotFound) as caught:
            client.report(new.id)
        assert caught.value.remote_class.endswith(".ApplicationNotFoundException")
        assert str(new.id) in caught.value.text
        client.submit(unmanaged(new.id, application_tags=("Tag-One", f"x{new.id}")))
        client.submit(unmanaged(new.id))  # as after a lost answer
        until(lambda: client.report(new.id).am_rm_token is not None)
        report = client.report(new.id)
        assert report.state == "ACCEPTED"
        assert (report.user, report.type, report.unmanaged) == (cluster.user, "TONY", True)
        assert report.attempt == AttemptId(new.id, 1)
        assert report.am_rm_token is not None
        assert attempt_of(report.am_rm_token) == report.attempt
        assert report.submitted > 1.7e9
        found = client.applications(tags=[f"X{new.id}"], states=["ACCEPTED"], types=["TONY"])
        assert [one.id for one in found] == [new.id]
        assert found[0].tags == ("tag-one", f"x{new.id}")
        assert client.applications(tags=["no-such-tag"]) == []
        assert new.id in [one.id for one in client.applications(users=[cluster.user])]
        assert new.id in [one.id for one in client.applications(name="unmanaged")]
        assert [one.id for one in client.attempts(new.id)] == [report.attempt]
        client.kill(new.id)  # no test waits for the end of an unmanaged master's application

    def test_a_kill_is_done_when_it_returns(
        self, hadoop: GetHadoop, open_client: OpenClient
    ) -> None:
        client = open_client(hadoop())
        application = client.new_application().id
        launch = Launch(("sleep 100",)).to_message()
        context = unmanaged(application, unmanaged_am=False, am_container_spec=launch)
        client.submit(context)
        until(lambda: client.report(application).state == "ACCEPTED")
        client.kill(application, "enough of it")
        client.kill(application, "again")
        ended = client.report(application)
        assert (ended.state, ended.final_status) == ("KILLED", "KILLED")
        assert "enough of it" in ended.diagnostics
        with pytest.raises(ApplicationNotFound):
            client.kill(ApplicationId(1, 1))

    def test_the_cluster(self, hadoop: GetHadoop, open_client: OpenClient) -> None:
        cluster = hadoop("two_nodes", "labels", "gpu", "queues")
        client = open_client(cluster)
        nodes = {str(node.id): node for node in client.nodes()}
        assert sorted(nodes) == sorted(node["id"] for node in cluster.nodes())
        assert {node.labels for node in nodes.values()} == {(), ("gpu",)}
        assert sorted(n.capability.other.get("yarn.io/gpu", 0) for n in nodes.values()) == [0, 4]
        assert client.nodes(["LOST"]) == []
        assert len(client.nodes([])) >= 2
        assert client.metrics().num_active_nms == 2
        assert {label.name for label in client.node_labels()} == {"gpu", "reserved"}
        (labelled,) = client.labelled_nodes(["gpu"]).values()
        assert len(labelled) == 1
        types = {one.name: one.units for one in client.resource_types()}
        assert types == {"memory-mb": "Mi", "vcores": "", "yarn.io/gpu": ""}
        root = client.queue("root", children=True)
        assert root is not None
        children = {child.name: child for child in root.children}
        assert set(children) == {"default", "ml", "tiny", "closed", "private"}
        assert {child.name for child in children["ml"].children} == {"train", "eval"}
        assert children["closed"].state == "STOPPED"
        assert client.queue("no-such-queue") is None
        assert "SUBMIT_APPLICATIONS" in client.queue_acls()["root.default"]

    def test_what_is_refused_at_submit(self, hadoop: GetHadoop, open_client: OpenClient) -> None:
        client = open_client(hadoop())
        new = client.new_application()
        large = Capability(1 << 30, 1).to_message()
        with pytest.raises(InvalidRequest) as caught:
            client.submit(unmanaged(new.id, resource=large, unmanaged_am=False))
        assert "memory-mb" in caught.value.text

    def test_a_port_of_something_else(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        found = endpoints.rm_scheduler(configuration(cluster))
        overrides = {"yarn.resourcemanager.address": str(found.addresses[0])}
        conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir), overrides=overrides)
        client = RmClient.open(conf)
        with pytest.raises(RemoteError, match="SIMPLE authentication is not enabled"):
            client.new_application()
        client.close()
        node = client_of(conf, NodeId.parse(cluster.nodes()[0]["id"]))
        with pytest.raises((WrongService, RemoteError)):
            node.new_application()
        node.close()


def client_of(conf: SiteConfiguration, node: NodeId) -> RmClient:
    """A client that takes a node for the ResourceManager."""
    return RmClient.open(
        SiteConfiguration.of({"yarn.resourcemanager.address": str(node)}),
        identity=ClusterIdentity("nobody"),
    )


class TestMasters:
    @pytest.mark.parametrize(
        ("features", "version"),
        [
            ((), "3.4.2"),
            (("integrity",), "3.4.2"),
            (("privacy",), "3.4.2"),
            (("privacy",), "3.3.6"),
        ],
        ids=["authentication", "integrity", "privacy", "privacy-3.3.6"],
    )
    def test_an_applications_whole_run(
        self,
        features: Sequence[str],
        version: str,
        hadoop: GetHadoop,
        make_master: MakeMaster,
        open_node: OpenNode,
        tmp_path: Path,
    ) -> None:
        master = make_master(hadoop(*features, version=version))
        with pytest.raises(NotRegistered):
            master.rm.allocate()
        registered = master.rm.register("localhost", 1, "http://localhost:1/")
        assert registered.queue.endswith("default")
        assert {one.name for one in registered.resource_types} == {"memory-mb", "vcores"}
        with pytest.raises(AlreadyRegistered):
            master.rm.register("localhost", 1, "http://localhost:1/")
        first, second = master.get(2)[:2]
        assert first.request_id == 7
        assert claim_of(first.token).container == first.id
        node = open_node(master, first.node)
        out = tmp_path / "tokens"
        credentials = (
            Credentials()
            .with_secret("tony.secret", b"\0\1\2\3")
            .with_token("alias", Token(b"who", b"secret", "KIND", "service"))
        )
        result = node.start(
            [
                (
                    first.token,
                    Launch(
                        (f"base64 < $HADOOP_TOKEN_FILE_LOCATION > {out}; exit $CODE",),
                        {"CODE": "7", **{f"BIG{n}": "x" * 1000 for n in range(100)}},
                        credentials=credentials,
                    ),
                ),
                (second.token, Launch(("sleep 100",))),
            ]
        )
        assert set(result.done) == {first.id, second.id}
        assert result.failed == {}
        # As after a lost answer:
        assert node.start([(second.token, Launch(("sleep 100",)))]).done == (second.id,)
        unknown_id = ContainerId(first.id.attempt, 999)
        known, unknown = node.statuses([second.id, unknown_id])
        assert known[second.id].state == "RUNNING"
        assert "not handled by this NodeManager" in unknown[unknown_id].text
        master.ended(1)
        assert node.stop([second.id]).done == (second.id,)
        ended = master.ended(2)
        assert ended[first.id].exit_status == 7
        assert ended[second.id].exit_status == -105
        written = base64.b64decode(out.read_bytes())
        assert Credentials.decode(written) == credentials
        assert credentials.encode() == written
        master.rm.finish("SUCCEEDED", "all well")
        until(lambda: master.client.report(master.application).state == "FINISHED")
        report = master.client.report(master.application)
        assert (report.final_status, report.diagnostics) == ("SUCCEEDED", "all well")
        assert report.progress == 1.0

    def test_the_same_answer_to_the_same_number(
        self, hadoop: GetHadoop, make_master: MakeMaster
    ) -> None:
        """A lost answer loses no container."""
        master = make_master(hadoop())
        master.rm.register("localhost", 1, "")
        request = AllocateRequest(response_id=0, progress=0.0, ask=[resource_request(3, 7)])
        answer = master.rm.service.call(ALLOCATE, request)

        def granted() -> bool:
            nonlocal request, answer
            request = AllocateRequest(response_id=answer.response_id, progress=0.0)
            answer = master.rm.service.call(ALLOCATE, request)
            return bool(answer.allocated_containers)

        until(granted)
        again = master.rm.service.call(ALLOCATE, request)
        assert again.allocated_containers == answer.allocated_containers
        assert again.response_id == answer.response_id

    def test_who_is_not_let_in(self, hadoop: GetHadoop, make_master: MakeMaster) -> None:
        cluster = hadoop()
        master = make_master(cluster)
        forged = Token(master.rm.token.identifier, b"guess", master.rm.token.kind)
        found = endpoints.rm_scheduler(master.conf)
        rm = RmMaster.open(found, forged)
        rm.service._failover = Failover(1, first_pause=100, longest_pause=100)  # one attempt
        with pytest.raises(AuthenticationError, match="refused before it has proved who it is"):
            rm.allocate(within_s=20)
        rm.close()
        strict = RmMaster.open(found, master.rm.token, allowed=("auth-conf",))
        strict.service._failover = Failover(1, first_pause=100, longest_pause=100)
        with pytest.raises(AuthenticationError, match="offers the protection auth, and auth-conf"):
            strict.allocate(within_s=20)
        strict.close()

    def test_a_forged_container_token(
        self, hadoop: GetHadoop, make_master: MakeMaster, open_node: OpenNode
    ) -> None:
        master = make_master(hadoop())
        master.rm.register("localhost", 1, "")
        (container, *_) = master.get(1)
        node = open_node(master, container.node)
        forged = Token(container.token.identifier, b"guess", container.token.kind)
        with pytest.raises(InvalidToken):
            node.start([(forged, Launch(("true",)))])
        assert node.start([(container.token, Launch(("true",)))]).done == (container.id,)


# What a job makes of these is looked at in tests/cluster/yarn/test_failovers.py.
@pytest.mark.nightly
class TestRestarts:
    def test_the_resource_manager_comes_back(
        self, hadoop: GetHadoop, make_master: MakeMaster, open_node: OpenNode
    ) -> None:
        cluster = hadoop("rm_recovery")
        master = make_master(cluster)
        master.rm.register("localhost", 1, "")
        (container, *_) = master.get(1)
        node = open_node(master, container.node)
        node.start([(container.token, Launch(("sleep 100",)))])
        cluster.restart_rm()
        with pytest.raises(NotRegistered):
            for _ in range(50):
                master.rm.allocate(within_s=60)
                time.sleep(0.2)
        master.rm.register("localhost", 1, "")
        (other, *_) = master.get(1, request_id=8)
        assert other.id.epoch == container.id.epoch + 1
        assert f"container_e{other.id.epoch:02d}_" in str(other.id)
        assert master.client.report(master.application).state == "RUNNING"
        assert node.stop([container.id]).done == (container.id,)
        assert master.ended(1)[container.id].exit_status == -105
        master.rm.finish("SUCCEEDED", "")

    def test_the_other_of_a_pair_takes_over(
        self, hadoop: GetHadoop, make_master: MakeMaster
    ) -> None:
        cluster = hadoop("rm_ha")
        master = make_master(cluster)
        assert len(master.client.service.addresses) == 2
        master.rm.register("localhost", 1, "")
        killed = master.client.service.address
        cluster.kill_active_rm()
        until(lambda: reported(master) in ("ACCEPTED", "RUNNING"), limit=60)
        assert master.client.service.address != killed
        with pytest.raises(NotRegistered):
            for _ in range(50):
                master.rm.allocate(within_s=60)
                time.sleep(0.2)
        master.rm.register("localhost", 1, "")
        master.rm.finish("SUCCEEDED", "", within_s=60)

    @pytest.mark.slow
    def test_the_masters_token_is_rolled_over(
        self, hadoop: GetHadoop, make_master: MakeMaster
    ) -> None:
        master = make_master(hadoop("token_roll"))
        master.rm.register("localhost", 1, "")
        rolled: List[Token] = []

        def twice() -> bool:
            token = master.heartbeat().new_token
            if token is not None:
                assert token == master.rm.token
                rolled.append(token)
            return len(rolled) == 2

        until(twice, limit=120, pause=0.5)
        assert rolled[0] != rolled[1]
        master.get(1)
        master.rm.finish("SUCCEEDED", "")


def reported(master: Master) -> str:
    return master.client.report(master.application).state
