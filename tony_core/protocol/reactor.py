"""One thread that waits for sockets and timers and calls back.

Callbacks run on the thread of :meth:`Reactor.run`, one at a time. An exception in one
leaves ``run``: nothing is caught and passed over here. Only :meth:`call_soon_threadsafe`
may be called from elsewhere, a signal handler included (so it takes no lock).
"""

from __future__ import annotations

import heapq
import os
import select
import time

from tony_core.light import TYPE_CHECKING, deque

if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

    Callback = Callable[..., Any]


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("_args", "_callback", "at")

    def __init__(self, at: float, callback: Callback, args: Tuple[Any, ...]) -> None:
        self.at = at
        self._callback: Optional[Callback] = callback
        self._args = args

    @property
    def active(self) -> bool:
        """Whether it is still going to happen."""
        return self._callback is not None

    def cancel(self) -> None:
        """It does not happen; silence if it did already."""
        self._callback = None
        self._args = ()

    def fire(self) -> None:
        """Let it happen now, once."""
        callback, args = self._callback, self._args
        self.cancel()
        if callback is not None:
            callback(*args)


class Reactor:
    """See the module."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._lax: List[Tuple[float, Timer]] = []  # from when on each may happen, a few
        self._count = 0
        self._soon: Deque[Tuple[Callback, Tuple[Any, ...]]] = deque()
        self._watched: Dict[Any, int] = {}  # the descriptor, also of what is closed already
        self._callbacks: Dict[int, Tuple[Optional[Callback], Optional[Callback]]] = {}
        self._running = False
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._poll.register(self._wake_read, select.EPOLLIN)

    # ------------------------------------------------------------------ what to wait for

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callback, *args: Any) -> Timer:
        """Call back after so long."""
        timer = Timer(self.now() + max(0.0, seconds), callback, args)
        self._count += 1  # two timers of the same moment fire in the order they were made
        heapq.heappush(self._timers, (timer.at, self._count, timer))
        if self._count % 1024 == 0:
            self._timers = [entry for entry in self._timers if entry[2].active]
            heapq.heapify(self._timers)
        return timer

    def call_about(self, seconds: float, early: float, callback: Callback, *args: Any) -> Timer:
        """Call back after so long, or so much earlier when something else happens then.

        To wake up costs more than a small callback does.
        """
        timer = self.call_later(seconds, callback, *args)
        self._lax.append((timer.at - early, timer))
        return timer

    def call_soon_threadsafe(self, callback: Callback, *args: Any) -> None:
        """Call back on the reactor's thread, from any thread or signal handler."""
        self._soon.append((callback, args))
        try:
            os.write(self._wake_write, b"\0")
        except (BlockingIOError, OSError):
            pass  # full: it is awake anyway; closed: nobody waits any more

    def watch(
        self,
        fileobj: Any,
        on_read: Optional[Callback] = None,
        on_write: Optional[Callback] = None,
    ) -> None:
        """Call back when it can be read or written; replaces what was watched before."""
        events = (select.EPOLLIN if on_read else 0) | (select.EPOLLOUT if on_write else 0)
        if not events:
            self.unwatch(fileobj)
            return
        if fileobj in self._watched:
            self._poll.modify(fileobj, events)
        else:
            self._poll.register(fileobj, events)
            self._watched[fileobj] = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._callbacks[self._watched[fileobj]] = (on_read, on_write)

    def unwatch(self, fileobj: Any) -> None:
        """Before it is closed; silence if it was not watched."""
        number = self._watched.pop(fileobj, None)
        if number is not None:
            del self._callbacks[number]
            try:
                self._poll.unregister(number)
            except OSError:
                pass  # it was closed: the kernel has forgotten it

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Until :meth:`stop`."""
        self._running = True
        while self._running:
            self._turn()

    def stop(self) -> None:
        """Leave :meth:`run` after the callback that is running."""
        self._running = False

    def close(self) -> None:
        """Give back what the reactor itself holds; not what it watched."""
        if self._wake_read < 0:
            return
        self._poll.close()
        for end in (self._wake_read, self._wake_write):
            os.close(end)
        self._wake_read = self._wake_write = -1
        self._watched.clear()
        self._callbacks.clear()
        self._timers.clear()
        self._lax.clear()

    def _turn(self) -> None:
        for number, events in self._poll.poll(self._wait(), len(self._watched) + 1):
            if number == self._wake_read:
                self._drain()
                continue
            # A callback before this one may have unwatched it, or stopped us. An error or a hang-up
            # is told to whoever waits for anything.
            for other, which in ((select.EPOLLOUT, 0), (select.EPOLLIN, 1)):
                callback = self._callbacks.get(number, (None, None))[which]
                if events & ~other and callback is not None and self._running:
                    callback()
        now = self.now()
        while self._running and self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2].fire()
        if self._lax:
            lax, self._lax = self._lax, []
            for at, timer in lax:
                if at <= now and self._running:
                    timer.fire()
                elif timer.active:
                    self._lax.append((at, timer))
        for _ in range(len(self._soon)):
            if not self._running:
                break
            callback, args = self._soon.popleft()
            callback(*args)

    def _wait(self) -> Optional[float]:
        while self._timers and not self._timers[0][2].active:
            heapq.heappop(self._timers)
        if self._soon:
            return 0.0
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - self.now())

    def _drain(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
