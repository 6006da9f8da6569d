"""The gate, over real connections: hosts, origins, tokens, headers, the paths of its own."""

from __future__ import annotations

import os
import pwd
import re
import socket
from pathlib import Path
from typing import Iterator

import pytest

from tests.portal.access.running import Running, lines_of, running
from tests.second_user import UID, as_stranger, needs_root
from tony_core.portal.settings import Login, Settings

OTHER_HOSTS = (
    *("evil.example", "evil.example:19886", "localhost.evil.example", "127.0.0.1.evil"),
    *("", "localhost@evil.example", "localhost/evil", "localhost:x", "a localhost", "10.0.0.1"),
    *("localhost, evil.example", "[::1", "localhost%00"),
)
FOREIGN = (
    ("Origin", "https://evil.example"),
    ("Origin", "null"),
    ("Origin", "http://127.0.0.1:1"),  # what TensorBoard's scripts have
    ("Origin", "http://127.0.0.1"),
    ("Origin", "http://["),
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Site", "same-site"),
)
FORM = ("Content-Type", "application/x-www-form-urlencoded")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("portal") / "access.log"
    with running(Settings(access_log=str(log))) as found:
        found.ask()  # its worker thread stays
        yield found


@pytest.fixture
def logged(log: Path) -> Iterator[Running]:
    """One with an access log of its own."""
    with running(Settings(access_log=str(log))) as found:
        yield found


class TestTheOwnUser:
    def test_is_let_in(self, portal: Running) -> None:
        answer = portal.ask()
        assert answer.status == 200
        assert answer.data["name"] == pwd.getpwuid(os.geteuid()).pw_name
        assert answer.data["is_admin"] is True

    @needs_root
    def test_no_other_user_is(self, portal: Running) -> None:
        """Nor can he choose who he is by a header or a cookie."""
        code = """
        result = []
        for headers in argument[1]:
            asked = urllib.request.Request(argument[0], headers=headers)
            try:
                result.append(urllib.request.urlopen(asked).status)
            except urllib.error.HTTPError as error:
                result.append([error.code, error.read().decode()])
        """
        tries = [{}, {"X-Forwarded-User": "root"}, {"X-Forwarded-For": "127.0.0.1"}]
        tries += [{"Cookie": "tony-portal=1"}, {"Authorization": "Basic cm9vdDo="}]
        found = as_stranger(code, [portal.url + "/jobs", tries])
        assert [status for status, _ in found] == [403] * len(tries)
        assert "answers processes of root" in found[0][1]

    @needs_root
    def test_of_a_portal_that_is_not_roots(self, log: Path) -> None:
        """Its user and root are let in, each by his own name."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: UID)
            gate = running(Settings(access_log=str(log)))
            portal = gate.__enter__()
        try:
            code = "result = json.load(urllib.request.urlopen(argument))"
            found = as_stranger(code, portal.url)
            assert (found["name"], found["is_admin"]) == (str(UID), True)
            found = portal.ask().data
            assert (found["name"], found["is_admin"]) == ("root", True)
        finally:
            gate.__exit__(None, None, None)

    def test_by_ipv6(self, log: Path) -> None:
        if not has_ipv6():
            pytest.skip("this machine has no IPv6")
        with running(Settings(bind="::1", access_log=str(log))) as portal:
            assert portal.ask(address="::1").data["is_admin"] is True
            assert portal.ask(address="::1", headers=[("Host", "evil")]).status == 421


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class TestHosts:
    def test_its_own(self, portal: Running) -> None:
        for host in ("127.0.0.1:{}", "localhost:{}", "LOCALHOST", "localhost.:9", "[::1]:{}"):
            assert portal.ask(headers=[("Host", host.format(portal.port))]).status == 200, host

    def test_others_are_refused(self, portal: Running) -> None:
        """A browser that a name of another site led here sends that name."""
        for host in OTHER_HOSTS:
            answer = portal.ask("/api/jobs", headers=[("Host", host)])
            assert answer.status in (400, 421), host
            assert '"name"' not in answer.text

    def test_two_are_refused(self, portal: Running) -> None:
        headers = [("Host", "localhost"), ("Host", "evil.example")]
        assert portal.ask(headers=headers).status in (400, 421)

    def test_that_of_the_url(self, log: Path) -> None:
        settings = Settings(url="https://tony.example.com", access_log=str(log))
        with running(settings) as portal:
            assert portal.ask(headers=[("Host", "tony.example.com")]).status == 200
            assert portal.ask(headers=[("Host", "example.com")]).status == 421


class TestWhatChangesSomething:
    def test_needs_the_token(self, portal: Running) -> None:
        token = portal.ask().data["csrf"]
        assert portal.ask("/", "POST", f"csrf={token}&a=1", [FORM]).data["body"].endswith("&a=1")
        assert portal.ask("/", "POST", "{}", [("X-CSRF-Token", token)]).status == 200

    def test_is_refused_without_it(self, portal: Running) -> None:
        for body in ("", "csrf=", "csrf=0", "csrf=%00", "a=1", "csrf=" + "0" * 64, "csrf=\u00e9"):
            assert portal.ask("/", "POST", body, [FORM]).status == 403, body

    def test_the_token_twice_is_none(self, portal: Running) -> None:
        token = portal.ask().data["csrf"]
        assert portal.ask("/", "POST", f"csrf={token}&csrf={token}", [FORM]).status == 403

    def test_the_token_in_the_address_is_none(self, portal: Running) -> None:
        token = portal.ask().data["csrf"]
        assert portal.ask(f"/?csrf={token}", "POST", "", [FORM]).status == 403

    def test_whatever_the_method(self, portal: Running) -> None:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"):
            expected = 403 if method == "POST" else 405
            assert portal.ask("/", method, "", [FORM]).status == expected, method

    def test_from_another_origin_is_refused(self, portal: Running) -> None:
        """Even with the token."""
        token = portal.ask().data["csrf"]
        for header in FOREIGN:
            answer = portal.ask("/", "POST", "", [("X-CSRF-Token", token), header])
            assert answer.status == 403 and "another site" in answer.text, header

    def test_from_its_own_origin(self, portal: Running) -> None:
        headers = [("X-CSRF-Token", portal.ask().data["csrf"]), ("Origin", portal.url)]
        headers.append(("Sec-Fetch-Site", "same-origin"))
        assert portal.ask("/", "POST", "", headers).status == 200

    def test_too_much_is_refused(self, portal: Running) -> None:
        assert portal.ask("/", "POST", "a" * 70_000, [FORM]).status == 413

    def test_a_form_of_too_many_fields_is_refused(self, portal: Running) -> None:
        body = f"csrf={portal.ask().data['csrf']}" + "&a=1" * 100
        answer = portal.ask("/", "POST", body, [FORM])
        assert answer.status == 400 and "more than 100 fields" in answer.text

    def test_a_token_of_another_portal_is_none(self, portal: Running, tmp_path: Path) -> None:
        with running(Settings(access_log=str(tmp_path / "other"))) as other:
            token = other.ask().data["csrf"]
        assert portal.ask("/", "POST", "", [("X-CSRF-Token", token)]).status == 403


class TestEveryAnswer:
    @pytest.mark.parametrize(
        ("path", "host"),
        [("/", "localhost"), ("/", "evil"), ("/health", "x"), ("/metrics", "localhost")],
    )
    def test_has_the_security_headers(self, portal: Running, path: str, host: str) -> None:
        headers = portal.ask(path, headers=[("Host", host)]).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers and "access-control-allow-origin" not in headers

    def test_of_a_bug_hides_its_text(self, portal: Running) -> None:
        answer = portal.ask("/fails")
        assert answer.status == 500 and "a bug" not in answer.text

    def test_a_program_reads_json(self, portal: Running) -> None:
        answer = portal.ask("/api/jobs", headers=[("Host", "evil.example")])
        assert "not at the host" in answer.data["error"]


class TestItsOwnPaths:
    def test_health_needs_no_login_and_no_name(self, portal: Running) -> None:
        answer = portal.ask("/health", headers=[("Host", "10.0.0.1")])
        assert (answer.status, answer.text) == (200, "ok\n")

    def test_metrics_are_an_administrators(self, portal: Running) -> None:
        portal.ask("/jobs/x")
        portal.ask("/" + "a" * 50)
        text = portal.ask("/metrics").text
        assert 'tony_portal_requests_total{method="GET",page="jobs",status="2xx"} 1.0' in text
        assert 'page="other"' in text and "aaa" not in text

    def test_there_is_no_logout(self, portal: Running) -> None:
        assert portal.ask("/logout").data["name"], "the application's own"

    def test_metrics_from_an_address(self, log: Path) -> None:
        login = Login(by="header", header="x-user", trusted=("10.9.9.9",))
        settings = Settings(login=login, access_log=str(log), metrics_from=("127.0.0.0/8",))
        with running(settings) as portal:
            assert portal.ask("/metrics", headers=[("Host", "prometheus-target")]).status == 200
            assert portal.ask("/").status == 403
            for name in ("X-Forwarded-For", "Forwarded", "Via"):
                assert portal.ask("/metrics", headers=[(name, "1")]).status == 403, "by a proxy"


class TestTheAccessLog:
    def test_a_line_for_each_request(self, logged: Running, log: Path) -> None:
        portal = logged
        portal.ask("/jobs?q=a%22b", headers=[("User-Agent", 'x" \t\u00e9')])
        portal.ask("/nothing", headers=[("Host", "evil")])
        portal.ask("/login/callback?code=secret&state=s")
        portal.ask("/fails")
        name = pwd.getpwuid(os.geteuid()).pw_name
        lines = lines_of(log, 4)
        assert re.fullmatch(
            rf'127\.0\.0\.1 - {name} \[[^]]+\] "GET /jobs\?q=a%22b HTTP/1\.1" 200 \d+ "-"'
            r' "x\\x22 \\x09\\xe9" \d+\.\d{3}',
            lines[0],
        ), lines[0]
        assert "127.0.0.1 - - [" in lines[1] and '" 421 ' in lines[1]
        assert "secret" not in lines[2]
        assert '" 500 ' in lines[3]

    def test_is_not_for_other_users_and_may_be_moved(self, logged: Running, log: Path) -> None:
        portal = logged
        portal.ask()
        lines_of(log, 1)
        assert log.stat().st_mode & 0o777 & ~0o640 == 0
        log.rename(log.with_suffix(".1"))
        portal.ask("/again")
        assert "/again" in lines_of(log, 1)[0]
