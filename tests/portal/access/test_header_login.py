"""A proxy that names the user: which connections it may come from."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.portal.access.running import Running, lines_of, running
from tests.second_user import UID, as_stranger, needs_root
from tony_core.portal.access.login import HeaderLogin, Peers
from tony_core.portal.access.refusal import Refused
from tony_core.portal.settings import Login, Settings

ANN = ("X-User", "ann")


@contextlib.contextmanager
def portal_of(log: Path, **changes: Any) -> Iterator[Running]:
    login = Login(by="header", header="x-user", trusted=("127.0.0.1",))._replace(**changes)
    with running(Settings(login=login, access_log=str(log), admins=("root",))) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("portal") / "log"
    with portal_of(log, groups_header="x-groups", domain="example.com") as found:
        found.ask(headers=[ANN])  # its worker thread stays
        yield found


@pytest.fixture
def logged(log: Path) -> Iterator[Running]:
    """One with an access log of its own."""
    with portal_of(log) as found:
        yield found


def test_the_user_and_groups_of_the_headers(portal: Running) -> None:
    found = portal.ask(headers=[ANN, ("X-Groups", "ml, ops,,Domain Users")]).data
    assert (found["name"], found["groups"]) == ("ann", ["Domain Users", "ml", "ops"])
    found = portal.ask(headers=[("x-uSER", "ann@Example.com")]).data
    assert (found["name"], found["groups"], found["is_admin"]) == ("ann", [], False)


def test_groups_of_this_machine(log: Path) -> None:
    with portal_of(log) as portal:
        assert "root" in portal.ask(headers=[("X-User", "root")]).data["groups"]
        assert portal.ask(headers=[ANN, ("X-Groups", "ops")]).data["groups"] == []


def test_without_a_name(portal: Running) -> None:
    for headers in ([], [("X-User", "")], [("X-User", " ")], [("X_User", "ann")]):
        assert portal.ask(headers=headers).status == 401


def test_two_names_are_none(portal: Running) -> None:
    """What the browser sent, and what the proxy added."""
    for second in ("ann", "bob", ""):
        assert portal.ask(headers=[ANN, ("X-User", second)]).status == 400
    assert portal.ask(headers=[ANN, ("X-Groups", "a"), ("x-groups", "b")]).status == 400


def test_names_that_are_none(portal: Running) -> None:
    for name in ("*", "%ops", "a b", "ann,root", "group:ml/", "\u00e9\u202e", "%00"):
        header = ("X-User", name.encode().decode("latin-1"))
        assert portal.ask(headers=[header]).status in (400, 403), name


def test_names_of_other_letters(portal: Running) -> None:
    header = ("X-User", "\u00e9va".encode().decode("latin-1"))
    assert portal.ask(headers=[header]).data["name"] == "\u00e9va"


def test_another_address(log: Path) -> None:
    with portal_of(log, trusted=("10.0.0.0/8", "::1")) as portal:
        answer = portal.ask(headers=[ANN, ("X-Forwarded-For", "10.0.0.1")])
        assert answer.status == 403 and "through its proxy only" in answer.text


@needs_root
def test_another_user_of_this_machine_is_not_the_proxy(portal: Running) -> None:
    """Every user can connect from a loopback address, and send any header."""
    code = """
    asked = urllib.request.Request(argument, headers={"X-User": "root"})
    try:
        result = urllib.request.urlopen(asked).status
    except urllib.error.HTTPError as error:
        result = [error.code, error.read().decode()]
    """
    status, text = as_stranger(code, portal.url)
    assert status == 403 and f"a process of {UID} is not it" in text


@needs_root
def test_nor_when_he_has_closed_his_end(logged: Running, log: Path) -> None:
    portal = logged
    code = """
    host, port = argument
    for how in (socket.SHUT_WR, None):
        made = socket.create_connection((host, port))
        made.sendall(b"GET /closed HTTP/1.1\\r\\nHost: localhost\\r\\nX-User: root\\r\\n\\r\\n")
        if how is not None:
            made.shutdown(how)
            made.settimeout(10)
            try:
                made.recv(10)
            except OSError:
                pass
        made.close()
    """
    as_stranger(code, ["127.0.0.1", portal.port])
    portal.ask("/last", headers=[ANN])
    lines = [line for line in log.read_text().splitlines() if "/closed" in line]
    assert all(" 403 " in line and "- root [" not in line for line in lines), lines


@needs_root
def test_a_user_whose_processes_are_the_proxy(log: Path) -> None:
    code = """
    asked = urllib.request.Request(argument, headers={"X-User": "ann"})
    result = json.load(urllib.request.urlopen(asked))["name"]
    """
    with portal_of(log) as portal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeaderLogin, "require_proxy", _with_uid(HeaderLogin.require_proxy))
        assert as_stranger(code, portal.url) == "ann"


def _with_uid(real: Any) -> Any:
    """The test's stranger has no name that trusted-users could have."""

    def require(self: HeaderLogin, request: Any) -> None:
        self._uids |= {UID}
        real(self, request)

    return require


def test_an_address_of_this_machine_is_known_as_such() -> None:
    peers = Peers()
    try:
        own = socket.gethostbyname(socket.gethostname())
        assert peers.is_own_address("127.0.0.2") and peers.is_own_address("::1")
        assert peers.is_own_address(own)
        assert not peers.is_own_address("192.0.2.1")
    finally:
        peers.close()


def test_a_connection_that_is_none_is_refused() -> None:
    peers = Peers()

    class Asked:
        scope = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1)}

    try:
        with pytest.raises(Refused, match="has closed its connection"):
            peers.uid_of(Asked())  # type: ignore[arg-type]
        Asked.scope["client"] = ("nowhere", 1)
        with pytest.raises(Refused, match="no numeric address"):
            peers.uid_of(Asked())  # type: ignore[arg-type]
        del Asked.scope["client"]
        with pytest.raises(Refused, match="no address"):
            peers.uid_of(Asked())  # type: ignore[arg-type]
    finally:
        peers.close()


def test_the_log_has_the_address_before_the_proxy(logged: Running, log: Path) -> None:
    portal = logged
    portal.ask("/a", headers=[ANN, ("X-Forwarded-For", "6.6.6.6, 203.0.113.9")])
    portal.ask("/b", headers=[ANN, ("X-Forwarded-For", 'x" y')])
    lines = lines_of(log, 2)
    assert lines[0].startswith("203.0.113.9 - ann ["), "what the proxy wrote, which is the last"
    assert lines[1].startswith("127.0.0.1 - ann [")
