"""Why an ask is not granted yet, or never will be, in words with the numbers. Pure."""

from __future__ import annotations

from typing import AbstractSet, Collection, Mapping, Optional, Sequence

from tony_core.hadoop.yarn.records import VCORES, Capability
from tony_core.schedulers.yarn.master.container_requests import Want
from tony_core.schedulers.yarn.master.placement import Place, times
from tony_core.schedulers.yarn.resources import format_amount, format_amounts

_NEVER = "no node is large enough"
_MOST_NAMED = 5


def never(need: Capability, maximum: Capability, known: Collection[str]) -> str:
    """Why no cluster like this one can ever grant it; empty if it may.

    ``known`` are the resource types that it counts; none when it does not say.
    """
    strange = [name for name in need.other if known and name not in known]
    if strange:
        amounts = ", ".join(format_amount(name, need.other[name]) for name in strange)
        return (
            f"it asks for {amounts}, which this cluster does not count;"
            f" it knows {', '.join(sorted(known))}"
        )
    lacking = lack(need, maximum)
    return (
        f"a container may have at most {format_amounts(maximum.amounts())}: {lacking}"
        if lacking
        else ""
    )


def lack(need: Capability, room: Capability) -> str:
    """What of it is too much, in numbers; empty if it fits."""
    return ", ".join(
        f"{format_amount(name, wanted)} wanted, {there} there"
        for name, (wanted, there) in need.lacking(room).items()
    )


def reason(
    wants: Sequence[Want],
    held: Mapping[str, int],
    queue: str,
    headroom: Optional[Capability],
    places: Sequence[Place],
    avoided: AbstractSet[str] = frozenset(),
) -> str:
    """What is missing, and what there is; ``avoided`` are nodes from which nothing is taken."""
    parts = []
    for want in wants:
        have = held.get(want.role, 0)
        where = f" with the label {want.ask.node_label}" if want.ask.node_label else ""
        where += " where its placement constraint allows it" if want.constraint else ""
        parts.append(
            f"{have} of {have + want.missing} {want.role};"
            f" {want.missing} x ({_short(want.need)}) missing{where}"
        )
    facts = [f"{', '.join(parts)} in the queue {queue}"]
    if headroom is not None:
        wanted = {name for want in wants for name in want.need.other}
        facts.append(f"the queue has {_short(headroom, wanted)} left for this job")
    if places and wants:
        # What no node can ever hold is worth more words than what has no room now.
        told = [words for want in wants if (words := _on_nodes(want, places, avoided))]
        facts += [*(words for words in told if words.startswith(_NEVER)), *told][:1]
    if avoided:
        names = sorted(avoided)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        facts.append(f"avoided after a failure there: {', '.join(names[:_MOST_NAMED])}{more}")
    return "; ".join(facts)


def _on_nodes(want: Want, places: Sequence[Place], avoided: AbstractSet[str]) -> str:
    """Empty where the nodes tell nothing."""
    label = want.ask.node_label or ""
    here = [place for place in places if place.label == label]
    if not here:
        return f"no node has the label {label}" if label else "no node takes containers"
    if not any(times(place.size, want.need, 1) for place in here):
        nearest = min(here, key=lambda place: len(want.need.lacking(place.size)))
        return f"{_NEVER} for {want.role} ({lack(want.need, nearest.size)})"
    here = [p for p in here if p.name not in avoided and times(p.size, want.need, 1)]
    if not here:
        return "every node that could do is avoided"
    room = sum(times(place.room, want.need, want.missing) for place in here)
    if room and want.constraint:
        return ""  # whether it is where the constraint allows it is not known here
    if room:
        return f"the nodes have room for {min(room, want.missing)} of them"
    freest = min(here, key=lambda p: (len(want.need.lacking(p.room)), -p.room.memory_mb))
    return f"no node has room for one: at most {_short(freest.room, want.need.other)} on one"


def _short(capability: Capability, wanted: Collection[str] = ()) -> str:
    """Memory and cores first: ``2048 MB, 1 vcore, 2 GPUs``; none of what is wanted is said too."""
    parts = [f"{capability.memory_mb} MB", format_amount(VCORES, capability.vcores)]
    parts += [
        format_amount(name, n)
        for name, n in sorted(capability.other.items())
        if n or name in wanted
    ]
    return ", ".join(parts)
