"""Keeps the index in step with the history files: finds jobs, reads what has changed, forgets.

Each location is read by a thread of its own, so that a name node that does not answer delays no
other place. A location's :class:`LocationScan` goes in steps, about one a second:

* *names*: a root whose time has changed is listed; new jobs are read, removed ones forgotten;
* *running jobs*: their files are looked at each second, and ever less often the longer nothing has
  been written. A master that was killed writes no end: then it is the scheduler's
  (:mod:`tony_core.portal.index.ends`);
* *ended jobs* are settled. A few of them are looked at in each step, in turn; where a listing has
  the times of folders (HDFS), those that changed;
* *retention*, where the location has one.

A job that cannot be read is a row with a problem, and is tried again. A location that cannot be
read keeps its rows, and is tried again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from tony_core.files.local import user_name
from tony_core.files.location import is_remote, masked
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.index.ends import Ends, NoEnds
from tony_core.portal.index.entries import Entry
from tony_core.portal.index.index import Index
from tony_core.portal.index.reader_processes import ReaderProcesses
from tony_core.portal.index.reading import Outcome, Request, look
from tony_core.portal.index.retention import Retention
from tony_core.portal.index.rows import JobRow, LocationState
from tony_core.portal.job_folders import REMOTE_WAIT_S
from tony_core.portal.locations import LocationReader, reader_of
from tony_core.portal.settings import HistoryLocation
from tony_core.schedulers.port import AppStatus
from tony_core.unexpected_errors import UnexpectedErrors

STEP_S = 1.0
BUSY_S = 0.25
"""For so long one step reads jobs; then what it has read is put into the index."""

SETTLED_S, FORSAKEN_S = 60.0, 24 * 3600.0
"""Files of an ended job, of any job, that have not changed for so long are settled."""

_REST = 30.0  # files that were unchanged for so many seconds are looked at a second later
_LONGEST_REST_S = 300.0
_SHARE = 10.0  # what took a second is done again after so many
_IN_TURN = 50  # settled jobs that a step looks at
_IN_TURN_REMOTE = 2
_LIST_AGAIN_S = 2.0  # after a change: the times of folders are as coarse as that in places
_LIST_ALL_S = 600.0
_LIST_SHARE = 4.0  # a root that changes all the time is listed for a fifth of the time, at most
_TRIES = 5  # to read a job's damaged files, before they are settled as well
_RETRY_S, _LONGEST_RETRY_S = 2.0, 60.0  # of a location

MANY = 200
"""New jobs that are read by processes of their own; fewer are read by the scanner's thread."""

LARGE = 4 << 20
"""Bytes of a history that is read by another process."""

_FIGURES_S, _FIGURES_SHARE = 60.0, 0.1
"""How old the figures of a running job may be: so long, and such a part of its time."""

_QUIET_S = 10.0  # after which its scheduler is asked for the end of a job that seems to go on

ListOwn = Callable[[], Sequence[str]]
"""The ids of the portal's own user's jobs that schedulers know. It may block; raises OSError."""

OnEnded = Callable[[HistoryLocation, JobRow], None]
"""Called on the scanner's thread for each job that has ended; again when the index is made anew."""


class Listing:
    """Decides when a root is listed. Pure."""

    def __init__(self) -> None:
        self._version = ""
        self._again_at = 0.0
        self._earliest = 0.0
        self._all_at = 0.0

    def is_due(self, version: str, now: float) -> bool:
        """Whether to list now; ``version`` is the root's."""
        changed = version != self._version or now >= self._again_at or now >= self._all_at
        return changed and now >= self._earliest

    def done(self, version: str, now: float, cost: float) -> None:
        """It was listed, beginning now, when the root had this version."""
        # Once more after a change, since the next one may leave the root's time as it is.
        self._again_at = now + _LIST_AGAIN_S if version != self._version else float("inf")
        self._version = version
        self._earliest = now + cost * (1 + _LIST_SHARE)
        self._all_at = now + max(_LIST_ALL_S, cost * _SHARE)


def rest_s(unchanged_s: float, cost_s: float) -> float:
    """After how long to look again at a job whose files have not changed for so long. Pure."""
    return max(STEP_S, min(_LONGEST_REST_S, unchanged_s / _REST), cost_s * _SHARE)


def figures_rest_s(age_s: float, cost_s: float) -> float:
    """After how long to compute again the figures of a job that runs for so long. Pure."""
    return max(STEP_S, min(_FIGURES_S, age_s * _FIGURES_SHARE), cost_s * _SHARE)


class _Job:
    """A job that is not settled."""

    __slots__ = (
        *("changed", "digest", "due", "figures", "figures_due", "has_ended", "is_asked"),
        *("is_brief", "owner", "tries"),
    )

    def __init__(
        self, digest: str = "", changed: float = 0.0, has_ended: bool = False, owner: str = ""
    ) -> None:
        self.digest = digest  # of its files, when they were read
        self.changed = changed
        self.has_ended = has_ended
        self.owner = owner
        self.is_asked = False  # and its scheduler has answered, whether it has ended
        self.is_brief = False  # it was read so the last time: its figures are older
        self.due = 0.0
        self.figures: Mapping[str, float] = {}
        self.figures_due = 0.0
        self.tries = 0  # to read damaged files


class LocationScan:
    """One location. Its steps may block; :meth:`state` may be called by any thread."""

    def __init__(
        self,
        location: HistoryLocation,
        index: Index,
        log: Callable[[str], None] = lambda text: None,
        on_ended: Optional[OnEnded] = None,
        ends: Ends = NoEnds(),
        list_own: Optional[ListOwn] = None,
    ) -> None:
        """``list_own`` names what to look for in a place that may not be listed."""
        self._list_own = list_own
        self._unlisted = ""  # a note, where the place may not be listed
        self._location = location
        self._ends = ends
        self._index = index
        self._log = log
        self._on_ended = on_ended
        self._faults = UnexpectedErrors(log)
        self._reader: Optional[LocationReader] = None
        self._retention = Retention(location, index, log)
        self._state = LocationState(location.name, masked(location.root))
        self._retries = 0
        self._processes = ReaderProcesses(location)
        self.is_complete = threading.Event()  # every job that was found has been read
        self._forget()

    def _forget(self) -> None:
        self._generation = -1  # of the index, when what it has was loaded
        self._processes.close()
        self._new: List[str] = []  # to be read; the last one first
        self._reading: Set[str] = set()  # by other processes
        self._jobs: Dict[str, _Job] = {}  # that are not settled
        self._settled: Dict[str, float] = {}  # until when each is known to have not changed
        self._turn: Iterator[str] = iter(())
        self._in_turn = _IN_TURN_REMOTE if is_remote(self._location.root) else _IN_TURN
        self._listing = Listing()

    def state(self) -> LocationState:
        """How far it is."""
        return self._state

    def step(self, is_closing: Callable[[], bool] = lambda: False) -> float:
        """Do what is due; returns after how many seconds to do the next step."""
        began = time.monotonic()
        try:
            if self._generation != self._index.generation:
                self._load()
            if self._reader is None:
                self._reader = reader_of(self._location)
            self._find_names(self._reader)
            is_busy = self._look_at_jobs(self._reader, is_closing)
            if not is_busy:
                self.is_complete.set()
                for app_id in self._retention.run(self._reader, is_closing):
                    self._settled.pop(app_id, None)
                    self._jobs.pop(app_id, None)
            jobs = self._index.count(self._location.name)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # a full disk, a lock
                return self._failed(f"the index cannot be written: {error}")
            return self._rebuild(error)
        except (OSError, IndexBusy) as error:
            return self._failed(str(error))
        except Exception:
            return self.record_fault()
        self._retries = 0
        self._note("", jobs)
        return 0.0 if is_busy else max(0.0, began + STEP_S - time.monotonic())

    def record_fault(self) -> float:
        """Log the exception that is being handled; returns after how many seconds to go on."""
        return self._failed(self._faults.record(f"history location {self._location.name}"))

    def _rebuild(self, error: sqlite3.DatabaseError) -> float:
        self._log(f"the index is damaged ({error}); it is made anew")
        try:
            self._index.rebuild()
        except (OSError, sqlite3.Error) as fault:  # its disk is full, or cannot be written
            return self._failed(f"the damaged index cannot be made anew: {fault}")
        return 0.0

    def _failed(self, problem: str) -> float:
        self._processes.close()
        self._reading.clear()
        self._listing = Listing()  # finds again what was being read
        if problem != self._state.problem:
            self._log(f"history location {self._location.name}: {problem}")
        self._note(problem, self._state.jobs)
        self._retries += 1
        return min(_LONGEST_RETRY_S, _RETRY_S * 2.0 ** min(10, self._retries - 1))

    def _note(self, problem: str, jobs: int) -> None:
        self._state = self._state._replace(
            jobs=jobs,
            problem=problem,
            waiting=len(self._new) + len(self._reading),
            notes=(*self._retention.notes, *filter(None, (self._unlisted,))),
        )

    def close(self) -> None:
        """End what it has started."""
        self._processes.close()

    # ------------------------------------------------------------------ names

    def _load(self) -> None:
        """Begin with what the index has."""
        self._forget()
        self._generation = self._index.generation
        for job in self._index.tracked(self._location.name):
            if job.settled:
                self._settled[job.app_id] = job.changed
            else:
                self._jobs[job.app_id] = _Job(job.digest, job.changed, job.has_ended, job.owner)

    def _find_names(self, reader: LocationReader) -> None:
        began = time.monotonic()
        version = reader.version()
        if not self._listing.is_due(version, began):
            return
        found = self._names(reader)
        if any(found.values()):
            self._in_turn = 0  # the times of folders say which have changed
        gone = [each for each in (*self._settled, *self._jobs) if each not in found]
        new = []
        for app_id, changed in found.items():
            known = self._settled.get(app_id)
            if known is None:
                if app_id not in self._jobs and app_id not in self._reading:
                    new.append(app_id)
            elif changed > known + SETTLED_S:
                del self._settled[app_id]
                self._jobs[app_id] = _Job(changed=changed, has_ended=True)
        if gone:
            self._remove(gone)
        self._new = sorted(new)  # ids grow with time: the newest is read first
        self._listing.done(version, began, time.monotonic() - began)

    def _names(self, reader: LocationReader) -> Mapping[str, float]:
        try:
            found = reader.names()
        except PermissionError as error:
            words = (
                f"{user_name(os.geteuid())}, who runs the portal, may not list"
                f" {masked(self._location.root)} ({error.strerror or error})"
            )
            if self._list_own is None:
                words += "; a portal for many users has to be in the group of that folder"
                raise OSError(error.errno, words) from error
            self._unlisted = (
                f"{words}. It may be a place for a portal: of your jobs there those are shown that"
                " the schedulers still know"
            )
            return dict.fromkeys((*self._list_own(), *self._settled, *self._jobs), 0.0)
        self._unlisted = ""
        return found

    def _remove(self, app_ids: Sequence[str]) -> None:
        for app_id in app_ids:
            self._settled.pop(app_id, None)
            self._jobs.pop(app_id, None)
        self._index.remove(self._location.name, app_ids)

    # ------------------------------------------------------------------ jobs

    def _look_at_jobs(self, reader: LocationReader, is_closing: Callable[[], bool]) -> bool:
        """Read what is due, for a while; returns whether more is due."""
        end = time.monotonic() + BUSY_S
        if len(self._new) > MANY:
            self._processes.add([Request(app_id) for app_id in reversed(self._new)])
            self._reading.update(self._new)
            self._new = []
        entries: List[Entry] = []
        is_busy = False
        try:
            for app_id in self._due():
                outcome = look(
                    reader, self._location.name, self._request(app_id), self._faults, LARGE
                )
                self._take(outcome, entries)
                if time.monotonic() > end or is_closing():
                    is_busy = True
                    break
            while len(self._processes) and not is_closing():
                is_busy = True
                for outcome in self._processes.results(max(0.0, end - time.monotonic())):
                    self._take(outcome, entries)
                if time.monotonic() > end:
                    break
        finally:
            if entries:
                self._index.put(entries)
        return is_busy

    def _due(self) -> Iterator[str]:
        """The jobs to look at now: those that run and the new ones by turns, then settled ones."""
        now = time.monotonic()
        running = iter(
            [
                app_id
                for app_id, job in self._jobs.items()
                if job.due <= now
                or not (job.has_ended or job.tries or self._end_of(app_id, job) is None)
            ]
        )
        while True:
            known = next(running, None)
            if known is not None:
                yield known
            if self._new:
                yield self._new.pop()
            elif known is None:
                break
        for _ in range(self._in_turn):
            following = next(self._turn, None)
            if following is None:
                self._turn = iter(list(self._settled))
                break
            if following in self._settled:
                yield following

    def _request(self, app_id: str) -> Request:
        job = self._jobs.get(app_id)
        if job is not None:
            is_brief = bool(job.figures) and time.monotonic() < job.figures_due
            end = self._end_of(app_id, job)
            is_stale = (job.is_brief and not is_brief) or (end is not None and not job.has_ended)
            return Request(app_id, "" if is_stale else job.digest, is_brief, end)
        if app_id in self._settled:
            return Request(app_id, self._index.digest(self._location.name, app_id))
        return Request(app_id)

    def _end_of(self, app_id: str, job: _Job) -> Optional[AppStatus]:
        return self._ends.ended_status(app_id, job.owner) if job.owner else None

    def _take(self, outcome: Outcome, entries: List[Entry]) -> None:
        """Note what looking at a job has found."""
        app_id, entry = outcome.app_id, outcome.entry
        self._reading.discard(app_id)
        if outcome.is_gone:
            self._remove([app_id])
            return
        settled = self._settled.pop(app_id, None)
        job = self._jobs.pop(app_id, None) or _Job("", settled or 0.0, settled is not None)
        if outcome.is_large:
            self._reading.add(app_id)
            self._processes.add([Request(app_id, end=self._end_of(app_id, job))])
            return
        now = time.monotonic()
        job.changed = max(outcome.made.changed, job.changed)
        if entry is not None:
            ended_before = job.has_ended
            job.digest, job.has_ended = entry.fingerprint.digest, entry.row.has_ended
            job.tries = job.tries + 1 if entry.row.problem else 0
            job.owner, job.is_brief = entry.row.owner, outcome.is_brief
            if outcome.is_brief:
                entry = entry._replace(row=entry.row._replace(figures=job.figures))
            else:
                job.figures = entry.row.figures
                job.figures_due = now + figures_rest_s(
                    time.time() - entry.row.submitted, outcome.cost
                )
            if self._on_ended is not None and job.has_ended and not ended_before:
                self._on_ended(self._location, entry.row)
        if job.owner and not job.has_ended and time.time() - job.changed > _QUIET_S:
            job.is_asked = self._ends.ask_end(app_id, job.owner)
        if self._is_settled(job):
            if entry is not None:
                entry = entry._replace(settled=True)
            elif settled is None:
                self._index.settle(self._location.name, app_id)
            self._settled[app_id] = max(job.changed, settled or 0.0)
        else:
            rest = rest_s(max(0.0, time.time() - job.changed), outcome.cost)
            job.due = now + (_RETRY_S * 2.0**job.tries if job.tries else rest)
            self._jobs[app_id] = job
        if entry is not None:
            entries.append(entry)

    @staticmethod
    def _is_settled(job: _Job) -> bool:
        """Whether its files will hardly change any more."""
        if job.tries:
            return job.tries >= _TRIES
        unchanged_s = time.time() - job.changed
        if job.has_ended:
            return unchanged_s > SETTLED_S
        return unchanged_s > FORSAKEN_S and (job.is_asked or not job.owner)


class Scanner:
    """Keeps an index in step with all locations, by a thread for each."""

    def __init__(
        self,
        locations: Sequence[HistoryLocation],
        index: Index,
        log: Callable[[str], None] = lambda text: None,
        on_ended: Optional[OnEnded] = None,
        ends: Ends = NoEnds(),
        list_own: Optional[ListOwn] = None,
    ) -> None:
        self._scans = [
            LocationScan(each, index, log, on_ended, ends, list_own) for each in locations
        ]
        self._index = index
        self._roots = {each.name: f"{each.kind} {each.root}" for each in locations}
        self._closing = threading.Event()
        self._threads: List[threading.Thread] = []

    def start(self) -> None:
        """Begin. Jobs that the index has of other locations are forgotten."""
        self._index.keep_locations(self._roots)
        for scan in self._scans:
            name = f"scan-{scan.state().name}"
            thread = threading.Thread(target=self._run, args=(scan,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, scan: LocationScan) -> None:
        delay = 0.0
        while not self._closing.wait(delay):
            try:
                delay = scan.step(self._closing.is_set)
            except Exception:  # a place that is read no more would look like one without news
                delay = scan.record_fault()
        scan.close()

    def has_stopped(self) -> bool:
        """Whether a thread has ended before its time, so that a location is read no more."""
        return not self._closing.is_set() and not all(one.is_alive() for one in self._threads)

    def states(self) -> Tuple[LocationState, ...]:
        """How far each location is."""
        return tuple(scan.state() for scan in self._scans)

    def wait_until_read(self, timeout_s: float) -> bool:
        """Wait until every job that is there has been read once; whether that is so."""
        end = time.monotonic() + timeout_s
        return all(scan.is_complete.wait(max(0.0, end - time.monotonic())) for scan in self._scans)

    def close(self, timeout_s: float = 2 * REMOTE_WAIT_S) -> bool:
        """End the threads; False where one still waits for a file system. It ends by itself."""
        self._closing.set()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
