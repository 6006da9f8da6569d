from __future__ import annotations

from tony_core.portal.access import sessions
from tony_core.portal.access.sessions import CsrfTokens, SessionCookie, Sessions
from tony_core.portal.settings import Settings
from tony_core.portal.viewer import Viewer

ANN, BOB = Viewer("ann"), Viewer("bob")


def test_a_session_from_login_to_logout() -> None:
    made = Sessions(60)
    number = made.begin(ANN)
    assert made.find(number) == ANN and len(number) >= 40
    made.end(number)
    assert made.find(number) is None
    made.end(number)


def test_it_ends_by_itself() -> None:
    now = [0.0]
    made = Sessions(60, lambda: now[0])
    number = made.begin(ANN)
    now[0] = 59.9
    assert made.find(number) == ANN and len(made) == 1
    now[0] = 60.0
    assert made.find(number) is None and len(made) == 0


def test_what_is_no_number() -> None:
    made = Sessions(60)
    made.begin(ANN)
    for number in (None, "", "x", "\udcff", "a" * 10_000, "0"):
        assert made.find(number) is None
        made.end(number)


def test_each_login_has_a_number_of_its_own() -> None:
    made = Sessions(60)
    assert len({made.begin(ANN) for _ in range(40)}) == 40


def test_one_user_pushes_out_his_own_only() -> None:
    made = Sessions(60)
    bobs, first = made.begin(BOB), made.begin(ANN)
    numbers = [made.begin(ANN) for _ in range(sessions.MOST_OF_ONE)]
    assert made.find(bobs) == BOB
    assert made.find(first) is None and made.find(numbers[0]) == ANN
    assert len(made) == sessions.MOST_OF_ONE + 1


def test_tokens_belong_to_a_login_and_a_process() -> None:
    made = CsrfTokens()
    token = made.token("session 1")
    assert made.is_valid(token, "session 1")
    assert not made.is_valid(token, "session 2")
    assert not CsrfTokens().is_valid(token, "session 1")
    for bad in (None, "", token[:-1], token.upper(), token + "\0", "\udcff"):
        assert not made.is_valid(bad, "session 1")


def test_the_cookie_of_https_is_for_one_host() -> None:
    made = SessionCookie.of(Settings(url="https://tony.example.com"))
    assert made.header("1") == (
        "__Host-tony-portal=1; Max-Age=28800; Path=/; HttpOnly; SameSite=Lax; Secure"
    )
    assert "Secure" not in SessionCookie.of(Settings()).header("1")
