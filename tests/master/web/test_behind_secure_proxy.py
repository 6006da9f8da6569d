"""Who reads a job's page, its logs and TensorBoard on a real cluster with Kerberos."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
from pathlib import Path
from typing import Iterator, Optional, Tuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.curl import curl
from tests.cluster.hadoop.fixture import GetHadoop
from tests.master.web.behind_proxy import BehindProxy
from tests.master.web.test_behind_proxy import quiet_job, serving, until
from tony_core.hadoop.identity import cluster_identity
from tony_core.hadoop.site.configuration import SiteConfiguration

pytestmark = pytest.mark.cluster

PATHS = ("", "api/job", "api/events", "logs", "logs/worker:0/stdout", "tensorboard/")


@pytest.fixture
def cluster(hadoop: GetHadoop) -> Hadoop:
    return hadoop("secure")


@contextlib.contextmanager
def job_of_ann(
    cluster: Hadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BehindProxy]:
    for name, value in cluster.environment_of("ann").items():
        monkeypatch.setenv(name, value)
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
    identity = cluster_identity(conf, os.environ)
    assert identity.user == "ann"
    nodes = cluster.folder / "data"
    with BehindProxy(str(cluster.conf_dir), identity, tmp_path, quiet_job(), nodes=nodes) as made:
        yield made


@pytest.fixture
def anns(cluster: Hadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BehindProxy]:
    with job_of_ann(cluster, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def tensorboard_port() -> Iterator[int]:
    """A web server in TensorBoard's place."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "15")
            self.end_headers()
            self.wfile.write(b"curves of ann's")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_owner_and_administrators_read_it_and_no_other_user(
    cluster: Hadoop, anns: BehindProxy, tensorboard_port: int
) -> None:
    serving(anns, tensorboard_port)

    def read(path: str, user: Optional[str]) -> Tuple[int, str]:
        ticket = None if user is None else cluster.environment_of(user)
        return curl(anns.url + path, ticket)

    for user in ("ann", "admin"):
        assert '"app_id":"app_1"' in read("api/job", user)[1], user
        assert read("tensorboard/", user) == (200, "curves of ann's"), user
    for path in PATHS:
        status, text = read(path, "bob")
        assert status == 403 and "bob may not read this page" in text, (path, status, text)
        status, text = read(path, None)
        assert status == 401 and '"app_1"' not in text, (path, status, text)
        assert curl(f"{anns.url}{path}?user.name=ann")[0] == 401, path


def test_the_pages_own_port_answers_the_proxy_only(anns: BehindProxy) -> None:
    own = f"http://127.0.0.1:{anns.shell.master._site.server.port}/api/job"
    anns.shell.gang(1)
    until(lambda: curl(own)[0] == 403, "the proxy's address")
    for cookies in ("", "proxy-user=ann", "proxy-user=admin"):
        status, text = curl(own, cookies=cookies, source="127.0.0.9")
        assert status == 403 and "only be read through the cluster's web proxy" in text, text
    # Who has the proxy's own address still has to name a user that may look.
    assert "does not name the user" in curl(own)[1]
    for user in ("bob", "dr.who"):
        assert curl(own, cookies=f"proxy-user={user}")[0] == 403, user


@pytest.mark.nightly
def test_no_user_reads_it_where_web_servers_believe_names(
    hadoop: GetHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_of_ann(hadoop("secure", "simple_web"), tmp_path, monkeypatch) as made:
        made.shell.gang(1)
        for query in ("", "?user.name=ann", "?user.name=admin"):
            status, text = curl(f"{made.url}api/job{query}")
            assert status == 403 and '"app_1"' not in text, (query, status, text)
