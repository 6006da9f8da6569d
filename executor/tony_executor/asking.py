"""Asks another program something and does not wait for it: what it says comes back once."""

from __future__ import annotations

import os
import signal
from typing import Callable, Dict, List, NamedTuple, Optional

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import child

_MOST = 1 << 20


class Answer(NamedTuple):
    """Its standard output; ``error`` says why there is none that can be used, ``ran`` whether
    there was a program at all."""

    text: str
    error: str = ""
    ran: bool = True


class Question:
    """Runs ``argv``; ``done`` gets the answer, within ``patience_s`` and never twice."""

    def __init__(
        self,
        reactor: Reactor,
        argv: List[str],
        env: Dict[str, str],
        patience_s: float,
        done: Callable[[Answer], None],
        stderr: Optional[str] = None,
    ) -> None:
        self._reactor = reactor
        self._program = argv[0]
        self._done: Optional[Callable[[Answer], None]] = done
        self._pid: Optional[int] = None
        self._pipe: Optional[int] = None
        self._said = b""
        self._code: Optional[int] = None
        self._timer: Timer
        reading, writing = os.pipe()
        try:
            spawned = child.spawn(argv, env, "/", stdout_fd=writing, stderr=stderr)
            self._pid = spawned.pid
            child.check_executed(spawned)
        except (OSError, ValueError, child.NotExecuted) as error:
            os.close(reading)
            answer = Answer("", f"{argv[0]} cannot be run: {error}", ran=False)
            self._timer = reactor.call_later(0, self._finish, answer)
            return
        finally:
            os.close(writing)
        self._pipe = reading
        late = Answer("", f"{argv[0]} did not answer within {patience_s:g} s")
        self._timer = reactor.call_later(patience_s, self._finish, late)
        reactor.watch(reading, self._says)

    def reaped(self, pid: int, exit_code: int) -> bool:
        """A child ended; whether it was ours."""
        if pid != self._pid:
            return False
        self._pid = None
        self._code = exit_code
        self._look()
        return True

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._done = None
        self._timer.cancel()
        self._hang_up()
        if self._pid is not None:
            try:
                os.kill(self._pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _says(self) -> None:
        assert self._pipe is not None
        data = os.read(self._pipe, 65536)
        self._said += data
        if not data or len(self._said) > _MOST:
            self._hang_up()
            self._look()

    def _look(self) -> None:
        if self._code is None or self._pipe is not None:
            return
        text = self._said.decode("utf-8", "replace")
        error = ""
        if self._code:
            lines = text.strip().splitlines()
            error = f"{self._program} ended with exit code {self._code}"
            error += f": {lines[0]}" if lines else ""
        self._finish(Answer(text, error))

    def _finish(self, answer: Answer) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(answer)

    def _hang_up(self) -> None:
        if self._pipe is not None:
            self._reactor.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = None
