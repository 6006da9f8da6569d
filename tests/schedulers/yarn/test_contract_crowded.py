"""The contract of schedulers, in a small queue of a real YARN beside two busy applications."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.features import SMALL_MB
from tests.cluster.hadoop.fixture import Clusters
from tests.cluster.hadoop.jars import VERSIONS
from tests.schedulers.contract import *  # noqa: F403
from tests.schedulers.yarn.fixtures import YarnHarness, busy_neighbours

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster(
    hadoop_clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hadoop]:
    """One for all of these tests; its nodes export nothing either."""
    features = ("log_aggregation", "bare_environment", "small_queue")
    _, found = hadoop_clusters.get(features, VERSIONS[0], set())
    with busy_neighbours(found, tmp_path_factory.mktemp("busy")):
        yield found


@pytest.fixture
def harness(cluster: Hadoop, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(cluster, tmp_path / "masters", "small", SMALL_MB)
    yield made
    made.close()
