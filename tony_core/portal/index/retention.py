"""Removes the oldest histories of a location: by age, and by the size of them all.

The index knows when each job ended and how large its files are, so that nothing is read to choose;
the rule is :func:`tony_core.history.reader.choose_expired`, as for ``tony gc``. Before a folder is
removed it is looked at again: the portal removes no history that has changed meanwhile. A portal
that may not remove other users' files says so, and how they are removed then.
"""

from __future__ import annotations

import os
import time
from typing import Callable, List, Optional, Sequence, Tuple

from tony_core.files.local import user_name
from tony_core.history.reader import NoHistory
from tony_core.history.retention import KeptHistory, choose_expired
from tony_core.portal.index.index import Index
from tony_core.portal.locations import LocationReader
from tony_core.portal.settings import HistoryLocation

EACH_S = 3600.0
_AT_ONCE = 100  # removed in one step, so that new jobs do not wait for long
_READ = 1000  # of the oldest that are looked at for one step
_DENIED = 3  # so many refusals end a round


def choose(
    oldest: Sequence[KeptHistory],
    total: int,
    retention_s: Optional[float],
    retention_bytes: Optional[int],
    now: float,
) -> List[str]:
    """Of a location's oldest jobs those to remove; ``total`` bytes are all of its jobs. Pure."""
    if retention_bytes is not None:
        # What those that are looked at may keep, beside all the others.
        retention_bytes -= total - sum(job.size for job in oldest)
    age = float("inf") if retention_s is None else retention_s
    return choose_expired(oldest, age, retention_bytes, now)


class Retention:
    """The retention of one location."""

    def __init__(self, location: HistoryLocation, index: Index) -> None:
        self._location = location
        self._index = index
        self._due = 0.0
        self.notes: Tuple[str, ...] = ()

    def run(self, reader: LocationReader, is_closing: Callable[[], bool]) -> List[str]:
        """Remove some of what is too old, where it is time; returns the ids of what is gone."""
        place = self._location
        if place.retention_s is None and place.retention_bytes is None:
            return []
        if time.monotonic() < self._due:
            return []
        size = self._index.size(place.name) if place.retention_bytes is not None else 0
        oldest = self._index.oldest(place.name, _READ)
        kept = [job for job, _ in oldest]
        changed = {job.app_id: when for job, when in oldest}
        chosen = choose(kept, size, place.retention_s, place.retention_bytes, time.time())
        gone: List[str] = []
        denied: List[OSError] = []
        for app_id in chosen[:_AT_ONCE]:
            if is_closing() or len(denied) >= _DENIED:
                break
            try:
                if _is_unchanged(reader, app_id, changed[app_id]):
                    reader.remove(app_id)
                    gone.append(app_id)
            except NoHistory:
                gone.append(app_id)
            except PermissionError as error:
                denied.append(error)
        self._index.remove(place.name, gone)
        if len(chosen) <= len(gone) or denied or not gone:
            self._due = time.monotonic() + EACH_S
        self.notes = (_denial(len(chosen) - len(gone), denied[0]),) if denied else ()
        return gone


def _is_unchanged(reader: LocationReader, app_id: str, changed: float) -> bool:
    with reader.open(app_id) as folder:
        return folder.fingerprint().changed <= changed


def _denial(jobs: int, error: OSError) -> str:
    user = user_name(os.geteuid())
    return (
        f"{jobs} histories are older or larger than this location's retention, and {user!r}, who"
        f" runs the portal, may not remove them ({error.strerror or error}); their owners, or an"
        " administrator of the place, remove them with: tony gc"
    )
