"""What the master gives to its tracker, which does nothing for a job that names no server."""

from __future__ import annotations

from typing import Callable, Dict

from tony_core.master.session.commands import Finish
from tony_core.protocol.messages import Reported


class Tracker:
    """Of a job that is not tracked: each call returns at once."""

    def begin(self, then: Callable[[], None]) -> None:
        """Begin to track; ``then`` is called when the job may begin."""
        then()

    def environment(self) -> Dict[str, str]:
        """The variables that programs get."""
        return {}

    def started(self, session: int) -> None:
        """Take the start of a session's programs."""

    def reported(self, task: str, message: Reported) -> None:
        """Take what a program has reported."""

    def finish(self, command: Finish, then: Callable[[], None]) -> None:
        """Take the job's end; ``then`` is called when all is sent, or time is up."""
        then()

    def close(self) -> None:
        """Stop."""
