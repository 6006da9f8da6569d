"""What another user, and a peer without a ticket, get of a job on a cluster with Kerberos."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Set, Tuple

import pytest

from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.base import NODE_MEMORY_MB
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.curl import curl
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.security import ADMIN
from tests.cluster.hadoop.web import WebError, call
from tests.cluster.yarn.jobs import Running, Tony, until
from tony_core.hadoop.identity import cluster_identity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.schedulers.yarn.client.resource_manager import connect
from tony_core.schedulers.yarn.client.rest import RestResourceManager

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MARK = "printed-for-ann-only"
NEITHER_PROXY_NOR_NODE = "127.0.0.9"
"""An address of this machine from which no part of the cluster sends."""


class AnnsJob(NamedTuple):
    cluster: Hadoop
    running: Running
    ann: Tony
    bob: Tony
    over: Path

    @property
    def id(self) -> str:
        return self.running.app_id

    @property
    def conf(self) -> SiteConfiguration:
        return SiteConfiguration.load({}, conf_dir=str(self.cluster.conf_dir))

    @property
    def conf_without_rpc(self) -> SiteConfiguration:
        """The ResourceManager answers at its web server only."""
        closed = {"yarn.resourcemanager.address": "localhost:1"}
        return SiteConfiguration.load({}, conf_dir=str(self.cluster.conf_dir), overrides=closed)


StartJob = Callable[..., AnnsJob]


@pytest.fixture
def start(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> StartJob:
    """Starts a job of ann's beside bob's command line; returns when its program runs."""

    def make(**conf: str) -> AnnsJob:
        cluster = hadoop("secure", "log_aggregation")
        ann, bob = tony_on(cluster), tony_on(cluster)
        ann.env.update(cluster.environment_of("ann"))
        monkeypatch.setenv("KRB5_CONFIG", ann.env["KRB5_CONFIG"])
        bob.env.update(cluster.environment_of("bob"))
        began, over = tmp_path / "began", tmp_path / "over"
        job = ann.submit(
            "--executes",
            f"sh -c 'echo {MARK}; touch {began}; until test -e {over}; do sleep 0.2; done'",
            conf={"tony.application.framework": "mpi", "tony.worker.instances": "1", **conf},
        )
        job.until(began.exists, "its first line")
        return AnnsJob(cluster, job, ann, bob, over)

    return make


@pytest.fixture
def anns(start: StartJob) -> Iterator[AnnsJob]:
    """A job of ann's alone, which runs."""
    made = start()
    yield made
    made.over.touch()
    made.running.ends(0)


def test_whom_the_owner_names_may_look_and_end(start: StartJob) -> None:
    acls = {"tony.yarn.acl.view": "bob", "tony.yarn.acl.modify": "bob"}
    # One fits beside the master, and the others where it is not.
    large = {"tony.worker.instances": "3", "tony.worker.memory": f"{NODE_MEMORY_MB // 2}m"}
    made = start(**acls, **large)
    until(lambda: made.ann("logs", made.id).stdout.count(MARK) == 3, "what all print")
    done = made.bob("logs", made.id)
    assert done.stdout.count(MARK) == 3, done.stderr
    tasks = made.bob.json("status", made.id)["tasks"]
    assert [task["task"] for task in tasks] == ["worker:0", "worker:1", "worker:2"], tasks
    assert len({task["node"] for task in tasks}) == 2, tasks
    made.bob("kill", made.id)
    made.running.ends(137)


def test_another_user_reads_and_ends_nothing(anns: AnnsJob) -> None:
    cluster, ticket = anns.cluster, anns.cluster.environment_of("bob")
    done = anns.bob("kill", anns.id, check=False)
    assert done.returncode != 0
    assert "bob may not end" in done.stderr and "tony.yarn.acl.modify" in done.stderr, done.stderr
    assert MARK in anns.ann("logs", anns.id).stdout
    done = anns.bob("logs", anns.id, check=False)
    assert MARK not in done.stdout + done.stderr
    sees_nothing(anns)
    report = cluster.application(anns.id)
    for url in (f"{cluster.rm_url}/proxy/{anns.id}/api/job", report["amContainerLogs"]):
        status, text = curl(url, ticket)
        assert MARK not in text and "worker:0" not in text, (url, text)
        assert status in (401, 403, 404) or "not authorized" in text.lower(), (url, status, text)
    state = f"{cluster.rm_url}/ws/v1/cluster/apps/{anns.id}/state"
    with pytest.raises(WebError) as caught:
        call("PUT", state, {"state": "KILLED"}, by=cluster.caller("bob"))
    assert caught.value.status == 403
    for path in (f"/user/ann/.tony/{name}" for name in ("", "store", "history", f"apps/{anns.id}")):
        with pytest.raises(WebError, match="Permission denied: user=bob") as caught:
            cluster.hdfs_of("bob").list(path.rstrip("/"))
        assert caught.value.status == 403
    assert anns.running.process.poll() is None, "it runs on"


def sees_nothing(anns: AnnsJob) -> None:
    """No verb shows bob the job, whatever its state."""
    for words in (("status",), ("describe",), ("logs",), ("attach",)):
        done = anns.bob(*words, anns.id, check=False)
        assert done.returncode != 0, (words, done.stdout)
        refused = f"bob may not look at {anns.id}, which belongs to another user"
        assert refused in done.stderr and "tony.yarn.acl.view" in done.stderr, (words, done.stderr)
        assert "ann" not in done.stdout and MARK not in done.stdout + done.stderr
    assert anns.bob("history show", anns.id, check=False).returncode != 0
    assert anns.id in [one["app_id"] for one in anns.ann.json("list")["applications"]]
    assert anns.id not in anns.bob("list").stdout + anns.bob("list", "--json").stdout
    for user, seen in (("ann", True), ("bob", False), (ADMIN, True)):
        who = cluster_identity(anns.conf, anns.cluster.environment_of(user))
        rm = connect(anns.conf_without_rpc, who)
        assert isinstance(rm, RestResourceManager)
        try:
            assert rm.report(ApplicationId.parse(anns.id)).may_view is seen, user
        finally:
            rm.close()


def test_another_user_reads_no_log_of_a_job_that_has_ended(anns: AnnsJob) -> None:
    anns.over.touch()
    anns.running.ends(0)
    sees_nothing(anns)
    folder = "/app-logs/ann"

    def collected() -> bool:
        return "ann" in anns.cluster.hdfs.list("/app-logs") and _has_files(anns.cluster, folder)

    until(collected, "the collected logs")
    until(lambda: MARK in anns.ann("logs", anns.id, check=False).stdout, "her own log")
    done = anns.bob("logs", anns.id, check=False)
    assert MARK not in done.stdout + done.stderr and "may not look at" in done.stderr, done
    with pytest.raises(WebError, match="Permission denied: user=bob"):
        anns.cluster.hdfs_of("bob").list(folder)


def _has_files(cluster: Hadoop, folder: str) -> bool:
    found = cluster.hdfs.list(folder)
    return any(
        one["type"] == "FILE" or _has_files(cluster, f"{folder}/{name}")
        for name, one in found.items()
    )


def test_nothing_answers_a_peer_without_a_ticket(anns: AnnsJob) -> None:
    cluster = anns.cluster
    for url in (
        f"{cluster.rm_url}/proxy/{anns.id}/api/job",
        f"{cluster.rm_url}/proxy/{anns.id}/api/job?user.name=ann",
        f"{cluster.rm_url}/ws/v1/cluster/apps/{anns.id}",
        f"{cluster.webhdfs_url}/webhdfs/v1/user/ann/.tony?op=LISTSTATUS&user.name=ann",
        *(f"{cluster.url(name)}/ws/v1/node/containers" for name in cluster.names("nm")),
    ):
        status, text = curl(url)
        assert status == 401 and MARK not in text, (url, status, text)
    found = set(listeners(cluster))
    assert len(found) >= 3, f"the master's two and the executor's: {found}"
    for listener in found:
        for sent in (
            b"GET /api/job HTTP/1.1\r\nHost: localhost\r\nCookie: proxy-user=ann\r\n\r\n",
            b"\x16\x03\x01\x00\x05hello",
            bytes(200),
        ):
            answer = answer_of(listener, sent)
            assert b" 200 " not in answer and b"worker" not in answer, (listener, answer)
    assert anns.running.process.poll() is None, "it runs on"


def listeners(cluster: Hadoop) -> Iterator[Tuple[str, int]]:
    """Where processes of containers listen, as a peer of the network reaches it."""
    inodes: Set[str] = set()
    for node in (cluster.folder / "data").glob("nm*/local"):
        for pid in supervisor.processes_in(node):
            if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue  # the NodeManager itself
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(handle)))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes:
            address, port = words[1].split(":")
            host = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            yield host.replace("0.0.0.0", "127.0.0.1"), int(port, 16)


def answer_of(listener: Tuple[str, int], sent: bytes) -> bytes:
    """All that a port answers to a stranger before it closes the connection."""
    answer = b""
    with socket.create_connection(
        listener, timeout=30, source_address=(NEITHER_PROXY_NOR_NODE, 0)
    ) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while True:
                piece = connection.recv(4096)
                if not piece:
                    return answer
                answer += piece
        except ConnectionError:
            return answer
