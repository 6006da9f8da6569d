"""Bounds the peers of a listening port that have not authenticated: how many, and for how long.

Theory of operation
===================

A peer that connects has proved nothing yet. It costs a descriptor, a few hundred bytes of buffers
and the hashes of one handshake, until its deadline (``link.HANDSHAKE_S``). The limiter bounds how
many such links there are. At the limit the listener pauses, and further callers wait in the
kernel's backlog. That costs them little where the others are honest, for their handshakes take
milliseconds. A peer that has taken longer than :data:`PATIENCE_S` is closed while others wait; one
that has sent something is given :data:`EXTENSION_S` more, for we may have been the slow side. So a
thousand peers that send nothing, or a byte a second, cost an honest one seconds, and neither
memory nor its place.

Refused peers are counted. The log gets the first at once, and all the others in one line a minute
at most: an attack must not fill a disk.

Python 3.8.
"""

from __future__ import annotations

import socket
from typing import Callable, Dict, Optional

from tony_core.protocol.link import Link, Listener, listen
from tony_core.protocol.reactor import Reactor, Timer

PATIENCE_S = 2.0
EXTENSION_S = 0.5  # more, once, for a peer that has sent something: it may have waited for us
EVICT_AFTER_S = 0.05  # at least, from the limit to the first that is closed
EVICT_MOST = 64
LOG_EVERY_S = 60.0


class HandshakeLimiter:
    """Counts the links of a listener that have not authenticated, and pauses it at ``limit``."""

    def __init__(self, reactor: Reactor, limit: int, log: Callable[[str], None]) -> None:
        self.refused_count = 0
        self._reactor = reactor
        self._limit = limit
        self._log = log
        self._listener: Optional[Listener] = None
        self._waiting: Dict[Link, float] = {}  # not authenticated, since when; oldest first
        self._extended: Dict[Link, float] = {}  # of them, those with more time; until when
        self._evicting: Optional[Timer] = None
        self._unlogged = 0
        self._latest = ""
        self._log_timer: Optional[Timer] = None

    def __len__(self) -> int:
        return len(self._waiting)

    def listen(
        self, host: str, port: int, on_socket: Callable[[socket.socket], None], backlog: int = 1024
    ) -> Listener:
        """Open the listener, which is paused while the limit is reached."""
        self._listener = listen(self._reactor, host, port, on_socket, backlog)
        return self._listener

    def add(self, link: Link) -> None:
        """Count a link whose peer has just connected."""
        self._waiting[link] = self._reactor.now()
        if len(self._waiting) >= self._limit:
            if self._listener is not None:
                self._listener.pause()
            if self._evicting is None:
                self._evicting = self._reactor.call_later(self._wait(), self._evict)

    def remove(self, link: Link) -> bool:
        """Stop counting a link; returns whether it had not authenticated."""
        if self._waiting.pop(link, None) is None:
            return False
        self._extended.pop(link, None)
        if self._listener is not None and len(self._waiting) < self._limit:
            self._listener.resume()
        return True

    def closed(self, link: Link, reason: str) -> bool:
        """Note the end of a link; returns whether its peer counts as refused."""
        if not self.remove(link):
            return False
        self._count(f"{link.peer}: {reason}")
        return True

    def close(self) -> None:
        """Close all that have not authenticated, and log the last count."""
        for timer in (self._evicting, self._log_timer):
            if timer is not None:
                timer.cancel()
        self._log_count()
        for link in list(self._waiting):
            link.close()
        self._waiting.clear()
        self._extended.clear()

    # ------------------------------------------------------------------ at the limit

    def _evict(self) -> None:
        """At the limit: close those that took too long.

        A timer calls this, never an accept: what lay in the sockets when this turn began has been
        read. After a master's pause that may be a crowd of honest proofs.
        """
        self._evicting = None
        now = self._reactor.now()
        overdue = [link for link in self._waiting if self._due(link, now) <= now]
        if len(self._waiting) < self._limit:
            return
        for link in overdue[:EVICT_MOST]:
            link.close()
            self.closed(link, f"had not authenticated in {PATIENCE_S:g} s while others waited")
        if len(self._waiting) >= self._limit:
            self._evicting = self._reactor.call_later(self._wait(), self._evict)

    def _wait(self) -> float:
        now = self._reactor.now()
        return max(EVICT_AFTER_S, min(self._due(link, now) for link in self._waiting) - now)

    def _due(self, link: Link, now: float) -> float:
        """When it has to make room."""
        due = self._waiting[link] + PATIENCE_S
        if due <= now and link not in self._extended and link.received_at > self._waiting[link]:
            self._extended[link] = now + EXTENSION_S
        return self._extended.get(link, due)

    # ------------------------------------------------------------------ the log

    def _count(self, text: str) -> None:
        self.refused_count += 1
        self._latest = text
        if self._log_timer is not None and self._log_timer.active:
            self._unlogged += 1
            return
        self._write_log(f"turned away {text}")
        self._log_timer = self._reactor.call_later(LOG_EVERY_S, self._log_more)

    def _log_count(self) -> None:
        if self._unlogged:
            self._write_log(
                f"turned away {self._unlogged} more connections ({self.refused_count} in all);"
                f" the latest {self._latest}"
            )
            self._unlogged = 0

    def _write_log(self, text: str) -> None:
        try:
            self._log(text)
        except OSError:
            pass  # a full disk: it must not look like an error of a socket

    def _log_more(self) -> None:
        if self._unlogged:
            self._log_count()
            self._log_timer = self._reactor.call_later(LOG_EVERY_S, self._log_more)
