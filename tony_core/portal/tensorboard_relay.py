"""The way to the portal's TensorBoards: another port, and so another origin to a browser.

A TensorBoard shows what a training wrote, so its pages get neither the portal's cookies nor its
origin. A request is passed on only below the token of an instance; which headers go on, either way,
is a list here, and nothing else does. Nothing is logged: the paths hold the tokens.
"""

from __future__ import annotations

import os
import threading
from typing import AsyncIterator, Dict, Mapping, Optional

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tony_core.portal.connections import BodyRefused, listen, read_body, server_config
from tony_core.portal.index.rows import JobRow
from tony_core.portal.tensorboard import Instance, TensorBoards
from tony_core.portal.viewer import Viewer

SILENT_S = 120.0  # TensorBoard may think about a large log folder
CONNECT_S = 5.0
MOST_BODY = 4 << 20  # of a request: the front end asks for many series at once
STOP_S = 5.0
#: What a request may bring to TensorBoard, and its answer to the browser.
REQUEST_HEADERS = ("accept", "accept-encoding", "content-type", "if-none-match", "range")
ANSWER_HEADERS = (
    *("content-type", "content-encoding", "content-length", "content-range", "etag"),
    *("last-modified", "content-security-policy", "vary", "x-content-type-options"),
)
HEADERS = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_GONE = (
    "This TensorBoard has ended, because it was not used for a while. Open it again on the job's"
    " page.\n"
)


class TensorBoardRelay:
    """The server at the other port, on a thread of its own."""

    def __init__(self, instances: TensorBoards, bind: str, port: int, url: str = "") -> None:
        """``url``: as browsers reach it, where a proxy stands before it. Raises OSError."""
        self._instances = instances
        self._url = url.rstrip("/")
        self._clients: Dict[str, httpx.AsyncClient] = {}
        self._listener = listen(bind, port)
        self.port = int(self._listener.getsockname()[1])
        methods = ["GET", "HEAD", "POST"]
        app = Starlette(
            routes=[
                Route("/{token}", self._slash),
                Route("/{token}/{path:path}", self._relay, methods=methods),
            ]
        )
        self._server = uvicorn.Server(server_config(app, grace_s=1))
        self._thread = threading.Thread(target=self._run, name="tensorboard relay", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._listener.close()

    def open(self, row: JobRow, viewer: Viewer) -> Instance:
        """The viewer's instance of a job; see :meth:`TensorBoards.open`."""
        return self._instances.open(row, viewer)

    def look(self, row: JobRow, viewer: Viewer) -> Optional[Instance]:
        """The viewer's instance of a job, if there is one."""
        return self._instances.look(row, viewer)

    def url_of(self, path: str, host: str) -> str:
        """An instance's address for a browser that calls the portal's machine ``host``."""
        name = f"[{host}]" if ":" in host else host
        return f"{self._url or f'http://{name}:{self.port}'}{path}"

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    async def _slash(self, request: Request) -> Response:
        token = request.path_params["token"]
        if not self._instances.socket_of(token):
            return PlainTextResponse(_GONE, 404, HEADERS)
        return RedirectResponse(f"/{token}/", 307, HEADERS)

    async def _relay(self, request: Request) -> Response:
        if "service-worker" in request.headers:  # it would outlive this instance in the browser
            return PlainTextResponse("TensorBoard has no service workers\n", 403, HEADERS)
        path = self._instances.socket_of(request.path_params["token"])
        if not path:
            return PlainTextResponse(_GONE, 404, HEADERS)
        try:
            body = await read_body(request, MOST_BODY)
        except BodyRefused as refused:
            headers = {**HEADERS, **refused.headers}
            return PlainTextResponse(f"{refused}\n", refused.status, headers)
        target = httpx.URL(
            scheme="http",
            host="localhost",
            raw_path=_target(request),
        )
        headers = {
            name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers
        }
        client = self._client(path)
        try:
            answer = await client.send(
                client.build_request(request.method, target, headers=headers, content=body),
                stream=True,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = f"TensorBoard does not answer: {type(error).__name__}\n"
            return PlainTextResponse(text, 502, HEADERS)
        passed = _passed(answer.headers)
        return StreamingResponse(_pieces(answer), answer.status_code, {**passed, **HEADERS})

    def _client(self, path: str) -> httpx.AsyncClient:
        client = self._clients.get(path)
        if client is None:
            for old in [one for one in self._clients if not os.path.exists(one)]:
                del self._clients[old]  # its connections ended with its process
            transport = httpx.AsyncHTTPTransport(uds=path, verify=False)
            client = self._clients[path] = httpx.AsyncClient(
                transport=transport,
                timeout=httpx.Timeout(SILENT_S, connect=CONNECT_S),
                follow_redirects=False,
                trust_env=False,
            )
        return client


def _target(request: Request) -> bytes:
    """The path behind the token, as the browser wrote it, and the query."""
    raw = bytes(request.scope.get("raw_path") or request.url.path.encode())
    below = raw.split(b"?", 1)[0].split(b"/", 2)[2]
    query = bytes(request.scope.get("query_string", b""))
    return b"/" + below + (b"?" + query if query else b"")


def _passed(headers: Mapping[str, str]) -> Dict[str, str]:
    return {name: headers[name] for name in ANSWER_HEADERS if name in headers}


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
