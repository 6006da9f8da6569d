"""Reading other people's archives: zip and tar, checked before a byte is written.

Theory of operation
===================

An archive is first read as a list of :class:`Member`, one shape for both formats, and
judged whole: no absolute name, no ``..``, no device, no name below a link or a file, no
password, no link that climbs out. All that is wrong is said at once. Only then it may be
extracted, into an empty folder of our own, in the order folders, files, hard links,
symbolic links: so no link exists while anything is written, and nothing can be written
through one.

Symbolic links with an absolute target are kept: a virtual environment's ``bin/python`` is
one. They are told (:attr:`Listing.links_out`), and harmless to unpack, being made last.
Of permissions the exec bit survives; times do too, since bytecode depends on them.

The type is told from the first bytes, not from the name. Corruption shows by reading:
:func:`check` reads all of it. Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat as modes
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Set, cast

from tony_core.bundle.copying import sealed_mode
from tony_core.dataclass import dataclass, field

if TYPE_CHECKING:
    import tarfile
    import zipfile

SUPPORTED = "zip, tar, tar.gz (tgz), tar.bz2, tar.xz"
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_SAID_AT_ONCE = 20


class ArchiveError(Exception):
    """The archive cannot be used; ``problems`` says everything that is wrong with it."""

    def __init__(self, problems: List[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass
class Member:
    """One entry of an archive."""

    name: str  # relative, normal, by slashes
    type: str  # "file", "folder", "link", "hardlink"
    executable: bool = False
    target: str = ""  # of a link: its text; of a hard link: a member's name
    size: int = 0
    mtime: float = 0.0
    raw: Any = None  # the library's own record


@dataclass
class Listing:
    """What an archive holds."""

    path: str
    members: Dict[str, Member] = field(default_factory=dict)
    links_out: List[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes once unpacked."""
        return sum(member.size for member in self.members.values())


def check(path: str) -> Listing:
    """List the archive and read all of it; raises :class:`ArchiveError`."""

    def skip(member: Member, stream: IO[bytes]) -> None:
        while stream.read(1 << 20):
            pass

    return _read(path, skip)


def listing(path: str) -> Listing:
    """List the archive only: fast for a zip; raises :class:`ArchiveError`."""
    return _read(path, None)


def extract(path: str, target: str) -> Listing:
    """Unpack into ``target``, which does not exist yet; raises :class:`ArchiveError`."""
    os.mkdir(target, 0o755)

    def place(name: str) -> str:
        full = os.path.join(target, name)
        os.makedirs(os.path.dirname(full), mode=0o755, exist_ok=True)
        return full

    def write(member: Member, stream: IO[bytes]) -> None:
        try:
            full = place(posixpath.normpath(member.name))
            if os.path.lexists(full):
                os.unlink(full)  # a later entry of the same name wins
            handle = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return  # below a file, or in a folder's place: the judgement will say so
        with os.fdopen(handle, "wb") as output:
            shutil.copyfileobj(stream, output, 1 << 20)
            output.flush()
            if member.mtime > 0:
                os.utime(output.fileno(), (member.mtime, member.mtime))
            os.fchmod(output.fileno(), sealed_mode(member.executable))

    found = _read(path, write)
    for member in found.members.values():
        if member.type == "folder":
            os.makedirs(os.path.join(target, member.name), mode=0o755, exist_ok=True)
        elif member.type == "hardlink":
            os.link(os.path.join(target, member.target), place(member.name))
    for member in found.members.values():
        if member.type == "link":
            os.symlink(member.target, place(member.name))
    return found


Reader = Callable[[Member, IO[bytes]], None]


def _read(path: str, reader: Optional[Reader]) -> Listing:
    import lzma  # here, for few submits read an archive: what has been read is remembered
    import tarfile
    import zipfile
    import zlib

    broken = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
    try:
        with open(path, "rb") as stream:
            start = stream.read(4)
        if start[:2] == b"PK":
            with zipfile.ZipFile(path) as archive:
                return _read_zip(path, archive, reader)
        with tarfile.open(path, "r:*") as tar:
            return _read_tar(path, tar, reader)
    except (*broken, EOFError, NotImplementedError, ValueError) as error:
        if start[:2] == b"PK" or start[:2] == b"\x1f\x8b" or start[:3] in (b"BZh", b"\xfd7z"):
            raise ArchiveError([f"is damaged or cut short ({error})"]) from error
        raise ArchiveError([f"is not an archive that can be read ({SUPPORTED})"]) from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 say "corrupt" this way
            raise ArchiveError([f"is damaged or cut short ({error})"]) from error
        raise


def _read_zip(path: str, archive: zipfile.ZipFile, reader: Optional[Reader]) -> Listing:
    members, problems = [], []
    for info in archive.infolist():
        mode = info.external_attr >> 16 if info.create_system == 3 else 0
        member = Member(info.filename, "file", bool(mode & 0o100), size=info.file_size, raw=info)
        if info.is_dir():
            member.type = "folder"
        elif modes.S_ISLNK(mode):
            member.type = "link"
        elif mode and modes.S_IFMT(mode) not in (0, modes.S_IFREG, modes.S_IFDIR):
            problems.append(f"{info.filename}: is a device or socket")
        if info.flag_bits & 0x1:
            problems.append(f"{info.filename}: is protected by a password")
            continue
        try:
            member.mtime = time.mktime((*info.date_time, 0, 0, -1))
        except (ValueError, OverflowError):
            member.mtime = 0.0
        if member.type == "link":
            member.target = os.fsdecode(archive.read(info))
            member.size = 0
        members.append(member)
    found = _judge(path, members, problems)
    if reader is not None:
        for member in found.members.values():
            if member.type == "file":
                with archive.open(member.raw) as stream:
                    reader(member, stream)
    return found


def _read_tar(path: str, archive: tarfile.TarFile, reader: Optional[Reader]) -> Listing:
    """In one pass, since a compressed tar cannot seek back: each file's bytes are handed on
    before the whole is judged, into a folder that is thrown away if the judgement is bad."""
    members, problems = [], []
    for info in archive:
        member = Member(info.name, "file", bool(info.mode & 0o100), mtime=float(info.mtime))
        if info.isdir():
            member.type = "folder"
        elif info.issym():
            member.type, member.target = "link", info.linkname
        elif info.islnk():
            member.type, member.target = "hardlink", info.linkname
        elif info.isreg():
            member.size = info.size
        else:
            problems.append(f"{info.name}: is a device or socket")
            continue
        members.append(member)
        if reader is not None and member.type == "file" and not _bad_name(member.name):
            stream = archive.extractfile(info)
            assert stream is not None
            with stream:
                reader(member, cast(IO[bytes], _Exactly(stream, member.size)))
    if reader is not None and archive.fileobj is not None:
        while archive.fileobj.read(1 << 20):
            pass  # the checksum stands at the very end
    return _judge(path, members, problems)


class _Exactly:
    """Fails when a member ends before its announced size (tarfile itself may be silent)."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if not data and self._left > 0:
            import tarfile

            raise tarfile.ReadError("unexpected end of data")
        return data


def _judge(path: str, members: List[Member], problems: List[str]) -> Listing:
    """One member for each name (the later wins, as tar means it), or everything wrong."""
    found = Listing(path)
    for member in members:
        why = _bad_name(member.name)
        if why:
            problems.append(f"{member.name!r}: {why}")
            continue
        member.name = posixpath.normpath(member.name)
        if member.name == ".":
            continue
        if member.type == "hardlink":
            member.target = posixpath.normpath(member.target)
        older = found.members.pop(member.name, None)
        if (
            older is not None
            and "folder" in (older.type, member.type)
            and older.type != member.type
        ):
            problems.append(f"{member.name}: is a folder and something else, too")
        found.members[member.name] = member
    kinds = {member.name: member.type for member in found.members.values()}
    parents = {above for name in kinds for above in _above(name)}
    for member in found.members.values():
        if member.type != "folder" and member.name in parents:
            problems.append(f"{member.name}: is no folder, yet other entries lie below it")
        if member.type == "hardlink" and kinds.get(member.target) != "file":
            problems.append(
                f"{member.name}: is a hard link to {member.target!r}, "
                "which is not a file of the archive"
            )
        if member.type == "link":
            if "\0" in member.target or not member.target:
                problems.append(f"{member.name}: is a link to nothing")
            elif posixpath.isabs(member.target):
                found.links_out.append(f"{member.name} -> {member.target}")
            elif _climbs(posixpath.dirname(member.name), member.target):
                problems.append(f"{member.name}: is a link out of the archive (to {member.target})")
    if problems:
        more = len(problems) - _SAID_AT_ONCE
        said = problems[:_SAID_AT_ONCE]
        raise ArchiveError(said + ([f"and {more} more such entries"] if more > 0 else []))
    return found


def _bad_name(name: str) -> str:
    if not name or "\0" in name:
        return "is no name"
    if name.startswith("/"):
        return "is an absolute path, which would be written outside the folder"
    if ".." in name.split("/"):
        return "holds '..', which could be written outside the folder"
    return ""


def _above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _climbs(folder: str, target: str) -> bool:
    full = posixpath.normpath(posixpath.join(folder, target))
    return full == ".." or full.startswith("../")


def top_folders(found: Listing) -> Set[str]:
    """The names at the archive's top."""
    return {name.split("/", 1)[0] for name in found.members}
