"""What the doctor thinks of what a probe saw; and on a real cluster, well and unwell."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Callable, Dict, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony
from tony_core.hadoop.records import Capability
from tony_core.schedulers.port import Verdict
from tony_core.schedulers.yarn.examine import judge
from tony_core.schedulers.yarn.facts import ClusterFacts, NodeFacts

FACTS = ClusterFacts("me", Capability(), nodes=(NodeFacts("n1:1", Capability(1024, 1)),))
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
    found = judge(seen, FACTS, why_no_proxy)
    assert all(one.advice for one in found if one.what in ("clocks",) and one.verdict == "wrong")
    return [one.what for one in found if one.verdict is Verdict.WRONG]


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


def test_without_the_proxy_the_clock_is_not_known() -> None:
    seen = {name: value for name, value in WELL.items() if name != "clock_off_s"}
    found = {one.what: one.verdict for one in judge(seen, FACTS, "http://rm answers 500")}
    assert found["web proxy"] is Verdict.WRONG
    assert found["clocks"] is Verdict.SKIPPED


@pytest.mark.cluster
class TestReal:
    def look(self, one: Tony, *words: str) -> tuple[int, Dict[str, Dict[str, str]]]:
        done = one("doctor", "--json", *words, check=False)
        findings = json.loads(done.stdout)["findings"]
        return done.returncode, {found["what"]: found for found in findings}

    @pytest.mark.parametrize("version", ["3.4.2", "3.3.6"])
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
        one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation"))
        code, found = self.look(one, "--python", "/opt/none/python3")
        assert code == 3
        assert found["a container"]["verdict"] == "wrong"
        assert "/opt/none/python3" in found["a container"]["said"]
        assert "--python" in found["a container"]["advice"]

    def test_hdfs_is_down(self, hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
        cluster = hadoop("two_nodes", "gpu", "log_aggregation")
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
        one = tony_on(hadoop("two_nodes", "gpu", "log_aggregation"))
        code, found = self.look(one, "--queue", "nowhere", "--no-probe")
        assert code == 3
        assert "nowhere" in found["queue"]["said"]
        assert found["a container"]["verdict"] == "skipped"


def test_without_a_configuration_it_says_where_it_looked(tony_on: Callable[..., Tony]) -> None:
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
