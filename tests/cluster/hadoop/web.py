"""The daemons' HTTP by the standard library: JSON of YARN and of JMX, and WebHDFS.

A ``Caller`` is who asks. On an open cluster that is a name in the address; on one with Kerberos
curl shows the user's ticket to each server once (SPNEGO), and the cookie that comes
back serves from then on. Nothing here uses TonY's own way of doing that.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_S = 20.0


class WebError(Exception):
    """An answer other than asked for."""

    def __init__(self, status: int, url: str, text: str) -> None:
        super().__init__(f"{url} answered {status}: {text[:2000]}")
        self.status = status
        self.text = text


Answer = Tuple[int, Mapping[str, str], bytes]
"""Status, headers, body."""


@dataclass
class Caller:
    """A user who asks."""

    user: str
    login: Optional[Callable[[], Mapping[str, str]]] = None
    """Gets a ticket and gives the environment in which it is found; None on an open cluster."""
    authority: Optional[Path] = None
    """Whose certificates are good, as PEM, where the servers speak HTTPS."""
    _cookies: Dict[str, str] = field(default_factory=dict)

    def name(self) -> Dict[str, str]:
        """The parameter by which servers know the user that ask for no ticket."""
        return {"user.name": self.user}

    def request(
        self,
        method: str,
        url: str,
        body: Optional[bytes],
        headers: Mapping[str, str],
        timeout: float,
    ) -> Answer:
        """As ``request``, with a ticket where the server asks for one."""
        if self.login is None:
            return request(method, url, body, headers, timeout, self.authority)
        server = _server(url)
        for _ in range(2):
            cookie = {"Cookie": self._cookies[server]} if server in self._cookies else {}
            more = {**headers, **cookie}
            answer = request(method, url, body, more, timeout, self.authority)
            if answer[0] != 401:
                break
            self._cookies[server] = self._authenticate(url, self.login(), timeout)
        return answer

    def _authenticate(self, url: str, environment: Mapping[str, str], timeout: float) -> str:
        """The cookie that a server gives for a ticket."""
        trusted = {"CURL_CA_BUNDLE": str(self.authority)} if self.authority else {}
        parts = urlsplit(url)
        is_webhdfs = parts.path.startswith("/webhdfs")
        path = "/webhdfs/v1/?op=GETHOMEDIRECTORY" if is_webhdfs else "/jmx?qry=none:"
        command = "curl --silent --show-error --negotiate --user : --noproxy *".split()
        command += ["--dump-header", "-", "--output", os.devnull, "--max-time", str(timeout)]
        done = subprocess.run(
            [*command, f"{parts.scheme}://{parts.netloc}{path}"],
            env={"PATH": os.environ.get("PATH", ""), **environment, **trusted},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        cookies = re.findall(r"(?im)^set-cookie: *(hadoop\.auth=[^;\s]+)", done.stdout)
        if not cookies:
            statuses = re.findall(r"(?m)^HTTP/\S+ (\d+)", done.stdout)
            raise WebError(int(statuses[-1]) if statuses else 0, url, done.stdout + done.stderr)
        return str(cookies[-1])


def _server(url: str) -> str:
    """The part of the address for which one cookie serves: WebHDFS has a filter of its own."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{parts.path.split('/')[1:2] == ['webhdfs']}"


def request(
    method: str,
    url: str,
    body: Optional[bytes] = None,
    headers: Mapping[str, str] = {},
    timeout: float = TIMEOUT_S,
    authority: Optional[Path] = None,
) -> Answer:
    """One request of a stranger; redirects are for the caller to follow."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authority)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def call(
    method: str,
    url: str,
    message: object = None,
    timeout: float = TIMEOUT_S,
    by: Optional[Caller] = None,
) -> Any:
    """JSON to a service and JSON back, or None when it answers with nothing."""
    headers = {"Accept": "application/json"}
    body = None
    if message is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(message).encode()
    ask = by.request if by else request
    status, _, text = ask(method, url, body, headers, timeout)
    if not 200 <= status < 300:
        raise WebError(status, url, text.decode(errors="replace"))
    return json.loads(text) if text.startswith((b"{", b"[")) else None


def bean(
    web: str, name: str, timeout: float = TIMEOUT_S, by: Optional[Caller] = None
) -> Dict[str, Any]:
    """One bean of a daemon's JMX: ``Hadoop:service=NameNode,name=FSNamesystemState``."""
    url = f"{web}/jmx?{urlencode({'qry': name})}"
    beans = call("GET", url, timeout=timeout, by=by)["beans"]
    return dict(beans[0]) if beans else {}


@dataclass(frozen=True)
class WebHdfs:
    """As much of the file system as tests need, as one user."""

    url: str
    by: Caller

    def put(self, path: str, content: bytes) -> None:
        """Writes a file, over an older one too."""
        status, headers, text = self._ask("PUT", self._at(path, "CREATE", overwrite="true"))
        if status != 307:
            raise WebError(status, path, text.decode(errors="replace"))
        # A DataNode is asked with the token in the address that the NameNode has given.
        status, _, text = self._ask("PUT", headers["Location"], content)
        if status != 201:
            raise WebError(status, path, text.decode(errors="replace"))

    def get(self, path: str) -> bytes:
        """The content of a file."""
        status, headers, text = self._ask("GET", self._at(path, "OPEN"))
        if status == 307:
            status, _, text = self._ask("GET", headers["Location"])
        if status != 200:
            raise WebError(status, path, text.decode(errors="replace"))
        return text

    def list(self, path: str) -> Dict[str, Dict[str, Any]]:
        """What is in a folder, by name."""
        found = self._call("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        return {one["pathSuffix"]: one for one in found}

    def status(self, path: str) -> Dict[str, Any]:
        """Size, owner, permission, type."""
        return dict(self._call("GET", path, "GETFILESTATUS")["FileStatus"])

    def make_folder(self, path: str, permission: str = "755") -> None:
        """With the folders above it."""
        self._call("PUT", path, "MKDIRS", permission=permission)

    def give(self, path: str, owner: str, group: str, permission: str) -> None:
        """Changes owner, group and permission; for the superuser."""
        self._call("PUT", path, "SETOWNER", owner=owner, group=group)
        self._call("PUT", path, "SETPERMISSION", permission=permission)

    def delete(self, path: str) -> bool:
        """With everything in it; False when it was not there."""
        return bool(self._call("DELETE", path, "DELETE", recursive="true")["boolean"])

    def _call(self, method: str, path: str, operation: str, **more: str) -> Any:
        return call(method, self._at(path, operation, **more), by=self.by)

    def _ask(self, method: str, url: str, content: Optional[bytes] = None) -> Answer:
        return self.by.request(method, url, content, {}, TIMEOUT_S)

    def _at(self, path: str, operation: str, **more: str) -> str:
        query = urlencode({"op": operation, **self.by.name(), **more})
        return f"{self.url}/webhdfs/v1{quote(path)}?{query}"
