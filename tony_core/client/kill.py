"""Ends applications. To kill one twice, or one that has ended, ends nothing more.

The end is written where no master wrote it (:mod:`tony_core.client.finalize`).
"""

from __future__ import annotations

import getpass
import threading
import time
from typing import Callable, NamedTuple, Optional

from tony_core.schedulers.port import AppStatus, Scheduler, SchedulerError

#: Beyond the grace that programs get, until the scheduler itself has cleaned up.
ALLOWANCE_S = 20.0
GRACE_S = 10.0


class Killed(NamedTuple):
    """An application that was to be killed, and whether it has ended."""

    status: AppStatus
    was_over: bool  # it had ended before

    @property
    def ended(self) -> bool:
        """Whether it is over now."""
        return self.status.state.ended


def by_whom(scheduler: Scheduler) -> str:
    """The user whom the reason of a kill names: the scheduler's name for the caller."""
    if scheduler.user:
        return scheduler.user
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "an unknown user"


def kill(
    scheduler: Scheduler, app_id: str, reason: str = "", wait_s: float = GRACE_S + ALLOWANCE_S
) -> Killed:
    """End an application and wait until its scheduler reports the end, or the time is over."""
    from tony_core.client.finalize import finalize

    status = scheduler.status(app_id)
    was_over = status.state.ended
    if not was_over:
        scheduler.kill(app_id, reason or f"killed by {by_whom(scheduler)} with tony kill")
    deadline = time.monotonic() + wait_s
    pause = 0.05
    while not was_over:
        status = scheduler.status(app_id)
        if status.state.ended:
            break
        if time.monotonic() >= deadline:
            return Killed(status, False)
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)
    finalize(scheduler, status)  # one that never ran holds a lease
    return Killed(status, was_over)


class Killing:
    """A kill that goes on beside the watch: asking may take as long as the programs' grace."""

    def __init__(self, open_one: Callable[[], Scheduler], app_id: str, reason: str) -> None:
        self._open = open_one
        self._app_id = app_id
        self._reason = reason
        self.problem: Optional[str] = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="kill", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was done within a time."""
        return self._done.wait(timeout_s)

    def _run(self) -> None:
        try:
            # Not the watcher's: a connection may not be for two threads.
            scheduler = self._open()
            try:
                scheduler.kill(self._app_id, self._reason)
            finally:
                scheduler.close()
        except SchedulerError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._done.set()
