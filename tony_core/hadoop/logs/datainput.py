"""Numbers and names as Java writes them into a file (``DataOutput``), and as TFile does.

Every read is checked against what is there: a file that was cut off, or is something else,
ends in a :class:`FormatError` and never in a wait or a huge buffer.
"""

from __future__ import annotations

import struct
from typing import Protocol

from tony_core.hadoop.errors import HadoopError

LONGEST_NAME = 1 << 16


class FormatError(HadoopError):
    """A file is cut off, damaged, or of another format than expected."""


class Unsupported(FormatError):
    """A valid file that uses a feature which is not implemented here."""


class Source(Protocol):
    """Bytes with random access."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset`` on; fewer at the end."""


class BytesSource:
    """A source in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class SourceSlice:
    """A range of another source."""

    def __init__(self, source: Source, begin: int, size: int) -> None:
        if begin < 0 or size < 0 or begin + size > source.size:
            raise FormatError(
                f"it has {source.size} bytes, and should have {size} at {begin}: it was cut off"
            )
        self._source = source
        self._begin = begin
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self._size - offset)
        return self._source.read(self._begin + offset, length) if length > 0 else b""


class DataInput:
    """Reads a source from a position on."""

    def __init__(self, source: Source, at: int = 0) -> None:
        self._source = source
        self.at = at

    def take(self, length: int) -> bytes:
        """Read exactly that many bytes."""
        if length < 0 or length > self._source.size - self.at:
            raise FormatError(
                f"{length} bytes should stand at {self.at}, and it ends at {self._source.size}"
            )
        data = self._source.read(self.at, length)
        if len(data) != length:
            raise FormatError(f"it ends within {length} bytes that should stand at {self.at}")
        self.at += length
        return data

    def unsigned_byte(self) -> int:
        return self.take(1)[0]

    def unsigned_short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def long(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def double(self) -> float:
        return float(struct.unpack(">d", self.take(8))[0])

    def text(self) -> str:
        """Read a string: two bytes of length, then modified UTF-8."""
        return decode_modified_utf8(self.take(self.unsigned_short()))

    def vlong(self) -> int:
        """Read a number of one to nine bytes (TFile's ``Utils.writeVLong``)."""
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -32:
            return first
        kind = (first + 128) // 8
        if kind >= 7:
            return (first + 52) << 8 | self.unsigned_byte()
        if kind >= 3:
            return (first + 88) << 16 | self.unsigned_short()
        if kind >= 1:
            return (first + 112) << 24 | int.from_bytes(self.take(3), "big")
        length = first + 129
        if length < 4:
            raise FormatError(f"a number at {self.at - 1} has an impossible length")
        return int.from_bytes(self.take(length), "big", signed=True)

    def vlong_text(self) -> str:
        """Read a string after its length."""
        return decode_modified_utf8(self.vlong_bytes())

    def vlong_bytes(self, longest: int = LONGEST_NAME) -> bytes:
        """Read bytes after their length."""
        length = self.vlong()
        if not 0 <= length <= longest:
            raise FormatError(f"a name at {self.at} has a length of {length}")
        return self.take(length)


def decode_modified_utf8(data: bytes) -> str:
    """Decode Java's UTF-8: NUL is two bytes, characters beyond 16 bits are surrogate pairs."""
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeError:
        return data.decode("utf-8", "replace")
