"""Object stores as the client reads them: by fsspec where it is, else with the extra's name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.bundle.jobs import job, messages_of, ref
from tests.objectstore import MemoryStore, installed
from tony_core.bundle.client import planning, staging
from tony_core.files import registry
from tony_core.files.location import OBJECT_STORES
from tony_core.files.objects import STORES, milliseconds
from tony_core.files.port import ReadOnlyError, UnsupportedLocation
from tony_core.files.registry import filesystem


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    yield from installed()
    registry.forget()


def test_every_scheme_is_known() -> None:
    assert set(OBJECT_STORES) == set(STORES)


@pytest.mark.parametrize(
    ("url", "extra", "package"),
    [
        ("s3a://b/x", "s3", "s3fs"),
        ("gs://b/x", "gcs", "gcsfs"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure", "adlfs"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(
    url: str, extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsspec", "s3fs", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedLocation) as caught:
        filesystem(url).stat(url)
    assert f"pip install {package}, or TonY with its extra {extra}" in str(caught.value)
    (line,) = messages_of(planning.plan(job(files=(ref(url, "x"),)), "/nowhere/root"))
    assert f"its extra {extra}" in line and "\n" not in line


def test_reading(store: MemoryStore) -> None:
    store.pipe_file("/b/data/points.csv", b"0123456789")
    files = filesystem("s3a://b/data/points.csv")
    found = files.stat("s3a://b/data/points.csv")
    assert (found.size, found.is_dir) == (10, False) and found.mtime_ms > 0
    assert files.get("s3a://b/data/points.csv") == b"0123456789"
    for offset, rest in ((7, b"789"), (10, b""), (99, b"")):
        with files.open("s3a://b/data/points.csv", offset) as stream:
            assert stream.read() == rest
    assert files.stat("s3a://b/data").is_dir
    assert [each.location for each in files.list("s3a://b/data")] == ["s3a://b/data/points.csv"]
    with pytest.raises(NotADirectoryError):
        files.list("s3a://b/data/points.csv")
    with pytest.raises(FileNotFoundError) as caught:
        files.stat("s3a://me:word@b/none")
    assert "word" not in str(caught.value)
    with pytest.raises(ReadOnlyError):
        files.put("s3a://b/new", b"")


def test_what_a_package_raises_is_an_oserror(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **words: Any) -> None:
        raise RuntimeError("NoCredentialsError: Unable to locate credentials")

    monkeypatch.setattr(MemoryStore, "info", refuse)
    with pytest.raises(OSError, match="Unable to locate credentials"):
        filesystem("s3://b/x").stat("s3://b/x")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("neither a connection string\n nor an account"), "ValueError: neither a con"),
        (OSError("Forbidden: b/o\nme does not have access"), "Forbidden: b/o me does not"),
        (OSError("Forbidden: ann:pa@ss@b/o"), r"Forbidden: [*]+@b/o"),
        (FileNotFoundError("b/nobucket/o"), "no such file, or no such bucket"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_is_one_line_that_names_the_location(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def refuse(*args: Any, **words: Any) -> None:
        raise error

    monkeypatch.setattr(MemoryStore, "info", refuse)
    with pytest.raises(OSError, match=expected) as caught:
        filesystem("s3://b/x").stat("s3://b/x")
    assert caught.value.filename == "s3://b/x" and "\n" not in str(caught.value)
    assert "ss@" not in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError) is isinstance(error, FileNotFoundError)


def test_a_packages_own_lines_do_not_stand_between_ours() -> None:
    """gcsfs logs each refusal with a traceback; who has set up no logging would see it."""
    code = (
        "import logging, fsspec\n"
        "from tests.objectstore import installed\n"
        "from tony_core.files.registry import filesystem\n"
        "store = next(installed())\n"
        "assert not filesystem('s3a://b/x').exists('s3a://b/x')\n"
        "logging.getLogger('s3fs').warning('noise')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_store_that_cannot_be_opened_is_an_oserror(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without credentials, which some packages look for at once."""

    def no_credentials(self: MemoryStore, *args: Any, **words: Any) -> None:
        raise RuntimeError("no credentials")

    MemoryStore.clear_instance_cache()
    monkeypatch.setattr(MemoryStore, "__init__", no_credentials)
    with pytest.raises(OSError, match=r"RuntimeError: no credentials.*s3a://\*+@b/x"):
        filesystem("s3a://b/x").stat("s3a://ann:hunter2@b/x")


def test_the_account_that_an_address_names_is_the_one_that_is_asked(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's is a part of the address; without it the environment's would be asked."""
    store.pipe_file("/c/x", b"x")
    requested: List[Dict[str, Any]] = []
    account = {"account_name": "account"}
    monkeypatch.setattr(MemoryStore, "_get_kwargs_from_urls", lambda address: account)
    info = MemoryStore.info
    monkeypatch.setattr(
        MemoryStore,
        "info",
        lambda self, path, **words: requested.append(self.storage_options) or info(self, path),
    )
    assert filesystem("s3a://c/x").stat("s3a://c/x").size == 1
    assert requested[0] == account


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_resource_is_fetched_by_the_client(
    store: MemoryStore, scheme: str, tmp_path: Path
) -> None:
    store.pipe_file("/b/words.txt", b"words")
    root = str(tmp_path / "root")
    plan = planning.plan(job(files=(ref(f"{scheme}://b/words.txt"),)), root)
    assert messages_of(plan) == []
    (upload,) = [each for each in plan.uploads if each.name == "words.txt"]
    staging.stage(plan, root, "app-1", job(), b"")
    (artifact,) = [each for each in plan.artifacts if each.name == "words.txt"]
    assert Path(artifact.uri).read_bytes() == b"words"
    again = planning.plan(job(files=(ref(f"{scheme}://b/words.txt"),)), root)
    assert [x.present for x in again.uploads if x.name == "words.txt"] == [True]
    assert upload.size == 5


def test_a_folder_is_refused_with_what_to_do(store: MemoryStore, tmp_path: Path) -> None:
    store.pipe_file("/b/data/x", b"x")
    (line,) = messages_of(planning.plan(job(files=(ref("s3a://b/data"),)), str(tmp_path / "root")))
    assert "tony.dataset" in line


@pytest.mark.parametrize(
    ("when", "expected"),
    [("2026-01-01T00:00:00Z", 1767225600000), (1.5, 1500), ("soon", 0), (None, 0)],
)
def test_times(when: Any, expected: int) -> None:
    assert milliseconds(when) == expected


def test_nothing_of_it_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, tony_core.files.registry, tony_core.client.api, tony\n"
        "sys.exit(any(name.split('.')[0] == 'fsspec' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
