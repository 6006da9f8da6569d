"""Reads untrusted archives, zip and tar; checks them before they are used.

Theory of operation
===================

An archive is first read as a list of :class:`Member`, one shape for both formats, and
checked as a whole: no absolute name, no ``..``, no device, no name below a link or a file, no
password, no link that climbs out, nothing beyond the :class:`ArchiveLimits`. All problems are
reported at once. It is extracted into an empty folder of our own, in the order folders, files,
hard links, symbolic links: so no link exists while anything is written, and nothing can be
written through one. A folder that an error leaves half-written is the caller's to remove.

Symbolic links with an absolute target are kept: a virtual environment's ``bin/python`` is
one. They are listed (:attr:`Listing.links_out`), and harmless to unpack, being made last.
Of permissions the exec bit survives; times do too, since bytecode depends on them.

The type follows from the first bytes, not from the name. Corruption shows by reading:
:func:`check` reads all of it. Whatever a library raises over damaged bytes becomes
:class:`ArchiveError`; an ``OSError`` is this machine's. Memory is bounded by :mod:`archive_streams`
and by the number of members. Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat as modes
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Callable, Iterator, Optional, cast

from tony_core.bundle.archive_members import (
    LONGEST_TARGET,
    ArchiveError,
    Listing,
    Member,
    MemberCheck,
)
from tony_core.bundle.archive_streams import (
    ArchiveLimits,
    LimitExceeded,
    TarBytes,
    XzBytes,
    ZipBytes,
)
from tony_core.bundle.local.copying import sealed_mode

__all__ = [
    "SUFFIXES",
    "SUPPORTED",
    "ArchiveError",
    "ArchiveLimits",
    "Listing",
    "check",
    "extract",
    "listing",
]

if TYPE_CHECKING:
    import zipfile

SUPPORTED = "zip, tar, tar.gz (tgz), tar.bz2, tar.xz"
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_MOST_GLOBAL_HEADERS = 1000
_BLOCK = 1 << 18


def check(path: str, limits: ArchiveLimits = ArchiveLimits()) -> Listing:
    """List the archive and read all of it; raises :class:`ArchiveError`."""

    def skip(member: Member, stream: IO[bytes]) -> None:
        while stream.read(_BLOCK):
            pass

    return _read(path, skip, limits)


def listing(path: str, limits: ArchiveLimits = ArchiveLimits()) -> Listing:
    """List the archive only: fast for a zip; raises :class:`ArchiveError`."""
    return _read(path, None, limits)


def extract(path: str, target: str, limits: ArchiveLimits = ArchiveLimits()) -> Listing:
    """Unpack into ``target``, which does not exist yet; raises :class:`ArchiveError`.

    ``OSError`` with ``ENOSPC`` before the disk is full, not when it is.
    """
    os.mkdir(target, 0o755)
    disk = os.statvfs(target)
    free = disk.f_bavail * disk.f_frsize
    written = 0

    def place(name: str) -> str:
        full = os.path.join(target, name)
        os.makedirs(os.path.dirname(full), mode=0o755, exist_ok=True)
        if os.path.lexists(full):
            os.unlink(full)  # a later entry of the same name wins
        return full

    def write(member: Member, stream: IO[bytes]) -> None:
        nonlocal written
        written += member.size
        if written > free:
            raise OSError(
                errno.ENOSPC,
                f"there is no room to unpack it: its files take more than the {free // 10**6} MB"
                " that are free",
                target,
            )
        try:
            full = place(posixpath.normpath(member.name))
            handle = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return  # below a file, or in a folder's place: the check reports it
        with os.fdopen(handle, "wb") as output:
            shutil.copyfileobj(stream, output, _BLOCK)
            output.flush()
            if member.mtime > 0:
                os.utime(output.fileno(), (member.mtime, member.mtime))
            os.fchmod(output.fileno(), sealed_mode(member.executable))

    found = _read(path, write, limits)
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


def _read(path: str, reader: Optional[Reader], limits: ArchiveLimits) -> Listing:
    with open(path, "rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        kind = _kind(start)
        try:
            with _readable(kind):
                if kind != "zip":
                    return _read_tar(path, _tar_bytes(raw, kind, limits), reader, limits)
                import zipfile

                with ZipBytes(path, limits) as source, zipfile.ZipFile(source) as archive:
                    source.directory_is_read()
                    return _read_zip(path, archive, reader, limits)
        except _LocalError as error:
            raise error.error from None


def _kind(start: bytes) -> str:
    magics = {b"PK": "zip", b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ": "xz"}
    return next((kind for magic, kind in magics.items() if start.startswith(magic)), "tar")


class _LocalError(Exception):
    """Carries an error of this machine, not of the archive, past the libraries."""

    def __init__(self, error: OSError) -> None:
        self.error = error


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    """Turn what damaged bytes make a library raise into :class:`ArchiveError`.

    Libraries that parse raise nearly anything over bytes that were made to break them.
    """
    try:
        yield
    except (ArchiveError, _LocalError):
        raise
    except LimitExceeded as error:
        raise ArchiveError([str(error)]) from error
    except OSError as error:
        # gzip and bz2 mean "corrupt" without a number; a wrong offset is EINVAL.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise ArchiveError([f"is damaged or cut short ({error})"]) from error
    except Exception as error:
        if kind == "tar":
            raise ArchiveError([f"is not an archive that can be read ({SUPPORTED})"]) from error
        words = str(error) or type(error).__name__
        raise ArchiveError([f"is damaged or cut short ({words})"]) from error


def _tar_bytes(raw: IO[bytes], kind: str, limits: ArchiveLimits) -> TarBytes:
    if kind == "gz":
        import gzip

        return TarBytes(cast(IO[bytes], gzip.GzipFile(fileobj=raw)), limits, False)
    if kind == "bz2":
        import bz2

        return TarBytes(cast(IO[bytes], bz2.BZ2File(raw)), limits, False)
    if kind == "xz":
        return TarBytes(cast(IO[bytes], XzBytes(raw)), limits, False)
    return TarBytes(raw, limits, True)


def _read_zip(
    path: str, archive: zipfile.ZipFile, reader: Optional[Reader], limits: ArchiveLimits
) -> Listing:
    import zipfile

    checked = MemberCheck(path, limits)
    for info in archive.infolist():
        mode = info.external_attr >> 16 if info.create_system == 3 else 0
        member = Member(info.filename, "file", bool(mode & 0o100), size=info.file_size, raw=info)
        if info.is_dir():
            member.type = "folder"
        elif modes.S_ISLNK(mode):
            member.type = "link"
        elif mode and modes.S_IFMT(mode) not in (0, modes.S_IFREG, modes.S_IFDIR):
            checked.refuse(member, "is a device or socket")
            continue
        if info.flag_bits & 0x1:
            checked.refuse(member, "is protected by a password")
            continue
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            checked.refuse(member, "is compressed by another method than deflate")
            continue
        try:
            member.mtime = time.mktime((*info.date_time, 0, 0, -1))
        except (ValueError, OverflowError):
            pass
        if member.type == "link":
            with archive.open(info) as stream:
                member.target = os.fsdecode(stream.read(LONGEST_TARGET + 1))
            member.size = 0
        checked.add(member)
    found = checked.listing()
    if reader is not None:
        for member in found.members.values():
            if member.type == "file":
                with archive.open(member.raw) as stream:
                    _pass_on(reader, member, stream)
    return found


def _read_tar(
    path: str, source: TarBytes, reader: Optional[Reader], limits: ArchiveLimits
) -> Listing:
    """In one pass, since a compressed tar cannot seek back: each file's bytes are handed on
    before the whole is checked, into a folder that is removed if the check fails."""
    import tarfile

    checked = MemberCheck(path, limits)
    archive = tarfile.open(fileobj=cast(IO[bytes], source), mode="r:")  # noqa: SIM115
    while True:
        source.at_header(True)
        info = archive.next()
        if info is None:
            break
        archive.members = []  # type: ignore[attr-defined]  # or it keeps every header
        if len(archive.pax_headers) > _MOST_GLOBAL_HEADERS:
            raise LimitExceeded(f"has more than {_MOST_GLOBAL_HEADERS} global headers")
        if info.size < 0:
            raise LimitExceeded("a header claims a negative size")
        source.at_header(False)
        member = Member(info.name, "file", bool(info.mode & 0o100), mtime=info.mtime)
        if info.isdir():
            member.type = "folder"
        elif info.issym():
            member.type, member.target = "link", info.linkname
        elif info.islnk():
            member.type, member.target = "hardlink", info.linkname
        elif info.isreg():
            member.size = info.size
        else:
            checked.refuse(member, "is a device or socket")
            continue
        usable = checked.add(member)
        if reader is not None and member.type == "file" and usable:
            stream = archive.extractfile(info)
            assert stream is not None
            with stream:
                _pass_on(reader, member, cast(IO[bytes], _ExactSize(stream, member.size)))
    if source.last.strip(b"\0"):
        raise tarfile.ReadError("bytes follow its last member that are no header")
    source.at_header(False)
    while reader is not None and source.read(_BLOCK):
        pass  # the checksum stands at the very end
    return checked.listing()


def _pass_on(reader: Reader, member: Member, stream: IO[bytes]) -> None:
    try:
        reader(member, cast(IO[bytes], _ArchiveStream(stream)))
    except _ArchiveReadError as error:
        raise error.error from error.error.__cause__
    except OSError as error:
        raise _LocalError(error) from error


class _ArchiveReadError(Exception):
    """Carries what the archive's side raised past the side that writes."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _ArchiveStream:
    """A stream whose errors differ from those of the file that is written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as error:
            raise _ArchiveReadError(error) from error


class _ExactSize:
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
