"""The access log: a line for each request, in the combined format with the time that it took.

``ADDRESS - VIEWER [TIME] "METHOD PATH HTTP/1.1" STATUS BYTES "-" "AGENT" SECONDS``. Everything that
comes from outside is escaped, so that a request is one line. The query of a login is left out: it
holds what proves the login.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import sys
import time
from typing import Callable, Sequence

from starlette.requests import Request

from tony_core.portal.access.origins import Network, is_within
from tony_core.unexpected_errors import UnexpectedErrors

_LONGEST = 2000


class AccessLog:
    """Writes lines to a file, which may be moved away while it is written, or to standard error."""

    def __init__(self, path: str = "", proxies: Sequence[Network] = ()) -> None:
        """Raises OSError when the file cannot be written."""
        self._proxies = proxies
        handler: logging.Handler
        if path:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640))
            handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8", delay=True)
        else:
            handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        handler.handleError = self._note_fault  # type: ignore[method-assign]
        self._faults = UnexpectedErrors()  # a full disk is named once, and ends no request
        self._handler = handler
        self._logger = logging.Logger("tony.portal.access", logging.INFO)
        self._logger.addHandler(handler)

    def write(self, request: Request, viewer: str, status: int, size: int, took_s: float) -> None:
        """Write the line of an answered request."""
        text = format_line(request, viewer, status, size, took_s, time.time, self._proxies)
        self._put(text)

    def note(self, text: str) -> None:
        """Write a line of the portal's own: what a viewer did."""
        self._put(escaped(text))

    def _put(self, text: str) -> None:
        try:
            self._logger.info("%s", text)
        except OSError:  # of the file's folder, which the handler looks at itself
            self._faults.record("the access log")

    def _note_fault(self, record: logging.LogRecord) -> None:
        self._faults.record("the access log")

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._handler.close()


def format_line(
    request: Request,
    viewer: str,
    status: int,
    size: int,
    took_s: float,
    now: Callable[[], float],
    proxies: Sequence[Network] = (),
) -> str:
    """The line of one request."""
    path = request.scope.get("raw_path") or request.url.path.encode()
    target = path.decode("latin-1")
    query = request.scope.get("query_string", b"").decode("latin-1")
    if query and not request.url.path.startswith("/login"):
        target = f"{target}?{query}"
    moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now()))
    words = f"{escaped(request.method)} {escaped(target)} HTTP/{request.scope['http_version']}"
    agent = escaped(request.headers.get("user-agent", "-"))
    address = client_address(request, proxies)
    return (
        f'{address} - {escaped(viewer) or "-"} [{moment}] "{words}" {status} {size} "-" "{agent}"'
        f" {took_s:.3f}"
    )


def client_address(request: Request, proxies: Sequence[Network]) -> str:
    """From where a request comes: of a trusted proxy's, the last address that is no proxy's."""
    address = request.client.host if request.client else "-"
    named = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    while is_within(address, proxies) and named:
        following = named.pop().strip()
        if not _is_address(following):
            break
        address = following
    return address


def _is_address(text: str) -> bool:
    return 0 < len(text) <= 45 and set(text) <= set("0123456789abcdefABCDEF.:")


def escaped(text: str) -> str:
    """A text that neither ends a line nor a quotation, nor drives a terminal."""
    return "".join(
        one if " " <= one <= "~" and one not in '"\\' else f"\\x{ord(one):02x}"
        for one in text[:_LONGEST]
    )
