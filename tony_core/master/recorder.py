"""Keeps the job's history up to date while it runs.

Readers of history need no master, and may come after this one was killed. So what happens reaches
history within :data:`LOCAL_S` where files can grow, and :data:`REMOTE_S` where whole files are put,
the time of the writing not counted: the story's lines, the points that the metric series take, and
what has changed of job and tasks since the last summary. Of thousands of tasks it takes
longer, as with the page.

A summary of all tasks is dear (some 50 microseconds for each of them), so it is written at the
start, at milestones (:class:`Milestones`), at decisions (at most one in some seconds), at the end,
and when the changes since the last one have grown larger than it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from tony_core.history.live_changes import encode_changes
from tony_core.history.metric_log import encode_points
from tony_core.history.metric_series import Kept, SeriesStore
from tony_core.history.store import HistoryWriter
from tony_core.master.session.records import TaskRecord
from tony_core.master.view import Clean, JobInfo, view_head, view_task
from tony_core.protocol.reactor import Reactor, Timer

if TYPE_CHECKING:
    from tony_core.master.session.state import State

LOCAL_S = 0.5
REMOTE_S = 5.0
TASKS_A_S_LIVE = 4000  # looked at for changes
SUMMARY_S = 5.0  # between two summaries at decisions
TASKS_A_S = 200  # summarised on average
RENEWED_S = 60.0  # after which a summary is written anew if anything has changed
LEAST_LIVE_BYTES = 256 * 1024
MILESTONE_S = 0.1  # for the rest of a gang to get as far

Mark = Tuple[Any, ...]


class Recorder:
    """Writes the history of a job that runs; on the master's reactor."""

    def __init__(
        self,
        reactor: Reactor,
        tasks: int,
        info: JobInfo,
        state: Callable[[], State],
        history: HistoryWriter,
        series: SeriesStore,
        wall: Callable[[float], float],
        clean: Clean,
    ) -> None:
        self._reactor = reactor
        self._tasks = tasks
        self._info = info
        self._state = state
        self._history = history
        self._series = series
        self._wall = wall
        self._clean = clean
        self._timer: Optional[Timer] = None
        self._later: Optional[Timer] = None
        self._summarised = -math.inf
        self._summary_bytes = 0
        self._points: List[Tuple[str, Kept]] = []
        self._latest: Dict[str, Tuple[float, Dict[str, float]]] = {}
        self._marks: Dict[str, Mark] = {}  # by task: what of it history has
        self._head: Dict[str, Any] = {}  # of the job: what history has
        self._closed = False

    def changed(self) -> None:
        """Note that something changed that history should have soon."""
        if self._timer is None and not self._closed:
            pause = REMOTE_S if self._history.is_remote else LOCAL_S
            self._timer = self._reactor.call_later(
                max(pause, self._tasks / TASKS_A_S_LIVE), self._due
            )

    def add_points(self, task: str, kept: Kept) -> None:
        """Note what the metric series of a task took, and its newest values."""
        if kept.taken:
            self._points.append((task, kept))
        _, values = self._latest.get(task, (0.0, {}))
        values.update(kept.offered)
        self._latest[task] = (kept.at, values)

    def touch(self, task: str) -> None:
        """Note that a task has changed in what the session machine does not know."""
        self._marks.pop(task, None)

    def flush(self, sync: bool = False) -> None:
        """Hand over everything until now; with ``sync`` the story survives a power cut."""
        self._add_points()
        if self._summary_bytes:  # before the first summary there is nothing to change
            line = self._changes()
            if line:
                self._history.changes(line)
        self._history.flush(sync)

    def finish(self) -> None:
        """Write the job's end: nothing follows."""
        self._add_points()
        self._history.flush(sync=True)
        self._write_summary(final=True)
        self._closed = True
        if self._series.count:
            self._history.metrics(self._series.to_json())

    def summarise(self, at_once: bool = False) -> None:
        """Replace the summary, after a pause unless ``at_once``."""
        if self._closed:
            return
        now = self._reactor.now()
        due = self._summarised + max(SUMMARY_S, self._tasks / TASKS_A_S)
        if not at_once and now < due:
            if self._later is None or not self._later.active:
                self._later = self._reactor.call_later(due - now, self.summarise)
            return
        self._write_summary()

    def _write_summary(self, final: bool = False) -> None:
        self._summarised = self._reactor.now()
        if self._later is not None:
            self._later.cancel()
        state = self._state()
        tasks = [self._view(task) for task in state.tasks.values()]
        self._marks = {task.name: _mark(task) for task in state.tasks.values()}
        self._head = self._view_head()
        self._latest = {}
        counts: Dict[str, int] = {}
        for task in state.tasks.values():
            counts[task.state.value] = counts.get(task.state.value, 0) + 1
        data = {"job": {**self._head, "counts": counts}, "tasks": tasks}
        self._summary_bytes = self._history.summary(data, final)

    def _due(self) -> None:
        self._timer = None
        if self._closed:
            return
        self.flush()
        most = self._summary_bytes * (1 if self._history.is_remote else 2)
        too_large = self._history.live_bytes > max(LEAST_LIVE_BYTES, most)
        if too_large or self._reactor.now() > self._summarised + RENEWED_S:
            self.summarise(at_once=True)

    def _add_points(self) -> None:
        line = encode_points(self._points)
        if line:
            self._history.points(line)
        self._points = []

    def _changes(self) -> bytes:
        """What has changed since the summary, or since the line before; empty where nothing has."""
        tasks = []
        for task in self._state().tasks.values():
            mark = _mark(task)
            if self._marks.get(task.name) != mark:
                self._marks[task.name] = mark
                tasks.append(self._view(task))
        head = self._view_head()
        job = {name: value for name, value in head.items() if self._head.get(name) != value}
        self._head = head
        latest, self._latest = self._latest, {}
        return encode_changes(job, tasks, latest)

    def _view(self, task: TaskRecord) -> Mapping[str, Any]:
        now, measures = self._reactor.now(), self._series.latest(task.name)
        view = view_task(self._state(), task, self._info, now, self._wall, measures, self._clean)
        return view.to_json()

    def _view_head(self) -> Dict[str, Any]:
        head = view_head(self._state(), self._info, self._clean).to_page_json()
        del head["counts"]  # of the tasks, which a reader counts
        return head


def _mark(task: TaskRecord) -> Mark:
    """What differs when there is more to say of a task than new values of its metrics."""
    return (
        task.state, task.session, task.container, task.restarts, task.exit_code, task.pid,
        task.host, len(task.runs), len(task.reported), task.cause,
    )  # fmt: skip


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
