from __future__ import annotations

from typing import FrozenSet, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.portal.access.accounts import Accounts
from tony_core.portal.access.refusal import Refused
from tony_core.portal.settings import Login, Settings
from tony_core.portal.viewer import Viewer, may_view, names_of, readers


def accounts(*admins: str, domain: str = "", **groups: List[str]) -> Accounts:
    settings = Settings(admins=admins, login=Login(domain=domain))
    return Accounts(settings, lambda name: frozenset(groups.get(name, [])))


NO_NAMES = (
    *("", " ", "*", "%ops", "a b", "a,b", "ann\n", "\tann", "a\0", "/", "a:b", "a\\b"),
    *("\x7f", "x" * 257, "a\u202eb", "'", '"'),
)


def test_what_is_no_name() -> None:
    for name in NO_NAMES:
        with pytest.raises(Refused) as caught:
            accounts().viewer(name)
        assert caught.value.status == 403 and "\n" not in caught.value.message


def test_names() -> None:
    for name in ("ann", "a.b-c_d", "ann@x.example", "svc$", "\u00e9va", "1000"):
        assert accounts().viewer(name).name == name


def test_a_domain_is_taken_off_and_no_other() -> None:
    made = accounts(domain="Example.com")
    assert made.viewer("ann@EXAMPLE.com").name == "ann"
    assert made.viewer("ann@evil.example").name == "ann@evil.example"
    assert made.viewer("ann@example.com@evil").name == "ann@example.com@evil"
    with pytest.raises(Refused):
        made.viewer("@example.com")


def test_administrators_by_name_and_by_group() -> None:
    made = accounts("ann", "%ops", bob=["ops"])
    assert made.viewer("ann").is_admin and made.viewer("bob").is_admin
    assert not made.viewer("ops").is_admin, "a user named like the group"
    assert not made.viewer("eve", ["ann"]).is_admin, "a group named like the user"
    assert not made.viewer("eve", ["%ops"]).is_admin
    assert not made.viewer("Ann").is_admin, "names are compared exactly"
    assert not made.viewer("bob", []).is_admin, "the login's groups go before the machine's"


def test_groups_that_are_none_are_left_out() -> None:
    found = accounts().viewer("ann", ["ml", "", " x", "a\nb", "Domain Users", "x" * 300])
    assert found.groups == {"ml", "Domain Users"}
    assert len(accounts().viewer("ann", map(str, range(9000))).groups) == 5000


def test_groups_of_this_machine_are_looked_up_again_after_a_while() -> None:
    now, asked = [0.0], []

    def look_up(name: str) -> FrozenSet[str]:
        asked.append(name)
        return frozenset({f"g{len(asked)}"})

    made = Accounts(Settings(), look_up, lambda: now[0])
    assert made.viewer("ann").groups == made.viewer("ann").groups == {"g1"}
    now[0] = 301.0
    assert made.viewer("ann").groups == {"g2"}


class TestReaders:
    """Who may see a job, where names are odd."""

    def test_a_user_named_like_a_group(self) -> None:
        allowed = readers("ann", " ml")
        assert may_view(Viewer("eve", frozenset({"ml"})), allowed)
        assert not may_view(Viewer("ml"), allowed)
        assert not may_view(Viewer("group:ml"), allowed)
        assert not may_view(Viewer("eve", frozenset({"ann"})), allowed)

    def test_an_owner_who_is_not_known_is_no_viewer(self) -> None:
        assert readers("", "") == frozenset()
        assert not may_view(Viewer(""), readers("", ""))
        assert may_view(Viewer("root", is_admin=True), readers("", ""))

    def test_a_star_among_others_is_no_star(self) -> None:
        assert not may_view(Viewer("eve"), readers("ann", "*,bob"))
        assert not may_view(Viewer("eve"), readers("ann", "bob staff,*"))
        assert may_view(Viewer("eve"), readers("ann", "bob *")), "to YARN, too"
        assert may_view(Viewer("eve"), readers("ann", " * "))

    @given(st.text(max_size=8), st.text(max_size=12), st.text(max_size=8))
    def test_only_a_whole_star_lets_all_in(self, owner: str, acl: str, name: str) -> None:
        allowed = readers(owner, acl)
        assert ("*" in allowed) == any(part.strip() == "*" for part in acl.split(" ", 1))
        if may_view(Viewer(name), allowed) and "*" not in allowed:
            assert name and f"user:{name}" in names_of(Viewer(name)) & allowed
