"""The daemons' HTTP by the standard library: JSON of YARN and of JMX, and WebHDFS."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_S = 20.0


class WebError(Exception):
    """An answer other than asked for."""

    def __init__(self, status: int, url: str, text: str) -> None:
        super().__init__(f"{url} answered {status}: {text[:2000]}")
        self.status = status
        self.text = text


def request(
    method: str,
    url: str,
    body: Optional[bytes] = None,
    headers: Mapping[str, str] = {},
    timeout: float = TIMEOUT_S,
) -> Tuple[int, Mapping[str, str], bytes]:
    """One request; redirects are for the caller to follow."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def call(method: str, url: str, message: object = None, timeout: float = TIMEOUT_S) -> Any:
    """JSON to a service and JSON back, or None when it answers with nothing."""
    headers = {"Accept": "application/json"}
    body = None
    if message is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(message).encode()
    status, _, text = request(method, url, body, headers, timeout)
    if not 200 <= status < 300:
        raise WebError(status, url, text.decode(errors="replace"))
    return json.loads(text) if text.startswith((b"{", b"[")) else None


def bean(web: str, name: str, timeout: float = TIMEOUT_S) -> Dict[str, Any]:
    """One bean of a daemon's JMX: ``Hadoop:service=NameNode,name=FSNamesystemState``."""
    beans = call("GET", f"http://{web}/jmx?{urlencode({'qry': name})}", timeout=timeout)["beans"]
    return dict(beans[0]) if beans else {}


@dataclass(frozen=True)
class WebHdfs:
    """As much of the file system as tests need."""

    url: str
    user: str

    def put(self, path: str, content: bytes) -> None:
        """Writes a file, over an older one too."""
        status, headers, text = request("PUT", self._at(path, "CREATE", overwrite="true"))
        if status != 307:
            raise WebError(status, path, text.decode(errors="replace"))
        status, _, text = request("PUT", headers["Location"], content)
        if status != 201:
            raise WebError(status, path, text.decode(errors="replace"))

    def get(self, path: str) -> bytes:
        """The content of a file."""
        status, headers, text = request("GET", self._at(path, "OPEN"))
        if status == 307:
            status, _, text = request("GET", headers["Location"])
        if status != 200:
            raise WebError(status, path, text.decode(errors="replace"))
        return text

    def list(self, path: str) -> Dict[str, Dict[str, Any]]:
        """What is in a folder, by name."""
        found = call("GET", self._at(path, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        return {one["pathSuffix"]: one for one in found}

    def status(self, path: str) -> Dict[str, Any]:
        """Size, owner, permission, type."""
        return dict(call("GET", self._at(path, "GETFILESTATUS"))["FileStatus"])

    def make_folder(self, path: str, permission: str = "755") -> None:
        """With the folders above it."""
        call("PUT", self._at(path, "MKDIRS", permission=permission))

    def delete(self, path: str) -> bool:
        """With everything in it; False when it was not there."""
        return bool(call("DELETE", self._at(path, "DELETE", recursive="true"))["boolean"])

    def _at(self, path: str, operation: str, **more: str) -> str:
        query = urlencode({"op": operation, "user.name": self.user, **more})
        return f"{self.url}/webhdfs/v1{quote(path)}?{query}"
