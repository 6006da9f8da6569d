"""How jobs log in to a cluster with Kerberos, and what they may not choose."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

import pytest

from tests.tony_azkaban.jobs import Job as Started
from tony_azkaban import login
from tony_azkaban.login import (
    OBTAINS_TOKENS,
    Login,
    check_login,
    explain_error,
    find_service_keytabs,
    take_login,
)
from tony_azkaban.site import Site, read
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError
from tony_core.job.spec import Job

LOCATION = "HADOOP_TOKEN_FILE_LOCATION"
TOKENS = Site(login="tokens")
LOGINS = {
    "TONY_KERBEROS_PRINCIPAL": "gateway@EXAMPLE.COM",
    "TONY_KERBEROS_KEYTAB": "/etc/gateway.keytab",
    "HADOOP_PROXY_USER": "bob",
    LOCATION: "/tmp/bob.token",
}


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a cluster with Kerberos."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    configure(tmp_path, "kerberos")
    return tmp_path


def configure(folder: Path, authentication: str) -> None:
    (folder / "core-site.xml").write_text(
        "<configuration><property><name>hadoop.security.authentication</name>"
        f"<value>{authentication}</value></property></configuration>"
    )


def job(**keys: str) -> Job:
    given = {"tony.worker.instances": "1", **{key.replace("_", "."): v for key, v in keys.items()}}
    arguments = JobArguments(executes="true", extra=given)
    return load_job(arguments, env={}, cwd="/").job.replace(scheduler="yarn")


def problems_of(one: Job, site: Site = Site(), found: Login = Login(), **more: str) -> List[str]:
    props = {key.replace("__", "."): value for key, value in more.items()}
    with pytest.raises(JobError) as caught:
        check_login(one, props, site, found, None)
    return [str(problem) for problem in caught.value.problems]


# ------------------------------------------------------------------ what the process logs in by


@pytest.mark.parametrize("site", [Site(), TOKENS])
def test_no_other_login_stays_in_the_environment(site: Site) -> None:
    env = {**LOGINS, "PATH": "/bin", "KRB5_CONFIG": "/etc/krb5.conf"}
    _, found = take_login({}, site, env)
    assert env == {"PATH": "/bin", "KRB5_CONFIG": "/etc/krb5.conf"}
    assert set(found.unused) == set(LOGINS)


def test_the_servers_tokens() -> None:
    env = {"KRB5CCNAME": "/tmp/krb5cc_of_server", LOCATION: "/tmp/of-the-server"}
    props = {f"env.{LOCATION}": "/tmp/mr-azkaban1.token", "a": "b"}
    own, found = take_login(props, TOKENS, env)
    assert env == {LOCATION: "/tmp/mr-azkaban1.token"}
    assert (own, found.tokens) == ({"a": "b"}, "/tmp/mr-azkaban1.token")


def test_a_path_of_the_jobs_choice_is_no_login() -> None:
    """Where no class of the server's writes over it."""
    props = {f"env.{LOCATION}": "/tmp/bobs.token", f"ENV.{LOCATION}": "/tmp/bobs.token"}
    for site, given in ((Site(), props), (TOKENS, {f"ENV.{LOCATION}": "/tmp/bobs.token"})):
        env: Dict[str, str] = {"KRB5CCNAME": "/tmp/cache"}
        _, found = take_login(dict(given), site, env)
        assert LOCATION not in env and found.tokens == ""


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("site", [Site(), Site(login="tokens")])
def test_a_keytab_is_refused_in_every_place(site: Site, tmp_path: Path) -> None:
    handed = Login(str(tmp_path / "core-site.xml"))
    keys = {"tony_kerberos_principal": "ann@EXAMPLE.COM", "tony_kerberos_keytab": "/home/a.keytab"}
    found = problems_of(job(**keys), site, handed)
    assert len(found) == 2 and all("logs in by a keytab" in text for text in found)
    assert "tony.kerberos.keytab" in found[1] and "leave this key out" in found[1]


def test_variables_of_the_servers_environment_are_refused() -> None:
    found = problems_of(job(), found=Login(unused=tuple(LOGINS)))
    assert [text.split(":")[0] for text in found] == [
        "HADOOP_PROXY_USER",
        *list(LOGINS)[:2],
        LOCATION,
    ]


def test_no_job_acts_for_another_user(cluster: Path) -> None:
    for authentication in ("kerberos", "simple"):
        configure(cluster, authentication)
        (text,) = problems_of(job(), env__HADOOP_PROXY_USER="bob")
        assert text.startswith("env.HADOOP_PROXY_USER: ") and "user.to.proxy" in text
        (text,) = problems_of(job(), found=Login(unused=("HADOOP_PROXY_USER",)))
        assert text.startswith("HADOOP_PROXY_USER: is in the server's environment")


def test_no_tokens_were_handed_over() -> None:
    (text,) = problems_of(job(), TOKENS)
    assert "azkaban.jobtype.HadoopShell" in text and "tony azkaban upgrade --tokens" in text


@pytest.mark.parametrize(
    ("changed", "common", "obtains"),
    [
        ({}, "", True),
        ({"jobtype.class": "azkaban.jobExecutor.ProcessJob"}, "", False),
        ({"obtain.binary.token": "false"}, "", False),
        ({"azkaban.should.proxy": ""}, "azkaban.should.proxy=true\n", False),
        ({"azkaban.should.proxy": None}, "azkaban.should.proxy=true\n", True),
        ({"azkaban.should.proxy": None}, "", False),
    ],
)
def test_a_server_that_obtains_none_writes_over_no_path(
    tmp_path: Path, changed: Dict[str, Optional[str]], common: str, obtains: bool
) -> None:
    """Then the path among the properties is the job's own choice, and another user's tokens."""
    home = tmp_path / "jobtypes" / "tony"
    home.mkdir(parents=True)
    values = {**OBTAINS_TOKENS, **changed}
    text = "".join(f"{key}={value}\n" for key, value in values.items() if value is not None)
    (home / "private.properties").write_text(text)
    (home.parent / "commonprivate.properties").write_text(common)
    found = Login(str(tmp_path / "core-site.xml"))
    (tmp_path / "core-site.xml").chmod(0o600)
    if obtains:
        assert check_login(job(), {}, TOKENS, found, str(home)) == []
    else:
        with pytest.raises(JobError, match="the server obtained no tokens for this job"):
            check_login(job(), {}, TOKENS, found, str(home))


def test_tokens_that_every_user_can_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch()
    for mode, warned in ((0o460, []), (0o644, [str(path)])):
        path.chmod(mode)
        found = check_login(job(), {}, TOKENS, Login(str(path)), None)
        assert [str(path) for each in found if str(path) in str(each)] == warned


def test_where_none_of_it_matters(cluster: Path) -> None:
    """An open cluster believes names; the embedded scheduler has one user."""
    given = job(tony_kerberos_principal="ann@A", tony_kerberos_keytab="/a")
    unused = Login(unused=("TONY_KERBEROS_KEYTAB",))
    assert check_login(given.replace(scheduler="local"), {}, TOKENS, unused, None) == []
    configure(cluster, "simple")
    assert check_login(given, {}, TOKENS, unused, None) == []


# ------------------------------------------------------------------ the server's own keytab


def home_with(tmp_path: Path, file: str, keytab: Path) -> str:
    home = tmp_path / "jobtypes" / "tony"
    home.mkdir(parents=True, exist_ok=True)
    where = home if file == "private.properties" else home.parent
    (where / file).write_text(f"proxy.keytab.location={keytab}\n")
    return str(home)


@pytest.mark.parametrize("file", ["private.properties", "commonprivate.properties"])
def test_a_keytab_that_jobs_can_read(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = tmp_path / "azkaban.keytab"
    keytab.touch()
    home = home_with(tmp_path, file, keytab)
    assert find_service_keytabs(home) == [str(keytab)]
    with pytest.raises(JobError, match="every job can read the server's keytab") as caught:
        check_login(job(), {}, Site(), Login(), home)
    assert str(keytab) in str(caught.value) and "readable.keytab=accept" in str(caught.value)
    accepts = Site(accepts_readable_keytab=True)
    assert check_login(job(), {}, accepts, Login(), home) == []
    monkeypatch.setattr(login, "_can_read", lambda path: False)
    assert check_login(job(), {}, Site(), Login(), home) == []


# ------------------------------------------------------------------ site.properties


@pytest.mark.parametrize(
    "line",
    [
        "tony.kerberos.keytab=/etc/azkaban.keytab",
        "final.tony.kerberos.principal=azkaban@EXAMPLE.COM",
        "tony.kerberos.ship-keytab=true",
        *(f"env.{name}=x" for name in LOGINS),
        "login=keytab",
        "readable.keytab=yes",
        "login=tokens\nuser.to.proxy=ignore",
        "login=tokens\nuser.to.proxy=refuse",
    ],
)
def test_what_a_site_cannot_set(tmp_path: Path, line: str) -> None:
    (tmp_path / "site.properties").write_text(f"{line}\n")
    with pytest.raises(JobError) as caught:
        read(str(tmp_path))
    ((problem),) = caught.value.problems
    assert problem.key == line.split("\n")[-1].split("=")[0]


def test_what_a_site_can_set(tmp_path: Path) -> None:
    text = "login=tokens\nreadable.keytab=accept\nenv.KRB5_CONFIG=/etc/krb5.conf\n"
    (tmp_path / "site.properties").write_text(text)
    found = read(str(tmp_path))
    assert (found.login, found.accepts_readable_keytab) == ("tokens", True)
    assert (Site().login, Site().accepts_readable_keytab) == ("ticket", False)


# ------------------------------------------------------------------ the whole program


def started(tmp_path: Path, site: str, **props: str) -> Started:
    made = Started(tmp_path / "job", "succeed").set({"tony.scheduler": "yarn", **props})
    made.set({"env.HADOOP_CONF_DIR": str(tmp_path)})
    made.home = tmp_path / "home"
    made.home.mkdir()
    (made.home / "site.properties").write_text(site)
    return made


def token_file(path: Path, owner: str) -> Path:
    name = owner.encode()
    identifier = b"\0" + bytes([len(name)]) + name + b"\0\0"
    token = Token(kind=HDFS_DELEGATION, identifier=identifier, password=b"12345678", service="x:1")
    path.write_bytes(Credentials({"x:1": token}).encode())
    path.chmod(0o600)
    return path


def test_tokens_of_another_user_than_the_job_names(tmp_path: Path) -> None:
    given = token_file(tmp_path / "tokens", "ann")
    one = started(tmp_path, "login=tokens\n").set({f"env.{LOCATION}": str(given)})
    log = one.set({"user.to.proxy": "bob"}).run(2)
    assert "user.to.proxy: cannot run as bob: the tokens that the server handed to" in log, log
    assert "are ann's" in log and "of no effect" not in log


def test_tokens_of_a_user_as_whom_no_job_may_run(tmp_path: Path) -> None:
    given = token_file(tmp_path / "tokens", "ann")
    one = started(tmp_path, "login=tokens\nuser.to.proxy.denied=ann\n")
    log = one.set({f"env.{LOCATION}": str(given)}).run(2)
    assert "no job may run as ann (user.to.proxy.denied" in log, log


def test_a_ticket_of_the_jobs_choice_is_not_looked_at(tmp_path: Path) -> None:
    one = started(tmp_path, "")
    one.env["KRB5CCNAME"] = str(tmp_path / "of-another-user")
    log = one.run(3)
    assert "no Kerberos ticket in the ticket cache" in log and "of-another-user" not in log
    assert "with login=tokens in site.properties the server obtains tokens for each" in log


def test_the_server_obtained_too_few_tokens() -> None:
    """An author cannot log in: the line says who can do what."""
    with pytest.raises(ConfigurationError) as caught:
        ClusterIdentity("ann", tokens=Credentials()).token("x:1", "the ResourceManager")
    assert "obtain.jobtracker.token=true" in explain_error(TOKENS, caught.value)
    assert explain_error(Site(), caught.value) == ""
    assert explain_error(TOKENS, ValueError("anything else")) == ""
