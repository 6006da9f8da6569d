"""``tony gc`` over what staging leaves: leases, job folders, objects, unfinished work.

An application has ended when its scheduler reports so. Without a scheduler to ask (``ended`` is
not given, or it does not know), what lies on the file system decides, and doubt keeps:

* the submitting process lives: in use;
* the application's folder is gone, or holds nothing but the job folder: the submit died;
* a process holds ``master.lock``: in use;
* ``status.json`` has an end: ended;
* else it may be between two masters: in use, until nothing in its folder has changed for
  a day.

The folders of ended applications themselves belong to the scheduler's own collector.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from typing import Dict, Iterator, Optional

from tony_core.bundle import jobfolder
from tony_core.bundle.local.leases import StoreLease
from tony_core.bundle.local.store import Store
from tony_core.bundle.remote import garbage
from tony_core.bundle.remote.garbage import ABANDONED_S, Ended
from tony_core.bundle.remote.store import RemoteStore
from tony_core.files.location import is_remote

_ENDED = ("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")


def collect(
    root: str,
    older_than_s: float,
    dry_run: bool = False,
    ended: Optional[Ended] = None,
    settle_s: float = 60.0,
) -> Iterator[str]:
    """Remove what no application uses; yields a line for each thing removed."""
    if is_remote(root):
        remote = RemoteStore(root)
        yield from garbage.collect(remote, older_than_s, dry_run, ended, settle_s)
        return
    store = Store(root)
    over: Dict[str, bool] = {}

    def dead(lease: StoreLease) -> bool:
        if lease.app_id not in over:
            over[lease.app_id] = is_over(root, lease, ended)
        return over[lease.app_id]

    yield from store.collect(dead, older_than_s, dry_run, settle_s)
    for app_id in [app_id for app_id, is_dead in over.items() if is_dead]:
        yield from _job_folder(root, app_id, dry_run)


def is_over(root: str, lease: StoreLease, ended: Optional[Ended] = None) -> bool:
    """Whether the application of that lease has ended for good."""
    if lease.owner.alive(lease.taken) and not _has_ended(root, lease.app_id):
        return False
    if ended is not None:
        known = ended(lease.app_id)
        if known is not None:
            return known
    folder = jobfolder.app_path(root, lease.app_id)
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        return True
    if not names - {"job"}:
        return True
    if _is_locked(os.path.join(folder, "master.lock")):
        return False
    return _has_ended(root, lease.app_id) or _untouched_s(folder) > ABANDONED_S


def _job_folder(root: str, app_id: str, dry_run: bool) -> Iterator[str]:
    folder = jobfolder.path(root, app_id)
    if os.path.islink(os.path.dirname(folder)):
        return  # not made by us
    if os.path.isdir(folder):
        yield f"job folder of {app_id} (its application is gone)"
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)
    if not dry_run:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(folder))  # only when nothing else is in it


def _has_ended(root: str, app_id: str) -> bool:
    status = os.path.join(jobfolder.app_path(root, app_id), "status.json")
    try:
        with open(status, encoding="utf-8") as stream:
            return json.load(stream).get("state") in _ENDED
    except (OSError, ValueError, AttributeError):
        return False


def _is_locked(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _untouched_s(folder: str) -> float:
    newest = os.stat(folder).st_mtime
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return time.time() - newest
