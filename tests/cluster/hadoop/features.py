"""What a cluster can be asked to have beyond the base, each a small function.

``NAMES`` lists them. One marked as a shape changes how many daemons there are and comes before
the base configuration; the others add to it, first those of ``security``, then the others in the
order in which they stand here. A feature that makes no sense without another brings that one along.
"""

from __future__ import annotations

from typing import Iterable, List, Sequence

from tests.cluster.hadoop import base, home
from tests.cluster.hadoop import security as security  # whose features are listed, too
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import FEATURES, Plan, feature

GPUS = 4
"""How many the last node has with the feature ``gpu``; the others have none."""

SMALL_MB = 3840
"""The largest container of the queue small."""

GPU_LABEL = "gpu"
CLOSED_LABEL = "reserved"

_IPV4 = "-Djava.net.preferIPv4Stack=true"
_CAPACITY = "yarn.scheduler.capacity.root"


def complete(requested: Iterable[str]) -> List[str]:
    """The features asked for and those that they need, in the order in which they apply."""
    wanted = set()
    todo = list(requested)
    while todo:
        name = todo.pop()
        if name not in FEATURES:
            raise SandboxError(f"there is no feature {name!r}; there are: {', '.join(NAMES)}")
        if name not in wanted:
            wanted.add(name)
            todo += FEATURES[name].needs
    return [name for name in NAMES if name in wanted]


def make_plan(plan: Plan) -> Plan:
    """The plan with all of its features in it."""
    chosen = [FEATURES[name] for name in plan.features]
    for one in chosen:
        if one.shape:
            one.apply(plan)
    base.configure(plan)
    for one in chosen:
        if not one.shape:
            one.apply(plan)
    return plan


# ---------------------------------------------------------------------- how many


@feature(shape=True)
def two_nodes(plan: Plan) -> None:
    """Two NodeManagers, each a host of its own (127.0.0.1 and 127.0.0.2)."""
    plan.node_count = max(plan.node_count, 2)


@feature(shape=True)
def three_nodes(plan: Plan) -> None:
    """Three NodeManagers."""
    plan.node_count = max(plan.node_count, 3)


@feature("rm_recovery", shape=True)
def rm_ha(plan: Plan) -> None:
    """Two ResourceManagers, one of them active, elected through a ZooKeeper."""
    plan.rm_count = 2


@feature(shape=True)
def nn_ha(plan: Plan) -> None:
    """Two NameNodes behind one name (hdfs://sandbox); the second takes over by a call."""
    plan.nn_count = 2


# ---------------------------------------------------------------------- nodes


@feature("two_nodes")
def ports_in_names(plan: Plan) -> None:
    """A node's name in asks and reports is HOST:PORT, as on sites with several on a host."""
    plan.site("yarn-site")["yarn.scheduler.include-port-in-node-name"] = "true"


@feature("two_nodes")
def racks(plan: Plan) -> None:
    """Each node stands in a rack of its own (/rack0, /rack1, ...)."""
    table = plan.folder / "conf" / "topology"
    plan.extra_files[table.name] = "".join(
        f"{name}\t/rack{index}\n"
        for index, daemon in enumerate(plan.role("nm"))
        for name in sorted({daemon.host, daemon.rpc.rsplit(":", 1)[0]})
    )
    plan.site("core-site").update(
        {
            "net.topology.node.switch.mapping.impl": "org.apache.hadoop.net.TableMapping",
            "net.topology.table.file.name": str(table),
        }
    )


@feature()
def gpu(plan: Plan) -> None:
    """The last node has four GPUs, the others none; they are counted, not isolated."""
    plan.site("resource-types")["yarn.resource-types"] = "yarn.io/gpu"
    last = plan.role("nm")[-1]
    for daemon in plan.role("nm"):
        count = GPUS if daemon is last else 0
        plan.own(daemon.name, "node-resources")["yarn.nodemanager.resource-type.yarn.io/gpu"] = str(
            count
        )


@feature()
def bare_environment(plan: Plan) -> None:
    """Containers get no variable of their NodeManager's: no PATH, LANG or JAVA_HOME."""
    # An empty list is Hadoop's own, PATH and all.
    plan.site("yarn-site")["yarn.nodemanager.env-whitelist"] = "NO_SUCH_VARIABLE"


@feature()
def nm_recovery(plan: Plan) -> None:
    """Containers outlive a restart of their NodeManager."""
    plan.site("yarn-site").update(
        {
            "yarn.nodemanager.recovery.enabled": "true",
            "yarn.nodemanager.recovery.supervised": "true",
        }
    )
    for daemon in plan.role("nm"):
        plan.own(daemon.name, "yarn-site")["yarn.nodemanager.recovery.dir"] = str(
            plan.data(daemon.name) / "recovery"
        )


# ---------------------------------------------------------------------- scheduling


@feature()
def queues(plan: Plan) -> None:
    """Queues default, ml (of train, and of eval, where one user gets no more than the share), tiny
    (a tenth, 1 master, 2 applications), closed (stopped), private (for no user), with ACLs."""
    yarn = plan.site("yarn-site")
    admins = [yarn["yarn.admin.acl"]] if "secure" in plan.features else []
    yarn["yarn.acl.enable"] = "true"
    yarn["yarn.admin.acl"] = ",".join([*admins, "yarn-admin"])
    settings = {
        "queues": "default,ml,tiny,closed,private",
        "acl_submit_applications": " ",
        "acl_administer_queue": " ",
        "default.capacity": "40",
        "ml.capacity": "40",
        "ml.queues": "train,eval",
        "ml.train.capacity": "75",
        "ml.eval.capacity": "25",
        "ml.train.user-limit-factor": "10",
        "ml.eval.user-limit-factor": "1",
        "ml.acl_submit_applications": "*",
        "default.acl_submit_applications": "*",
        "tiny.capacity": "10",
        "tiny.maximum-capacity": "10",
        "tiny.maximum-applications": "2",
        "tiny.maximum-am-resource-percent": "0.1",
        "tiny.acl_submit_applications": "*",
        "closed.capacity": "5",
        "closed.state": "STOPPED",
        "closed.acl_submit_applications": "*",
        "private.capacity": "5",
        "private.acl_submit_applications": " ",
    }
    plan.site("capacity-scheduler").update({f"{_CAPACITY}.{k}": v for k, v in settings.items()})


@feature()
def small_queue(plan: Plan) -> None:
    """Beside default a queue small: three tenths of the cluster and never more, with containers of
    3840 MB at most."""
    settings = {
        "queues": "default,small",
        "default.capacity": "70",
        "small.capacity": "30",
        "small.maximum-capacity": "30",
        "small.user-limit-factor": "100",
        "small.maximum-allocation-mb": str(SMALL_MB),
    }
    plan.site("capacity-scheduler").update({f"{_CAPACITY}.{k}": v for k, v in settings.items()})


@feature("two_nodes")
def labels(plan: Plan) -> None:
    """Node label gpu on the last node (exclusive); label reserved is open to no queue."""
    plan.site("yarn-site").update(
        {
            "yarn.node-labels.enabled": "true",
            "yarn.node-labels.fs-store.root-dir": f"file://{plan.folder / 'data' / 'labels'}",
        }
    )
    plan.labels.update({GPU_LABEL: True, CLOSED_LABEL: True})
    plan.node_labels[plan.role("nm")[-1].name] = GPU_LABEL
    shares = {"": "100", "default": "100"}
    if "queues" in plan.features:
        shares = {"": "100", "default": "50", "ml": "50", "ml.train": "75", "ml.eval": "25"}
    site = plan.site("capacity-scheduler")
    for queue, share in shares.items():
        prefix = f"{_CAPACITY}.{queue}." if queue else f"{_CAPACITY}."
        site[f"{prefix}accessible-node-labels"] = GPU_LABEL
        site[f"{prefix}accessible-node-labels.{GPU_LABEL}.capacity"] = share
    if "queues" in plan.features:
        for queue in ("tiny", "closed", "private"):
            site[f"{_CAPACITY}.{queue}.accessible-node-labels"] = " "


@feature()
def placement(plan: Plan) -> None:
    """Placement constraints and allocation tags, handled by the scheduler."""
    plan.site("yarn-site")["yarn.resourcemanager.placement-constraints.handler"] = "scheduler"


@feature("queues")
def preemption(plan: Plan) -> None:
    """A queue takes back its share of the memory from others within some seconds.

    Of the memory alone: by dominant shares YARN would first give away what there is too much
    of (here cores), memory with it, and then find no queue over its share. With GPUs
    there, a ResourceManager refuses to: then it stays at dominant shares.
    """
    _take_back(plan, wait_ms=2000)


@feature()
def halves(plan: Plan) -> None:
    """Queues a and b, of half the memory each, and of all while the other needs none: a queue that
    needs its half gets it back 8 s later, as with the feature preemption."""
    settings = {
        "queues": "default,a,b",
        "default.capacity": "0",
        "a.capacity": "50",
        "b.capacity": "50",
        "a.user-limit-factor": "10",
        "b.user-limit-factor": "10",
    }
    plan.site("capacity-scheduler").update({f"{_CAPACITY}.{k}": v for k, v in settings.items()})
    _take_back(plan, wait_ms=8000)


def _take_back(plan: Plan, wait_ms: int) -> None:
    """Let queues preempt containers for their share."""
    monitor = "yarn.resourcemanager.monitor.capacity.preemption"
    policy = (
        "org.apache.hadoop.yarn.server.resourcemanager.monitor.capacity."
        "ProportionalCapacityPreemptionPolicy"
    )
    plan.site("yarn-site").update(
        {
            "yarn.resourcemanager.scheduler.monitor.enable": "true",
            "yarn.resourcemanager.scheduler.monitor.policies": policy,
        }
    )
    settings = {
        f"{monitor}.monitoring_interval": "1000",
        f"{monitor}.max_wait_before_kill": str(wait_ms),
        f"{monitor}.total_preemption_per_round": "1.0",
        f"{monitor}.natural_termination_factor": "1.0",
    }
    plan.site("yarn-site").update(settings)
    plan.site("capacity-scheduler").update(settings)
    if "gpu" not in plan.features:
        calculator = "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator"
        plan.site("capacity-scheduler")["yarn.scheduler.capacity.resource-calculator"] = calculator


# ---------------------------------------------------------------------- failure and time


@feature()
def rm_recovery(plan: Plan) -> None:
    """Applications go on when the ResourceManager restarts."""
    yarn = plan.site("yarn-site")
    store = "org.apache.hadoop.yarn.server.resourcemanager.recovery"
    yarn["yarn.resourcemanager.recovery.enabled"] = "true"
    if plan.rm_count == 1:
        yarn["yarn.resourcemanager.store.class"] = f"{store}.FileSystemRMStateStore"
        yarn["yarn.resourcemanager.fs.state-store.uri"] = f"file://{plan.folder / 'data' / 'state'}"
        return
    rms = plan.role("rm")
    yarn["yarn.resourcemanager.store.class"] = f"{store}.ZKRMStateStore"
    yarn["yarn.resourcemanager.ha.enabled"] = "true"
    yarn["yarn.resourcemanager.ha.rm-ids"] = ",".join(daemon.name for daemon in rms)
    yarn["yarn.client.failover-sleep-base-ms"] = "200"
    yarn["yarn.client.failover-sleep-max-ms"] = "1000"
    core = plan.site("core-site")
    core["hadoop.zk.address"] = plan.daemons["zk"].rpc
    # Between two and twenty ticks of the ZooKeeper: a dead one is missed after this.
    core["hadoop.zk.timeout-ms"] = "4000"
    for daemon in rms:
        plan.own(daemon.name, "yarn-site")["yarn.resourcemanager.ha.id"] = daemon.name


@feature()
def short_expiry(plan: Plan) -> None:
    """A silent application master or node is given up after 10 s instead of 10 minutes."""
    plan.site("yarn-site").update(
        {
            "yarn.am.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.resourcemanager.rm.container-allocation.expiry-interval-ms": "15000",
        }
    )


@feature("short_expiry")
def token_roll(plan: Plan) -> None:
    """The masters' tokens are rolled every 35 s, the least that YARN allows here."""
    plan.site("yarn-site")["yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs"] = (
        "35"
    )


# ---------------------------------------------------------------------- logs and storage


@feature()
def log_aggregation(plan: Plan) -> None:
    """Logs of ended applications move to HDFS (/app-logs), as TFile."""
    plan.site("yarn-site").update(
        {
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": "/app-logs",
            "yarn.log-aggregation.retain-seconds": "86400",
        }
    )


@feature("log_aggregation")
def indexed_logs(plan: Plan) -> None:
    """Aggregated logs are IFile (with an index) instead of TFile."""
    controller = "org.apache.hadoop.yarn.logaggregation.filecontroller.ifile"
    plan.site("yarn-site").update(
        {
            "yarn.log-aggregation.file-formats": "IFile,TFile",
            "yarn.log-aggregation.file-controller.IFile.class": (
                f"{controller}.LogAggregationIndexedFileController"
            ),
        }
    )


@feature()
def no_space(plan: Plan) -> None:
    """HDFS takes names and no blocks: the DataNode's disk is full."""
    plan.own("dn0", "hdfs-site")["dfs.datanode.du.reserved"] = str(1 << 60)


@feature()
def java(plan: Plan) -> None:
    """Java programs in containers find Hadoop's jars and configuration, as where it is
    installed on the nodes; without this feature there is nothing of it."""
    paths = f"{plan.folder / 'conf'},{plan.distribution.lib}/*"
    plan.site("yarn-site")["yarn.application.classpath"] = paths


def _small_java(plan: Plan) -> str:
    flags = [f"-Djdk.net.hosts.file={plan.folder / 'hosts'}", *plan.flags]
    return " ".join(["-XX:+UseSerialGC -XX:TieredStopAtLevel=1", _IPV4, *flags])


@feature("java")
def mapreduce(plan: Plan) -> None:
    """MapReduce jobs run, and HADOOP_HOME has `hadoop jar` and Hadoop streaming; the shuffle
    listens on all of the machine's addresses."""
    plan.programs.update(home.programs(plan.distribution, plan.folder, plan.flags))
    plan.links.update(home.links(plan.distribution))
    plan.client["HADOOP_HOME"] = str(plan.folder / "home")
    jars = f"{plan.distribution.lib}/*"
    options = f"-Xmx200m {_small_java(plan)} --add-opens=java.base/java.lang=ALL-UNNAMED"
    plan.site("mapred-site").update(
        {
            "mapreduce.framework.name": "yarn",
            "mapreduce.application.classpath": jars,
            "yarn.app.mapreduce.am.resource.mb": "512",
            "yarn.app.mapreduce.am.command-opts": options,
            "yarn.app.mapreduce.am.staging-dir": "/mapreduce",
            "mapreduce.map.memory.mb": "400",
            "mapreduce.reduce.memory.mb": "400",
            "mapreduce.task.io.sort.mb": "16",
            "mapred.child.java.opts": options,
        }
    )
    plan.site("yarn-site")["yarn.nodemanager.aux-services"] = "mapreduce_shuffle"
    for daemon in plan.role("nm"):
        port = plan.ports.take("0.0.0.0")
        plan.own(daemon.name, "mapred-site")["mapreduce.shuffle.port"] = str(port)


@feature("java")
def spark(plan: Plan) -> None:
    """Spark jobs run, small ones, with the Spark that SPARK_HOME names; its jars are not sent,
    and spark-defaults.conf lies in HADOOP_CONF_DIR."""
    found = home.find_spark()
    settings = home.spark_defaults(found, _small_java(plan))
    plan.extra_files["spark-defaults.conf"] = home.as_spark_reads(settings)
    plan.client.update(
        {
            "JAVA_HOME": str(plan.distribution.java_home),
            "SPARK_HOME": str(found),
            "SPARK_CONF_DIR": str(plan.folder / "conf"),
            "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
    )


NAMES: Sequence[str] = sorted(FEATURES, key=lambda name: not FEATURES[name].shape)
