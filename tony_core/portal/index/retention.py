"""Removes the oldest histories of a location: by age, and by the bytes that each user holds.

The index knows when each job ended and how large its files are, so that nothing is read to choose;
the rule is :mod:`tony_core.history.retention`, as for ``tony gc``. Before a folder is removed it is
looked at again: the portal removes no history that has changed meanwhile. One that it cannot remove
keeps no other: it stays until the next round, and people are told.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import islice
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from tony_core.files.local import user_name
from tony_core.history.reader import NoHistory
from tony_core.history.retention import KeptHistory, fair_share, too_much
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.index.index import Index
from tony_core.portal.job_folders import LOCATION_ERRORS
from tony_core.portal.locations import LocationReader
from tony_core.portal.settings import HistoryLocation

EACH_S = 3600.0
_AT_ONCE = 100  # looked at in one step, so that new jobs do not wait for long
_BUSY_S = 60.0  # until an index that gave no answer in time is asked again
_USERS = 10  # that the log names


class Retention:
    """The retention of one location. In rounds, each of as many steps as it takes."""

    def __init__(
        self,
        location: HistoryLocation,
        index: Index,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._location = location
        self._index = index
        self._log = log
        self._due = 0.0
        self._round: Optional[Iterator[KeptHistory]] = None
        self._stuck: Dict[str, str] = {}  # of this round, what could not be removed, and whose
        self._why = ""
        self._logged = ""
        self.notes: Tuple[str, ...] = ()

    def run(self, reader: LocationReader, is_closing: Callable[[], bool]) -> List[str]:
        """Remove some of what is too old, where it is time; returns the ids of what is gone."""
        if time.monotonic() < self._due:
            return []
        if self._round is None:
            self._round, self._stuck = self._choose(time.time()), {}
        gone: List[str] = []
        seen = 0
        try:
            for job in islice(self._round, _AT_ONCE):
                if is_closing():
                    return gone
                seen += 1
                if job.app_id not in self._stuck and self._remove(reader, job):
                    self._index.remove(self._location.name, [job.app_id])
                    gone.append(job.app_id)
        except IndexBusy:
            self._round, self._due = None, time.monotonic() + _BUSY_S
            return gone
        except BaseException:
            self._round = None
            raise
        if seen < _AT_ONCE:
            self._round, self._due = None, time.monotonic() + EACH_S
            self._tell()
        return gone

    def _choose(self, now: float) -> Iterator[KeptHistory]:
        """What is to go, by what the index has at that moment."""
        place = self._location
        if place.retention_s is not None:
            for job in self._index.oldest(place.name):
                if now - job.changed <= place.retention_s:
                    break
                yield job
        if place.retention_bytes is not None:
            held = self._index.held(place.name)
            share = fair_share(held, place.retention_bytes)
            for owner, size in held.items():
                if owner and size > share:
                    yield from too_much(self._index.oldest(place.name, owner), size, share)

    def _remove(self, reader: LocationReader, job: KeptHistory) -> bool:
        """Remove a history, unless it has changed; whether it is gone."""
        try:
            with reader.open(job.app_id) as folder:
                changed = folder.fingerprint().changed
                if changed > job.written or job.owner not in ("", folder.owner):
                    return False
            reader.remove(job.app_id)
        except NoHistory:
            pass
        except OSError as error:
            if error.errno in LOCATION_ERRORS:
                raise
            self._why = self._why if self._stuck else error.strerror or type(error).__name__
            self._stuck[job.app_id] = job.owner
            return False
        return True

    def _tell(self) -> None:
        """Tell people what could not be removed: on pages without names, in the log with them."""
        users = Counter(self._stuck.values())
        note = _denial(len(self._stuck), len(users), self._why) if users else ""
        self.notes = (note,) if note else ()
        names = ", ".join(f"{user} {jobs}" for user, jobs in users.most_common(_USERS))
        more = f", and {len(users) - _USERS} users more" if len(users) > _USERS else ""
        text = f"{note}. Whose they are: {names}{more}" if note else ""
        if text and text != self._logged:
            self._log(f"history location {self._location.name}: {text}")
        self._logged = text


def _denial(jobs: int, users: int, why: str) -> str:
    portal = user_name(os.geteuid())
    histories = "1 history" if jobs == 1 else f"{jobs} histories"
    return (
        f"{histories} of {'1 user' if users == 1 else f'{users} users'} could not be removed, past"
        f" this location's retention, by {portal!r}, who runs the portal ({why}); their owners, or"
        " an administrator of the place, remove them with: tony gc"
    )
