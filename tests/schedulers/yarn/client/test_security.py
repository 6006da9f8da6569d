"""What a job says of Kerberos, on open and secure clusters."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import KdcUnreachable, LoginError, NoTicket
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.job.spec import Hadoop, Job
from tony_core.schedulers.port import LastingRefusal, NotLoggedIn, SchedulerError
from tony_core.schedulers.yarn import refusals
from tony_core.schedulers.yarn.client.security import (
    find_security_problems,
    find_security_warnings,
)


class Login:
    def __init__(self, principal: str, is_keytab: bool = True) -> None:
        self.principal = principal
        self.is_keytab = is_keytab


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


def test_a_login_that_fails_is_lasting_and_a_kdc_that_is_away_is_not() -> None:
    failed = refusals.translate_error(LoginError("it has expired"), "a job")
    assert isinstance(failed, LastingRefusal) and str(failed) == "it has expired"
    for has_expired in (True, False):
        missing = refusals.translate_error(NoTicket("no ticket", has_expired=has_expired), "a job")
        assert isinstance(missing, NotLoggedIn) and missing.has_expired is has_expired
    away = refusals.translate_error(KdcUnreachable("no KDC"), "a job")
    assert isinstance(away, SchedulerError) and not isinstance(away, LastingRefusal)
