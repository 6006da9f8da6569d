"""Compressed bytes that can be read anywhere, without keeping them.

What was compressed as a whole (zlib or gzip) has to be expanded from its beginning to reach
a place in it. So that a reader who goes back does not pay for that again and again, the state
of the expansion is kept every few megabytes: one state takes some 50 KB, and when there are
too many of them, every second is given up.
"""

from __future__ import annotations

import zlib
from typing import Any, List, NamedTuple

from tony_core.hadoop.logs.datainput import FormatError, Source

_EITHER = 32 + zlib.MAX_WBITS  # a header of zlib or of gzip
_PIECE = 1 << 16
_SPACING = 4 << 20
_MOST = 32


class _State(NamedTuple):
    out: int  # bytes expanded so far
    read: int  # bytes read so far, less those in the expander's own tail
    expander: Any


class DecompressedSource:
    """The ``size`` bytes that a compressed source holds."""

    def __init__(self, source: Source, size: int, spacing: int = _SPACING) -> None:
        if size < 0:
            raise FormatError(f"it says that {size} bytes were compressed")
        self._source = source
        self._size = size
        self._spacing = spacing
        self._kept: List[_State] = [_State(0, 0, zlib.decompressobj(_EITHER))]
        self._out = self._read = 0
        self._piece = b""  # what ends at self._out
        self._expander: Any = self._kept[0].expander.copy()

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        found = []
        while offset < end:
            piece = self._piece_at(offset, end - offset)
            found.append(piece)
            offset += len(piece)
        return b"".join(found)

    def _piece_at(self, offset: int, most: int) -> bytes:
        """The decompressed bytes from a position to the end of its piece, which is kept."""
        if not self._out - len(self._piece) <= offset < self._out:
            best = max((s for s in self._kept if s.out <= offset), key=lambda state: state.out)
            if self._out > offset or best.out > self._out:
                self._out, self._read = best.out, best.read
                self._expander = best.expander.copy()
            while self._out <= offset:
                self._piece = self._next(_PIECE)
        at = offset - self._out + len(self._piece)
        return self._piece[at : at + most]

    def _next(self, most: int) -> bytes:
        """Expand some more, at most that much."""
        while True:
            given = self._expander.unconsumed_tail
            if not given:
                given = self._source.read(self._read, _PIECE)
                if not given:
                    raise FormatError(
                        f"the compressed data ends after {self._out} of {self._size} bytes"
                    )
                self._read += len(given)
            try:
                data: bytes = self._expander.decompress(given, most)
            except zlib.error as error:
                raise FormatError(f"the compressed data is damaged: {error}") from None
            if data:
                self._out += len(data)
                self._keep()
                return data
            if self._expander.eof:
                raise FormatError(
                    f"the compressed data holds {self._out} bytes instead of {self._size}"
                )

    def _keep(self) -> None:
        if self._out - self._kept[-1].out < self._spacing:
            return
        self._kept.append(_State(self._out, self._read, self._expander.copy()))
        if len(self._kept) > _MOST:
            self._kept = self._kept[::2]
            self._spacing *= 2
