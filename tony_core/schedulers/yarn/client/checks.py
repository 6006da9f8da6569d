"""Why a job can never run on a cluster, with the numbers: pure judgement over its facts.

Only what is certain is refused. The roles that wait for no other are one gang and must fit
together with the master; a role of a later stage has to fit by itself, a sidecar container by
container. What is full today is not refused: that is ``waits``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Dict, List, Optional, Sequence, Tuple

from tony_core.dataclass import dataclass
from tony_core.hadoop.yarn.records import MEMORY, VCORES, Queue
from tony_core.job.problems import problem_at
from tony_core.job.spec import Job, Mode, Resources, Role, Tracking
from tony_core.schedulers.yarn import amounts, constraints
from tony_core.schedulers.yarn.client import docker
from tony_core.schedulers.yarn.client.cluster_limits import ClusterFacts, NodeFacts
from tony_core.schedulers.yarn.client.status import TAG, TYPE

_MOST_TAGS = 10
_LONGEST_TAG = 100


@dataclass(frozen=True)
class _Want:
    """One kind of container and how many."""

    who: str
    key: str  # where the job says how large: tony.KEY.memory
    count: int
    need: Dict[str, int]
    label: str

    @classmethod
    def of(
        cls, facts: ClusterFacts, who: str, key: str, count: int, resources: Resources, label: str
    ) -> _Want:
        need = amounts.capability_of(resources).amounts()
        if facts.types is not None:  # what is not counted has been told by _types
            need = {k: v for k, v in need.items() if k in (MEMORY, VCORES) or k in facts.types}
        return cls(who, key, count, need, label)


def problems(job: Job, facts: ClusterFacts) -> List[str]:
    """All that speaks against it; empty if it can run."""
    found = [*_tags(job), *_docker(job), *_placement(job)]
    found += [*_queue(job, facts), *_labels(job, facts), *_types(job, facts)]
    wants = _wants(job, facts)
    sizes = _sizes(wants, facts)
    found += sizes
    if not sizes:
        found += _together(job, wants, facts)
    if facts.by_rest:
        found += _rest(job)
    return found


def warnings(job: Job, facts: ClusterFacts) -> List[str]:
    """What will make it wait, or changes nothing here."""
    found = []
    if facts.by_rest:
        found.append(
            "the ResourceManager is asked through its web server, which knows less before a job"
            f" starts: {facts.why_rest}"
        )
    if job.master.max_attempts > facts.max_attempts:
        found.append(
            f"tony.am.max-attempts is {job.master.max_attempts}; as this cluster is configured it"
            f" starts a master {facts.max_attempts} times at most"
            " (yarn.resourcemanager.am.max-attempts)"
        )
    return [*found, *_images(job), *waits(job, facts)]


# ---------------------------------------------------------------------- names and words


def _tags(job: Job) -> List[str]:
    found = []
    # A job of another type bears one more, by which it is found again.
    most, beside = (_MOST_TAGS, "") if job.type == TYPE else (_MOST_TAGS - 1, f" beside `{TAG}`")
    if len(job.tags) > most:
        words = f"there are {len(job.tags)} tags; YARN takes {most}{beside}"
        found.append(_at(job, "tony.application.tags", words))
    for tag in job.tags:
        if len(tag) > _LONGEST_TAG or not tag.isascii():
            words = f"the tag {tag!r} is not one for YARN: {_LONGEST_TAG} ASCII characters at most"
            found.append(_at(job, "tony.application.tags", words))
    return found


def _docker(job: Job) -> List[str]:
    found = docker.problems("the master", job.master.docker)
    found += docker.variable_problems(dict(job.program.container_env))
    for role in job.roles:
        found += docker.problems(role.name, role.docker)
    return found


def _images(job: Job) -> List[str]:
    """No client can know which nodes run images: the others ignore that one was asked for."""
    whose = [("the master", job.master.docker), *((role.name, role.docker) for role in job.roles)]
    names = [name for name, image in whose if image is not None]
    if not names:
        return []
    return [
        f"{', '.join(names)}: a node without YARN's docker runtime runs the program without the"
        " image, and does not say so"
    ]


def _placement(job: Job) -> List[str]:
    """Constraints that the master could not put to the ResourceManager."""
    key = "tony.application.placement-spec"
    try:
        constraints.of_application(job.placement_spec)
    except constraints.ConstraintError as error:
        return [_at(job, key, str(error))]
    found = []
    for role in job.roles:
        key = f"tony.{role.name}.placement-spec"
        try:
            constraints.of_role(role.placement_spec, role.allocation_tags)
        except constraints.ConstraintError as error:
            if not any(item.key == key for item in job.settings):
                everyone = "tony.containers.placement-spec"
                key = everyone if any(item.key == everyone for item in job.settings) else key
            found.append(_at(job, key, str(error)))
    return list(dict.fromkeys(found))


def _queue(job: Job, facts: ClusterFacts) -> List[str]:
    if not facts.queue_known:
        return []
    key, queue = "tony.yarn.queue", facts.queue
    if queue is None:
        return [_at(job, key, f"there is no queue {job.queue}{_meant(job.queue, facts.queues)}")]
    found = []
    if queue.children:
        leaves = ", ".join(child.name for child in queue.children)
        words = f"{queue.path} is a queue of queues; submit to one of those below it: {leaves}"
        found.append(_at(job, key, words))
    if queue.state not in ("RUNNING", ""):
        words = f"the queue {queue.path} is {queue.state.lower()} and takes no applications"
        found.append(_at(job, key, words))
    if facts.may_submit is False:
        words = f"{facts.user} may not submit to the queue {queue.path} (its ACL does not say so)"
        found.append(_at(job, key, words))
    return found


def _meant(name: str, queues: Sequence[str]) -> str:
    """The queues that may have been meant, by path or by their own name."""
    own = {path.rpartition(".")[2]: path for path in queues}
    close = get_close_matches(name.rpartition(".")[2], list(own), n=2, cutoff=0.7)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    there = sorted(name for name in own if name != "root")
    return f"; there is: {', '.join(there[:10])}" if there else ""


def _labels(job: Job, facts: ClusterFacts) -> List[str]:
    asked = [
        (job.node_label, "tony.application.node-label"),
        (job.master.node_label, "tony.am.node-label"),
        *((role.node_label, f"tony.{role.name}.node-label") for role in job.roles),
    ]
    found = []
    for label, key in asked:
        if not label or facts.labels is None:
            continue
        if label not in facts.labels:
            known = ", ".join(sorted(facts.labels)) or "none (it does not use node labels)"
            words = f"the cluster has no node label {label}; it has: {known}"
            found.append(_at(job, key, words))
        elif facts.queue is not None and not _accessible(facts.queue, label):
            allowed = ", ".join(one for one in facts.queue.labels if one.strip()) or "none"
            words = (
                f"the queue {facts.queue.path} may not use the node label {label};"
                f" it may use: {allowed}"
            )
            found.append(_at(job, key, words))
        elif facts.nodes is not None and not any(label in one.labels for one in facts.nodes):
            words = f"no node that runs has the label {label}"
            found.append(_at(job, key, words))
    return found


def _accessible(queue: Queue, label: str) -> bool:
    return "*" in queue.labels or label in queue.labels


# ---------------------------------------------------------------------- sizes


def _types(job: Job, facts: ClusterFacts) -> List[str]:
    """Resource types that the cluster does not count: it would drop them without a word."""
    if facts.types is None:
        return []
    found = []
    known = sorted({MEMORY, VCORES, *facts.types})
    for who, key, resources in _all(job):
        for name in amounts.capability_of(resources).other:
            if name not in known:
                what = "gpus" if name == amounts.GPU else f"resource.{name}"
                words = (
                    f"{who} asks for {name}, which this cluster does not count;"
                    f" it counts {', '.join(known)}"
                )
                found.append(_at(job, f"tony.{key}.{what}", words))
    return found


def _all(job: Job) -> List[Tuple[str, str, Resources]]:
    roles = [(role.name, role.name, role.resources) for role in job.roles]
    return [("the master", "am", job.master.resources), *roles]


def _wants(job: Job, facts: ClusterFacts) -> Dict[str, _Want]:
    default = job.node_label or (facts.queue.default_label if facts.queue else "") or ""
    master = job.master
    wants = {
        "": _Want.of(facts, "the master", "am", 1, master.resources, master.node_label or default),
    }
    for role in job.roles:
        label = role.node_label or default
        wants[role.name] = _Want.of(facts, role.name, role.name, role.least, role.resources, label)
    return wants


def _sizes(wants: Dict[str, _Want], facts: ClusterFacts) -> List[str]:
    """Containers that are too large one by one."""
    found = []
    most = facts.maximum.amounts()
    for want in wants.values():
        over = [
            (name, amount)
            for name, amount in want.need.items()
            if name in most and amount > most[name]
        ]
        for name, amount in over:
            found.append(
                f"tony.{want.key}.{_key_of(name)}: {want.who} asks for"
                f" {amounts.said(name, amount)} in a container; the cluster gives"
                f" {amounts.said(name, most[name])} at most"
            )
        nodes = _nodes(facts, want.label)
        if not over and nodes and not any(_room(node, want.need) for node in nodes):
            found.append(
                f"tony.{want.key}: {want.who} asks for {amounts.listed(want.need)} in a container;"
                f" {_where(want.label)} no node has that much"
                f" ({_largest(nodes)})"
            )
    return found


def _together(job: Job, wants: Dict[str, _Want], facts: ClusterFacts) -> List[str]:
    """Gangs that are too large for the nodes that they may stand on, or for the queue."""
    found: List[str] = []
    for wave in _waves(job):
        chosen = [wants[role.name] for role in wave]
        for label in sorted({want.label for want in chosen}):
            same = [want for want in chosen if want.label == label]
            beside = [wants[""]] if wants[""].label == label else []
            said = _too_much(same, beside, label, facts) or _over_queue(same, beside, label, facts)
            found += said or [
                words for want in same for words in _too_many(want, facts)
            ]  # a bound by the nodes' own sizes
    return list(dict.fromkeys(found))


def _too_much(
    wants: List[_Want], beside: List[_Want], label: str, facts: ClusterFacts
) -> List[str]:
    nodes = _nodes(facts, label)
    if nodes is None:
        return []
    there = amounts.total(node.capability.amounts() for node in nodes)
    place = f"the nodes labelled {label} have" if label else "the cluster has"
    found = []
    for name, (amount, words) in _sums(wants, beside).items():
        if amount > there.get(name, 0):
            having = [node for node in nodes if node.capability.amounts().get(name, 0)]
            on = f" on {len(having)} node{'s' if len(having) != 1 else ''}" if having else ""
            found.append(
                f"the job asks for {amounts.said(name, amount)} in all ({words});"
                f" {place} {there.get(name, 0)}{on}"
            )
    return found


def _over_queue(
    wants: List[_Want], beside: List[_Want], label: str, facts: ClusterFacts
) -> List[str]:
    if facts.queue is None or label not in facts.queue.maximum:
        return []
    most = facts.queue.maximum[label].amounts()
    return [
        f"the job asks for {amounts.said(name, amount)} in all ({words});"
        f" the queue {facts.queue.path} may grow to {most[name]} at most"
        for name, (amount, words) in _sums(wants, beside).items()
        if name in most and amount > most[name]
    ]


def _too_many(want: _Want, facts: ClusterFacts) -> List[str]:
    nodes = _nodes(facts, want.label)
    if nodes is None:
        return []
    fit = sum(_room(node, want.need) for node in nodes)
    if fit >= want.count:
        return []
    return [
        f"{want.who}: {want.count} containers of {amounts.listed(want.need)} are asked for;"
        f" {_where(want.label)} there is room for {fit} of them, when all is free"
    ]


def _sums(wants: List[_Want], beside: List[_Want]) -> Dict[str, Tuple[int, str]]:
    """By resource: how much in all, and how that comes about."""
    everything = [*wants, *beside]
    sums = amounts.total(amounts.times(want.need, want.count) for want in everything)
    return {
        name: (
            amount,
            " + ".join(
                f"{want.who} {want.count} x {want.need[name]}"
                if want.count > 1
                else f"{want.who} {want.need[name]}"
                for want in everything
                if want.need.get(name)
            ),
        )
        for name, amount in sums.items()
    }


def _waves(job: Job) -> List[List[Role]]:
    """The roles that start together, and then by themselves those that wait for another."""
    if job.mode is not Mode.GANG:
        return []
    gang = [role for role in job.roles if role.tracking is not Tracking.SIDECAR]
    first = [role for role in gang if not role.depends_on]
    return ([first] if first else []) + [[role] for role in gang if role.depends_on]


def _nodes(facts: ClusterFacts, label: str) -> Optional[List[NodeFacts]]:
    """Those that may be given for a label; for none also what shares its nodes with others."""
    if facts.nodes is None:
        return None
    if label:
        return [node for node in facts.nodes if label in node.labels] or None  # told by _labels
    shared = {name for name, exclusive in (facts.labels or {}).items() if not exclusive}
    known = facts.labels is not None
    return [node for node in facts.nodes if not known or not (node.labels - shared)]


def _room(node: NodeFacts, need: Dict[str, int]) -> int:
    """How many such containers it holds when it is empty."""
    has = node.capability.amounts()
    return min((has.get(name, 0) // amount for name, amount in need.items() if amount), default=0)


def _where(label: str) -> str:
    return f"among the nodes labelled {label}" if label else "in the cluster"


def _largest(nodes: List[NodeFacts]) -> str:
    top = max(nodes, key=lambda node: tuple(node.capability.amounts().values()))
    return f"{top.name} has {amounts.listed(top.capability.amounts())}"


def _key_of(name: str) -> str:
    return {MEMORY: "memory", VCORES: "vcores", amounts.GPU: "gpus"}.get(name, f"resource.{name}")


def _rest(job: Job) -> List[str]:
    """The ResourceManager's web server takes memory and cores only."""
    other = amounts.capability_of(job.master.resources).other
    if not other:
        return []
    return [
        "the ResourceManager's RPC port cannot be reached from here, and by its web server a"
        f" master cannot ask for {amounts.listed(other)}"
    ]


# ---------------------------------------------------------------------- what has to wait


def waits(job: Job, facts: ClusterFacts) -> List[str]:
    """Why it could run, and not at once: a line for each resource that is short now."""
    wants = _wants(job, facts)
    first = next(iter(_waves(job)), [])
    chosen = [wants[role.name] for role in first] or [wants[""]]
    found: List[str] = []
    if facts.nodes is None and not facts.by_rest:
        found.append("the job will wait: no node of the cluster runs now")
    for label in sorted({want.label for want in chosen}):
        same = [want for want in chosen if want.label == label]
        beside = [wants[""]] if wants[""].label == label and chosen != [wants[""]] else []
        found += _short_now(same, beside, label, facts)
    queue = facts.queue
    if queue is not None and queue.statistics.num_apps_pending > 0:
        pending = queue.statistics.num_apps_pending
        found.append(
            f"{pending} application{'s' if pending > 1 else ''} already"
            f" wait{'' if pending > 1 else 's'} in the queue {queue.path}"
            f" ({queue.statistics.num_apps_running} run): the job may have to wait"
        )
    return found


def _short_now(
    wants: List[_Want], beside: List[_Want], label: str, facts: ClusterFacts
) -> List[str]:
    found = []
    nodes = _nodes(facts, label) or []
    used = amounts.total(node.used.amounts() for node in nodes)
    there = amounts.total(node.capability.amounts() for node in nodes)
    queue = facts.queue
    for name, (amount, _) in _sums(wants, beside).items():
        free = there.get(name, 0) - used.get(name, 0)
        if nodes and used.get(name, 0) and free < amount <= there.get(name, 0):
            place = f"the nodes labelled {label}" if label else "the cluster"
            found.append(
                f"the job will wait: it asks for {amounts.said(name, amount)},"
                f" and {free} of {there[name]} are free in {place} now"
            )
        elif queue is not None and not label and "" in queue.maximum:
            held = _held(queue, name)
            most = queue.maximum[""].amounts().get(name, 0)
            if held and most - held < amount <= most:
                found.append(
                    f"the job will wait: it asks for {amounts.said(name, amount)}, and the queue"
                    f" {queue.path} holds {held} of the {most} that it may have"
                )
    return found


def _held(queue: Queue, name: str) -> int:
    statistics = queue.statistics
    return {MEMORY: statistics.allocated_memory_mb, VCORES: statistics.allocated_vcores}.get(
        name, 0
    )


def _at(job: Job, key: str, words: str) -> str:
    return str(problem_at(job, key, words))
