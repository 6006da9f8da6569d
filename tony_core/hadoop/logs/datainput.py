"""Numbers and names as Java writes them into a file (``DataOutput``), and as TFile does.

Every read is checked against what is there: a file that was cut off, or is something else,
ends in a :class:`FormatError` and never in a wait or a huge buffer.
"""

from __future__ import annotations

import struct
from typing import Protocol

from tony_core.hadoop.errors import Fault, HadoopError

LONGEST_NAME = 1 << 16


class FormatError(HadoopError):
    """A file is cut off or damaged, or is not of the form that its place says."""

    fault = Fault.CLUSTER


class Unsupported(FormatError):
    """A file of the right form, written in a way that cannot be read here."""


class Source(Protocol):
    """Bytes that can be read anywhere, wherever they are."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, offset: int, length: int) -> bytes:
        """As many as there are of the ``length`` bytes from ``offset`` on."""


class Buffer:
    """Bytes in memory as a source."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class Part:
    """A stretch of another source."""

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
    """A place in a source that moves on with every read."""

    def __init__(self, source: Source, at: int = 0) -> None:
        self._source = source
        self.at = at

    def take(self, length: int) -> bytes:
        """Exactly that many bytes."""
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
        """Two bytes of length, then Java's own kind of UTF-8."""
        return text_of(self.take(self.unsigned_short()))

    def compact(self) -> int:
        """TFile's number of one to nine bytes (its ``Utils.writeVLong``, not Hadoop's other)."""
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

    def counted(self) -> str:
        """A name after its length as :meth:`compact` reads it."""
        return text_of(self.blob())

    def blob(self, longest: int = LONGEST_NAME) -> bytes:
        """Bytes after their length as :meth:`compact` reads it."""
        length = self.compact()
        if not 0 <= length <= longest:
            raise FormatError(f"a name at {self.at} has a length of {length}")
        return self.take(length)


def text_of(data: bytes) -> str:
    """Java writes NUL as two bytes and what is beyond 16 bits as two halves."""
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeError:
        return data.decode("utf-8", "replace")
