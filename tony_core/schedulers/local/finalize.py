"""Finalizes an application: ends what is left of it, cleans up, writes down how it ended.

Its master does so at its end. Where it died, the last of its shims does, with the master's lock
held, else the next client that acts (:func:`finalize_dead`): that watched the job to its end, kills
it, submits another, or runs ``tony gc`` or ``tony history``. A client that only looks writes
nothing: it shows the end as it will be written (:mod:`applications`).

``local-finalize --app-dir DIR --container ID --lock-fd N`` is started by that shim (:mod:`shim`),
which loads much less code, and which passes its lock on; this waits for the shim's end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from typing import Dict, List, Optional, Sequence

from tony_core.schedulers.local import attempts, engine, home, images, processes
from tony_core.schedulers.local.applications import (
    Application,
    current_status,
    masterless_status,
    read_status,
    write_status,
)
from tony_core.schedulers.local.home import AppFolder, ContainerFolder, Home
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import AppStatus, SchedulerError

USAGE = 2
GONE_S = 5.0  # for the shim that has started this process to end
SHIMS_END_S = 6.0  # for the shims to end their containers
FORCE_S = 5.0  # for what is killed to go
LOOK_S = 1.0  # for others that look to give the lock back


def main(argv: Sequence[str]) -> int:
    """``local-finalize``: finalize an application whose last container has ended."""
    words = dict(zip(argv[::2], argv[1::2]))
    if len(argv) % 2 or set(words) != {"--app-dir", "--container", "--lock-fd"}:
        sys.stderr.write("usage: local-finalize --app-dir DIR --container ID --lock-fd N\n")
        return USAGE
    os.set_inheritable(int(words["--lock-fd"]), False)
    folder = AppFolder(words["--app-dir"])
    shim = ProcessIdentity.from_json(home.read_json(folder.container(words["--container"]).shim))
    end = time.monotonic() + GONE_S
    while shim is not None and shim.alive() and time.monotonic() < end:
        time.sleep(0.01)
    app = Application.read(folder)
    if app is not None:
        settle(folder, app)
    return 0


def settle(folder: AppFolder, app: Application) -> None:
    """Finalize the application if it is dead. Only with the lock held."""
    status = masterless_status(folder, app)
    if status.state.ended and not read_status(folder, app).state.ended:
        finalize(folder, app, status)


def finalize_dead(folder: AppFolder, app: Application) -> None:
    """Finalize the application if its status is that of a dead one, and is not on record."""
    if read_status(folder, app).state.ended or not app.here or not folder.is_own:
        return
    end = time.monotonic() + LOOK_S
    while current_status(folder, app).state.ended:
        handle = attempts.try_lock(folder)
        if handle is not None:
            try:
                settle(folder, app)
            finally:
                os.close(handle)
            return
        if time.monotonic() > end:
            return  # another process finalizes it
        time.sleep(0.01)


def finalize_all_dead(root: Home) -> None:
    """Finalize every application whose master died and that no shim finalized."""
    for app_id in root.app_ids():
        folder = root.app(app_id)
        if (home.read_json(folder.status) or {}).get("state") in attempts.ENDED_STATES:
            continue
        app = Application.read(folder)
        if app is not None:
            with contextlib.suppress(SchedulerError, OSError):  # the next one may succeed
                finalize_dead(folder, app)


def finalize(folder: AppFolder, app: Application, status: AppStatus) -> None:
    """End what is left, clean up, write that status. Only with the lock held."""
    diagnostics = status.diagnostics
    if app.this_boot:
        try:
            end_containers(folder)
        except SchedulerError as error:
            diagnostics = f"{diagnostics}\n{error}"
    try:
        # First: its files may be what has filled the disk.
        remove_leftovers(folder)
        remove_job_folder(folder)
    except OSError as error:
        diagnostics = f"{diagnostics}\nnot removed: {error}"
    remove_reservations(folder)
    finished = status.finished or round(app.now(), 3)
    status = status._replace(finished=finished, diagnostics=diagnostics)
    write_status(folder, status._replace(page_url=None, tracking_url=None))


# ------------------------------------------------------------------ its steps


def remove_reservations(folder: AppFolder) -> None:
    """Give back what the application has reserved of this machine."""
    from tony_core.schedulers.local.ledger import Ledger  # with the allocation: not to list jobs

    Ledger(folder.home.ledger).remove_app(folder.app_id)


def end_containers(folder: AppFolder) -> None:
    """End every container, by its shim or without; returns when nothing is left."""
    stopped: Dict[str, ProcessIdentity] = {}
    unfinished: List[str] = []
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        begun = os.path.exists(container.launch) or os.path.exists(container.shim)
        if os.path.exists(container.ended) or not begun:
            continue
        shim = _shim(container)
        if shim is not None and shim.alive():
            with contextlib.suppress(OSError):  # a full disk; the signal is enough
                home.write_bytes(container.stop, b"")
            shim.send(signal.SIGTERM)
            shim.send(signal.SIGCONT)
            stopped[container_id] = shim
        if not os.path.exists(container.exit):
            unfinished.append(container_id)
    end = time.monotonic() + SHIMS_END_S
    while time.monotonic() < end and any(shim.alive() for shim in stopped.values()):
        time.sleep(0.01)
    for shim in stopped.values():
        shim.send(signal.SIGKILL)
    for container_id in unfinished:
        if os.path.exists(folder.container(container_id).exit):
            continue  # its shim has ended it
        left = processes.kill_container(container_id, FORCE_S)
        remove_engine_container(folder.container(container_id))
        if left:
            raise SchedulerError(
                f"these processes of {folder.app_id} cannot be killed: "
                + "; ".join(f"{pid} {processes.command(pid)}" for pid in left)
            )


def remove_leftovers(folder: AppFolder) -> None:
    """Remove the containers' working folders and secrets; logs and exit records stay."""
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        remove_engine_container(container)  # after a restart of the machine no shim has removed it
        shutil.rmtree(container.work, ignore_errors=True)
        # launch.json has the job's variables, as an image's environment file has.
        for path in (container.secret, container.launch, images.env_file(container.path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def remove_engine_container(container: ContainerFolder) -> None:
    """Remove what docker or podman still has of it, if its shim did not."""
    if not os.path.exists(container.exit):
        image = (home.read_json(container.launch) or {}).get("image")
        if image:
            engine.remove_container(image)


def remove_job_folder(folder: AppFolder) -> None:
    """Remove the job's files and secret, and its store lease, as a master does at the end."""
    from tony_core.bundle import jobfolder  # loads much code

    jobfolder.remove(folder.home.root, folder.app_id)


def _shim(container: ContainerFolder) -> Optional[ProcessIdentity]:
    return ProcessIdentity.from_json(home.read_json(container.shim))
