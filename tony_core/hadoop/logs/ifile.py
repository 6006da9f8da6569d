"""Aggregated logs with an index (YARN's *IFile*): every log can be reached by itself.

The file begins and ends with the SHA-256 of the application's id; before that end stands the
length of the index, and before that the index: Java's serialised objects. A node that
uploads while the application runs appends logs and a new index, which names all that were
uploaded so far; and it keeps beside the file how far the last complete upload reaches.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, NamedTuple

from tony_core.hadoop.logs.datainput import DataInput, FormatError, Source, SourceSlice
from tony_core.hadoop.logs.java_objects import JavaObject, read_object
from tony_core.hadoop.logs.tfile import LogEntry, decompress

_MARK = 32
_LENGTH = 4
_LONGEST_INDEX = 64 << 20
_MOST_LOGS = 1 << 20  # of all containers: an index may refer to the same ones again and again
_OBJECT = "LogAggregationIndexedFileController$Indexed"


class _Upload(NamedTuple):
    time_ms: int
    containers: Dict[str, List[LogEntry]]


class IFile:
    """An indexed file of aggregated logs."""

    def __init__(self, source: Source, app_id: str) -> None:
        self._source = source
        self._left = _MOST_LOGS
        mark = file_mark(app_id)
        index_end = source.size - _MARK - _LENGTH
        if index_end < _MARK:
            raise FormatError(f"it has only {source.size} bytes: it was cut off")
        place = DataInput(source, index_end)
        length = place.integer()
        if place.take(_MARK) != mark:
            raise FormatError(f"it does not end as the logs of {app_id} do: it was cut off")
        if not 0 < length <= min(_LONGEST_INDEX, index_end - _MARK):
            raise FormatError(f"its index should have {length} bytes")
        data = DataInput(source, index_end - length).take(length)
        self._uploads = self._read(read_object(data), index_end - length)

    def containers(self) -> List[str]:
        """The ids of all containers in it."""
        return list(dict.fromkeys(name for one in self._uploads for name in one.containers))

    def logs(self, container_id: str) -> List[LogEntry]:
        """A container's logs, the pieces of one in the order of their upload."""
        return [log for one in self._uploads for log in one.containers.get(container_id, ())]

    def _read(self, index: Any, end: int) -> List[_Upload]:
        compression = _text(index, "compressName")
        uploads = []
        for item in _list(index, "logMetas"):
            containers = {}
            for name, logs in _value(item, "logMetas", dict).items():
                self._left -= 1 + len(logs)
                if self._left < 0:
                    raise FormatError(f"its index names more than {_MOST_LOGS} logs")
                containers[str(name)] = [self._entry(log, compression, end) for log in logs]
            uploads.append(_Upload(_number(item, "uploadTimeStamp"), containers))
        return sorted(uploads, key=lambda upload: upload.time_ms)

    def _entry(self, log: Any, compression: str, end: int) -> LogEntry:
        begin, stored = _number(log, "startIndex"), _number(log, "fileCompressedSize")
        size = _number(log, "fileSize")
        if begin + stored > end or min(begin, stored, size) < 0:
            raise FormatError(f"a log of {stored} bytes should stand at {begin}, before {end}")
        # What was empty may be written down as standing anywhere.
        part = SourceSlice(self._source, begin if stored and size else 0, stored if size else 0)
        return LogEntry(
            _text(log, "fileName"), decompress(part, compression if size else "none", size)
        )


def file_mark(app_id: str) -> bytes:
    """The marker at the beginning and end of an application's IFile."""
    return hashlib.sha256(app_id.encode()).digest()


def is_ifile(source: Source, app_id: str) -> bool:
    """Whether a file begins as one of these."""
    return source.read(0, _MARK) == file_mark(app_id)


def _value(thing: Any, name: str, kind: type) -> Any:
    if not isinstance(thing, JavaObject) or _OBJECT not in thing.name:
        # Never its contents: what refers to the same things again and again has no end.
        name = thing.name if isinstance(thing, JavaObject) else type(thing).__name__
        raise FormatError(f"its index holds {name:.80}")
    value = thing.fields.get(name)
    if not isinstance(value, kind):
        raise FormatError(f"{thing.name.partition('$')[2]} has no {name} in its index")
    return value


def _text(thing: Any, name: str) -> str:
    return str(_value(thing, name, str))


def _number(thing: Any, name: str) -> int:
    return int(_value(thing, name, int))


def _list(thing: Any, name: str) -> List[Any]:
    return list(_value(thing, name, list))
