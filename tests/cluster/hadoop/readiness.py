"""When a cluster is ready: every daemon that runs has found the others, and HDFS can be written."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Dict, Set

from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.web import WebError, bean, call

if TYPE_CHECKING:
    from tests.cluster.hadoop.cluster import Hadoop

_DATA_NODE = "Hadoop:service=DataNode,name=DataNodeInfo"

_States = Dict[str, Dict[str, Any]]


def wait_ready(cluster: Hadoop, limit: float) -> None:
    """Return when it is; a SandboxError with the reason and the ends of logs when it is not."""
    deadline = time.monotonic() + limit
    while True:
        states = cluster.daemons()
        dead = [name for name, state in states.items() if state["exit"] is not None]
        if dead:
            tails = "\n".join(cluster.log_tail(name) for name in dead)
            raise SandboxError(f"{', '.join(dead)} ended by itself:\n{tails}")
        reason = find_problem(cluster, states)
        if not reason:
            return
        if time.monotonic() >= deadline:
            tails = "\n".join(cluster.log_tail(name, 8) for name in states)
            raise SandboxError(f"the cluster is not ready after {limit} s: {reason}\n{tails}")
        time.sleep(0.1)


def find_problem(cluster: Hadoop, states: _States) -> str:
    """Why it is not ready; empty when it is."""
    running = {name for name, state in states.items() if state["pid"] is not None}
    try:
        return _hdfs_problem(cluster, running) or _yarn_problem(cluster, running, states)
    except (OSError, WebError, SandboxError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _hdfs_problem(cluster: Hadoop, running: Set[str]) -> str:
    names = [name for name in cluster.names("nn") if name in running]
    if "dn0" not in running or not names:
        return ""
    if not cluster.name_nodes.active():
        cluster.name_nodes.activate(names[0])
    state = cluster.name_nodes.state()
    if not state or state["NumLiveDataNodes"] < 1:
        return "no DataNode has registered"
    if state["FSState"] != "Operational":
        return "HDFS is in safe mode"
    if not state["CapacityTotal"] and "no_space" not in cluster.features:
        return "the DataNode has not reported its disk"
    # A NameNode believes in one that has just been restarted for some time.
    found = bean(cluster.url("dn0"), _DATA_NODE, 5, cluster.admin)
    actors = json.loads(found["BPServiceActorInfo"])
    if "RUNNING" not in {actor["ActorState"] for actor in actors}:
        return "the DataNode has not found its NameNode"
    return ""


def _yarn_problem(cluster: Hadoop, running: Set[str], states: _States) -> str:
    names = [name for name in cluster.names("nm") if name in running]
    if not names or running.isdisjoint(cluster.names("rm")):
        return ""
    heartbeats = {
        node["id"]: node["lastHealthUpdate"] / 1000
        for node in cluster.nodes()
        if node["state"] == "RUNNING"
    }
    for name in names:
        # What was heard before its restart does not count.
        if heartbeats.get(cluster.node_id(name), 0) < states[name]["since"]:
            return f"{name} has not registered"
        url = f"{cluster.url(name)}/ws/v1/node/info"
        if not call("GET", url, timeout=5, by=cluster.admin)["nodeInfo"]["nodeHealthy"]:
            return f"{name} is not healthy"
    return ""
