"""What the doctor thinks of what a probe saw; and on a real cluster, well and unwell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, cast

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony
from tests.fuzzing import fuzz, mutations
from tony_core.files import registry
from tony_core.files.local import LocalFileSystem
from tony_core.files.port import Stat
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.web import WebAccess
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Job
from tony_core.schedulers.port import CheckResult, Finding, SchedulerError
from tony_core.schedulers.yarn.client import resource_manager
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits, NodeCapacity
from tony_core.schedulers.yarn.client.doctor import Cluster, _parse_page, examine, judge_page

FACTS = ClusterLimits("me", Capability(), nodes=(NodeCapacity("n1:1", Capability(1024, 1)),))
WELL: Dict[str, Any] = {
    "host": "n1",
    "python": "3.11.2",
    "executable": "/usr/bin/python3",
    "system": "Linux",
    "clock_off_s": 0.1,
    "storage": "",
    "nodes": {},
    "hadoop": None,
    "nvidia_smi": "/usr/bin/nvidia-smi",
}


def wrong(seen: Dict[str, Any], why_no_proxy: str = "") -> List[str]:
    found = judge_page(seen, FACTS, why_no_proxy)
    assert all(one.advice for one in found if one.what in ("clocks",) and one.verdict == "wrong")
    return [one.what for one in found if one.verdict is CheckResult.WRONG]


def test_well() -> None:
    assert wrong(WELL) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"clock_off_s": 30.0}, ["clocks"]),
        ({"clock_off_s": -2.5}, ["clocks"]),
        ({"storage": "no DataNode"}, ["HDFS from a node"]),
        ({"nodes": {"n1:1": "refused"}}, ["NodeManagers from a node"]),
    ],
)
def test_unwell(changes: Dict[str, Any], what: List[str]) -> None:
    assert wrong({**WELL, **changes}) == what


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"nodes": ["n1:1"]}, ["NodeManagers from a node"]),
        ({"nodes": 7}, ["NodeManagers from a node"]),
        ({"nodes": "n1:1"}, ["NodeManagers from a node"]),
        ({"clock_off_s": "soon"}, ["clocks"]),
        ({"clock_off_s": [1]}, ["clocks"]),
    ],
)
def test_a_page_of_another_shape_is_a_finding(changes: Dict[str, Any], what: List[str]) -> None:
    assert wrong({**WELL, **changes}) == what


@fuzz(data=mutations(json.dumps({**WELL, "nodes": {"n1:1": "refused", "n2:1": ""}}).encode()))
def test_any_page_of_a_probe_is_judged(data: bytes) -> None:
    findings = judge_page(_parse_page(data.decode("latin-1")), FACTS, "")
    assert all(isinstance(found.detail, str) for found in findings)


def test_without_the_proxy_the_clock_is_not_known() -> None:
    seen = {name: value for name, value in WELL.items() if name != "clock_off_s"}
    found = {one.what: one.verdict for one in judge_page(seen, FACTS, "http://rm answers 500")}
    assert found["web proxy"] is CheckResult.WRONG
    assert found["clocks"] is CheckResult.SKIPPED


def test_a_proxy_that_wants_a_ticket_is_no_fault_of_a_client_with_tokens() -> None:
    seen = {name: value for name, value in WELL.items() if name != "clock_off_s"}
    found = judge_page(seen, FACTS, "http://rm/proxy answers 401", by_tokens=True)
    skipped = {one.what: one.detail for one in found if one.verdict is CheckResult.SKIPPED}
    assert set(skipped) == {"web proxy", "clocks"}
    assert all("asks for a ticket (kinit)" in text for text in skipped.values())
    assert not [one for one in found if one.verdict is CheckResult.WRONG]
    assert wrong(seen, "http://rm/proxy answers 401") == ["web proxy"]


class Store(LocalFileSystem):
    """HDFS, which may give back something else than it was given."""

    spoils = False

    def get(self, location: str, limit: Optional[int] = None) -> bytes:
        return super().get(location, limit)[: -1 if self.spoils else None]


class TestWhatIsLookedAt:
    """With parts of the cluster away; nothing is asked of a network."""

    @pytest.fixture(autouse=True)
    def store(self, monkeypatch: pytest.MonkeyPatch) -> Store:
        made = Store()
        monkeypatch.setattr(registry, "filesystem", lambda location: made)
        return made

    def look(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *closed: str,
        limits: ClusterLimits = FACTS,
        probe: bool = True,
    ) -> Dict[str, Finding]:
        """What is found where these ports are closed."""
        ports = {"8032": "rpc", "8088": "web"}

        def try_one(address: Address) -> str:
            return "connection refused" if ports[str(address.port)] in closed else ""

        def gather(job: Job) -> ClusterLimits:
            assert set(closed) != set(ports.values()), "no server answers"
            return limits

        monkeypatch.setattr(resource_manager, "_try_connect", try_one)
        conf = SiteConfiguration.of(
            {
                "fs.defaultFS": "hdfs://lake:8020",
                "yarn.resourcemanager.address": "rm:8032",
                "yarn.resourcemanager.webapp.address": "rm:8088",
            }
        )
        by_rest = cast(Any, object())
        root = str(folder / "root")
        cluster = Cluster(conf, "me", lambda: by_rest, gather, lambda: root, WebAccess)
        staged = cast(Any, lambda job, app_id: ())
        stage = staged if probe else None
        return {one.what: one for one in examine(cluster, Job("j", ()), stage)}

    def verdicts(self, found: Dict[str, Finding]) -> Dict[str, str]:
        return {what: one.verdict.value for what, one in found.items() if what != "configuration"}

    def test_without_rpc_all_but_the_probe(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job could be submitted: so the doctor says nothing is wrong."""
        limits = ClusterLimits("me", Capability(8192, 8), by_rest=True, why_rest="refused")
        found = self.look(tmp_path, monkeypatch, "rpc", limits=limits)
        assert self.verdicts(found) == {
            "ResourceManager by RPC": "note",
            "ResourceManager by web": "ok",
            "queue": "note",
            "nodes": "skipped",
            "HDFS": "ok",
            "a container": "skipped",
        }
        assert "rm:8032: connection refused" in found["ResourceManager by RPC"].detail
        assert "RPC" in found["a container"].detail

    def test_without_any_of_it_hdfs_is_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.verdicts(self.look(tmp_path, monkeypatch, "rpc", "web")) == {
            "ResourceManager by RPC": "wrong",
            "ResourceManager by web": "wrong",
            "queue": "skipped",
            "nodes": "skipped",
            "HDFS": "ok",
            "a container": "skipped",
        }

    def test_without_the_probe_hdfs_is_asked_and_nothing_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = self.look(tmp_path, monkeypatch, probe=False)
        assert found["HDFS"].verdict is CheckResult.OK
        assert "nothing was written" in found["HDFS"].detail
        assert found["a container"].verdict is CheckResult.SKIPPED
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        "error", [OSError("the NameNode did not serve us"), SchedulerError("on no HDFS")]
    )
    def test_without_the_probe_an_hdfs_that_is_down_is_wrong(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        store: Store,
        error: Exception,
    ) -> None:
        def stat(location: str) -> Stat:
            raise error

        monkeypatch.setattr(store, "stat", stat)
        found = self.look(tmp_path, monkeypatch, probe=False)
        assert found["HDFS"].verdict is CheckResult.WRONG
        assert str(error) in found["HDFS"].detail

    def test_hdfs_that_gives_back_something_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
    ) -> None:
        store.spoils = True
        found = self.look(tmp_path, monkeypatch)
        assert found["HDFS"].verdict is CheckResult.WRONG
        assert found["HDFS"].detail.endswith(": what is read is not what was written")
        assert found["a container"].detail == "TonY's own code cannot be staged"
        assert not list((tmp_path / "root").iterdir()), "nothing is left"


@pytest.mark.cluster
class TestReal:
    def look(self, one: Tony, *words: str) -> tuple[int, Dict[str, Dict[str, str]]]:
        done = one("doctor", "--json", *words, check=False)
        findings = json.loads(done.stdout)["findings"]
        return done.returncode, {found["what"]: found for found in findings}

    @pytest.mark.parametrize("version", ["3.4.2", pytest.param("3.3.6", marks=pytest.mark.nightly)])
    def test_a_cluster_that_is_well(
        self, hadoop: GetHadoop, tony_on: Callable[..., Tony], version: str
    ) -> None:
        features = ("two_nodes", "gpu", "log_aggregation") if version == "3.4.2" else ()
        cluster = hadoop(*features, version=version)
        code, found = self.look(tony_on(cluster))
        assert [what for what, one in found.items() if one["verdict"] == "wrong"] == []
        assert code == 0
        for what in ("a container", "web proxy", "clocks", "HDFS from a node"):
            assert found[what]["verdict"] == "ok"
        assert cluster.applications("RUNNING,ACCEPTED") == []
        left = cluster.hdfs.list(f"/user/{cluster.user}/.tony")
        assert not [name for name in left if "doctor" in name or "probe" in name]

    def test_no_python_on_the_nodes(self, hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
        one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
        code, found = self.look(one, "--python", "/opt/none/python3")
        assert code == 3
        assert found["a container"]["verdict"] == "wrong"
        assert "/opt/none/python3" in found["a container"]["said"]
        assert "--python" in found["a container"]["advice"]

    def test_hdfs_is_down(self, hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
        cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment")
        cluster.safe_mode(True)
        try:
            code, found = self.look(tony_on(cluster))
        finally:
            cluster.safe_mode(False)
        assert code == 3
        assert found["HDFS"]["verdict"] == "wrong"
        assert "safe mode" in found["HDFS"]["said"]
        assert found["a container"]["verdict"] == "skipped"

    def test_a_queue_that_is_not_there(
        self, hadoop: GetHadoop, tony_on: Callable[..., Tony]
    ) -> None:
        one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment"))
        code, found = self.look(one, "--queue", "nowhere", "--no-probe")
        assert code == 3
        assert "nowhere" in found["queue"]["said"]
        assert found["a container"]["verdict"] == "skipped"


def test_without_a_configuration_it_names_where_it_looked(tony_on: Callable[..., Tony]) -> None:
    one = tony_on()
    done = subprocess.run(
        [sys.executable, "-m", "tony_core.cli.main", "doctor", "--scheduler", "yarn"],
        env=one.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert "HADOOP_CONF_DIR" in done.stdout
