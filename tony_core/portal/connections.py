"""Connections of browsers to both of the portal's ports, with a deadline for a request to come.

Every user of the machine, or of the network, can connect. A connection that sends no whole request
within :data:`HEAD_S` is closed, and so is one whose body is not there within :data:`BODY_S`, or one
who opens many would keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from typing import Any, List, Mapping, Optional

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
BODY_S = 20.0
KEEP_ALIVE_S = 30
MOST_FILES = 65536


class TimedProtocol(H11Protocol):
    """HTTP/1.1 on one connection."""

    _timer: Optional[asyncio.TimerHandle] = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the deadline does not move with each of them."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Forget the deadline."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self.transport.is_closing():
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BodyRefused(Exception):
    """A body that is not taken; the connection has to be closed, for the rest may follow."""

    headers: Mapping[str, str] = {"Connection": "close"}

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_body(request: Request, most_bytes: int) -> bytes:
    """A request's body, which comes soon; raises :class:`BodyRefused`."""

    async def read() -> bytes:
        parts: List[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most_bytes:
                raise BodyRefused(413, f"the request is longer than {most_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), BODY_S)
    except asyncio.TimeoutError:
        raise BodyRefused(408, f"the request was not there within {BODY_S:g} s") from None


def listen(address: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # With the protocol named, asyncio sends what it has at once (TCP_NODELAY): else the end of an
    # answer waits 40 ms for the acknowledgement of its beginning.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


def server_config(app: ASGIApp, grace_s: int) -> uvicorn.Config:
    """How a server takes requests; those that run when it ends get ``grace_s``."""
    return uvicorn.Config(
        app,
        # Whom a header names is decided at the gate, by the address that really asks.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        http=TimedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )


def raise_file_limit() -> None:
    """Allow this process as many connections as its hard limit has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
