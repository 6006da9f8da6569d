"""Flows of two users on a cluster with Kerberos, whose server obtains tokens for each job."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import pytest

from dags.examples.azkaban.upload import AzkabanError
from tests.cluster.azkaban.fixture import Servers
from tests.cluster.azkaban.flows import LASTS, Flows, Run, until
from tests.cluster.azkaban.secure_server import SecureServer
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import Clusters, GetHadoop
from tests.cluster.hadoop.jars import distribution
from tests.cluster.hadoop.security import ADMIN
from tests.key_material import KeySearch, files_with_keys, keys_of_credentials, keys_of_keytab
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import container_identity, owner_of
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.rm_client import RmClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FlowsOf = Callable[[str], Flows]


class Known:
    """The module's server; another one when the cluster is another one."""

    def __init__(self) -> None:
        self._server: Optional[SecureServer] = None

    def get(self, cluster: Hadoop, servers: Servers, clusters: Clusters) -> SecureServer:
        if self._server is None or self._server.cluster.folder != cluster.folder:
            self.close()
            jars = distribution(cache=clusters.cache)
            self._server = SecureServer(cluster, servers.jars, jars)
        return self._server

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


@pytest.fixture(scope="module")
def known() -> Iterator[Known]:
    made = Known()
    yield made
    made.close()


@pytest.fixture
def server(
    known: Known,
    hadoop: GetHadoop,
    azkaban_servers: Servers,
    hadoop_clusters: Clusters,
    monkeypatch: pytest.MonkeyPatch,
) -> SecureServer:
    # With log aggregation YARN keeps a job's tokens for minutes after its end.
    cluster = hadoop("secure")
    for name, value in cluster.environment_of(ADMIN).items():
        monkeypatch.setenv(name, value)  # of the command line beside the server
    return known.get(cluster, azkaban_servers, hadoop_clusters)


@pytest.fixture
def flows_of(server: SecureServer, tmp_path: Path) -> Iterator[FlowsOf]:
    """``flows_of("ann")``: flows of that user of Azkaban, whose jobs run as the same user."""
    made: Dict[str, Flows] = {}

    def get(user: str) -> Flows:
        if user not in made:
            made[user] = Flows(server.azkaban, tmp_path / user, server.cluster, user)
        return made[user]

    yield get
    for one in made.values():
        one.close()


def one(server: SecureServer, flows: Flows, user: str, executes: str, **more: object) -> Run:
    """A flow of one job that runs as a user."""
    home = server.homes / user
    return flows.one(executes, **{"user.to.proxy": user, "env.TONY_HOME": home, **more})


def last_token_file(server: SecureServer, user: str) -> Path:
    """What the server handed to the latest job of a user."""
    for path in sorted(server.token_files(), key=lambda path: path.stat().st_mtime, reverse=True):
        if {owner_of(token) for token in tokens_in(path).tokens.values()} == {user}:
            return path
    raise AssertionError(f"no tokens of {user}: {server.token_files()}")


def tokens_in(path: Path) -> Credentials:
    return Credentials.decode(path.read_bytes())


def test_two_users_and_the_service(server: SecureServer, flows_of: FlowsOf, tmp_path: Path) -> None:
    """Each flow is its user's on the cluster; neither user reaches the other's, nor a key."""
    ann, bob, cluster = flows_of("ann"), flows_of("bob"), server.cluster
    over = tmp_path / "over"
    waits = f"sh -c 'until test -e {over}; do sleep 0.2; done; echo it is over'"
    anns = one(server, ann, "ann", waits, **LASTS)
    app_id = anns.app_id()
    cluster.wait_for(app_id, ("RUNNING",), 120)
    anns.wait_for_text("worker:0 running")
    handed = last_token_file(server, "ann")

    bobs = one(server, bob, "bob", "true")
    adopts = one(server, bob, "bob", "true", **{"tony_azkaban.attach": app_id})
    proxies = one(server, bob, "ann", "true")
    for refused in (lambda: bob.client.cancel(anns.execid), lambda: bob.client.state(anns.execid)):
        with pytest.raises(AzkabanError, match=r"(?i)permission"):
            refused()
    with pytest.raises(AzkabanError):
        bob.client.log(anns.execid, "train", 0)
    assert cluster.application(bobs.ends().app_id())["user"] == "bob"
    assert adopts.ends().app_id() != app_id, adopts.log()
    proxies.ends("FAILED")
    assert "ann has no permission to execute this job" in proxies.log(), proxies.log()

    assert cluster.application(app_id)["state"] == "RUNNING"
    over.touch()
    assert "SUCCEEDED" in anns.ends().log()
    app = cluster.application(app_id)
    assert (app["user"], app["finalStatus"]) == ("ann", "SUCCEEDED")
    check_usable(server, tokens_in(handed))
    check_no_keys(server, anns, bobs)


def check_usable(server: SecureServer, tokens: Credentials) -> None:
    """The tokens of a job that has ended are as before: nothing has cancelled them."""
    conf = SiteConfiguration.load({}, conf_dir=str(server.conf))
    holder = container_identity(conf, "ann", tokens)
    end = time.monotonic() + 3  # YARN cancels the tokens that TonY obtains within this time
    while True:
        place = f"{conf.text('fs.defaultFS')}/user/ann/after-{time.time_ns()}"
        with closing(WebHdfsFileSystem(conf, holder)) as files:
            files.put(place, b"by the same token", 0o600)
        with closing(RmClient.open(conf, identity=holder)) as manager:
            assert manager.metrics().num_node_managers
        if time.monotonic() > end:
            return
        time.sleep(0.5)


def check_no_keys(server: SecureServer, *runs: Run) -> None:
    """In the token files alone are keys; not in logs, executions, the database or homes."""
    handed = server.token_files()
    keys = keys_of_keytab(server.keytab.read_bytes())
    for path in handed:
        keys.update(keys_of_credentials(path.read_bytes()))
        assert path.stat().st_mode & 0o007 == 0, path
    assert len(keys) > 2
    search = KeySearch(keys)
    found = {file.path for file in files_with_keys(search, server.searched())}
    assert found == set(handed)
    for run in runs:
        assert search.find(run.log().encode()) == []


def test_no_job_reads_the_keytab_or_anothers_tokens(
    server: SecureServer, flows_of: FlowsOf
) -> None:
    if not server.uids:
        pytest.skip("jobs run as one user here: this is not root, or closed to other users")
    one(server, flows_of("ann"), "ann", "true").ends()
    secrets = (server.keytab, last_token_file(server, "ann"))
    reads = [
        one(server, flows_of("bob"), "bob", "true", command=f"cat {secret}") for secret in secrets
    ]
    for read in reads:
        assert "Permission denied" in read.ends("FAILED").log(), read.log()


def test_a_cancel_ends_it(server: SecureServer, flows_of: FlowsOf) -> None:
    """By the tokens alone: the process that submits has no ticket."""
    flows, started = flows_of("ann"), []

    def start() -> Run:
        started.append(one(server, flows, "ann", "sleep 300", **LASTS))
        return started[-1]

    app_id = flows.cancelled(start, lambda run: run.wait_for_text("worker:0 running"))
    app = server.cluster.application(app_id)
    assert (app["user"], app["finalStatus"]) == ("ann", "KILLED")


@pytest.mark.nightly
def test_a_login_of_the_jobs_choice(server: SecureServer, flows_of: FlowsOf) -> None:
    flows = flows_of("bob")
    before = server.cluster.applications()
    runs: List[Run] = [
        one(server, flows, "bob", "true", **more)
        for more in (
            {
                "tony.kerberos.principal": "gateway@SANDBOX.EXAMPLE",
                "tony.kerberos.keytab": server.keytab,
            },
            {"env.HADOOP_PROXY_USER": "ann"},
        )
    ]
    messages = ("no job of an Azkaban server logs in by a keytab", "no job acts for another user")
    for run, message in zip(runs, messages, strict=True):
        assert message in run.ends("FAILED").log(), run.log()
    # The server's path is the one that counts, whatever a job names.
    path = {"env.HADOOP_TOKEN_FILE_LOCATION": "/nonexistent/anns.token"}
    chosen = one(server, flows, "bob", "true", **path).ends()
    app = server.cluster.application(chosen.app_id())
    assert app["user"] == "bob"
    assert len(server.cluster.applications()) == len(before) + 1
    until(lambda: not flows.left(*runs), "no process is left")


@pytest.mark.nightly
def test_a_keytab_that_jobs_can_read(server: SecureServer, flows_of: FlowsOf) -> None:
    """Each job looks: here its own user can."""
    if not server.uids:
        pytest.skip("here all jobs run as the server's user, whose site accepts it")
    common = server.azkaban.plugins / "commonprivate.properties"
    text = common.read_text()
    readable = server.homes / "azkaban.keytab"
    readable.write_bytes(b"a key")
    readable.chmod(0o644)
    common.write_text(f"{text}proxy.keytab.location={readable}\n")
    try:
        run = one(server, flows_of("ann"), "ann", "true").ends("FAILED")
    finally:
        common.write_text(text)
        readable.unlink()
    assert f"every job can read the server's keytab {readable}" in run.log(), run.log()
