"""Why a request is not granted yet, or never will be, with the numbers. Pure."""

from __future__ import annotations

from typing import AbstractSet, Collection, Mapping, Optional, Sequence

from tony_core.hadoop.yarn.records import VCORES, Capability
from tony_core.schedulers.yarn.master.container_requests import OutstandingRequest
from tony_core.schedulers.yarn.master.placement import ClusterNode, count_fitting
from tony_core.schedulers.yarn.resources import format_amount, format_amounts

_NEVER = "no node is large enough"
_MOST_NAMED = 5


FIRST_REASON_S = 1.0  # until the reason of a wait is reported
REASON_S = 5.0  # until a changed one is


class ReasonTimer:
    """Decides when to look for the reason of a wait, and whether it is a new one."""

    def __init__(self) -> None:
        self._waiting_since: Optional[float] = None
        self._checked_at = 0.0
        self._reason = ""

    def is_due(self, waiting: bool, now: float) -> bool:
        """Whether it is time to look for the reason."""
        if not waiting:
            self._waiting_since, self._reason = None, ""
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < FIRST_REASON_S:
            return False
        return not self._reason or now - self._checked_at >= REASON_S

    def is_new(self, reason: str, now: float) -> bool:
        """Record a reason; whether it differs from the last one."""
        self._checked_at = now
        changed = reason != self._reason
        self._reason = reason
        return changed


def explain_impossible(need: Capability, maximum: Capability, known: Collection[str]) -> str:
    """Why this cluster can never grant it; empty if it may.

    ``known`` are the resource types that it counts; empty if they are unknown.
    """
    strange = [name for name in need.other if known and name not in known]
    if strange:
        amounts = ", ".join(format_amount(name, need.other[name]) for name in strange)
        return (
            f"it asks for {amounts}, which this cluster does not count;"
            f" it knows {', '.join(sorted(known))}"
        )
    lacking = describe_shortfall(need, maximum)
    return (
        f"a container may have at most {format_amounts(maximum.amounts())}: {lacking}"
        if lacking
        else ""
    )


def describe_shortfall(need: Capability, room: Capability) -> str:
    """The resources that do not fit, in numbers; empty if all fit."""
    return ", ".join(
        f"{format_amount(name, wanted)} wanted, {there} there"
        for name, (wanted, there) in need.lacking(room).items()
    )


def explain_pending(
    requests: Sequence[OutstandingRequest],
    held: Mapping[str, int],
    queue: str,
    headroom: Optional[Capability],
    nodes: Sequence[ClusterNode],
    avoided: AbstractSet[str] = frozenset(),
) -> str:
    """The missing containers and the cluster's free resources; ``avoided``: blacklisted nodes."""
    parts = []
    for request in requests:
        have = held.get(request.role, 0)
        where = f" with the label {request.wanted.node_label}" if request.wanted.node_label else ""
        where += " where its placement constraint allows it" if request.constraint else ""
        parts.append(
            f"{have} of {have + request.missing} {request.role};"
            f" {request.missing} x ({_format_short(request.need)}) missing{where}"
        )
    sentences = [f"{', '.join(parts)} in the queue {queue}"]
    if headroom is not None:
        wanted = {name for request in requests for name in request.need.other}
        sentences.append(f"the queue has {_format_short(headroom, wanted)} left for this job")
    if nodes and requests:
        # That no node can ever hold it matters more than that none has room now.
        reasons = [words for request in requests if (words := _on_nodes(request, nodes, avoided))]
        sentences += [*(words for words in reasons if words.startswith(_NEVER)), *reasons][:1]
    if avoided:
        names = sorted(avoided)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        sentences.append(f"avoided after a failure there: {', '.join(names[:_MOST_NAMED])}{more}")
    return "; ".join(sentences)


def _on_nodes(
    request: OutstandingRequest, nodes: Sequence[ClusterNode], avoided: AbstractSet[str]
) -> str:
    """The resources that the nodes lack for a request; empty if unknown."""
    label = request.wanted.node_label or ""
    here = [node for node in nodes if node.label == label]
    if not here:
        return f"no node has the label {label}" if label else "no node takes containers"
    if not any(count_fitting(node.total, request.need, 1) for node in here):
        nearest = min(here, key=lambda node: len(request.need.lacking(node.total)))
        return f"{_NEVER} for {request.role} ({describe_shortfall(request.need, nearest.total)})"
    here = [p for p in here if p.name not in avoided and count_fitting(p.total, request.need, 1)]
    if not here:
        return "every suitable node is avoided"
    room = sum(count_fitting(node.free, request.need, request.missing) for node in here)
    if room and request.constraint:
        return ""  # whether the constraint allows these nodes is not known here
    if room:
        return f"the nodes have room for {min(room, request.missing)} of them"
    freest = min(here, key=lambda p: (len(request.need.lacking(p.free)), -p.free.memory_mb))
    return (
        f"no node has room for one: at most {_format_short(freest.free, request.need.other)} on one"
    )


def _format_short(capability: Capability, wanted: Collection[str] = ()) -> str:
    """``2048 MB, 1 vcore, 2 GPUs``; of the ``wanted`` types also a zero."""
    parts = [f"{capability.memory_mb} MB", format_amount(VCORES, capability.vcores)]
    parts += [
        format_amount(name, n)
        for name, n in sorted(capability.other.items())
        if n or name in wanted
    ]
    return ", ".join(parts)
