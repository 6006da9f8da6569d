"""Logins by tickets of a real KDC, with curl and with our own client."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.kdc import Kdc
from tests.portal.access.running import Running, running
from tony_core.hadoop.kerberos.gssapi import SPNEGO, Target
from tony_core.hadoop.kerberos.login import Login as Kerberos
from tony_core.portal.service import PortalError
from tony_core.portal.settings import Login, Settings

pytestmark = pytest.mark.cluster

SERVICE = f"HTTP/localhost@{REALM}"


@contextlib.contextmanager
def portal_of(kdc: Kdc, log: Path, **changes: Any) -> Iterator[Running]:
    login = Login(by="spnego", spnego_keytab=kdc.keytab_of("HTTP"))._replace(**changes)
    with running(Settings(login=login, access_log=str(log), admins=("bob",))) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def portal(kdc: Kdc, log: Path) -> Iterator[Running]:
    with portal_of(kdc, log) as found:
        yield found


def token_of(kdc: Kdc, user: str, service: str = SERVICE) -> str:
    """The header that a client sends first."""
    login = Kerberos.from_keytab(f"{user}@{REALM}", kdc.keytab_of(user))
    context = login.new_context(Target(principal=service), SPNEGO)
    return "Negotiate " + base64.b64encode(context.step()).decode()


def test_a_ticket_and_a_session(kdc: Kdc, portal: Running) -> None:
    first = portal.ask()
    assert first.status == 401 and first.headers["www-authenticate"] == "Negotiate"
    answer = portal.ask(headers=[("Authorization", token_of(kdc, "ann"))])
    assert answer.data["name"] == "ann" and not answer.data["is_admin"]
    (cookie,) = answer.cookies
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    again = portal.ask(headers=[("Cookie", cookie.partition(";")[0])])
    assert again.data["name"] == "ann" and not again.cookies
    assert again.data["csrf"] == answer.data["csrf"]
    other = portal.ask(headers=[("Authorization", token_of(kdc, "bob"))]).data
    assert other["name"] == "bob" and other["is_admin"] and other["csrf"] != answer.data["csrf"]


def test_the_portal_proves_itself(kdc: Kdc, portal: Running) -> None:
    login = Kerberos.from_keytab(f"ann@{REALM}", kdc.keytab_of("ann"))
    context = login.new_context(Target(principal=SERVICE), SPNEGO)
    header = "Negotiate " + base64.b64encode(context.step()).decode()
    proof = portal.ask(headers=[("Authorization", header)]).headers["www-authenticate"]
    assert context.step(base64.b64decode(proof.partition(" ")[2])) == b""
    assert context.is_mutual


def test_curl(kdc: Kdc, portal: Running) -> None:
    cache = kdc.kerberos.kinit("ann")
    words = ["curl", "-s", "--negotiate", "-u", ":", f"http://localhost:{portal.port}/"]
    env = {
        "KRB5CCNAME": str(cache),
        "KRB5_CONFIG": str(kdc.kerberos.krb5_conf),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert '"name":"ann"' in done.stdout, done.stdout + done.stderr


def test_a_proof_that_comes_again_is_refused(kdc: Kdc, portal: Running) -> None:
    """Who has listened to a login cannot log in with it."""
    header = ("Authorization", token_of(kdc, "ann"))
    assert portal.ask(headers=[header]).status == 200
    answer = portal.ask(headers=[header])
    assert answer.status == 403 and "replay" in answer.text, answer.text


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Negotiate", 400),
        ("Negotiate !!!", 400),
        ("Negotiate AAAA", 403),
        ("Negotiate " + base64.b64encode(b"NTLMSSP\0\1\0\0\0").decode(), 401),
        ("Negotiate " + "A" * 60_000, 403),
        ("Basic YW5uOmFubg==", 401),
        ("Bearer x", 401),
    ],
)
def test_what_is_no_ticket(portal: Running, header: str, status: int) -> None:
    answer = portal.ask(headers=[("Authorization", header)])
    assert answer.status in (status, 400) and not answer.cookies


def test_a_ticket_for_another_service(kdc: Kdc, portal: Running) -> None:
    header = token_of(kdc, "ann", f"rm/localhost@{REALM}")
    assert portal.ask(headers=[("Authorization", header)]).status == 403


def test_one_service_of_a_keytab_with_several(kdc: Kdc, log: Path, tmp_path: Path) -> None:
    keytab = tmp_path / "both"
    kdc.kerberos.kadmin(f"ktadd -norandkey -k {keytab} HTTP/localhost rm/localhost")
    changes = {"spnego_keytab": str(keytab), "spnego_principal": SERVICE}
    with portal_of(kdc, log, **changes) as portal:
        tokens: List[str] = [token_of(kdc, "ann"), token_of(kdc, "ann", f"rm/localhost@{REALM}")]
        found = [portal.ask(headers=[("Authorization", one)]).status for one in tokens]
        assert found == [200, 403]


def test_names_are_the_clusters(
    kdc: Kdc, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A principal that no rule makes a name of is no viewer."""
    rule = f"RULE:[1:$1@$0](ann@{REALM})s/.*/anna/"
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>hadoop.security.auth_to_local</name>"
        f"<value>{rule}</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with portal_of(kdc, log) as portal:
        assert portal.ask(headers=[("Authorization", token_of(kdc, "ann"))]).data["name"] == "anna"
        refused = portal.ask(headers=[("Authorization", token_of(kdc, "bob"))])
        assert refused.status == 403 and "auth_to_local" in refused.text


def test_a_keytab_that_cannot_be_used(kdc: Kdc, log: Path, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    for changes, words in (
        ({"spnego_keytab": str(tmp_path / "none")}, "none"),
        ({"spnego_principal": f"HTTP/elsewhere@{REALM}"}, "elsewhere"),
    ):
        with pytest.raises(PortalError, match="keytab") as caught, portal_of(kdc, log, **changes):
            pass
        assert words in str(caught.value), str(caught.value)


def test_a_keytab_that_is_replaced(kdc: Kdc, log: Path, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    shutil.copy(kdc.keytab_of("HTTP"), keytab)
    with portal_of(kdc, log, spnego_keytab=str(keytab)) as portal:
        keytab.unlink()
        assert portal.ask(headers=[("Authorization", token_of(kdc, "ann"))]).status == 403
        shutil.copy(kdc.keytab_of("HTTP"), keytab)
        assert portal.ask(headers=[("Authorization", token_of(kdc, "ann"))]).status == 200
