"""Checks a job against what a cluster reports about itself, before anything is staged. Pure.

A job is refused only for what can never work there: names, labels and types that the cluster does
not have, and sizes that it could not serve even when it is empty (:mod:`capacity`). What is only
in use today makes the job wait, and is a warning.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import List, Sequence

from tony_core.hadoop.yarn.records import MEMORY, VCORES, Queue
from tony_core.job.problems import problem_at
from tony_core.job.spec import Job
from tony_core.schedulers.yarn import launch_script, placement_constraints
from tony_core.schedulers.yarn.application_state import TAG, TYPE
from tony_core.schedulers.yarn.client import capacity
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits
from tony_core.schedulers.yarn.resources import GPU, format_amounts, to_capability

_MAX_TAGS = 10
_LONGEST_TAG = 100


def find_problems(job: Job, limits: ClusterLimits) -> List[str]:
    """Why the job can never run on this cluster; empty if it can."""
    found = [*_tags(job), *_docker(job), *_placement(job)]
    found += [*_queue(job, limits), *_labels(job, limits), *_resource_types(job, limits)]
    found += capacity.find_excess(job, limits)
    if limits.by_rest:
        found += _rest_limits(job)
    return found


def find_warnings(job: Job, limits: ClusterLimits) -> List[str]:
    """Why the job will wait, and which of its settings have no effect on this cluster."""
    found = []
    if limits.by_rest:
        found.append(
            "the ResourceManager's RPC cannot be used, and its web server reports less, so fewer"
            f" checks are made before the job starts: {limits.why_rest}"
        )
    if job.master.max_attempts > limits.max_attempts:
        found.append(
            f"tony.am.max-attempts is {job.master.max_attempts}; as this cluster is configured it"
            f" starts a master {limits.max_attempts} times at most"
            " (yarn.resourcemanager.am.max-attempts)"
        )
    return [*found, *_image_warnings(job), *capacity.find_shortages(job, limits)]


def _tags(job: Job) -> List[str]:
    found = []
    # A job of another type gets one tag more, by which tony list finds it.
    most, beside = (_MAX_TAGS, "") if job.type == TYPE else (_MAX_TAGS - 1, f" beside `{TAG}`")
    if len(job.tags) > most:
        words = f"there are {len(job.tags)} tags; YARN takes {most}{beside}"
        found.append(_problem_at(job, "tony.application.tags", words))
    for tag in job.tags:
        if len(tag) > _LONGEST_TAG or not tag.isascii():
            words = f"the tag {tag!r} is not valid on YARN: {_LONGEST_TAG} ASCII characters at most"
            found.append(_problem_at(job, "tony.application.tags", words))
    return found


def _docker(job: Job) -> List[str]:
    found = launch_script.find_docker_problems("the master", job.master.docker)
    found += launch_script.find_variable_problems(dict(job.program.container_env))
    for role in job.roles:
        found += launch_script.find_docker_problems(role.name, role.docker)
    return found


def _image_warnings(job: Job) -> List[str]:
    """A client cannot know which nodes run images; the others ignore the request for one."""
    whose = [("the master", job.master.docker), *((role.name, role.docker) for role in job.roles)]
    names = [name for name, image in whose if image is not None]
    if not names:
        return []
    return [
        f"{', '.join(names)}: a node without YARN's docker runtime runs the program without the"
        " image, and without a warning"
    ]


def _placement(job: Job) -> List[str]:
    """Placement specs that are no valid constraints."""
    key = "tony.application.placement-spec"
    try:
        placement_constraints.application_constraints(job.placement_spec)
    except placement_constraints.ConstraintError as error:
        return [_problem_at(job, key, str(error))]
    found = []
    for role in job.roles:
        key = f"tony.{role.name}.placement-spec"
        try:
            placement_constraints.role_constraint(role.placement_spec, role.allocation_tags)
        except placement_constraints.ConstraintError as error:
            if not any(item.key == key for item in job.settings):
                everyone = "tony.containers.placement-spec"
                key = everyone if any(item.key == everyone for item in job.settings) else key
            found.append(_problem_at(job, key, str(error)))
    return list(dict.fromkeys(found))


def _queue(job: Job, limits: ClusterLimits) -> List[str]:
    if not limits.queue_known:
        return []
    key, queue = "tony.yarn.queue", limits.queue
    if queue is None:
        return [
            _problem_at(
                job,
                key,
                f"there is no queue {job.queue}{_suggest_queues(job.queue, limits.queues)}",
            )
        ]
    found = []
    if queue.children:
        leaves = ", ".join(child.name for child in queue.children)
        words = f"{queue.path} is not a leaf queue; submit to one of its children: {leaves}"
        found.append(_problem_at(job, key, words))
    if queue.state not in ("RUNNING", ""):
        words = f"the queue {queue.path} is {queue.state.lower()} and takes no applications"
        found.append(_problem_at(job, key, words))
    if limits.may_submit is False:
        words = (
            f"{limits.user} may not submit to the queue {queue.path} (its ACL does not allow it)"
        )
        found.append(_problem_at(job, key, words))
    return found


def _suggest_queues(name: str, queues: Sequence[str]) -> str:
    """Queues with a similar name or path; else a list of those that exist."""
    own = {path.rpartition(".")[2]: path for path in queues}
    close = get_close_matches(name.rpartition(".")[2], list(own), n=2, cutoff=0.7)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    there = sorted(name for name in own if name != "root")
    return f"; there is: {', '.join(there[:10])}" if there else ""


def _labels(job: Job, limits: ClusterLimits) -> List[str]:
    labels = [
        (job.node_label, "tony.application.node-label"),
        (job.master.node_label, "tony.am.node-label"),
        *((role.node_label, f"tony.{role.name}.node-label") for role in job.roles),
    ]
    found = []
    for label, key in labels:
        if not label or limits.labels is None:
            continue
        if label not in limits.labels:
            known = ", ".join(sorted(limits.labels)) or "none (it does not use node labels)"
            words = f"the cluster has no node label {label}; it has: {known}"
            found.append(_problem_at(job, key, words))
        elif limits.queue is not None and not _may_use_label(limits.queue, label):
            allowed = ", ".join(one for one in limits.queue.labels if one.strip()) or "none"
            words = (
                f"the queue {limits.queue.path} may not use the node label {label};"
                f" it may use: {allowed}"
            )
            found.append(_problem_at(job, key, words))
        elif limits.nodes is not None and not any(label in one.labels for one in limits.nodes):
            words = f"no node that runs has the label {label}"
            found.append(_problem_at(job, key, words))
    return found


def _may_use_label(queue: Queue, label: str) -> bool:
    return "*" in queue.labels or label in queue.labels


def _resource_types(job: Job, limits: ClusterLimits) -> List[str]:
    """Resource types that the cluster does not count, and would silently drop."""
    if limits.types is None:
        return []
    found = []
    known = sorted({MEMORY, VCORES, *limits.types})
    containers = [(role.name, role.name, role.resources) for role in job.roles]
    for who, key, resources in [("the master", "am", job.master.resources), *containers]:
        for name in to_capability(resources).other:
            if name not in known:
                what = "gpus" if name == GPU else f"resource.{name}"
                words = (
                    f"{who} asks for {name}, which this cluster does not count;"
                    f" it counts {', '.join(known)}"
                )
                found.append(_problem_at(job, f"tony.{key}.{what}", words))
    return found


def _rest_limits(job: Job) -> List[str]:
    """The master's resources that the ResourceManager's web server does not take."""
    other = to_capability(job.master.resources).other
    if not other:
        return []
    return [
        "the ResourceManager's RPC port cannot be reached from here, and through its web server a"
        f" master cannot ask for {format_amounts(other)}"
    ]


def _problem_at(job: Job, key: str, words: str) -> str:
    return str(problem_at(job, key, words))
