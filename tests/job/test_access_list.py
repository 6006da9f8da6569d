"""Hadoop's lists of users and groups."""

from __future__ import annotations

import functools
import operator
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.job.access_list import AccessList


@pytest.mark.parametrize(
    ("text", "users", "groups"),
    [
        ("", "", ""),
        (" ", "", ""),
        ("ann,bob staff", "ann bob", "staff"),
        (" staff,ops", "", "staff ops"),
        (" ann", "", "ann"),
        ("\tann", "ann", ""),
        ("ann, staff,dev", "ann", "staff dev"),
        ("ann  staff", "ann", "staff"),
        ("ann\nbob", "ann bob", ""),
        ("ann,\n  bob", "ann", "bob"),
        ("ann,*", "ann *", ""),
        ("*,", "*", ""),
        (",*", "*", ""),
        (" *,", "", "*"),
        ("*, *,", "*", "*"),
        ("ann staff,*", "ann", "staff *"),
        (" *,staff", "", "* staff"),
    ],
)
def test_access_lists_as_hadoop_reads_them(text: str, users: str, groups: str) -> None:
    """What org.apache.hadoop.security.authorize.AccessControlList 3.4.2 makes of them."""
    found = AccessList.parse(text)
    assert found == (frozenset(users.split()), frozenset(groups.split()), False)
    assert AccessList.parse(str(found)) == found


@pytest.mark.parametrize("text", ["*", " * ", "* staff", "ann *", "\t*", "*\n"])
def test_access_lists_for_all(text: str) -> None:
    assert AccessList.parse(text) == AccessList(is_for_all=True)
    assert str(AccessList.parse(text)) == "*"


NAMES = st.text("*a,\n\t b", max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_a_list_as_text_admits_who_the_list_admits(texts: List[str]) -> None:
    parse = AccessList.parse
    found = functools.reduce(operator.or_, map(parse, texts))
    assert parse(str(found)) == found


def test_two_access_lists_are_one() -> None:
    parse = AccessList.parse
    assert str(parse("bob,ann staff") | parse("carl ops")) == "ann,bob,carl ops,staff"
    assert (parse("ann") | parse("*")).is_for_all
    assert str(parse(" staff")) == " staff", "the blank before groups alone"


@fuzz(text=mutations(b"ann, staff,dev", b"*", b"ann,bob staff", b" staff"))
def test_damaged_access_lists(text: bytes) -> None:
    found = AccessList.parse(text.decode("latin-1"))
    assert "" not in found.users | found.groups
    if found.is_for_all:
        assert b"*" in text
