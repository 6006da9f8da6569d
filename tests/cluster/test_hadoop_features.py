"""Each feature is on where it is asked for: seen from outside, on the real thing."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.features import GPUS
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.web import WebError, call
from tests.cluster.test_hadoop_base import eventually, submit
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient

# Every feature is used by tests of ours too, which fail when it does not work.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

# What goes together is asked for together: a cluster takes ten seconds and 1 GB.
SCHEDULING = ("labels", "gpu", "queues", "racks", "preemption", "integrity")
LASTING = ("rm_recovery", "nm_recovery", "indexed_logs", "token_roll")
PLACING = ("placement", "gpu", "java", "two_nodes", "privacy")
CROWDED = ("three_nodes", "ports_in_names", "no_space", "log_aggregation")
DOUBLE = ("rm_ha", "nn_ha")

SHELL = "org.apache.hadoop.yarn.applications.distributedshell.Client"


def node_of(cluster: Hadoop, app: str) -> str:
    """The name of the node that runs the application's master."""
    at = cluster.wait_for(app, ["ACCEPTED", "RUNNING"])
    assert eventually(lambda: bool(cluster.application(app).get("amHostHttpAddress")))
    web = cluster.application(app)["amHostHttpAddress"]
    cluster.kill_application(str(at["id"]))
    return next(name for name in cluster.names("nm") if cluster.web(name) == web)


def why_not(app: Dict[str, Any]) -> str:
    return str(app["diagnostics"])


def refusal(cluster: Hadoop, **context: object) -> str:
    """Why an application was not taken, at once or a little later."""
    try:
        app = submit(cluster, "true", **context)
    except WebError as error:
        return error.text
    return why_not(cluster.wait_for(app, ["FAILED"]))


def protections(address: str) -> bytes:
    """What a server answers when asked how it wants to be called (SASL's negotiation)."""
    host, port = address.rsplit(":", 1)
    header = b"\x08\x02\x10\x00\x18\x41\x22\x00\x28\x01"  # call -33, no client id, retry -1
    negotiate = b"\x10\x01"
    packet = b"".join(struct.pack("B", len(part)) + part for part in (header, negotiate))
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"hrpc\x09\x00\xdf" + struct.pack(">I", len(packet)) + packet)
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">I", answer.read(4))
            return answer.read(length)


class TestScheduling:
    def test_nodes_have_labels(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        labels = {node["id"]: node.get("nodeLabels") for node in cluster.nodes()}
        assert labels == {cluster.node_id("nm0"): None, cluster.node_id("nm1"): ["gpu"]}
        app = submit(cluster, "sleep 60", am_container_node_label_expression="gpu")
        assert node_of(cluster, app) == "nm1"
        app = submit(cluster, "sleep 60")
        assert node_of(cluster, app) == "nm0"

    def test_a_label_may_be_closed(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        for queue, label in (("default", "reserved"), ("tiny", "gpu")):
            reason = refusal(cluster, queue=queue, am_container_node_label_expression=label)
            assert "permission to access all labels" in reason

    def test_one_node_has_gpus(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        found = {}
        for node in cluster.nodes():
            listed = node["totalResource"]["resourceInformations"]["resourceInformation"]
            found[node["id"]] = {one["name"]: one["value"] for one in listed}["yarn.io/gpu"]
        assert found == {cluster.node_id("nm0"): 0, cluster.node_id("nm1"): GPUS}

    def test_nodes_stand_in_racks(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        racks = {node["id"]: node["rack"] for node in cluster.nodes()}
        assert racks == {cluster.node_id(f"nm{i}"): f"/rack{i}" for i in (0, 1)}

    def test_queues_take_only_what_they_should(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        app = submit(cluster, "sleep 60", queue="train")
        assert cluster.wait_for(app, ["ACCEPTED"])["queue"] in ("train", "root.ml.train")
        cluster.kill_application(app)
        for queue, reason in (
            ("closed", "Queue root.closed is STOPPED"),
            ("absent", "unknown queue: absent"),
        ):
            assert reason in refusal(cluster, queue=queue)

    def test_a_private_queue_refuses_every_user(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        reason = refusal(cluster, queue="private")
        assert f"User {cluster.user} does not have permission to submit" in reason

    def test_a_small_queue_names_what_exceeds_it(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SCHEDULING)
        first = submit(cluster, "sleep 60", queue="tiny")
        cluster.wait_for(first, ["ACCEPTED"])
        big = {"memory": 2048, "vCores": 1}
        second = submit(cluster, "sleep 60", queue="tiny", resource=big)
        assert eventually(lambda: "AM resource limit" in why_not(cluster.application(second)))
        reason = refusal(cluster, queue="tiny")
        assert "already has 2 applications" in reason or "maximum application" in reason.lower()

    def test_calls_are_signed(self, hadoop: GetHadoop) -> None:
        assert b'qop="auth-int"' in protections(hadoop(*SCHEDULING).scheduler_address)

    def test_preemption_watches(self, hadoop: GetHadoop) -> None:
        rm = hadoop(*SCHEDULING).daemons()["rm0"]
        threads = _threads(rm["pid"])
        assert any(name.startswith("SchedulingMonit") for name in threads), threads


def _threads(pid: int) -> List[str]:
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


class TestPlacing:
    ARGUMENTS = ("-shell_command", "echo", "-shell_args", "here", "-master_memory", "256")

    def test_constraints_keep_containers_apart_under_privacy(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*PLACING)
        assert b'qop="auth-conf"' in protections(cluster.scheduler_address)
        jar = cluster.jar("hadoop-yarn-applications-distributedshell")
        output = cluster.tool(
            SHELL,
            *("-jar", str(jar), *self.ARGUMENTS),
            *("-container_memory", "128", "-placement_spec", "apart(2),NOTIN,NODE,apart"),
        )
        assert "completed successfully" in output
        (app,) = cluster.applications()
        logs = cluster.folder / "data"
        ran = {
            node: len(list((logs / node / "logs" / app["id"]).glob("*_00000[!1]/stdout")))
            for node in cluster.names("nm")
        }
        assert ran == {"nm0": 1, "nm1": 1}

    def test_a_container_gets_gpus_where_they_are(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*PLACING)
        conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
        client = RmClient.open(conf, identity=ClusterIdentity(cluster.user))
        try:  # by RPC: the REST interface drops what is neither memory nor cores
            application = client.new_application().id
            client.submit(
                ApplicationSubmissionContext(
                    application_id=application.to_message(),
                    application_name="gpus",
                    queue="default",
                    am_container_spec=Launch(("sleep 60",)).to_message(),
                    resource=Capability(64, 1, {"yarn.io/gpu": GPUS}).to_message(),
                    max_app_attempts=1,
                )
            )
        finally:
            client.close()
        assert node_of(cluster, str(application)) == "nm1"


class TestLasting:
    def test_applications_outlive_the_resource_manager(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*LASTING)
        app = submit(cluster, "sleep 6; echo went on")
        cluster.wait_for(app, ["ACCEPTED"])
        before = cluster.daemons()["rm0"]["pid"]
        cluster.restart_rm()
        assert cluster.daemons()["rm0"]["pid"] != before
        assert cluster.application(app)["id"] == app
        cluster.wait_for(app)
        assert "went on" in cluster.application_logs(app)

    def test_containers_outlive_the_node_manager(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("nm_recovery")  # not with the rest: its master never says a word
        mark = cluster.folder / "data" / "mark"
        mark.unlink(missing_ok=True)
        app = submit(cluster, f"echo $$ >>{mark}; sleep 300")
        assert eventually(lambda: mark.exists() and mark.read_text() != "", 20)
        cluster.restart_nm()
        assert mark.read_text().count("\n") == 1
        assert cluster.application(app)["state"] == "ACCEPTED"

    def test_logs_move_into_hdfs_with_an_index(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*LASTING)
        app = submit(cluster, "echo to be kept")
        cluster.wait_for(app)
        local = cluster.folder / "data" / "nm0" / "logs" / app

        def moved() -> bool:
            return cluster.application(app).get("logAggregationStatus") == "SUCCEEDED"

        assert eventually(moved, 40)
        assert eventually(lambda: not local.exists())
        assert "to be kept" in cluster.application_logs(app)
        owner = f"/app-logs/{cluster.user}"
        assert any("ifile" in name for name in cluster.hdfs.list(owner))

    def test_what_is_silent_is_given_up_soon_and_tokens_roll(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*LASTING)
        text = call("GET", f"{cluster.rm_url}/conf?format=json")
        conf = {one["key"]: one["value"] for one in text["properties"]}
        assert conf["yarn.am.liveness-monitor.expiry-interval-ms"] == "10000"
        name = "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs"
        assert conf[name] == "35"
        with cluster.hanging("nm0"):
            lost = f"{cluster.rm_url}/ws/v1/cluster/nodes?states=LOST"
            assert eventually(lambda: bool(json.dumps(call("GET", lost)).count("LOST")), 40)


class TestCrowded:
    def test_names_of_nodes_have_ports(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*CROWDED)
        assert len(cluster.nodes()) == 3
        names = {node["nodeHostName"] for node in cluster.nodes()}
        assert names == {name.rsplit(":", 1)[0] for name in cluster.node_names}
        text = call(
            "GET",
            f"{cluster.rm_url}/conf?format=json&name=yarn.scheduler.include-port-in-node-name",
        )
        assert text["property"]["value"] == "true"

    def test_a_full_disk_takes_names_and_no_bytes(self, hadoop: GetHadoop) -> None:
        files = hadoop(*CROWDED).hdfs
        files.make_folder("/there/is/room/for/names")
        with pytest.raises(WebError, match="Failed to find datanode"):
            files.put("/bytes", b"x")


class TestDouble:
    def test_another_resource_manager_takes_over(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*DOUBLE)
        app = submit(cluster, "sleep 300")
        cluster.wait_for(app, ["ACCEPTED"])
        killed = cluster.kill_active_rm()

        def other() -> bool:
            try:
                return cluster.active_rm() != killed
            except Exception:
                return False

        assert eventually(other, 60)
        assert cluster.application(app)["state"] == "ACCEPTED"

    def test_another_name_node_takes_over(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*DOUBLE)
        assert cluster.default_fs == "hdfs://sandbox"
        cluster.hdfs.put("/before", b"kept")
        before = cluster.webhdfs_url
        assert cluster.fail_over_hdfs() in ("nn0", "nn1")
        assert cluster.webhdfs_url != before
        assert cluster.hdfs.get("/before") == b"kept"
        cluster.hdfs.put("/after", b"x")
