"""Staging on a real HDFS, and what a real node makes of it."""

from __future__ import annotations

import os
import secrets
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Callable, List

import pytest

from tests.bundle.jobs import job, ref
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tony_core.bundle import jobfolder
from tony_core.bundle.client import planning, staging, staging_errors
from tony_core.bundle.local import garbage
from tony_core.bundle.remote.store import RemoteStore
from tony_core.files import registry
from tony_core.files.artifact import Artifact, Kind
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.job.spec import Job

pytestmark = pytest.mark.cluster

LOOK = """
ln -s tony-src src
for name in *; do echo "== $name"; done
echo "link $(readlink src/bin/python) $(readlink src/bin/py3)"
echo "empty $(ls -A src/empty | wc -l) long $(cat src/*/n*)"
echo "time $(stat -c %Y src/plain.txt) open $(stat -c %A src/plain.txt | cut -c5-)"
for tool in src/run.sh tool zip/run.sh gz/run.sh links/py; do echo "$tool $($tool)"; done
echo "folder $(cat dir/a.txt) $(cat dir/sub/b.txt)"
echo "raw $(test -L raw/py && echo link || echo file)"
"""


@pytest.fixture
def root(hadoop: GetHadoop) -> str:
    cluster = hadoop()
    home = f"{cluster.default_fs}/user/staging-{secrets.token_hex(4)}"
    as_user(cluster, "root").mkdir(home, 0o755)
    return f"{home}/.tony"


def as_user(cluster: Hadoop, user: str) -> WebHdfsFileSystem:
    """From now on HDFS is asked as that user."""
    conf = SiteConfiguration.load({"HADOOP_CONF_DIR": str(cluster.conf_dir)})
    files = WebHdfsFileSystem(conf, ClusterIdentity(user))
    registry.register("hdfs", lambda: files)
    return files


def staged(what: Job, root: str, app_id: str) -> List[Artifact]:
    plan = planning.plan(what, root)
    assert plan.errors == [], plan.problems
    return list(staging.stage(plan, root, app_id, what, b""))


def small(tmp_path: Path) -> Path:
    src = tmp_path / "src"
    (src / "bin").mkdir(parents=True)
    (src / "empty").mkdir()
    (src / "bin" / "python").symlink_to("/usr/bin/env")
    (src / "bin" / "py3").symlink_to("python")
    (src / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (src / "run.sh").chmod(0o755)
    (src / "plain.txt").write_text("x")
    os.utime(src / "plain.txt", (1_500_000_000, 1_500_000_000))
    (src / ("d" * 90)).mkdir()
    (src / ("d" * 90) / ("n" * 120)).write_text("long")
    return src


def test_nodes_unpack_what_was_staged(hadoop: GetHadoop, root: str, tmp_path: Path) -> None:
    cluster = hadoop()
    files = registry.filesystem(root)
    src = small(tmp_path)
    (src / "look.sh").write_text(LOOK)
    with zipfile.ZipFile(tmp_path / "plain.zip", "w") as packed:
        packed.write(src / "run.sh", "run.sh")
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as packed:
        packed.write(src / "run.sh", "run.sh")
        link = zipfile.ZipInfo("py")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "run.sh")
    with tarfile.open(tmp_path / "src.tar.gz", "w:gz") as tar:
        tar.add(src, ".")
    there = root.rpartition("/")[0]
    files.mkdir(f"{there}/dir/sub")
    files.put(f"{there}/dir/a.txt", b"a")
    files.put(f"{there}/dir/sub/b.txt", b"b")
    files.upload(str(tmp_path / "links.zip"), f"{there}/raw.zip")
    what = job(
        src,
        files=(
            ref(src / "run.sh", "tool"),
            ref(tmp_path / "plain.zip", "zip", archive=True),
            ref(tmp_path / "links.zip", "links", archive=True),
            ref(tmp_path / "src.tar.gz", "gz", archive=True),
            ref(f"{there}/dir", "dir"),
            ref(f"{there}/raw.zip", "raw", archive=True),
        ),
    )
    first = staged(what, root, "application_1_1")
    assert staged(what, root, "application_1_2") == first  # not written again
    entries = [
        {
            "key": item.name,
            "value": {
                "resource": item.uri,
                "type": "ARCHIVE" if item.kind is Kind.ARCHIVE else "FILE",
                "visibility": "PRIVATE",
                "size": item.size,
                "timestamp": item.mtime_ms,
            },
        }
        for item in first
    ]
    app_id = cluster.submit(
        application_name="look",
        am_container_spec={
            "commands": {"command": "(sh tony-src/look.sh) 1><LOG_DIR>/stdout 2>&1"},
            "local-resources": {"entry": entries},
        },
        max_app_attempts=1,
        resource={"memory": 64, "vCores": 1},
    )
    cluster.wait_for(app_id)
    log = cluster.application_logs(app_id)
    for line in (
        "== tony-runtime",
        "link /usr/bin/env python",
        "empty 0 long long",
        "time 1500000000 open ------",
        "src/run.sh ran",
        "tool ran",
        "zip/run.sh ran",
        "gz/run.sh ran",
        "links/py ran",
        "folder a b",
        "raw file",  # which is why a zip with links is not sent as it is
    ):
        assert line in log, f"{line!r} is not in:\n{log}"


def test_objects_verify_and_go(root: str, tmp_path: Path) -> None:
    (small_src := small(tmp_path)).joinpath("more").write_bytes(b"x" * 3_000_000)
    items = staged(job(small_src), root, "application_1_1")
    store = RemoteStore(root)
    assert store.verify_all() == {}
    modes = {registry.filesystem(root).stat(item.uri).mode for item in items}
    assert modes == {0o600}
    jobfolder.remove(root, "application_1_1")
    gone = list(garbage.collect(root, 0, ended=lambda app_id: True, settle_s=0.0))
    assert len(gone) >= len(items)
    assert store.names(store.objects) == store.names(store.leases) == []


def _safe_mode(cluster: Hadoop, root: str) -> None:
    cluster.safe_mode(True)


def _stranger(cluster: Hadoop, root: str) -> None:
    registry.filesystem(root).mkdir(root, 0o700)
    as_user(cluster, "stranger")


def _quota(cluster: Hadoop, root: str) -> None:
    registry.filesystem(root).mkdir(root, 0o700)
    path = root[len(cluster.default_fs) :]
    cluster.tool("org.apache.hadoop.hdfs.tools.DFSAdmin", "-setSpaceQuota", "1k", path)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (_safe_mode, "safe mode"),
        (_stranger, "TonY asks as 'stranger'"),
        (_quota, "quota.*tony gc"),
    ],
    ids=["safe mode", "permission", "quota"],
)
def test_refusals_in_one_line(
    hadoop: GetHadoop,
    root: str,
    tmp_path: Path,
    break_it: Callable[[Hadoop, str], None],
    words: str,
) -> None:
    root += f"-{break_it.__name__}"
    src = small(tmp_path)
    break_it(hadoop(), root)
    with pytest.raises(staging_errors.StagingError, match=words) as caught:
        staged(job(src), root, "application_1_1")
    assert "\n" not in str(caught.value), str(caught.value)
    hadoop().heal()
    as_user(hadoop(), "root")
    assert RemoteStore(root).names(f"{root}/store/leases") == []


def test_no_space(hadoop: GetHadoop, tmp_path: Path) -> None:
    cluster = hadoop("no_space")
    as_user(cluster, "root")
    root = f"{cluster.default_fs}/user/root/.tony"
    with pytest.raises(staging_errors.StagingError, match=r"no DataNode.*tony gc"):
        staged(job(small(tmp_path)), root, "application_1_1")
    store = RemoteStore(root)
    assert store.names(store.leases) == store.names(store.tmp) == []
