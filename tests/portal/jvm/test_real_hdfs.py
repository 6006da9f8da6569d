"""The JVM TonY's folders on a real HDFS: whose jobs they are, what is written, what is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.portal.jvm.files import APP, EVENTS, NAME, RUNNING, jhist
from tests.portal.jvm.test_reading import CONFIG
from tests.portal.jvm.test_writing import RECORD
from tony_core.files import registry
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.history.reader import read_job
from tony_core.portal.jvm.importing import import_jobs
from tony_core.portal.jvm.publication import write_files
from tony_core.portal.jvm.writing import jvm_files
from tony_core.portal.locations import reader_of
from tony_core.portal.settings import HistoryLocation

pytestmark = pytest.mark.cluster

ROOT = "hdfs:///tony-history"
OTHER = "application_1541469337545_0099"


def as_user(cluster: Hadoop, user: str) -> WebHdfsFileSystem:
    conf = SiteConfiguration.load({"HADOOP_CONF_DIR": str(cluster.conf_dir)})
    return WebHdfsFileSystem(conf, ClusterIdentity(user), patience_s=30.0)


@pytest.fixture
def cluster(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hadoop]:
    made = hadoop()
    admin = as_user(made, made.user)
    admin.delete(ROOT)
    admin.mkdir(f"{ROOT}/intermediate", 0o1777)
    admin.mkdir(f"{ROOT}/finished", 0o777)
    registry.forget()
    registry.register("hdfs", lambda: as_user(made, made.user))
    yield made
    registry.forget()
    admin.delete(ROOT)
    admin.close()


def put(files: WebHdfsFileSystem, folder: str, name: str, data: bytes) -> None:
    files.mkdir(folder, 0o770)
    files.put(f"{folder}/tony-final.xml", CONFIG, 0o644)
    files.put(f"{folder}/{name}", data, 0o644)


def test_a_history_on_hdfs(cluster: Hadoop, tmp_path: Path) -> None:
    ann, eve = as_user(cluster, "ann"), as_user(cluster, "eve")
    day = f"{ROOT}/finished/2018/11/15"
    try:
        put(ann, f"{day}/{APP}", NAME, jhist())
        put(eve, f"{ROOT}/intermediate/{OTHER}", RUNNING.replace(APP, OTHER), jhist(EVENTS[1:3]))
        # Of a job that is in both, the one that its portal moved counts.
        put(eve, f"{ROOT}/intermediate/{APP}", NAME.replace("FAILED", "SUCCEEDED"), jhist())
    finally:
        ann.close()
        eve.close()
    reader = reader_of(HistoryLocation("old", ROOT, kind="jvm-tony"))
    version = reader.version()
    assert sorted(reader.names()) == [APP, OTHER] and reader.version() == version
    with reader.open(APP) as folder:
        record = folder.record()
        assert folder.owner == record.job["user"] == "ann"
    assert record.job["state"] == "FAILED" and record.problems == ()
    with reader.open(OTHER) as folder:
        assert (folder.owner, folder.record().job["state"]) == ("eve", "RUNNING")

    # Another user's file in ann's folder speaks for nothing.
    admin = registry.filesystem(ROOT)
    later = NAME.replace("1542325695566", "1542325795566").replace("FAILED", "SUCCEEDED")
    admin.put(f"{day}/{APP}/{later}", jhist())
    with reader.open(APP) as folder:
        record = folder.record()
    assert record.job["state"] == "FAILED" and len(record.tasks) == 2
    assert record.problems == (f"files of other users or applications are left out: {later}",)
    admin.delete(f"{day}/{APP}/{later}")

    # What we write stands beside it, once.
    made = jvm_files(RECORD._replace(app_id="application_1_0001"), None, "ann")
    written = write_files(ROOT, made)
    assert written == f"{ROOT}/intermediate/application_1_0001"
    assert write_files(ROOT, made) is None
    assert admin.stat(written).mode == 0o770
    assert reader.version() != version and len(reader.names()) == 3

    root = str(tmp_path / "history")
    found = {job.app_id: job for job in import_jobs(ROOT, root)}
    assert found[APP].folder and found[OTHER].why == "it has not ended"
    assert read_job(root, APP).job["state"] == "FAILED"
    assert reader.remove(APP) and APP in reader.names()
    assert reader.remove(APP) and APP not in reader.names()
