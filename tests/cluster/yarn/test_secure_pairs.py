"""Web servers of pairs on a real cluster with Kerberos: each of the two proves who it is."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.test_hadoop_base import submit
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import cluster_identity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.schedulers.yarn.client.resource_manager import connect
from tony_core.schedulers.yarn.client.rest import RestResourceManager

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_rest_and_files_survive_both_failovers(
    hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = hadoop("secure", "rm_ha", "nn_ha")
    for name, value in cluster.environment_of("ann").items():
        monkeypatch.setenv(name, value)
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
    closed = {f"yarn.resourcemanager.address.{name}": "localhost:1" for name in cluster.names("rm")}
    by_web = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir), overrides=closed)
    ann = cluster_identity(conf, os.environ)
    files = WebHdfsFileSystem(conf, ann)
    rm = connect(by_web, ann)
    assert isinstance(rm, RestResourceManager)
    with closing(files), closing(rm):
        app = ApplicationId.parse(submit(cluster, "sleep 300"))
        assert rm.report(app).user == "ann"
        files.put("hdfs:///user/ann/pair", b"before")

        cluster.fail_over_hdfs()
        cluster.kill_active_rm()

        assert files.get("hdfs:///user/ann/pair") == b"before"
        files.put("hdfs:///user/ann/pair", b"after")
        assert files.get("hdfs:///user/ann/pair") == b"after"
        assert rm.report(app).user == "ann"
        rm.kill(app)
