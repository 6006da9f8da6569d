"""Logs of ended applications, as the nodes moved them into a file system: one file a node.

Where they are is the site's decision and has changed between versions, and how they are
written too (:mod:`~tony_core.hadoop.logs.tfile`, :mod:`~tony_core.hadoop.logs.ifile`): the places
are
tried in turn, and a file's format is recognized by its beginning. Only what is needed of a file is
read: its table, and the requested piece of a log.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from typing import BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import urlsplit

from tony_core.files.port import FileSystem, Stat
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.logs.datainput import FormatError, Source
from tony_core.hadoop.logs.ifile import IFile, is_ifile
from tony_core.hadoop.logs.tfile import LogEntry, TFile
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import on_hdfs
from tony_core.hadoop.yarn.ids import ApplicationId

_FORMATS = ("TFile", "IFile")
_PAGE = 1 << 16
_PAGES = 64
_NEAR = 1 << 17  # a gap that is cheaper to read over than to ask again
_FILES = 16  # opened at a time
_CONTAINERS = 512
_UPLOADED = re.compile(r"_(\d{13,})$")  # when, where a node uploads again and again
_UNFINISHED = ".tmp"
_CHECKSUM = "-checksum"

LogsByName = Dict[str, Source]


class StoredFile:
    """A file of the file-system port as a source: small reads by pages, long ones as a stream."""

    def __init__(self, files: FileSystem, stat: Stat) -> None:
        self._files = files
        self._location = stat.location
        self.size = stat.size
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self._stream: Optional[BinaryIO] = None
        self._at = 0

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if end <= offset:
            return b""
        if end - offset >= _PAGE:
            return self._long(offset, end - offset)
        found = b""
        while offset < end:
            number, inside = divmod(offset, _PAGE)
            piece = self._page(number)[inside : inside + end - offset]
            if not piece:
                raise self._cut(offset)
            found += piece
            offset += len(piece)
        return found

    def close(self) -> None:
        """Give back the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            with self._files.open(self._location, number * _PAGE) as stream:
                page = _read(stream, min(_PAGE, self.size - number * _PAGE))
            self._pages[number] = page
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return page

    def _long(self, offset: int, length: int) -> bytes:
        if self._stream is None or not 0 <= offset - self._at <= _NEAR:
            self.close()
            self._stream = self._files.open(self._location, offset)
            self._at = offset
        stream = self._stream
        if offset > self._at:
            self._at += len(_read(stream, offset - self._at))
        try:
            data = _read(stream, length)
        except OSError:
            # The stream was idle for too long, or the server went away: open it again.
            self.close()
            self._stream = stream = self._files.open(self._location, offset)
            data = _read(stream, length)
        self._at = offset + len(data)
        if len(data) != length:
            self.close()
            raise self._cut(self._at)
        return data

    def _cut(self, at: int) -> FormatError:
        return FormatError(f"{self._location} ends at {at} and should have {self.size} bytes")


class JoinedLog:
    """The pieces of one log that was uploaded several times."""

    def __init__(self, parts: List[Source]) -> None:
        self._parts = parts

    @property
    def size(self) -> int:
        return sum(part.size for part in self._parts)

    def read(self, offset: int, length: int) -> bytes:
        found = []
        for part in self._parts:
            if length > 0 and offset < part.size:
                piece = part.read(offset, length)
                found.append(piece)
                length -= len(piece)
                offset += len(piece)
            offset -= part.size
        return b"".join(found)


_Opened = Union[TFile, IFile]


class StoredLogs:
    """Aggregated logs of any application. ``files``: the file system of a location."""

    def __init__(self, conf: SiteConfiguration, files: Callable[[str], FileSystem]) -> None:
        self._conf = conf
        self._files = files
        self._open: OrderedDict[Tuple[str, int, int], Tuple[StoredFile, _Opened]] = OrderedDict()
        self._found: OrderedDict[Tuple[str, str], LogsByName] = OrderedDict()
        self._good = ""  # the kind of place where logs were found the last time

    def known(self, app_id: str, container_id: str) -> Optional[LogsByName]:
        """A container's logs, if they were found before."""
        return self._found.get((app_id, container_id))

    def container(
        self, app_id: str, owner: str, container_id: str, node: str
    ) -> Optional[LogsByName]:
        """A container's logs by name; ``None`` when they are not there (yet)."""
        there = [stat for stat in self.files_of(app_id, owner) if is_complete(stat)]
        groups: Dict[str, List[Stat]] = {}
        for stat in sorted(there, key=_uploaded):
            groups.setdefault(_node_of(stat), []).append(stat)
        wanted = node.replace(":", "_")
        for name in sorted(groups, key=lambda name: _node_order(name, wanted)):
            entries: List[LogEntry] = []
            for stat in groups[name]:
                entries += self._opened(stat, app_id).logs(container_id) or ()
            if entries:
                return self._keep(app_id, container_id, entries, len(groups[name]) == 1)
        return None

    def files_of(self, app_id: str, owner: str) -> List[Stat]:
        """The nodes' files, unfinished ones too; none when nothing is there."""
        places = list(self.places(app_id, owner))
        for kind, place in sorted(places, key=lambda item: item[0] != self._good):
            try:
                found = self._files(place).list(place)
            except (FileNotFoundError, NotADirectoryError):
                continue
            self._good = kind
            if found:
                return [one for one in found if not one.is_dir]
        return []

    def places(self, app_id: str, owner: str) -> Iterator[Tuple[str, str]]:
        """(kind, folder) of where a site's versions put an application's logs."""
        text = self._conf.text
        bucket = f"{ApplicationId.parse(app_id).number % 10000:04d}"
        general = text("yarn.nodemanager.remote-app-log-dir", "/tmp/logs")  # noqa: S108
        base = text("yarn.nodemanager.remote-app-log-dir-suffix", "logs")
        named = self._conf.names("yarn.log-aggregation.file-formats")
        for form in dict.fromkeys([*named, *_FORMATS]):
            prefix = f"yarn.log-aggregation.{form}.remote-app-log-dir"
            root = self._folder(text(prefix) or general, owner)
            suffix = text(f"{prefix}-suffix") or f"{base}-{form.lower()}"
            yield f"bucket-{form}", f"{root}/bucket-{suffix}/{bucket}/{app_id}"
            yield form, f"{root}/{suffix}/{app_id}"
        yield "", f"{self._folder(general, owner)}/{base}/{app_id}"

    def close(self) -> None:
        """Give back connections."""
        while self._open:
            self._open.popitem()[1][0].close()

    def _folder(self, root: str, owner: str) -> str:
        if "://" not in root:
            with suppress(ConfigurationError):  # elsewhere the file system says what is missing
                return f"{on_hdfs(self._conf, root).rstrip('/')}/{owner}"
            default = urlsplit(self._conf.text("fs.defaultFS"))
            root = f"{default.scheme}://{default.netloc}{root}"
        return f"{root.rstrip('/')}/{owner}"

    def _opened(self, stat: Stat, app_id: str) -> _Opened:
        key = (stat.location, stat.size, stat.mtime_ms)
        known = self._open.get(key)
        if known is None:
            file = StoredFile(self._files(stat.location), stat)
            try:
                opened = IFile(file, app_id) if is_ifile(file, app_id) else TFile(file)
            except FormatError as error:
                raise type(error)(f"the logs in {stat.location} cannot be read: {error}") from None
            known = self._open[key] = (file, opened)
            if len(self._open) > _FILES:
                self._open.popitem(last=False)[1][0].close()
        self._open.move_to_end(key)
        return known[1]

    def _keep(
        self, app_id: str, container_id: str, entries: List[LogEntry], final: bool
    ) -> LogsByName:
        parts: Dict[str, List[Source]] = {}
        for entry in entries:
            parts.setdefault(entry.name, []).append(entry.content)
        found: LogsByName = {
            name: pieces[0] if len(pieces) == 1 else JoinedLog(pieces)
            for name, pieces in parts.items()
        }
        if final:
            self._found[app_id, container_id] = found
            if len(self._found) > _CONTAINERS:
                self._found.popitem(last=False)
        return found


def is_complete(stat: Stat) -> bool:
    """Whether a file is a node's logs, and whole."""
    return not stat.location.endswith((_UNFINISHED, _CHECKSUM))


def _name(stat: Stat) -> str:
    return stat.location.rstrip("/").rpartition("/")[2]


def _node_of(stat: Stat) -> str:
    return _UPLOADED.sub("", _name(stat))


def _uploaded(stat: Stat) -> Tuple[int, str]:
    match = _UPLOADED.search(_name(stat))
    return (int(match.group(1)) if match else stat.mtime_ms, _name(stat))


def _node_order(name: str, wanted: str) -> Tuple[bool, bool, str]:
    """The node that is meant first, others of its host next."""
    host = wanted.rpartition("_")[0] if "_" in wanted else wanted
    return (name != wanted, not (host and name.startswith(f"{host}_")), name)


def _read(stream: BinaryIO, length: int) -> bytes:
    """Read that many bytes; fewer only at the end."""
    found = []
    while length > 0:
        data = stream.read(length)
        if not data:
            break
        found.append(data)
        length -= len(data)
    return b"".join(found)
