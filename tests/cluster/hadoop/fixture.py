"""pytest's way to a cluster: the fixture ``hadoop`` and, when a test fails, what ran on it.

    @pytest.mark.cluster
    def test_it(hadoop):
        cluster = hadoop("two_nodes", "gpu")

Coming up takes some seconds, so a cluster serves every test of the session that asks for the same
features; each gets it healed: all daemons up, no application running. A few are kept at most,
since each takes 1 GB and more; the one not used for longest goes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Callable, Dict, Generator, Iterator, List, Set, Tuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.features import complete
from tests.cluster.hadoop.jars import VERSIONS, SandboxError, cache_root, distribution

KEPT = 2
"""Clusters up at a time."""

LONGEST_REPORT = 40_000
"""Characters of an application's logs in a failure's report."""

GetHadoop = Callable[..., Hadoop]

_Key = Tuple[str, Tuple[str, ...]]


class Clusters:
    """The session's clusters; the last used one stands last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Dict[_Key, Hadoop] = {}
        self._made = 0
        # A test's environment is its own; where the jars are is the session's matter.
        self.cache = cache_root().absolute()

    def get(
        self, features: Tuple[str, ...], version: str, in_use: Set[_Key]
    ) -> Tuple[_Key, Hadoop]:
        """One with these features, up and healed."""
        key = (version, tuple(complete(features)))
        if key in self._known:
            cluster = self._known.pop(key)
            try:
                cluster.heal()
            except (SandboxError, OSError):
                cluster.remove()
            else:
                self._known[key] = cluster
        if key not in self._known:
            self._make_room(in_use)
            self._made += 1
            jars = distribution(version, self.cache)
            self._known[key] = Hadoop.up(self._new_folder(key[1]), key[1], jars=jars)
        return key, self._known[key]

    def _new_folder(self, features: Tuple[str, ...]) -> Path:
        if "linux_executor" in features:
            # Other users work in it, and pytest's own folder is closed to them.
            return Path(tempfile.mkdtemp(prefix="hadoop-"))
        return self._folder / str(self._made)

    def _make_room(self, in_use: Set[_Key]) -> None:
        idle = [key for key in self._known if key not in in_use]
        while idle and len(self._known) >= KEPT:
            self._known.pop(idle.pop(0)).remove()

    def close(self) -> None:
        """All down, whatever happens to one of them."""
        while self._known:
            self._known.popitem()[1].remove()


class Used:
    """The clusters that one test has asked for, and what had run on them before."""

    def __init__(self) -> None:
        self.clusters: Dict[_Key, Hadoop] = {}
        self._before: Dict[_Key, Set[str]] = {}

    def add(self, key: _Key, cluster: Hadoop) -> None:
        if key not in self.clusters:
            self.clusters[key] = cluster
            self._before[key] = {app["id"] for app in cluster.applications()}

    def report(self) -> List[Tuple[str, str]]:
        """Title and text of everything worth a look after a failure."""
        found = []
        for key, cluster in self.clusters.items():
            try:
                found += self._report(key, cluster)
            except (SandboxError, OSError) as error:
                found.append(("the cluster", f"cannot be asked: {error}"))
        return found

    def _report(self, key: _Key, cluster: Hadoop) -> List[Tuple[str, str]]:
        found = []
        for name, state in cluster.daemons().items():
            if state["pid"] is None or state["exit"] is not None:
                found.append((f"{name}, which is down", cluster.log_tail(name)))
        for app in cluster.applications():
            if app["id"] not in self._before[key]:
                title = f"{app['id']} ({app['name']}): {app['state']}, {app['finalStatus']}"
                text = f"{app.get('diagnostics', '')}\n{cluster.application_logs(app['id'])}"
                found.append((title, text[-LONGEST_REPORT:]))
        return found


_USED = pytest.StashKey[Used]()


@pytest.fixture(scope="session")
def hadoop_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Started on demand; down at the end of the session, or when its process ends."""
    clusters = Clusters(tmp_path_factory.mktemp("hadoop"))
    yield clusters
    clusters.close()


@pytest.fixture
def hadoop(hadoop_clusters: Clusters, request: pytest.FixtureRequest) -> GetHadoop:
    """``hadoop("two_nodes", "gpu", version="3.3.6")``: a cluster with these features."""
    used = request.node.stash.setdefault(_USED, Used())

    def get(*features: str, version: str = VERSIONS[0]) -> Hadoop:
        key, cluster = hadoop_clusters.get(features, version, set(used.clusters))
        used.add(key, cluster)
        return cluster

    return get


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With the logs of the applications of a test that failed."""
    report = yield
    used = item.stash.get(_USED, None)
    if report.failed and used is not None:
        report.sections += [(f"Hadoop: {title}", text) for title, text in used.report()]
    return report
