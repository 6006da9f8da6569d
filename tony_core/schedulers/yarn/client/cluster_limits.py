"""What a cluster says about itself that decides whether a job can ever run there.

Gathered by few calls over one connection, before anything is staged; judged elsewhere
(``checks``), without a cluster.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from tony_core.dataclass import dataclass, field, replace
from tony_core.hadoop.errors import InvalidRequest, RemoteError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.records import Capability, NewApplication, NodeReport, Queue
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job

_MAY_SUBMIT = {"SUBMIT_APPLICATIONS", "ADMINISTER_QUEUE"}
_USABLE = ("RUNNING", "UNHEALTHY")  # what is unhealthy now may be healthy when it is our turn
_DEFAULT_ATTEMPTS = 2


@dataclass(frozen=True)
class NodeFacts:
    """A node's size and what is free on it."""

    name: str
    capability: Capability
    used: Capability = field(default_factory=Capability)
    labels: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class ClusterFacts:
    """``None`` is not known: nothing is judged by it."""

    user: str
    maximum: Capability  # of one container
    types: Optional[Mapping[str, str]] = None  # resource types with their units
    nodes: Optional[Tuple[NodeFacts, ...]] = None
    queue: Optional[Queue] = None
    queue_known: bool = False  # whether it was asked for; then None means that there is none
    queues: Tuple[str, ...] = ()  # paths of all that are known to us
    may_submit: Optional[bool] = None
    labels: Optional[Mapping[str, bool]] = None  # the cluster's, and whether each is exclusive
    max_attempts: int = _DEFAULT_ATTEMPTS
    by_rest: bool = False  # only the ResourceManager's web server can be reached
    why_rest: str = ""  # what became of its RPC port
    application: Optional[NewApplication] = field(default=None, compare=False)


def gather(client: RmClient, conf: SiteConfiguration, job: Job, user: str) -> ClusterFacts:
    """Ask the ResourceManager. What older ones do not answer stays unknown."""
    new = client.new_application()
    acls = client.queue_acls()
    queue = _with_path(_queue(client, job.queue), job.queue, acls)
    labels: Optional[Dict[str, bool]] = None
    if _labels(job) or (queue is not None and queue.default_label):
        labels = {one.name: one.exclusive for one in client.node_labels()}
    return ClusterFacts(
        user=user,
        maximum=new.maximum,
        types={one.name: one.units for one in client.resource_types()},
        # None at all is a cluster that has just been started, whose nodes will come.
        nodes=tuple(_node(one) for one in client.nodes(_USABLE)) or None,
        queue=queue,
        queue_known=True,
        queues=tuple(acls),
        may_submit=_may(acls, queue),
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


def _with_path(queue: Optional[Queue], asked: str, acls: Mapping[str, Set[str]]) -> Optional[Queue]:
    """Before 3.4 a queue does not say where it stands; the list of ACLs does."""
    if queue is None or "." in queue.path:
        return queue
    if asked in acls:
        return replace(queue, path=asked)
    paths = [path for path in acls if path.rpartition(".")[2] == queue.name]
    return replace(queue, path=paths[0]) if len(paths) == 1 else queue


def _may(acls: Mapping[str, Set[str]], queue: Optional[Queue]) -> Optional[bool]:
    """Whether the caller may submit there; the list names queues by path or, once, by name."""
    if queue is None:
        return None
    for name in (queue.path, queue.name):
        if name in acls:
            return bool(acls[name] & _MAY_SUBMIT)
    return None


def _labels(job: Job) -> List[str]:
    asked = [job.node_label, job.master.node_label, *(role.node_label for role in job.roles)]
    return [label for label in asked if label]


def _node(report: NodeReport) -> NodeFacts:
    return NodeFacts(str(report.id), report.capability, report.used, frozenset(report.labels))
