"""The contract of schedulers, on real YARN with Kerberos."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.hadoop.base import NODE_MEMORY_MB
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import Clusters
from tests.cluster.hadoop.jars import VERSIONS
from tests.schedulers.contract import *  # noqa: F403
from tests.schedulers.contract import until
from tests.schedulers.yarn.fixtures import MOST_MB, YarnHarness, YarnMasters, fill

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster(
    hadoop_clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hadoop]:
    """As for the open cluster, on one of its two nodes: the other one is stopped."""
    features = ("secure", "log_aggregation")
    _, found = hadoop_clusters.get(features, VERSIONS[0], set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", found.environment_of(found.user)["KRB5_CONFIG"])
        found.stop("nm1")
        until(lambda: running_nodes(found) == 1, "the second node is gone")
        masters = YarnMasters(found, tmp_path_factory.mktemp("filler"))
        fill(masters, NODE_MEMORY_MB - MOST_MB)
        yield found
        masters.close()
        found.heal()


def running_nodes(cluster: Hadoop) -> int:
    return sum(node["state"] == "RUNNING" for node in cluster.nodes())


@pytest.fixture
def harness(cluster: Hadoop, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(cluster, tmp_path / "masters")
    yield made
    made.close()
