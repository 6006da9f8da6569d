"""HDFS by our own client, on the real thing: versions, pairs, failures, odd names, sizes."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, List
from urllib.parse import quote

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.files.location import base_name, join
from tony_core.files.registry import filesystem
from tony_core.files.webhdfs.client import TEMPORARY
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration

pytestmark = pytest.mark.cluster

MB = 1 << 20

Connect = Callable[..., WebHdfsFileSystem]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """``connect(cluster)``: its file system as its superuser, or as another user."""
    made: List[WebHdfsFileSystem] = []

    def client(cluster: Hadoop, user: str = "", patience_s: float = 30.0) -> WebHdfsFileSystem:
        conf = SiteConfiguration.load({"HADOOP_CONF_DIR": str(cluster.conf_dir)})
        made.append(
            WebHdfsFileSystem(conf, ClusterIdentity(user or cluster.user), patience_s=patience_s)
        )
        return made[-1]

    yield client
    for one in made:
        one.close()


def fresh(files: WebHdfsFileSystem) -> str:
    """An empty folder."""
    folder = f"hdfs:///files-test-{os.urandom(4).hex()}"
    files.mkdir(folder, 0o755)
    return folder


def names(files: WebHdfsFileSystem, folder: str) -> List[str]:
    return [base_name(one.location) for one in files.list(folder)]


@pytest.mark.parametrize("version", ["3.4.2", "3.3.6"])
class TestEveryVersion:
    @pytest.fixture
    def files(self, hadoop: GetHadoop, connect: Connect, version: str) -> WebHdfsFileSystem:
        self.cluster = hadoop(version=version)
        return connect(self.cluster)

    def test_files_come_back_as_they_went(self, files: WebHdfsFileSystem, tmp_path: Path) -> None:
        folder = fresh(files)
        files.put(f"{folder}/a", b"old", 0o600)
        files.put(f"{folder}/a", b"0123456789", 0o640)
        found = files.stat(f"{folder}/a")
        assert (found.size, found.mode, found.is_dir) == (10, 0o640, False)
        assert (found.owner, found.group) == (self.cluster.user, "supergroup")
        assert abs(found.mtime_ms / 1000 - time.time()) < 60
        assert files.get(f"{folder}/a") == b"0123456789"
        for offset in (1, 9, 10, 11):
            with files.open(f"{folder}/a", offset) as stream:
                assert stream.read() == b"0123456789"[offset:]
        (tmp_path / "x").write_bytes(b"local")
        files.upload(str(tmp_path / "x"), f"{folder}/x", 0o755)
        files.write(f"{folder}/empty", lambda stream: None)
        assert files.get(f"{folder}/empty") == b""
        files.put(f"{folder}/nothing", b"")
        assert [(base_name(one.location), one.size, one.mode) for one in files.list(folder)] == [
            ("a", 10, 0o640),
            ("empty", 0, 0o644),
            ("nothing", 0, 0o644),
            ("x", 5, 0o755),
        ]
        assert files.list(f"{folder}/x/../../{base_name(folder)}") != []

    def test_modes_are_exact_and_folders_are_made_with_those_above(
        self, files: WebHdfsFileSystem
    ) -> None:
        folder = fresh(files)
        files.mkdir(f"{folder}/a/b", 0o777)
        files.mkdir(f"{folder}/a/b", 0o700)  # there already
        assert files.stat(f"{folder}/a/b").mode == 0o777
        files.chmod(f"{folder}/a/b", 0o1770)
        assert files.stat(f"{folder}/a/b").mode == 0o1770
        with pytest.raises(FileNotFoundError):
            files.chmod(f"{folder}/none", 0o700)

    def test_rename_replaces_a_file_and_never_a_folder(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        files.put(f"{folder}/a", b"a")
        files.put(f"{folder}/b", b"b")
        files.rename(f"{folder}/a", f"{folder}/b")
        assert names(files, folder) == ["b"] and files.get(f"{folder}/b") == b"a"
        files.rename(f"{folder}/b", f"{folder}/b")
        files.mkdir(f"{folder}/empty")
        files.mkdir(f"{folder}/other")
        for source, target, kind in (
            ("other", "empty", FileExistsError),
            ("other", "b", FileExistsError),
            ("b", "empty", IsADirectoryError),
            ("none", "c", FileNotFoundError),
            ("b", "none/c", FileNotFoundError),
        ):
            with pytest.raises(kind):
                files.rename(f"{folder}/{source}", f"{folder}/{target}")
        files.rename(f"{folder}/other", f"{folder}/moved")
        assert names(files, folder) == ["b", "empty", "moved"]

    def test_delete(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        files.mkdir(f"{folder}/a/b/c")
        files.put(f"{folder}/a/b/f", b"x")
        assert files.delete(f"{folder}/a") and not files.delete(f"{folder}/a")
        assert names(files, folder) == []

    def test_refusals_are_pythons_errors(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        files.put(f"{folder}/f", b"x")
        for action, kind in (
            (lambda: files.stat(f"{folder}/none"), FileNotFoundError),
            (lambda: files.open(f"{folder}/none"), FileNotFoundError),
            (lambda: files.list(f"{folder}/none"), FileNotFoundError),
            (lambda: files.checksum(f"{folder}/none"), FileNotFoundError),
            (lambda: files.list(f"{folder}/f"), NotADirectoryError),
            (lambda: files.open(folder), IsADirectoryError),
            (lambda: files.put(folder, b""), IsADirectoryError),
            (lambda: files.put(f"{folder}/none/f", b""), FileNotFoundError),
            (lambda: files.put(f"{folder}/f/g", b""), NotADirectoryError),
            (lambda: files.mkdir(f"{folder}/f"), FileExistsError),
            (lambda: files.mkdir(f"{folder}/f/g"), NotADirectoryError),
        ):
            with pytest.raises(kind) as caught:
                action()
            assert folder in str(caught.value.filename)
        with pytest.raises(OSError, match="does not allow such a name"):
            files.put(f"{folder}/a:b", b"")
        assert names(files, folder) == ["f"]

    def test_a_denied_user_is_named(self, files: WebHdfsFileSystem, connect: Connect) -> None:
        folder = fresh(files)
        files.put(f"{folder}/f", b"x", 0o600)
        other = connect(self.cluster, "bob")
        for action in (
            lambda: other.put(f"{folder}/g", b""),
            lambda: other.open(f"{folder}/f"),
            lambda: other.delete(f"{folder}/f"),
            lambda: other.chmod(folder, 0o777),
        ):
            with pytest.raises(PermissionError, match="TonY asks as 'bob'"):
                action()
        assert names(files, folder) == ["f"]

    def test_any_name_that_hdfs_takes(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        odd = [
            "a b", "50%", "%41", "a+b", "a&b=c", "q?x", "h#x", "x;y", "ü€🎉", "'q\"", "\\n\\",
            "a\tb", "[x]{y}", "~", "a@b", "^|<>`", ".hidden", "-x", "*", "...", "$x",
        ]  # fmt: skip
        for name in odd:
            files.put(f"{folder}/{quote(name)}", name.encode())
        assert sorted(names(files, folder)) == sorted(odd)
        for one in files.list(folder):
            assert files.get(one.location).decode() == base_name(one.location)
            assert files.stat(one.location).size == one.size
            files.rename(one.location, one.location + "%20new%2B")
        assert sorted(names(files, folder)) == sorted(f"{name} new+" for name in odd)
        for one in files.list(folder):
            assert files.delete(one.location)

    def test_a_large_folder_is_listed_in_pages(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        threads = [
            threading.Thread(
                target=lambda start=start: [  # type: ignore[misc]
                    files.mkdir(f"{folder}/{number:05}") for number in range(start, 2100, 4)
                ]
            )
            for start in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert names(files, folder) == [f"{number:05}" for number in range(2100)]

    def test_a_large_file_streams_both_ways(self, files: WebHdfsFileSystem, tmp_path: Path) -> None:
        folder = fresh(files)
        piece, sent = os.urandom(MB), hashlib.sha256()

        def produce(stream: BinaryIO) -> None:
            for number in range(300):  # three blocks of HDFS
                part = number.to_bytes(2, "big") + piece[: MB - number]
                sent.update(part)
                stream.write(part)

        files.write(f"{folder}/large", produce)
        size = files.stat(f"{folder}/large").size
        read, count = hashlib.sha256(), 0
        with files.open(f"{folder}/large") as stream:
            while block := stream.read(3 * MB + 1):
                read.update(block)
                count += len(block)
        assert (count, read.digest()) == (size, sent.digest())
        local = tmp_path / "local"
        with files.open(f"{folder}/large") as stream, local.open("wb") as copy:
            copy.write(stream.read())
        files.upload(str(local), f"{folder}/again")
        assert files.checksum(f"{folder}/again") == files.checksum(f"{folder}/large")
        with files.open(f"{folder}/again", size - 3) as stream:
            assert stream.read() == piece[: MB - 299][-3:]
        files.delete(folder)

    def test_a_failed_write_changes_nothing(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        files.put(f"{folder}/f", b"old")
        for size in (10, 5 * MB):

            def produce(stream: BinaryIO, size: int = size) -> None:
                stream.write(bytes(size))
                raise RuntimeError("no more")

            with pytest.raises(RuntimeError):
                files.write(f"{folder}/f", produce)
        assert names(files, folder) == ["f"] and files.get(f"{folder}/f") == b"old"

    def test_readers_see_the_old_file_or_the_new_one(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        target = f"{folder}/state"
        files.put(target, b"0" * 1000)
        seen, stop = [], threading.Event()

        def read() -> None:
            while not stop.is_set():
                seen.append(set(files.get(target)))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, 10):
                files.put(target, str(number).encode() * 1000)
        finally:
            stop.set()
            reader.join()
        assert all(len(one) == 1 for one in seen)
        assert names(files, folder) == ["state"]

    def test_a_quota_that_is_used_up(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        admin = "org.apache.hadoop.hdfs.tools.DFSAdmin"
        path = folder[len("hdfs://") :]
        self.cluster.tool(admin, "-setQuota", "2", path)
        files.put(f"{folder}/f", b"x")
        with pytest.raises(OSError, match="quota of HDFS is used up") as caught:
            files.put(f"{folder}/g", b"x")
        assert caught.value.errno == errno.EDQUOT
        files.delete(f"{folder}/f")
        self.cluster.tool(admin, "-clrQuota", path)
        self.cluster.tool(admin, "-setSpaceQuota", "1000", path)
        with pytest.raises(OSError, match="quota of HDFS is used up") as caught:
            files.put(f"{folder}/g", b"x")
        assert caught.value.errno == errno.EDQUOT
        assert names(files, folder) == []

    def test_safe_mode(self, files: WebHdfsFileSystem) -> None:
        folder = fresh(files)
        files.put(f"{folder}/f", b"x")
        self.cluster.safe_mode(True)
        try:
            for action in (
                lambda: files.mkdir(f"{folder}/d"),
                lambda: files.put(f"{folder}/f", b"y"),
                lambda: files.delete(f"{folder}/f"),
            ):
                with pytest.raises(OSError, match="HDFS is in safe mode") as caught:
                    action()
                assert caught.value.errno == errno.EROFS
            assert files.get(f"{folder}/f") == b"x"
        finally:
            self.cluster.safe_mode(False)
        files.put(f"{folder}/f", b"y")


class TestTrouble:
    def test_no_space(self, hadoop: GetHadoop, connect: Connect) -> None:
        files = connect(hadoop("no_space"))
        folder = fresh(files)
        with pytest.raises(OSError, match="no DataNode that can take the data") as caught:
            files.put(f"{folder}/f", b"x")
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError) as caught:
            files.write(f"{folder}/f", lambda stream: stream.write(bytes(20 * MB)))
        assert caught.value.errno == errno.ENOSPC
        assert names(files, folder) == []

    @pytest.mark.nightly
    def test_the_data_node_is_down(self, hadoop: GetHadoop, connect: Connect) -> None:
        cluster = hadoop()
        files = connect(cluster)
        folder = fresh(files)
        files.put(f"{folder}/f", b"x")
        node = cluster.web("dn0")
        cluster.kill("dn0")
        try:
            for action in (
                lambda: files.put(f"{folder}/g", b"x"),
                lambda: files.get(f"{folder}/f"),
                lambda: files.checksum(f"{folder}/f"),
            ):
                with pytest.raises(OSError) as caught:
                    action()
                assert node in str(caught.value) or "no DataNode" in str(caught.value)
            assert names(files, folder) == ["f"]
        finally:
            cluster.start("dn0")
            cluster.wait_ready()
        assert files.get(f"{folder}/f") == b"x"

    @pytest.mark.nightly
    def test_the_name_node_restarts(self, hadoop: GetHadoop, connect: Connect) -> None:
        cluster = hadoop()
        files = connect(cluster)
        folder = fresh(files)
        cluster.stop_nn()
        starter = threading.Timer(1.0, lambda: cluster.start("nn0"))
        starter.start()
        try:
            assert files.stat(folder).is_dir  # waited for
        finally:
            starter.join()
            cluster.wait_ready()
        hasty = connect(cluster, patience_s=0.5)
        cluster.stop_nn()
        try:
            with pytest.raises(OSError, match=r"did not serve us.*Connection refused"):
                hasty.stat(folder)
        finally:
            cluster.start("nn0")
            cluster.wait_ready()

    def test_another_name_node_takes_over(self, hadoop: GetHadoop, connect: Connect) -> None:
        cluster = hadoop("nn_ha")
        files = connect(cluster)
        assert cluster.default_fs == "hdfs://sandbox"
        folder = fresh(files)
        done: List[int] = []
        wrong: List[BaseException] = []
        stop = threading.Event()

        def work() -> None:
            try:
                while not stop.is_set():
                    number = len(done)
                    files.put(f"{folder}/{number}", b"%d" % number)
                    files.rename(f"{folder}/{number}", f"hdfs://sandbox/{base_name(folder)}/r")
                    assert files.get(f"{folder}/r") == b"%d" % number
                    assert files.delete(f"{folder}/r")
                    done.append(number)
            except BaseException as error:
                wrong.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(2):
                before = len(done)
                cluster.fail_over_hdfs()
                deadline = time.monotonic() + 30
                while len(done) < before + 3 and not wrong and time.monotonic() < deadline:
                    time.sleep(0.05)
                assert len(done) >= before + 3 or wrong
        finally:
            stop.set()
            worker.join()
        assert wrong == []
        assert names(files, folder) == []

    @pytest.mark.nightly
    def test_the_active_name_node_dies(self, hadoop: GetHadoop, connect: Connect) -> None:
        cluster = hadoop("nn_ha")
        files = connect(cluster)
        folder = fresh(files)
        active = next(
            name for name in cluster.names("nn") if cluster.webhdfs_url.endswith(cluster.web(name))
        )
        other = next(name for name in cluster.names("nn") if name != active)
        begun = threading.Event()
        go = threading.Event()

        def produce(stream: BinaryIO) -> None:
            stream.write(bytes(2 * MB))
            begun.set()
            assert go.wait(60)
            stream.write(bytes(2 * MB))

        writer = threading.Thread(target=lambda: files.write(f"{folder}/f", produce))
        writer.start()
        try:
            assert begun.wait(60)
            cluster.kill(active)
            cluster.name_nodes.activate(other)
        finally:
            go.set()
            writer.join()
        assert files.stat(f"{folder}/f").size == 4 * MB
        assert names(files, folder) == ["f"]

    def test_the_files_of_a_dead_writer_are_hidden_and_known(
        self, hadoop: GetHadoop, connect: Connect
    ) -> None:
        files = connect(hadoop())
        folder = fresh(files)
        seen: List[str] = []
        files.write(f"{folder}/f", lambda stream: seen.extend(_during(files, folder, stream)))
        (temporary,) = seen
        assert temporary.startswith(TEMPORARY) and TEMPORARY.startswith(".")


def _during(files: WebHdfsFileSystem, folder: str, stream: BinaryIO) -> List[str]:
    stream.write(bytes(3 * MB))
    deadline = time.monotonic() + 20
    while not (found := names(files, folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


class TestTheSchemes:
    def test_by_the_sites_configuration(
        self, hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster = hadoop()
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_dir))
        monkeypatch.setenv("HADOOP_USER_NAME", "carol")
        files = filesystem("hdfs:///tmp")
        assert isinstance(files, WebHdfsFileSystem) and files.user == "carol"
        assert files.stat("hdfs:///").is_dir and files.stat("/").is_dir
        full = join(cluster.default_fs, "")
        assert files.stat(full).is_dir
        web = cluster.web("nn0")
        monkeypatch.delenv("HADOOP_CONF_DIR")
        assert filesystem("webhdfs://x/").stat(f"webhdfs://{web}/").is_dir
