"""Ends an application when Azkaban cancels its job, before Azkaban loses patience.

Theory of operation
===================

A server sends SIGTERM to our process alone and SIGKILL some seconds later (five on old
servers); a missed SLA and a stopped flow look just the same. So from the moment in which the
application may exist, a signal wakes a thread of its own that does what must be done,
whatever the main thread is held up by: it asks the scheduler to end the application, asks
again when the programs' part of the time is over (whoever asks twice takes their grace away),
and, when the time itself is over, says how it stands and ends this process. The main thread
goes on watching meanwhile, and tells the end as any other if it sees it in time.

An application that does not exist yet is asked for again until it does. One that outlives all
this, or a SIGKILL without a SIGTERM before it, ends by its lease (``tony.client.lease``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Callable, Optional

from tony_core.client.exit_codes import ExitCode
from tony_core.schedulers.port import NoSuchApplication, Scheduler, SchedulerError

REASON = "cancelled: Azkaban ended the job (SIGTERM)"
#: Of the time, what the programs do not get: for the second word to work and be seen.
FORCE_S = 1.5
#: Beyond it, for the outcome to be written; with all of it a server's five seconds suffice.
TELL_S = 1.2
AGAIN_S = 0.1


class Cancelling:
    """For one application; nothing but waiting before :meth:`ask`."""

    def __init__(
        self, opens: Callable[[], Scheduler], name: str, app_id: str, within_s: float
    ) -> None:
        self._opens = opens
        self._name = name  # of the scheduler
        self.app_id = app_id
        self._within_s = within_s
        self._wakes: Optional[Callable[[], None]] = None
        self._asked = threading.Event()
        self._told = threading.Lock()  # who has it tells the end; nobody gives it back
        self.over = threading.Event()  # the scheduler says that it has ended
        self.problem: Optional[str] = None
        # Started now: a signal handler may have interrupted whoever starts another thread.
        threading.Thread(target=self._run, name="cancel", daemon=True).start()

    @property
    def asked(self) -> bool:
        """Whether the job was cancelled."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End it; from a signal handler. Asking again changes nothing."""
        self._asked.set()
        if self._wakes is not None:
            self._wakes()

    def wakes(self, wake: Callable[[], None]) -> None:
        """Who waits for something else and wants to know of it."""
        self._wakes = wake

    def tells(self) -> bool:
        """Whether the caller is the one who tells the end: true once."""
        return self._told.acquire(blocking=False)

    def _run(self) -> None:
        self._asked.wait()
        began = time.monotonic()
        end = began + self._within_s
        first = self._kill(end + TELL_S)
        first.join(max(0.0, self._within_s - FORCE_S))
        if not self.over.is_set():
            self._kill(end + TELL_S)  # a second time: without grace
        if not self.over.wait(max(0.0, end - time.monotonic())):
            # Now, and not with the last words: the server may not wait for those.
            see_through(self._name, self.app_id)
        self.over.wait(max(0.0, end + TELL_S - 0.2 - time.monotonic()))
        # The main thread is better at telling, if it gets there.
        time.sleep(max(0.0, end + TELL_S - time.monotonic()))
        if self.tells():
            self._leave()

    def _kill(self, until: float) -> threading.Thread:
        thread = threading.Thread(target=self._end, args=(until,), name="kill", daemon=True)
        thread.start()
        return thread

    def _end(self, until: float) -> None:
        try:
            # Not the watcher's: a connection may not be for two threads.
            scheduler = self._opens()
            try:
                self._end_by(scheduler, until)
            finally:
                scheduler.close()
        except (SchedulerError, OSError) as error:
            self.problem = str(error)

    def _end_by(self, scheduler: Scheduler, until: float) -> None:
        while True:
            try:
                scheduler.kill(self.app_id, REASON)
                if scheduler.status(self.app_id).state.ended:
                    self.over.set()
                    if self._wakes is not None:
                        self._wakes()
                    return
            except NoSuchApplication:
                pass  # it is just being submitted, or never will be
            except SchedulerError as error:
                self.problem = str(error)
            if time.monotonic() >= until:
                return
            time.sleep(AGAIN_S)

    def _leave(self) -> None:
        """The time is over: say how it stands, and end."""
        if self.over.is_set():
            text = f"KILLED: {self.app_id} was ended, as the job was cancelled"
        else:
            why = f": {self.problem}" if self.problem else ""
            text = (
                f"{self.app_id} was asked to end, and has not yet{why};"
                " it goes on being asked, and ends by its lease at the latest"
            )
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            pass
        os._exit(ExitCode.TERMINATED)


def see_through(scheduler: str, app_id: str) -> None:
    """Go on asking, by a process of its own that no server knows of; nobody waits for it.

    It imports from where this one does: nothing of the job's folder, nor of its variables.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    words = ["kill", "--scheduler", scheduler, app_id]
    program = (
        f"import sys; sys.path[:] = {paths!r}; from tony_core.cli.main import main;"
        f" sys.exit(main({words!r}))"
    )
    try:
        subprocess.Popen(
            [sys.executable, "-I", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        pass  # the lease ends it
