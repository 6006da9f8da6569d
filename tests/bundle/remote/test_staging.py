"""Staging below a cluster's root."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from tests.bundle.conftest import Site
from tests.bundle.fakecluster import ROOT, FakeCluster, fresh
from tests.bundle.jobs import job, messages_of, ref, snapshot
from tony_core.bundle import jobfolder
from tony_core.bundle.client import planning, staging, staging_errors
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.destination import home_store
from tony_core.bundle.remote.garbage import remove_damaged
from tony_core.bundle.remote.store import RemoteStore
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.port import UnsupportedLocation
from tony_core.job.problems import JobError, Severity
from tony_core.job.spec import Job

whole_runtime = runtimes.source_files


def small_runtime() -> Dict[str, str]:
    """So that not each test compiles all of our code."""
    files = whole_runtime()
    return {name: files[name] for name in ("__main__.py", "tony_core/version.py")}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(runtimes, "source_files", small_runtime)
    return fresh(tmp_path / "hdfs")


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "inside").symlink_to("train.py")
    (folder / "outside").symlink_to("/usr/bin/python3")
    (folder / "empty" / ("n" * 150)).write_bytes(b"long")
    return folder


def staged(what: Job, app_id: str = "application_1_0001") -> List[Artifact]:
    plan = planning.plan(what, ROOT)
    assert plan.errors == [], plan.problems
    return list(staging.stage(plan, ROOT, app_id, what, b"secret"))


def named(items: List[Artifact], name: str) -> Artifact:
    [found] = [item for item in items if item.name == name]
    return found


def unpacked(cluster: FakeCluster, item: Artifact, folder: Path) -> Path:
    """As a node does it."""
    folder.mkdir()
    with open(cluster.path(item.uri), "rb") as stream:
        subprocess.run(["tar", "xf", "-"], cwd=folder, stdin=stream, check=True)
    return folder


def test_planning_writes_nothing(cluster: FakeCluster, tmp_path: Path, src: Path) -> None:
    before = snapshot(src)
    plan = planning.plan(job(src), ROOT)
    assert cluster.names() == [] and not (tmp_path / "home").exists()
    assert plan.upload_bytes > 0 and [item.present for item in plan.uploads] == [False, False]
    assert set(cluster.took()) == {"list"}
    assert snapshot(src) == before


def test_a_folder_arrives_as_it_was(cluster: FakeCluster, tmp_path: Path, src: Path) -> None:
    os.utime(src / "train.py", (1_500_000_000, 1_500_000_000))
    item = named(staged(job(src)), "tony-src")
    assert (item.kind, item.use) == (Kind.ARCHIVE, Use.SOURCE)
    assert item.uri == f"{ROOT}/store/objects/{item.digest}/content.tar"
    on_disk = os.stat(cluster.path(item.uri))
    assert (item.size, item.mtime_ms) == (on_disk.st_size, on_disk.st_mtime_ns // 1_000_000)
    out = unpacked(cluster, item, tmp_path / "out")
    assert (out / "train.py").read_text() == "print(1)"
    assert (out / "train.py").stat().st_mtime == 1_500_000_000  # bytecode depends on it
    assert os.access(out / "run.sh", os.X_OK) and not (out / "train.py").stat().st_mode & 0o111
    assert (out / "empty").is_dir()
    assert os.readlink(out / "inside") == "train.py"
    assert os.readlink(out / "outside") == "/usr/bin/python3"
    assert (out / "empty" / ("n" * 150)).read_bytes() == b"long"
    with tarfile.open(cluster.path(item.uri)) as tar:
        assert {(member.uid, member.gid) for member in tar} == {(0, 0)}
    local = planning.plan(job(src), str(tmp_path / "root"))
    assert named(list(local.artifacts), "tony-src").digest == item.digest


def test_the_runtime_runs(cluster: FakeCluster, tmp_path: Path, src: Path) -> None:
    item = named(staged(job(src)), "tony-runtime")
    assert item.kind is Kind.ARCHIVE
    out = unpacked(cluster, item, tmp_path / "tony-runtime")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(out)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2 and "yarn-start" in done.stderr
    assert list(out.glob("tony_core/__pycache__/*.pyc"))


def test_only_the_user_may_read(cluster: FakeCluster, src: Path) -> None:
    staged(job(src))
    top = Path(cluster.path(ROOT))
    for path in (top, *top.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_home_that_was_not_there_is_for_all_to_enter(cluster: FakeCluster, src: Path) -> None:
    RemoteStore(ROOT).prepare()
    home, root = cluster.stat(ROOT.rpartition("/")[0]), cluster.stat(ROOT)
    assert (home.mode, root.mode) == (0o755, 0o700)
    users = cluster.stat(ROOT.rpartition("/")[0].rpartition("/")[0])
    assert users.mode == 0o755


def test_a_store_that_stands_open_is_closed(cluster: FakeCluster, src: Path) -> None:
    staged(job(src))
    os.chmod(cluster.path(f"{ROOT}/store"), 0o755)
    staged(job(src), "application_1_0002")
    assert stat.S_IMODE(os.stat(cluster.path(f"{ROOT}/store")).st_mode) == 0o700


def test_the_second_submit_costs_a_few_calls(cluster: FakeCluster, src: Path) -> None:
    first = staged(job(src, files=(ref(src / "train.py"),)))
    cluster.took()
    before = snapshot(Path(cluster.path(f"{ROOT}/store/objects")))
    plan = planning.plan(job(src, files=(ref(src / "train.py"),)), ROOT)
    assert plan.upload_bytes == 0 and list(plan.artifacts) == first  # exact before staging, too
    assert cluster.took() == {"list": 3}
    second = staging.stage(plan, ROOT, "application_1_0002", job(src), b"")
    assert list(second) == first
    assert cluster.took() == {"stat": 1, "mkdir": 3, "list": 3}
    assert snapshot(Path(cluster.path(f"{ROOT}/store/objects"))) == before


def test_leases_are_empty_folders_and_go_at_the_end(cluster: FakeCluster, src: Path) -> None:
    items = staged(job(src))
    digests = sorted(item.digest for item in items)
    assert cluster.names("store/leases/application_1_0001") == digests
    Path(cluster.path(f"{ROOT}/apps/application_1_0001")).mkdir(parents=True)
    cluster.took()
    jobfolder.remove(ROOT, "application_1_0001")
    assert cluster.names("store/leases") == [] and cluster.names("apps") == []
    [mark] = [name for name in cluster.names("store/used") if "/" not in name]
    assert mark.endswith(".application_1_0001")
    jobfolder.remove(ROOT, "application_1_0001")  # again: silence
    with pytest.raises(ValueError, match="not an application id"):
        jobfolder.remove(ROOT, "../objects")


# ---------------------------------------------------------------------- archives and files


def test_archives_arrive_in_a_form_that_nodes_unpack(
    cluster: FakeCluster, tmp_path: Path, src: Path
) -> None:
    for name, mode in (("a.tar.gz", "w:gz"), ("b.tar", "w"), ("c.tar.xz", "w:xz")):
        with tarfile.open(tmp_path / name, mode) as out:  # type: ignore[call-overload]
            out.add(src, ".")
    with zipfile.ZipFile(tmp_path / "plain.dat", "w") as packed:
        packed.writestr("x", "x")
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as packed:
        packed.writestr("bin/python3", "x")
        link = zipfile.ZipInfo("bin/python")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "python3")
    sources = ("a.tar.gz", "b.tar", "c.tar.xz", "plain.dat", "links.zip")
    what = job(src, files=tuple(ref(tmp_path / name, name, archive=True) for name in sources))
    items = staged(what)
    ends = {name: named(items, name).uri.rpartition("/content")[2] for name in sources}
    assert ends == {
        "a.tar.gz": ".tar.gz",
        "b.tar": ".tar",
        "c.tar.xz": ".tar",
        "plain.dat": ".zip",
        "links.zip": ".tar",
    }
    assert {item.kind for item in items} == {Kind.ARCHIVE}
    same = Path(cluster.path(named(items, "a.tar.gz").uri)).read_bytes()
    assert same == (tmp_path / "a.tar.gz").read_bytes()
    out_folder = unpacked(cluster, named(items, "c.tar.xz"), tmp_path / "xz")
    assert (out_folder / "train.py").read_text() == "print(1)"
    out_folder = unpacked(cluster, named(items, "links.zip"), tmp_path / "zip")
    assert os.readlink(out_folder / "bin" / "python") == "python3"
    # What was read whole once is not read again.
    assert staged(what, "application_1_0002") == items


def test_the_same_bytes_as_file_and_as_archive(
    cluster: FakeCluster, tmp_path: Path, src: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as out:
        out.writestr("x", "x")
    both = (ref(tmp_path / "d.zip", "data", archive=True), ref(tmp_path / "d.zip"))
    items = staged(job(src, files=both))
    assert named(items, "data").kind is Kind.ARCHIVE and named(items, "d.zip").kind is Kind.FILE
    assert named(items, "data").uri.endswith("content.zip")
    assert named(items, "d.zip").uri.endswith("/content")


def test_what_stands_on_the_cluster_is_used_there(
    cluster: FakeCluster, tmp_path: Path, src: Path
) -> None:
    here = cluster.folder / "data"
    here.mkdir()
    (here / "v.tar.gz").write_bytes(b"12345")
    os.utime(here / "v.tar.gz", (7, 7))
    (here / "v.tar.xz").write_bytes(b"12345")
    plan = planning.plan(job(src, venv="fake://cluster/data/v.tar.gz"), ROOT)
    venv = named(list(plan.artifacts), "venv")
    assert (venv.uri, venv.digest) == ("fake://cluster/data/v.tar.gz", "")
    assert (venv.size, venv.mtime_ms, venv.kind) == (5, 7000, Kind.ARCHIVE)
    [wrong] = messages_of(planning.plan(job(src, venv="fake://cluster/data/v.tar.xz"), ROOT))
    assert "do not unpack it" in wrong and ".tar.gz" in wrong
    (here / "v.zip").write_bytes(b"12345")
    doubts = messages_of(
        planning.plan(job(src, venv="fake://cluster/data/v.zip"), ROOT), Severity.WARNING
    )
    assert [words for words in doubts if "no symbolic links from a zip" in words]
    folder = named(
        list(planning.plan(job(src, files=(ref("fake://cluster/data", "d"),)), ROOT).artifacts), "d"
    )
    assert (folder.kind, folder.uri) == (Kind.FOLDER, "fake://cluster/data")


def test_what_stands_on_the_web_goes_through_the_store(
    cluster: FakeCluster, src: Path, web: Site
) -> None:
    url = f"http://me:pw@{web.address}/one.zip"
    web.put("one.zip", b"1234567", mtime=5)
    items = staged(job(src, venv=url, files=(ref(url, "one"),)))
    venv, one = named(items, "venv"), named(items, "one")
    assert venv.uri.endswith("/content.zip") and one.uri.endswith("/content")
    assert "pw" not in repr(items)
    assert Path(cluster.path(venv.uri)).read_bytes() == b"1234567" and venv.size == 7
    assert staged(job(src, venv=url, files=(ref(url, "one"),)), "application_1_0002") == items


def test_a_published_runtime(cluster: FakeCluster, src: Path) -> None:
    place = "fake://cluster/tony/tony-runtime.tar"
    os.chmod(cluster.folder, 0o755)
    with pytest.raises(ValueError, match=r"must end in \.tar"):
        staging.publish_runtime("fake://cluster/tony/runtime.zip")
    size = staging.publish_runtime(place)
    found = cluster.stat(place)
    assert (found.size, found.mode) == (size, 0o644)
    what = job(src)
    what = what.replace(runtime=type(what.runtime)(python=sys.executable, location=place))
    runtime = named(staged(what), "tony-runtime")
    assert (runtime.uri, runtime.digest, runtime.kind) == (place, "", Kind.ARCHIVE)
    assert (runtime.size, runtime.mtime_ms) == (size, found.mtime_ms)
    os.chmod(cluster.folder / "tony", 0o700)
    with pytest.raises(PermissionError, match=r"o\+x"):
        staging.publish_runtime(place)


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("verb", ["stat", "mkdir", "list", "write", "rename", "checksum"])
def test_a_failure_leaves_no_lease_and_no_half_object(
    cluster: FakeCluster, src: Path, verb: str
) -> None:
    plan = planning.plan(job(src), ROOT)
    cluster.fail[verb] = OSError(errno.EROFS, "HDFS is in safe mode", "fake://cluster/x")
    with pytest.raises(staging_errors.StagingError, match="HDFS is in safe mode"):
        staging.stage(plan, ROOT, "application_1_0001", job(src), b"")
    del cluster.fail[verb]
    left = [name for name in cluster.names() if "content" in name or "application" in name]
    assert left == []
    assert len(staged(job(src))) == 2


def test_an_interrupt_leaves_nothing_of_the_job(cluster: FakeCluster, src: Path) -> None:
    plan = planning.plan(job(src), ROOT)
    cluster.fail["write"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        staging.stage(plan, ROOT, "application_1_0001", job(src), b"")
    assert [name for name in cluster.names("store") if "application" in name] == []


def denied(access: str, path: str, owner: str, mode: str) -> PermissionError:
    """In a NameNode's words."""
    denial = f'Permission denied: user=eve, access={access}, inode="{path}":{owner}:staff:{mode}'
    return PermissionError(errno.EACCES, f"{denial} (TonY asks as 'eve')", "x")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EDQUOT, "a quota is used up", "x"), "tony gc"),
        (OSError(errno.ENOSPC, "no DataNode can take it", "x"), "tony gc"),
        (PermissionError(errno.EACCES, "denied", "x"), "tony.yarn.staging-dir names another place"),
        (
            denied("WRITE", "/user", "hdfs", "drwxr-xr-x"),
            "the administrator can make fake://cluster/user/me and give it to you",
        ),
        (
            denied("EXECUTE", "/user/me/.tony", "root", "drwx------"),
            r"\]; /user/me/.tony is root's \(drwx------\): name a folder of your own by"
            " tony.yarn.staging-dir$",
        ),
        (
            denied("EXECUTE", "/user", "hdfs", "drwx------"),
            r"\]; /user is hdfs's \(drwx------\): name",
        ),
        (
            denied("WRITE", "/user/me", "eve", "dr-x------"),
            r"\]; /user/me is your own \(dr-x------\): change its mode",
        ),
        (UnsupportedLocation(errno.EPROTO, "set HADOOP_CONF_DIR", "x"), "^set HADOOP_CONF_DIR$"),
    ],
)
def test_refusals_have_a_remedy(
    cluster: FakeCluster, src: Path, error: OSError, words: str
) -> None:
    plan = planning.plan(job(src), ROOT)
    cluster.fail["mkdir"] = error
    with pytest.raises(staging_errors.StagingError, match=words) as caught:
        staging.stage(plan, ROOT, "application_1_0001", job(src), b"")
    assert "\n" not in str(caught.value)
    cluster.fail = {"list": error}
    with pytest.raises(staging_errors.StagingError):
        planning.plan(job(src), ROOT)


def _shorter(path: str) -> None:
    with open(path, "r+b") as stream:
        stream.truncate(100)


def _touched(path: str) -> None:
    os.utime(path, (1, 1))


def _removed(path: str) -> None:
    os.unlink(path)


@pytest.mark.parametrize(
    ("harm", "words"),
    [(_shorter, "has 100 bytes, but had"), (_touched, "was written to"), (_removed, "is missing")],
)
def test_a_damaged_object_is_reported_in_one_line(
    cluster: FakeCluster, src: Path, harm: Callable[[str], None], words: str
) -> None:
    item = named(staged(job(src)), "tony-src")
    harm(cluster.path(item.uri))
    with pytest.raises(staging_errors.StagingError, match=words) as caught:
        planning.plan(job(src), ROOT)
    assert str(caught.value).startswith(f"a staged file is damaged: {item.uri} {words}")
    remedy = f"tony gc --scheduler yarn --verify --remove --staging-dir {ROOT} removes it"
    assert str(caught.value).endswith(f"; {remedy}: then submit again")
    store = RemoteStore(ROOT)
    assert remove_damaged(store, store.verify_all(), lambda app_id: True) == {}
    assert named(staged(job(src), "application_1_0002"), "tony-src").digest == item.digest


def test_other_bytes_of_the_same_size_and_time_are_found_by_the_checksum(
    cluster: FakeCluster, src: Path
) -> None:
    item = named(staged(job(src)), "tony-src")
    store = RemoteStore(ROOT)
    assert store.verify(item.digest) is None
    path = cluster.path(item.uri)
    found = os.stat(path)
    with open(path, "r+b") as stream:
        stream.write(b"X")
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert planning.plan(job(src), ROOT).errors == []
    wrong = store.verify(item.digest)
    assert str(wrong) == f"{item.uri} has another checksum than when it was staged"
    assert {name: str(error) for name, error in store.verify_all().items()} == {
        item.digest: str(wrong)
    }
    assert store.verify("0" * 64) is None


@pytest.mark.parametrize("number", [0, 2])
def test_an_object_must_hold_one_file(cluster: FakeCluster, src: Path, number: int) -> None:
    item = named(staged(job(src)), "tony-src")
    if number:
        Path(f"{cluster.path(item.uri)}.copy").touch()
    else:
        os.unlink(cluster.path(item.uri))
    folder = item.uri.rpartition("/")[0]
    assert str(RemoteStore(ROOT).verify(item.digest)) == f"{folder} holds {number} files"


def test_an_upload_that_lost_bytes_is_noticed(
    cluster: FakeCluster, src: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeCluster.write

    def cut(self: FakeCluster, location: str, produce: object, mode: int = 0o644) -> None:
        whole(self, location, produce, mode)  # type: ignore[arg-type]
        _shorter(self.path(location))

    monkeypatch.setattr(FakeCluster, "write", cut)
    with pytest.raises(staging_errors.StagingError, match="has 100 bytes after an upload of"):
        staged(job(src))
    assert cluster.names("store/objects") == []


@pytest.mark.parametrize("young", [True, False])
def test_a_source_that_changes_while_it_travels(
    cluster: FakeCluster, src: Path, young: bool
) -> None:
    if not young:
        os.utime(src / "train.py", (1, 1))
    plan = planning.plan(job(src), ROOT)
    (src / "train.py").write_text("print(2)")
    with pytest.raises(JobError, match=r"train\.py was changed while it was being staged"):
        staging.stage(plan, ROOT, "application_1_0001", job(src), b"")
    (src / "train.py").unlink()
    with pytest.raises(JobError, match=r"train\.py was removed while it was being staged"):
        staging.stage(plan, ROOT, "application_1_0001", job(src), b"")
    assert cluster.names("store/leases") == []
    assert [name for name in cluster.names("store/tmp") if name] == []


def test_what_was_learnt_is_kept_on_this_machine(cluster: FakeCluster, src: Path) -> None:
    os.utime(src / "train.py", (1, 1))
    staged(job(src))
    assert os.listdir(home_store().digests)
    assert [name for name in cluster.names("store") if name.startswith("digests")] == []


def test_a_home_that_cannot_be_written_is_no_obstacle(
    cluster: FakeCluster, tmp_path: Path, src: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "file" / "home"))
    assert len(staged(job(src))) == 2


def test_warnings_are_those_of_a_local_root(
    cluster: FakeCluster, tmp_path: Path, src: Path
) -> None:
    local = planning.plan(job(src), str(tmp_path / "root"))
    assert messages_of(planning.plan(job(src), ROOT), Severity.WARNING) == messages_of(
        local, Severity.WARNING
    )
