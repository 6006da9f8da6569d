"""Logs where they are written: the web service of the node that a container ran on.

It can be asked for a log's first N bytes or its last N, and always says how long the log is.
So what follows an offset is requested as the last N with a little more than is thought to
be there: the answer says where it begins, and the rest is arithmetic, however the log grew in
between. The answer is a stream that is read on from call to call, so that a reader who goes
through a log asks once.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from typing import Any, Callable, FrozenSet, Iterable, List, Optional, Tuple
from urllib.parse import quote, urlencode

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.logs.datainput import FormatError
from tony_core.hadoop.web import WebClient, WebResponse, WebUnreachable
from tony_core.schedulers.yarn.logs.text import LogTextParser

_EXTRA = 4096  # asked for beyond what is known to be there: what was written in between
_PIECE = 1 << 16
_MAX_OPEN = 8
_MAX_TRIES = 6
_HIDDEN = ("launch_container.sh", "directory.info")
"""YARN's own files in the log folder, which hold the container's whole environment."""

KEPT_S = 600.0  # a report of nodes
ANEW_S = 60.0  # at the earliest, where it lacks a node

_Log = Tuple[str, str, str]


class LogsUnavailable(Exception):
    """The node does not have this container's logs, or cannot be asked; the text says which."""


class LogsDenied(Exception):
    """The node has them, and not for this user."""


class NoSuchLog(Exception):
    """The node has the container's logs, and none of that name."""


class _OpenLog:
    """An answer that is being read."""

    def __init__(self, answer: WebResponse, text: LogTextParser) -> None:
        self._answer = answer
        self._text = text
        self._ready = b""
        self.ended = False
        self.running = True  # whether the container did, known at the end
        while text.length is None and not self.ended:
            self._more()
        self.length = text.length or 0  # of the log, when it was asked
        self.at = text.begin  # of the next byte

    def read(self, most: int) -> bytes:
        """Read bytes from the current offset."""
        found = []
        while most > 0:
            if not self._ready:
                if self.ended:
                    break
                self._more()
                continue
            piece, self._ready = self._ready[:most], self._ready[most:]
            found.append(piece)
            most -= len(piece)
            self.at += len(piece)
        return b"".join(found)

    def skip(self, target: int) -> None:
        """Go on to a place in the log."""
        while self.at < target and self.read(min(_PIECE, target - self.at)):
            pass

    def finish(self) -> None:
        """Read what is left, so that the connection can be used again."""
        while self.read(_PIECE):
            pass

    def close(self) -> None:
        self._answer.close()

    def _more(self) -> None:
        data = self._answer.read(_PIECE)
        if data:
            self._ready += self._text.feed(data)
            return
        self.ended = True
        self.running = self._text.end()
        self._answer.close()


class KnownNodes:
    """The nodes' web servers as the ResourceManager reports them, for :class:`WebAccess`.

    Where a job's history says that a container ran is no reason to believe that a node is there.
    ``report`` is asked once for all nodes, and again when its answer is old, or lacks a node.
    """

    def __init__(
        self, report: Callable[[], Iterable[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``report`` gives the ``HOST:PORT`` of each node, of whatever state."""
        self._report = report
        self._clock = clock
        self._known: FrozenSet[str] = frozenset()
        self._read: Optional[float] = None

    def has(self, host: str, port: int) -> bool:
        """Whether a node of the cluster serves there; raises what the report raises."""
        wanted = f"{host}:{port}".lower()
        kept_s = KEPT_S if wanted in self._known else ANEW_S
        if self._read is None or self._clock() - self._read >= kept_s:
            self._known = frozenset(address.lower() for address in self._report())
            self._read = self._clock()
        return wanted in self._known


class NodeLogs:
    """The web services of all nodes, for one user."""

    def __init__(self, web: WebClient, *, tls: bool = False) -> None:
        self._web = web
        self._tls = tls
        self._open: OrderedDict[_Log, _OpenLog] = OrderedDict()
        self._lengths: OrderedDict[_Log, int] = OrderedDict()
        self.running = False  # whether the container did, when a reading found nothing more

    def names(self, address: str, container_id: str) -> List[str]:
        """The logs that a container has written so far."""
        with self._get(address, container_id) as answer:
            return parse_log_names(answer.json())

    def size(self, address: str, container_id: str, name: str) -> int:
        """Return the length of a log now."""
        return self._length((address, container_id, name))

    def read(self, address: str, container_id: str, name: str, offset: int, limit: int) -> bytes:
        """Bytes of the log from an offset; empty if there are none yet."""
        log = (address, container_id, name)
        opened = self._open.get(log)
        if opened is not None and opened.at == offset:
            try:
                data = self._read(log, opened, limit)
            except (LogsUnavailable, FormatError):
                data = b""  # the stream was idle for too long, or the node went away: ask again
            if data:
                return data
        opened = self._from(log, offset)
        if opened is None:
            return b""
        self._keep(log, opened)
        return self._read(log, opened, limit)

    def forget(self, container_id: str) -> None:
        """The container's logs are elsewhere now."""
        for log in [one for one in self._open if one[1] == container_id]:
            self._open.pop(log).close()
            self._lengths.pop(log, None)

    def close(self) -> None:
        """Give back connections."""
        while self._open:
            self._open.popitem()[1].close()

    # ---------------------------------------------------------------- one log

    def _from(self, log: _Log, offset: int) -> Optional[_OpenLog]:
        """An answer that begins at that offset; none where the log does not reach it."""
        self._drop(log)
        if offset == 0:
            return self._request(log, None)
        length = self._lengths.get(log)
        if length is None:
            length = self._length(log)
            if length <= offset:
                return None
        for _ in range(_MAX_TRIES):
            opened = self._request(log, max(0, length - offset) + _EXTRA)
            length = opened.length
            if opened.at <= offset < length:
                opened.skip(offset)
                return opened
            if length <= offset:
                self._finish(opened)
                return None
            opened.close()
        # It grows faster than it can be asked for: read it from its beginning, once.
        opened = self._request(log, None)
        opened.skip(offset)
        return opened

    def _length(self, log: _Log) -> int:
        opened = self._request(log, 1)
        self._finish(opened)
        return opened.length

    def _finish(self, opened: _OpenLog) -> None:
        try:
            opened.finish()
        except WebUnreachable as error:
            raise LogsUnavailable(str(error)) from None
        finally:
            opened.close()
        self.running = opened.running

    def _read(self, log: _Log, opened: _OpenLog, limit: int) -> bytes:
        try:
            data = opened.read(limit)
        except WebUnreachable as error:
            self._drop(log)
            raise LogsUnavailable(str(error)) from None
        except FormatError:
            self._drop(log)
            raise
        if opened.ended:
            self.running = opened.running
            self._drop(log)
        return data

    def _request(self, log: _Log, last: Optional[int]) -> _OpenLog:
        address, container_id, name = log
        more = {} if last is None else {"size": str(-last)}
        answer = self._get(address, container_id, name, **more)
        try:
            opened = _OpenLog(answer, LogTextParser(last))
        except WebUnreachable as error:
            raise LogsUnavailable(str(error)) from None
        except BaseException:
            answer.close()
            raise
        self._lengths[log] = opened.length
        self._lengths.move_to_end(log)
        if len(self._lengths) > 1 << 12:
            self._lengths.popitem(last=False)
        return opened

    def _get(self, address: str, container_id: str, name: str = "", **more: str) -> WebResponse:
        target = f"/ws/v1/node/containers/{quote(container_id, safe='')}/logs"
        if name:
            target += f"/{quote(name, safe='')}"
        query = urlencode({**self._web.access.query(), **more})
        try:
            answer = self._web.get(address, f"{target}?{query}", tls=self._tls)
            if answer.status == 200:
                return answer
            message = _error_text(answer.text(1 << 14).decode(errors="replace"))
        except (WebUnreachable, HadoopError) as error:
            raise LogsUnavailable(str(error)) from None
        if answer.status in (401, 403) or "is not authorized" in message:
            raise LogsDenied(message)
        if answer.status == 404 and name and "Cannot find this log" in message:
            raise NoSuchLog(name)
        raise LogsUnavailable(f"{address} answered {answer.status}: {message}")

    def _keep(self, log: _Log, opened: _OpenLog) -> None:
        self._open[log] = opened
        if len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[1].close()

    def _drop(self, log: _Log) -> None:
        opened = self._open.pop(log, None)
        if opened is not None:
            opened.close()


def parse_log_names(listing: Any) -> List[str]:
    """The names in a list of logs; several lists, where some logs were moved, are one."""
    found = listing.get("containerLogsInfo") if isinstance(listing, dict) else listing
    names: List[str] = []
    for part in found if isinstance(found, list) else [found]:
        logs = part.get("containerLogInfo") if isinstance(part, dict) else None
        for log in logs if isinstance(logs, list) else [logs]:
            name = log.get("fileName") if isinstance(log, dict) else None
            if isinstance(name, str):
                names.append(name)
    return visible_names(names)


def visible_names(names: List[str]) -> List[str]:
    """The names without YARN's own files, each once."""
    return sorted({name for name in names if name not in _HIDDEN})


def _error_text(text: str) -> str:
    """A server's error message, out of a page, XML, JSON or a Java exception."""
    found = re.search(r'<message>(.*?)</message>|"message"\s*:\s*"(.*?)"', text, re.S)
    message = next((part for part in found.groups() if part), text) if found else text
    message = re.sub(r"<[^>]*>", " ", message)
    message = re.sub(r"^(?:[\w.]+(?:Exception|Error): )+", "", " ".join(message.split()))
    return message[:300]
