"""Placement constraints as users of YARN write them."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.schedulers.yarn.placement_constraints import (
    UNBOUND,
    CompositeConstraint,
    ConstraintError,
    SimpleConstraint,
    add_node_label,
    application_constraints,
    parse_constraint,
    parse_placement_spec,
    request_constraint,
    role_constraint,
)

APART = SimpleConstraint("node", 2, "self", ("worker",), 0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOTIN,NODE,worker", APART),
        ("notin , node , worker", APART),
        ("IN,RACK,hbase,zk", SimpleConstraint("rack", 2, "self", ("hbase", "zk"), 1, UNBOUND)),
        ("CARDINALITY,NODE,hbase,1,3", SimpleConstraint("node", 2, "self", ("hbase",), 1, 3)),
        ("cardinality,rack,a,b,0,4", SimpleConstraint("rack", 2, "self", ("a", "b"), 0, 4)),
        ("NOTIN,NODE,all/train", SimpleConstraint("node", 2, "all", ("train",), 0, 0)),
        (
            "IN,NODE,app-tag/ads/db",
            SimpleConstraint("node", 2, "app-tag/ads", ("db",), 1, UNBOUND),
        ),
        ("java=1.8", SimpleConstraint("node", 1, "java", ("1.8",), 1, UNBOUND, 2)),
        (
            "NODE,rm.yarn.io/os!=old",
            SimpleConstraint("node", 1, "rm.yarn.io/os", ("old",), 1, UNBOUND, 3),
        ),
        (
            "AND(NOTIN,NODE,worker:OR(IN,RACK,a:IN,RACK,b))",
            CompositeConstraint(
                1,
                (
                    APART,
                    CompositeConstraint(
                        2,
                        (
                            SimpleConstraint("rack", 2, "self", ("a",), 1, UNBOUND),
                            SimpleConstraint("rack", 2, "self", ("b",), 1, UNBOUND),
                        ),
                    ),
                ),
            ),
        ),
    ],
)
def test_constraints(text: str, expected: object) -> None:
    assert parse_constraint(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected IN, NOTIN"),
        ("NEAR,NODE,worker", "expected IN, NOTIN"),
        ("NOTIN,HOST,worker", "expected the scope NODE or RACK, not HOST"),
        ("NOTIN", "not nothing"),
        ("IN,NODE", "names no tag"),
        ("IN,NODE,", "names no tag"),
        ("IN,NODE,a b", "names no tag"),
        ("IN,NODE,other/a", "other is none of self"),
        ("IN,NODE,all/a,b", "different applications"),
        ("CARDINALITY,NODE,a,1", "CARDINALITY,SCOPE,TAG,MIN,MAX"),
        ("CARDINALITY,NODE,a,one,2", "'one' is not a number"),
        ("CARDINALITY,NODE,a,1,²", "'²' is not a number"),
        ("CARDINALITY,NODE,a,1," + "9" * 5000, "is not a number"),
        ("CARDINALITY,NODE,a,3,2", "3 is more than 2"),
        ("AND(IN,NODE,a", "expected IN, NOTIN"),
        ("AND(IN,NODE,a:)", "a part between colons is empty"),
        ("AND(IN,NODE,a))", "a bracket is closed"),
        ("AND((IN,NODE,a)", "a bracket is not closed"),
    ],
)
def test_what_is_wrong_is_reported(text: str, why: str) -> None:
    with pytest.raises(ConstraintError, match="not a placement constraint") as caught:
        parse_constraint(text)
    assert why in str(caught.value)


def test_a_spec_as_yarns_own_tools_take_it() -> None:
    placed = parse_placement_spec(
        "zk=3,NOTIN,NODE,zk:hbase=5,IN,RACK,zk:spark=7,CARDINALITY,NODE,hbase,1,3"
    )
    assert [one.tag for one in placed] == ["zk", "hbase", "spark"]
    assert placed[0].constraint == SimpleConstraint("node", 2, "self", ("zk",), 0, 0)
    newer = parse_placement_spec("zk(3),NOTIN,NODE,zk:foo(2)")
    assert newer[0] == placed[0]
    assert (newer[1].tag, newer[1].constraint) == ("foo", None)


@pytest.mark.parametrize(
    ("spec", "tags", "expected"),
    [
        (None, ("t",), (None, ("t",))),
        (" ", (), (None, ())),
        ("NOTIN,NODE,worker", ("worker",), (APART, ("worker",))),
        ("NOTIN,NODE,worker", (), (APART, ())),
        ("worker=3,NOTIN,NODE,worker", (), (APART, ("worker",))),
        ("ps=1,IN,NODE,a:worker=3,NOTIN,NODE,worker", ("worker", "x"), (APART, ("worker", "x"))),
    ],
)
def test_of_a_role(spec: Optional[str], tags: Tuple[str, ...], expected: object) -> None:
    assert role_constraint(spec, tags) == expected


def test_a_spec_for_other_tags_is_a_mistake() -> None:
    with pytest.raises(
        ConstraintError, match="it has parts for zk, and the role's allocation tags are a"
    ):
        role_constraint("zk=3,NOTIN,NODE,zk", ("a",))
    with pytest.raises(ConstraintError, match="two of its constraints are for the tag zk"):
        parse_placement_spec("zk=3,NOTIN,NODE,zk:zk=1,IN,NODE,a")


def test_of_a_whole_application() -> None:
    spec = "worker=3,NOTIN,NODE,worker:db=1,IN,NODE,worker"
    assert request_constraint("worker", None, (), spec) == (APART, ("worker",))
    near = SimpleConstraint("node", 2, "self", ("worker",), 1, UNBOUND)
    assert request_constraint("ps", None, ("db",), spec) == (near, ("db",))
    assert request_constraint("ps", None, (), spec) == (None, ())
    assert request_constraint("ps", "NOTIN,NODE,worker", (), spec) == (APART, ())
    assert request_constraint("ps", None, (), "NOTIN,NODE,worker") == (APART, ())
    assert request_constraint("ps", None, (), None) == (None, ())
    entries = application_constraints(spec)
    assert [entry.allocation_tags for entry in entries] == [("worker",), ("db",)]
    assert application_constraints("NOTIN,NODE,worker") == []
    assert application_constraints(None) == []


def test_in_a_partition() -> None:
    there = SimpleConstraint("node", 1, "", (), 1, UNBOUND, partition="gpu")
    assert add_node_label(None, "gpu") == there
    both = add_node_label(APART, "gpu")
    assert both is not None
    targets = both.to_message().simple_constraint.target_expressions
    assert [(one.target_key, *one.target_values) for one in targets] == [
        ("self", "worker"),
        ("yarn_node_partition/", "gpu"),
    ]
    attribute = parse_constraint("java=1.8")
    assert add_node_label(attribute, "gpu") == CompositeConstraint(1, (attribute, there))
    assert add_node_label(APART, None) == APART


def test_as_a_message() -> None:
    both = CompositeConstraint(1, (APART,))
    message = type(both.to_message()).decode(both.to_message().encode())
    (child,) = message.composite_constraint.child_constraints
    simple = child.simple_constraint
    assert (simple.scope, simple.min_cardinality, simple.max_cardinality) == ("node", 0, 0)
    (target,) = simple.target_expressions
    assert (target.target_type, target.target_key) == (2, "self")
    assert tuple(target.target_values) == ("worker",)


@given(st.text("INOTandr(),:=! /1nodrck", max_size=30))
def test_noise_is_refused_or_understood(text: str) -> None:
    for read in (parse_constraint, parse_placement_spec):
        try:
            read(text)
        except ConstraintError as error:
            assert "not a placement constraint" in str(error)
