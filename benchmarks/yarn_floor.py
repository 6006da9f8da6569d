"""The least possible YARN job: what `yarn_start.py` measures ours against.

``client COUNT FOLDER`` submits; ``master COUNT FOLDER CHECKOUT`` runs in the application's first
container, asks for COUNT containers by host, rack and ``*`` in one call, and starts in each
a shell that writes a file with the time into FOLDER. No staging, no files, no page, no watching,
no site-packages.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List

from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest
from tony_core.hadoop.yarn.messages.yarn import Priority
from tony_core.hadoop.yarn.node_manager import NodeManager, NodeTokens
from tony_core.hadoop.yarn.records import Capability, Container
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.hadoop.yarn.rm_master import RmMaster

SMALL = Capability(memory_mb=64, vcores=1)
MASTER = Capability(memory_mb=256, vcores=1)


def client(count: str, folder: str) -> None:
    rm = RmClient.open(SiteConfiguration.load())
    application = rm.new_application().id
    checkout = Path(__file__).resolve().parents[1]
    words = (
        f"exec {sys.executable} -S {Path(__file__).resolve()} master {count} {folder} {checkout}"
    )
    environment = {
        "PYTHONPATH": str(checkout),
        "HADOOP_CONF_DIR": os.environ["HADOOP_CONF_DIR"],
    }
    launch = Launch((f"{words} 2><LOG_DIR>/stderr",), environment)
    rm.submit(
        ApplicationSubmissionContext(
            application_id=application.to_message(),
            application_name="floor",
            queue="default",
            am_container_spec=launch.to_message(),
            resource=MASTER.to_message(),
            max_app_attempts=1,
        )
    )
    deadline = time.monotonic() + 60
    while rm.report(application).state not in ("FINISHED", "FAILED", "KILLED"):
        assert time.monotonic() < deadline, rm.report(application)
        time.sleep(0.05)


def master(count: str, folder: str, _checkout: str) -> None:
    wanted = int(count)
    conf = SiteConfiguration.load()
    token = am_rm_token(Credentials.of_container(os.environ))
    assert token is not None
    rm = RmMaster.open(endpoints.rm_scheduler(conf), token)
    nodes = RmClient.open(conf).nodes()
    with_ports = conf.boolean("yarn.scheduler.include-port-in-node-name", False)
    rm.register("localhost", 0, "")
    tokens = NodeTokens()
    requests: List[ResourceRequest] = []
    share = -(-wanted // len(nodes))
    left = wanted
    racks: Dict[str, int] = {}
    for node in nodes:
        some = min(share, left)
        left -= some
        racks[node.rack] = racks.get(node.rack, 0) + some
        requests.append(_request(str(node.id) if with_ports else node.id.host, some))
    requests += [_request(rack, number) for rack, number in racks.items()]
    requests.append(_request("*", wanted))
    found: List[Container] = []
    first = True
    while len(found) < wanted:
        answer = rm.allocate(resource_requests=requests if first else ())
        first = False
        tokens.update(answer.node_tokens)
        found += answer.allocated
        if len(found) < wanted:
            time.sleep(0.05)
    by_node: Dict[object, List[Container]] = {}
    for container in found[:wanted]:
        by_node.setdefault(container.node, []).append(container)

    def start(node: object) -> None:
        manager = NodeManager(node, tokens.get(node))  # type: ignore[arg-type]
        line = f"exec date +%s.%N > {folder}/$CONTAINER_ID"
        manager.start([(container.token, Launch((line,))) for container in by_node[node]])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(start, by_node))
    done = 0
    deadline = time.monotonic() + 60
    while done < wanted and time.monotonic() < deadline:
        done += len(rm.allocate(release=[c.id for c in found[wanted:]]).completed)
        time.sleep(0.1)
    rm.finish("SUCCEEDED", "")


def _request(where: str, count: int) -> ResourceRequest:
    return ResourceRequest(
        priority=Priority(priority=1),
        resource_name=where,
        capability=SMALL.to_message(),
        num_containers=count,
        allocation_request_id=1,
    )


if __name__ == "__main__":
    {"client": client, "master": master}[sys.argv[1]](*sys.argv[2:])
