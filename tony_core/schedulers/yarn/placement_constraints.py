"""Placement constraints in the syntax of YARN's own tools, parsed into messages of the protocol.

A constraint says where containers may run, by the containers or attributes of a node or rack::

    IN,SCOPE,TAG[,TAG...]                    where a container with one of these tags runs
    NOTIN,SCOPE,TAG[,TAG...]                 where no such container runs
    CARDINALITY,SCOPE,TAG[,TAG...],MIN,MAX   where MIN to MAX of them run
    NAME=VALUE, NAME!=VALUE                  on nodes with (without) this attribute
    AND(C:C...), OR(C:C...)                  combinations of constraints

SCOPE is ``NODE`` or ``RACK``. A plain tag means containers of this application; ``all/TAG``,
``not-self/TAG``, ``app-id/ID/TAG`` and ``app-tag/NAME/TAG`` mean those of others. A *placement
spec* has a constraint for each tag: ``TAG=NUMBER,C:TAG=NUMBER,C`` (or ``TAG(NUMBER),C``). A role's
spec may be a constraint without tag. YARN's tools start NUMBER containers; here it has no effect.

Pure; the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

from tony_core.hadoop.yarn.messages.resource_requests import (
    CompositePlacementConstraint,
    PlacementConstraint,
    PlacementConstraintMapEntry,
    PlacementConstraintTarget,
    SimplePlacementConstraint,
)

NODE, RACK = "node", "rack"
UNBOUND = 0x7FFFFFFF

_ATTRIBUTE, _TAG, _SELF = 1, 2, 3  # kinds of targets
_AND, _OR = 1, 2
_NO_OPERATOR, _EQUAL, _UNEQUAL = 1, 2, 3
_PARTITION = "yarn_node_partition/"
_NAMESPACES = ("self", "not-self", "all", "app-id", "app-tag")
_SOURCE = re.compile(r"([^\s,:=()!]+)\s*(?:=\s*(-?\d+)|\(\s*(-?\d+)?\s*\))\s*(?:,(.*))?", re.S)
_NODE_ATTRIBUTE = re.compile(r"(?:node\s*,\s*)?([^\s,:=()!]+)\s*(!?=)\s*([^\s:=()!]+)", re.I)
_NAME = re.compile(r"[^\s,:=()!/]+(?:/[^\s,:=()!/]+)*")


class ConstraintError(ValueError):
    """A text is not a placement constraint; the message says why."""


class SimpleConstraint(NamedTuple):
    """A number of targets in each node or rack."""

    scope: str
    kind: int
    key: str  # of tags: whose containers; of attributes: which
    values: Tuple[str, ...]
    least: int
    most: int
    operator: int = _NO_OPERATOR
    partition: str = ""  # within this part of the cluster

    def to_message(self) -> PlacementConstraint:
        """The constraint as a message."""
        named = [(self.kind, self.key, self.values)] if self.values else []
        if self.partition:
            named.append((_ATTRIBUTE, _PARTITION, (self.partition,)))
        simple = SimplePlacementConstraint(
            scope=self.scope,
            target_expressions=[
                PlacementConstraintTarget(target_type=kind, target_key=key, target_values=values)
                for kind, key, values in named
            ],
            min_cardinality=self.least,
            max_cardinality=self.most,
        )
        if self.operator != _NO_OPERATOR:
            simple = simple.replace(attribute_op_code=self.operator)
        return PlacementConstraint(simple_constraint=simple)


class CompositeConstraint(NamedTuple):
    """All of several constraints, or one of them."""

    kind: int
    parts: Tuple[Constraint, ...]

    def to_message(self) -> PlacementConstraint:
        """The constraint as a message."""
        return PlacementConstraint(
            composite_constraint=CompositePlacementConstraint(
                composite_type=self.kind,
                child_constraints=[part.to_message() for part in self.parts],
            )
        )


Constraint = Union[SimpleConstraint, CompositeConstraint]


class PlacementRule(NamedTuple):
    """A part of a placement spec."""

    tag: str  # of the containers it places; empty: of the role
    constraint: Optional[Constraint]


def parse_constraint(text: str) -> Constraint:
    """Parse one constraint; raises :class:`ConstraintError`."""
    text = text.strip()
    match = re.fullmatch(r"(and|or)\s*\((.*)\)", text, re.I | re.S)
    if match:
        parts = tuple(parse_constraint(part) for part in _split(match.group(2), text))
        return CompositeConstraint(_AND if match.group(1).lower() == "and" else _OR, parts)
    words = [word.strip() for word in text.split(",")]
    verb = words[0].lower()
    if verb in ("in", "notin"):
        scope = _scope(words, text)
        key, tags = _tags(words[2:], text)
        least, most = (1, UNBOUND) if verb == "in" else (0, 0)
        return SimpleConstraint(scope, _TAG, key, tags, least, most)
    if verb == "cardinality":
        scope = _scope(words, text)
        if len(words) < 5:
            raise _error(text, "expected CARDINALITY,SCOPE,TAG,MIN,MAX")
        key, tags = _tags(words[2:-2], text)
        least, most = _number(words[-2], text), _number(words[-1], text)
        if least > most:
            raise _error(text, f"{least} is more than {most}")
        return SimpleConstraint(scope, _TAG, key, tags, least, most)
    match = _NODE_ATTRIBUTE.fullmatch(text)
    if match:
        values = tuple(word for word in match.group(3).split(",") if word)
        operator = _EQUAL if match.group(2) == "=" else _UNEQUAL
        return SimpleConstraint(NODE, _ATTRIBUTE, match.group(1), values, 1, UNBOUND, operator)
    raise _error(text, "expected IN, NOTIN, CARDINALITY, AND or OR")


def parse_placement_spec(text: str) -> List[PlacementRule]:
    """Parse a placement spec; raises :class:`ConstraintError`."""
    found: List[PlacementRule] = []
    for part in _split(text, text):
        match = _SOURCE.fullmatch(part.strip())
        if match and match.group(1).lower() not in ("and", "or"):
            rest = (match.group(4) or "").strip()
            found.append(PlacementRule(match.group(1), parse_constraint(rest) if rest else None))
        else:
            found.append(PlacementRule("", parse_constraint(part)))
    named = [placed.tag for placed in found]
    for tag in named:
        if named.count(tag) > 1:
            whose = f"the tag {tag}" if tag else "no tag"
            raise _error(text, f"two of its constraints are for {whose}; join them by AND(...)")
    return found


def role_constraint(
    spec: Optional[str], tags: Tuple[str, ...]
) -> Tuple[Optional[Constraint], Tuple[str, ...]]:
    """Constraint and tags of a role's containers; a spec with a tag gives it to a role without."""
    if not spec or not spec.strip():
        return None, tags
    placed = parse_placement_spec(spec)
    for one in placed:
        if not one.tag or one.tag in tags:
            return one.constraint, tags
    if len(placed) == 1 and not tags:
        return placed[0].constraint, (placed[0].tag,)
    there = ", ".join(one.tag for one in placed)
    raise _error(
        spec, f"it has parts for {there}, and the role's allocation tags are {', '.join(tags)}"
    )


def request_constraint(
    role: str, spec: Optional[str], tags: Tuple[str, ...], application: Optional[str]
) -> Tuple[Optional[Constraint], Tuple[str, ...]]:
    """Constraint and tags of a request: by the role's own spec, else by the application's.

    In the application's spec, a part with a tag is for roles with that tag, and for the role of
    that name if it has no tags; a part without a tag is for every role.
    """
    if spec and spec.strip():
        return role_constraint(spec, tags)
    for one in parse_placement_spec(application) if application and application.strip() else ():
        if not one.tag or one.tag in tags:
            return one.constraint, tags
        if not tags and one.tag == role:
            return one.constraint, (one.tag,)
    return None, tags


def application_constraints(spec: Optional[str]) -> List[PlacementConstraintMapEntry]:
    """The constraints of an application by tag, for its master's registration."""
    if not spec or not spec.strip():
        return []
    entries: Dict[str, PlacementConstraintMapEntry] = {}
    for placed in parse_placement_spec(spec):
        if placed.tag and placed.constraint is not None:
            entries[placed.tag] = PlacementConstraintMapEntry(
                allocation_tags=(placed.tag,), placement_constraint=placed.constraint.to_message()
            )
    return list(entries.values())


def add_node_label(constraint: Optional[Constraint], label: Optional[str]) -> Optional[Constraint]:
    """Limit a constraint to the nodes with a label (a partition of the cluster).

    YARN's schedulers expect the partition beside the tags of a simple constraint; beside other
    constraints it is one more constraint.
    """
    if not label:
        return constraint
    if isinstance(constraint, SimpleConstraint) and constraint.kind == _TAG:
        return constraint._replace(partition=label)
    there = SimpleConstraint(NODE, _ATTRIBUTE, "", (), 1, UNBOUND, partition=label)
    return there if constraint is None else CompositeConstraint(_AND, (constraint, there))


def _split(text: str, whole: str) -> List[str]:
    """Split at the colons outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                raise _error(whole, "a bracket is closed but not opened")
        elif letter == ":" and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    if depth:
        raise _error(whole, "a bracket is not closed")
    parts.append(text[begin:])
    if any(not part.strip() for part in parts):
        raise _error(whole, "a part between colons is empty")
    return parts


def _scope(words: List[str], text: str) -> str:
    scope = words[1].lower() if len(words) > 1 else ""
    if scope not in (NODE, RACK):
        raise _error(text, f"expected the scope NODE or RACK, not {scope.upper() or 'nothing'}")
    return scope


def _tags(words: List[str], text: str) -> Tuple[str, Tuple[str, ...]]:
    """Namespace and tags."""
    if not words or not all(_NAME.fullmatch(word) for word in words):
        raise _error(text, "it names no tag, or an invalid one")
    spaces, tags = set(), []
    for word in words:
        space, _, tag = word.rpartition("/")
        if space.split("/")[0] not in ("", *_NAMESPACES):
            raise _error(text, f"{space} is none of {', '.join(_NAMESPACES)}")
        spaces.add(space or "self")
        tags.append(tag)
    if len(spaces) > 1:
        raise _error(text, "its tags are of different applications; join two by AND or OR")
    return spaces.pop(), tuple(sorted(set(tags)))


def _number(word: str, text: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 19):
        raise _error(text, f"{word!r} is not a number")
    return int(word)


def _error(text: str, why: str) -> ConstraintError:
    return ConstraintError(f"{text.strip()!r} is not a placement constraint: {why}")
