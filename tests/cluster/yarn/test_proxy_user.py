"""A service (``gateway``) that runs jobs in the names of ann and bob, on a secure cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, NamedTuple, Tuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.curl import curl
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.web import WebError
from tests.cluster.yarn.jobs import Running, Tony, until
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import LOCATION, Credentials, read_vint
from tony_core.hadoop.hdfs.namenode_client import ask_name_node
from tony_core.hadoop.identity import PROXY_USER, ClusterIdentity, cluster_identity, owner_of
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, RM_DELEGATION, Token
from tony_core.hadoop.yarn.messages.yarn import YARNDelegationTokenIdentifier
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn.client.resource_manager import connect
from tony_core.schedulers.yarn.client.rest import RestResourceManager

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MARK = "printed-for-the-user-only"
SERVICE = f"gateway@{REALM}"
NOT_ALLOWED = "is not allowed to act for"

TonyFor = Callable[..., Tony]
"""``(login, proxy_user)``: its command line."""


@pytest.fixture
def cluster(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> Hadoop:
    made = hadoop("secure", "log_aggregation")
    monkeypatch.setenv("KRB5_CONFIG", made.environment_of("ann")["KRB5_CONFIG"])
    return made


@pytest.fixture
def tony_for(cluster: Hadoop, tony_on: Callable[..., Tony]) -> TonyFor:
    def make(login: str, proxy_user: str = "") -> Tony:
        made = tony_on(cluster)
        made.env.update(cluster.environment_of(login))
        if proxy_user:
            made.env[PROXY_USER] = proxy_user
        return made

    return make


class Job(NamedTuple):
    """A job of a user's that the service has submitted, and that runs."""

    cluster: Hadoop
    running: Running
    folder: Path
    service: Tony
    """Acts for the user."""

    @property
    def id(self) -> str:
        return self.running.app_id

    def tokens(self) -> List[Token]:
        """What its program was given."""
        return list(Credentials.decode((self.folder / "tokens").read_bytes()).tokens.values())

    def ends(self) -> None:
        (self.folder / "over").touch()
        self.running.ends(0)


def submitted(cluster: Hadoop, service: Tony, folder: Path, *words: str) -> Job:
    """Submits by a service; returns when the program runs."""
    folder.mkdir()
    command = (
        f"cp ${LOCATION} {folder}/tokens; echo {MARK}; touch {folder}/began;"
        f" until test -e {folder}/over; do sleep 0.2; done"
    )
    conf = {"tony.worker.instances": "1", "tony.worker.memory": "128m"}
    job = service.submit("--executes", f"sh -c '{command}'", *words, conf=conf)
    job.until((folder / "began").exists, "its first line")
    return Job(cluster, job, folder, service)


@pytest.fixture
def anns(cluster: Hadoop, tony_for: TonyFor, tmp_path: Path) -> Iterator[Job]:
    """A job of ann's."""
    job = submitted(cluster, tony_for("gateway", "ann"), tmp_path / "ann")
    yield job
    if job.running.process.poll() is None:
        job.ends()


def real_user_of(token: Token) -> str:
    """Who obtained a token for its owner."""
    if token.kind == RM_DELEGATION:
        return YARNDelegationTokenIdentifier.decode(token.identifier).real_user
    assert token.kind == HDFS_DELEGATION
    texts, at = [], 1
    for _ in range(3):  # owner, renewer, real user
        size, at = read_vint(token.identifier, at)
        texts.append(token.identifier[at : at + size].decode())
        at += size
    return texts[2]


def test_a_job_from_its_submit_to_its_end(anns: Job, tony_for: TonyFor) -> None:
    """What the service does for ann is ann's: application, files, tokens, history."""
    cluster, service, ann = anns.cluster, anns.service, tony_for("ann")
    assert cluster.application(anns.id)["user"] == "ann"
    assert sorted((owner_of(one), real_user_of(one)) for one in anns.tokens()) == [
        ("ann", SERVICE),
        ("ann", SERVICE),
    ]
    assert {one.kind for one in anns.tokens()} == {HDFS_DELEGATION, RM_DELEGATION}
    for who in (service, ann):
        listed = who.json("list")["applications"]
        assert [one["user"] for one in listed if one["app_id"] == anns.id] == ["ann"]
        assert [task["task"] for task in who.json("status", anns.id)["tasks"]] == ["worker:0"]
        assert MARK in who("logs", anns.id).stdout
    files = cluster.hdfs_of("ann")
    assert {one["owner"] for one in files.list("/user/ann/.tony").values()} == {"ann"}
    assert anns.id in files.list("/user/ann/.tony/apps")
    anns.ends()
    for who in (service, ann):
        shown = who.json("history show", anns.id)
        assert shown["events"] and MARK not in repr(shown)
        assert who.json("status", anns.id)["state"] == "SUCCEEDED"
    assert {one["owner"] for one in files.list("/user/ann/.tony/history").values()} == {"ann"}
    folder = f"/user/ann/.tony/history/{anns.id}"
    assert {one["owner"] for one in files.list(folder).values()} == {"ann"}


def test_the_service_ends_it_in_the_users_name_and_not_in_its_own(
    anns: Job, tony_for: TonyFor
) -> None:
    done = tony_for("gateway")("kill", anns.id, check=False)
    assert done.returncode != 0 and "gateway may not end" in done.stderr, done.stderr
    assert anns.running.process.poll() is None, "it runs on"
    anns.service("kill", anns.id)
    anns.running.ends(137)
    assert anns.service.json("status", anns.id)["state"] == "KILLED"


def test_the_service_sees_page_and_logs_by_its_own_name(anns: Job, tony_for: TonyFor) -> None:
    """It joined the view list: NodeManagers take no doAs=."""
    itself = tony_for("gateway")
    assert [task["task"] for task in itself.json("status", anns.id)["tasks"]] == ["worker:0"]
    assert MARK in itself("logs", anns.id).stdout
    with pytest.raises(WebError, match="Permission denied: user=gateway"):
        anns.cluster.hdfs_of("gateway").list("/user/ann/.tony")


def test_a_job_that_the_user_has_submitted(
    cluster: Hadoop, tony_for: TonyFor, tmp_path: Path
) -> None:
    """The service reads its page in the user's name; its nodes' logs only where ann names it."""
    anns = submitted(cluster, tony_for("ann"), tmp_path / "ann")
    service = tony_for("gateway", "ann")
    assert [task["task"] for task in service.json("status", anns.id)["tasks"]] == ["worker:0"]
    done = service("logs", anns.id, check=False)
    assert MARK not in done.stdout and "takes this client for gateway" in done.stderr, done.stderr
    itself = tony_for("gateway")("status", anns.id, "--json", check=False)
    assert "worker:0" not in itself.stdout, itself.stdout
    service("kill", anns.id)
    anns.running.ends(137)


@pytest.mark.parametrize("as_bob", [("bob", ""), ("gateway", "bob")])
def test_bob_reads_and_ends_nothing_of_anns(
    anns: Job, tony_for: TonyFor, as_bob: Tuple[str, str]
) -> None:
    """Neither by a ticket of his own nor by the service that acts for both of them."""
    login, proxy_user = as_bob
    bob = tony_for(login, proxy_user)
    done = bob("kill", anns.id, check=False)
    assert done.returncode != 0 and "bob may not end" in done.stderr, done.stderr
    shown = bob("status", anns.id, "--json", check=False)
    assert "worker:0" not in shown.stdout and MARK not in shown.stdout, shown.stdout
    shown = bob("history show", anns.id, "--json", check=False)
    assert shown.returncode != 0 and "worker:0" not in shown.stdout, shown.stdout
    if login == "bob":
        shown = bob("logs", anns.id, check=False)
        assert MARK not in shown.stdout + shown.stderr
        for url in (
            f"{anns.cluster.rm_url}/proxy/{anns.id}/api/job",
            f"{anns.cluster.rm_url}/proxy/{anns.id}/api/job?doAs=ann",
            f"{anns.cluster.rm_url}/proxy/{anns.id}/api/job?user.name=ann",
            anns.cluster.application(anns.id)["amContainerLogs"],
            anns.cluster.application(anns.id)["amContainerLogs"] + "?doAs=ann",
        ):
            status, text = curl(url, anns.cluster.environment_of("bob"))
            assert MARK not in text and "worker:0" not in text, (url, text)
            assert status in (401, 403, 404) or "not authorized" in text.lower(), (url, status)
    files = WebHdfsFileSystem(conf_of(anns.cluster), become(anns.cluster, login, proxy_user))
    folders = ("", "store", "history", f"apps/{anns.id}", f"history/{anns.id}")
    for path in (f"/user/ann/.tony/{name}".rstrip("/") for name in folders):
        with pytest.raises(PermissionError, match="user=bob"):
            files.list(f"hdfs://{path}")
    files.close()
    assert anns.running.process.poll() is None, "it runs on"
    anns.ends()
    shown = bob("history show", anns.id, "--json", check=False)
    assert shown.returncode != 0 and "worker:0" not in shown.stdout, shown.stdout


def test_one_service_for_two_users(
    anns: Job, cluster: Hadoop, tony_for: TonyFor, tmp_path: Path
) -> None:
    """By the option; two jobs at a time, each its own user's."""
    service = tony_for("gateway")
    bobs = submitted(cluster, service, tmp_path / "bob", "--proxy-user", "bob")
    assert {owner_of(one) for one in bobs.tokens()} == {"bob"}
    assert {owner_of(one) for one in anns.tokens()} == {"ann"}
    assert cluster.application(bobs.id)["user"] == "bob"
    assert bobs.id in cluster.hdfs_of("bob").list("/user/bob/.tony/apps")
    done = anns.service("kill", bobs.id, check=False)
    assert "ann may not end" in done.stderr, done.stderr
    service("kill", bobs.id, "--proxy-user", "bob")
    bobs.running.ends(137)
    assert anns.running.process.poll() is None, "it runs on"


def test_who_may_not_act_for_others_is_refused(anns: Job, tony_for: TonyFor) -> None:
    """bob for ann, and the service for a user that it is not allowed."""
    for login, user in (("bob", "ann"), ("gateway", "admin")):
        stranger = tony_for(login, user)
        for words in (
            ("submit", "--executes", "true", "--conf", "tony.worker.instances=1"),
            ("list",),
            ("status", anns.id),
            ("kill", anns.id),
            ("logs", anns.id),
            ("history show", anns.id),
        ):
            done = stranger(*words, check=False)
            assert done.returncode != 0, words
            by_rpc = f"{login}@{REALM} {NOT_ALLOWED} {user}" in done.stderr
            by_web = f"User: {login} is not allowed to impersonate {user}" in done.stderr
            assert by_rpc or by_web, (words, done.stderr)
            assert "hadoop.proxyuser." in done.stderr and "{hosts,groups,users}" in done.stderr
            assert MARK not in done.stdout + done.stderr and "worker:0" not in done.stdout
            assert "Traceback" not in done.stderr
        done = stranger("doctor", check=False)
        (finding,) = (line for line in done.stdout.splitlines() if line.startswith("wrong"))
        assert f"User: {login}@{REALM} is not allowed to impersonate {user}" in finding
        assert f"hadoop.proxyuser.{login}.hosts, and .groups or .users" in done.stdout
        files = WebHdfsFileSystem(conf_of(anns.cluster), become(anns.cluster, login, user))
        with pytest.raises(PermissionError, match=r"hadoop\.proxyuser\.NAME"):
            files.list(f"hdfs:///user/{user}")
        files.close()
    assert anns.running.process.poll() is None, "it runs on"


def test_doctor_where_it_is_allowed(cluster: Hadoop, tony_for: TonyFor) -> None:
    done = tony_for("gateway", "ann")("doctor")
    assert "proxy user: gateway may act for ann, say the ResourceManager and the" in done.stdout
    assert "web proxy: shows a page of a container" in done.stdout


def test_names_that_are_none(cluster: Hadoop, tony_for: TonyFor) -> None:
    service = tony_for("gateway")
    done = service("submit", "--executes", "true", "--proxy-user", "", check=False)
    assert done.returncode == 2 and "--proxy-user is empty" in done.stderr, done.stderr
    service.env[PROXY_USER] = ""
    for words in (("list",), ("submit", "--executes", "true")):
        done = service(*words, check=False)
        assert done.returncode != 0 and f"{PROXY_USER} is empty" in done.stderr, done.stderr


def conf_of(cluster: Hadoop, **overrides: str) -> SiteConfiguration:
    named: Mapping[str, str] = {name.replace("_", "."): text for name, text in overrides.items()}
    return SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir), overrides=named)


def become(cluster: Hadoop, login: str, proxy_user: str = "") -> ClusterIdentity:
    env = {**cluster.environment_of(login)}
    if proxy_user:
        env[PROXY_USER] = proxy_user
    return cluster_identity(conf_of(cluster), env)


def test_tokens_do_not_act_for_others(anns: Job, tony_for: TonyFor) -> None:
    """Those of ann's job are ann's, and not of the service that obtained them."""
    held = tony_for("ann", "bob")
    held.env[LOCATION] = str(anns.folder / "tokens")
    held.env["KRB5CCNAME"] = held.env["KRB5_CONFIG"] = os.devnull
    done = held("status", anns.id, check=False)
    assert done.returncode != 0 and f"the tokens of {LOCATION} are ann's" in done.stderr
    held.env[PROXY_USER] = "ann"
    assert held.json("status", anns.id)["state"] == "RUNNING"
    tokens = ClusterIdentity(
        "ann", tokens=Credentials.decode(Path(held.env[LOCATION]).read_bytes())
    )
    conf = conf_of(anns.cluster)
    ask_name_node(conf, tokens, endpoints.name_service(conf))


def test_by_rest(cluster: Hadoop) -> None:
    """Where the ResourceManager's RPC port is closed to clients."""
    closed = conf_of(cluster, yarn_resourcemanager_address="localhost:1")
    rm = connect(closed, become(cluster, "gateway", "ann"))
    assert isinstance(rm, RestResourceManager) and rm.requested_user() == "ann"
    new = rm.new_application()
    body = {
        "application-id": str(new.id),
        "application-name": "by REST",
        "am-container-spec": {"commands": {"command": "sleep 300"}},
        "resource": {"memory": 128, "vCores": 1},
    }
    rm._call("POST", "apps", body)
    assert rm.report(new.id).user == "ann"
    rm.kill(new.id, "enough")
    until(lambda: rm.report(new.id).state == "KILLED", "its end")
    rm.close()
    for login, user in (("gateway", "admin"), ("bob", "ann")):
        with pytest.raises(SchedulerError, match=f"{login}@{REALM} {NOT_ALLOWED} {user}"):
            connect(closed, become(cluster, login, user))


@pytest.mark.nightly
def test_an_open_cluster(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    """It believes names, and asks as well who may act for whom."""
    cluster = hadoop("two_nodes")
    cluster.hdfs.make_folder("/user/ann")
    cluster.hdfs.give("/user/ann", "ann", "ann", "700")
    one = tony_on(cluster)
    one.env.update({PROXY_USER: "ann"})
    job = one.submit("--executes", "true", conf={"tony.worker.instances": "1"})
    job.ends(0)
    assert cluster.application(job.app_id)["user"] == "ann"
    assert one.json("history show", job.app_id)["events"]
    one.env.update({"HADOOP_USER_NAME": "stranger"})
    done = one("list", check=False)
    assert done.returncode != 0 and f"stranger {NOT_ALLOWED} ann" in done.stderr, done.stderr


@pytest.mark.nightly
def test_web_servers_that_believe_names(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's defaults: names are believed there, and files go by the user's own token."""
    cluster = hadoop("secure", "simple_web")
    monkeypatch.setenv("KRB5_CONFIG", cluster.environment_of("ann")["KRB5_CONFIG"])
    files = WebHdfsFileSystem(conf_of(cluster), become(cluster, "gateway", "ann"))
    files.put("hdfs:///user/ann/by-service", b"content")
    assert cluster.hdfs_of("ann").status("/user/ann/by-service")["owner"] == "ann"
    files.close()
    strangers = WebHdfsFileSystem(conf_of(cluster), become(cluster, "bob", "ann"))
    with pytest.raises(PermissionError, match="not allowed to impersonate"):
        strangers.get("hdfs:///user/ann/by-service")
    strangers.close()


@pytest.mark.nightly
def test_stored_logs(anns: Job, tony_for: TonyFor) -> None:
    """HDFS gives them to ann, and to the service in ann's name alone."""
    anns.ends()

    def stored(who: Tony) -> bool:
        return MARK in who("logs", anns.id, check=False).stdout

    until(lambda: stored(anns.service), "the stored logs", 90)
    assert stored(tony_for("ann"))
    for other in (tony_for("bob"), tony_for("gateway", "bob")):
        done = other("logs", anns.id, check=False)
        assert MARK not in done.stdout + done.stderr, done.stderr
