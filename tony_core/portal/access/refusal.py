"""Requests that get an answer instead of a viewer, and how the answer is written."""

from __future__ import annotations

from typing import Mapping, Optional

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response


class Refused(Exception):
    """A request is not let in; carries what to answer."""

    def __init__(
        self, status: int, message: str, headers: Optional[Mapping[str, str]] = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


class Answered(Exception):
    """A login answers this request itself: a redirect, a logout."""

    def __init__(self, response: Response, viewer: str = "") -> None:
        super().__init__("answered")
        self.response = response
        self.viewer = viewer  # who has just logged in


def wants_json(request: Request) -> bool:
    """Whether a program asks, and not a person."""
    path = request.url.path
    is_api = "/api/" in path or ("/jobs/" in path and "/logs/" in path)
    return is_api or "application/json" in request.headers.get("accept", "")


def write_refusal(request: Request, refused: Refused) -> Response:
    """The answer to a request that is refused; plain text, so that nothing in it is markup."""
    if wants_json(request):
        body = {"error": refused.message}
        return JSONResponse(body, refused.status, refused.headers)
    return PlainTextResponse(f"{refused.message}\n", refused.status, refused.headers)
