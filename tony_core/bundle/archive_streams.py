"""Streams over an archive's bytes, with limits that an archive cannot exceed.

A few hundred bytes may claim to be gigabytes: a dictionary of xz, a header of tar, a directory of
zip, a file of zeros. The libraries believe such claims; these streams stand below them and refuse.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    import lzma

LONGEST_HEADER = 1 << 20
"""Bytes that may stand before one member of a tar: long names, attributes, sparse maps."""

LARGEST_DIRECTORY = 256 << 20
_XZ_MEMORY = 192 << 20  # xz -9 needs 65 MB
_PADDING = 64 << 20  # after the last member of a tar
_CHUNK = 1 << 16


class LimitExceeded(ValueError):
    """An archive holds, or claims to hold, more than a limit; the message says which."""


class ArchiveLimits(NamedTuple):
    """What an archive may unpack to: bytes in all its files, and members."""

    size: int = 100 << 30
    members: int = 300_000

    @classmethod
    def of(cls, megabytes: int, members: int) -> ArchiveLimits:
        """The limits of a job, in megabytes and members."""
        return cls(megabytes << 20, members)


class TarBytes:
    """The bytes of a tar, from the first on; forward only."""

    def __init__(self, stream: IO[bytes], limits: ArchiveLimits, seekable: bool) -> None:
        self._stream = stream
        self._seekable = seekable
        self._at = 0
        self._most = limits.size + limits.members * 1024 + _PADDING
        self._header_left: Optional[int] = LONGEST_HEADER
        self.last = b""  # what the last read gave

    def at_header(self, here: bool) -> None:
        """Whether what is read next is a header; then only so much may be."""
        self._header_left = LONGEST_HEADER if here else None

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end."""
        if size < 0:
            raise LimitExceeded("a header claims a negative size")
        if self._header_left is not None:
            self._header_left -= size
            if self._header_left < 0:
                raise LimitExceeded(f"a member has a header of more than {LONGEST_HEADER >> 20} MB")
        data = self._stream.read(size)
        self._at += len(data)
        if self._at > self._most:
            raise LimitExceeded("holds more bytes than its members account for")
        self.last = data
        return data

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> int:
        """Skip forward to there, or to the end."""
        if place < self._at:
            raise LimitExceeded("a header claims a negative size")
        if self._seekable:
            self._at = self._stream.seek(place)
            return self._at
        while self._at < place:
            data = self._stream.read(min(place - self._at, _CHUNK))
            if not data:
                break
            self._at += len(data)
            if self._at > self._most:
                raise LimitExceeded("holds more bytes than its members account for")
        return self._at


class XzBytes:
    """What is in an xz file; unlike ``lzma.open`` it refuses dictionaries of gigabytes."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder: Optional[lzma.LZMADecompressor] = None
        self._begun = False

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end."""
        parts = []
        while size > 0:
            data = self._some(size)
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        import lzma

        rest = b""
        while True:
            if self._decoder is None or self._decoder.eof:
                if self._decoder is not None:
                    rest = self._decoder.unused_data
                rest = (rest or self._raw.read(_CHUNK)).lstrip(b"\0" if self._begun else b"")
                if not rest:
                    return b""
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_XZ_MEMORY)
                self._begun = True
            elif self._decoder.needs_input:
                rest = self._raw.read(_CHUNK)
                if not rest:
                    raise EOFError("the file ended before the end of its compressed data")
            try:
                data = self._decoder.decompress(rest, size)
            except lzma.LZMAError as error:
                if "emory" in str(error):
                    raise LimitExceeded(
                        f"needs more than {_XZ_MEMORY >> 20} MB of memory to be unpacked; pack it"
                        " with xz -9 or less"
                    ) from error
                raise
            rest = b""
            if data:
                return data


class ZipBytes(io.BufferedReader):
    """A zip file; counts the entries of its directory before they become objects."""

    def __init__(self, path: str, limits: ArchiveLimits) -> None:
        raw = io.FileIO(path)
        self._size = os.fstat(raw.fileno()).st_size
        self._most: Optional[int] = limits.members
        super().__init__(raw)

    def directory_is_read(self) -> None:
        """Note that the directory is read; members follow."""
        self._most = None

    def read(self, size: Optional[int] = -1) -> bytes:
        """As its parent, but never more than the file has."""
        if size is None or size < 0 or size > self._size:
            size = self._size
        if self._most is None:
            return super().read(size)
        if size > LARGEST_DIRECTORY and self.tell() + size <= self._size:
            raise LimitExceeded(f"has a directory of more than {LARGEST_DIRECTORY >> 20} MB")
        data = super().read(min(size, LARGEST_DIRECTORY))
        if data.count(b"PK\x01\x02") > self._most:
            raise LimitExceeded(f"has more than {self._most} members")
        return data
