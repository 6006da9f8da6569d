"""Finalizes an application: ends what is left of it, cleans up, writes down how it ended.

Its master does so at its end. For a master that died, the first to notice does it, with the
master's lock held: a client that reads the status or kills the job, or the last of its shims.
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
from tony_core.schedulers.local.applications import Application, read_status, write_status
from tony_core.schedulers.local.home import AppFolder, ContainerFolder
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.local.processes import Identity
from tony_core.schedulers.port import AppState, AppStatus, SchedulerError

USAGE = 2
GONE_S = 5.0  # for the shim that has started this process to end
SHIMS_END_S = 6.0  # for the shims to end their containers
FORCE_S = 5.0  # for what is killed to go


def main(argv: Sequence[str]) -> int:
    """``local-finalize``: finalize an application whose last container has ended."""
    words = dict(zip(argv[::2], argv[1::2]))
    if len(argv) % 2 or set(words) != {"--app-dir", "--container", "--lock-fd"}:
        sys.stderr.write("usage: local-finalize --app-dir DIR --container ID --lock-fd N\n")
        return USAGE
    os.set_inheritable(int(words["--lock-fd"]), False)
    folder = AppFolder(words["--app-dir"])
    shim = Identity.from_json(home.read_json(folder.container(words["--container"]).shim))
    end = time.monotonic() + GONE_S
    while shim is not None and shim.alive() and time.monotonic() < end:
        time.sleep(0.01)
    app = Application.read(folder)
    if app is not None:
        settle(folder, app)
    return 0


def settle(folder: AppFolder, app: Application) -> AppStatus:
    """The status, after finalizing the application if it is dead. Only with the lock held."""
    status = read_status(folder, app)  # the last master may just have ended
    why = None if status.state.ended else why_dead(folder, app)
    return status if why is None else finalize(folder, app, AppState.FAILED, why)


def why_dead(folder: AppFolder, app: Application) -> Optional[str]:
    """Why no master will go on with it; None if one may. Only with the lock held."""
    if not app.this_boot:
        return "the machine was restarted while it ran"
    attempt = attempts.read(folder).attempt
    if attempt == 0:
        if app.submitter.alive():
            return None
        return "its client died before the master was started"
    if attempt < app.max_attempts and attempts.running_containers(folder):
        return None  # their executors start the next master
    text = home.tail(folder.master_log(attempt, "stderr"), lines=10)
    words = f"the master died (attempt {attempt} of {app.max_attempts})"
    return words + (f"; its last output:\n{text}" if text else "")


def finalize(folder: AppFolder, app: Application, state: AppState, diagnostics: str) -> AppStatus:
    """End what is left, clean up, write down the end. Only with the lock held."""
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
    Ledger(folder.home.ledger).remove_app(app.app_id)
    status = read_status(folder, app)._replace(
        state=state,
        diagnostics=diagnostics,
        finished=round(app.now(), 3),
        page_url=None,
        tracking_url=None,
    )
    write_status(folder, status)
    return status


# ------------------------------------------------------------------ its steps


def end_containers(folder: AppFolder) -> None:
    """End every container, by its shim or without; returns when nothing is left."""
    stopped: Dict[str, Identity] = {}
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


def _shim(container: ContainerFolder) -> Optional[Identity]:
    return Identity.from_json(home.read_json(container.shim))
