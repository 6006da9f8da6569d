"""Who gets what when a node's heartbeat comes: the rules of Hadoop's CapacityScheduler.

Those that a master notices:

* An ask is a key (priority, request id) with counts for ``*``, for racks and for hosts. A grant
  at a named host takes one off all three, one at a named rack off two, any other off ``*``.
  Nothing is granted under a key whose ``*`` is used up.
* In one heartbeat a node gives up to a hundred containers to asks that name it or its rack, but
  ends with the first that it gives to an ask for another place, or for any.
* A key that names places waits for them: a rack's turn comes after as many missed chances as
  there are nodes (forty at most), any other place after as many as there are containers wanted,
  scaled by the share of the cluster's places that it names. Who names none waits for nothing.
* A node with a label serves asks with that label only, and the other way round.
"""

from __future__ import annotations

from typing import Iterable, Optional, Tuple

from tests.cluster.fakeyarn.applications import Application, Key, Node, PendingRequest

ANY = "*"
MOST_PER_HEARTBEAT = 100
MOST_ELSEWHERE = 1
_PATIENCE = 40  # missed chances of a host, before its rack will do

HERE, RACK, ELSEWHERE = "NODE_LOCAL", "RACK_LOCAL", "OFF_SWITCH"

Choice = Tuple[Application, Key, PendingRequest, str]


def choose(
    node: Node, applications: Iterable[Application], nodes: int, *, names_with_port: bool = False
) -> Optional[Choice]:
    """The next grant that this node can make."""
    host = node_name(node, names_with_port)
    for application in applications:
        attempt = application.attempt
        if host in attempt.avoid:
            continue
        for key, pending in attempt.pending():
            if pending.label != node.label or _too_many(node, application, pending):
                continue
            pending.missed += 1
            if pending.amount.lacking(node.free):
                continue
            where = _place(node, host, pending, nodes)
            if where:
                return application, key, pending, where
    return None


def node_name(node: Node, with_port: bool) -> str:
    """What asks call it."""
    return str(node.id) if with_port else node.id.host


def take(pending: PendingRequest, node: Node, where: str, *, names_with_port: bool = False) -> None:
    """One container less to be asked for."""
    places = [ANY]
    if where in (HERE, RACK):
        places.append(node.rack)
        pending.missed = 0
    if where == HERE:
        places.append(node_name(node, names_with_port))
    for place in places:
        if pending.places.get(place, 0) > 0:
            pending.places[place] -= 1
            if not pending.places[place] and place != ANY:
                del pending.places[place]


def _place(node: Node, host: str, pending: PendingRequest, nodes: int) -> str:
    if pending.places.get(host, 0) > 0:
        return HERE
    if pending.places.get(node.rack, 0) > 0:
        if node.rack in pending.strict:
            return ""
        if min(nodes, _PATIENCE) < pending.missed:
            return RACK
    if ANY in pending.strict:
        return ""
    named = len(pending.places) - 1
    if named == 0:
        return ELSEWHERE
    patience = min(nodes, pending.count * min(named / nodes, 1.0))
    return ELSEWHERE if patience < pending.missed else ""


def _too_many(node: Node, application: Application, pending: PendingRequest) -> bool:
    if pending.most_per_node is None:
        return False
    alike = [
        one
        for one in node.live.values()
        if one.id.attempt.application == application.id and set(pending.tags) <= set(one.tags)
    ]
    return len(alike) >= pending.most_per_node
