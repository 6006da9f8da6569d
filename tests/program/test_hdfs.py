"""tony.checkpoints and tony.dataset on HDFS, without Hadoop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import pytest

import tony
import tony_hdfs
import tony_hdfs_client
from tests.program.fakehdfs import FakeHdfs, Refuse
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.identity import hdfs_token_service
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import HDFS_VARIABLE, hdfs_environment
from tony_core.hadoop.tokens import Token


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tony_hdfs_client, "DEADLINE_S", 3.0)
    return tmp_path / "cache"


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    made = FakeHdfs(namenodes=2)
    monkeypatch.setenv(HDFS_VARIABLE, made.environment())
    yield made
    made.close()


class TestCheckpoints:
    def test_bytes(self, hdfs: FakeHdfs, cache: Path) -> None:
        saved = tony.checkpoints("hdfs:///ckpt/run 1/")
        assert saved.latest() is None and saved.steps() == []
        assert saved.save(10, b"ten") == "hdfs://ns/ckpt/run 1/step-0000000010"
        assert hdfs.files["/ckpt/run 1/step-0000000010"] == b"ten"
        newest = saved.latest()
        assert newest is not None and newest[0] == 10
        assert Path(newest[1]).read_bytes() == b"ten"
        assert saved.fetch(10) == newest[1]
        assert all(call.endswith(" ann") for call in hdfs.calls)
        assert [name for name in os.listdir(cache) if name.startswith("save-")] == []

    def test_folders_with_what_is_in_them(self, hdfs: FakeHdfs) -> None:
        def write(path: str) -> None:
            os.makedirs(os.path.join(path, "sub", "empty"))
            for name in ("a", "sub/b"):
                Path(path, name).write_text(name)

        saved = tony.checkpoints("hdfs://ns/c")
        saved.save(1, write)
        assert hdfs.names("/c/step-0000000001/") == [
            f"/c/step-0000000001/{name}" for name in ("a", "sub", "sub/b", "sub/empty")
        ]
        local = Path(saved.latest()[1])
        assert (local / "sub" / "b").read_text() == "sub/b" and (local / "sub" / "empty").is_dir()
        before = hdfs.names("/c/")
        saved.save(1, write)
        assert hdfs.names("/c/") == before

    def test_the_last_few_are_kept_and_a_step_may_be_saved_again(self, hdfs: FakeHdfs) -> None:
        saved = tony.checkpoints("hdfs:///c", keep=2)
        for step in (9, 10, 100, 1000):
            saved.save(step, b"x")
        assert saved.steps() == [100, 1000]
        first = saved.latest()
        saved.save(1000, b"other")
        again = saved.latest()
        assert Path(again[1]).read_bytes() == b"other" and again[1] != first[1]
        assert hdfs.names("/c/") == ["/c/step-0000000100", "/c/step-0000001000"]

    def test_one_that_fails_leaves_the_one_before(self, hdfs: FakeHdfs) -> None:
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, b"good")

        def full(op: str, path: str) -> None:
            if op == "DATA-CREATE":
                raise Refuse("DSQuotaExceededException", "The DiskSpace quota is exceeded")

        hdfs.trouble = full
        with pytest.raises(OSError, match="DiskSpace quota"):
            saved.save(2, b"more")
        hdfs.trouble = lambda op, path: None
        assert saved.steps() == [1] and hdfs.names("/c/") == ["/c/step-0000000001"]
        with pytest.raises(ValueError, match="nothing was written"):
            saved.save(3, lambda path: None)

    def test_in_the_background(self, hdfs: FakeHdfs) -> None:
        gate, reached = threading.Event(), threading.Event()

        def wait(op: str, path: str) -> None:
            if op == "DATA-CREATE":
                reached.set()
                assert gate.wait(10)

        hdfs.trouble = wait
        saved = tony.checkpoints("hdfs:///c", background=True)
        saved.save(1, b"one")
        assert reached.wait(60) and saved.steps() == []
        gate.set()
        saved.wait()
        assert saved.steps() == [1]

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_the_next_save_raises_what_failed_in_the_background(self, hdfs: FakeHdfs) -> None:
        def no(op: str, path: str) -> None:
            if op == "CREATE":
                raise Refuse("AccessControlException", "Permission denied: user=ann")

        hdfs.trouble = no
        saved = tony.checkpoints("hdfs:///c", background=True)
        saved.save(1, b"one")
        with pytest.raises(PermissionError, match="user=ann"):
            saved.save(2, b"two")

    def test_what_a_killed_one_left_goes_after_an_hour(self, hdfs: FakeHdfs) -> None:
        for name in ("making-1-host-9-1", "making-2-host-9-1", "making-of-the-data.txt"):
            hdfs.put(f"/c/{name}", b"half")
        for name in ("making-1-host-9-1", "making-of-the-data.txt"):
            hdfs.changed[f"/c/{name}"] = 1
        saved = tony.checkpoints("hdfs:///c")
        assert saved.latest() is None
        saved.save(3, b"x")
        assert "/c/making-1-host-9-1" not in hdfs.files
        assert {"/c/making-2-host-9-1", "/c/making-of-the-data.txt"} < set(hdfs.files)

    def test_one_forgotten_while_it_is_read(self, hdfs: FakeHdfs) -> None:
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, b"one")

        def forget(op: str, path: str) -> None:
            if op == "OPEN" and path.endswith("1") and path in hdfs.files:
                hdfs.put("/c/step-0000000002", b"two")
                del hdfs.files[path]

        hdfs.trouble = forget
        step, local = saved.latest()
        assert step == 2 and Path(local).read_bytes() == b"two"

    def test_the_folder_of_the_job(self, hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TONY_CHECKPOINT_DIR", "hdfs://ns/x")
        assert tony.checkpoints().folder == "hdfs://ns/x"
        with pytest.raises(ValueError, match="at least one"):
            tony.checkpoints(keep=0)
        with pytest.raises(ValueError, match="not negative"):
            tony.checkpoints().save(-1, b"")


class TestDatasets:
    def test_a_folder_is_fetched_once(self, hdfs: FakeHdfs) -> None:
        hdfs.put("/data/set/part-0", b"0" * 3_000_000)
        hdfs.put("/data/set/deep/part-1", b"1")
        hdfs.put("/data/set/empty", b"")
        local = Path(tony.dataset("hdfs:///data/set"))
        assert (local / "part-0").stat().st_size == 3_000_000
        assert (local / "deep" / "part-1").read_bytes() == b"1"
        assert (local / "empty").read_bytes() == b""
        opened = [call for call in hdfs.calls if call.startswith("OPEN")]
        assert tony.dataset("hdfs://ns/data/set/") == str(local)
        assert [call for call in hdfs.calls if call.startswith("OPEN")] == opened
        hdfs.put("/data/set/deep/part-1", b"another")
        newer = Path(tony.dataset("hdfs:///data/set"))
        assert newer != local and (newer / "deep" / "part-1").read_bytes() == b"another"

    def test_a_file(self, hdfs: FakeHdfs) -> None:
        hdfs.put("/data/points.csv", b"1,2\n")
        local = Path(tony.dataset("hdfs:///data/points.csv"))
        assert local.name == "points.csv" and local.read_bytes() == b"1,2\n"

    def test_what_is_not_there(self, hdfs: FakeHdfs) -> None:
        with pytest.raises(FileNotFoundError, match="File does not exist: /nowhere"):
            tony.dataset("hdfs:///nowhere")

    def test_a_local_one_is_what_it_is(self, tmp_path: Path) -> None:
        assert tony.dataset(str(tmp_path)) == str(tmp_path)
        assert tony.dataset(f"file://{tmp_path}") == str(tmp_path)
        with pytest.raises(ValueError, match="nor on HDFS"):
            tony.dataset("ofs://bucket/x")

    def test_two_processes_at_once_fetch_one_copy(self, hdfs: FakeHdfs) -> None:
        hdfs.put("/d/big", b"x" * 2_000_000)
        code = "import sys, tony; print(tony.dataset(sys.argv[1]))"
        env = {**os.environ, "PYTHONPATH": os.path.dirname(tony.__file__)}
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, "hdfs:///d"], stdout=subprocess.PIPE, env=env
            )
            for _ in range(3)
        ]
        paths = {process.communicate(timeout=60)[0] for process in processes}
        assert len(paths) == 1
        assert len([call for call in hdfs.calls if call.startswith("OPEN")]) == 1


class TestTrouble:
    def test_a_standby_and_a_failover(self, hdfs: FakeHdfs) -> None:
        hdfs.active = 1
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, b"x")
        hdfs.active = 0
        saved.save(2, b"y")
        assert saved.steps() == [1, 2]

    def test_a_transfer_that_breaks_off_goes_on_where_it_was(self, hdfs: FakeHdfs) -> None:
        content = bytes(range(256)) * 8000
        hdfs.put("/d/file", content)
        times = []

        def half(op: str, path: str) -> object:
            if op == "DATA-OPEN":
                times.append(op)
                return "half" if len(times) < 3 else None
            return None

        hdfs.trouble = half
        assert Path(tony.dataset("hdfs:///d/file")).read_bytes() == content
        assert len(times) == 3

    def test_a_rename_whose_answer_is_lost(self, hdfs: FakeHdfs) -> None:
        lost = []

        def lose(op: str, path: str) -> object:
            if op == "RENAME" and not lost:
                lost.append(path)
                return "answer"
            return None

        hdfs.trouble = lose
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, b"x")
        assert lost and hdfs.files["/c/step-0000000001"] == b"x"

    def test_an_upload_that_breaks_off_is_begun_again(self, hdfs: FakeHdfs) -> None:
        tries = []

        def lose(op: str, path: str) -> object:
            if op == "DATA-CREATE":
                tries.append(path)
                return "answer" if len(tries) == 1 else None
            return None

        hdfs.trouble = lose
        tony.checkpoints("hdfs:///c").save(1, b"x")
        assert len(tries) == 2

    def test_no_answer_until_the_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = FakeHdfs()
        monkeypatch.setenv(HDFS_VARIABLE, gone.environment())
        gone.close()
        monkeypatch.setattr(tony_hdfs_client, "DEADLINE_S", 0.3)
        with pytest.raises(OSError, match=r"127\.0\.0\.1:.*did not serve us.*'/x'"):
            tony.dataset("hdfs:///x")

    def test_a_variable_of_ours_that_is_broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(HDFS_VARIABLE, "{}")
        with pytest.raises(ValueError, match="TONY_HDFS cannot be understood"):
            tony.dataset("hdfs:///x")


class TestWhichFileSystem:
    HA = {
        "fs.defaultFS": "hdfs://ns",
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "a,b",
        "dfs.namenode.rpc-address.ns.a": "h1:8020",
        "dfs.namenode.rpc-address.ns.b": "h2:8020",
        "dfs.namenode.http-address.ns.b": "0.0.0.0:50070",
    }
    ONE = {"fs.defaultFS": "hdfs://h1:9000", "dfs.namenode.http-address": "0.0.0.0:9871"}

    @pytest.mark.parametrize("values", [HA, ONE])
    def test_by_hand_it_is_found_as_in_a_job(
        self, values: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in values.items()
        )
        (tmp_path / "core-site.xml").write_text(f"<configuration>{text}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        monkeypatch.setenv("HADOOP_USER_NAME", "ann")
        by_hand = tony_hdfs_client.site()
        conf = SiteConfiguration.load(dict(os.environ))
        monkeypatch.setenv(HDFS_VARIABLE, hdfs_environment(conf, "ann"))
        assert tony_hdfs_client.site() == by_hand
        assert by_hand.user == "ann"

    @pytest.mark.parametrize(
        "data",
        [
            b"", b"<configuration>", b"\xff\xfe<", b"<?xml version='1.0' encoding='klingon'?><c/>",
            b"<?xml version='1.0' encoding='shift_jis'?><c/>",
            b"<configuration><property><name>fs.defaultFS</name><value>hdfs://[</value>"
            b"</property></configuration>",
        ],
    )  # fmt: skip
    def test_a_damaged_file_is_named(
        self, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "core-site.xml").write_bytes(data)
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        monkeypatch.delenv(HDFS_VARIABLE, raising=False)
        with pytest.raises(ValueError, match=r"core-site\.xml|fs\.defaultFS"):
            tony_hdfs_client.site()

    def test_the_variable_nested_too_deeply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(HDFS_VARIABLE, "[" * 100_000)
        with pytest.raises(ValueError, match="TONY_HDFS cannot be understood"):
            tony_hdfs_client.site()

    def test_the_value_of_the_variable(self) -> None:
        assert json.loads(hdfs_environment(SiteConfiguration.of(self.HA), "ann")) == {
            "default_fs": "hdfs://ns",
            "user": "ann",
            "namenodes": {"ns": ["http://h1:9870", "http://h2:50070"]},
        }
        assert hdfs_environment(SiteConfiguration.of({"fs.defaultFS": "file:///"}), "ann") == ""

    @pytest.mark.parametrize(
        ("url", "nodes"),
        [
            ("hdfs:///x", ["http://h1:9870", "http://h2:50070"]),
            ("hdfs://ns/x", ["http://h1:9870", "http://h2:50070"]),
            ("hdfs://other:8020/x", ["http://other:9870"]),
            ("webhdfs://h3:14000/x", ["http://h3:14000"]),
            ("swebhdfs://h3:14000/x", ["https://h3:14000"]),
        ],
    )
    def test_urls(self, url: str, nodes: list, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(HDFS_VARIABLE, hdfs_environment(SiteConfiguration.of(self.HA), "ann"))
        hdfs, path, _ = tony_hdfs.connect(url)
        assert (hdfs.namenodes, path, hdfs.user) == (nodes, "/x", "ann")

    SECURE: dict = {**HA, "hadoop.security.authentication": "kerberos"}

    @pytest.fixture
    def secure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A container of a job on a secure cluster, with two tokens."""
        conf = SiteConfiguration.of(self.SECURE)
        text = hdfs_environment(conf, "ann", partial(hdfs_token_service, conf))
        monkeypatch.setenv(HDFS_VARIABLE, text)
        monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
        tokens = {
            one: Token(one.encode(), b"password", "HDFS_DELEGATION_TOKEN", one)
            for one in ("ha-hdfs:ns", "127.0.0.1:8020")
        }
        Credentials(tokens).write(str(tmp_path / "tokens"))
        return tmp_path / "tokens"

    @pytest.mark.parametrize(
        ("url", "service"),
        [
            ("hdfs:///x", "ha-hdfs:ns"),
            ("hdfs://ns/x", "ha-hdfs:ns"),
            ("webhdfs://h1:9870/x", "ha-hdfs:ns"),
            ("hdfs://localhost/x", "127.0.0.1:8020"),
            ("hdfs://localhost:8020/x", "127.0.0.1:8020"),
        ],
    )
    def test_the_token_of_a_file_system(self, url: str, service: str, secure: Path) -> None:
        hdfs, _, _ = tony_hdfs.connect(url)
        held = Token(service.encode(), b"password", "HDFS_DELEGATION_TOKEN", service)
        assert hdfs.identity() == {"delegation": url_string(held)}

    def test_without_a_token_for_it(self, secure: Path) -> None:
        with pytest.raises(PermissionError, match=r"tony\.other\.namenodes") as caught:
            tony_hdfs.connect("hdfs://other.invalid:8020/x")
        assert caught.value.filename == "hdfs://other.invalid:8020"
        secure.write_bytes(b"HDTX")
        with pytest.raises(ValueError, match="does not begin with HDTS"):
            tony_hdfs.connect("hdfs://ns/x")

    def test_an_open_cluster_is_not_sent_a_token(
        self, secure: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(HDFS_VARIABLE, hdfs_environment(SiteConfiguration.of(self.HA), "ann"))
        assert tony_hdfs.connect("hdfs://ns/x")[0].identity() == {"user.name": "ann"}

    def test_a_secure_site_by_hand(
        self, secure: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in self.SECURE.items()
        )
        (tmp_path / "core-site.xml").write_text(f"<configuration>{text}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        monkeypatch.delenv(HDFS_VARIABLE)
        held = Token(b"ha-hdfs:ns", b"password", "HDFS_DELEGATION_TOKEN", "ha-hdfs:ns")
        assert tony_hdfs.connect("hdfs://ns/x")[0].identity() == {"delegation": url_string(held)}
        monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION")
        with pytest.raises(PermissionError, match="HADOOP_TOKEN_FILE_LOCATION is not set"):
            tony_hdfs.connect("hdfs://ns/x")

    def test_none_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        monkeypatch.delenv(HDFS_VARIABLE, raising=False)
        if os.path.isdir("/etc/hadoop/conf"):
            pytest.skip("this machine has a Hadoop configuration")
        with pytest.raises(ValueError, match="set HADOOP_CONF_DIR"):
            tony.dataset("hdfs:///x")


@pytest.mark.parametrize("url", ["webhdfs://h2:9870/x", "webhdfs://H2/x"])
def test_a_web_server_of_the_sites_own_is_its_file_system(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = ["http://h1:9870", "http://h2:9870"]
    given = {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": pair}}
    monkeypatch.setenv("TONY_HDFS", json.dumps(given))
    assert tony_hdfs_client.connect(url)[0].namenodes == pair
    assert tony_hdfs_client.connect("webhdfs://h3/x")[0].namenodes == ["http://h3"]
    assert tony_hdfs_client.connect("swebhdfs://h2:9870/x")[0].namenodes == ["https://h2:9870"]


class TestUploads:
    def test_a_folder_and_again(self, hdfs: FakeHdfs, tmp_path: Path) -> None:
        (tmp_path / "model" / "sub").mkdir(parents=True)
        (tmp_path / "model" / "sub" / "w").write_text("1")
        assert tony.upload(f"{tmp_path}/model/", "hdfs:///m/v1") == "hdfs://ns/m/v1"
        assert hdfs.files["/m/v1/sub/w"] == b"1"
        (tmp_path / "model" / "sub" / "w").write_text("2")
        tony.upload(str(tmp_path / "model"), "hdfs:///m/v1")
        assert hdfs.files["/m/v1/sub/w"] == b"2"
        assert hdfs.names("/m/") == ["/m/v1", "/m/v1/sub", "/m/v1/sub/w"]

    def test_a_file_at_the_top(self, hdfs: FakeHdfs, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        tony.upload(str(tmp_path / "f"), "hdfs:///f")
        assert hdfs.names() == ["/f"]

    def test_what_is_not_there(self, hdfs: FakeHdfs) -> None:
        with pytest.raises(FileNotFoundError, match="/nowhere does not exist"):
            tony.upload("/nowhere", "hdfs:///f")
        assert hdfs.names() == []

    def test_to_a_local_place(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "f").write_text("x")
        assert tony.upload(str(tmp_path / "a"), f"file://{tmp_path}/b/c") == f"{tmp_path}/b/c"
        tony.upload(str(tmp_path / "a"), str(tmp_path / "b" / "c"))
        tony.upload(str(tmp_path / "a" / "f"), str(tmp_path / "b" / "f"))
        assert sorted(os.listdir(tmp_path / "b")) == ["c", "f"]


def test_the_sites_authorities_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {
        "fs.defaultFS": "hdfs://nn:8020",
        "dfs.http.policy": "HTTPS_ONLY",
        "tony.https.ca-pem": "-----BEGIN CERTIFICATE-----",
    }
    monkeypatch.setenv(HDFS_VARIABLE, hdfs_environment(SiteConfiguration.of(conf), "ann"))
    service = tony_hdfs.connect("hdfs:///x")[0].service
    assert (service.tls, service.authorities) == (True, "-----BEGIN CERTIFICATE-----")


class TestFreshTokens:
    """The token file is replaced while a program works: the master has fetched tokens."""

    @pytest.fixture
    def held(
        self, hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[str], str]:
        """Replaces the token, and returns how WebHDFS names it."""
        site = {**json.loads(hdfs.environment()), "tokens": {"ns": "ha-hdfs:ns"}}
        monkeypatch.setenv(HDFS_VARIABLE, json.dumps(site))
        monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))

        def replace(name: str) -> str:
            token = Token(name.encode(), b"password", "HDFS_DELEGATION_TOKEN", "ha-hdfs:ns")
            Credentials({"t": token}).write(str(tmp_path / "tokens"))
            return url_string(token)

        hdfs.token = replace("first")
        return replace

    def test_the_next_call_has_it(self, hdfs: FakeHdfs, held: Callable[[str], str]) -> None:
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, b"one")
        hdfs.token = held("second")
        saved.save(2, b"two")
        assert saved.steps() == [1, 2] and hdfs.refused == []

    @pytest.mark.parametrize("operation", ["CREATE", "DATA-CREATE", "RENAME"])
    def test_in_the_middle_of_a_checkpoint(
        self, operation: str, hdfs: FakeHdfs, held: Callable[[str], str]
    ) -> None:
        saved = tony.checkpoints("hdfs:///c")

        def trouble(op: str, path: str) -> None:
            if op == operation and not hdfs.refused:
                hdfs.token = held("second")
                hdfs.refused.append(op)
                raise Refuse("InvalidToken", "token is expired")

        hdfs.trouble = trouble
        saved.save(1, b"one")
        assert hdfs.files["/c/step-0000000001"] == b"one"
        assert hdfs.refused == [operation]
        assert not [name for name in hdfs.names("/c/") if "making" in name]

    def test_in_the_middle_of_a_download(self, hdfs: FakeHdfs, held: Callable[[str], str]) -> None:
        hdfs.put("/data", b"x" * 3_000_000)

        def trouble(op: str, path: str) -> Optional[str]:
            if op == "DATA-OPEN" and not hdfs.refused:
                hdfs.refused.append(op)
                hdfs.token = held("second")
                return "half"
            return None

        hdfs.trouble = trouble
        local = tony.dataset("hdfs:///data")
        assert Path(local).read_bytes() == b"x" * 3_000_000

    def test_a_call_that_was_retried_until_its_token_was_dead(
        self, hdfs: FakeHdfs, held: Callable[[str], str]
    ) -> None:
        """The fail-over of the NameNodes lasts past the token's end."""
        hdfs.put("/c/step-0000000001", b"one")
        saved = tony.checkpoints("hdfs:///c")
        waits: List[str] = []

        def trouble(op: str, path: str) -> None:
            waits.append(op)
            if len(waits) < 3:
                raise Refuse("RetriableException", "not yet")
            if len(waits) == 3:
                hdfs.token = held("second")
                raise Refuse("InvalidToken", "token is expired")

        hdfs.trouble = trouble
        assert saved.steps() == [1]

    @pytest.mark.parametrize("operation", ["CREATE", "DATA-CREATE"])
    def test_a_dead_token_without_another_is_an_error_at_once(
        self, operation: str, hdfs: FakeHdfs, held: Callable[[str], str]
    ) -> None:
        saved = tony.checkpoints("hdfs:///c")

        def trouble(op: str, path: str) -> None:
            if op == operation:
                hdfs.refused.append(op)
                raise Refuse("InvalidToken", "token is expired")

        hdfs.trouble = trouble
        with pytest.raises(PermissionError, match="has expired"):
            saved.save(1, b"one")
        assert hdfs.refused == [operation]

    def test_a_new_token_that_is_dead_too_is_tried_once(
        self, hdfs: FakeHdfs, held: Callable[[str], str]
    ) -> None:
        names = iter("abcdefgh")
        saved = tony.checkpoints("hdfs:///c")

        def trouble(op: str, path: str) -> None:
            held(next(names))
            raise Refuse("InvalidToken", "token is expired")

        hdfs.token = None
        hdfs.trouble = trouble
        with pytest.raises(PermissionError, match="has expired"):
            saved.steps()
        assert next(names) == "c"

    @pytest.mark.parametrize("content", [None, b"HDTX", Credentials().encode()])
    def test_a_file_without_a_token_leaves_the_known_one(
        self, content: Optional[bytes], hdfs: FakeHdfs, held: Callable[[str], str], tmp_path: Path
    ) -> None:
        saved = tony.checkpoints("hdfs:///c")
        if content is None:
            (tmp_path / "tokens").unlink()
        else:
            (tmp_path / "tokens").write_bytes(content)
        saved.save(1, b"one")
        hdfs.token = held("second")
        saved.save(2, b"two")
        assert saved.steps() == [1, 2] and hdfs.refused == []
