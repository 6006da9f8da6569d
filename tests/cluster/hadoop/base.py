"""The configuration that every cluster has, for the numbers of daemons in its plan."""

from __future__ import annotations

from typing import Tuple

from tests.cluster.hadoop.plan import LOOPBACK, NODE_MEMORY_MB, NODE_VCORES, Daemon, Plan

_SERVER = "org.apache.hadoop.yarn.server"

NAMESERVICE = "sandbox"
"""What HDFS is called when it has two NameNodes."""

CLUSTER_ID = "sandbox"

# The addresses of a ResourceManager, each by the setting that holds it.
_RM_ADDRESSES = {
    "address": "rpc",
    "webapp.address": "web",
    "scheduler.address": "",
    "resource-tracker.address": "",
    "admin.address": "",
}


def configure(plan: Plan) -> None:
    """HDFS, YARN and the queues; the daemons in the order in which they start."""
    if plan.rm_count > 1:
        _zookeeper(plan)
    _core(plan)
    _name_nodes(plan)
    _resource_managers(plan)
    _data_node(plan)
    for index in range(plan.node_count):
        _node_manager(plan, index)
    _queues(plan)


def _core(plan: Plan) -> None:
    plan.site("core-site").update(
        {
            "hadoop.tmp.dir": str(plan.folder / "data" / "tmp"),
            "hadoop.rpc.protection": "authentication",
            f"hadoop.proxyuser.{plan.user}.hosts": "*",
            f"hadoop.proxyuser.{plan.user}.groups": "*",
            # What is down is noticed at once, and there is a deadline around each wait anyway.
            "ipc.client.connect.retry.interval": "500",
        }
    )


def _name_nodes(plan: Plan) -> None:
    hdfs = plan.site("hdfs-site")
    hdfs.update(
        {
            "dfs.replication": "1",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            # A DataNode that closes a small file too soon asks again after so many ms, not 400.
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            # A power cut may take a test's file system with it.
            "dfs.namenode.edits.noeditlogchannelflush": "true",
        }
    )
    several = plan.nn_count > 1
    for index in range(plan.nn_count):
        name = f"nn{index}"
        daemon = plan.add(
            Daemon(
                name,
                "org.apache.hadoop.hdfs.server.namenode.NameNode",
                rpc=plan.address(),
                web=plan.address(),
            )
        )
        suffix = f".{NAMESERVICE}.{name}" if several else ""
        hdfs[f"dfs.namenode.rpc-address{suffix}"] = daemon.rpc
        hdfs[f"dfs.namenode.http-address{suffix}"] = daemon.web
        own = plan.own(name, "hdfs-site")
        own["dfs.namenode.name.dir"] = f"file://{plan.data(name) / 'name'}"
        if several:
            own["dfs.ha.namenode.id"] = name
    if not several:
        plan.site("core-site")["fs.defaultFS"] = f"hdfs://{plan.daemons['nn0'].rpc}"
        return
    plan.site("core-site")["fs.defaultFS"] = f"hdfs://{NAMESERVICE}"
    proxy = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    hdfs.update(
        {
            "dfs.nameservices": NAMESERVICE,
            f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(d.name for d in plan.role("nn")),
            f"dfs.client.failover.proxy.provider.{NAMESERVICE}": proxy,
            "dfs.namenode.shared.edits.dir": f"file://{plan.folder / 'data' / 'edits'}",
            "dfs.ha.automatic-failover.enabled": "false",
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": "1",
            "dfs.ha.log-roll.period": "5",
        }
    )


def _data_node(plan: Plan) -> None:
    daemon = plan.add(
        Daemon(
            "dn0",
            "org.apache.hadoop.hdfs.server.datanode.DataNode",
            rpc=plan.address(),
            web=plan.address(),
        )
    )
    plan.own("dn0", "hdfs-site").update(
        {
            "dfs.datanode.data.dir": f"file://{plan.data('dn0') / 'blocks'}",
            "dfs.datanode.hostname": "localhost",
            "dfs.datanode.address": plan.address(),
            "dfs.datanode.ipc.address": daemon.rpc,
            "dfs.datanode.http.address": daemon.web,
        }
    )


def _resource_managers(plan: Plan) -> None:
    yarn = plan.site("yarn-site")
    yarn.update(
        {
            "yarn.resourcemanager.cluster-id": CLUSTER_ID,
            # By default below /tmp, the same for all clusters of a user.
            "yarn.node-attribute.fs-store.root-dir": f"file://{plan.data('rm0') / 'attributes'}",
            "yarn.resourcemanager.connect.retry-interval.ms": "1000",
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.scheduler.maximum-allocation-mb": "8192",
            "yarn.scheduler.maximum-allocation-vcores": "32",
        }
    )
    for index in range(plan.rm_count):
        name = f"rm{index}"
        daemon = plan.add(Daemon(name, f"{_SERVER}.resourcemanager.ResourceManager"))
        suffix = f".{name}" if plan.rm_count > 1 else ""
        yarn[f"yarn.resourcemanager.hostname{suffix}"] = "localhost"
        for setting, attribute in _RM_ADDRESSES.items():
            address = plan.address()
            yarn[f"yarn.resourcemanager.{setting}{suffix}"] = address
            if attribute:
                setattr(daemon, attribute, address)


def _zookeeper(plan: Plan) -> None:
    address = plan.address()
    data = plan.data("zk")
    plan.add(
        Daemon(
            "zk",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            heap_mb=128,
            rpc=address,
            flags=["-Dzookeeper.admin.enableServer=false"],
            arguments=[str(plan.folder / "conf" / "zoo.cfg")],
        )
    )
    host, port = address.rsplit(":", 1)
    plan.extra_files["zoo.cfg"] = "".join(
        f"{name}={value}\n"
        for name, value in {
            "tickTime": 500,
            "dataDir": data,
            "clientPortAddress": host,
            "clientPort": port,
            "maxClientCnxns": 0,
        }.items()
    )


def _node_manager(plan: Plan, index: int) -> None:
    name, host = node_of(index)
    daemon = plan.add(
        Daemon(
            name,
            f"{_SERVER}.nodemanager.NodeManager",
            host=host,
            rpc=plan.address(_shown(host), host),
            web=plan.address(_shown(host), host),
        )
    )
    data = plan.data(name)
    plan.own(name, "yarn-site").update(
        {
            "yarn.nodemanager.hostname": _shown(host),
            "yarn.nodemanager.address": daemon.rpc,
            "yarn.nodemanager.webapp.address": daemon.web,
            "yarn.nodemanager.localizer.address": plan.address(_shown(host), host),
            "yarn.nodemanager.collector-service.address": plan.address(_shown(host), host),
            "yarn.nodemanager.local-dirs": str(data / "local"),
            # A relative one lets every container die of "Stdout path must be absolute".
            "yarn.nodemanager.log-dirs": str(data / "logs"),
        }
    )
    plan.site("yarn-site").update(
        {
            "yarn.nodemanager.resource.memory-mb": str(NODE_MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": str(NODE_VCORES),
            "yarn.nodemanager.vmem-check-enabled": "false",
            # Otherwise the NodeManager leaves memory to control groups and checks none.
            "yarn.nodemanager.resource.memory.enforced": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
        }
    )


def node_of(index: int) -> Tuple[str, str]:
    """The name of a NodeManager and its address."""
    return f"nm{index}", f"127.0.0.{1 + index}"


def _shown(host: str) -> str:
    return "localhost" if host == LOOPBACK else host


def _queues(plan: Plan) -> None:
    root = "yarn.scheduler.capacity"
    plan.site("capacity-scheduler").update(
        {
            f"{root}.resource-calculator": (
                "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
            ),
            f"{root}.maximum-am-resource-percent": "0.5",
            f"{root}.node-locality-delay": "40",
            f"{root}.root.queues": "default",
            f"{root}.root.default.capacity": "100",
            f"{root}.root.default.user-limit-factor": "100",
        }
    )
