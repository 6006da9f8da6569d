"""Jobs and the recorded facts of clusters, for tests of what is judged and built."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.hadoop.yarn.messages.reports import QueueStatistics
from tony_core.hadoop.yarn.records import Capability, Queue
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits, NodeCapacity
from tony_core.schedulers.yarn.resources import GPU

ROOT = "hdfs://lake/user/ada/.tony"


def role(name: str = "worker", instances: int = 1, **more: Any) -> Role:
    """``memory``, ``vcores``, ``gpus`` and ``other`` are its resources; the rest is the role's."""
    resources = Resources(
        memory_mb=more.pop("memory", 1024),
        vcores=more.pop("vcores", 1),
        gpus=more.pop("gpus", 0),
        other=tuple(more.pop("other", {}).items()),
    )
    return Role(name, instances, resources, more.pop("command", "true"), **more)


def job(*roles: Role, **more: Any) -> Job:
    return Job("mnist", roles or (role(),), scheduler="yarn", user="ada", **more)


def node(
    name: str, memory: int = 16384, vcores: int = 16, gpus: int = 0, **more: Any
) -> NodeCapacity:
    used = more.pop("used", Capability())
    labels = frozenset(more.pop("labels", ()))
    return NodeCapacity(f"{name}:45454", Capability(memory, vcores, {GPU: gpus}), used, labels)


def queue(path: str = "root.ml", **more: Any) -> Queue:
    fields: Mapping[str, Any] = {
        "name": path.rpartition(".")[2],
        "path": path,
        "state": "RUNNING",
        "capacity": 0.4,
        "maximum_capacity": 1.0,
        "used_capacity": 0.0,
        "labels": ("*",),
        "default_label": "",
        "children": (),
        "maximum": {},
        "statistics": QueueStatistics(),
        **more,
    }
    return Queue(**fields)


def limits(
    nodes: Optional[Sequence[NodeCapacity]] = None,
    queue: Optional[Queue] = queue(),
    **more: Any,
) -> ClusterLimits:
    """Two nodes, four GPUs on the second, everything of one node in a container."""
    fields: Mapping[str, Any] = {
        "user": "ada",
        "maximum": Capability(16384, 16, {GPU: 4}),
        "types": {"memory-mb": "Mi", "vcores": "", GPU: ""},
        "nodes": tuple(nodes or (node("one"), node("two", gpus=4))),
        "queue": queue,
        "queue_known": True,
        "queues": ("root", "root.default", "root.ml", "root.tiny"),
        "may_submit": True,
        **more,
    }
    return ClusterLimits(**fields)


RUNTIME = Artifact(
    name="tony-runtime",
    use=Use.RUNTIME,
    kind=Kind.ARCHIVE,
    source="tony",
    uri=f"{ROOT}/store/objects/abc/runtime.tar",
    digest="abc",
    size=700_000,
    mtime_ms=1_700_000_000_123,
)


def artifact(name: str, **more: Any) -> Artifact:
    fields: Mapping[str, Any] = {
        "use": Use.RESOURCE,
        "kind": Kind.FILE,
        "source": name,
        "uri": f"{ROOT}/store/objects/{name}/{name}",
        "size": 10,
        "mtime_ms": 1000,
        **more,
    }
    return Artifact(name=name, **fields)
