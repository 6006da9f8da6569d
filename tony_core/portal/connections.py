"""Connections of browsers, with a deadline for a request to come.

Every user of the machine, or of the network, can connect. A connection that sends no whole request
within :data:`HEAD_S` is closed, or one who opens many would keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import Any, Optional

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
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


def raise_file_limit() -> None:
    """Allow this process as many connections as its hard limit has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
