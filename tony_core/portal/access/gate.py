"""The gate before the application: who asks, whether he may, and what every answer gets."""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Tuple
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tony_core.portal.access.access_log import AccessLog
from tony_core.portal.access.login import Identified, LoginMethod
from tony_core.portal.access.origins import (
    host_of,
    is_foreign,
    is_within,
    own_hosts,
    parse_networks,
)
from tony_core.portal.access.refusal import Answered, Refused, write_refusal
from tony_core.portal.access.sessions import CsrfTokens, SessionCookie, Sessions
from tony_core.portal.connections import BodyRefused, read_body
from tony_core.portal.monitoring import Monitoring
from tony_core.portal.settings import Settings

CSRF_HEADER, CSRF_FIELD = "x-csrf-token", "csrf"
MOST_BODY = 64 * 1024
MOST_FIELDS = 100  # of a form
_FORM = "application/x-www-form-urlencoded"
_FORWARDED = ("x-forwarded-for", "forwarded", "via", "x-real-ip")

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer that does not set them itself."""


class Gate:
    """An ASGI application around another one; the package has the theory."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        login: LoginMethod,
        sessions: Sessions,
        log: AccessLog,
        monitoring: Monitoring,
    ) -> None:
        self._app = app
        self._settings = settings
        self._login = login
        self._sessions = sessions
        self._log = log
        self._monitoring = monitoring
        self._hosts = own_hosts(settings)
        self._readers = parse_networks(settings.metrics_from)
        self._csrf = CsrfTokens()
        self._cookie = SessionCookie.of(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send)
        request = Request(scope, receive)
        if self._settings.uses_https:
            scope["scheme"] = "https"  # of the proxy before it, for redirects
        begin = time.monotonic()
        who: List[str] = []
        try:
            response, receive = await self._admit(request, receive, answer, who)
            await (response or self._app)(scope, receive, answer.send)
        finally:
            took = time.monotonic() - begin
            self._log.write(request, who[0] if who else "", answer.status, answer.size, took)
            self._monitoring.count(request.method, request.url.path, answer.status, took)

    async def _admit(
        self, request: Request, receive: Receive, answer: _Answer, who: List[str]
    ) -> Tuple[Optional[Response], Receive]:
        """An answer to send instead of the application's, and where its body is read from."""
        try:
            response = self._without_login(request)
            if response is not None:
                return response, receive
            self._check_origin(request)
            found = await self._login.identify(request)
            who.append(found.viewer.name)
            answer.headers.update(found.headers)
            if found.new_session:
                answer.cookies.append(self._cookie.header(found.new_session))
            token = self._csrf.token(found.login)
            receive = await self._check_token(request, receive, found)
        except Answered as done:
            who.append(done.viewer)
            return done.response, receive
        except Refused as refused:
            if refused.status in (401, 403):
                self._monitoring.refused(self._settings.login.by)
            return write_refusal(request, refused), receive
        state = request.scope.setdefault("state", {})
        state.update(viewer=found.viewer, csrf=token, can_log_out=self._login.can_log_out)
        return self._of_viewer(request, found), receive

    def _check_origin(self, request: Request) -> None:
        hosts = request.headers.getlist("host")
        header = hosts[0] if len(hosts) == 1 else ""
        if host_of(header) not in self._hosts:
            known = self._settings.url or ", ".join(sorted(self._hosts))
            raise Refused(
                421,
                f"this portal is not at the host of this request. It is at {known} (url in its"
                " settings names another host)",
            )
        if is_foreign(
            request.method,
            request.headers.get("origin"),
            request.headers.get("sec-fetch-site"),
            header,
            self._settings.url,
        ):
            raise Refused(403, "this request was sent by a page of another site")

    def _without_login(self, request: Request) -> Optional[Response]:
        path = request.url.path
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "/health":
            status, body = self._monitoring.health()
            return PlainTextResponse(body, status)
        if path == "/metrics":
            host = request.client.host if request.client else ""
            direct = not any(name in request.headers for name in _FORWARDED)
            if direct and is_within(host, self._readers):
                return self._metrics()
        return None

    def _of_viewer(self, request: Request, found: Identified) -> Optional[Response]:
        """The answer to the paths that are the gate's own, for a viewer."""
        path = request.url.path
        if path == "/metrics":
            if found.viewer.is_admin:
                return self._metrics()
            text = "only administrators and metrics-from of the portal's settings read /metrics"
            return write_refusal(request, Refused(403, text))
        if path == "/logout" and self._login.can_log_out:
            if request.method != "POST":
                return write_refusal(request, Refused(405, "log out by POST", {"allow": "POST"}))
            self._sessions.end(self._cookie.number(request))
            text = "You are logged out of the portal. To log in again, open its first page.\n"
            return PlainTextResponse(text, headers={"set-cookie": self._cookie.removal()})
        return None

    def _metrics(self) -> Response:
        body, kind = self._monitoring.exposition(len(self._sessions))
        return Response(body, headers={"content-type": kind})

    async def _check_token(self, request: Request, receive: Receive, found: Identified) -> Receive:
        """Refuse what changes something and was not sent by a page of the viewer's."""
        if request.method in ("GET", "HEAD"):
            return receive
        if request.method != "POST":
            allowed = {"allow": "GET, HEAD, POST"}
            raise Refused(405, f"the portal knows no {request.method[:20]} requests", allowed)
        body = await _read_body(request)
        token = request.headers.get(CSRF_HEADER)
        if token is None and request.headers.get("content-type", "").partition(";")[0] == _FORM:
            values = _fields(body).get(CSRF_FIELD, [])
            token = values[0] if len(values) == 1 else None
        if not self._csrf.is_valid(token, found.login):
            raise Refused(
                403, "the page that sent this is too old, or another site's: reload it, try again"
            )
        return _replay(body, receive)


class _Answer:
    """Passes an answer on, with the headers that every answer has, and counts it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.size = 500, 0
        self.headers: Dict[str, str] = {}
        self.cookies: List[str] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": list(message.get("headers", []))}
            headers = MutableHeaders(scope=message)
            for name, value in {**HEADERS, **self.headers}.items():
                headers.setdefault(name, value)
            for cookie in self.cookies:
                headers.append("set-cookie", cookie)
        elif message["type"] == "http.response.body":
            self.size += len(message.get("body", b""))
        await self._send(message)


async def _read_body(request: Request) -> bytes:
    """A form, which is small; raises :class:`Refused`."""
    try:
        return await read_body(request, MOST_BODY)
    except BodyRefused as refused:
        raise Refused(refused.status, str(refused), refused.headers) from None


def _fields(body: bytes) -> Dict[str, List[str]]:
    """A form's fields; raises :class:`Refused`."""
    try:
        return parse_qs(body.decode("latin-1"), max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refused(400, f"the form has more than {MOST_FIELDS} fields") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, for the application."""
    waiting: List[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
