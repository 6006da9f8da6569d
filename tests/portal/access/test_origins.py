from __future__ import annotations

from tony_core.portal.access.origins import (
    host_of,
    is_within,
    own_hosts,
    parse_networks,
    safe_target,
)
from tony_core.portal.settings import Settings

HOSTS = (
    ("Tony.Example.com:80", "tony.example.com"),
    ("[::1]:80", "::1"),
    ("localhost.", "localhost"),
    *((bad, None) for bad in ("", ":80", "a@b", "a/b", "a\\b", "a b", "a:b", "[::1", "a,b")),
)


def test_the_host_of_a_header() -> None:
    for header, host in HOSTS:
        assert host_of(header) == host, header


def test_the_hosts_of_a_portal() -> None:
    assert own_hosts(Settings()) == {"localhost", "127.0.0.1", "::1"}
    assert own_hosts(Settings(bind="10.0.0.1", url="https://T.example.com:8443")) == {
        "10.0.0.1",
        "t.example.com",
    }


ADDRESSES = (
    ("10.1.2.3", True),
    ("::ffff:10.1.2.3", True),
    ("10.2.0.0", False),
    ("fd00::1%eth0", True),
    ("::10.1.2.3", False),
    ("", False),
    ("10.1", False),
    ("localhost", False),
)


def test_networks() -> None:
    for address, is_in in ADDRESSES:
        assert is_within(address, parse_networks(["10.1.0.0/16", "fd00::/8"])) is is_in, address


def test_where_a_login_may_lead() -> None:
    for good in ("/", "/jobs?q=a%20b&sort=-name", "/jobs/application_1_1/#x"):
        assert safe_target(good) == good


ELSEWHERE = (
    *(None, "", "//evil.example", "///evil", "/\\evil.example", "\\\\evil", "https://evil.example"),
    *("javascript:alert(1)", "jobs", "/\tevil", "/a\r\nSet-Cookie: x=1", " /", "/x\0"),
    *("/login", "/login?next=/", "/logout", "/" + "a" * 3000, "@evil", "/\u2028"),
)


def test_where_it_may_not() -> None:
    for bad in ELSEWHERE:
        assert safe_target(bad) == "/", bad
