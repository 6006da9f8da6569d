"""tony.checkpoints, dataset and upload on an object store: fsspec's own, in memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Iterator

import pytest

import tony
from tests.fuzzing import fuzz, mutations
from tests.objectstore import MemoryStore, installed
from tony_objects import connect, content_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setenv("TONY_CACHE_DIR", str(tmp_path / "cache"))
    yield from installed()


def names(store: MemoryStore) -> list[str]:
    return sorted(Path(name).name.split("-")[0] for name in store.find("/b/ckpt"))


def test_bytes(store: MemoryStore) -> None:
    saved = tony.checkpoints("s3a://b/ckpt")
    assert saved.latest() is None and saved.steps() == []
    assert saved.save(10, b"ten") == "s3a://b/ckpt/step-0000000010"
    step, path = tony.checkpoints("s3a://b/ckpt").latest()
    assert (step, Path(path).read_bytes()) == (10, b"ten")
    saved.save(10, b"again")
    assert Path(saved.fetch(10)).read_bytes() == b"again"


def test_folders_and_the_last_few(store: MemoryStore) -> None:
    saved = tony.checkpoints("s3://b/ckpt", keep=2)

    def folder(path: str) -> None:
        Path(path, "sub").mkdir(parents=True)
        Path(path, "sub", "weights").write_text("w")
        Path(path, "meta").write_text("m")

    for step in (1, 2, 30):
        saved.save(step, folder)
    assert saved.steps() == [2, 30]
    _, path = saved.latest()
    assert Path(path, "sub", "weights").read_text() == "w" and Path(path, "meta").exists()
    assert names(store).count("step") == 2 and len(names(store)) == 6


def test_a_save_that_breaks_off_leaves_the_one_before(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tony.checkpoints("s3a://b/ckpt")
    saved.save(1, b"good")
    with monkeypatch.context() as patch:

        def broken(self: MemoryStore, path: str, value: bytes, **words: object) -> None:
            raise OSError("killed between the content and its mark")

        patch.setattr(MemoryStore, "pipe_file", broken)
        with pytest.raises(OSError, match="killed between"):
            saved.save(2, b"half")
    assert saved.steps() == [1] and Path(saved.latest()[1]).read_bytes() == b"good"
    old = "/b/ckpt/data-2-1000-00ff"  # an hour later it goes
    store.pipe_file(old, b"left")
    saved.save(3, b"next")
    assert not store.exists(old)


def test_a_mark_that_is_none(store: MemoryStore) -> None:
    saved = tony.checkpoints("s3a://ann:hunter2@b/ckpt")
    for mark in (b"", b"[]", b'{"data": "../../x"}', b"\xff", b'{"data": 5}', b"[" * 100_000):
        store.pipe_file("/ann:hunter2@b/ckpt/step-0000000004", mark)
        with pytest.raises(OSError, match=r"no mark of a checkpoint.*s3a://[*]+@b/c") as caught:
            saved.fetch(4)
        assert "hunter2" not in str(caught.value)
    saved.save(5, b"x")
    assert Path(saved.latest()[1]).read_bytes() == b"x"


@fuzz(data=mutations(b'{"data": "data-7-1795400046420-00ff"}'))
def test_any_mark_names_a_content_beside_it_or_none(data: bytes) -> None:
    name = content_of(data)
    assert name == "" or (name.startswith("data-") and "/" not in name)


def test_in_the_background_and_the_report(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONY_REPORT_FILE", str(tmp_path / "report"))
    monkeypatch.setenv("TONY_CHECKPOINT_DIR", "s3a://b/ckpt")
    saved = tony.checkpoints(background=True)
    saved.save(7, b"seven")
    saved.wait()
    assert json.loads((tmp_path / "report").read_text())["saved"] == 7


def test_data_sets(store: MemoryStore) -> None:
    for name in ("a", "deep/er/b"):
        store.pipe_file(f"/b/points/{name}", name.encode())
    local = Path(tony.dataset("s3a://b/points"))
    assert (local / "a").read_bytes() == b"a" and (local / "deep/er/b").read_bytes() == b"deep/er/b"
    assert tony.dataset("s3a://b/points/") == str(local), "once per container"
    assert Path(tony.dataset("s3a://b/points/a")).read_bytes() == b"a"
    with pytest.raises(FileNotFoundError):
        tony.dataset("s3a://b/none")


def test_upload(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "sub" / "w").write_text("w")
    (tmp_path / "one").write_text("1")
    store.pipe_file("/b/models/7/old", b"")
    assert tony.upload(str(tmp_path / "model"), "s3a://b/models/7") == "s3a://b/models/7"
    assert store.find("/b/models") == ["/b/models/7/sub/w"]
    tony.upload(str(tmp_path / "one"), "s3a://b/models/one")
    assert store.cat_file("/b/models/one") == b"1"


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsspec", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, name, None)
    for url, package in (("gs://b/x", "gcsfs"), ("abfs://c/x", "adlfs")):
        with pytest.raises(ImportError, match=f"pip install {package}"):
            tony.dataset(url)


def test_what_a_package_raises_is_an_oserror_with_the_url(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages raise errors of their own, of many lines, and paths without a scheme."""
    (tmp_path / "one").write_text("1")

    def refuse(*args: object, **words: object) -> None:
        raise RuntimeError("AuthorizationFailure\n<Error>signature</Error>")

    for name in ("info", "ls", "find", "get_file", "put_file", "cat_file", "pipe_file"):
        monkeypatch.setattr(MemoryStore, name, refuse)
    saved = tony.checkpoints("s3a://b/ckpt")
    for call in (
        lambda: tony.dataset("s3a://b/x"),
        lambda: tony.upload(str(tmp_path / "one"), "s3a://b/one"),
        lambda: tony.upload(str(tmp_path), "s3a://b/all"),
        saved.steps,
        lambda: saved.fetch(1),
        lambda: saved.save(1, b"x"),
    ):
        with pytest.raises(OSError, match="RuntimeError: AuthorizationFailure <Error>") as caught:
            call()
        assert str(caught.value.filename).startswith("s3a://b/")

    def none(*args: object, **words: object) -> None:
        raise FileNotFoundError("b/nobucket/o")

    monkeypatch.setattr(MemoryStore, "put_file", none)
    with pytest.raises(FileNotFoundError, match=r"no such file, or no such bucket.*s3a://b/one"):
        tony.upload(str(tmp_path / "one"), "s3a://b/one")


def test_a_store_that_cannot_be_opened_is_an_oserror(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without credentials, which some packages look for at once."""

    def no_credentials(self: MemoryStore, *args: object, **words: object) -> None:
        raise ValueError("no credentials")

    MemoryStore.clear_instance_cache()
    monkeypatch.setattr(MemoryStore, "__init__", no_credentials)
    with pytest.raises(OSError, match=r"ValueError: no credentials.*s3a://[*]+@b/x"):
        tony.dataset("s3a://ann:hunter2@b/x")


def test_no_password_of_a_url_stands_in_an_error(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages name paths without a scheme, and with what stood before the bucket."""

    def refuse(self: MemoryStore, path: str, *args: object, **words: object) -> None:
        raise RuntimeError(f"Forbidden: {path.strip('/')}")

    monkeypatch.setattr(MemoryStore, "info", refuse)
    for url in ("s3a://ann:hunter2@b/x", "s3a://ann:hunter2@hunter2@b/x", "s3a://:hunter2@b/x"):
        with pytest.raises(OSError, match=r"Forbidden: [*]+@b/x.*s3a://[*]+@b/x") as caught:
            tony.dataset(url)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["/{0}/made/w", "../{0}/made/w", "a/../../{0}/made/w"])
def test_no_key_of_a_store_leads_out_of_the_copy(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A user who may write to a bucket names its keys."""
    victim = tmp_path / "victim"
    victim.mkdir()
    store.pipe_file("/b/data/good", b"good")
    found = {
        **store.find("/b/data", detail=True),
        "/b/data/" + key.format(str(victim)[1:]): {"type": "file", "size": 3},
    }
    monkeypatch.setattr(MemoryStore, "find", lambda self, path, **words: found)
    local = Path(tony.dataset("s3a://b/data"))
    assert [path.name for path in local.rglob("*")] == ["good"]
    assert list(victim.iterdir()) == []


def test_the_account_that_an_address_names_is_the_one_that_is_asked(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's is a part of the address; without it the environment's would be asked."""
    account = {"account_name": "account"}
    monkeypatch.setattr(MemoryStore, "_get_kwargs_from_urls", lambda address: account)
    found, path, _ = connect("s3a://c/x")
    assert (found.store.storage_options, path) == (account, "/c/x")
