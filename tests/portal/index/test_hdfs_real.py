"""The scanner over a real HDFS: owners, new and removed jobs, many jobs at once, an outage."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.portal.histories import NOW, app
from tony_core.files import registry
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.portal.index import scanner
from tony_core.portal.index.index import Index
from tony_core.portal.index.rows import JobRow, Query
from tony_core.portal.index.scanner import LocationScan
from tony_core.portal.job_folders import UnsafeHistory
from tony_core.portal.locations import open_job
from tony_core.portal.settings import HistoryLocation
from tony_core.portal.viewer import Viewer

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hadoop]:
    made = hadoop()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(made.conf_dir))
    monkeypatch.setenv("HADOOP_USER_NAME", made.user)
    registry.forget()
    yield made
    registry.forget()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(str(tmp_path / "index"))
    yield made
    made.close()


def connect(cluster: Hadoop, user: str) -> WebHdfsFileSystem:
    conf = SiteConfiguration.load({"HADOOP_CONF_DIR": str(cluster.conf_dir)})
    return WebHdfsFileSystem(conf, ClusterIdentity(user))


def write(files: WebHdfsFileSystem, root: str, number: int, **job: Any) -> str:
    folder = f"{root}/{app(number)}"
    facts = {"name": "mnist", "user": "root", "state": "SUCCEEDED", "submitted": NOW,
             "finished": NOW + 60, **job}  # fmt: skip
    files.mkdir(folder, 0o750)
    summary = {"job": facts, "tasks": [], "metrics": {}}
    files.put(f"{folder}/summary.json", json.dumps(summary).encode(), 0o640)
    return folder


def read(scan: LocationScan) -> None:
    end = time.monotonic() + 120
    while scan.step() == 0.0:
        assert time.monotonic() < end
    assert scan.state().problem == ""


def rows(index: Index) -> List[JobRow]:
    page = index.page(Query(sort="app_id", limit=500), Viewer("root", is_admin=True))
    return list(page.rows)


def step_until(scan: LocationScan, index: Index, ids: List[int]) -> None:
    end = time.monotonic() + 60
    while [row.app_id for row in rows(index)] != [app(number) for number in ids]:
        assert time.monotonic() < end
        time.sleep(min(0.1, scan.step()))


def test_a_shared_place_on_hdfs(
    cluster: Hadoop, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"hdfs:///history-{os.urandom(4).hex()}"
    top, alice, bob = (connect(cluster, user) for user in (cluster.user, "alice", "bob"))
    top.mkdir(root, 0o1777)
    write(alice, root, 1)
    place = HistoryLocation("shared", root)
    scan = LocationScan(place, index)
    read(scan)
    (row,) = rows(index)
    assert (row.owner, row.name, row.state) == ("alice", "mnist", "SUCCEEDED")
    assert row.readers == ("user:alice",)

    # Another user's file in her folder, which she has left open to all.
    folder = write(alice, root, 2)
    alice.delete(f"{folder}/summary.json")
    alice.chmod(folder, 0o777)
    bob.put(f"{folder}/summary.json", b'{"job": {"name": "forged", "state": "FAILED"}}', 0o644)
    write(bob, root, 3, state="RUNNING", finished=None)
    step_until(scan, index, [1, 2, 3])
    assert rows(index)[1].owner == "alice" and rows(index)[1].name == ""
    assert "belongs to 'bob', and the job's folder to 'alice'" in rows(index)[1].problem
    with open_job(place, app(2)) as opened, pytest.raises(UnsafeHistory, match="plain file"):
        alice.mkdir(f"{folder}/tony-final.xml")
        opened.config()
    assert rows(index)[2].owner == "bob" and rows(index)[2].state == "RUNNING"

    write(bob, root, 3, state="KILLED")
    end = time.monotonic() + 60
    while rows(index)[2].state != "KILLED":
        assert time.monotonic() < end
        time.sleep(min(0.1, scan.step()))
    alice.delete(folder)
    step_until(scan, index, [1, 3])

    # Many are read by processes of their own, each several at once.
    monkeypatch.setattr(scanner, "MANY", 3)
    for number in range(10, 22):
        write(alice, root, number)
    step_until(scan, index, [1, 3, *range(10, 22)])
    assert {row.owner for row in rows(index)} == {"alice", "bob"}
    scan.close()


def test_a_name_node_that_does_not_answer(cluster: Hadoop, index: Index) -> None:
    scan = LocationScan(HistoryLocation("away", "webhdfs://127.0.0.1:9/history"), index)
    began = time.monotonic()
    assert scan.step() > 0.0
    assert time.monotonic() - began < 60 and "127.0.0.1:9" in scan.state().problem
    gone = LocationScan(HistoryLocation("gone", "hdfs:///no/such/place"), index)
    assert gone.step() > 0.0 and "/no/such/place" in gone.state().problem
