"""Host names to addresses, and other lookups that may block, beside a reactor's thread.

Theory of operation
===================

A name server that is slow, or gone, holds a thread that asks it for many seconds; a reactor's
would serve no one meanwhile. So a lookup runs in one of at most :data:`MAX_THREADS` threads of
this process, and its answer comes back through the reactor. A thread cannot be stopped: it ends
with its lookup, or with the process. A caller has a deadline of its own, and cancels; a lookup
that all its callers have cancelled is not begun. Equal lookups run once, and answers that came
without an error are kept for a while. An address in digits needs no lookup
(:func:`~tony_core.protocol.link.numeric_addresses`).

Python 3.8.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

from tony_core.protocol.reactor import Reactor

Address = Tuple[int, Tuple[Any, ...]]  # family, and what a socket connects to; port 0

MAX_THREADS = 8
MAX_LOOKUPS = 256  # that wait for a thread
MAX_KEPT = 1000
KEEP_S = 30.0


class Lookup:
    """One caller's wait for an answer; see :meth:`Resolver.resolve`."""

    def __init__(
        self, reactor: Reactor, on_answer: Callable[[Any], None], on_error: Callable[[str], None]
    ) -> None:
        self.cancelled = False
        self._reactor = reactor
        self._on_answer = on_answer
        self._on_error = on_error

    def cancel(self) -> None:
        """Neither callback is called any more."""
        self.cancelled = True

    def answer(self, value: Any) -> None:
        """From any thread."""
        self._reactor.call_soon_threadsafe(self._deliver, self._on_answer, value)

    def fail(self, reason: str) -> None:
        """From any thread."""
        self._reactor.call_soon_threadsafe(self._deliver, self._on_error, reason)

    def _deliver(self, callback: Callable[[Any], None], value: Any) -> None:
        if not self.cancelled:
            self.cancelled = True
            callback(value)


class Resolver:
    """Runs lookups in a few threads, and remembers their answers for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting: Dict[Any, List[Lookup]] = {}  # by key, also of what a thread works on
        self._queue: Deque[Tuple[Any, Callable[[], Any], float]] = deque()
        self._kept: Dict[Any, Tuple[float, Any]] = {}  # until when, the answer

    def resolve(
        self,
        reactor: Reactor,
        key: Any,
        work: Callable[[], Any],
        on_answer: Callable[[Any], None],
        on_error: Callable[[str], None],
        keep_s: float = KEEP_S,
    ) -> Lookup:
        """Run ``work`` in a thread, unless the answer to an equal key is known.

        One callback follows, in a later turn of the reactor: never before this returns.
        ``work`` fails by OSError or ValueError.
        """
        lookup = Lookup(reactor, on_answer, on_error)
        with self._lock:
            until, value = self._kept.get(key, (0.0, None))
            if until > time.monotonic():
                lookup.answer(value)
            elif key in self._waiting:
                self._waiting[key].append(lookup)
            elif len(self._queue) >= MAX_LOOKUPS:
                lookup.fail("too many names are being looked up")
            else:
                self._waiting[key] = [lookup]
                self._queue.append((key, work, keep_s))
                self._start()
        return lookup

    def addresses(
        self,
        reactor: Reactor,
        host: str,
        on_answer: Callable[[List[Address]], None],
        on_error: Callable[[str], None],
    ) -> Lookup:
        """Ask for the addresses of a host name."""
        return self.resolve(reactor, ("name", host), lambda: _look_up(host), on_answer, on_error)

    def _start(self) -> None:
        if self._threads < MAX_THREADS:
            try:
                threading.Thread(target=self._run, name="resolver", daemon=True).start()
            except RuntimeError:  # no thread left: those that run take it over
                if not self._threads:
                    self._fail_all("no thread can be started to look it up")
            else:
                self._threads += 1

    def _fail_all(self, reason: str) -> None:
        while self._queue:
            for lookup in self._waiting.pop(self._queue.popleft()[0]):
                lookup.fail(reason)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                key, work, keep_s = self._queue.popleft()
                if all(lookup.cancelled for lookup in self._waiting[key]):
                    del self._waiting[key]
                    continue
            value, reason = None, ""
            try:
                value = work()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            except BaseException as error:  # the callers must get it
                reason = f"{type(error).__name__}: {error}"
            with self._lock:
                lookups = self._waiting.pop(key)
                if not reason:
                    if len(self._kept) >= MAX_KEPT:
                        self._kept.clear()
                    self._kept[key] = (time.monotonic() + keep_s, value)
            for lookup in lookups:
                if reason:
                    lookup.fail(reason)
                else:
                    lookup.answer(value)


RESOLVER = Resolver()
"""This process's: the bound on threads is one for all of it."""


def _look_up(host: str) -> List[Address]:
    # As bytes: a str would bring in the tables of international names, 1 MB.
    found = socket.getaddrinfo(host.encode(), 0, 0, socket.SOCK_STREAM)
    return [(entry[0], entry[4]) for entry in found]
