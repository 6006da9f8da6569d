"""Tests of principals, ``_HOST`` and the rules of ``auth_to_local``."""

from __future__ import annotations

import pytest

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.kerberos.principals import (
    Principal,
    expand_host,
    parse_principal,
    parse_rules,
    short_name,
)

OURS = "EXAMPLE.ORG"


def name_of(principal: str, rules: str = "") -> str:
    return short_name(parse_principal(principal), parse_rules(rules), OURS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ann", Principal("ann")),
        ("ann@EXAMPLE.ORG", Principal("ann", "", OURS)),
        (" rm/host.example.org@EXAMPLE.ORG\n", Principal("rm", "host.example.org", OURS)),
    ],
)
def test_parts(text: str, parts: Principal) -> None:
    assert parse_principal(text) == parts
    assert str(parts) == text.strip()


@pytest.mark.parametrize("text", ["", "@R", "a/b/c@R", "a@b@c", "/b@R"])
def test_no_principal(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no principal of the form"):
        parse_principal(text)


def test_host() -> None:
    assert expand_host("rm/_HOST@R", "RM1.Example.org.") == "rm/rm1.example.org@R"
    assert expand_host("rm/fixed@R", "other") == "rm/fixed@R"
    assert expand_host("rm@R", "other") == "rm@R"


@pytest.mark.parametrize(
    ("principal", "rules", "expected"),
    [
        ("ann@EXAMPLE.ORG", "", "ann"),
        ("ann/admin@EXAMPLE.ORG", "DEFAULT", "ann"),
        ("ann", "DEFAULT", "ann"),
        ("rm/h@EXAMPLE.ORG", "RULE:[2:$1@$0](rm@.*)s/.*/yarn/ DEFAULT", "yarn"),
        ("Ann@OTHER", r"RULE:[1:$1@$0](.*@OTHER)s/@.*///L DEFAULT", "ann"),
        ("ann@OTHER", "RULE:[1:$1](x.*)s/x/y/\nRULE:[1:$1]\nDEFAULT", "ann"),
        ("a-b-c@EXAMPLE.ORG", "RULE:[1:$1](.*)s/-/_/", "a_b-c"),
        ("a-b-c@EXAMPLE.ORG", "RULE:[1:$1](.*)s/-/_/g", "a_b_c"),
        ("ann@EXAMPLE.ORG", "RULE:[1:$1](.*)s/(.*)n/$1m/", "anm"),
        ("h/web@EXAMPLE.ORG", "RULE:[2:$2;$1](^web;.*$)s/^web;//", "h"),
    ],
)
def test_short_names(principal: str, rules: str, expected: str) -> None:
    assert name_of(principal, rules) == expected


def test_the_first_rule_that_fits_decides() -> None:
    rules = "RULE:[1:$1](ann)s/ann/first/ RULE:[1:$1](ann)s/ann/second/ DEFAULT"
    assert name_of("ann@EXAMPLE.ORG", rules) == "first"
    assert name_of("bob@EXAMPLE.ORG", rules) == "bob"


def test_another_realm_needs_a_rule() -> None:
    with pytest.raises(ConfigurationError, match=r"no rule of .* applies to ann@OTHER"):
        name_of("ann@OTHER", "DEFAULT")


def test_a_rule_must_make_a_name() -> None:
    with pytest.raises(ConfigurationError, match="makes 'ann@OTHER' of ann@OTHER"):
        name_of("ann@OTHER", "RULE:[1:$1@$0]")


@pytest.mark.parametrize("rules", ["RULE:[1", "DEFAULTS/x/", "RULE:[1:$1](()s/a/b/", "nonsense"])
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"hadoop\.security\.auth_to_local has"):
        parse_rules(rules)
