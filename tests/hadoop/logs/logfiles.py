"""Aggregated logs that real clusters wrote, and files of that kind made to measure."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple, Union

from tony_core.hadoop.logs.datainput import BytesSource, Source
from tony_core.hadoop.logs.ifile import IFile
from tony_core.hadoop.logs.tfile import MAGIC, TFile

FOLDER = Path(__file__).with_name("recordings")
RECORDED: Mapping[str, Mapping[str, object]] = json.loads(
    (FOLDER / "recordings.json").read_text(encoding="utf-8")
)

BIG = b"a line of a log\n" * 281_250
WRITTEN: Mapping[str, bytes] = {
    "stdout": b"".join(b"%d\n" % number for number in range(1, 101)),
    "stderr": b"err\n",
    "empty": b"",
    "big.log": BIG,
    "zeros": bytes(3000),
    "zlast": b"last\n",
}
"""What each container of a recording wrote."""


class Counted(BytesSource):
    """Counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads = self.bytes = 0

    def read(self, offset: int, length: int) -> bytes:
        data = super().read(offset, length)
        self.reads += 1
        self.bytes += len(data)
        return data


def recorded(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.gz").read_bytes())


def opened(name: str, source: Source) -> Union[TFile, IFile]:
    if name.startswith("ifile"):
        return IFile(source, str(RECORDED[name]["application"]))
    return TFile(source)


def logs_of(file: Union[TFile, IFile], container: str) -> Dict[str, Source]:
    return {log.name: log.content for log in file.logs(container) or ()}


# ------------------------------------------------------------------ made to measure


def vlong(value: int) -> bytes:
    """The shortest form that TFile has for a number."""
    if -32 <= value < 128:
        return value.to_bytes(1, "big", signed=True)
    positive = value if value >= 0 else ~value
    if positive < 20 << 8:
        return ((value >> 8) - 52).to_bytes(1, "big", signed=True) + (value & 0xFF).to_bytes(
            1, "big"
        )
    if positive < 16 << 16:
        return ((value >> 16) - 88).to_bytes(1, "big", signed=True) + (value & 0xFFFF).to_bytes(
            2, "big"
        )
    if positive < 8 << 24:
        return ((value >> 24) - 112).to_bytes(1, "big", signed=True) + (value & 0xFFFFFF).to_bytes(
            3, "big"
        )
    length = max(4, (positive.bit_length() + 8) // 8)
    return (length - 129).to_bytes(1, "big", signed=True) + value.to_bytes(
        length, "big", signed=True
    )


def named(text: bytes) -> bytes:
    return vlong(len(text)) + text


def java(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def chunked(value: bytes, sizes: Sequence[int]) -> bytes:
    found, at = [], 0
    for size in sizes:
        if at + size < len(value):
            found += [vlong(-size), value[at : at + size]]
            at += size
    return b"".join([*found, vlong(len(value) - at), value[at:]])


Logs = Sequence[Tuple[str, bytes]]


def tfile(
    blocks: Sequence[Sequence[Tuple[str, Logs]]],
    *,
    compression: str = "none",
    sizes: Sequence[int] = (),
    repeat: int = 1,  # each block, in the index
) -> bytes:
    """A TFile of containers' logs, in blocks."""
    data, regions = MAGIC, []
    for block in blocks:
        raw = b""
        for key, logs in block:
            name = java(key)
            value = b"".join(java(n) + java(str(len(text))) + text for n, text in logs)
            raw += named(name) + chunked(value, sizes)
        stored = zlib.compress(raw) if compression == "gz" else raw
        regions.append((len(data), len(stored), len(raw)))
        data += stored
    regions *= repeat
    index = named(compression.encode()) + vlong(len(regions))
    index += b"".join(vlong(number) for region in regions for number in region)
    at = len(data)
    data += index
    meta = b"\0\1\0\0" + vlong(sum(len(block) for block in blocks)) + vlong(0)
    data += meta
    table = len(data)
    data += vlong(2)
    for name, begin, size in (
        ("BCFile.index", at, len(index)),
        ("TFile.meta", at + len(index), len(meta)),
    ):
        data += named(b"data:" + name.encode()) + named(b"none")
        data += vlong(begin) + vlong(size) + vlong(size)
    return data + table.to_bytes(8, "big") + b"\0\1\0\0" + MAGIC


def containers(count: int) -> List[str]:
    return [f"container_1700000000000_0001_01_{number:06d}" for number in range(1, count + 1)]
