"""WebHDFS against recorded answers: requests, answers, refusals and failures."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, List, Tuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.files.webhdfs.server import (
    ANSWERS,
    FakeHdfs,
    Handler,
    changed,
    drop,
    early,
    hang,
    leads_to,
    page,
)
from tony_core.files import registry
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.files.location import base_name, join
from tony_core.files.port import UnsupportedLocation, limited_wait, wait_limit
from tony_core.files.webhdfs import datanodes, namenodes
from tony_core.files.webhdfs.connection import CONNECT_S, WAIT_S
from tony_core.files.webhdfs.datanodes import DataNodeLost, FileUpload, fetch
from tony_core.files.webhdfs.namenodes import NameNodeUnreachable
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.certificates import CA_FILE
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token

Make = Callable[..., FakeHdfs]


@pytest.fixture
def make() -> Iterator[Make]:
    made: List[FakeHdfs] = []

    def servers(name_nodes: int = 1, data_nodes: int = 1) -> FakeHdfs:
        made.append(FakeHdfs(name_nodes, data_nodes))
        return made[-1]

    yield servers
    for one in made:
        one.close()


@pytest.fixture
def hdfs(make: Make) -> FakeHdfs:
    return make()


# ---------------------------------------------------------------------- the port


def test_stat(hdfs: FakeHdfs) -> None:
    hdfs.plays("status-file", "status-folder", "status-none")
    files = hdfs.client()
    found = files.stat("hdfs:///w/f")
    assert (found.location, found.is_dir, found.size, found.mode) == ("hdfs:///w/f", False, 10, 416)
    assert found.mtime_ms > 1.7e12
    assert files.stat("hdfs://sandbox/w/d").is_dir
    with pytest.raises(FileNotFoundError) as caught:
        files.stat("/w/none")
    assert caught.value.filename == "/w/none"
    assert [request.path for request in hdfs.seen] == ["/w/f", "/w/d", "/w/none"]
    assert hdfs.seen[0].query == {"op": "GETFILESTATUS", "user.name": "me"}
    assert hdfs.nn[0].connections == 1  # kept


def test_open_reads_from_where_the_name_node_leads_to(hdfs: FakeHdfs) -> None:
    hdfs.plays("open-leads", "open-behind-its-end", "open-none", "open-leads")
    hdfs.node_plays("opened", "open-folder")
    files = hdfs.client()
    with files.open("hdfs:///w/f") as stream:
        assert (stream.read(4), stream.read(), stream.read()) == (b"0123", b"456789", b"")
    assert files.open("hdfs:///w/f", 10).read() == b""
    with pytest.raises(FileNotFoundError):
        files.open("hdfs:///w/none")
    with pytest.raises(IsADirectoryError):
        files.open("hdfs:///w/d")
    with pytest.raises(ValueError, match="before"):
        files.open("hdfs:///w/f", -1)
    assert hdfs.seen[0].query["offset"] == "0" and hdfs.seen[2].query["offset"] == "10"


def test_a_gateway_is_no_name_node(hdfs: FakeHdfs) -> None:
    hdfs.plays("opened")
    with pytest.raises(OSError, match="HttpFS"):
        hdfs.client().open("hdfs:///w/f")


def test_a_file_that_ends_early(hdfs: FakeHdfs) -> None:
    def half(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"01234")
        handler.close_connection = True

    hdfs.plays("open-leads", "open-leads")
    hdfs.node_plays(half, half)
    for size in (-1, 3):
        with hdfs.client().open("hdfs:///w/f") as stream, pytest.raises(OSError) as caught:
            while stream.read(size):
                pass
        assert hdfs.dn[0].address in str(caught.value) and "mid-file" in str(caught.value)
        assert caught.value.filename == "hdfs:///w/f"


def test_list(hdfs: FakeHdfs) -> None:
    hdfs.plays("list", "list-empty", "list-file", "list-none")
    files = hdfs.client()
    found = [(one.location, one.is_dir) for one in files.list("hdfs:///w/")]
    assert found == [("hdfs:///w/d", True), ("hdfs:///w/f", False)]
    assert files.list("hdfs:///w/d") == []
    with pytest.raises(NotADirectoryError):
        files.list("hdfs:///w/f")
    with pytest.raises(FileNotFoundError):
        files.list("hdfs:///w/none")


def test_the_root_is_a_folder_too(hdfs: FakeHdfs) -> None:
    hdfs.plays("list", "list", "status-file")
    files = hdfs.client()
    assert [one.location for one in files.list("hdfs:///")] == ["hdfs:///d", "hdfs:///f"]
    assert [one.location for one in files.list("/")] == ["/d", "/f"]
    found = files.stat("hdfs:///f")
    assert (found.size, found.owner, found.group) == (10, "root", "supergroup")


def test_a_large_folder_comes_in_pages(hdfs: FakeHdfs) -> None:
    hdfs.plays(page(["a", "b b"], 3), page(["c", "d"], 1), page(["e"], 0))
    found = hdfs.client().list("hdfs:///w")
    assert [base_name(one.location) for one in found] == ["a", "b b", "c", "d", "e"]
    assert [request.query.get("startAfter") for request in hdfs.seen] == [None, "b b", "d"]


def test_a_server_of_old_lists_at_once(hdfs: FakeHdfs) -> None:
    def unknown(handler: Handler) -> None:
        body = ANSWERS["list-unknown"]["body"].replace("LISTSTATUS_BATCH2", "LISTSTATUS_BATCH")
        handler.play("list-unknown", body=body)

    hdfs.plays(unknown, "list-old")
    assert len(hdfs.client().list("hdfs:///w")) == 2
    assert hdfs.story() == ["nn0 LISTSTATUS_BATCH", "nn0 LISTSTATUS"]


def test_mkdir_chmod_delete_checksum(hdfs: FakeHdfs) -> None:
    hdfs.plays("mkdirs", "chmod", "deleted", "delete-none", "checksum-leads")
    hdfs.node_plays("checksum")
    files = hdfs.client()
    files.mkdir("hdfs:///w/d", 0o1770)
    files.chmod("hdfs:///w/d", 0o600)
    assert files.delete("hdfs:///w/d") and not files.delete("hdfs:///w/d")
    assert files.checksum("hdfs:///w/f").startswith("MD5-of-0MD5-of-512CRC32C:0000")
    assert [request.query.get("permission") for request in hdfs.seen[:2]] == ["1770", "600"]
    assert [request.query.get("recursive") for request in hdfs.seen[2:4]] == ["true", "true"]
    assert [request.method for request in hdfs.seen[:5]] == "PUT PUT DELETE DELETE GET".split()


def test_rename(hdfs: FakeHdfs) -> None:
    files = hdfs.client()
    hdfs.plays("rename")
    files.rename("hdfs:///w/f", "hdfs:///w/new")
    hdfs.plays("rename-exists", "status-file", "rename")
    files.rename("hdfs:///w/f", "hdfs:///w/there")
    hdfs.plays("rename-exists", "status-folder")
    with pytest.raises(FileExistsError):
        files.rename("hdfs:///w/d", "hdfs:///w/there")
    hdfs.plays("rename-over-folder", "status-file")
    with pytest.raises(IsADirectoryError):
        files.rename("hdfs:///w/f", "hdfs:///w/d")
    hdfs.plays("rename-nowhere")
    with pytest.raises(FileNotFoundError) as caught:
        files.rename("hdfs:///w/f", "hdfs:///x/y")
    assert caught.value.filename == "hdfs:///x/y"
    hdfs.plays("status-none")
    with pytest.raises(FileNotFoundError):
        files.rename("hdfs:///w/f", "hdfs://sandbox/w/f")
    with pytest.raises(OSError) as other:
        files.rename("hdfs:///w/f", "hdfs://elsewhere/w/f")
    assert other.value.errno == errno.EXDEV
    renames = [request.query for request in hdfs.seen if request.query["op"] == "RENAME"]
    assert [one["renameoptions"] for one in renames[:3]] == ["NONE", "NONE", "OVERWRITE"]
    assert renames[0]["destination"] == "/w/new"


# ---------------------------------------------------------------------- writing


def written(hdfs: FakeHdfs) -> bytes:
    """What a write sent, after a look at its three steps."""
    create, sent, rename = hdfs.seen
    assert hdfs.story() == ["nn0 CREATE", "dn0 CREATE", "nn0 RENAME"]
    assert create.path.startswith("/w/.put-")
    assert create.query["createparent"] == create.query["overwrite"] == "false"
    assert (rename.path, rename.query["destination"]) == (create.path, "/w/f")
    assert rename.query["renameoptions"] == "OVERWRITE"
    return sent.body


def test_put(hdfs: FakeHdfs) -> None:
    hdfs.plays("create-leads", "rename")
    hdfs.node_plays("created")
    hdfs.client().put("hdfs:///w/f", b"content", 0o600)
    assert written(hdfs) == b"content"
    assert hdfs.seen[0].query["permission"] == "600"
    assert hdfs.seen[1].headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("size", [0, 1, 3_000_001])
def test_upload(hdfs: FakeHdfs, tmp_path: Path, size: int) -> None:
    hdfs.plays("create-leads", "rename")
    hdfs.node_plays("created")
    (tmp_path / "f").write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    hdfs.client().upload(str(tmp_path / "f"), "hdfs:///w/f")
    assert written(hdfs) == (tmp_path / "f").read_bytes()


@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 7], [1 << 20, 1, 3 << 20], [1000] * 3000])
def test_write_streams(hdfs: FakeHdfs, sizes: List[int]) -> None:
    hdfs.plays("create-leads", "rename")
    hdfs.node_plays("created")
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]

    def produce(stream: BinaryIO) -> None:
        for part in parts:
            stream.write(part)

    hdfs.client().write("hdfs:///w/f", produce)
    assert written(hdfs) == b"".join(parts)


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_write_that_fails_leaves_nothing(hdfs: FakeHdfs, size: int) -> None:
    hdfs.plays("create-leads", "deleted")
    hdfs.node_plays("created")

    def produce(stream: BinaryIO) -> None:
        stream.write(bytes(size))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        hdfs.client().write("hdfs:///w/f", produce)
    if size == 10:  # nothing had been sent
        assert hdfs.story() == ["nn0 CREATE"]
    else:  # the DataNode was done with it before it was removed
        assert hdfs.story() == ["nn0 CREATE", "dn0 CREATE", "nn0 DELETE"]
        assert hdfs.seen[2].path == hdfs.seen[0].path


def test_a_rename_that_fails_leaves_nothing(hdfs: FakeHdfs) -> None:
    hdfs.plays("create-leads", "rename-over-folder", "deleted")
    hdfs.node_plays("created")
    with pytest.raises(IsADirectoryError) as caught:
        hdfs.client().put("hdfs:///w/f", b"x")
    assert caught.value.filename == "hdfs:///w/f"
    assert hdfs.story()[-1] == "nn0 DELETE" and hdfs.seen[-1].path == hdfs.seen[0].path


def test_a_node_that_refuses_before_it_has_all(hdfs: FakeHdfs) -> None:
    hdfs.plays("create-leads", "deleted")
    hdfs.node_plays(early)
    with pytest.raises(OSError, match="no DataNode that can take the data") as caught:
        hdfs.client().write("hdfs:///w/f", lambda stream: stream.write(bytes(64 << 20)))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == "hdfs:///w/f"


def test_a_local_file_that_becomes_shorter(hdfs: FakeHdfs, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    hdfs.node_plays(drop)
    upload = FileUpload(f"http://{hdfs.dn[0].address}/webhdfs/v1/x", "hdfs:///x", "me")
    with (tmp_path / "f").open("rb") as file, pytest.raises(OSError, match="became shorter"):
        upload.send_file(file, 10, "/local/f")
    upload.close()


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("answer", "kind", "code", "words"),
    [
        ("denied", PermissionError, errno.EACCES, "TonY asks as 'me'"),
        ("safe-mode", OSError, errno.EROFS, "wait until it has left it"),
        ("bad-user", OSError, errno.EINVAL, "user.name"),
        ("bad-name", OSError, errno.EINVAL, "does not allow such a name"),
        ("mkdirs-over-file", FileExistsError, errno.EEXIST, "not a directory"),
    ],
)
def test_what_a_name_node_refuses(
    hdfs: FakeHdfs, answer: str, kind: type, code: int, words: str
) -> None:
    hdfs.plays(answer)
    with pytest.raises(kind, match=words) as caught:
        hdfs.client().mkdir("hdfs://sandbox/w/d")
    assert caught.value.errno == code and caught.value.filename == "hdfs://sandbox/w/d"
    assert len(hdfs.seen) == 1 and "\tat " not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind", "code", "words"),
    [
        ("create-denied", PermissionError, errno.EACCES, "TonY asks as 'me'"),
        ("create-safe-mode", OSError, errno.EROFS, "safe mode"),
        ("create-quota", OSError, errno.EDQUOT, "quota of HDFS is used up"),
        ("create-no-space", OSError, errno.ENOSPC, "ask the administrator"),
        ("create-no-parent", FileNotFoundError, errno.ENOENT, "Parent directory"),
    ],
)
def test_what_a_data_node_refuses(
    hdfs: FakeHdfs, answer: str, kind: type, code: int, words: str
) -> None:
    hdfs.plays("create-leads", "deleted")
    hdfs.node_plays(answer)
    with pytest.raises(kind, match=words) as caught:
        hdfs.client().put("hdfs:///w/f", b"x")
    assert caught.value.errno == code and caught.value.filename == "hdfs:///w/f"
    assert "\tat " not in str(caught.value)


def test_no_data_node_at_all(hdfs: FakeHdfs) -> None:
    hdfs.plays("no-data-node")
    with pytest.raises(OSError, match="disks are full, or they are down") as caught:
        hdfs.client().put("hdfs:///w/f", b"x")
    assert caught.value.errno == errno.ENOSPC


def answer(status: int, text: str = "", **headers: str) -> Callable[[Handler], None]:
    def step(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(text.encode())

    return step


def test_a_secure_cluster(hdfs: FakeHdfs) -> None:
    token = '{"RemoteException": {"exception": "InvalidToken", "message": "expired", %s}}'
    token %= '"javaClassName": "org.apache.hadoop.security.token.SecretManager$InvalidToken"'
    hdfs.plays(answer(401, "<html>", WWW_Authenticate="Negotiate"))
    with pytest.raises(PermissionError, match="and the configuration read here does not: name "):
        hdfs.client().stat("hdfs:///x")  # by a name only, where no ticket would be shown
    hdfs.plays(answer(403, token))
    with pytest.raises(PermissionError, match="the delegation token was cancelled, or has expired"):
        hdfs.client().stat("hdfs:///x")


def test_a_secure_cluster_that_refuses_a_token(hdfs: FakeHdfs) -> None:
    token = Token(b"who", b"password", HDFS_DELEGATION, "127.0.0.1:1")
    hdfs.plays(answer(401, "<html>", WWW_Authenticate="Negotiate"))
    with pytest.raises(PermissionError, match="the cluster asks for Kerberos: get a ticket"):
        hdfs.client(tokens=Credentials({"ours": token})).stat("hdfs:///x")


def test_a_delegation_token_in_place_of_the_name(hdfs: FakeHdfs) -> None:
    token = Token(b"who", b"password", HDFS_DELEGATION, "127.0.0.1:1")
    other = token._replace(password=b"another", service="127.0.0.1:2")
    tokens = Credentials({"other": other, "ours": token})
    hdfs.plays("mkdirs")
    hdfs.client(tokens=tokens).mkdir("hdfs:///d")
    assert hdfs.seen[0].query["delegation"] == url_string(token)
    assert "user.name" not in hdfs.seen[0].query


def test_without_a_token_for_this_file_system(hdfs: FakeHdfs) -> None:
    token = Token(b"who", b"password", HDFS_DELEGATION, "127.0.0.1:2")
    with pytest.raises(OSError, match=r"no token .*127\.0\.0\.1:1") as caught:
        hdfs.client(tokens=Credentials({"other": token})).mkdir("hdfs:///d")
    assert "password" not in str(caught.value)
    assert not hdfs.seen


def test_something_else_answers_there(hdfs: FakeHdfs) -> None:
    for step in (answer(404, "<html>none</html>"), answer(500, ""), answer(503, "[1]")):
        hdfs.plays(step)
        with pytest.raises(OSError, match="is that the web address of a NameNode"):
            hdfs.client().stat("hdfs:///x")
    hdfs.plays(answer(200, "hello"))
    with pytest.raises(OSError, match="no JSON"):
        hdfs.client().stat("hdfs:///x")
    hdfs.plays(answer(307, "", Location="ftp://x/y"))
    with pytest.raises(OSError, match="redirect"):
        hdfs.client().open("hdfs:///x")


def test_no_http_at_all(hdfs: FakeHdfs) -> None:
    def garbage(handler: Handler) -> None:
        handler.wfile.write(b"\x00\x01 hello\r\n\r\n")
        handler.close_connection = True

    hdfs.nn[0].always = garbage
    with pytest.raises(OSError, match="does not speak HTTP"):
        hdfs.client().stat("hdfs:///x")


# ---------------------------------------------------------------------- servers come and go


def test_the_standby_sends_us_to_the_other(make: Make) -> None:
    hdfs = make(2)
    hdfs.plays("standby")
    files = hdfs.client()
    files.mkdir("hdfs:///d")
    files.mkdir("hdfs:///e")
    assert hdfs.story() == ["nn0 MKDIRS", "nn1 MKDIRS", "nn1 MKDIRS"]  # and we remember
    hdfs.plays("standby", nn=1)
    files.mkdir("hdfs:///f")
    assert hdfs.story()[3:] == ["nn1 MKDIRS", "nn0 MKDIRS"]


def test_one_is_down(make: Make) -> None:
    hdfs = make(2)
    hdfs.nn[0].stop()
    hdfs.client().mkdir("hdfs:///d")
    assert hdfs.story() == ["nn1 MKDIRS"]
    hdfs.nn = hdfs.nn[1:]


def test_none_is_active(make: Make) -> None:
    hdfs = make(2)
    for server in hdfs.nn:
        server.always = "standby"
    began = time.monotonic()
    with pytest.raises(OSError, match=r"did not serve us.*standby") as caught:
        hdfs.client(patience_s=0.3).mkdir("hdfs:///d")
    assert caught.value.errno == errno.EHOSTUNREACH
    assert all(server.address in str(caught.value) for server in hdfs.nn)
    assert time.monotonic() - began < 30
    assert len(hdfs.seen) >= 4  # it was tried again


class TestNoAnswer:
    """A verb that asks five things waits once; what it waits is bounded."""

    @pytest.fixture
    def slept(self, monkeypatch: pytest.MonkeyPatch) -> List[float]:
        """The pauses between tries, in time that only they let pass."""
        pauses: List[float] = []
        real = time.monotonic

        def sleep(seconds: float) -> None:
            pauses.append(seconds)

        monkeypatch.setattr(namenodes.time, "sleep", sleep)
        monkeypatch.setattr(namenodes.time, "monotonic", lambda: real() + sum(pauses))
        return pauses

    @pytest.mark.parametrize("answers", [True, False])
    def test_it_is_waited_for_once(self, make: Make, slept: List[float], answers: bool) -> None:
        hdfs = make(2)
        most = 30.0 if answers else namenodes.FIRST_RETRY_S
        for server in hdfs.nn:
            server.always = "standby" if answers else drop
        files = hdfs.client(patience_s=30)
        errors = []
        for place in ("hdfs:///a", "hdfs:///b"):
            with pytest.raises(OSError, match="did not serve us for") as caught:
                files.stat(place)
            errors.append((caught.value.filename, caught.value.strerror))
        assert 0 < sum(slept) <= most
        assert [name for name, _ in errors] == ["hdfs:///a", "hdfs:///b"]
        assert errors[0][1] == errors[1][1]

    def test_it_is_asked_again_some_seconds_later(self, hdfs: FakeHdfs, slept: List[float]) -> None:
        hdfs.nn[0].always = "standby"
        files = hdfs.client(patience_s=30)
        with pytest.raises(OSError, match="did not serve us"):
            files.mkdir("hdfs:///d")
        hdfs.nn[0].always = ""
        hdfs.plays("mkdirs")
        slept.append(namenodes.REMEMBERED_S)
        files.mkdir("hdfs:///d")

    def test_a_host_that_takes_no_connection_is_given_five_seconds(
        self, hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = []

        def connect(address: object, timeout: float) -> socket.socket:
            limits.append(timeout)
            raise TimeoutError("timed out")

        monkeypatch.setattr(namenodes.time, "sleep", lambda seconds: None)
        with monkeypatch.context() as patch:
            patch.setattr(socket, "create_connection", connect)
            with pytest.raises(OSError, match="no answer in time"):
                hdfs.client(patience_s=0.0).stat("hdfs:///d")
        assert limits and max(limits) <= namenodes.FIRST_RETRY_S


class TestLooking:
    """What only looks waits less for a server that takes the connection and never answers."""

    @pytest.mark.parametrize("name_nodes", [1, 2])
    def test_a_name_node_that_never_answers(
        self, make: Make, monkeypatch: pytest.MonkeyPatch, name_nodes: int
    ) -> None:
        monkeypatch.setattr(namenodes, "REMEMBERED_S", 60.0)
        hdfs = make(name_nodes)
        for server in hdfs.nn:
            server.always = hang
        files = hdfs.client(patience_s=30)
        began = time.monotonic()
        with limited_wait(0.4):
            for _ in range(3):
                with pytest.raises(OSError, match=r"did not serve us for .*no answer in time"):
                    files.stat("hdfs:///d")
        assert len(hdfs.seen) == name_nodes  # each once, whatever is asked
        assert time.monotonic() - began < 20  # far less than a call's own limit

    def test_the_servers_of_a_pair_share_it(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: List[float] = []

        def exchange(self: object, address: object, *words: object) -> None:
            limits.append(words[-1])
            raise NameNodeUnreachable(f"{address}: no answer in time", sent=True)

        monkeypatch.setattr(namenodes.NameNodes, "_exchange", exchange)
        monkeypatch.setattr(namenodes.time, "sleep", lambda seconds: None)
        with limited_wait(18.0), pytest.raises(OSError, match="no answer in time"):
            make(2).client(patience_s=0.0).stat("hdfs:///d")
        with pytest.raises(OSError, match="no answer in time"):
            make(2).client(patience_s=0.0).stat("hdfs:///d")
        assert limits == [9.0, 9.0, namenodes.CALL_S, namenodes.CALL_S]

    def test_so_do_the_data_nodes_that_are_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits: List[Tuple[float, float]] = []

        def connection(
            address: object, tls: bool, *, wait_s: float, connect_s: float, authorities: str
        ) -> None:
            limits.append((wait_s, connect_s))
            raise TimeoutError("timed out")

        monkeypatch.setattr(datanodes, "Connection", connection)
        for seconds in (18.0, 300.0):
            with limited_wait(seconds), pytest.raises(DataNodeLost):
                fetch("http://127.0.0.1:1/webhdfs/v1/f", "hdfs:///f", "me", wait_limit.get())
        with pytest.raises(DataNodeLost):
            fetch("http://127.0.0.1:1/webhdfs/v1/f", "hdfs:///f", "me", wait_limit.get())
        assert limits == [(6.0, 6.0), (100.0, CONNECT_S), (WAIT_S, CONNECT_S)]

    def test_nothing_else_waits_less(self, hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(namenodes, "CALL_S", 1.0)
        hdfs.nn[0].always = hang
        with limited_wait(0.01):
            pass
        began = time.monotonic()
        with pytest.raises(OSError, match="no answer in time"):
            hdfs.client(patience_s=0.0).stat("hdfs:///d")
        assert time.monotonic() - began >= 1.0


def test_a_server_asks_to_come_back(hdfs: FakeHdfs) -> None:
    later = '{"RemoteException": {"exception": "RetriableException", "message": "starting", %s}}'
    later %= '"javaClassName": "org.apache.hadoop.ipc.RetriableException"'
    hdfs.plays(answer(403, later), "mkdirs")
    hdfs.client(patience_s=20).mkdir("hdfs:///d")
    assert len(hdfs.seen) == 2


def test_a_kept_connection_that_was_closed(hdfs: FakeHdfs) -> None:
    hdfs.plays("mkdirs", drop, "mkdirs")
    files = hdfs.client()
    files.mkdir("hdfs:///d")
    files.mkdir("hdfs:///e")
    assert hdfs.nn[0].connections == 2


def test_a_forked_process_makes_its_own_connections(hdfs: FakeHdfs) -> None:
    files = hdfs.client()
    hdfs.plays("mkdirs", "mkdirs", "mkdirs")
    files.mkdir("hdfs:///d")
    files._place("/")[0]._names._process = -1  # as if another had made them
    files.mkdir("hdfs:///e")
    files.mkdir("hdfs:///f")
    assert hdfs.nn[0].connections == 2


def test_a_delete_whose_answer_was_lost(hdfs: FakeHdfs) -> None:
    hdfs.plays(drop, "delete-none")
    assert hdfs.client(patience_s=20).delete("hdfs:///d")


def test_a_rename_whose_answer_was_lost(hdfs: FakeHdfs) -> None:
    files = hdfs.client(patience_s=20)
    hdfs.plays(drop, "rename-none", "status-file", "status-none")
    files.rename("hdfs:///a", "hdfs:///b")  # it had been done
    hdfs.plays(drop, "rename-none", "status-none")
    with pytest.raises(FileNotFoundError) as caught:
        files.rename("hdfs:///a", "hdfs:///b")
    assert caught.value.filename == "hdfs:///a"


def closed_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_another_data_node(hdfs: FakeHdfs) -> None:
    dead = closed_port()
    hdfs.plays(leads_to("create-leads", dead), "create-leads", "rename")
    hdfs.node_plays("created")
    hdfs.client().write("hdfs:///w/f", lambda stream: stream.write(b"once"))
    assert hdfs.story() == ["nn0 CREATE", "nn0 CREATE", "dn0 CREATE", "nn0 RENAME"]
    assert hdfs.seen[1].query["excludedatanodes"] == "127.0.0.1"  # not its port, nor its name
    hdfs.plays(leads_to("open-leads", dead), "open-leads")
    hdfs.node_plays("opened")
    assert hdfs.client().get("hdfs:///w/f") == b"0123456789"


def test_no_other_data_node(hdfs: FakeHdfs) -> None:
    dead = closed_port()
    lead = leads_to("create-leads", dead)
    for steps in ([lead, "no-data-node"], [lead, lead, lead]):
        hdfs.plays(*steps)
        with pytest.raises(OSError, match=rf"DataNode {dead} could not be reached") as caught:
            hdfs.client().put("hdfs:///w/f", b"x")
        assert "firewall" in str(caught.value) and "Connection refused" in str(caught.value)


def test_a_data_node_breaks_off(hdfs: FakeHdfs) -> None:
    # What is in memory is sent again, what was produced is not.
    hdfs.plays("create-leads", "deleted", "create-leads", "rename")
    hdfs.node_plays(drop, "created")
    hdfs.client().put("hdfs:///w/f", b"again")
    assert hdfs.dn[0].steps == [] and hdfs.seen[-2].body == b"again"
    hdfs.plays("create-leads", "deleted")
    hdfs.node_plays(drop)
    with pytest.raises(OSError, match="could not be reached for writing"):
        hdfs.client().write("hdfs:///w/f", lambda stream: stream.write(b"once"))


def test_threads_do_not_share_a_connection(hdfs: FakeHdfs) -> None:
    hdfs.nn[0].always = "status-file"
    files = hdfs.client()
    wrong: List[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                assert files.stat(f"hdfs:///{number}").size == 10
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(hdfs.seen) == 120
    assert hdfs.nn[0].connections <= 6


# ---------------------------------------------------------------------- locations

NAMES = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="/:\0"), min_size=1
).filter(lambda name: name not in (".", ".."))


@given(parts=st.lists(NAMES, min_size=1, max_size=3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_arrives_as_it_is(hdfs: FakeHdfs, parts: List[str]) -> None:
    hdfs.seen.clear()
    files = hdfs.client()
    hdfs.nn[0].always = page([parts[-1]], 0)
    (found,) = files.list("hdfs://sandbox/" + "/".join(map(quote, parts[:-1])))
    assert base_name(found.location) == parts[-1]
    hdfs.nn[0].always = "rename"
    files.rename(found.location, found.location + "%20new")
    listed, renamed = hdfs.seen
    assert listed.path == "/" + "/".join(parts[:-1])
    assert renamed.path == "/" + "/".join(parts)
    assert renamed.query["destination"] == "/" + "/".join(parts) + " new"
    files.close()


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("hdfs:///", "/"),
        ("hdfs://sandbox", "/"),
        ("hdfs://sandbox//a//b/", "/a/b"),
        ("hdfs:///a/./b/../c", "/a/c"),
        ("/plain/50%41 of?#x", "/plain/50%41 of?#x"),
        ("hdfs:///a b%20c%2541", "/a b c%41"),
        ("webhdfs://sandbox/x", "/x"),
    ],
)
def test_locations(hdfs: FakeHdfs, location: str, path: str) -> None:
    hdfs.plays("status-folder")
    hdfs.client().stat(location)
    assert hdfs.seen[0].path == path


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("hdfs:///a?b", "%3F"),
        ("hdfs:///a#b", "%23"),
        ("relative", "begins with /"),
        ("s3://bucket/x", "no location on HDFS"),
        ("hdfs:///a%00b", "zero byte"),
        ("hdfs:///a\udcffb", "UTF-8"),
    ],
)
def test_locations_that_are_none(hdfs: FakeHdfs, location: str, words: str) -> None:
    with pytest.raises(OSError, match=words):
        hdfs.client().stat(location)
    assert hdfs.seen == []


def test_a_folder_cannot_be_written(hdfs: FakeHdfs) -> None:
    for location in ("hdfs:///", "hdfs://sandbox", "/"):
        with pytest.raises(IsADirectoryError):
            hdfs.client().put(location, b"")


def test_a_web_address_needs_no_configuration(
    hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "carol")
    hdfs.plays("status-folder")
    url = f"webhdfs://{hdfs.nn[0].address}/w"
    assert registry.filesystem(url).stat(url).is_dir
    assert hdfs.seen[0].query["user.name"] == "carol"


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate with openssl")
@pytest.mark.parametrize("how", ["variable", "site"])
def test_tls(hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    pem = tmp_path / "server.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split()
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(pem), "-out", f"{pem}.crt"]
    subprocess.run([*words, *names], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + Path(f"{pem}.crt").read_bytes())
    for server in (*hdfs.nn, *hdfs.dn):
        server.secure(str(pem))
    port = hdfs.nn[0].server_address[1]
    url = f"swebhdfs://localhost:{port}/w/f"
    with pytest.raises(OSError, match="certificate is not trusted here; SSL_CERT_FILE"):
        hdfs.client().stat(url)
    if how == "variable":
        monkeypatch.setenv("SSL_CERT_FILE", f"{pem}.crt")
        site = {}
    else:
        site = {CA_FILE: f"{pem}.crt"}
    lead = {**ANSWERS["create-leads"]["headers"]}
    node = f"https://localhost:{hdfs.dn[0].server_address[1]}"
    lead["Location"] = lead["Location"].replace("http://{datanode}", node)
    hdfs.plays(lambda handler: handler.play("create-leads", headers=lead), "rename")
    hdfs.node_plays("created")
    (tmp_path / "f").write_bytes(bytes(3 << 20))
    files = WebHdfsFileSystem(SiteConfiguration.of(site), ClusterIdentity("me"))
    files.upload(str(tmp_path / "f"), url)
    files.close()
    assert len(written(hdfs)) == 3 << 20


def test_without_a_configuration_there_is_advice() -> None:
    with pytest.raises(UnsupportedLocation, match="set HADOOP_CONF_DIR to the folder"):
        registry.filesystem("hdfs:///x")


def test_a_default_file_system_that_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(UnsupportedLocation, match="file:/// is on no HDFS"):
        registry.filesystem("hdfs:///x").stat("hdfs:///x")


def test_a_factory_may_know_better(hdfs: FakeHdfs) -> None:
    registry.register("hdfs", hdfs.client)
    hdfs.plays("status-folder", changed("status-file"))
    root = "hdfs:///user/me"
    assert registry.filesystem(root).stat(root).is_dir
    assert not registry.filesystem(root).stat(join(root, "f")).is_dir


def test_it_is_light() -> None:
    heavy = ["ssl", "http.client", "email", "urllib.request", "asyncio", "tempfile"]
    code = (
        "import sys, tony_core.files.hdfs\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    assert done.stdout.strip() == "[]"
