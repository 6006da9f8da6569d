"""Archives, good and bad."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from tony_core.bundle import archive

Entries = List[Tuple[str, Dict[str, object]]]


def tar(path: Path, entries: Entries, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as out:  # type: ignore[call-overload]
        for name, fields in entries:
            info = tarfile.TarInfo(name)
            data = bytes(str(fields.get("data", "")), "ascii")
            info.size = len(data)
            info.mtime = 1000
            for field, value in fields.items():
                if field != "data":
                    setattr(info, field, value)
            out.addfile(info, io.BytesIO(data))
    return path


LINK, HARD, FOLDER, FIFO = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
GOOD: Entries = [
    ("./", {"type": FOLDER}),
    ("bin/", {"type": FOLDER}),
    ("bin/tool", {"data": "tool", "mode": 0o4755}),
    ("lib/deep/a.py", {"data": "a", "mode": 0o600}),
    ("empty", {"type": FOLDER}),
    ("bin/python", {"type": LINK, "linkname": "/usr/bin/python3"}),
    ("lib/link", {"type": LINK, "linkname": "../bin/tool"}),
    ("lib/hard", {"type": HARD, "linkname": "./bin/tool"}),
]


def expect_good(folder: Path) -> None:
    assert (folder / "bin" / "tool").read_text() == "tool"
    assert (folder / "bin" / "tool").stat().st_mode & 0o7777 == 0o555
    assert (folder / "lib" / "deep" / "a.py").stat().st_mode & 0o777 == 0o444
    assert (folder / "lib" / "deep" / "a.py").stat().st_mtime == 1000
    assert (folder / "empty").is_dir()
    assert os.readlink(folder / "bin" / "python") == "/usr/bin/python3"
    assert (folder / "lib" / "link").read_text() == "tool"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar(tmp_path: Path, mode: str) -> None:
    path = tar(tmp_path / "no-suffix", GOOD, mode)
    listing = archive.check(str(path))
    assert listing.links_out == ["bin/python -> /usr/bin/python3"]
    archive.extract(str(path), str(tmp_path / "out"))
    expect_good(tmp_path / "out")
    assert (tmp_path / "out" / "lib" / "hard").read_text() == "tool"


def make_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, mode, data in (
            ("bin/tool", 0o100755, "tool"),
            ("lib/deep/a.py", 0o100600, "a"),
            ("empty/", 0o40755, ""),
            ("bin/python", 0o120777, "/usr/bin/python3"),
            ("lib/link", 0o120777, "../bin/tool"),
        ):
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            info.create_system = 3
            info.external_attr = mode << 16
            out.writestr(info, data)
    return path


def test_zip(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip")
    archive.check(str(path))
    archive.extract(str(path), str(tmp_path / "out"))
    os.chmod(tmp_path / "out" / "lib" / "deep" / "a.py", 0o644)
    os.utime(tmp_path / "out" / "lib" / "deep" / "a.py", (1000, 1000))
    os.chmod(tmp_path / "out" / "lib" / "deep" / "a.py", 0o444)
    expect_good(tmp_path / "out")


BAD: Dict[str, Tuple[Entries, str]] = {
    "absolute": ([("/etc/x", {"data": "x"})], "absolute path"),
    "climbs": ([("a/../../x", {"data": "x"})], "holds '..'"),
    "link out": ([("a/l", {"type": LINK, "linkname": "../../x"})], "link out of the archive"),
    "below a link": (
        [("l", {"type": LINK, "linkname": "/tmp"}), ("l/x", {"data": "x"})],
        "l: is no folder, yet",
    ),
    "below a file": ([("f", {"data": "1"}), ("f/x", {"data": "x"})], "f: is no folder, yet"),
    "file below first": ([("f/x", {"data": "x"}), ("f", {"data": "1"})], "f: is no folder, yet"),
    "hard link out": ([("h", {"type": HARD, "linkname": "/etc/passwd"})], "is a hard link to"),
    "hard link to a link": (
        [("l", {"type": LINK, "linkname": "/x"}), ("h", {"type": HARD, "linkname": "l"})],
        "is a hard link to",
    ),
    "device": ([("dev", {"type": tarfile.CHRTYPE})], "device"),
    "pipe": ([("pipe", {"type": FIFO})], "device"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_tars_are_refused_and_write_nothing_outside(tmp_path: Path, case: str) -> None:
    entries, words = BAD[case]
    path = tar(tmp_path / "bad.tar.gz", [("ok", {"data": "x"}), *entries])
    before = sorted(tmp_path.iterdir())
    for call in (archive.check, archive.listing):
        with pytest.raises(archive.ArchiveError, match=words):
            call(str(path))
    with pytest.raises(archive.ArchiveError, match=words):
        archive.extract(str(path), str(tmp_path / "out"))
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = tar(
        tmp_path / "bad.tar", [(f"/{n}", {}) for n in range(30)] + [("p", {"type": FIFO})], "w"
    )
    with pytest.raises(archive.ArchiveError) as caught:
        archive.check(str(path))
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "and 11 more such entries"


def test_the_later_entry_of_a_name_wins(tmp_path: Path) -> None:
    path = tar(tmp_path / "t", [("f", {"data": "old"}), ("./f", {"data": "new"})])
    archive.extract(str(path), str(tmp_path / "out"))
    assert (tmp_path / "out" / "f").read_text() == "new"


def test_zip_members_that_climb(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as out:
        out.writestr("../x", "x")
        link = zipfile.ZipInfo("l")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        out.writestr(link, "../../etc")
    with pytest.raises(archive.ArchiveError) as caught:
        archive.check(str(tmp_path / "bad.zip"))
    assert len(caught.value.problems) == 2


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


@pytest.mark.parametrize("harm", [cut, flip])
@pytest.mark.parametrize("kind", ["w:gz", "w:bz2", "w:xz", "zip", "tar cut"])
def test_damage_is_found(tmp_path: Path, kind: str, harm: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "x"
    noise = os.urandom(40000).hex()
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            out.writestr("noise", noise)
    elif kind == "tar cut":
        tar(path, [("noise", {"data": noise})], "w")
        harm = cut  # a plain tar has no checksum over its files
    else:
        tar(path, [("noise", {"data": noise})], kind)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(archive.ArchiveError, match=r"damaged|not an archive"):
        archive.check(str(path))


@pytest.mark.parametrize("data", [b"", b"hello world" * 100, b"PK", b"\x1f\x8b"])
def test_no_archive_at_all(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(archive.ArchiveError, match=r"damaged|not an archive"):
        archive.check(str(tmp_path / "x.zip"))


def test_an_archive_with_a_password_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1  # the flag in the last central record
    path.write_bytes(bytes(data))
    with pytest.raises(archive.ArchiveError, match="password"):
        archive.check(str(path))
