"""History is its owner's alone, unless the job names a place that is shared."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.second_user import UID, as_stranger, needs_root, open_folder
from tony_core.files.local import LocalFileSystem
from tony_core.history.access import prepare
from tony_core.history.reader import read_job
from tony_core.history.store import HistoryWriter, encode

__all__ = ["open_folder"]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Whatever the user's own is."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(root: Path, location: str = "") -> List[str]:
    """A job's history, and what the writer had to say."""
    warnings: List[str] = []
    made = HistoryWriter(str(root / "app_1"), on_trouble=warnings.append, location=location)
    made.begin([])
    made.add(encode({"n": 1, "text": "a story"}))
    made.summary({"job": {"state": "RUNNING"}, "tasks": [], "metrics": {}})
    made.config(b"<configuration/>")
    assert made.close() == []
    return warnings


def modes(root: Path) -> List[int]:
    """The job's folder's, and those of its files."""
    return [mode(root / "app_1"), *{mode(path) for path in (root / "app_1").iterdir()}]


def test_a_new_place_is_private(tmp_path: Path, umask: int) -> None:
    root = tmp_path / "deep" / "history"
    assert write(root) == []
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]
    assert mode(tmp_path / "deep") & 0o022 == 0


def test_an_open_place_of_ours_is_made_private_and_that_is_reported_once(
    tmp_path: Path, umask: int
) -> None:
    root = tmp_path / "history"
    root.mkdir()
    root.chmod(0o777)
    (warning,) = write(root)
    assert str(root) in warning and "private now" in warning
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]
    assert write(root) == []


@pytest.mark.parametrize(
    ("place", "folder", "file"),
    [
        (0o700, 0o700, 0o600),
        (0o755, 0o755, 0o644),
        (0o1777, 0o755, 0o644),
        (0o711, 0o700, 0o600),
        (0o750, 0o700, 0o600),  # what is made there belongs to the user's own group
        (0o2770, 0o2750, 0o640),
    ],
)
def test_a_place_that_the_job_names_is_as_shared_as_its_rights(
    tmp_path: Path, umask: int, place: int, folder: int, file: int
) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(place)
    assert write(root, location=str(root)) == []
    assert mode(root) == place and modes(root) == [folder, file]


def test_a_place_that_the_job_names_and_that_is_missing_is_made_private(
    tmp_path: Path, umask: int
) -> None:
    root = tmp_path / "named"
    write(root, location=root.as_uri())
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]


TRY = """
import shutil
result = []
for name in argument:
    for attempt in (
        lambda: os.listdir(name),
        lambda: open(name).read(),
        lambda: open(name, "a").write("x"),
        lambda: os.rename(name, name + "-mine"),
        lambda: os.chmod(name, 0o777),
        lambda: open(name + "/planted", "w"),
    ):
        try:
            attempt()
            result.append(name)
        except OSError:
            pass
"""


@needs_root
def test_another_user_reads_and_writes_nothing(open_folder: Path, umask: int) -> None:
    root = open_folder / "history"
    root.mkdir()
    root.chmod(0o777)
    write(root)
    paths = [str(path) for path in (root, root / "app_1", *(root / "app_1").iterdir())]
    assert as_stranger(TRY, paths) == []
    assert read_job(str(root), "app_1").events


@needs_root
def test_another_user_reads_what_is_shared_and_writes_nothing(
    open_folder: Path, umask: int
) -> None:
    root = open_folder / "shared"
    root.mkdir()
    root.chmod(0o755)
    write(root, location=str(root))
    story, planted = root / "app_1" / "events-0001.jsonl", root / "app_1" / "x"
    code = "result = [open(argument[0]).read(), os.access(argument[0], os.W_OK)]"
    text, writes = as_stranger(code, [str(story), str(planted)])
    assert "a story" in text and not writes
    assert as_stranger(TRY, [str(planted)]) == []


def _refusal_as_another_user(folder: Path) -> str:
    """What :func:`prepare` raises in a process under another uid, with the modules loaded here."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(UID)
            os.setuid(UID)
            prepare(LocalFileSystem(), str(folder), str(folder.parent))
        except BaseException as error:  # the child never returns to pytest
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        words = stream.read().decode()
    os.waitpid(child, 0)
    return words


@needs_root
def test_a_folder_that_another_user_made_first_is_not_written(open_folder: Path) -> None:
    open_folder.chmod(0o1777)
    (open_folder / "app_1").mkdir()
    (open_folder / "app_1").chmod(0o777)
    refusal = _refusal_as_another_user(open_folder / "app_1")
    assert refusal.startswith("PermissionError: ")
    assert "belongs to the user with the uid 0" in refusal
    assert _refusal_as_another_user(open_folder / "app_2") == ""
