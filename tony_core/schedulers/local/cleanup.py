"""The end of everything that belongs to an application, without its master's help."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from typing import Dict, List, Optional

from tony_core.schedulers.local import engine, home, images, processes
from tony_core.schedulers.local.home import AppFolder, ContainerFolder
from tony_core.schedulers.local.processes import Identity
from tony_core.schedulers.port import SchedulerError

ASK_S = 6.0  # for the shims to end their containers
FORCE_S = 5.0  # for what is killed to go


def end_containers(folder: AppFolder) -> None:
    """End every container, by its shim or without; returns when nothing is left."""
    asked: Dict[str, Identity] = {}
    doubtful: List[str] = []
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        begun = os.path.exists(container.launch) or os.path.exists(container.shim)
        if os.path.exists(container.ended) or not begun:
            continue
        shim = _shim(container)
        if shim is not None and shim.alive():
            with contextlib.suppress(OSError):  # a full disk; the signal says it, too
                home.write_bytes(container.stop, b"")
            shim.send(signal.SIGTERM)
            shim.send(signal.SIGCONT)
            asked[container_id] = shim
        if not os.path.exists(container.exit):
            doubtful.append(container_id)
    end = time.monotonic() + ASK_S
    while time.monotonic() < end and any(shim.alive() for shim in asked.values()):
        time.sleep(0.01)
    for shim in asked.values():
        shim.send(signal.SIGKILL)
    for container_id in doubtful:
        if os.path.exists(folder.container(container_id).exit):
            continue  # its shim has seen to it
        left = processes.kill_container(container_id, FORCE_S)
        remove_image(folder.container(container_id))
        if left:
            raise SchedulerError(
                f"these processes of {folder.app_id} cannot be killed: "
                + "; ".join(f"{pid} {processes.command(pid)}" for pid in left)
            )


def remove_leftovers(folder: AppFolder) -> None:
    """The containers' working folders and secrets; their logs and how they ended stay."""
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        remove_image(container)  # of before a restart of the machine, when nobody could end it
        shutil.rmtree(container.work, ignore_errors=True)
        # launch.json has the job's variables, as an image's environment file has.
        for path in (container.secret, container.launch, images.env_file(container.path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def remove_image(container: ContainerFolder) -> None:
    """What docker or podman still has of it, if its shim did not come to that."""
    if not os.path.exists(container.exit):
        image = (home.read_json(container.launch) or {}).get("image")
        if image:
            engine.remove(image)


def remove_job_folder(folder: AppFolder) -> None:
    """What a master does at the end: the job's files and secret go, and its store lease."""
    from tony_core.bundle import jobfolder  # much code, for the end only

    jobfolder.remove(folder.home.root, folder.app_id)


def _shim(container: ContainerFolder) -> Optional[Identity]:
    return Identity.from_json(home.read_json(container.shim))
