"""Fresh tokens by a keytab, from a real KDC, NameNode and ResourceManager."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.security import TOKEN_RENEW_S
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.hdfs.namenode_client import cancel_token
from tony_core.hadoop.identity import cluster_identity, container_identity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, RM_DELEGATION
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers.yarn.node.fetch_request import Fetched, Request

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def secure(hadoop: GetHadoop) -> Hadoop:
    return hadoop("secure", "short_tokens")


def run(secure: Hadoop, request: Request) -> subprocess.CompletedProcess[str]:
    module = "tony_core.bundle.client.runtime_main"
    env = {**os.environ, **secure.environment_of("bob"), "KRB5CCNAME": "/nonexistent"}
    return subprocess.run(
        [sys.executable, "-m", module, "yarn-fetch-tokens"],
        input=request.encode(),
        capture_output=True,
        text=True,
        env=env,
        timeout=90,
    )


def test_fresh_tokens_open_hdfs_and_yarn_until_cancelled(
    secure: Hadoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = secure.environment_of("bob")
    monkeypatch.setenv("KRB5_CONFIG", env["KRB5_CONFIG"])
    conf = SiteConfiguration.load(env)
    default = conf.text("fs.defaultFS")
    request = Request(
        conf.to_json(),
        f"bob@{REALM}",
        secure.keytab_of("bob").read_bytes(),
        "bob",
        (default, default),
    )
    checked = run(secure, request._replace(check=True))
    assert (checked.returncode, checked.stdout) == (0, "{}\n"), checked.stderr

    done = run(secure, request)
    assert done.returncode == 0, done.stderr
    fetched = Fetched.decode(done.stdout)
    kinds = sorted(token.kind for token in fetched.credentials.tokens.values())
    assert kinds == sorted([HDFS_DELEGATION, RM_DELEGATION])
    assert 0 < fetched.ends - time.time() <= TOKEN_RENEW_S

    holder = container_identity(conf, "bob", fetched.credentials)
    files = WebHdfsFileSystem(conf, holder)
    place = f"{default}/user/bob/fetched-{time.time_ns()}"
    files.put(place, b"by a fresh token", 0o600)
    assert files.get(place) == b"by a fresh token"
    rm = RmClient.open(conf, identity=holder)
    assert rm.metrics().num_node_managers
    rm.close()

    again = run(secure, request._replace(held=fetched.credentials.encode()))
    renewed = Fetched.decode(again.stdout)
    assert renewed.renewed and renewed.ends > fetched.ends, again.stderr
    assert set(renewed.credentials.tokens.values()) == set(fetched.credentials.tokens.values())

    login = cluster_identity(conf, env)
    by_login = RmClient.open(conf, identity=login)
    by_login.cancel_delegation_token(fetched.credentials.find(RM_DELEGATION)[0])
    by_login.close()
    (token,) = fetched.credentials.find(HDFS_DELEGATION)
    found = endpoints.name_service(conf, default)
    cancel_token(conf, login, found, token)
    with pytest.raises(HadoopError):
        cancel_token(conf, login, found, token)
    with pytest.raises(OSError):
        files.get(place)
    files.close()


def test_another_users_principal_is_refused(secure: Hadoop) -> None:
    conf = SiteConfiguration.load(secure.environment_of("bob"))
    keytab = secure.keytab_of("bob").read_bytes()
    done = run(secure, Request(conf.to_json(), f"bob@{REALM}", keytab, "ann"))
    assert done.returncode == 1
    assert "is the user bob on this cluster" in done.stderr
    assert "name a principal of ann's in tony.kerberos.principal" in done.stderr
    assert len(done.stderr.splitlines()) == 1
