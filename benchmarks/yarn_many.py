"""A gang of thousands on a thousand nodes: how long until it stands, and what the master pays.

    python benchmarks/yarn_many.py [--nodes 1000] [--containers 2000] [--heartbeat 1.0]

The nodes and the ResourceManager are simulated, in a process of their own
(``tests/cluster/fakeyarn``), with the rules of the CapacityScheduler and real sockets; this
process is the master. On a machine with few cores both share them, so the times are an upper
bound of ours; processor time and memory are the master's alone. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.hadoop.yarn.ids import AttemptId
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.yarn import ContainerLaunchContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.hadoop.yarn.rm_master import RmMaster
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.yarn.master.launch_context import LaunchContexts
from tony_core.schedulers.yarn.master.pool import Application
from tony_core.schedulers.yarn.master.pool_factory import connect_pool

CHECKOUT = Path(__file__).resolve().parents[1]
SMALL = Resources(memory_mb=64)
WAIT_S = 300.0
SLOW_S = 10.0


class Master:
    """Launches what it is given, and counts."""

    def __init__(self, conf: SiteConfiguration) -> None:
        self._changed = threading.Condition(threading.RLock())
        self.held: Dict[str, container_pool.Container] = {}
        self.started = self.ended = 0
        client = RmClient.open(conf, identity=ClusterIdentity(user_name()))
        app = client.new_application().id
        client.submit(
            ApplicationSubmissionContext(
                application_id=app.to_message(),
                application_name="many",
                unmanaged_am=True,
                application_type="TONY",
                am_container_spec=ContainerLaunchContext(),
                resource=Capability(64, 1).to_message(),
                max_app_attempts=1,
            )
        )
        token = client.report(app).am_rm_token
        assert token is not None
        client.close()
        application = Application(AttemptId(app, 1), user_name(), 1, "127.0.0.1")
        job = Job("many", (Role("worker", 1, SMALL, "true"),))
        self.pool = connect_pool(conf, application, job, LaunchContexts(), token)

    def receive(self, event: container_pool.PoolEvent) -> None:
        with self._changed:
            if isinstance(event, container_pool.Allocated):
                for container in event.containers:
                    self.held[container.id] = container
                    self.pool.launch(container, container_pool.Launch(("true",), {}, ()))
            elif isinstance(event, container_pool.Started):
                self.started += 1
            elif isinstance(event, container_pool.Completed):
                self.held.pop(event.container_id, None)
                self.ended += 1
            self._changed.notify_all()

    def wait(self, what: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(what, WAIT_S), "it takes too long"


def memory_mb() -> float:
    """Resident."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--containers", type=int, default=2000)
    parser.add_argument("--heartbeat", type=float, default=1.0, help="of a node, in seconds")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fake = [sys.executable, "-m", "tests.cluster.fakeyarn", folder]
        fake += ["--nodes", str(words.nodes), "--heartbeat", str(words.heartbeat)]
        with subprocess.Popen(
            fake, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            conf = SiteConfiguration.load({}, conf_dir=f"{folder}/conf")
            for name, value, unit in figures(conf, words.containers):
                line = {
                    "benchmark": "yarn_many",
                    "figure": name,
                    "value": round(value, 4),
                    "unit": unit,
                    "nodes": words.nodes,
                    "containers": words.containers,
                    "node_heartbeat_s": words.heartbeat,
                }
                print(json.dumps(line), flush=True)


def figures(conf: SiteConfiguration, count: int) -> List[tuple[str, float, str]]:
    """A gang's life."""
    beats = 0
    allocate = RmMaster.allocate

    def counted(self: RmMaster, **more: Any) -> Any:
        nonlocal beats
        beats += 1
        return allocate(self, **more)

    RmMaster.allocate = counted  # type: ignore[method-assign]
    found: List[tuple[str, float, str]] = []
    master = Master(conf)
    before = memory_mb()
    master.pool.start(master.receive, "http://127.0.0.1:1/")
    begun, paid = time.monotonic(), time.process_time()
    master.pool.request([container_pool.ContainerRequest("worker", 0, count, SMALL)], True)
    master.wait(lambda: len(master.held) >= count)
    found.append(("granted", time.monotonic() - begun, "s"))
    master.wait(lambda: master.started >= count)
    found.append(("started", time.monotonic() - begun, "s"))
    found.append(("processor_until_started", time.process_time() - paid, "s"))
    found.append(("heartbeats_until_started", float(beats), ""))
    beats, paid = 0, time.process_time()
    time.sleep(SLOW_S)
    found.append(("processor_for_a_calm_heartbeat", (time.process_time() - paid) / beats, "s"))
    found.append(("memory_before", before, "MB"))
    found.append(("memory_with_all", memory_mb(), "MB"))
    begun, paid = time.monotonic(), time.process_time()
    for name in list(master.held):
        master.pool.stop(name)
    master.wait(lambda: master.ended >= count)
    found.append(("stopped", time.monotonic() - begun, "s"))
    found.append(("processor_until_stopped", time.process_time() - paid, "s"))
    master.pool.finish(port.AppState.SUCCEEDED, "")
    master.pool.close()
    return found


if __name__ == "__main__":
    main()
