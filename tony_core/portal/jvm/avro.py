"""Takes the records out of an Avro file, and makes such a file.

The blocks of the file are cut and decompressed here, where sizes have limits; ``fastavro`` decodes
the single records of a block, by a schema that :mod:`tony_core.portal.jvm.schema` has checked. So
whatever a file says of itself, time and memory stay within its own bytes and those limits.

What is cut short (the JVM's master writes whole blocks, and dies between them) is read as far as
it goes.
"""

from __future__ import annotations

import io
import zlib
from types import ModuleType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from tony_core.jsontext import read_object
from tony_core.portal.jvm.schema import EVENT_SCHEMA, NAMESPACE, Resolved, SchemaError, resolve

MAGIC = b"Obj\x01"
LARGEST_FILE = 16 << 20
LARGEST_BLOCK = 1 << 20  # the JVM's have 64 KB and a record
MOST_DECOMPRESSED = 32 << 20
MOST_EVENTS = 50_000
CUT_SHORT = "it is cut short"
EMPTY = "it is empty: its master had written nothing yet"
_SYNC = 16
_MOST_METADATA = 100
_LARGEST_METADATA = 256 << 10


class MissingLibrary(RuntimeError):
    """The extra ``portal`` is not installed; the message says how to."""


class FormatError(ValueError):
    """A file of which nothing can be read; the message says why."""


class Decoded(NamedTuple):
    """One event: the kind of its record, what it holds, and when it was (milliseconds)."""

    kind: str
    fields: Mapping[str, Any]
    timestamp: int


def library() -> ModuleType:
    """``fastavro``, which comes with the extra ``portal``."""
    try:
        import fastavro
    except ImportError:
        raise MissingLibrary(
            "reading and writing .jhist files needs fastavro: in TonY's checkout,"
            " pip install '.[portal]'"
        ) from None
    return fastavro


class _Bytes:
    """A position in the file's bytes; raises EOFError at their end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.at = 0

    @property
    def is_over(self) -> bool:
        return self.at >= len(self._data)

    def long(self) -> int:
        value = shift = 0
        while True:
            if self.is_over:
                raise EOFError
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise FormatError(f"it has a number that is too long at byte {self.at}")

    def take(self, size: int) -> bytes:
        if size < 0:
            raise FormatError(f"it has a negative size at byte {self.at}")
        if size > len(self._data) - self.at:
            raise EOFError
        begin, self.at = self.at, self.at + size
        return bytes(self._data[begin : self.at])

    def rest(self) -> bytes:
        return self.take(len(self._data) - self.at)


def decode(data: bytes, problems: List[str]) -> Iterator[Decoded]:
    """The events of a ``.jhist`` file, one at a time; ``problems`` gets what could not be read.

    Raises :class:`FormatError` for a file of which nothing can be, :class:`MissingLibrary`.
    """
    fastavro = library()
    if len(data) > LARGEST_FILE:
        raise FormatError(f"it is larger than {LARGEST_FILE >> 20} MB")
    if not data:
        problems.append(EMPTY)
        return
    source = _Bytes(data)
    schemas, codec, sync = _header(source)
    try:
        writer = fastavro.parse_schema(schemas.writer)
        reader = fastavro.parse_schema(schemas.reader)
    except Exception as error:  # of its own rules, and of a stranger's schema
        raise FormatError(f"its schema is none of Avro ({str(error)[:100]})") from None
    number, damaged = 0, ""
    try:
        for block in _blocks(source, codec, sync):
            stream = io.BytesIO(block.data)
            damaged = "it is damaged" if block.is_whole else ""
            for _ in range(block.events):
                number += 1
                if number > MOST_EVENTS:
                    raise FormatError(f"it has more than {MOST_EVENTS} events")
                record = fastavro.schemaless_reader(stream, writer, reader, return_record_name=True)
                yield _event(record)
    except EOFError:
        problems.append(CUT_SHORT)
    except FormatError as error:
        problems.append(str(error))
    except Exception as error:  # a decoder that meets a stranger's bytes raises whatever it likes
        where = f"({type(error).__name__} in event {number})"
        problems.append(f"{damaged} {where}" if damaged else CUT_SHORT)


def _event(record: Mapping[str, Any]) -> Decoded:
    event = record["event"]
    # Of a union of one record there is no name.
    name, fields = event if isinstance(event, tuple) else ("", event)
    return Decoded(str(name).rpartition(".")[2], fields or {}, int(record["timestamp"]))


def _header(source: _Bytes) -> Tuple[Resolved, str, bytes]:
    try:
        if source.take(len(MAGIC)) != MAGIC:
            raise FormatError("it is no Avro file")
        metadata: Dict[str, bytes] = {}
        while count := source.long():
            if count < 0:
                count, _ = -count, source.long()
            if len(metadata) + count > _MOST_METADATA:
                raise FormatError("its header is too large")
            for _ in range(count):
                key = source.take(source.long()).decode("utf-8", "replace")
                size = source.long()
                if source.at + size > _LARGEST_METADATA:
                    raise FormatError("its header is too large")
                metadata[key] = source.take(size)
        sync = source.take(_SYNC)
    except EOFError:
        raise FormatError("it is cut short in its header") from None
    try:
        schema = read_object(metadata.get("avro.schema", b""))
    except ValueError:
        raise FormatError("it has no schema, or a damaged one") from None
    try:
        schemas = resolve(schema)
    except SchemaError as error:
        raise FormatError(str(error)) from None
    codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in ("null", "deflate"):
        raise FormatError(
            f"it is compressed by {codec[:40]!r}; TonY writes its files without a codec, and only"
            " 'null' and 'deflate' are read"
        )
    return schemas, codec, sync


class _Block(NamedTuple):
    events: int  # that it claims to have
    data: bytes
    is_whole: bool = True


def _blocks(source: _Bytes, codec: str, sync: bytes) -> Iterator[_Block]:
    total = 0
    while not source.is_over:
        at = source.at
        count, size = source.long(), source.long()
        if count < 0 or size < 0:
            raise FormatError(f"its block at byte {at} has a negative size")
        if size > LARGEST_BLOCK:
            raise FormatError(f"its block at byte {at} is too large ({size} bytes)")
        try:
            block = source.take(size)
        except EOFError:
            if codec == "null":  # whole events may be in it
                yield _Block(count, source.rest(), False)
            raise
        marker = source.take(_SYNC)
        if codec == "deflate":
            block = _inflate(block, at)
        total += len(block)
        if total > MOST_DECOMPRESSED:
            raise FormatError(f"it is larger than {MOST_DECOMPRESSED >> 20} MB when decompressed")
        yield _Block(count, block)
        if marker != sync:
            raise FormatError(f"it is damaged behind its block at byte {at}")


def _inflate(block: bytes, at: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(block, LARGEST_BLOCK + 1)
    except zlib.error:
        raise FormatError(f"its block at byte {at} is damaged") from None
    if len(data) > LARGEST_BLOCK:
        raise FormatError(f"its block at byte {at} is too large when decompressed")
    return data


def encode(events: Iterable[Tuple[str, str, Mapping[str, Any], int]]) -> bytes:
    """A ``.jhist`` file of events: symbol of the enum, kind, content and time in milliseconds."""
    fastavro = library()
    stream = io.BytesIO()
    records = (
        {"type": symbol, "event": (f"{NAMESPACE}.{kind}", fields), "timestamp": timestamp}
        for symbol, kind, fields, timestamp in events
    )
    # As the JVM writes them: no codec.
    fastavro.writer(stream, fastavro.parse_schema(dict(EVENT_SCHEMA)), records, codec="null")
    return stream.getvalue()
