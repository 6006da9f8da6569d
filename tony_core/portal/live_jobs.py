"""The jobs that run now, as their schedulers list them, merged with the index.

Theory of operation
===================

One thread for each scheduler asks for its running jobs, again and again, with a pause that grows
with what the answer takes. What it got last stands until the next answer; a scheduler that does not
answer hides neither the others' jobs nor those in history, and :meth:`LiveJobs.problems` names it.

A job in the index and a job of a scheduler are one job if id *and owner* are equal: the owner by
the files, and the owner by the scheduler. Else a folder with another user's id in its name would
get that user's state, page and logs.

History of a job whose master was killed has no end. The index shows it as running, and its
scheduler does not list it: then the scheduler is asked for that one, in the scheduler's thread,
when the job leaves its list or when the scanner asks (:meth:`LiveJobs.ask_end`). The scanner puts
the answer into the index; until then :meth:`LiveJobs.overlay` shows it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import (
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from tony_core.client.page_reader import PollInterval
from tony_core.durations import describe_duration
from tony_core.history.layout import ENDED
from tony_core.portal.index.rows import JobRow, Query
from tony_core.portal.schedulers import SchedulerPool
from tony_core.portal.task_logs import owned_status
from tony_core.portal.viewer import Viewer, may_view, readers
from tony_core.schedulers.port import AppState, AppStatus, Scheduler, SchedulerError

LIST_S = 20.0  # for one list
STATUS_S = 5.0
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 10.0
SHARE = 0.1  # of the time may go into listing
MOST_JOBS = 10_000  # of one scheduler
MOST_ENDS = 4096  # whose end is remembered
MOST_WANTED = 256  # jobs whose status waits to be asked for
ASKED_AT_ONCE = 8
AGAIN_S = 60.0  # until a job that no scheduler knows is asked for again
#: Longer than a slow answer and its pause: an older list does not say that a job is not running.
STALE_S = LIST_S + MOST_PAUSE_S
LIVE = "scheduler:"
"""The prefix of a row's location where only a scheduler knows the job."""


Known = Callable[[Iterable[Tuple[str, str]]], Set[Tuple[str, str]]]
"""Of jobs, by id and owner, those that have a row in the index that any viewer may see."""


class LiveJob(NamedTuple):
    """A job that a scheduler lists as running."""

    scheduler: str
    owner: str
    status: AppStatus

    def row(self) -> JobRow:
        """The job as a list shows it before it has a history: to its owner."""
        status = self.status
        return JobRow(
            location=LIVE + self.scheduler,
            app_id=status.app_id,
            owner=self.owner,
            name=status.name,
            queue=status.queue,
            state=status.state.value,
            submitted=status.submitted,
            started=status.started,
            progress=status.progress,
            error="" if status.view_refusal else status.diagnostics[:500],
            tags=status.tags,
            readers=tuple(sorted(readers(self.owner, ""))),
        )


class _Listing(NamedTuple):
    """What a scheduler answered."""

    jobs: Mapping[str, LiveJob] = {}
    at: Optional[float] = None  # by the monotonic clock; None: never
    problem: str = ""
    left_out: int = 0


class LiveJobs:
    """The running jobs of all schedulers. Any thread may ask."""

    def __init__(self, pool: SchedulerPool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._lock = threading.Condition()
        self._listings: Dict[str, _Listing] = {name: _Listing() for name in pool.names}
        self._ends: OrderedDict[Tuple[str, str], Tuple[Optional[AppStatus], float]] = OrderedDict()
        self._wanted: Dict[str, OrderedDict[Tuple[str, str], None]] = {
            name: OrderedDict() for name in pool.names
        }
        self._indexed: Set[Tuple[str, str]] = set()  # running jobs that have a history
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"jobs of {name}", daemon=True)
            for name in pool.names
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def close(self, within_s: float = 2.0) -> None:
        """Stop asking; a call that hangs is left to its deadline."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        end = time.monotonic() + within_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    # ------------------------------------------------------------------ what is known

    def jobs(self, app_id: str = "") -> List[LiveJob]:
        """All that run, or those of an id, the newest first."""
        with self._lock:
            listings = [listing.jobs for listing in self._listings.values()]
        if app_id:
            found = [jobs[app_id] for jobs in listings if app_id in jobs]
        else:
            found = [job for jobs in listings for job in jobs.values()]
        return sorted(found, key=lambda job: (-job.status.submitted, job.status.app_id))

    def job(self, app_id: str, owner: str) -> Optional[LiveJob]:
        """The running job of that id and owner."""
        with self._lock:
            for listing in self._listings.values():
                job = listing.jobs.get(app_id)
                if job is not None and job.owner == owner:
                    return job
        return None

    def ended_status(self, app_id: str, owner: str) -> Optional[AppStatus]:
        """The end that a scheduler reported of a job that it does not list any more."""
        with self._lock:
            return self._ends.get((app_id, owner), (None, 0.0))[0]

    def ask_end(self, app_id: str, owner: str) -> bool:
        """Have the end of a job asked for, unless it runs; whether an earlier call was answered."""
        if self.job(app_id, owner) is not None:
            return False
        self._want(app_id, owner)
        key = (app_id, owner)
        with self._lock:
            waits = any(key in wanted for wanted in self._wanted.values())
            return not self._wanted or (key in self._ends and not waits)

    def problems(self) -> List[str]:
        """A sentence for each scheduler that does not answer, or lists too much."""
        now = self._clock()
        found = []
        with self._lock:
            for name, listing in self._listings.items():
                if listing.problem:
                    found.append(_describe(name, listing, now))
                elif listing.left_out:
                    found.append(
                        f"the scheduler {name} lists more than {MOST_JOBS} running jobs;"
                        f" {listing.left_out} are not shown until they have a history"
                    )
        return found

    # ------------------------------------------------------------------ merged with the index

    def overlay(self, rows: Iterable[JobRow]) -> List[JobRow]:
        """The rows of the index with what the schedulers know better."""
        out = []
        for row in rows:
            if row.state in ENDED:
                out.append(row)
                continue
            job = self.job(row.app_id, row.owner)
            status = job.status if job is not None else self.ended_status(row.app_id, row.owner)
            if status is None:
                self._want(row.app_id, row.owner)
                out.append(row)
            else:
                out.append(under_status(row, status))
        return out

    def unlisted(
        self, viewer: Viewer, known: Known, query: Query = Query(), app_id: str = ""
    ) -> List[JobRow]:
        """The running jobs that a viewer may see and that no history has yet, the newest first.

        ``known`` is asked once for all; ``app_id``: only those of this id.
        """
        if query.after or query.location or query.until is not None:
            return []
        found: Dict[Tuple[str, str], JobRow] = {}
        for job in self.jobs(app_id):
            row = job.row()
            key = (row.app_id, row.owner)
            may_be_new = key not in self._indexed and may_view(viewer, frozenset(row.readers))
            if may_be_new and matches(row, query):
                found[key] = row
        indexed = known(found)
        self._indexed.update(indexed)  # and stay so while they run
        return [row for key, row in found.items() if key not in indexed]

    # ------------------------------------------------------------------ the threads

    def _run(self, name: str) -> None:
        interval = PollInterval(LEAST_PAUSE_S, MOST_PAUSE_S, SHARE)
        while not self._closed:
            began = self._clock()
            try:
                self._list(name)
                self._ask_wanted(name)
                interval.answered(self._clock() - began)
            except Exception as error:
                known = isinstance(error, SchedulerError)
                text = str(error) if known else self._pool.errors.record(f"listing {name}")
                with self._lock:
                    self._listings[name] = self._listings[name]._replace(problem=text)
                interval.failed()
            with self._lock:
                self._lock.wait_for(lambda: self._closed, interval.pause_s)

    def _list(self, name: str) -> None:
        def ask(scheduler: Scheduler) -> List[LiveJob]:
            return [
                LiveJob(name, scheduler.owner_of(status), status)
                for status in scheduler.list_running()
            ]

        found = self._pool.call(name, ask, within_s=LIST_S, what="the list of running jobs")
        owned = [job for job in found if job.owner]
        jobs = {job.status.app_id: job for job in owned[:MOST_JOBS]}
        with self._lock:
            before = self._listings[name].jobs
            self._listings[name] = _Listing(jobs, self._clock(), "", len(owned) - len(jobs))
            gone = [job for app_id, job in before.items() if app_id not in jobs]
        for job in gone:
            self._indexed.discard((job.status.app_id, job.owner))
            self._want(job.status.app_id, job.owner, name)

    def _want(self, app_id: str, owner: str, only: str = "") -> None:
        """Have the status of a job asked for that no scheduler lists."""
        key = (app_id, owner)
        now = self._clock()
        with self._lock:
            known = self._ends.get(key)
            if known is not None and now - known[1] < AGAIN_S:
                return
            for name, wanted in self._wanted.items():
                listing = self._listings[name]
                fresh = listing.at is not None and now - listing.at < STALE_S
                if only in ("", name) and fresh and len(wanted) < MOST_WANTED:
                    wanted.setdefault(key)

    def _ask_wanted(self, name: str) -> None:
        with self._lock:
            wanted = self._wanted[name]
            keys = [wanted.popitem(last=False)[0] for _ in range(min(ASKED_AT_ONCE, len(wanted)))]
        for app_id, owner in keys:
            status = self._status(name, app_id, owner)
            if status is not None and not status.state.ended:
                continue  # it has begun meanwhile: the next list has it
            with self._lock:
                if status is not None or self._ends.get((app_id, owner), (None, 0))[0] is None:
                    self._ends[app_id, owner] = (status, self._clock())
                    self._ends.move_to_end((app_id, owner))
                while len(self._ends) > MOST_ENDS:
                    self._ends.popitem(last=False)

    def _status(self, name: str, app_id: str, owner: str) -> Optional[AppStatus]:
        return self._pool.call(
            name,
            lambda scheduler: owned_status(scheduler, app_id, owner),
            within_s=STATUS_S,
            what=f"the status of {app_id}",
        )


def under_status(row: JobRow, status: AppStatus) -> JobRow:
    """A row whose history has no end, under its scheduler's status."""
    row = row._replace(
        state=status.state.value,
        started=row.started or status.started,
        progress=max(row.progress, status.progress),
        queue=status.queue or row.queue,
    )
    if not status.state.ended:
        return row
    return row._replace(
        finished=status.finished or row.finished,
        progress=1.0 if status.state is AppState.SUCCEEDED else row.progress,
        error=row.error or status.diagnostics[:500],
    )


def matches(row: JobRow, query: Query) -> bool:
    """Whether a row that is not in the index belongs to a view of the list. Pure."""
    exact = (
        (query.user, row.owner),
        (query.queue, row.queue),
        (query.framework, row.framework),
        (query.pipeline, row.pipeline),
    )
    if any(wanted and wanted != value for wanted, value in exact):
        return False
    if query.state and row.state not in query.state:
        return False
    if query.tag and query.tag not in row.tags:
        return False
    if query.since is not None and row.submitted < query.since:
        return False
    words = _words(row)
    return all(any(word.startswith(part) for word in words) for part in _split(query.q))


def _words(row: JobRow) -> FrozenSet[str]:
    texts = (row.name, row.app_id, row.owner, row.queue, row.framework, row.error, *row.tags)
    return frozenset(word for text in texts for word in _split(text))


def _split(text: str) -> List[str]:
    """Words as full-text search cuts them: of letters and digits."""
    return "".join(char if char.isalnum() else " " for char in text.casefold()).split()


def _describe(name: str, listing: _Listing, now: float) -> str:
    since = ""
    if listing.at is not None:
        since = f" for {describe_duration(now - listing.at)}"
    return (
        f"the scheduler {name} has not listed its jobs{since}: {listing.problem}. Jobs are shown as"
        " history has them"
    )
