"""Placement constraints, as users of YARN's own tools write them, to what the protocol says.

A constraint says where containers may stand by what else stands there::

    IN,SCOPE,TAG[,TAG...]                    where a container with one of these tags is
    NOTIN,SCOPE,TAG[,TAG...]                 where none is
    CARDINALITY,SCOPE,TAG[,TAG...],MIN,MAX   where there are from MIN to MAX of them
    NAME=VALUE, NAME!=VALUE                  on nodes whose attribute says so
    AND(C:C...), OR(C:C...)                  of these

SCOPE is ``NODE`` or ``RACK``. A tag alone means containers of this application; ``all/TAG``,
``not-self/TAG``, ``app-id/ID/TAG`` and ``app-tag/NAME/TAG`` those of others. A *placement spec*
says for whom: ``TAG=NUMBER,C:TAG=NUMBER,C`` (or ``TAG(NUMBER),C``). For a role the constraint
may stand alone; the number is how YARN's tools say how many to start, and means nothing here.

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
    """This is no placement constraint; the text says what is wrong where."""


class SimpleConstraint(NamedTuple):
    """So many of some targets in each node or rack."""

    scope: str
    kind: int
    key: str  # of tags: whose containers; of attributes: which
    values: Tuple[str, ...]
    least: int
    most: int
    operator: int = _NO_OPERATOR
    partition: str = ""  # within this part of the cluster

    def message(self) -> PlacementConstraint:
        """For a message."""
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
    """All of these, or one of them."""

    kind: int
    parts: Tuple[Constraint, ...]

    def message(self) -> PlacementConstraint:
        """For a message."""
        return PlacementConstraint(
            composite_constraint=CompositePlacementConstraint(
                composite_type=self.kind,
                child_constraints=[part.message() for part in self.parts],
            )
        )


Constraint = Union[SimpleConstraint, CompositeConstraint]


class PlacementRule(NamedTuple):
    """One part of a placement spec."""

    tag: str  # whose containers it is about; empty: the role's own
    constraint: Optional[Constraint]


def parse_constraint(text: str) -> Constraint:
    """One constraint; :class:`ConstraintError` says what is wrong with it."""
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
            raise _error(text, "it is CARDINALITY,SCOPE,TAG,MIN,MAX")
        key, tags = _tags(words[2:-2], text)
        least, most = _number(words[-2], text), _number(words[-1], text)
        if least > most:
            raise _error(text, f"from {least} to {most} is nothing")
        return SimpleConstraint(scope, _TAG, key, tags, least, most)
    match = _NODE_ATTRIBUTE.fullmatch(text)
    if match:
        values = tuple(word for word in match.group(3).split(",") if word)
        operator = _EQUAL if match.group(2) == "=" else _UNEQUAL
        return SimpleConstraint(NODE, _ATTRIBUTE, match.group(1), values, 1, UNBOUND, operator)
    raise _error(text, "it begins with IN, NOTIN, CARDINALITY, AND or OR")


def parse_placement_spec(text: str) -> List[PlacementRule]:
    """A placement spec: constraints by the tag of those they are about."""
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
    """What a role's placement spec and tags mean for its containers: constraint and tags.

    A spec with a tag gives that tag to a role that has none.
    """
    if not spec or not spec.strip():
        return None, tags
    placed = parse_placement_spec(spec)
    for one in placed:
        if not one.tag or one.tag in tags:
            return one.constraint, tags
    if len(placed) == 1 and not tags:
        return placed[0].constraint, (placed[0].tag,)
    there = ", ".join(one.tag for one in placed)
    raise _error(spec, f"it is for {there}, and the role's allocation tags are {', '.join(tags)}")


def request_constraint(
    role: str, spec: Optional[str], tags: Tuple[str, ...], application: Optional[str]
) -> Tuple[Optional[Constraint], Tuple[str, ...]]:
    """What stands for an ask: the role's own spec, else the whole application's.

    In that one a part for a tag is for the roles that have it, and for the role of that name
    when it has no tags; a part without a tag is for every role.
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
    """What an application's placement spec means: constraints by tag, told at registration."""
    if not spec or not spec.strip():
        return []
    entries: Dict[str, PlacementConstraintMapEntry] = {}
    for placed in parse_placement_spec(spec):
        if placed.tag and placed.constraint is not None:
            entries[placed.tag] = PlacementConstraintMapEntry(
                allocation_tags=(placed.tag,), placement_constraint=placed.constraint.message()
            )
    return list(entries.values())


def add_node_label(constraint: Optional[Constraint], label: Optional[str]) -> Optional[Constraint]:
    """The same, in one partition of the cluster.

    Schedulers look for a partition beside the tags of a simple constraint; of several constraints
    it is one more.
    """
    if not label:
        return constraint
    if isinstance(constraint, SimpleConstraint) and constraint.kind == _TAG:
        return constraint._replace(partition=label)
    there = SimpleConstraint(NODE, _ATTRIBUTE, "", (), 1, UNBOUND, partition=label)
    return there if constraint is None else CompositeConstraint(_AND, (constraint, there))


def _split(text: str, whole: str) -> List[str]:
    """At the colons outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                raise _error(whole, "a bracket is closed that was not opened")
        elif letter == ":" and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    if depth:
        raise _error(whole, "a bracket is not closed")
    parts.append(text[begin:])
    if any(not part.strip() for part in parts):
        raise _error(whole, "there is nothing between two colons, or around one")
    return parts


def _scope(words: List[str], text: str) -> str:
    scope = words[1].lower() if len(words) > 1 else ""
    if scope not in (NODE, RACK):
        raise _error(text, f"the scope is NODE or RACK, not {scope.upper() or 'nothing'}")
    return scope


def _tags(words: List[str], text: str) -> Tuple[str, Tuple[str, ...]]:
    """Whose containers, and their tags."""
    if not words or not all(_NAME.fullmatch(word) for word in words):
        raise _error(text, "it names no tag, or one that cannot be")
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
        raise _error(text, f"{word!r} is no number")
    return int(word)


def _error(text: str, why: str) -> ConstraintError:
    return ConstraintError(f"{text.strip()!r} is no placement constraint: {why}")
