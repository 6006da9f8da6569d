"""Ends an application of YARN so that its programs have their grace period, and a reason is kept.

A ResourceManager gives a killed container a quarter of a second. So the client asks the master
first: it writes a kill request (who, when, why) beside the master's journal, and YARN sends the
master's container TERM (``GRACEFUL_SHUTDOWN``). The master then ends the job as on any scheduler.

The ResourceManager kills what cannot end like this: an application that does not run (yet, or
between two masters), a master that has not ended after the job's grace period and a margin, and
an application whose end was requested before: the first kill request exists already.

The grace period stands in ``master.json``, which only the owner can read; for other users'
applications the default counts.
"""

from __future__ import annotations

import json
import threading
import time
from contextvars import copy_context
from functools import partial
from typing import Any, Dict, NamedTuple, Optional

from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.jsontext import is_number, read_value
from tony_core.schedulers.port import AppState
from tony_core.schedulers.yarn.application_state import state_of
from tony_core.schedulers.yarn.client.resource_manager import ResourceManager
from tony_core.schedulers.yarn.home import follow_pointer

GRACE_S = 10.0  # of a job whose master.json cannot be read
LONGEST_GRACE_S = 86400.0  # a longer one in master.json is damage
MARGIN_S = 5.0  # beyond the grace period: for the signal to arrive, and the master to clean up
REQUEST_S = 3.0  # writing the kill request may take no longer
FORCE_S = 30.0
FIRST_POLL_S, LONGEST_POLL_S = 0.05, 0.4
KILL_FILE, MASTER_FILE = "kill.json", "master.json"  # as the master names them
GRACEFUL = "GRACEFUL_SHUTDOWN"


class KillRequest(NamedTuple):
    """The kill settings in the application's folder."""

    requested_before: bool = False
    grace_s: float = GRACE_S


def kill_application(
    rm: ResourceManager,
    application: ApplicationId,
    reason: str,
    by: str,
    running: bool,
    folder: Optional[str] = None,
) -> None:
    """End an application and wait for it; ``folder`` holds its master's state if it is ours."""
    if running:
        request = KillRequest()
        if folder:
            request = write_kill_request(folder, {"reason": reason, "by": by, "at": time.time()})
        if not request.requested_before and _signal_master(rm, application):
            if _wait_for_end(rm, application, request.grace_s + MARGIN_S):
                return
            reason = f"{reason} (its master did not end by itself)"
    rm.kill(application, reason, within_s=FORCE_S)


def write_kill_request(folder: str, content: Dict[str, Any]) -> KillRequest:
    """Write the reason to where the master reads it. A failure to write does not stop the kill."""
    found = [KillRequest()]

    def write() -> None:
        try:
            where, names = follow_pointer(folder)
            if KILL_FILE in names:
                found[0] = KillRequest(requested_before=True)
                return
            if MASTER_FILE in names:
                found[0] = KillRequest(grace_s=_read_grace(join(where, MASTER_FILE)))
            if names:
                filesystem(where).put(join(where, KILL_FILE), json.dumps(content).encode(), 0o600)
        except (OSError, ValueError):
            pass  # the master ends the job without this reason

    # In our context: our caller may have set the file systems for itself.
    run = partial(copy_context().run, write)
    thread = threading.Thread(target=run, name="kill-request", daemon=True)
    thread.start()
    thread.join(REQUEST_S)
    return found[0]


def _read_grace(location: str) -> float:
    content = read_value(filesystem(location).get(location, 1 << 16))
    grace = content.get("kill_grace_s") if isinstance(content, dict) else None
    return max(0.0, float(grace)) if is_number(grace, below=LONGEST_GRACE_S) else GRACE_S


def _signal_master(rm: ResourceManager, application: ApplicationId) -> bool:
    """Ask the master to end; False if it has no container, or the cluster refuses signals."""
    try:
        container = rm.master_container(application)
        if container is None:
            return False
        rm.signal(container, GRACEFUL)
    except HadoopError:
        return False  # without the right to signal, the kill is refused too, and says so
    return True


def _wait_for_end(rm: ResourceManager, application: ApplicationId, within_s: float) -> bool:
    """Whether it ended in time; returns at once when its master is gone and another may follow."""
    deadline = time.monotonic() + within_s
    pause = FIRST_POLL_S
    while True:
        state = state_of(rm.report(application))
        if state.ended:
            return True
        if state is not AppState.RUNNING or time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(LONGEST_POLL_S, pause * 1.3)
