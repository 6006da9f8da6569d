from __future__ import annotations

import pytest

from tony_core.portal.access.origins import (
    host_of,
    is_within,
    own_hosts,
    parse_networks,
    safe_target,
)
from tony_core.portal.settings import Settings


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("Tony.Example.com:80", "tony.example.com"),
        ("[::1]:80", "::1"),
        ("localhost.", "localhost"),
        *((bad, None) for bad in ("", ":80", "a@b", "a/b", "a\\b", "a b", "a:b", "[::1", "a,b")),
    ],
)
def test_the_host_of_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


def test_the_hosts_of_a_portal() -> None:
    assert own_hosts(Settings()) == {"localhost", "127.0.0.1", "::1"}
    assert own_hosts(Settings(bind="10.0.0.1", url="https://T.example.com:8443")) == {
        "10.0.0.1",
        "t.example.com",
    }


@pytest.mark.parametrize(
    ("address", "is_in"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.0", False),
        ("fd00::1%eth0", True),
        ("::10.1.2.3", False),
        ("", False),
        ("10.1", False),
        ("localhost", False),
    ],
)
def test_networks(address: str, is_in: bool) -> None:
    assert is_within(address, parse_networks(["10.1.0.0/16", "fd00::/8"])) is is_in


@pytest.mark.parametrize("good", ["/", "/jobs?q=a%20b&sort=-name", "/jobs/application_1_1/#x"])
def test_where_a_login_may_lead(good: str) -> None:
    assert safe_target(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        *(
            None,
            "",
            "//evil.example",
            "///evil",
            "/\\evil.example",
            "\\\\evil",
            "https://evil.example",
        ),
        *("javascript:alert(1)", "jobs", "/\tevil", "/a\r\nSet-Cookie: x=1", " /", "/x\0"),
        *("/login", "/login?next=/", "/logout", "/" + "a" * 3000, "@evil", "/\u2028"),
    ],
)
def test_where_it_may_not(bad: str) -> None:
    assert safe_target(bad) == "/"
