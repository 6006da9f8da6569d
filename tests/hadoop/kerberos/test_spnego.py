"""The handshake with a web server: what is sent, what is believed, what the cookie is for."""

from __future__ import annotations

import base64

import pytest

from tests.hadoop.kerberos.handshakes import GOOD, ScriptedLogin
from tony_core.hadoop.errors import AuthenticationError, LoginError
from tony_core.hadoop.kerberos.spnego import Negotiation


def negotiate(text: str) -> str:
    return f"Negotiate {base64.b64encode(text.encode()).decode()}"


PROOF = negotiate("proof of hello 1 to HTTP/rm")


@pytest.fixture
def login() -> ScriptedLogin:
    return ScriptedLogin()


@pytest.fixture
def begun(login: ScriptedLogin) -> Negotiation:
    """One whose first request was sent."""
    made = Negotiation(login, "rm")
    assert made.fields() == {"Authorization": negotiate("hello 1 to HTTP/rm")}
    return made


class TestProof:
    def test_it_ends_the_handshake(self, begun: Negotiation) -> None:
        assert not begun.ready
        assert begun.check(200, {"www-authenticate": PROOF})
        assert begun.ready

    @pytest.mark.parametrize(
        "header", [f"negotiate {PROOF[10:]}", f"Basic realm=x, {PROOF}", f"{PROOF}, Basic realm=x"]
    )
    def test_it_may_stand_among_others(self, begun: Negotiation, header: str) -> None:
        assert begun.check(200, {"www-authenticate": header})
        assert begun.ready

    @pytest.mark.parametrize("status", [200, 307, 403, 404, 500])
    @pytest.mark.parametrize(
        "header",
        ["", "Negotiate", "Basic realm=x", "Negotiate ???", negotiate("proof of hello 2")],
    )
    def test_without_it_no_answer_is_believed(
        self, begun: Negotiation, status: int, header: str
    ) -> None:
        found = {"www-authenticate": header, "set-cookie": GOOD.format(1)}
        with pytest.raises(AuthenticationError, match="has not proved that it is HTTP/rm"):
            begun.check(status, found)
        assert not begun.ready
        assert "Authorization" in begun.fields(), "the stranger's cookie is not kept"

    def test_half_a_proof_is_none(self, begun: Negotiation) -> None:
        with pytest.raises(AuthenticationError, match="has not proved that it is HTTP/rm"):
            begun.check(200, {"www-authenticate": negotiate("half of hello 1 to HTTP/rm")})
        assert not begun.ready

    def test_another_connections_proof_is_none(
        self, login: ScriptedLogin, begun: Negotiation
    ) -> None:
        other = Negotiation(login, "rm")
        other.fields()
        with pytest.raises(AuthenticationError):
            other.check(200, {"www-authenticate": PROOF})

    def test_the_message_names_possible_causes(self, begun: Negotiation) -> None:
        with pytest.raises(AuthenticationError) as caught:
            begun.check(200, {})
        assert str(caught.value) == (
            "the web server of rm has not proved that it is HTTP/rm: its answer (200) has no"
            " WWW-Authenticate: Negotiate. Another program answers there, it lacks this principal's"
            " key, or it does not use Kerberos (then the site's configuration says:"
            " hadoop.http.authentication.type=simple)"
        )

    def test_without_a_login_nothing_is_sent(self, login: ScriptedLogin) -> None:
        login.broken = "no Kerberos ticket"
        with pytest.raises(LoginError, match="no Kerberos ticket"):
            Negotiation(login, "rm").fields()


class TestRefusal:
    def test_it_needs_no_proof_and_proves_none(self, begun: Negotiation) -> None:
        assert begun.check(401, {"www-authenticate": "Negotiate", "set-cookie": GOOD.format(1)})
        assert not begun.ready
        assert "Authorization" in begun.fields()

    def test_an_expired_cookie_is_a_new_handshake(
        self, login: ScriptedLogin, begun: Negotiation
    ) -> None:
        begun.check(200, {"www-authenticate": PROOF, "set-cookie": GOOD.format(1)})
        assert "Cookie" in begun.fields()
        assert not begun.check(401, {"www-authenticate": "Negotiate"}), "ask once more"
        assert begun.fields() == {"Authorization": negotiate("hello 2 to HTTP/rm")}
        assert not begun.ready
        assert begun.check(401, {}), "and no more than once"


class TestCookie:
    @pytest.mark.parametrize(
        ("header", "cookie"),
        [
            (GOOD.format(1), 'hadoop.auth="u=ann&p=ann@REALM&t=kerberos&e=1&s=1="'),
            ("hadoop.auth=abc; Path=/", "hadoop.auth=abc"),
            ("a=1; Path=/, hadoop.auth=abc", "hadoop.auth=abc"),
        ],
    )
    def test_it_stands_for_the_login(self, begun: Negotiation, header: str, cookie: str) -> None:
        begun.check(200, {"www-authenticate": PROOF, "set-cookie": header})
        assert begun.fields() == {"Cookie": cookie}
        assert begun.check(200, {})
        assert begun.fields() == {"Cookie": cookie}

    @pytest.mark.parametrize(
        "header",
        ["", "a=1", "hadoop.auth=; Path=/", 'hadoop.auth=""; Path=/', "not-hadoop.auth=abc"],
    )
    def test_without_one_each_request_is_a_handshake(self, begun: Negotiation, header: str) -> None:
        begun.check(200, {"www-authenticate": PROOF, "set-cookie": header})
        assert begun.fields() == {"Authorization": negotiate("hello 2 to HTTP/rm")}
