"""Files that a crash leaves whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Tuple

import pytest

from tony_core.files import durable
from tony_core.files.durable import replace_file, replacing, sync_tree
from tony_core.files.registry import filesystem


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> List[Tuple[str, str]]:
    """Every flush and rename, in order, by the name of the file or folder."""
    seen: List[Tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def name(handle: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(
        durable.os, "fsync", lambda handle: (seen.append(("flush", name(handle))), fsync(handle))
    )
    monkeypatch.setattr(
        durable.os,
        "replace",
        lambda a, b: (seen.append(("rename", os.path.basename(b))), replace(a, b)),
    )
    return seen


def test_bytes_are_on_disk_before_the_name_and_the_name_before_the_call_returns(
    tmp_path: Path, calls: List[Tuple[str, str]]
) -> None:
    replace_file(str(tmp_path / "summary"), b"all of it")
    assert [what for what, _ in calls] == ["flush", "rename", "flush"]
    assert calls[1:] == [("rename", "summary"), ("flush", tmp_path.name)]
    assert (tmp_path / "summary").read_bytes() == b"all of it"


def test_what_means_nothing_after_a_restart_costs_no_flush(
    tmp_path: Path, calls: List[Tuple[str, str]]
) -> None:
    replace_file(str(tmp_path / "pid"), b"1", sync=False)
    assert calls == [("rename", "pid")]


def test_a_file_has_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0, 0o777):
        before = os.umask(umask)
        try:
            replace_file(str(tmp_path / "file"), b"x", 0o640)
        finally:
            os.umask(before)
        assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o640


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(str(path)) as stream:
        stream.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    replace_file(str(tmp_path / ("é" * 127)), b"x")
    assert len(os.listdir(tmp_path)) == 1


def test_a_tree_is_flushed_file_by_file_and_links_are_not_followed(
    tmp_path: Path, calls: List[Tuple[str, str]]
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_bytes(b"x")
    (tree / "link").symlink_to(outside)
    sync_tree(str(tree))
    assert {name for _, name in calls} == {"file", "sub", "tree"}


def test_the_local_file_system_writes_durably(tmp_path: Path, calls: List[Tuple[str, str]]) -> None:
    location = str(tmp_path / "summary.json")
    filesystem(location).write(location, lambda stream: stream.write(b"{}"))
    assert [what for what, _ in calls] == ["flush", "rename", "flush"]
