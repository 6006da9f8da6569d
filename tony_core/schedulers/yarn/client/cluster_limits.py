"""A cluster's limits, which decide whether a job can ever run there.

A few calls read it over one connection, before anything is staged. :mod:`checks` and
:mod:`capacity` compare it with the job, without a cluster.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple

from tony_core.hadoop.errors import InvalidRequest, RemoteError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.records import Capability, NewApplication, NodeReport, Queue
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job

_SUBMIT_ACLS = {"SUBMIT_APPLICATIONS", "ADMINISTER_QUEUE"}
_USABLE = ("RUNNING", "UNHEALTHY")  # an unhealthy node may recover before the job starts
_DEFAULT_ATTEMPTS = 2


class NodeCapacity(NamedTuple):
    """A node's size, and what of it is in use."""

    name: str
    capability: Capability
    used: Capability = Capability()
    labels: FrozenSet[str] = frozenset()


class ClusterLimits(NamedTuple):
    """A cluster's limits. ``None`` means unknown: no check relies on it."""

    user: str
    maximum: Capability  # of one container
    types: Optional[Mapping[str, str]] = None  # resource types with their units
    nodes: Optional[Tuple[NodeCapacity, ...]] = None
    queue: Optional[Queue] = None
    queue_known: bool = False  # whether it was read; then None means that it does not exist
    queues: Tuple[str, ...] = ()  # paths of all that the user may see
    may_submit: Optional[bool] = None
    labels: Optional[Mapping[str, bool]] = None  # the cluster's, and whether each is exclusive
    max_attempts: int = _DEFAULT_ATTEMPTS
    by_rest: bool = False  # read from the web server: RPC cannot be reached
    why_rest: str = ""  # why RPC cannot be reached
    application: Optional[NewApplication] = None


def read_limits(client: RmClient, conf: SiteConfiguration, job: Job, user: str) -> ClusterLimits:
    """Read a cluster's limits by RPC; what an older Hadoop does not report stays unknown."""
    new = client.new_application()
    acls = client.queue_acls()
    queue = _add_path(_queue(client, job.queue), job.queue, acls)
    labels: Optional[Dict[str, bool]] = None
    if _labels(job) or (queue is not None and queue.default_label):
        labels = {one.name: one.exclusive for one in client.node_labels()}
    return ClusterLimits(
        user=user,
        maximum=new.maximum,
        types={one.name: one.units for one in client.resource_types()},
        # A cluster without nodes has just been started; its nodes will come.
        nodes=tuple(_node_capacity(one) for one in client.nodes(_USABLE)) or None,
        queue=queue,
        queue_known=True,
        queues=tuple(acls),
        may_submit=_may_submit(acls, queue),
        labels=labels,
        max_attempts=conf.integer("yarn.resourcemanager.am.max-attempts", _DEFAULT_ATTEMPTS),
        application=new,
    )


def _queue(client: RmClient, name: str) -> Optional[Queue]:
    try:
        return client.queue(name, children=True)
    except InvalidRequest:
        return None
    except RemoteError as error:
        if "nknown queue" in str(error) or "does not exist" in str(error):
            return None
        raise


def _add_path(
    queue: Optional[Queue], requested: str, acls: Mapping[str, Set[str]]
) -> Optional[Queue]:
    """The queue with its path, which before 3.4 only the list of ACLs holds."""
    if queue is None or "." in queue.path:
        return queue
    if requested in acls:
        return queue._replace(path=requested)
    paths = [path for path in acls if path.rpartition(".")[2] == queue.name]
    return queue._replace(path=paths[0]) if len(paths) == 1 else queue


def _may_submit(acls: Mapping[str, Set[str]], queue: Optional[Queue]) -> Optional[bool]:
    """Whether the user may submit to the queue; older lists name queues by name, others by path."""
    if queue is None:
        return None
    for name in (queue.path, queue.name):
        if name in acls:
            return bool(acls[name] & _SUBMIT_ACLS)
    return None


def _labels(job: Job) -> List[str]:
    requested = [job.node_label, job.master.node_label, *(role.node_label for role in job.roles)]
    return [label for label in requested if label]


def _node_capacity(report: NodeReport) -> NodeCapacity:
    return NodeCapacity(str(report.id), report.capability, report.used, frozenset(report.labels))
