"""The requests of an HTTP/1.1 connection: bytes in, requests out, and numbers in them.

Everything that is wrong with a request is a :class:`BadRequest`, which says what to answer.
"""

from __future__ import annotations

import math
from typing import Dict, Mapping, NamedTuple, Optional
from urllib.parse import parse_qsl, unquote

MAX_HEAD = 16 * 1024
MAX_BODY = 4 * 1024 * 1024
MAX_FIELDS = 50  # of a query
MAX_DIGITS = 18  # of a number in a request
_CONTROLS = bytes({*range(32), 127} - {9})  # a tab may stand in a header's value


class BadRequest(Exception):
    """The reader's fault; carries the status to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request(NamedTuple):
    method: str
    target: str  # as it came: path and query
    path: str  # decoded
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""
    keep_alive: bool = True

    def is_cross_site(self) -> bool:
        """Whether a browser sends it for a page of another origin, by what the browser says."""
        if self.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return True
        origin = self.headers.get("origin")
        if origin is None:
            return False
        return origin.partition("://")[2].lower() != self.headers.get("host", "").lower()


def whole_number(text: str, what: str, least: int = 0) -> int:
    """A number that a request gives; :class:`BadRequest` for anything else.

    Only what ``int`` and ``str.isdigit`` agree on, and not so long that it cannot be converted.
    """
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise BadRequest(400, f"{what} is not a whole number of up to {MAX_DIGITS} digits")
    number = int(text)
    if number < least:
        raise BadRequest(400, f"{what} is {number}; expected {least} or more")
    return number


def seconds(text: str, what: str) -> float:
    """A time that a request gives, as ``20`` or ``0.5``; :class:`BadRequest` for anything else."""
    try:
        value = float(text) if len(text) <= 32 and set(text) <= set("0123456789.e+-") else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise BadRequest(400, f"{what} is not a number of seconds")
    return value


def parse(data: bytearray) -> Optional[Request]:
    """Take one request out of the buffer; None while it is not all there."""
    head = parse_head(data)
    return None if head is None else head.take(data)


class Head(NamedTuple):
    """A request whose body may not be all there yet."""

    request: Request
    start: int  # where the body begins
    end: int

    @property
    def length(self) -> int:
        """Bytes of the body."""
        return self.end - self.start

    def take(self, data: bytearray) -> Optional[Request]:
        """Take the request out of the buffer that it was read from; None: not all there."""
        if len(data) < self.end:
            return None
        body = bytes(data[self.start : self.end])
        del data[: self.end]
        return self.request._replace(body=body)


def parse_head(data: bytearray) -> Optional[Head]:
    """Parse the head that the buffer begins with; None while it is not all there."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MAX_HEAD:
            raise BadRequest(431, "the request's head is too long")
        return None
    if end > MAX_HEAD:
        raise BadRequest(431, "the request's head is too long")
    whole = bytes(data[:end])
    if whole.replace(b"\r\n", b"").translate(None, _CONTROLS) != whole.replace(b"\r\n", b""):
        raise BadRequest(400, "the request's head has a control character")
    lines = whole.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest(400, "not an HTTP request")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(505, f"{version} is not supported; expected HTTP/1.1")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "a header line has no name")
        key = name.lower()
        if key in headers and key in ("content-length", "host"):
            raise BadRequest(400, f"the header {name} stands twice")
        headers[key] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(501, "Transfer-Encoding is not supported; send Content-Length")
    length = whole_number(headers.get("content-length", "0"), "Content-Length")
    if length > MAX_BODY:
        raise BadRequest(413, f"the body has {length} bytes; at most {MAX_BODY} are taken")
    if method not in ("GET", "HEAD", "POST", "PUT"):
        raise BadRequest(405, f"{method} is not supported; expected GET or HEAD")
    if not target.startswith("/"):
        raise BadRequest(400, "the target is not a path")
    start = end + 4
    path, _, query = target.partition("?")
    wish = headers.get("connection", "").lower()
    keep = "close" not in wish if version == "HTTP/1.1" else "keep-alive" in wish
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise BadRequest(400, f"the query has more than {MAX_FIELDS} fields") from None
    request = Request(method, target, unquote(path), fields, headers, b"", keep)
    return Head(request, start, start + length)
