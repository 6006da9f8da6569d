"""From the session machine to everything that shows the job: page, history, scheduler.

A snapshot is taken only when a reader asks and something has changed; of a job with thousands of
tasks at most once a second. The scheduler gets progress at most once a second as well. History gets
its summary at the start, at milestones (:class:`Milestones`), at decisions (at most one in some
seconds while the job runs, of ten thousand tasks one in fifty) and at the end.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from tony_core.history.metric_series import SeriesStore
from tony_core.history.store import HistoryWriter
from tony_core.master.view import Clean, JobInfo, progress_of, view_job
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.container_pool import PoolInfo
from tony_core.view import JobView

if TYPE_CHECKING:
    from tony_core.master.session.state import State

Report = Callable[[float, str], None]

REPORT_S = 1.0
MILESTONE_S = 0.1  # for the rest of a gang to get as far
SUMMARY_S = 5.0
TASKS_A_S = 200  # summarised on average: each takes a tenth of a millisecond


class Publisher:
    """Publishes a job's state: to its page, its history and the scheduler."""

    def __init__(
        self,
        reactor: Reactor,
        tasks: int,
        info: JobInfo,
        state: Callable[[], State],
        history: HistoryWriter,
        clean: Clean,
        offset: float,
    ) -> None:
        self._reactor = reactor
        self.info = info
        self._state = state
        self._history = history
        self.clean = clean
        self.series = SeriesStore()
        self.version = 0  # grows with every change
        self._seen: Optional[JobView] = None
        self._seen_version = -1
        self._seen_at = 0.0
        self._encoded: Dict[str, Tuple[int, bytes]] = {}
        self._offset = offset  # from the master's clock to seconds since the epoch
        self._reported: Optional[Tuple[float, str]] = None
        self._reporting = False
        self._summarised = -math.inf
        self._later: Optional[Timer] = None
        self._tasks = tasks
        self._report_to: Optional[Report] = None  # once the scheduler has taken the master
        self._url = ""

    def start_reporting(self, scheduler: PoolInfo, report: Report, url: str) -> None:
        """Report progress and the page's address from now on; the scheduler knows the user best."""
        self.info.user = scheduler.user or self.info.user
        self.info.queue = scheduler.queue or self.info.queue
        self._report_to, self._url = report, url

    def finish(self, at: float) -> None:
        """Note when the job ended; the scheduler gets the end itself by another way."""
        self.info.finished = at
        self._report_to = None

    def wall(self, at: float) -> float:
        """Convert the master's clock to seconds since the epoch."""
        return at + self._offset

    def changed(self) -> None:
        """Note that something changed that readers may see."""
        self.version += 1
        if not self._reporting and self._report_to is not None:
            self._reporting = True
            # The first change goes out soon, those after it once a second.
            self._reactor.call_later(REPORT_S if self._reported else 0.0, self._report)

    def view(self) -> Tuple[JobView, int]:
        """Return a snapshot, at most a second old, and the version that it shows."""
        now = self._reactor.now()
        least = min(1.0, self._tasks / 4000)
        if self._seen is None or (
            self._seen_version != self.version and now - self._seen_at >= least
        ):
            self._seen = view_job(
                self._state(), self.info, now, self.wall, self.series.latest, self.clean
            )
            self._seen_version = self.version
            self._seen_at = now
        return self._seen, self._seen_version

    def job(self) -> Dict[str, Any]:
        """``/api/job``."""
        return self.view()[0].to_page_json()

    def tasks(self) -> List[Dict[str, Any]]:
        """The tasks of ``/api/tasks``."""
        return [task.to_json() for task in self.view()[0].tasks]

    def encoded(self, name: str, make: Callable[[], Any]) -> Tuple[bytes, int]:
        """Return an answer as JSON, encoded once for each version."""
        _, version = self.view()
        known = self._encoded.get(name)
        if known is None or known[0] != version:
            known = (version, json.dumps(make(), separators=(",", ":"), default=str).encode())
            self._encoded[name] = known
        return known[1], version

    def add_measures(self, task: str, values: Mapping[str, float]) -> None:
        """Add what an executor measured of a task now."""
        self.series.add(task, self.wall(self._reactor.now()), values)
        self.changed()

    def add_exit_code(self, key: Tuple[str, int, str], exit_code: int) -> None:
        """Keep the exit code that an executor reported, by task, session and container."""
        self.info.ends[key] = exit_code

    def trouble(self, text: str) -> None:
        """Show a problem around the job on its page; an empty text removes it."""
        self.info.trouble = text
        self.changed()

    def link(self, name: str, url: Optional[str]) -> None:
        if url is None:
            self.info.links.pop(name, None)
        else:
            self.info.links[name] = url
        self.changed()

    # ------------------------------------------------------------------ history

    def summarise(self, final: bool = False, at_once: bool = False) -> None:
        """Replace the history's summary, now or after a pause unless ``final`` or ``at_once``."""
        now = self._reactor.now()
        due = self._summarised + max(SUMMARY_S, self._tasks / TASKS_A_S)
        if not (final or at_once) and now < due:
            if self._later is None or not self._later.active:
                self._later = self._reactor.call_later(due - now, self.summarise)
            return
        self._summarised = now
        if self._later is not None:
            self._later.cancel()
        if final or at_once:
            self._seen = None
        self._history.summary(
            {"job": self.job(), "tasks": self.tasks(), "metrics": self.series.to_json()}
        )

    # ------------------------------------------------------------------ the scheduler

    def _report(self) -> None:
        self._reporting = False
        if self._report_to is None:
            return
        report = (round(progress_of(self._state()), 4), self._url)
        if report != self._reported:
            self._reported = report
            self._report_to(*report)


class Milestones:
    """Calls ``save`` once for each milestone of each session.

    The first launch and the first running program of a session are milestones: from then on users
    may ask for logs, so history must know the containers even if this master dies. ``save`` follows
    a moment later, so that it includes the rest of a gang.
    """

    def __init__(self, reactor: Reactor, save: Callable[[], None]) -> None:
        self._reactor = reactor
        self._save = save
        self._reached: Set[Tuple[int, str]] = set()

    def mark(self, session: int, milestone: str) -> None:
        """Note a milestone, perhaps not for the first time in this session."""
        if (session, milestone) not in self._reached:
            self._reached.add((session, milestone))
            self._reactor.call_later(MILESTONE_S, self._save)
