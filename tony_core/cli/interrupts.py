"""Ctrl-C, SIGTERM and a closed terminal, while a job is being submitted and watched.

Until the application may exist, a signal raises :class:`Interrupted` wherever the program
stands, and what was written is removed on the way out. From then on it is only noted, and the
watcher woken: to end the job takes a while, and a second signal means not to wait for that.

A signal that was ignored when we started (``nohup``, a shell's background job) stays so.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNAL_NAMES = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal was closed",
}

KILLED_BY = {
    signal.SIGINT: "killed by Ctrl-C",
    signal.SIGTERM: "killed: tony submit was ended by SIGTERM",
    signal.SIGHUP: "killed: the terminal was closed",
}
"""The reason that the job's end names."""


class Interrupted(BaseException):
    """A signal came while the command could simply end."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class Interrupts:
    """Holds the signals while it is entered, in the main thread."""

    def __init__(self, message: str = "interrupted") -> None:
        self.received: List[int] = []
        self._message = message
        self._raising = True
        self._wake: Optional[Callable[[], None]] = None
        self._before: Dict[int, Any] = {}

    def defer(self, wake: Optional[Callable[[], None]] = None) -> None:
        """Only note signals from now on, and call ``wake`` for each.

        One that came before may have been raised where exceptions are swallowed (a callback of the
        garbage collector, a library's ``except:``): it is raised here again.
        """
        if self._raising and self.received:
            raise Interrupted(self.received[0], self._text(self.received[0]))
        self._raising = False
        self._wake = wake

    @property
    def first(self) -> Optional[int]:
        """The signal that came first, if any did."""
        return self.received[0] if self.received else None

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        self.received.append(number)
        if self._raising:
            raise Interrupted(number, self._text(number))
        if self._wake is not None:
            self._wake()

    def _text(self, number: int) -> str:
        name = SIGNAL_NAMES.get(signal.Signals(number), f"signal {number}")
        return f"{self._message} ({name})"
