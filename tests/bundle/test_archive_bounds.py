"""Archives that were made to harm: what they may cost, and the one error that they end in."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Callable, Dict, List

import pytest
from hypothesis import strategies as st

from tests.bundle.test_archive import FOLDER, GOOD, HARD, LINK, make_zip, tar
from tests.fuzzing import bounds, fuzz, mutations
from tony_core.bundle import archive
from tony_core.bundle.archive import ArchiveError, ArchiveLimits

MB = 1 << 20
SMALL = ArchiveLimits(size=8 * MB, members=1000)


def header(name: bytes, size: int, type: bytes = tarfile.REGTYPE, **fields: bytes) -> bytes:
    """One block of a tar, right but for what is asked for."""
    raw = bytearray(512)
    raw[0 : len(name)] = name
    raw[100:108] = b"0000644\0"
    raw[124:136] = b"%011o\0" % size if size >= 0 else size.to_bytes(12, "big", signed=True)
    raw[136:148] = fields.get("mtime", b"00000000000\0")
    raw[156:157] = type
    link = fields.get("link", b"")
    raw[157 : 157 + len(link)] = link
    raw[257:265] = b"ustar\x0000" if type != b"S" else b"ustar  \0"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


END = bytes(1024)


def zeros(size: int) -> bytes:
    return bytes(-(-size // 512) * 512)


def xz_of_a_huge_dictionary() -> bytes:
    """72 bytes that take as much memory as their dictionary, 1.5 GB, to be read."""
    made = lzma.compress(END, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}])
    at = 12  # the block's header: its size, flags, filter, size of properties, properties
    block = bytearray(made[at : at + (made[at] + 1) * 4])
    assert block[2] == 0x21
    block[4] = 39  # 3 GB
    block[-4:] = struct.pack("<I", zlib.crc32(bytes(block[:-4])))
    return made[:at] + bytes(block) + made[at + len(block) :]


def pax(fields: Dict[str, str]) -> bytes:
    text = b""
    for key, value in fields.items():
        rest = f" {key}={value}\n".encode("utf-8", "surrogatepass")
        size = len(rest) + 1
        while len(str(size)) + len(rest) != size:
            size += 1
        text += str(size).encode() + rest
    return header(b"x", len(text), b"x") + text.ljust(-(-len(text) // 512) * 512, b"\0")


def many_globals() -> bytes:
    out = b""
    for number in range(300):
        text = b"".join(b"11 %06d=\n" % (number * 100 + key) for key in range(100))
        out += header(b"g", len(text), b"g") + text.ljust(-(-len(text) // 512) * 512, b"\0")
        out += header(b"f%d" % number, 0)
    return out + END


def zip_bytes(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return out.getvalue()


def zip_of_links() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        info = zipfile.ZipInfo("link")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        made.writestr(info, bytes(100 * MB).replace(b"\0", b"a"))
    return out.getvalue()


def zip_method(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        made.writestr("f", bytes(100 * MB))
    return out.getvalue()


def zip_claim(offset: int, value: bytes) -> bytes:
    """A zip whose end record is changed there."""
    data = bytearray(zip_bytes(f=b"x"))
    at = data.rindex(b"PK\x05\x06") + offset
    data[at : at + len(value)] = value
    return bytes(data)


def zip_of_many(count: int) -> bytes:
    """A directory of that many entries; not one of them is anywhere."""
    one = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"f"
    data = one * count
    return data + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, len(data), 0, 0)


BOMBS: Dict[str, Callable[[], bytes]] = {
    "xz with a dictionary of 3 GB": xz_of_a_huge_dictionary,
    "a name of 100 MB": lambda: bz2.compress(
        header(b"././@LongLink", 100 * MB, b"L") + zeros(100 * MB) + header(b"f", 0) + END
    ),
    "a pax header of 100 MB": lambda: bz2.compress(
        header(b"x", 100 * MB, b"x") + zeros(100 * MB) + header(b"f", 0) + END
    ),
    "ten thousand headers of headers": lambda: gzip.compress(
        header(b"././@LongLink", 4, b"L") * 1 + (header(b"x", 0, b"x") * 10_000) + END
    ),
    "global headers that add up": lambda: gzip.compress(many_globals()),
    "a sparse map without an end": lambda: gzip.compress(
        sparse_header() + sparse_map() * 20_000 + END
    ),
    "a sparse file of 8 TB": lambda: pax_sparse(8 << 40),
    "100 MB after the end": lambda: bz2.compress(header(b"f", 0) + END + bytes(100 * MB)),
    "files of 16 MB": lambda: gzip.compress(header(b"f", 16 * MB) + bytes(16 * MB) + END),
    "1001 members": lambda: gzip.compress(header(b"f", 0) * 1001 + END),
    "1001 folders": lambda: gzip.compress(
        b"".join(header(b"%d/" % n + b"a/" * 40 + b"f", 0) for n in range(30)) + END
    ),
    "a negative size": lambda: header(b"f", -512) + END,
    "a size that leads back": lambda: header(b"a", 0) + header(b"f", -1024) + END,
    "a zip of one link of 100 MB": zip_of_links,
    "a zip of a bz2 of 100 MB": lambda: zip_method(zipfile.ZIP_BZIP2),
    "a zip of an lzma of 100 MB": lambda: zip_method(zipfile.ZIP_LZMA),
    "a zip of 16 MB": lambda: zip_bytes(f=bytes(16 * MB)),
    "a zip of 1001 members": lambda: zip_bytes(**{f"f{n}": b"" for n in range(1001)}),
    "a zip whose directory claims 4 GB": lambda: zip_claim(12, b"\xfe\xff\xff\xff"),
    "a zip of 300,001 entries": lambda: zip_of_many(300_001),
    "a number of members that is no number": lambda: pax({"size": "9" * 5000}) + END,
    "a name of 5,000 bytes": lambda: pax({"path": "a/" * 2500}) + header(b"f", 0) + END,
    "a part of 300 bytes": lambda: pax({"path": "a" * 300}) + header(b"f", 0) + END,
    "a hundred folders and more": lambda: pax({"path": "a/" * 300}) + header(b"f", 0) + END,
    "a link to 5,000 bytes": lambda: (
        pax({"linkpath": "a" * 5000}) + header(b"l", 0, tarfile.SYMTYPE) + END
    ),
}


def sparse_header() -> bytes:
    raw = bytearray(header(b"s", 0, b"S"))
    raw[482] = 1  # more of the map follows
    raw[483:495] = b"00000000000\0"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def sparse_map() -> bytes:
    return (b"00000000000\x0000000000000\0" * 21).ljust(504, b"\0") + b"\1" + bytes(7)


def pax_sparse(size: int) -> bytes:
    fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s"}
    body = b"1\n0\n0\n".ljust(512, b"\0")
    return pax({**fields, "GNU.sparse.realsize": str(size)}) + header(b"s", len(body)) + body + END


@pytest.mark.parametrize("bomb", sorted(BOMBS))
def test_a_bomb_costs_little_and_is_one_error(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[bomb]())
    limits = SMALL if "300,001" not in bomb else ArchiveLimits()
    for number, call in enumerate((archive.listing, archive.check)):
        if bomb == "100 MB after the end" and number == 0:
            continue  # read by who reads all
        with bounds(seconds=20, megabytes=24), pytest.raises(ArchiveError) as caught:
            call(str(path), limits)
        assert len(str(caught.value)) < 5000
    with bounds(seconds=20, megabytes=24), pytest.raises(ArchiveError):
        archive.extract(str(path), str(tmp_path / "out"), limits)
    assert used(tmp_path / "out") <= 9 * MB
    assert sum(1 for _ in (tmp_path / "out").rglob("*")) <= 1100


def used(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


STRANGE = {
    "a NUL in a name": lambda: pax({"path": "a\0b"}) + header(b"f", 0) + END,
    "a surrogate in a name": lambda: pax({"path": "a\ud800b"}) + header(b"f", 0) + END,
    "a time that is none": lambda: pax({"mtime": "nan"}) + header(b"f", 0) + END,
    "a time without an end": lambda: pax({"mtime": "inf"}) + header(b"f", 0) + END,
    "a time of 400 digits": lambda: pax({"mtime": "9" * 400}) + header(b"f", 0) + END,
    "a damaged header in the middle": lambda: header(b"a", 0) + b"garbage" * 512 + END,
    "cut in a header": lambda: header(b"a", 0) + header(b"b", 0)[:300],
    "hard links in a ring": lambda: (
        header(b"a", 0, tarfile.LNKTYPE, link=b"b") + header(b"b", 0, tarfile.LNKTYPE, link=b"a")
    ),
}


@pytest.mark.parametrize("case", sorted(STRANGE))
def test_strange_members_are_refused_or_unpacked_and_nothing_else(
    tmp_path: Path, case: str
) -> None:
    path = tmp_path / "strange"
    path.write_bytes(STRANGE[case]())
    try:
        archive.extract(str(path), str(tmp_path / "out"), SMALL)
    except ArchiveError as error:
        assert "time" not in case, error
    assert ("damaged" not in case and "cut" not in case) or not (tmp_path / "out" / "b").exists()


@pytest.mark.parametrize("case", ["a damaged header in the middle", "cut in a header"])
def test_half_an_archive_is_not_taken_for_a_whole_one(tmp_path: Path, case: str) -> None:
    path = tmp_path / "half"
    path.write_bytes(STRANGE[case]())
    with pytest.raises(ArchiveError):
        archive.check(str(path))


def test_links_that_lead_out_by_way_of_another(tmp_path: Path) -> None:
    path = tar(
        tmp_path / "t",
        [
            ("d/e/up", {"type": LINK, "linkname": "../.."}),
            ("out", {"type": LINK, "linkname": "d/e/up/.."}),
        ],
    )
    with pytest.raises(ArchiveError, match="out: is a link out of the archive"):
        archive.check(str(path))


@pytest.mark.parametrize("target", ["/".join(["a"] * 2048), "/".join(["l1"] * 1300)])
def test_links_through_thousands_of_folders_and_links_cost_little(
    tmp_path: Path, target: str
) -> None:
    path = tar(
        tmp_path / "t",
        [(f"l{n}", {"type": LINK, "linkname": target}) for n in range(60)],
    )
    with bounds(seconds=5.0), pytest.raises(ArchiveError, match="its links lead through too many"):
        archive.check(str(path), SMALL)


def test_links_that_lead_in_a_ring_are_unpacked_as_they_are(tmp_path: Path) -> None:
    path = tar(
        tmp_path / "t",
        [
            ("a", {"type": LINK, "linkname": "b/x"}),
            ("b", {"type": LINK, "linkname": "a/x"}),
        ],
    )
    archive.extract(str(path), str(tmp_path / "out"))
    assert os.readlink(tmp_path / "out" / "a") == "b/x"


@pytest.mark.parametrize("kind", [LINK, HARD, tarfile.REGTYPE])
def test_a_later_entry_of_the_same_name_wins(tmp_path: Path, kind: bytes) -> None:
    entries = [("other", {}), ("a", {"data": "1"}), ("a", {"type": kind, "linkname": "other"})]
    archive.extract(str(tar(tmp_path / "t", entries)), str(tmp_path / "out"))
    found = tmp_path / "out" / "a"
    assert found.read_text() == "" and found.is_symlink() == (kind == LINK)


def test_no_bit_but_exec_survives(tmp_path: Path) -> None:
    path = tar(tmp_path / "t", [("d/", {"type": FOLDER, "mode": 0o7777}), ("f", {"mode": 0o7777})])
    archive.extract(str(path), str(tmp_path / "out"))
    assert stat.S_IMODE((tmp_path / "out" / "f").stat().st_mode) == 0o555
    assert stat.S_IMODE((tmp_path / "out" / "d").stat().st_mode) == 0o755


def test_names_in_an_error_are_short_and_cannot_steer_a_terminal(tmp_path: Path) -> None:
    path = tar(tmp_path / "t", [("/\x1b]0;pwned\x07\u202e" + "a" * 5000, {})])
    with pytest.raises(ArchiveError) as caught:
        archive.check(str(path))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_too_many_hard_links_to_one_file(tmp_path: Path) -> None:
    links = [(f"l{n}", {"type": HARD, "linkname": "f"}) for n in range(10_001)]
    path = tar(tmp_path / "t", [("f", {"data": "x"}), *links])
    with pytest.raises(ArchiveError, match="more than 10000 hard links"):
        archive.listing(str(path))


def test_what_would_fill_the_disk_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(header(b"f", 16 * MB) + bytes(16 * MB) + END))
    real = os.statvfs

    def nearly_full(where: str) -> os.statvfs_result:
        fields = list(real(where))
        fields[1], fields[4] = 4096, 1000  # f_frsize, f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(OSError, match="no room to unpack it") as caught:
        archive.extract(str(path), str(tmp_path / "out"))
    assert caught.value.errno == errno.ENOSPC
    assert used(tmp_path / "out") == 0


def test_an_error_of_this_machine_is_not_the_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tar(tmp_path / "t", GOOD)

    def full(*_: object) -> None:
        raise OSError(errno.EINVAL, "this disk is strange")

    monkeypatch.setattr(archive.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="this disk is strange"):
        archive.extract(str(path), str(tmp_path / "out"))


def samples() -> List[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        plain = tar(Path(folder, "t"), GOOD, "w").read_bytes()
        zipped = make_zip(Path(folder, "z")).read_bytes()
    special = pax({"path": "é/x", "mtime": "1.5", "size": "3"}) + header(b"f", 3) + b"abc" + END
    sparse = pax_sparse(1000) + sparse_header()
    return [
        plain, zipped, special, sparse, header(b"././@LongLink", 4, b"L") + plain,
        gzip.compress(plain), bz2.compress(plain), lzma.compress(plain),
    ]  # fmt: skip


SAMPLES = samples()


@fuzz(data=mutations(*SAMPLES), seconds=3, megabytes=32)
def test_any_bytes_are_an_archive_or_one_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, target = os.path.join(folder, "x"), os.path.join(folder, "in", "out")
        os.mkdir(os.path.join(folder, "in"))
        Path(path).write_bytes(data)
        for call in (archive.listing, archive.check):
            try:
                call(path, SMALL)
            except ArchiveError as error:
                assert error.problems
        try:
            archive.extract(path, target, SMALL)
        except ArchiveError:
            pass
        assert os.listdir(os.path.join(folder, "in")) == ["out"]
        assert sorted(os.listdir(folder)) == ["in", "x"]


@fuzz(
    names=st.lists(
        st.tuples(
            st.text(st.sampled_from("ab/.\0\ud800é"), max_size=12),
            st.sampled_from([tarfile.REGTYPE, LINK, HARD, FOLDER, tarfile.FIFOTYPE]),
            st.text(st.sampled_from("ab/."), max_size=8),
        ),
        max_size=8,
    )
)
def test_no_names_and_links_lead_out(names: List[tuple]) -> None:  # type: ignore[type-arg]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, kind, target in names:
            info = tarfile.TarInfo(name.replace("\ud800", "\udc80"))
            info.type, info.linkname = kind, target
            made.addfile(info)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").write_bytes(out.getvalue())
        target = Path(folder, "in")
        try:
            archive.extract(os.path.join(folder, "x"), str(target), SMALL)
        except ArchiveError:
            return
        assert sorted(os.listdir(folder)) == ["in", "x"]
        for path in target.rglob("*"):
            if path.is_symlink() and not os.readlink(path).startswith("/"):
                try:
                    path.stat()
                    resolved = path.resolve()
                except FileNotFoundError:
                    resolved = path.resolve()
                except (OSError, RuntimeError):
                    continue  # a ring, of which resolve() may make anything
                absolute = any(
                    os.readlink(other).startswith("/")
                    for other in target.rglob("*")
                    if other.is_symlink()
                )
                assert absolute or resolved.is_relative_to(target.resolve())
