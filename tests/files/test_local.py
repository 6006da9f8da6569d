"""The local file system, through the port."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import BinaryIO

import pytest

from tony_core.files.local import LocalFileSystem, group_name, user_name
from tony_core.files.port import UnsupportedLocation
from tony_core.files.registry import filesystem, register, schemes


def test_put_is_atomic_and_has_its_mode_at_once(tmp_path: Path) -> None:
    files = filesystem(str(tmp_path))
    target = tmp_path / "secret"
    old = os.umask(0o077)
    try:
        files.put(str(target), b"one", mode=0o640)
    finally:
        os.umask(old)
    assert target.stat().st_mode & 0o777 == 0o640
    with target.open("rb") as reader:
        files.put(f"file://{target}", b"two")
        assert reader.read() == b"one"  # the old file, whole
    assert files.get(str(target)) == b"two"
    assert [item.name for item in tmp_path.iterdir()] == ["secret"]


def test_a_failed_put_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    files = LocalFileSystem()
    files.put(str(tmp_path / "x"), b"old")
    with pytest.raises(FileNotFoundError):
        files.upload(str(tmp_path / "none"), str(tmp_path / "x"))
    assert files.get(str(tmp_path / "x")) == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_write_streams_and_is_atomic(tmp_path: Path) -> None:
    files = LocalFileSystem()
    files.put(str(tmp_path / "x"), b"old")

    def produce(stream: BinaryIO) -> None:
        for number in range(100):
            stream.write(b"%d\n" % number)
        assert files.get(str(tmp_path / "x")) == b"old"

    files.write(str(tmp_path / "x"), produce, 0o600)
    assert files.get(str(tmp_path / "x")).endswith(b"98\n99\n")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600

    def fail(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        files.write(str(tmp_path / "x"), fail)
    assert files.get(str(tmp_path / "x")).endswith(b"99\n")
    assert [item.name for item in tmp_path.iterdir()] == ["x"]


def test_open_at_an_offset(tmp_path: Path) -> None:
    files = LocalFileSystem()
    files.put(str(tmp_path / "x"), b"0123456789")
    for offset in (0, 4, 10, 11):
        with files.open(str(tmp_path / "x"), offset) as stream:
            assert stream.read() == b"0123456789"[offset:]
    with pytest.raises((ValueError, OSError)):
        files.open(str(tmp_path / "x"), -1)


def test_a_stat_names_the_owner(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    found = LocalFileSystem().stat(str(tmp_path / "f"))
    mine = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    assert (found.owner, found.group) == mine
    assert user_name(3_999_999_999) == "3999999999" == group_name(3_999_999_999)


def test_a_user_who_is_known_again_has_his_name(monkeypatch: pytest.MonkeyPatch) -> None:
    root = pwd.getpwuid(0)
    assert user_name(3_999_999_998) == "3999999998", "the directory service does not answer"
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: root)
    assert user_name(3_999_999_998) == root.pw_name


def test_list_stat_delete(tmp_path: Path) -> None:
    files = LocalFileSystem()
    files.mkdir(str(tmp_path / "a" / "b"), mode=0o700)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    files.mkdir(str(tmp_path / "a" / "b"))
    files.put(str(tmp_path / "a" / "f"), b"12345")
    (tmp_path / "a" / "dangling").symlink_to("nowhere")
    found = files.list(str(tmp_path / "a"))
    assert [(Path(item.location).name, item.is_dir, item.size) for item in found][1] == (
        "f",
        False,
        5,
    )
    assert len(found) == 2
    assert files.delete(str(tmp_path / "a")) and not files.exists(str(tmp_path / "a"))
    assert not files.delete(str(tmp_path / "a"))


def test_delete_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert LocalFileSystem().delete(str(tmp_path / "link"))
    assert (tmp_path / "kept" / "file").exists()


def test_rename_never_replaces_a_folder(tmp_path: Path) -> None:
    files = LocalFileSystem()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(FileExistsError):
        files.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    files.put(str(tmp_path / "f"), b"1")
    files.put(str(tmp_path / "g"), b"2")
    files.rename(str(tmp_path / "f"), str(tmp_path / "g"))
    assert files.get(str(tmp_path / "g")) == b"1"


def test_get_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 11)
    with pytest.raises(ValueError, match="10 bytes"):
        LocalFileSystem().get(str(tmp_path / "f"), limit=10)
    assert len(LocalFileSystem().get(str(tmp_path / "f"), limit=11)) == 11


def test_the_error_of_an_unknown_scheme_names_what_is_missing() -> None:
    with pytest.raises(UnsupportedLocation, match=r"no Ozone client.*http://"):
        filesystem("ofs://bucket/x")
    with pytest.raises(UnsupportedLocation, match="write the hdfs:// location"):
        filesystem("viewfs://cluster/x")
    with pytest.raises(UnsupportedLocation, match="nothing here knows gopher://"):
        filesystem("gopher://me:pw@host/x")
    try:
        filesystem("gopher://me:pw@host/x")
    except UnsupportedLocation as error:
        assert "pw" not in str(error)


def test_a_file_system_can_be_added() -> None:
    register("mem", LocalFileSystem)
    assert isinstance(filesystem("mem://x/y"), LocalFileSystem)
    assert "mem" in schemes()
