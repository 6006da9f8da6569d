"""From the session machine to everything that shows the job: page, history, scheduler.

A snapshot is taken only when a reader asks and something has changed; of a job with thousands of
tasks at most once a second. The scheduler gets progress at most once a second as well. History has
a :class:`~tony_core.master.recorder.Recorder`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from tony_core.history.metric_series import SeriesStore
from tony_core.history.store import HistoryWriter
from tony_core.master.recorder import Recorder
from tony_core.master.view import Clean, JobInfo, progress_of, trouble_of, view_job
from tony_core.measures import STEP, STEPS_PER_SECOND
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import PoolInfo
from tony_core.view import JobView

if TYPE_CHECKING:
    from tony_core.master.session.state import State

Report = Callable[[float, str, str], None]

REPORT_S = 1.0
EXPOSED_S = 1.0  # how old the text for Prometheus may be
RATE_S = 60.0  # the time over which steps are counted


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
        series: Optional[SeriesStore] = None,
    ) -> None:
        self._reactor = reactor
        self.info = info
        self._state = state
        self.clean = clean
        self.series = series or SeriesStore()  # a next master goes on with the previous one's
        self.recorder = Recorder(
            reactor, tasks, info, state, history, self.series, self.wall, clean
        )
        self.version = 0  # grows with every change
        self._seen: Optional[JobView] = None
        self._seen_version = -1
        self._seen_at = 0.0
        self._encoded: Dict[str, Tuple[int, bytes]] = {}
        self._exposition: Tuple[float, bytes] = (-math.inf, b"")
        self._offset = offset  # from the master's clock to seconds since the epoch
        self._reported: Optional[Tuple[float, str, str]] = None
        self._reporting = False
        self._tasks = tasks
        self._report_to: Optional[Report] = None  # once the scheduler has taken the master
        self._url = ""

    def start_reporting(self, scheduler: PoolInfo, report: Report, url: str) -> None:
        """Report progress, the page's address and trouble from now on; the user is the pool's."""
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
        self.recorder.changed()
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
                self._state(), self.info, now, self.wall, self._measures, self.clean
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

    def exposition(self) -> bytes:
        """Return the job's figures for Prometheus, made at most once a second."""
        from tony_core.prometheus import write_job  # most jobs are never asked for it

        now = self._reactor.now()
        if now - self._exposition[0] >= EXPOSED_S:
            self._exposition = (now, write_job(self.view()[0], self.wall(now)))
        return self._exposition[1]

    def _measures(self, task: str) -> Dict[str, float]:
        """The newest measures of a task, with the speed of its steps."""
        found = self.series.latest(task)
        if STEP in found:
            steps = self.series.series(task, STEP)
            rate = steps.rate(self.wall(self._reactor.now()), RATE_S)
            if rate is not None:
                found[STEPS_PER_SECOND] = round(rate, 6)
        return found

    def add_measures(self, task: str, values: Mapping[str, float]) -> None:
        """Add what an executor measured of a task now."""
        kept = self.series.add(task, self.wall(self._reactor.now()), values)
        self.recorder.add_points(task, kept)
        self.changed()

    def add_exit_code(self, key: Tuple[str, int, str], exit_code: int) -> None:
        """Keep the exit code that an executor reported, by task, session and container."""
        self.info.ends[key] = exit_code
        self.recorder.touch(key[0])

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

    # ------------------------------------------------------------------ the scheduler

    def _report(self) -> None:
        self._reporting = False
        if self._report_to is None:
            return
        state = self._state()
        report = (round(progress_of(state), 4), self._url, trouble_of(state, self.info, self.clean))
        if report != self._reported:
            self._reported = report
            self._report_to(*report)
