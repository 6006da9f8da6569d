"""Starts an application's next master, if that is in order.

``local-successor --app-dir DIR``: started by the client for the first master, and by shims for
the next ones. ``local-successor --app-dir DIR --container ID``: run by an executor that has
lost its master, inside its container. What it started there would end with the container, so
it asks the container's shim to start one outside (SIGUSR1), and waits until there is one.

However many run at once, the master's lock lets one through. The exit code says what happened.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Sequence

from tony_core.schedulers.local import home, mastership
from tony_core.schedulers.local.processes import Identity

STARTED = 0  # a master was started
USAGE = 2
HELD = 3  # somebody else is the master, or starts one
OVER = 4  # the application has ended, is being killed, or has no attempts left
ASKED_S = 5.0  # for the shim to start one


def main(argv: Sequence[str]) -> int:
    """See the module."""
    words = dict(zip(argv[::2], argv[1::2]))
    if len(argv) % 2 or "--app-dir" not in words or set(words) - {"--app-dir", "--container"}:
        sys.stderr.write("usage: local-successor --app-dir DIR [--container ID]\n")
        return USAGE
    folder = home.AppFolder(words["--app-dir"])
    if not os.path.isdir(folder.path):
        return OVER  # collected as garbage meanwhile
    handle = mastership.try_lock(folder)
    if handle is None:
        return HELD
    app = home.read_json(folder.app)
    if app is None or not mastership.may_start(folder, app):
        return OVER
    if "--container" in words:
        before = mastership.read(folder).attempt
        os.close(handle)
        return _ask_shim(folder, words["--container"], before)
    mastership.start_next(folder, app, handle)
    return STARTED


def _ask_shim(folder: home.AppFolder, container_id: str, before: int) -> int:
    """Whether there is another attempt then; nothing started (HELD) is tried again."""
    shim = Identity.from_json(home.read_json(folder.container(container_id).shim))
    if shim is None or not shim.send(signal.SIGUSR1):
        return OVER  # without its shim the container is about to end
    end = time.monotonic() + ASKED_S
    while time.monotonic() < end:
        if mastership.read(folder).attempt > before:
            return STARTED
        time.sleep(0.01)
    return HELD
