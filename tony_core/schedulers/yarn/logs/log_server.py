"""Logs through YARN's own log server (timeline or history server), where a site has one.

The last resort: for who may not read the files, or when they are of a kind that only Hadoop
reads. The reader requests whole logs only: what a cut means there differs between versions.
"""

from __future__ import annotations

from typing import List, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.web import WebClient, WebResponse, WebUnreachable
from tony_core.schedulers.yarn.logs.node_web import LogsUnavailable, NoSuchLog, parse_log_names
from tony_core.schedulers.yarn.logs.text import LogTextParser

_PIECE = 1 << 16
KEY = endpoints.LOG_SERVER


class LogServer:
    """A log server as the site's configuration names it."""

    def __init__(self, conf: SiteConfiguration, web: WebClient) -> None:
        self.url = conf.text(KEY).rstrip("/")
        self._web = web
        self._log: Optional[Tuple[str, str]] = None
        self._answer: Optional[WebResponse] = None
        self._text = LogTextParser()
        self._ready = b""
        self._at = 0

    def names(self, container_id: str) -> List[str]:
        """The logs of a container."""
        with self._get(container_id) as answer:
            return parse_log_names(answer.json())

    def size(self, container_id: str, name: str) -> int:
        """Return the length of a log."""
        self._begin(container_id, name)
        return self._text.length or 0

    def read(self, container_id: str, name: str, offset: int, limit: int) -> bytes:
        """Bytes of the log from an offset; empty if there are none yet."""
        if self._log != (container_id, name) or self._at > offset:
            self._begin(container_id, name)
        self._take(offset - self._at)
        return self._take(limit) if self._at == offset else b""

    def close(self) -> None:
        """Give back the connection."""
        if self._answer is not None:
            self._answer.close()
        self._answer, self._log = None, None

    def _begin(self, container_id: str, name: str) -> None:
        self.close()
        self._answer = self._get(container_id, name)
        self._log, self._text, self._ready, self._at = (container_id, name), LogTextParser(), b"", 0
        while self._text.length is None and self._more():
            pass

    def _take(self, most: int) -> bytes:
        found = []
        while most > 0 and (self._ready or self._more()):
            piece, self._ready = self._ready[:most], self._ready[most:]
            most -= len(piece)
            self._at += len(piece)
            found.append(piece)
        return b"".join(found)

    def _more(self) -> bool:
        if self._answer is None:
            return False
        try:
            data = self._answer.read(_PIECE)
        except WebUnreachable as error:
            self.close()
            raise LogsUnavailable(str(error)) from None
        if data:
            self._ready += self._text.feed(data)
            return True
        self._answer.close()
        self._answer = None
        self._text.end()
        return False

    def _get(self, container_id: str, name: str = "") -> WebResponse:
        parts = urlsplit(self.url)
        target = f"{parts.path}/containers/{quote(container_id, safe='')}/logs"
        if name:
            target += f"/{quote(name, safe='')}"
        query = urlencode(self._web.access.query())
        try:
            answer = self._web.get(parts.netloc, f"{target}?{query}", tls=parts.scheme == "https")
        except (WebUnreachable, HadoopError) as error:
            raise LogsUnavailable(f"the log server {error}") from None
        if answer.status == 200:
            return answer
        answer.close()
        if answer.status == 404 and name:
            raise NoSuchLog(name)
        raise LogsUnavailable(f"the log server ({KEY}) answered {answer.status} for {container_id}")
