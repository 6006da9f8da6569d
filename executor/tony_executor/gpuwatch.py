"""Asks nvidia-smi now and then, without waiting for it; never started where there is none."""

from __future__ import annotations

import os
import signal
from typing import Dict, List, Mapping, Optional, Set

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import child, gpus

_PATIENCE_S = 20.0


class GpuWatch:
    """Driven by whoever wants the newest values."""

    def __init__(self, reactor: Reactor, environment: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._environment = dict(environment)
        self._command: Optional[List[str]] = None
        self._pid: Optional[int] = None
        self._pipe: Optional[int] = None
        self._said = b""
        self._values: Dict[str, float] = {}
        self._next_at = 0.0
        self._deadline: Optional[Timer] = None

    @property
    def pids(self) -> Set[int]:
        """Its process, if it runs."""
        return {self._pid} if self._pid is not None else set()

    def see(self, visible: str) -> None:
        """These are ours, of those that the node shows."""
        self._environment["CUDA_VISIBLE_DEVICES"] = visible
        if self._command is not None:
            self._command = gpus.command(self._environment, self._command[0])

    def enable(self, enabled: bool, program: str = "") -> None:
        """Whether the master wants to know."""
        self._command = gpus.command(self._environment, program) if enabled else None
        if self._command is None:
            self._values = {}

    def newest(self, now: float) -> Dict[str, float]:
        """What is known; asks again when that is old."""
        if self._command is not None and self._pipe is None and now >= self._next_at:
            self._next_at = now + gpus.EVERY_S
            self._ask(self._command)
        return dict(self._values)

    def reaped(self, pid: int) -> bool:
        """A child ended; whether it was ours."""
        if pid != self._pid:
            return False
        self._pid = None
        return True

    def close(self) -> None:
        """Nobody wants to know any more."""
        self._command = None
        self._kill()
        self._hang_up()

    def _ask(self, argv: List[str]) -> None:
        reading, writing = os.pipe()
        try:
            spawned = child.spawn(argv, self._environment, "/", stdout_fd=writing)
            self._pid = spawned.pid
            child.check_executed(spawned)
        except (OSError, ValueError, child.NotExecuted):
            os.close(reading)
            self._command = None
            return
        finally:
            os.close(writing)
        self._pipe = reading
        self._said = b""
        self._deadline = self._reactor.call_later(_PATIENCE_S, self._kill)
        self._reactor.watch(reading, self._says)

    def _says(self) -> None:
        assert self._pipe is not None
        data = os.read(self._pipe, 65536)
        self._said += data
        if not data or len(self._said) > 1 << 20:
            self._hang_up()
            self._values = gpus.parse(self._said.decode("utf-8", "replace"))

    def _kill(self) -> None:
        if self._pid is not None:
            try:
                os.kill(self._pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _hang_up(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._pipe is not None:
            self._reactor.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = None
