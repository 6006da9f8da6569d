"""Runs the session machine on the reactor: events in, one at a time; commands out; deadlines.

An event that comes up while a command is performed waits for its turn, so the machine never sees
itself half-way; both wait while the journal is being written elsewhere
(:mod:`tony_core.master.state.journal_gate`).

One timer is armed for the earliest of all deadlines: the machine's, and those of the parts beside
it, which :class:`~tony_core.master.master.Master` looks at when it is due.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Mapping, Optional, Sequence, Tuple, Type

from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.machine import SessionMachine
from tony_core.protocol.reactor import Reactor, Timer

Performers = Mapping[Type[Any], Callable[[Any], object]]
NextDeadline = Callable[[], Optional[float]]


class MachineLoop:
    """The events and commands of one session machine, set before the first event.

    ``is_held``: commands and events have to wait, until :meth:`go_on`. ``handled`` takes each event
    after the machine; ``settled`` is called when nothing is left to do now; ``due`` takes the time
    when one of the ``deadlines`` may have passed.
    """

    def __init__(
        self,
        reactor: Reactor,
        is_held: Callable[[], bool],
        handled: Callable[[e.Event], object],
        settled: Callable[[], object],
        deadlines: Sequence[NextDeadline],
        due: Callable[[float], object],
    ) -> None:
        self.machine: SessionMachine
        self.performers: Performers = {}
        self.is_over = False
        self._reactor = reactor
        self._is_held = is_held
        self._handled, self._settled = handled, settled
        self._deadlines, self._check = deadlines, due
        self._queue: Deque[Tuple[e.Event, float]] = deque()
        self._commands: Deque[c.Command] = deque()
        self._feeding = False
        self._timer: Optional[Timer] = None

    def feed(self, event: e.Event) -> None:
        """Let the session machine handle an event, and perform its commands."""
        if self.is_over:
            return
        self._queue.append((event, self._reactor.now()))
        self.go_on()

    def go_on(self) -> None:
        """Perform commands and handle events, in order, while nothing holds them."""
        if self._feeding:
            return
        self._feeding = True
        try:
            while not self._is_held():
                if self._commands:
                    command = self._commands.popleft()
                    self.performers[type(command)](command)
                elif self._queue:
                    event, now = self._queue.popleft()
                    self._commands.extend(self.machine.handle(event, now))
                    self._handled(event)
                else:
                    break
        finally:
            self._feeding = False
        self._settled()
        self.arm()

    def close(self) -> None:
        """Handle no event any more: the job has ended."""
        self.is_over = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def arm(self) -> None:
        """Set the timer to the earliest of all deadlines."""
        if self.is_over:
            return
        at = [None if self._is_held() else self.machine.next_deadline()]
        at += [deadline() for deadline in self._deadlines]
        known = [deadline for deadline in at if deadline is not None]
        if not known:
            return
        first = min(known)
        if self._timer is not None and self._timer.active:
            if self._timer.at <= first:
                return  # it looks again then
            self._timer.cancel()
        self._timer = self._reactor.call_later(first - self._reactor.now(), self._due)

    def _due(self) -> None:
        now = self._reactor.now()
        self._check(now)
        due = self.machine.next_deadline()
        if due is not None and due <= now and not self._is_held():
            self.feed(e.Tick())
        self.arm()
