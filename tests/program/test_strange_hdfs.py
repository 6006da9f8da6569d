"""An HDFS that is not what it should be: nothing is written outside, and errors are OSErrors."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from hypothesis import strategies as st

import tony
import tony_hdfs
import tony_hdfs_client
from tests.fuzzing import fuzz, mutations
from tests.program.fakehdfs import FakeHdfs
from tony_core.hadoop.site.endpoints import HDFS_VARIABLE
from tony_webhdfs import connection, namenodes, responses


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONY_CACHE_DIR", str(tmp_path / "in" / "cache"))
    monkeypatch.setattr(tony_hdfs_client, "DEADLINE_S", 0.3)
    return tmp_path / "in" / "cache"


Answer = Tuple[int, Dict[str, str], bytes]


class Strange(FakeHdfs):
    """Forges the answers of some operations: ``forged[op](path, query)``."""

    def __init__(self) -> None:
        self.forged: Dict[str, Callable[[str, Dict[str, str]], Answer]] = {}
        super().__init__()

    def _do(self, op: str, path: str, query: Dict[str, str], body: bytes) -> Any:
        if op in self.forged:
            return self.forged[op](path, query)
        return super()._do(op, path, query, body)


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strange]:
    made = Strange()
    monkeypatch.setenv(HDFS_VARIABLE, made.environment())
    yield made
    made.close()


def entry(name: str, kind: str = "FILE", size: int = 4) -> Dict[str, Any]:
    return {"type": kind, "length": size, "modificationTime": 1, "pathSuffix": name}


def listing(*entries: Dict[str, Any]) -> Answer:
    return 200, {}, json.dumps({"FileStatuses": {"FileStatus": list(entries)}}).encode()


def outside(root: Path) -> List[str]:
    """What stands beside the cache."""
    inside = root / "in" / "cache"
    return [str(path) for path in root.rglob("*") if path not in (inside, inside.parent)
            and inside not in path.parents]  # fmt: skip


BAD = ["../../../../evil", "..", ".", "a/b", "/etc/evil", "a\0b", "", "../in/cache", "x/../y"]


class TestNames:
    @pytest.mark.parametrize("name", BAD)
    @pytest.mark.parametrize("kind", ["FILE", "DIRECTORY"])
    def test_a_listed_name_is_one_plain_segment(
        self, hdfs: Strange, tmp_path: Path, cache: Path, name: str, kind: str
    ) -> None:
        hdfs.put("/d/good", b"good")
        hdfs.forged["LISTSTATUS_BATCH"] = lambda path, query: listing(
            entry("good"), entry(name, kind)
        ) if path == "/d" else listing()  # fmt: skip
        hdfs.forged["DATA-OPEN"] = lambda path, query: (200, {}, b"evil")
        hdfs.forged["OPEN"] = lambda path, query: (
            307, {"Location": f"{hdfs.urls[0]}/webhdfs/v1/x?data=1&op=OPEN&offset=0"}, b""
        )  # fmt: skip
        with pytest.raises(OSError, match="name"):
            tony.dataset("hdfs:///d")
        assert outside(tmp_path) == []
        assert not list(cache.rglob("*"))  # nothing at all was written

    def test_a_checkpoint_stays_in_its_folder_too(self, hdfs: Strange, tmp_path: Path) -> None:
        saved = tony.checkpoints("hdfs:///c")
        saved.save(1, lambda path: os.mkdir(path))
        top = [entry("step-0000000001", "DIRECTORY", 0)]
        hdfs.forged["LISTSTATUS_BATCH"] = lambda path, query: listing(
            *(top if path == "/c" else [entry("../../../../evil")])
        )
        with pytest.raises(OSError, match="name"):
            saved.latest()
        assert outside(tmp_path) == []

    def test_a_step_by_another_name_is_none(self, hdfs: Strange) -> None:
        saved = tony.checkpoints("hdfs:///c")
        hdfs.forged["LISTSTATUS_BATCH"] = lambda path, query: listing(entry("../x/step-0000000009"))
        with pytest.raises(OSError, match="name"):
            saved.steps()

    @pytest.mark.parametrize("url", ["hdfs:///d/..", "hdfs:///..", "hdfs:///d/../../e"])
    def test_a_url_that_leads_up(
        self, hdfs: Strange, tmp_path: Path, cache: Path, url: str
    ) -> None:
        hdfs.put("/e", b"e")
        found = Path(os.path.realpath(tony.dataset(url)))
        assert cache in found.parents
        assert outside(tmp_path) == []

    def test_folders_without_end(self, hdfs: Strange) -> None:
        hdfs.put("/d/x", b"")
        hdfs.forged["LISTSTATUS_BATCH"] = lambda path, query: listing(entry("d", "DIRECTORY", 0))
        with pytest.raises(OSError, match="deep"):
            tony.dataset("hdfs:///d")

    def test_a_link_in_the_destination_is_not_followed(
        self, hdfs: Strange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Left by another process that wrote into the cache."""
        target = tmp_path / "target"
        target.mkdir()
        hdfs.put("/d/sub/file", b"data")
        hdfs.put("/d/top", b"data")
        make = tony_hdfs.os.makedirs

        def plant(path: str, *rest: Any, **more: Any) -> None:
            make(path, *rest, **more)
            if path.rpartition("/")[2].startswith("d-"):
                os.mkdir(f"{path}/d.making")
                os.symlink(target, f"{path}/d.making/sub")
                os.symlink(target / "made", f"{path}/d.making/top")

        monkeypatch.setattr(tony_hdfs.os, "makedirs", plant)
        with pytest.raises(OSError):
            tony.dataset("hdfs:///d")
        assert list(target.iterdir()) == []


class TestTransfers:
    def test_no_more_is_taken_than_was_announced(self, hdfs: Strange, cache: Path) -> None:
        hdfs.put("/d", b"four")
        hdfs.forged["DATA-OPEN"] = lambda path, query: (200, {}, b"x" * (8 << 20))
        with pytest.raises(OSError, match="changed while it was read"):
            tony.dataset("hdfs:///d")
        assert sum(path.stat().st_size for path in cache.rglob("*")) < 1 << 20

    @pytest.mark.parametrize(
        "location",
        ["", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://[", "http://h:99999/", "//h/x",
         "http://a..b/x", "http://127.0.0.1:²/x", "http://", "http://127.0.0.1:1/\x0bx"],
    )  # fmt: skip
    def test_a_redirect_to_no_data_node(self, hdfs: Strange, location: str) -> None:
        hdfs.put("/d", b"four")
        hdfs.forged["OPEN"] = lambda path, query: (
            307, {"Location": location.encode().decode("latin-1")}, b"")  # fmt: skip
        with pytest.raises(OSError):
            tony.dataset("hdfs:///d")

    @pytest.mark.parametrize(
        "op", ["GETFILESTATUS", "LISTSTATUS_BATCH", "MKDIRS", "RENAME", "DELETE"]
    )
    def test_only_data_is_redirected(self, hdfs: Strange, op: str) -> None:
        """The name that is sent along, and the call itself, are for the NameNode only."""
        seen: List[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                self.send_response(200)
                self.end_headers()

            do_PUT = do_DELETE = do_GET

            def log_message(self, *words: Any) -> None:
                pass

        other = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=other.serve_forever, args=(0.02,))
        thread.start()
        try:
            where = f"http://127.0.0.1:{other.server_port}/stolen"
            hdfs.forged[op] = lambda path, query: (307, {"Location": where}, b"")
            client, _, _ = tony_hdfs.connect("hdfs:///d")
            calls = {
                "GETFILESTATUS": lambda: client.status("/d"),
                "LISTSTATUS_BATCH": lambda: client.list("/d"),
                "MKDIRS": lambda: client.mkdirs("/d"),
                "RENAME": lambda: client.rename("/d", "/e"),
                "DELETE": lambda: client.delete("/d"),
            }
            with pytest.raises(OSError, match="redirect"):
                calls[op]()
        finally:
            other.shutdown()
            thread.join()
            other.server_close()
        assert seen == []

    def test_tls_never_becomes_plain(self) -> None:
        with pytest.raises(OSError, match="http"):
            connection.split_url("http://dn:9864/webhdfs/v1/x?op=OPEN", from_tls=True)
        assert connection.split_url("http://dn:9864/x?y")
        assert connection.split_url("https://dn:9865/x?y", from_tls=True)

    def test_an_answer_without_end(self, hdfs: Strange, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(namenodes, "LONGEST_RESPONSE", 1 << 16)
        hdfs.forged["LISTSTATUS_BATCH"] = lambda path, query: (200, {}, b" " * (1 << 20))
        with pytest.raises(OSError, match="65536 bytes"):
            tony_hdfs.connect("hdfs:///d")[0].list("/d")


_GOOD = listing(entry("a"), entry("b", "DIRECTORY", 0))[2]
_STATUS = json.dumps({"FileStatus": entry("")}).encode()


class TestAnswers:
    """What a NameNode sends, damaged: an OSError or names that are plain segments."""

    @fuzz(data=mutations(_GOOD, _STATUS, b"[" * 3000, b'{"FileStatuses": {"FileStatus": [1]}}'))
    def test_listings(self, data: bytes) -> None:
        try:
            with responses.translate_parse_errors("/d"):
                found = responses.parse_listing(responses.parse_json(data)).entries
        except OSError:
            return
        for each in found:
            assert "/" not in each.name and "\0" not in each.name
            assert each.name not in (".", "..")
            assert each.size >= 0

    @fuzz(data=mutations(_GOOD, _STATUS, b"[" * 5000))
    def test_statuses(self, data: bytes) -> None:
        try:
            with responses.translate_parse_errors("/d"):
                assert responses.parse_status(responses.parse_json(data)["FileStatus"]).size >= 0
        except OSError:
            pass

    @fuzz(url=st.one_of(st.text(max_size=40), st.text(max_size=40).map("http://".__add__)))
    def test_redirects(self, url: str) -> None:
        try:
            _, (host, port), target = connection.split_url(url)
        except OSError:
            return
        assert host and 0 <= port <= 0xFFFF and target.isascii() and " " not in target
