"""The end of an application in its master's place: nobody will go on with it any more.

Whoever notices first does it, with the master's lock held: a client that asks how it stands
or wants it killed, or the last of its shims. ``local-burial --app-dir DIR --container ID
--lock-fd N`` is started by that shim (:mod:`shim`), which has much less code, and hands its
lock over; the shim's own end is waited for.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import Optional, Sequence

from tony_core.schedulers.local import cleanup, home, mastership
from tony_core.schedulers.local.applications import Application, read_status, write_status
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.local.processes import Identity
from tony_core.schedulers.port import AppState, AppStatus, SchedulerError

USAGE = 2
GONE_S = 5.0  # for the shim that has started us


def main(argv: Sequence[str]) -> int:
    """See the module."""
    words = dict(zip(argv[::2], argv[1::2]))
    if len(argv) % 2 or set(words) != {"--app-dir", "--container", "--lock-fd"}:
        sys.stderr.write("usage: local-burial --app-dir DIR --container ID --lock-fd N\n")
        return USAGE
    os.set_inheritable(int(words["--lock-fd"]), False)
    folder = AppFolder(words["--app-dir"])
    shim = Identity.from_json(home.read_json(folder.container(words["--container"]).shim))
    end = time.monotonic() + GONE_S
    while shim is not None and shim.alive() and time.monotonic() < end:
        time.sleep(0.01)
    app = Application.read(folder)
    if app is not None:
        settled(folder, app)
    return 0


def settled(folder: AppFolder, app: Application) -> AppStatus:
    """How it stands, after its burial if it is dead. With the lock held."""
    status = read_status(folder, app)  # the last master may just have ended
    why = None if status.state.ended else why_dead(folder, app)
    return status if why is None else bury(folder, app, AppState.FAILED, why)


def why_dead(folder: AppFolder, app: Application) -> Optional[str]:
    """Why nobody will go on with it; None if somebody may. The lock is free."""
    if not app.this_boot:
        return "the machine was restarted while it ran"
    attempt = mastership.read(folder).attempt
    if attempt == 0:
        if app.submitter.alive():
            return None
        return "its client died before the master was started"
    if attempt < app.max_attempts and mastership.living_containers(folder):
        return None  # their executors start the next master
    said = home.tail(folder.master_log(attempt, "stderr"), lines=10)
    words = f"the master died (attempt {attempt} of {app.max_attempts})"
    return words + (f"; it last said:\n{said}" if said else "")


def bury(folder: AppFolder, app: Application, state: AppState, diagnostics: str) -> AppStatus:
    """End what is left, clean up, write down the end. With the lock held."""
    if app.this_boot:
        try:
            cleanup.end_containers(folder)
        except SchedulerError as error:
            diagnostics = f"{diagnostics}\n{error}"
    try:
        # First of all: what it filled the disk with may be what nothing can be written for.
        cleanup.remove_leftovers(folder)
        cleanup.remove_job_folder(folder)
    except OSError as error:
        diagnostics = f"{diagnostics}\nnot removed: {error}"
    Ledger(folder.home.ledger).forget(app.app_id)
    status = replace(
        read_status(folder, app),
        state=state,
        diagnostics=diagnostics,
        finished=round(app.now(), 3),
        page_url=None,
        tracking_url=None,
    )
    write_status(folder, status)
    return status
