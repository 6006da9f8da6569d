"""Which jobs' histories a place keeps no longer, as its files say; and their removal."""

from __future__ import annotations

import os
import time
from typing import Callable, List, Optional

from tony_core.files.location import base_name, is_app_id, is_remote, join, local_path
from tony_core.files.registry import filesystem
from tony_core.history.folder import list_folder, read_time
from tony_core.history.layout import ENDED, SUMMARY, is_history_file
from tony_core.history.reader import NoHistory, read_summaries
from tony_core.history.retention import KeptHistory, choose_expired


def expired(
    root: str,
    retention_s: float,
    now: Optional[float] = None,
    warn: Callable[[str], None] = lambda text: None,
    retention_bytes: Optional[int] = None,
) -> List[str]:
    """Ids of ended jobs whose history is too old, or too large, for ``tony gc``.

    What goes by size depends on the owners (:mod:`tony_core.history.retention`). The id is the
    folder's own name, and only a folder that holds a history counts: below a root that others write
    to, too, a file says what its writer likes. ``warn`` gets what is ignored. A job without an end
    counts from the newest of its files.
    """
    files = filesystem(root)
    kept: List[KeptHistory] = []
    for folder, app_id, job in read_summaries(files, root):
        if not is_remote(root) and os.path.islink(local_path(folder.location)):
            if is_app_id(app_id):
                warn(f"{folder.location} is kept: it is a symbolic link")
            continue
        try:
            held = {base_name(item.location): item for item in list_folder(files, folder.location)}
        except PermissionError as error:
            warn(f"{folder.location} is kept: {error.strerror or error}")
            continue
        if not any(map(is_history_file, held)):
            continue
        if not is_app_id(app_id):
            warn(f"{folder.location} is kept: {app_id!r} is not the id of an application")
            continue
        finished = read_time(job.get("finished")) if job.get("state") in ENDED else 0.0
        has_ended = bool(finished)
        if job.get("app_id", app_id) != app_id:
            warn(
                f"the {SUMMARY} of {folder.location} names another application,"
                f" {str(job['app_id'])[:100]!r}; it is ignored"
            )
            finished, has_ended = 0.0, False
        if not finished:
            finished = max((item.mtime_ms / 1000 for item in held.values()), default=0.0)
        size = sum(item.held for item in held.values())
        kept.append(KeptHistory(app_id, finished, size, has_ended, folder.owner))
    now = time.time() if now is None else now
    return choose_expired(kept, retention_s, retention_bytes, now)


def remove(root: str, app_id: str) -> bool:
    """Remove one job's history; False if there was none."""
    if not is_app_id(app_id):
        raise NoHistory(f"{app_id!r} is not the id of an application")
    return filesystem(root).delete(join(root, app_id))
