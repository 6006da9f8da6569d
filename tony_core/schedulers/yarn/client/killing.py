"""Ending an application of YARN so that its programs have their grace, and its story a reason.

A ResourceManager that is told to kill leaves a container a quarter of a second. So the master is
asked first: the reason is left beside its journal, and its node is told to send it TERM
(``GRACEFUL_SHUTDOWN``); it then ends the job as it does on any scheduler. Only what that cannot
end is killed by the ResourceManager: an application that does not run (yet, or between two
masters), a master that is not over within the job's grace and a margin, and one that somebody
asks to end who is not the first to ask: the reason of the first is there, and is the mark.

A job that keeps its files elsewhere (``tony.yarn.staging-dir``) leaves at the usual place where
that is, as the name of an empty folder: the NameNode alone makes and lists it.

The grace stands in ``master.json``, where only the owner can read it: for everybody else it is
the default.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Optional, Set, Tuple, Union

from tony_core.dataclass import dataclass
from tony_core.files.location import base_name, join
from tony_core.files.registry import filesystem
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.yarn.ids import ApplicationId, ContainerId
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.jsontext import is_number, read_value
from tony_core.schedulers.port import AppState
from tony_core.schedulers.yarn.client.status import state_of

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.client.rest import RestClient

GRACE_S = 10.0  # of a job that cannot be asked
LONGEST_GRACE_S = 86400.0  # a longer one in a master's file is damage
MARGIN_S = 5.0  # beyond the programs' grace, for the word to arrive and the master to clear away
NOTE_S = 3.0  # the most that leaving the reason may take
FORCE_S = 30.0
FIRST_POLL_S, LONGEST_POLL_S = 0.05, 0.4
ELSEWHERE = "root="  # what such a folder's name begins with
KILL_FILE, MASTER_FILE = "kill.json", "master.json"  # the master's names for them
GRACEFULLY = "GRACEFUL_SHUTDOWN"

Rm = Union[RmClient, "RestClient"]


@dataclass(frozen=True)
class Note:
    """What was found and left in the application's folder."""

    asked_before: bool = False
    grace_s: float = GRACE_S


def end(
    rm: Rm,
    application: ApplicationId,
    reason: str,
    by: str,
    running: bool,
    folder: Optional[str] = None,
) -> None:
    """Returns when it is over; ``folder`` is where its master's state stands, if it is ours."""
    if running:
        note = leave(folder, {"reason": reason, "by": by, "at": time.time()}) if folder else Note()
        if not note.asked_before and _ask(rm, application):
            if _over(rm, application, note.grace_s + MARGIN_S):
                return
            reason = f"{reason} (its master did not end by itself)"
    rm.kill(application, reason, within_s=FORCE_S)


def leave(folder: str, told: Dict[str, Any]) -> Note:
    """Leave the reason where the master looks for it. That it cannot be left stops nobody."""
    found = [Note()]

    def write() -> None:
        try:
            where, names, found[0] = _look(folder)
            if not found[0].asked_before and names:
                filesystem(where).put(join(where, KILL_FILE), json.dumps(told).encode(), 0o600)
        except (OSError, ValueError):
            pass  # the master will say that it was told to end, and not why

    # In our context: the file systems may be our caller's own.
    run = partial(copy_context().run, write)
    thread = threading.Thread(target=run, name="kill-note", daemon=True)
    thread.start()
    thread.join(NOTE_S)
    return found[0]


def say_where(usual: str, root: str, app_id: str) -> None:
    """An application whose state stands below another root than the usual one."""
    folder = pointer(usual, root, app_id)
    if folder:
        name = ELSEWHERE + base64.urlsafe_b64encode(root.encode()).decode()
        filesystem(folder).mkdir(join(folder, name), 0o700)


def pointer(usual: str, root: str, app_id: str) -> str:
    """The folder that says so; empty for an application whose state stands there itself."""
    return join(usual, "apps", app_id) if root.rstrip("/") != usual.rstrip("/") else ""


def _look(folder: str) -> Tuple[str, Set[str], Note]:
    """Where its state stands, what is there, and what it says."""
    files = filesystem(folder)
    names = {base_name(one.location) for one in files.list(folder)}
    other = [name[len(ELSEWHERE) :] for name in names if name.startswith(ELSEWHERE)]
    if other:
        root = base64.urlsafe_b64decode(other[0]).decode()
        folder = join(root, "apps", base_name(folder))
        files = filesystem(folder)
        names = {base_name(one.location) for one in files.list(folder)}
    if KILL_FILE in names:
        return folder, names, Note(asked_before=True)
    if MASTER_FILE not in names:
        return folder, names, Note()
    said = read_value(files.get(join(folder, MASTER_FILE), 1 << 16))
    grace = said.get("kill_grace_s") if isinstance(said, dict) else None
    if is_number(grace, below=LONGEST_GRACE_S):
        return folder, names, Note(grace_s=max(0.0, float(grace)))
    return folder, names, Note()


def _ask(rm: Rm, application: ApplicationId) -> bool:
    """Whether its master will be told; a cluster that does not pass signals on refuses here."""
    try:
        master = _master(rm, application)
        if master is None:
            return False
        rm.signal(master, GRACEFULLY)
    except HadoopError:
        return False  # who may not ask may not kill either: that error is the one to tell
    return True


def _master(rm: Rm, application: ApplicationId) -> Optional[ContainerId]:
    if isinstance(rm, RmClient):
        attempts = rm.attempts(application)
        return attempts[-1].master_container if attempts else None
    masters = rm.masters(application)
    return ContainerId.parse(masters[-1].container_id) if masters else None


def _over(rm: Rm, application: ApplicationId, within_s: float) -> bool:
    """Whether it is over in time. One whose master died of the word has nobody to wait for."""
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
