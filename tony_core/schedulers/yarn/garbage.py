"""What applications left on HDFS that no master and no client will ever take away."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, Optional

from tony_core.bundle import jobfolder
from tony_core.files.port import FileSystem
from tony_core.files.registry import filesystem

PLACES = ("apps", "store/leases")


def collect(
    root: str,
    ended: Callable[[str], Optional[float]],
    older_than_s: float,
    dry_run: bool = False,
    files: Callable[[str], FileSystem] = filesystem,
) -> Iterator[str]:
    """``ended`` says when an application ended: None while it runs, 0 when nobody knows it.

    One that nobody knows may be staged right now: it is as old as what it has left.
    """
    now = time.time()
    for app_id, touched in sorted(_left(root, files(root)).items()):
        end = ended(app_id)
        if end is None or now - max(end, touched if not end else 0.0) < older_than_s:
            continue
        if not dry_run:
            jobfolder.remove(root, app_id)
        what = "ended" if end else "not known to the cluster any more"
        yield f"application {app_id} ({what}): {root}/apps/{app_id} and its lease"


def _left(root: str, files: FileSystem) -> Dict[str, float]:
    """Applications with something of theirs below the root, and when that was last touched."""
    found: Dict[str, float] = {}
    for place in PLACES:
        try:
            entries = files.list(f"{root}/{place}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = entry.location.rstrip("/").rpartition("/")[2]
            if name.startswith("application_"):
                found[name] = max(found.get(name, 0.0), entry.mtime_ms / 1000)
    return found
