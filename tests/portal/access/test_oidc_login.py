"""Logins at a real provider of OpenID Connect: oidc-provider-mock, a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests

from tests.cluster.kdc import free_port
from tests.portal.access.running import Running, lines_of, running
from tony_core.portal.access.oidc_login import read_claims, read_secret
from tony_core.portal.access.refusal import Refused
from tony_core.portal.settings import Login, Settings

USERS = (
    {"sub": "1", "preferred_username": "ann", "groups": ["ml", "ops"]},
    {"sub": "2", "preferred_username": "bob", "groups": "ml"},
    {"sub": "3", "preferred_username": "*"},
    {"sub": "4"},
    {"sub": "5", "preferred_username": "group:ml", "groups": [1, None, "", "a b"]},
)
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a provider that knows USERS."""
    port = free_port()
    words = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    for user in USERS:
        words += ["--user-claims", json.dumps(user)]
    with (tmp_path_factory.mktemp("provider") / "log").open("wb") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, env={**os.environ, "NO_COLOR": "1"}
        )
    url = f"http://localhost:{port}"
    end = time.monotonic() + 60
    while True:
        try:
            requests.get(f"{url}/.well-known/openid-configuration", timeout=5).raise_for_status()
            break
        except requests.RequestException:
            assert process.poll() is None and time.monotonic() < end, "the provider does not start"
            time.sleep(0.1)
    yield url
    process.terminate()
    process.wait(20)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


@pytest.fixture(scope="module")
def portal(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("portal")
    with portal_of(provider, folder, folder / "log") as found:
        Browser(found).log_in("1")  # its worker thread stays
        yield found


@pytest.fixture
def logged(provider: str, tmp_path: Path, log: Path) -> Iterator[Running]:
    """One with an access log of its own."""
    with portal_of(provider, tmp_path, log) as found:
        yield found


def portal_of(provider: str, tmp_path: Path, log: Path, **changes: Any) -> Any:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    port = free_port()
    login = Login(
        by="oidc", oidc_issuer=provider, oidc_client_id="portal", oidc_secret_file=str(secret)
    )._replace(**changes)
    url = f"http://localhost:{port}"
    settings = Settings(url=url, port=port, login=login, access_log=str(log), admins=("%ops",))
    return running(settings)


class Browser:
    """Follows redirects between portal and provider, with the portal's cookies."""

    def __init__(self, portal: Running) -> None:
        self.session = requests.Session()
        self.url = f"http://localhost:{portal.port}"

    def get(self, path: str = "/", **options: Any) -> requests.Response:
        return self.session.get(self.url + path, timeout=30, allow_redirects=False, **options)

    def begin(self, path: str = "/") -> str:
        """The provider's page that a first request leads to."""
        first = self.get(path)
        assert first.status_code == 303, first.text
        second = self.get(first.headers["location"])
        assert second.status_code == 302, second.text
        return second.headers["location"]

    def choose(self, at_provider: str, sub: str) -> str:
        """The callback that the provider sends the browser to."""
        done = requests.post(at_provider, data={"sub": sub}, timeout=30, allow_redirects=False)
        assert done.status_code == 302, done.text
        found = done.headers["location"]
        assert found.startswith(f"{self.url}/login/callback?")
        return found.removeprefix(self.url)

    def log_in(self, sub: str, path: str = "/") -> requests.Response:
        """The portal's answer to the callback."""
        return self.get(self.choose(self.begin(path), sub))


class TestLogins:
    def test_from_a_page_and_back_to_it(self, portal: Running) -> None:
        ann = Browser(portal)
        done = ann.log_in("1", "/jobs?q=a%20b&sort=-name")
        assert done.status_code == 303, done.text
        assert done.headers["location"] == "/jobs?q=a%20b&sort=-name"
        found = ann.get("/jobs").json()
        assert (found["name"], found["groups"], found["is_admin"]) == ("ann", ["ml", "ops"], True)
        bob = Browser(portal)
        bob.log_in("2")
        found = bob.get().json()
        assert (found["name"], found["groups"], found["is_admin"]) == ("bob", ["ml"], False)

    def test_what_goes_to_the_provider(self, portal: Running) -> None:
        query = parse_qs(urlsplit(Browser(portal).begin()).query)
        assert query["code_challenge_method"] == ["S256"] and query["response_type"] == ["code"]
        assert len(query["state"][0]) >= 30 and len(query["nonce"][0]) >= 20
        assert "openid" in query["scope"][0].split()
        assert SECRET not in str(query)

    def test_cookies_are_for_this_host_and_no_script(self, portal: Running) -> None:
        browser = Browser(portal)
        done = browser.log_in("1")
        headers = done.raw.headers.getlist("set-cookie")
        (session,) = [one for one in headers if one.startswith("tony-portal=")]
        assert "HttpOnly" in session and "SameSite=Lax" in session and "Path=/;" in session
        assert "ann" not in session

    def test_a_program_gets_no_redirect(self, portal: Running) -> None:
        answer = portal.ask("/api/jobs")
        assert answer.status == 401 and "log in" in answer.data["error"]
        assert portal.ask("/jobs", "POST").status == 401

    def test_logout(self, portal: Running) -> None:
        browser = Browser(portal)
        browser.log_in("1")
        number = browser.session.cookies["tony-portal"]
        token = browser.get().json()["csrf"]
        assert browser.get("/logout").status_code == 405
        for data in ({}, {"csrf": "0" * 64}):
            assert (
                browser.session.post(f"{browser.url}/logout", data, timeout=30).status_code == 403
            )
        done = browser.session.post(f"{browser.url}/logout", {"csrf": token}, timeout=30)
        assert done.status_code == 200 and "logged out" in done.text
        stolen = portal.ask("/", headers=[("Cookie", f"tony-portal={number}")])
        assert stolen.status == 303, "the session itself has ended"

    def test_the_log_has_the_viewer_and_no_code(self, logged: Running, log: Path) -> None:
        browser = Browser(logged)
        callback = browser.choose(browser.begin(), "1")
        browser.get(callback)
        browser.get("/jobs")
        text = "\n".join(lines_of(log, 4))
        code = parse_qs(urlsplit(callback).query)["code"][0]
        assert code not in text and SECRET not in text
        assert browser.session.cookies["tony-portal"] not in text
        assert re.search(r' - ann \[.*"GET /login/callback HTTP/1.1" 303', text)
        assert re.search(r' - ann \[.*"GET /jobs HTTP/1.1" 200', text)


class TestAttacks:
    def test_forged_cookies(self, portal: Running) -> None:
        for number in ("", "x", "ann", '{"name":"ann"}', "a" * 43, "\xe9"):
            for name in ("tony-portal", "__Host-tony-portal", "session"):
                assert portal.ask("/", headers=[("Cookie", f"{name}={number}")]).status == 303

    def test_another_browser_cannot_be_logged_in(self, portal: Running) -> None:
        """A link to the callback of eve's own login would log ann in as eve."""
        eve, ann = Browser(portal), Browser(portal)
        callback = eve.choose(eve.begin(), "2")
        refused = ann.get(callback)
        assert refused.status_code == 400 and "not begun in this browser" in refused.text
        ann.begin()
        assert ann.get(callback).status_code == 400, "nor while a login of his own goes on"
        assert "tony-portal" not in ann.session.cookies
        assert ann.get().status_code == 303

    def test_a_number_from_before_the_login_is_nothing_after_it(self, portal: Running) -> None:
        browser = Browser(portal)
        browser.session.cookies.set("tony-portal", "chosen-by-eve", domain="localhost.local")
        browser.session.headers["Cookie"] = "tony-portal=chosen-by-eve"
        browser.begin()
        del browser.session.headers["Cookie"]
        browser.log_in("1")
        assert portal.ask("/", headers=[("Cookie", "tony-portal=chosen-by-eve")]).status == 303

    def test_a_second_login_ends_the_first_session(self, portal: Running) -> None:
        browser = Browser(portal)
        browser.log_in("1")
        first = browser.session.cookies["tony-portal"]
        browser.get(browser.choose(browser.get("/login").headers["location"], "2"))
        assert browser.get().json()["name"] == "bob"
        assert portal.ask("/", headers=[("Cookie", f"tony-portal={first}")]).status == 303

    @pytest.mark.parametrize(
        "target",
        [
            "//evil.example",
            "https://evil.example/",
            "/\\evil.example",
            "javascript:alert(1)",
            "%0d%0aX:1",
        ],
    )
    def test_a_login_leads_to_no_other_site(self, portal: Running, target: str) -> None:
        browser = Browser(portal)
        at_provider = browser.get("/login?" + urlencode({"next": target})).headers["location"]
        done = browser.get(browser.choose(at_provider, "1"))
        assert done.headers["location"] == "/"
        assert done.raw.headers.get("X") is None

    def test_a_path_of_another_site_in_the_request_itself(self, portal: Running) -> None:
        answer = portal.ask("//evil.example/a", headers=[("Host", "localhost")])
        assert answer.status == 303 and answer.headers["location"].startswith("/login?next=")
        browser = Browser(portal)
        done = browser.get(
            browser.choose(browser.get(answer.headers["location"]).headers["location"], "1")
        )
        assert done.headers["location"] == "/"

    def test_a_callback_twice(self, portal: Running) -> None:
        browser = Browser(portal)
        callback = browser.choose(browser.begin(), "1")
        assert browser.get(callback).status_code == 303
        assert browser.get(callback).status_code == 400

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "code=x",
            "code=x&state=y",
            "error=access_denied",
            "state=%ff%00",
            "code=x&state=y&state=z",
        ],
    )
    def test_a_callback_out_of_nowhere(self, portal: Running, query: str) -> None:
        assert Browser(portal).get(f"/login/callback?{query}").status_code == 400

    def test_a_code_that_is_none(self, portal: Running) -> None:
        browser = Browser(portal)
        state = parse_qs(urlsplit(browser.begin()).query)["state"][0]
        done = browser.get(f"/login/callback?code=forged&state={state}")
        assert done.status_code == 502 and "failed" in done.text
        assert SECRET not in done.text and "tony-portal" not in browser.session.cookies

    def test_a_refusal_of_the_provider_is_text(self, portal: Running) -> None:
        browser = Browser(portal)
        state = parse_qs(urlsplit(browser.begin()).query)["state"][0]
        words = urlencode({"error": "<b>", "error_description": "<script>\r\nx", "state": state})
        done = browser.get(f"/login/callback?{words}")
        assert done.status_code == 403
        assert done.headers["content-type"].startswith("text/plain")
        assert "refused the login: <b> <script>  x" in done.text

    @pytest.mark.parametrize(
        ("sub", "words"),
        [("3", "no name of a user"), ("4", "no preferred_username"), ("5", "no name of a user")],
    )
    def test_names_that_are_none(self, portal: Running, sub: str, words: str) -> None:
        browser = Browser(portal)
        done = browser.log_in(sub)
        assert done.status_code == 403 and words in done.text
        assert "tony-portal" not in browser.session.cookies


class TestProviders:
    def test_one_that_does_not_answer(self, tmp_path: Path, log: Path) -> None:
        with portal_of(f"http://localhost:{free_port()}", tmp_path, log) as portal:
            answer = portal.ask("/login")
            assert answer.status == 502 and "identity provider failed" in answer.text

    def test_one_that_calls_itself_otherwise(
        self, provider: str, tmp_path: Path, log: Path
    ) -> None:
        other = provider.replace("localhost", "127.0.0.1") + "/"
        with portal_of(other, tmp_path, log) as portal:
            assert portal.ask("/login").status == 302, "a slash at the end is no difference"
        with portal_of(provider + "/oauth2/..", tmp_path, log) as portal:
            answer = portal.ask("/login")
            assert answer.status == 502

    def test_another_claim_than_the_usual(self, provider: str, tmp_path: Path, log: Path) -> None:
        claim = {"oidc_user_claim": "sub", "oidc_groups_claim": "roles"}
        with portal_of(provider, tmp_path, log, **claim) as portal:
            browser = Browser(portal)
            browser.log_in("2")
            assert browser.get().json()["name"] == "2"


def test_claims() -> None:
    assert read_claims({"u": "ann", "g": ["a", 1, {}]}, "u", "g") == ("ann", ["a"])
    assert read_claims({"u": "ann", "g": {"a": 1}}, "u", "g") == ("ann", [])
    for claims in ({}, {"u": 1}, {"u": ["ann"]}, {"u": ""}, {"u": None}):
        with pytest.raises(Refused):
            read_claims(claims, "u", "g")
    address: Dict[str, Any] = {"email": "ann@example.com"}
    with pytest.raises(Refused, match="not verified"):
        read_claims(address, "email", "g")
    address["email_verified"] = "true"
    with pytest.raises(Refused, match="not verified"):
        read_claims(address, "email", "g")
    address["email_verified"] = True
    assert read_claims(address, "email", "g")[0] == "ann@example.com"


def test_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(" s3cret \n")
    assert read_secret(str(path)) == "s3cret"
    for text in ("", " \n", "a\nb", "x" * 5000):
        path.write_text(text)
        with pytest.raises(ValueError, match="one line with a secret"):
            read_secret(str(path))
