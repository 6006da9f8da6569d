"""A fake YARN, up and running, and what a test does to it.

    with FakeYarn(tmp_path, nodes=3) as yarn:
        client = RmClient.open(yarn.configuration)

Nodes are hosts on loopback addresses of their own (127.1.0.1, 127.1.0.2, ...), all at one port.
``real=True`` runs containers as processes.
"""

from __future__ import annotations

import getpass
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Callable, Dict, List, Optional, Sequence, Type

from tests.cluster.fakeyarn.applications import Application, Granted, Node
from tests.cluster.fakeyarn.clients import ClientProtocol
from tests.cluster.fakeyarn.manager import PREEMPTED, Limits, Manager
from tests.cluster.fakeyarn.masters import MasterProtocol
from tests.cluster.fakeyarn.nodes import Hands, Running
from tests.cluster.fakeyarn.server import Dead, Reactor, Service
from tests.cluster.fakeyarn.tokens import Tokens
from tests.cluster.fakeyarn.web import LOG_SERVER, Web
from tests.cluster.fakeyarn.wire import Call, ServerWire
from tests.cluster.hadoop.site import write_site
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.records import Capability

HEARTBEAT_S = 0.05
_LEAST_SLICES, _MOST_SLICES = 5, 20
"""Of a heartbeat: nodes call one after the other, not all at once."""

_WAIT_S = 60.0


class FakeYarn:
    """See the module."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 2,
        node: Capability = Capability(16384, 64),
        heartbeat_s: float = HEARTBEAT_S,
        real: bool = False,
        limits: Optional[Limits] = None,
        qop: str = "auth",
        racks: int = 1,
        memory_checks_s: float = 0.4,
        site: Optional[Dict[str, str]] = None,
    ) -> None:
        self.folder = folder
        self.user = getpass.getuser()
        self.reactor = Reactor()
        self.tokens = Tokens()
        self.hands = Hands(folder, self._fetch, real=real)
        self.rm = Manager(self.tokens, self.hands, limits or Limits())
        self._heartbeat_s = heartbeat_s
        self._memory_s = memory_checks_s
        self._next_memory = 0.0
        self._qop = qop
        self._slice = 0
        self._site = site or {}
        self.clients = Service(ClientProtocol(self.rm).answer, ServerWire)
        self.masters = Service(
            MasterProtocol(self.rm).answer, self._wire(self.tokens.secret_of_master)
        )
        self.nodes = Service(self._at_node, self._wire(self.tokens.secret_of_node))
        self._sizes = (nodes, node, racks)
        self.web = Web(folder / "hdfs", self._find_logs)
        self.rm.web = f"127.0.0.1:{self.web.port}"
        self._client_port = self._master_port = self._node_port = 0

    def _wire(self, secret_of: Callable[[bytes], bytes]) -> Callable[[], ServerWire]:
        return lambda: ServerWire(secret_of, qop=self._qop)

    # ---------------------------------------------------------------- life

    def __enter__(self) -> FakeYarn:
        self.reactor.start()
        self.web.start()
        self._client_port = self.reactor.listen(self.clients)
        self._master_port = self.reactor.listen(self.masters)
        self._node_port = self.reactor.listen(self.nodes, "0.0.0.0")
        count, capability, racks = self._sizes
        with self.reactor.lock:
            for number in range(count):
                rack = "/default-rack" if racks == 1 else f"/rack-{number % racks}"
                self.add_node(number, capability, rack)
        self.reactor.later(self._heartbeat_s, self._beat)
        self._write_conf()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()
        if error is None and self.reactor.failures:
            raise self.reactor.failures[0]

    def stop(self) -> None:
        """Nothing of it runs any more."""
        self.reactor.stop()
        self.web.stop()
        for manager in self.rm.managers.values():
            manager.power_cut()

    def add_node(self, number: int, capability: Capability, rack: str) -> Node:
        host = f"127.1.{number // 250}.{number % 250 + 1}"
        node = Node(NodeId(host, self._node_port), capability, rack)
        node.http_port = self.web.port
        self.rm.add_node(node)
        return node

    @property
    def conf_dir(self) -> Path:
        """For HADOOP_CONF_DIR."""
        return self.folder / "conf"

    @property
    def configuration(self) -> SiteConfiguration:
        return SiteConfiguration.load({}, conf_dir=str(self.conf_dir))

    def _write_conf(self) -> None:
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        protection = {"auth": "authentication", "auth-int": "integrity", "auth-conf": "privacy"}
        core = {
            "fs.defaultFS": "hdfs://127.0.0.1:1",  # no server speaks RPC there
            "hadoop.rpc.protection": protection[self._qop],
        }
        rm = "yarn.resourcemanager"
        site = {
            f"{rm}.address": f"127.0.0.1:{self._client_port}",
            f"{rm}.scheduler.address": f"127.0.0.1:{self._master_port}",
            f"{rm}.webapp.address": self.rm.web,
            "yarn.log.server.web-service.url": f"http://{self.rm.web}{LOG_SERVER}",
            f"{rm}.am.max-attempts": str(self.rm.limits.attempts),
            "yarn.scheduler.minimum-allocation-mb": str(self.rm.limits.least_mb),
            "yarn.scheduler.include-port-in-node-name": str(self.rm.limits.names_with_port).lower(),
        }
        for key, value in self._site.items():
            (core if key.startswith(("fs.", "hadoop.")) else site)[key] = value
        hdfs = {"dfs.namenode.http-address": f"127.0.0.1:{self.web.port}"}
        write_site(self.conf_dir / "core-site.xml", core)
        write_site(self.conf_dir / "hdfs-site.xml", hdfs)
        write_site(self.conf_dir / "yarn-site.xml", site)

    # ---------------------------------------------------------------- what goes on

    def _at_node(self, host: str, call: Call) -> Message:
        manager = self.rm.managers.get(NodeId(host, self._node_port))
        if manager is None or manager.dead:
            raise Dead
        return manager.answer(call)

    def _beat(self) -> None:
        nodes = list(self.rm.nodes.values())
        slices = min(_MOST_SLICES, max(_LEAST_SLICES, len(nodes)))
        self.reactor.later(self._heartbeat_s / slices, self._beat)
        part = self._slice = (self._slice + 1) % slices
        memory = self.hands.real and time.monotonic() >= self._next_memory
        if memory:
            self._next_memory = time.monotonic() + self._memory_s
        for node in nodes[part::slices]:
            self.rm.heartbeat(node)
        for manager in self.rm.managers.values() if self.hands.real else ():
            if manager.running:
                manager.look(memory)
        if not self.hands.real:
            for node in nodes[part::slices]:
                self.rm.managers[node.id].look()

    def _fetch(self, location: str) -> Path:
        scheme, _, rest = location.partition("://")
        path = rest.partition("/")[2]
        return Path("/", path) if scheme == "file" else self.folder / "hdfs" / path

    def _find_logs(self, name: str, on_node: bool) -> Optional[Path]:
        try:
            container = ContainerId.parse(name)
        except ValueError:
            return None
        with self.reactor.lock:
            one = self.rm.applications.get(container.attempt.application)
            if one is None or (on_node and one.over):
                return None
        return self.hands.logs(container)

    # ---------------------------------------------------------------- looking

    def applications(self) -> List[Application]:
        with self.reactor.lock:
            return list(self.rm.applications.values())

    def live(self) -> List[Granted]:
        """All containers but masters that the ResourceManager counts, granted or running."""
        with self.reactor.lock:
            return [
                granted
                for one in self.rm.applications.values()
                for granted in one.live.values()
                if not granted.master
            ]

    def running(self) -> List[Running]:
        """What NodeManagers run, masters too."""
        with self.reactor.lock:
            return [one for nm in self.rm.managers.values() for one in nm.running.values()]

    def started(self) -> List[ContainerId]:
        """Every start that a node took on, in order; twice if it happened twice."""
        with self.reactor.lock:
            return list(self.hands.started)

    # ---------------------------------------------------------------- doing

    def end(self, container: ContainerId, code: int = 0) -> None:
        """A simulated container exits."""
        with self.reactor.lock:
            for manager in self.rm.managers.values():
                if container in manager.running:
                    manager.end(container, code)
                    return
        raise AssertionError(f"{container} runs nowhere")

    def lose_node(self, node: NodeId, *, power_cut: bool = True) -> None:
        """It is not heard of any more; its containers are lost."""
        with self.reactor.lock:
            if power_cut:
                self.rm.managers[node].power_cut()
                self.reactor.disconnect(self.nodes, node.host)
            self.rm.lose(self.rm.nodes[node])

    def restart_rm(self, down_s: float = 0.0) -> None:
        """It dies, is away for a while, and comes back with what it had written down."""
        with self.reactor.lock:
            self.rm.down = True
            self.reactor.unlisten(self._client_port)
            self.reactor.unlisten(self._master_port)
        time.sleep(down_s)
        with self.reactor.lock:
            self.rm.restart()
            self.rm.down = False
            self.reactor.listen(self.clients, port=self._client_port)
            self.reactor.listen(self.masters, port=self._master_port)

    def roll_master_key(self) -> None:
        """Masters get new tokens from now on, and use the old ones until they have them."""
        with self.reactor.lock:
            self.tokens.am_rm.roll()

    def forget_old_master_keys(self) -> None:
        """Who has not changed over is out."""
        with self.reactor.lock:
            self.tokens.am_rm.forget_old()
            self.reactor.disconnect(self.masters)

    def roll_node_key(self) -> None:
        """Masters get new tokens for nodes with the next containers there."""
        with self.reactor.lock:
            self.tokens.nm.roll()
            for one in self.rm.applications.values():
                one.attempt.node_tokens = set()

    def request_preemption(
        self, containers: Sequence[ContainerId], *, certain: bool = True
    ) -> None:
        """They will be preempted."""
        with self.reactor.lock:
            for container in containers:
                one = self.rm.applications[container.attempt.application]
                one.attempt.preempt[0 if certain else 1].add(container)

    def preempt(self, container: ContainerId) -> None:
        """It is taken back."""
        with self.reactor.lock:
            one = self.rm.applications[container.attempt.application]
            granted = one.live[container]
            self.rm.end(granted, PREEMPTED, "Container preempted by scheduler")

    def command(self, application: Application, number: int) -> None:
        """RESYNC (1) or SHUTDOWN (2), with the next answer."""
        with self.reactor.lock:
            application.attempt.command = number

    def until(self, what: Callable[[], object], reason: str, within_s: float = _WAIT_S) -> None:
        """Wait for something to come true."""
        end = time.monotonic() + within_s
        while not what():
            assert time.monotonic() < end, f"waited {within_s} s: {reason}"
            time.sleep(0.01)


def environment(yarn: FakeYarn) -> Dict[str, str]:
    """For a client of this cluster."""
    return {**os.environ, "HADOOP_CONF_DIR": str(yarn.conf_dir)}
