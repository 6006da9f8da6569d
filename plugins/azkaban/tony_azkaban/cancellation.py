"""Ends an application when Azkaban cancels its job, before Azkaban sends SIGKILL.

Theory of operation
===================

A server sends SIGTERM to this process only, and SIGKILL some seconds later (five on old servers); a
missed SLA and a stopped flow look just the same. So from the moment in which the application may
exist, a thread waits for the signal. It acts whatever the main thread waits for: it asks the
scheduler to end the application, asks again when the programs' part of the time is over (a second
kill ends their grace period), and, when all the time is over, writes the state and ends this
process. The main thread goes on watching meanwhile, and reports the end like any other if it sees
it in time.

For an application that does not exist yet it asks again until it does. The lease
(``tony.client.lease``) ends an application that survives all this, or whose process got a SIGKILL
without a SIGTERM before it.
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
#: The part of the time that the programs do not get: the second kill needs it to work and be seen.
FORCE_S = 1.5
#: Time after it to write the outcome; both fit into a server's five seconds.
REPORT_S = 1.2
RETRY_S = 0.1


class Cancellation:
    """Waits, and ends one application once :meth:`request` is called."""

    def __init__(
        self,
        open_scheduler: Callable[[], Scheduler],
        scheduler: str,
        app_id: str,
        within_s: float,
    ) -> None:
        self.app_id = app_id
        self.ended = threading.Event()  # the scheduler says that the application has ended
        self.problem: Optional[str] = None
        self._open_scheduler = open_scheduler
        self._scheduler = scheduler  # its name
        self._within_s = within_s
        self._callback: Optional[Callable[[], None]] = None
        self._requested = threading.Event()
        self._report = threading.Lock()  # its holder reports the end, and never releases it
        # Started now: the signal may interrupt the main thread while that starts another thread.
        threading.Thread(target=self._run, name="cancel", daemon=True).start()

    @property
    def is_requested(self) -> bool:
        """Whether Azkaban has cancelled the job."""
        return self._requested.is_set()

    def request(self) -> None:
        """End the application; for a signal handler. Further calls change nothing."""
        self._requested.set()
        if self._callback is not None:
            self._callback()

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call back when the job is cancelled, and when the application has ended."""
        self._callback = callback

    def claim_report(self) -> bool:
        """Whether the caller reports the end: True for the first caller only."""
        return self._report.acquire(blocking=False)

    def _run(self) -> None:
        self._requested.wait()
        end = time.monotonic() + self._within_s
        first = self._start_kill(end + REPORT_S)
        first.join(max(0.0, self._within_s - FORCE_S))
        if not self.ended.is_set():
            self._start_kill(end + REPORT_S)  # the second one: without grace
        if not self.ended.wait(max(0.0, end - time.monotonic())):
            # Now, and not after the report: the server may send SIGKILL before that.
            start_kill_process(self._scheduler, self.app_id)
        self.ended.wait(max(0.0, end + REPORT_S - 0.2 - time.monotonic()))
        # The main thread reports more, if it comes to it.
        time.sleep(max(0.0, end + REPORT_S - time.monotonic()))
        if self.claim_report():
            self._report_and_exit()

    def _start_kill(self, until: float) -> threading.Thread:
        thread = threading.Thread(target=self._kill, args=(until,), name="kill", daemon=True)
        thread.start()
        return thread

    def _kill(self, until: float) -> None:
        try:
            # Not the watch's scheduler: a connection may serve one thread only.
            scheduler = self._open_scheduler()
            try:
                self._kill_by(scheduler, until)
            finally:
                scheduler.close()
        except (SchedulerError, OSError) as error:
            self.problem = str(error)

    def _kill_by(self, scheduler: Scheduler, until: float) -> None:
        while True:
            try:
                scheduler.kill(self.app_id, REASON)
                if scheduler.status(self.app_id).state.ended:
                    self.ended.set()
                    if self._callback is not None:
                        self._callback()
                    return
            except NoSuchApplication:
                pass  # it is being submitted now, or never will be
            except SchedulerError as error:
                self.problem = str(error)
            if time.monotonic() >= until:
                return
            time.sleep(RETRY_S)

    def _report_and_exit(self) -> None:
        """Write the application's state, and end this process."""
        if self.ended.is_set():
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


def start_kill_process(scheduler: str, app_id: str) -> None:
    """Start a process that goes on ending the application, and that the server does not know.

    It imports from where this one does, and nothing from the job's folder or by its variables.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    arguments = ["kill", "--scheduler", scheduler, app_id]
    program = (
        f"import sys; sys.path[:] = {paths!r}; from tony_core.cli.main import main;"
        f" sys.exit(main({arguments!r}))"
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
