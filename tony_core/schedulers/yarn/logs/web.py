"""HTTP to the web services that have logs: answers as streams, connections kept.

A connection is used again once its answer was read to the end. An answer that is not read to
its end is closed, since an answer may be a log of gigabytes.
"""

from __future__ import annotations

import http.client
import ssl
from collections import OrderedDict
from typing import Any, Optional, Tuple

from tony_core.jsontext import read_value

TIMEOUT_S = 20.0
_MAX_IDLE = 32
_MAX_TEXT = 4 << 20

_Key = Tuple[bool, str]


class WebUnreachable(OSError):
    """No answer, or it broke off."""


class WebResponse:
    """A response; closing it returns the connection."""

    def __init__(
        self,
        web: LogWebClient,
        key: _Key,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self._web = web
        self._key = key
        self._connection = connection
        self._response = response
        self.status = response.status

    def read(self, most: int) -> bytes:
        """Some bytes, none at its end."""
        try:
            return self._response.read1(most)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise WebUnreachable(
                f"{self._key[1]} broke off its answer: {_describe_error(error)}"
            ) from None

    def text(self, longest: int = _MAX_TEXT) -> bytes:
        """All of it, up to a length."""
        found = b""
        with self:
            while len(found) < longest:
                piece = self.read(longest - len(found))
                if not piece:
                    break
                found += piece
        return found

    def json(self) -> Any:
        """All of it as JSON; ``None`` when it is something else."""
        try:
            return read_value(self.text())
        except ValueError:
            return None

    def close(self) -> None:
        """Nothing more of it is wanted."""
        if self._response.isclosed() and not self._response.will_close:
            self._web._back(self._key, self._connection)
        else:
            self._response.close()
            self._connection.close()

    def __enter__(self) -> WebResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogWebClient:
    """A few servers. One thread at a time."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._idle: OrderedDict[_Key, http.client.HTTPConnection] = OrderedDict()
        self._tls: Optional[ssl.SSLContext] = None

    def get(self, address: str, target: str, *, tls: bool = False) -> WebResponse:
        """Ask ``HOST:PORT`` for a path. Redirects are the caller's matter."""
        key = (tls, address)
        idle = self._idle.pop(key, None)
        if idle is not None:
            try:
                return self._request(key, idle, target)
            except WebUnreachable:
                pass  # closed by the server in the meantime
        return self._request(key, None, target)

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _request(
        self, key: _Key, idle: Optional[http.client.HTTPConnection], target: str
    ) -> WebResponse:
        connection = idle
        try:
            connection = connection or self._connection(key)
            connection.request("GET", target, headers={"Accept": "*/*", "User-Agent": "tony"})
            return WebResponse(self, key, connection, connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: odd names
            if connection is not None:
                connection.close()
            raise WebUnreachable(f"{key[1]} cannot be asked: {_describe_error(error)}") from None

    def _connection(self, key: _Key) -> http.client.HTTPConnection:
        tls, address = key
        if not tls:
            return http.client.HTTPConnection(address, timeout=self._timeout_s)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return http.client.HTTPSConnection(address, timeout=self._timeout_s, context=self._tls)

    def _back(self, key: _Key, connection: http.client.HTTPConnection) -> None:
        other = self._idle.pop(key, None)
        if other is not None:
            other.close()
        self._idle[key] = connection
        if len(self._idle) > _MAX_IDLE:
            self._idle.popitem(last=False)[1].close()


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
