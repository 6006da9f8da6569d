"""Reading from the web: ``http`` and ``https``, by ``urllib``, which follows the proxy settings.

A name and password in the URL (``https://user:password@host/...``) are sent as basic
authentication and never shown. Nothing is written. Redirects are followed without the name and
password, and never from https to http.
"""

from __future__ import annotations

import base64
import email.utils
import errno
import http.client
import io
import re
import urllib.error
import urllib.request
from typing import Any, BinaryIO, List, NoReturn, Optional, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from tony_core.files.location import masked
from tony_core.files.port import COPIED_AT_ONCE, ReadOnlyFileSystem, Stat

TIMEOUT_S = 30.0  # for the connection and for each read
_AGENT = {"User-Agent": "tony"}
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)


class HttpFileSystem(ReadOnlyFileSystem):
    """Every location is a file; there are no folders."""

    scheme = "http"
    refusal = (errno.EACCES, "http and https locations can only be read")

    def stat(self, location: str) -> Stat:
        with self._request(location, "HEAD") as answer:
            length = answer.headers.get("Content-Length")
            changed = answer.headers.get("Last-Modified")
        size = int(length) if length and _LENGTH.fullmatch(length) else 0
        return Stat(location, False, size, _milliseconds(changed))

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        if offset < 0:
            raise ValueError(f"{masked(location)}: nothing lies before the file's first byte")
        try:
            stream = _WholeBody(self._request(location, "GET", offset), location)
        except _BehindEnd:
            return io.BytesIO()  # the offset is at or behind the end
        if offset and not stream.partial:
            stream.skip(offset)  # a server that does not do ranges sends the whole file
        return cast(BinaryIO, stream)

    def list(self, location: str) -> List[Stat]:
        raise NotADirectoryError(errno.ENOTDIR, "the web has no folders to list", masked(location))

    def _request(self, location: str, method: str, offset: int = 0) -> http.client.HTTPResponse:
        parts = urlsplit(location)
        user_info, _, host = parts.netloc.rpartition("@")
        shown = masked(location)
        try:
            url = urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
            request = urllib.request.Request(url, headers=_AGENT, method=method)  # noqa: S310
            if offset:
                request.add_header("Range", f"bytes={offset}-")
            if user_info:
                token = base64.b64encode(unquote(user_info).encode()).decode()
                # Not for the host that a redirect leads to.
                request.add_unredirected_header("Authorization", f"Basic {token}")
            answer = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            if method == "HEAD" and error.code in (405, 501):
                return self._request(location, "GET")  # only its head is read
            if offset and error.code == 416:
                raise _BehindEnd from None
            word = f"the server answered {error.code} {error.reason}"
            if error.code in (404, 410):
                raise FileNotFoundError(errno.ENOENT, word, shown) from None
            if error.code in (401, 403):
                raise PermissionError(errno.EACCES, word, shown) from None
            raise OSError(errno.EIO, word, shown) from None
        except urllib.error.URLError as error:
            raise OSError(
                errno.EHOSTUNREACH, f"could not be reached ({error.reason})", shown
            ) from None
        except (http.client.HTTPException, ValueError, OverflowError) as error:
            raise OSError(errno.EINVAL, f"not a usable URL or answer ({error})", shown) from None
        return cast(http.client.HTTPResponse, answer)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Optional[urllib.request.Request]:
        check_redirect(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def check_redirect(old: str, new: str) -> None:
    """Raise ``ValueError`` for a redirect that is not followed."""
    before, after = urlsplit(old).scheme.lower(), urlsplit(new).scheme.lower()
    if after not in ("http", "https"):
        raise ValueError("a redirect to what is neither http nor https")
    if before == "https" and after != "https":
        raise ValueError("a redirect from https to http, which is not followed")


class _BehindEnd(Exception):
    """The file ends before the range asked for."""


class _WholeBody:
    """A stream that fails when the connection ends before the announced length."""

    def __init__(self, answer: http.client.HTTPResponse, location: str) -> None:
        self._answer = answer
        self._location = location
        self.partial = answer.status == 206

    def skip(self, count: int) -> None:
        """Skip the first bytes, or all when there are fewer."""
        try:
            while count > 0:
                data = self.read(min(count, COPIED_AT_ONCE))
                if not data:
                    return
                count -= len(data)
        except BaseException:
            self.close()
            raise

    def read(self, size: int = -1) -> bytes:
        # Piece by piece: the length that a server announces may be more than any memory.
        left = float("inf") if size is None or size < 0 else size
        parts: List[bytes] = []
        while left > 0:
            try:
                data = self._answer.read(int(min(left, COPIED_AT_ONCE)))
            except (http.client.HTTPException, ValueError):
                self._short()
            if not data:
                if self._answer.length:
                    self._short()
                break
            parts.append(data)
            left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _short(self) -> NoReturn:
        raise OSError(errno.EIO, "the connection ended in mid-file", masked(self._location))

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._answer.close()

    def __enter__(self) -> _WholeBody:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _milliseconds(date: Optional[str]) -> int:
    if not date:
        return 0
    try:
        return int(email.utils.parsedate_to_datetime(date).timestamp() * 1000)
    except (TypeError, ValueError):
        return 0
