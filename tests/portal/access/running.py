"""A gate over a real server, in a thread, before an application that answers who asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tony_core.portal.connections import server_config
from tony_core.portal.service import GRACE_S, Parts, bind, open_gate
from tony_core.portal.settings import Settings

UP_S = 30


async def show(request: Request) -> JSONResponse:
    """Who asked, and what came."""
    viewer = request.state.viewer
    body = (await request.body()).decode()
    return JSONResponse(
        {
            "name": viewer.name,
            "groups": sorted(viewer.groups),
            "is_admin": viewer.is_admin,
            "csrf": request.state.csrf,
            "body": body,
        }
    )


async def fail(request: Request) -> PlainTextResponse:
    raise RuntimeError("a bug")


APP = Starlette(
    routes=[
        Route("/fails", fail),
        Route("/{path:path}", show, methods=["GET", "POST"]),
    ]
)


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str
    cookies: Tuple[str, ...] = ()

    @property
    def data(self) -> Dict[str, Any]:
        """The body, which is JSON."""
        found: Dict[str, Any] = json.loads(self.text)
        return found


class Running:
    """A portal that runs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def ask(
        self,
        path: str = "/",
        method: str = "GET",
        body: Optional[str] = None,
        headers: Optional[List[Tuple[str, str]]] = None,
        address: str = "127.0.0.1",
    ) -> Answer:
        """One request on a connection of its own; headers as they are given, several by a name."""
        connection = http.client.HTTPConnection(address, self.port, timeout=UP_S)
        try:
            named = {name.lower() for name, _ in headers or ()}
            connection.putrequest(method, path, skip_host="host" in named)
            for name, value in headers or ():
                connection.putheader(name, value)
            data = (body or "").encode()
            if method != "GET":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data or None)
            found = connection.getresponse()
            cookies = tuple(found.headers.get_all("set-cookie") or ())
            fields = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, fields, found.read().decode(), cookies)
        finally:
            connection.close()


def lines_of(log: Path, count: int) -> List[str]:
    """The lines of an access log, which come just after the answers."""
    end = time.monotonic() + UP_S
    while True:
        lines = log.read_text().splitlines() if log.exists() else []
        if len(lines) >= count:
            assert len(lines) == count
            return lines
        assert time.monotonic() < end, lines
        time.sleep(0.01)


@contextlib.contextmanager
def running(settings: Settings, app: ASGIApp = APP) -> Iterator[Running]:
    """The portal's gate, served on loopback; at any free port unless the URL names one."""
    if not settings.url.rpartition(":")[2].isdigit():
        settings = settings._replace(port=0)
    with (
        bind(settings) as listener,
        open_gate(settings, lambda *_: Parts(app)) as gate,
    ):
        server = uvicorn.Server(server_config(gate, GRACE_S))
        server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
        thread = threading.Thread(target=server.run, args=([listener],), name="portal")
        thread.start()
        try:
            end = time.monotonic() + UP_S
            while not server.started:
                assert thread.is_alive() and time.monotonic() < end, "the server does not start"
                time.sleep(0.01)
            yield Running(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(UP_S)
