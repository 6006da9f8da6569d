"""What a job says of Kerberos, on open and secure clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.hadoop.kerberos.test_files import entry
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import KdcUnreachable, LoginError, NoTicket
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.kerberos.keytab import read_principals
from tony_core.job.spec import Hadoop, Job
from tony_core.schedulers.port import LastingRefusal, NotLoggedIn, SchedulerError
from tony_core.schedulers.yarn import refusals
from tony_core.schedulers.yarn.client.security import (
    find_security_problems,
    find_security_warnings,
    read_shipped_keys,
)


class Login:
    def __init__(self, principal: str, is_keytab: bool = True, keytab: str = "") -> None:
        self.principal = principal
        self.is_keytab = is_keytab
        self.keytab = keytab


def logged_in(principal: str, is_keytab: bool = True) -> ClusterIdentity:
    return ClusterIdentity("ann", cast(Any, Login(principal, is_keytab)))


OPEN, BY_TOKENS = ClusterIdentity("ann"), ClusterIdentity("ann", tokens=Credentials())
BY_TICKET, BY_KEYTAB = logged_in("ann@X", False), logged_in("ann@X")


def job(**hadoop: Any) -> Job:
    return Job("j", (), hadoop=Hadoop(**hadoop))


def test_security_that_the_cluster_does_not_have() -> None:
    (problem,) = find_security_problems(job(security=True), OPEN)
    assert problem.startswith("tony.application.security.enabled is true, and the cluster does not")
    for identity in (BY_TOKENS, BY_TICKET, BY_KEYTAB):
        assert find_security_problems(job(security=True), identity) == []
    for security in (None, False):
        assert find_security_problems(job(security=security), OPEN) == []


def test_no_security_where_the_cluster_has_it() -> None:
    (warning,) = find_security_warnings(job(security=False), BY_TICKET)
    assert "tony.application.security.enabled=false is of no effect" in warning
    assert find_security_warnings(job(security=False), OPEN) == []
    assert find_security_warnings(job(), BY_TICKET) == []


def test_other_name_nodes_need_no_token_on_an_open_cluster() -> None:
    (warning,) = find_security_warnings(job(namenodes=("hdfs://other",)), OPEN)
    assert "tony.other.namenodes is of no effect" in warning
    assert find_security_warnings(job(namenodes=("hdfs://other",)), BY_TICKET) == []


@pytest.mark.parametrize("identity", [BY_TICKET, BY_TOKENS, logged_in("bob@X")])
def test_a_client_that_is_not_the_jobs_login(identity: ClusterIdentity) -> None:
    (problem,) = find_security_problems(job(principal="ann@X", keytab="/k"), identity)
    assert problem.startswith("tony.kerberos.principal is ann@X, and this client is logged in as")


@pytest.mark.parametrize("principal", ["ann", "ann@X"])
def test_the_jobs_login(principal: str) -> None:
    wanted = job(principal=principal, keytab="/k")
    assert find_security_problems(wanted, BY_KEYTAB) == []
    assert find_security_problems(wanted, OPEN) == []


class TestShippedKeytabs:
    def ships(self, path: object) -> Job:
        return job(principal="ann@X", keytab=str(path), ship_keytab=True)

    def by(self, path: object, **more: str) -> ClusterIdentity:
        login = cast(Any, Login("ann@X", keytab=str(path)))
        return ClusterIdentity("ann", login)._replace(**more)

    @pytest.fixture
    def keytab(self, tmp_path: Path) -> Path:
        path = tmp_path / "keytab"
        path.write_bytes(b"\x05\x02" + entry("X", "ann") + entry("X", "bob"))
        return path

    def test_the_owners_own(self, keytab: Path) -> None:
        assert find_security_problems(self.ships(keytab), self.by(keytab)) == []
        keys = read_shipped_keys(self.ships(keytab), self.by(keytab))
        assert read_principals(keys) == ["ann@X"], "bob's stays here"
        link = keytab.with_name("link")
        link.symlink_to(keytab)
        assert find_security_problems(self.ships(link), self.by(keytab)) == []

    def test_that_of_the_login_where_the_job_names_none(self, keytab: Path) -> None:
        """By TONY_KERBEROS_KEYTAB."""
        unnamed = Job("j", (), hadoop=Hadoop(ship_keytab=True))
        assert find_security_problems(unnamed, self.by(keytab)) == []
        assert read_principals(read_shipped_keys(unnamed, self.by(keytab))) == ["ann@X"]
        for identity in (BY_TICKET, BY_TOKENS):
            (problem,) = find_security_problems(unnamed, identity)
            assert "this client has not logged in by a keytab: name the owner's" in problem

    def test_one_of_a_service_that_acts_for_a_user(self, keytab: Path) -> None:
        service = self.by(keytab, user="bob", real_user="ann")
        (problem,) = find_security_problems(self.ships(keytab), service)
        assert "ann submits for bob" in problem and "must not get it" in problem

    def test_another_than_that_of_the_login(self, keytab: Path) -> None:
        for identity in (self.by(""), self.by(keytab.with_name("other"))):
            (problem,) = find_security_problems(self.ships(keytab), identity)
            assert f"this client has not logged in by {keytab}" in problem
        for identity in (BY_TICKET, BY_TOKENS):
            (problem,) = find_security_problems(self.ships(keytab), identity)
            assert "this client is logged in as" in problem

    def test_one_without_the_owners_keys(self, keytab: Path) -> None:
        for data, words in ((b"\x05\x02" + entry("X", "bob"), "no keys of ann@X"), (b"?", "read")):
            keytab.write_bytes(data)
            (problem,) = find_security_problems(self.ships(keytab), self.by(keytab))
            assert words in problem and str(keytab) in problem

    def test_on_an_open_cluster_it_has_no_effect(self, keytab: Path) -> None:
        assert find_security_problems(self.ships(keytab), OPEN) == []
        (warning,) = find_security_warnings(self.ships(keytab), OPEN)
        assert warning.startswith("tony.kerberos.ship-keytab is of no effect")


def test_a_login_that_fails_is_lasting_and_a_kdc_that_is_away_is_not() -> None:
    failed = refusals.translate_error(LoginError("it has expired"), "a job")
    assert isinstance(failed, LastingRefusal) and str(failed) == "it has expired"
    for has_expired in (True, False):
        missing = refusals.translate_error(NoTicket("no ticket", has_expired=has_expired), "a job")
        assert isinstance(missing, NotLoggedIn) and missing.has_expired is has_expired
    away = refusals.translate_error(KdcUnreachable("no KDC"), "a job")
    assert isinstance(away, SchedulerError) and not isinstance(away, LastingRefusal)
