"""From the session machine's snapshot to everything that shows it.

A snapshot is taken only when somebody looks and something has changed, and for a job of
thousands of tasks at most once a second. The scheduler hears of progress at most once a
second as well; history gets its summary at the start, when a session's first containers and
programs are started, at decisions (at most one in some seconds while it runs, of ten thousand tasks
one in fifty) and at the end.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from tony_core.history.series import SeriesStore
from tony_core.history.store import HistoryWriter
from tony_core.master.view import Clean, JobInfo, progress_of, view_job
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.port import PoolInfo
from tony_core.view import JobView

if TYPE_CHECKING:
    from tony_core.master.session.state import State

Report = Callable[[float, str], None]

REPORT_S = 1.0
SUMMARY_S = 5.0
SUMMARISED_A_S = 200  # tasks, at most and on average: each costs a tenth of a millisecond


class Publisher:
    """What the page shows, history keeps and the scheduler is told."""

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

    def stop_reporting(self) -> None:
        """Report no more: the job's end follows on another way."""
        self._report_to = None

    def wall(self, at: float) -> float:
        """The master's clock as seconds since the epoch."""
        return at + self._offset

    def changed(self) -> None:
        """Something a reader may see is different now."""
        self.version += 1
        if not self._reporting and self._report_to is not None:
            self._reporting = True
            # The first change goes out soon, those after it once a second.
            self._reactor.call_later(REPORT_S if self._reported else 0.0, self._report)

    def view(self) -> Tuple[JobView, int]:
        """The newest snapshot worth taking, and the version it shows."""
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
        """An answer as bytes, made once for each version."""
        _, version = self.view()
        known = self._encoded.get(name)
        if known is None or known[0] != version:
            known = (version, json.dumps(make(), separators=(",", ":"), default=str).encode())
            self._encoded[name] = known
        return known[1], version

    def trouble(self, text: str) -> None:
        """What is wrong around the job for as long as it lasts; empty when it is over."""
        self.info.trouble = text
        self.changed()

    def link(self, name: str, url: Optional[str]) -> None:
        """Add a link, or take it away."""
        if url is None:
            self.info.links.pop(name, None)
        else:
            self.info.links[name] = url
        self.changed()

    # ------------------------------------------------------------------ history

    def summarise(self, final: bool = False, at_once: bool = False) -> None:
        """Replace the history's summary; soon again only at a milestone or the end."""
        now = self._reactor.now()
        due = self._summarised + max(SUMMARY_S, self._tasks / SUMMARISED_A_S)
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
