"""The sweep: ends every process that the program has started.

Theory of operation
===================

It ends everything the program started: TERM, then KILL after a grace, until nothing is
left. TERM goes once to every process, followed by CONT, since a stopped process does not react
otherwise. Processes that appear later get it too, since they may have been on their way when we
looked; but not once TERM has gone to a process that handles it (has a handler, blocks or ignores
it). From then on a newcomer may be what that process does with its grace, say the command that
copies its last checkpoint, and has until the KILL like its parent. After the grace each round
freezes everything before it kills, so that a fork bomb cannot outrun it. A process that survives
some seconds of that cannot be killed (a hanging disk, another user's process) and is reported.

Nothing below us is not yet the end: a child whose exit code we have not got (it still dies, thread
by thread) is waited for as well, so that its end is reported before the sweep's.
"""

from __future__ import annotations

import os
import signal
from typing import AbstractSet, Callable, List, Optional, Set

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor.processes import Process, descendants, handles_signal, send

_KILLING_S = 5.0
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


class Sweep:
    """``spared`` gives the pids whose subtrees stay; ``done`` gets the survivors.

    ``unreaped`` reaps and returns our children whose end is not reported yet.
    """

    def __init__(
        self,
        reactor: Reactor,
        grace_s: float,
        spared: Callable[[], AbstractSet[int]],
        unreaped: Callable[[], AbstractSet[int]],
        done: Callable[[List[int]], None],
    ) -> None:
        self._reactor = reactor
        self._spared = spared
        self._unreaped = unreaped
        self._done = done
        self._termed: Set[int] = set()
        self._is_handled = False  # one of them handles TERM
        self._kill_at = reactor.now() + grace_s
        self._pause = _FIRST_PAUSE_S
        self._timer: Optional[Timer] = reactor.call_later(0, self._check)

    def shorten(self, grace_s: float) -> None:
        """Kill earlier; never later."""
        self._kill_at = min(self._kill_at, self._reactor.now() + grace_s)
        self.check_soon()

    def check_soon(self) -> None:
        """Check now: a child was reaped, or ``spared`` has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._reactor.call_later(0, self._check)

    def _check(self) -> None:
        self._timer = None
        spared = self._spared()
        here = os.getpid()
        left = descendants(here, spared) or descendants(here, spared, sure=True)
        pids = {process.pid for process in left} or self._unreaped()
        now = self._reactor.now()
        if not pids or now >= self._kill_at + _KILLING_S:
            self._done(sorted(pids))
            return
        if now >= self._kill_at:
            self._kill(spared, left, pids)
        elif not self._is_handled:
            self._terminate([process for process in left if process.pid not in self._termed])
        pause = self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        if now < self._kill_at:
            pause = min(pause, self._kill_at - now)
        self._timer = self._reactor.call_later(pause, self._check)

    def _terminate(self, fresh: List[Process]) -> None:
        # Checked before any gets TERM: a handler may reset itself first.
        handling = [handles_signal(process.pid, signal.SIGTERM) for process in fresh]
        self._is_handled = any(handling)
        send(fresh, signal.SIGTERM)
        send(fresh, signal.SIGCONT)
        self._termed.update(process.pid for process in fresh)

    def _kill(self, spared: AbstractSet[int], left: List[Process], pids: AbstractSet[int]) -> None:
        known: Set[int] = set()
        for _ in range(20):
            newer = [process for process in left if process.pid not in known]
            if not newer:
                break
            send(newer, signal.SIGSTOP)
            known.update(process.pid for process in newer)
            left = descendants(os.getpid(), spared)
        for pid in known | pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self._pause = _FIRST_PAUSE_S
