"""The key-value store of Horovod's rendezvous, and the few HTTP requests that reach it.

A rank that begins (``hvd.init()``) meets the others in several *scopes*: all of them, those of its
host, those with its place on every host, later perhaps a process set. In each it does the same::

    PUT /SCOPE/RANK        where it listens
    GET /SCOPE/OTHER       the same of each other one; 404: not yet, it asks again
    DELETE /SCOPE/RANK     it is connected to all

Some versions of gloo put a second key for each rank (``rank_0``), which no rank deletes.

Sans-IO: bytes in, requests and answers out. :mod:`tony_core.frameworks.horovod_service` has the
sockets.

**A scope ends with its last rank.** A rank deletes its key once it has read those of all others.
So by the first DELETE all keys are there, and when each has been deleted no rank needs them: the
scope is dropped, and a program that shuts Horovod down and begins again finds no address of its
former world. Before that a deleted key is still served, for others may not have read it.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Set

MOST_HEAD = 8 * 1024  # request line and headers
MOST_VALUE = 8 * 1024 * 1024  # a rank puts some 150 bytes for each other rank

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    507: "Insufficient Storage",
}


class HttpError(Exception):
    """A request that Horovod does not make; the status says why."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


class Head(NamedTuple):
    method: str
    scope: str
    key: str
    body_at: int  # where the body begins
    length: int  # how long it is


def parse_head(received: bytes) -> Optional[Head]:
    """The request that begins here; None while it is not whole. Raises :class:`HttpError`."""
    end = received.find(b"\r\n\r\n", 0, MOST_HEAD)
    if end < 0:
        if len(received) >= MOST_HEAD:
            raise HttpError(431)
        return None
    first, *headers = received[:end].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400)
    if words[0] not in ("GET", "PUT", "DELETE"):
        raise HttpError(405)
    root, _, path = words[1].partition("/")
    scope, _, key = path.partition("/")
    if root or not scope or not key:
        raise HttpError(400)
    return Head(words[0], scope, key, end + 4, _length(words[0], headers))


def _length(method: str, headers: List[str]) -> int:
    found = None
    for header in headers:
        name, _, value = header.partition(":")
        name, value = name.strip().lower(), value.strip()
        if name == "transfer-encoding":
            raise HttpError(501)
        if name != "content-length":
            continue
        if not (value.isascii() and value.isdigit()) or found not in (None, value):
            raise HttpError(400)
        if len(value) > 12 or int(value) > MOST_VALUE:
            raise HttpError(413)
        found = value
    if found is None and method == "PUT":
        raise HttpError(411)
    if found and int(found) and method != "PUT":
        raise HttpError(400)
    return int(found or 0)


def build_answer(status: int, body: bytes = b"") -> bytes:
    """Build an answer; the connection ends with it."""
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode("latin-1") + body


class Name(NamedTuple):
    """A key of a scope."""

    scope: str
    key: str


class Store:
    """Values by scope and key, of one session."""

    def __init__(self, most: int) -> None:
        self._most = most  # bytes of all values and names together
        self._held = 0
        self._scopes: Dict[str, Dict[str, bytes]] = {}
        self._deleted: Dict[str, Set[str]] = {}

    @property
    def held(self) -> int:
        return self._held

    def get(self, name: Name) -> Optional[bytes]:
        """The value, if it was put."""
        return self._scopes.get(name.scope, {}).get(name.key)

    def put(self, name: Name, value: bytes) -> None:
        """Store it; raises :class:`HttpError` where there is no room."""
        scope = self._scopes.get(name.scope, {})
        before = scope.get(name.key)
        held = self._held + _size(name, value) - (0 if before is None else _size(name, before))
        if held > self._most:
            raise HttpError(507)
        self._held = held
        self._scopes.setdefault(name.scope, {})[name.key] = value

    def delete(self, name: Name) -> None:
        """Note that the rank has read all keys; when every rank has, drop the scope."""
        scope = self._scopes.get(name.scope)
        if scope is None or name.key not in scope or not name.key.isdigit():
            return
        deleted = self._deleted.setdefault(name.scope, set())
        deleted.add(name.key)
        if any(key.isdigit() and key not in deleted for key in scope):
            return
        del self._scopes[name.scope], self._deleted[name.scope]
        self._held -= sum(_size(Name(name.scope, key), value) for key, value in scope.items())


def _size(name: Name, value: bytes) -> int:
    return 256 + len(name.scope) + len(name.key) + len(value)  # with what Python needs for it
