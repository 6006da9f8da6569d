"""One thread that waits for sockets and timers and calls back.

Callbacks run on the thread of :meth:`Reactor.run`, one at a time. An exception in one
leaves ``run``: nothing is caught and passed over here. Only :meth:`call_soon_threadsafe`
may be called from elsewhere, a signal handler included (so it takes no lock).

An exception to that are callbacks that handle what an unauthenticated peer sends. A connection
registers those through a :class:`GuardedReactor` of its own: an exception in one of them ends that
connection, is logged with its traceback, and ends nothing else.
"""

from __future__ import annotations

import heapq
import os
import select
import sys
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

Callback = Callable[..., Any]

MOST_FAULTS = 100  # tracebacks that a process logs: a peer must not fill a disk


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("_args", "_callback", "at")

    def __init__(self, at: float, callback: Callback, args: Tuple[Any, ...]) -> None:
        self.at = at
        self._callback: Optional[Callback] = callback
        self._args = args

    @property
    def active(self) -> bool:
        """Whether it is still going to fire."""
        return self._callback is not None

    def cancel(self) -> None:
        """Never fire; does nothing if it has fired."""
        self._callback = None
        self._args = ()

    def fire(self) -> None:
        """Call back now, once."""
        callback, args = self._callback, self._args
        self.cancel()
        if callback is not None:
            callback(*args)


class Reactor:
    """Calls back for sockets and timers.

    ``log`` gets the traceback of an exception that ended a connection only.
    """

    def __init__(self, log: Callable[[str], Any] = _to_stderr) -> None:
        self.log = log
        self._faults = 0
        self._poll = select.epoll()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._slack: List[Tuple[float, Timer]] = []  # from when on each may fire; a few
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

    def call_with_slack(
        self, seconds: float, slack: float, callback: Callback, *args: Any
    ) -> Timer:
        """Call back after so long, or up to ``slack`` earlier when something else happens then.

        To wake up costs more than a small callback does.
        """
        timer = self.call_later(seconds, callback, *args)
        self._slack.append((timer.at - slack, timer))
        return timer

    def call_soon_threadsafe(self, callback: Callback, *args: Any) -> None:
        """Call back on the reactor's thread, from any thread or signal handler."""
        self._soon.append((callback, args))
        try:
            os.write(self._wake_write, b"\0")
        except (BlockingIOError, OSError):
            pass  # full: the reactor is awake anyway; or closed

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
        """Stop watching, before it is closed; does nothing if it was not watched."""
        number = self._watched.pop(fileobj, None)
        if number is not None:
            del self._callbacks[number]
            try:
                self._poll.unregister(number)
            except OSError:
                pass  # it was closed: the kernel has forgotten it

    def report(self, error: BaseException) -> None:
        """Log an exception that an unauthenticated peer caused, with its traceback."""
        import traceback  # large, and hardly ever needed

        self._faults += 1
        if self._faults > MOST_FAULTS:
            return
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = "our own code failed over what a connection sent:\n" + "".join(lines)
        if self._faults == MOST_FAULTS:
            text += "no more of these are logged"
        try:
            self.log(text.rstrip())
        except OSError:
            pass  # the disk is full: the job goes on all the same

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Run until :meth:`stop`."""
        self._running = True
        while self._running:
            self._turn()

    def stop(self) -> None:
        """Leave :meth:`run` after the callback that is running."""
        self._running = False

    def close(self) -> None:
        """Close what the reactor itself holds; not what it watched."""
        if self._wake_read < 0:
            return
        self._poll.close()
        for end in (self._wake_read, self._wake_write):
            os.close(end)
        self._wake_read = self._wake_write = -1
        self._watched.clear()
        self._callbacks.clear()
        self._timers.clear()
        self._slack.clear()

    def _turn(self) -> None:
        for number, events in self._poll.poll(self._wait(), len(self._watched) + 1):
            if number == self._wake_read:
                self._drain()
                continue
            # A callback before this one may have unwatched it, or stopped us. An error or a hang-up
            # goes to every callback of the socket.
            for other, which in ((select.EPOLLOUT, 0), (select.EPOLLIN, 1)):
                callback = self._callbacks.get(number, (None, None))[which]
                if events & ~other and callback is not None and self._running:
                    callback()
        now = self.now()
        while self._running and self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2].fire()
        if self._slack:
            early, self._slack = self._slack, []
            for at, timer in early:
                if at <= now and self._running:
                    timer.fire()
                elif timer.active:
                    self._slack.append((at, timer))
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


class GuardedReactor(Reactor):
    """A reactor for the callbacks of one connection, which shares the loop of another.

    An exception in one of them goes to ``on_error``, which closes the connection and returns
    whether that was all: with False the exception leaves :meth:`Reactor.run` as any other.
    """

    def __init__(self, reactor: Reactor, on_error: Callable[[Exception], bool]) -> None:
        self._reactor = reactor
        self._on_error = on_error

    def call(self, callback: Callback, *args: Any) -> None:
        """Call now."""
        try:
            callback(*args)
        except Exception as error:
            if not self._on_error(error):
                raise
            self._reactor.report(error)

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return self._reactor.now()

    def call_later(self, seconds: float, callback: Callback, *args: Any) -> Timer:
        """Call back after so long."""
        return self._reactor.call_later(seconds, self.call, callback, *args)

    def call_with_slack(
        self, seconds: float, slack: float, callback: Callback, *args: Any
    ) -> Timer:
        """Call back after so long, or up to ``slack`` earlier when something else happens then."""
        return self._reactor.call_with_slack(seconds, slack, self.call, callback, *args)

    def call_soon_threadsafe(self, callback: Callback, *args: Any) -> None:
        """Call back on the reactor's thread, from any thread or signal handler."""
        self._reactor.call_soon_threadsafe(self.call, callback, *args)

    def watch(
        self,
        fileobj: Any,
        on_read: Optional[Callback] = None,
        on_write: Optional[Callback] = None,
    ) -> None:
        """Call back when it can be read or written; replaces what was watched before."""
        self._reactor.watch(
            fileobj,
            None if on_read is None else lambda: self.call(on_read),
            None if on_write is None else lambda: self.call(on_write),
        )

    def unwatch(self, fileobj: Any) -> None:
        """Stop watching, before it is closed; does nothing if it was not watched."""
        self._reactor.unwatch(fileobj)

    def report(self, error: BaseException) -> None:
        """Log an exception that an unauthenticated peer caused, with its traceback."""
        self._reactor.report(error)

    def run(self) -> None:
        """Not here: the loop is another's."""
        raise NotImplementedError

    stop = close = run
