"""The contract of schedulers, on real YARN."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.hadoop.base import NODE_MEMORY_MB
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import Clusters
from tests.cluster.hadoop.jars import VERSIONS
from tests.schedulers.contract import *  # noqa: F403
from tests.schedulers.yarn.fixtures import (
    MOST_MB,
    YarnHarness,
    YarnMasters,
    fill,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(
    hadoop_clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hadoop]:
    """One for all of these tests, with as much free on its node as one container may have, and
    as little in a container's environment as a site can leave there."""
    features = ("log_aggregation", "bare_environment")
    _, found = hadoop_clusters.get(features, VERSIONS[0], set())
    masters = YarnMasters(found, tmp_path_factory.mktemp("filler"))
    fill(masters, NODE_MEMORY_MB - MOST_MB)
    yield found
    masters.close()


@pytest.fixture
def harness(cluster: Hadoop, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(cluster, tmp_path / "masters")
    yield made
    made.close()
