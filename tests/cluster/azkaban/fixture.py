"""pytest's way to an Azkaban server with our job type in it.

    @pytest.mark.cluster
    def test_it(azkaban):
        run = azkaban().start({"train.job": {"type": "tony", ...}}, "train").ends()

A server comes up in seconds and serves every test of the session that asks for the same one: that
for the embedded scheduler, or that for a cluster. At a test's end the flows that it has left
running are cancelled, and what is left of any is swept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import pytest

from tests.cluster.azkaban.flows import Flows
from tests.cluster.azkaban.installing import installer
from tests.cluster.azkaban.jars import ServerJars, server_jars
from tests.cluster.azkaban.server import Azkaban
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.jars import cache_root

GetFlows = Callable[..., Flows]


class Servers:
    """The session's servers, by what their job type submits to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Dict[str, Azkaban] = {}
        self._made = 0
        # A test's environment is its own; where the jars are is the session's matter.
        self._cache = cache_root().absolute()

    @property
    def jars(self) -> ServerJars:
        return server_jars(self._cache)

    def get(self, cluster: Optional[Hadoop]) -> Azkaban:
        """One whose job type submits to this cluster, or to the embedded scheduler."""
        key = str(cluster.folder) if cluster else ""
        if key not in self._known:
            folder = self._folder / str(self._made)  # never that of one that did not come up
            self._made += 1
            conf = cluster.conf_dir if cluster else None
            self._known[key] = Azkaban.up(folder, installer(conf), jars=self.jars)
        return self._known[key]

    def close(self) -> None:
        """All down, whatever happens to one of them."""
        while self._known:
            self._known.popitem()[1].remove()


@pytest.fixture(scope="session")
def azkaban_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Started on demand; down at the end of the session, or when its process ends."""
    servers = Servers(tmp_path_factory.mktemp("azkaban"))
    yield servers
    servers.close()


@pytest.fixture
def azkaban(azkaban_servers: Servers, tmp_path: Path) -> Iterator[GetFlows]:
    """``azkaban()``, or ``azkaban(cluster)``: flows on such a server."""
    made: List[Flows] = []

    def get(cluster: Optional[Hadoop] = None) -> Flows:
        server = azkaban_servers.get(cluster)
        made.append(Flows(server, tmp_path / f"flows-{len(made)}", cluster))
        return made[-1]

    yield get
    for one in made:
        one.close()
