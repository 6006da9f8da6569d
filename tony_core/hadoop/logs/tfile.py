"""Aggregated logs as a TFile: every container of a node, one after the other, in one file.

Theory of operation
===================

The file ends with where its table of *meta blocks* stands; one of those lists the *data
blocks*. A data block, compressed as a whole or not at all, holds records: a key, and a value
in *chunks*, each after its length, the last one's positive, the others' negative. A key is a
container's id (or a word about the file); its value is, for each log, name, length as text,
and content. So names and sizes are found by walking over the contents. A container's
value never leaves its block.

Where nothing is compressed the walk costs a few reads, however much was logged: a value of
gigabytes is of chunks of equal size for most of its length, so the reader leaps over as many
as would fit, looks whether the same header stands there, and halves its leap when not.
In a compressed block it expands what it walks over.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from tony_core.hadoop.logs.datainput import (
    DataInput,
    FormatError,
    Source,
    SourceSlice,
    Unsupported,
    decode_modified_utf8,
)
from tony_core.hadoop.logs.decompression import DecompressedSource

MAGIC = bytes.fromhex("d111d36891b5d7b639df414092bae150")

_TRAILER = 8 + 4 + len(MAGIC)
_MOST_BLOCKS = 1 << 20
_MOST_RUNS = 1 << 16  # of chunks of one size, in a value
_MOST_LOGS = 1 << 16  # of a container
_MOST_ENTRIES = 1 << 20  # logs of all containers
_BLOCK_INDEX, _META = "data:BCFile.index", "data:TFile.meta"


class LogEntry(NamedTuple):
    """A log of a container."""

    name: str
    content: Source


class _Block(NamedTuple):
    offset: int
    stored: int
    size: int


class _ChunkRun(NamedTuple):
    """Chunks of one size that follow each other."""

    begin: int  # in the value
    at: int  # of the first one's header, in the block
    header: int  # its length
    size: int
    times: int

    @property
    def end(self) -> int:
        return self.begin + self.times * self.size

    @property
    def after(self) -> int:
        return self.at + self.times * (self.header + self.size)


class ChunkedSource:
    """A value in chunks, as the bytes that it is made of."""

    def __init__(self, block: Source, at: int, leap: bool) -> None:
        self._block = block
        self._leap = leap
        self._runs: List[_ChunkRun] = []
        self._begins: List[int] = []  # of each run, in the value
        self._at = at  # of the next header
        self._known = 0  # bytes of the value before it
        self._last = False

    @property
    def size(self) -> int:
        """All of it; finds the end."""
        while not self._last:
            self._extend(self._known + (1 << 62))
        return self._known

    @property
    def after(self) -> int:
        """Where the next record stands in the block."""
        return self._at if self.size >= 0 else 0

    def read(self, offset: int, length: int) -> bytes:
        while not self._last and self._known < offset + length:
            self._extend(offset + length)
        found = []
        end = min(offset + length, self._known)
        first = max(0, bisect_right(self._begins, offset) - 1)
        for run in itertools.islice(self._runs, first, None):
            if run.begin >= end:
                break
            while run.begin <= offset < min(run.end, end):
                number, inside = divmod(offset - run.begin, run.size)
                take = min(run.size - inside, end - offset)
                at = run.at + number * (run.header + run.size) + run.header + inside
                data = self._block.read(at, take)
                if len(data) != take:
                    raise FormatError(f"a chunk at {at} was cut off")
                found.append(data)
                offset += take
        return b"".join(found)

    def _extend(self, target: int) -> None:
        """Learn of more chunks: one, or as many like the one before as there may be."""
        place = DataInput(self._block, self._at)
        size = place.vlong()
        header = place.at - self._at
        self._last, size = size >= 0, abs(size)
        if size == 0 and not self._last:
            raise FormatError(f"a chunk at {self._at} has no length")
        if len(self._runs) >= _MOST_RUNS:
            raise FormatError(f"the chunks before {self._at} are too many")
        if place.at + size > self._block.size:
            raise FormatError(f"a chunk of {size} bytes at {self._at} was cut off")
        count = 1
        if self._leap and not self._last:
            count += self._alike(header, size, target)
        run = _ChunkRun(self._known, self._at, header, size, count)
        self._runs.append(run)
        self._begins.append(run.begin)
        self._known, self._at = run.end, run.after

    def _alike(self, header: int, size: int, target: int) -> int:
        """How many more chunks of this size follow, at least."""
        step = header + size
        looks = self._block.read(self._at, header)
        room = (self._block.size - self._at) // step - 1
        leap = min(room, (target - self._known) // size)
        alike = 0
        while leap > 0:
            if self._block.read(self._at + (alike + leap) * step, header) == looks:
                alike += leap
                leap = min(leap, room - alike)
            else:
                leap //= 2
        return alike


class TFile:
    """A TFile of aggregated logs."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._count = _MOST_BLOCKS  # of records
        self._blocks: List[_Block] = []
        self._compression = ""
        self._index()
        self._containers: Dict[str, List[LogEntry]] = {}
        self._walk = self._records()

    def containers(self) -> List[str]:
        """The ids of all containers in it."""
        for _ in self._walk:
            pass
        return list(self._containers)

    def logs(self, container_id: str) -> Optional[List[LogEntry]]:
        """A container's logs; ``None`` when it is not in this file."""
        while container_id not in self._containers:
            if next(self._walk, None) is None:
                return None
        return self._containers[container_id]

    # ---------------------------------------------------------------- the container

    def _index(self) -> None:
        begin = self._source.size - _TRAILER
        if begin < len(MAGIC):
            raise FormatError(f"it has only {self._source.size} bytes: it was cut off")
        trailer = DataInput(self._source, begin)
        table_at = trailer.long()
        version = trailer.unsigned_short()
        trailer.unsigned_short()
        if trailer.take(len(MAGIC)) != MAGIC:
            raise FormatError("it does not end as a TFile does: it was cut off, or is no TFile")
        if version != 1:
            raise Unsupported(f"it is of version {version} of its format, and 1 is known")
        if not 0 <= table_at < begin:
            raise FormatError(f"its table should stand at {table_at}")
        table = DataInput(SourceSlice(self._source, table_at, begin - table_at))
        for _ in range(_count(table)):
            name, compression = table.vlong_text(), table.vlong_text()
            block = _block(table)
            if name == _META:
                meta = DataInput(self._expanded(block, compression), 4)  # after its version
                self._count = meta.vlong()
            elif name == _BLOCK_INDEX:
                index = DataInput(self._expanded(block, compression))
                self._compression = index.vlong_text()
                self._blocks = [_block(index) for _ in range(_count(index))]
                if sum(block.stored for block in self._blocks) > self._source.size:
                    raise FormatError("its blocks stand in one another")
        if not self._compression:
            raise FormatError("it has no index of its blocks")

    def _expanded(self, block: _Block, compression: str) -> Source:
        part = SourceSlice(self._source, block.offset, block.stored)
        return decompress(part, compression, block.size)

    # ---------------------------------------------------------------- its records

    def _records(self) -> Iterator[str]:
        leap = self._compression == "none"
        left, entries = self._count, 0
        for block in self._blocks:
            data = self._expanded(block, self._compression)
            at = 0
            while at < data.size:
                left -= 1
                if left < 0:
                    raise FormatError(f"it holds more than the {self._count} records it should")
                place = DataInput(data, at)
                key = _key(place.vlong_bytes())
                value = ChunkedSource(data, place.at, leap)
                if key.startswith("container_"):
                    logs = self._containers.setdefault(key, [])
                    for log in _logs(value):
                        entries += 1
                        if entries > _MOST_ENTRIES:
                            raise FormatError(f"it holds more than {_MOST_ENTRIES} logs")
                        logs.append(log)
                    yield key
                at = value.after


def decompress(stored: Source, compression: str, size: int) -> Source:
    """The decompressed source, by Hadoop's name of the compression."""
    if compression == "none":
        return SourceSlice(stored, 0, size)
    if compression == "gz":
        return DecompressedSource(stored, size)
    raise Unsupported(
        f"the logs are compressed with {compression!r}; only 'gz' and 'none' can be read here "
        "(yarn.nodemanager.log-aggregation.compression-type)"
    )


def _logs(value: ChunkedSource) -> Iterator[LogEntry]:
    at = 0
    for _ in range(_MOST_LOGS):
        if not value.read(at, 1):
            return
        name, at = _short_text(value, at)
        length, at = _short_text(value, at)
        if not length.isascii() or not length.isdigit() or len(length) > 18:
            raise FormatError(f"the log {name!r:.80} has a length of {length!r:.40}")
        yield LogEntry(name, _LogSource(value, at, int(length)))
        at += int(length)
    raise FormatError(f"a container has more than {_MOST_LOGS} logs")


class _LogSource:
    """A log within its container's value: the value's own end need not be known."""

    def __init__(self, value: ChunkedSource, begin: int, size: int) -> None:
        self._value = value
        self._begin = begin
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        return _exactly(self._value, self._begin + offset, length)


def _short_text(value: ChunkedSource, at: int) -> Tuple[str, int]:
    length = int.from_bytes(_exactly(value, at, 2), "big")
    return decode_modified_utf8(_exactly(value, at + 2, length)), at + 2 + length


def _exactly(value: ChunkedSource, at: int, length: int) -> bytes:
    data = value.read(at, length)
    if len(data) != length:
        raise FormatError(f"a container's logs end before {at + length} bytes of them")
    return data


def _key(data: bytes) -> str:
    """Keys are texts as Java writes them, within the bytes of the record."""
    length = int.from_bytes(data[:2], "big")
    return decode_modified_utf8(data[2 : 2 + length])


def _count(table: DataInput) -> int:
    count = table.vlong()
    if not 0 <= count <= _MOST_BLOCKS:
        raise FormatError(f"a table should have {count} entries")
    return count


def _block(table: DataInput) -> _Block:
    return _Block(table.vlong(), table.vlong(), table.vlong())
