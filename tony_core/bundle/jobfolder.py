"""The job folder: what the master reads of a job, and the lease that goes with it.

``ROOT/apps/ID/job`` holds job.json, tony-final.xml (masked), artifacts.json and the secret;
only the user can read them (0600), for job.json masks nothing. It appears whole, by a rename,
and goes at the job's end (the master) or when the submit fails (the client), together with
the application's lease on the store.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Mapping

from tony_core.bundle.local.leases import check_app_id
from tony_core.bundle.local.store import Store
from tony_core.bundle.remote.store import RemoteStore
from tony_core.files.location import is_remote, join

SECRET = "secret"  # noqa: S105 (the file's name)


def app_path(root: str, app_id: str) -> str:
    return os.path.join(os.path.abspath(root), "apps", check_app_id(app_id))


def path(root: str, app_id: str) -> str:
    return os.path.join(app_path(root, app_id), "job")


def write(root: str, app_id: str, files: Mapping[str, bytes]) -> str:
    """Write the job folder; ``FileExistsError`` when the application has one already."""
    target = path(root, app_id)
    if os.path.lexists(target):
        raise FileExistsError(17, "this application has been staged already", target)
    with Store(root).scratch() as aside:
        made = os.path.join(aside, "job")
        os.mkdir(made, 0o700)
        for name, data in files.items():
            handle = os.open(os.path.join(made, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
        apps = os.path.dirname(os.path.dirname(target))
        for folder in (apps, os.path.dirname(target)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        os.rename(made, target)
    return target


def remove(root: str, app_id: str) -> None:
    """Remove the job folder and give back the lease, where they are still there.

    Below a remote root the application's whole folder goes: there nothing else is in it.
    """
    if is_remote(root):
        store = RemoteStore(root)
        store.files.delete(join(store.apps, check_app_id(app_id)))
        store.release(app_id)
        return
    shutil.rmtree(path(root, app_id), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(app_path(root, app_id))  # only the job folder was in it: it was never submitted
    Store(root).release(app_id)
