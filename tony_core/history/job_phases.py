"""From the lines of a story to a job's phases, sessions and markers; see timeline.py. Pure."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from tony_core.history.layout import StoryKind
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import (
    ENDS,
    FAILURES,
    LATEST,
    PAUSING,
    PREPARING,
    QUEUED,
    RUNNING,
    STAGING,
    STARTING,
    STOPPING,
    WAITING,
    Line,
    Marker,
    Session,
    Span,
)
from tony_core.jsontext import is_number

_MARKERS = frozenset(
    kind.value
    for kind in (
        StoryKind.TAKEOVER, StoryKind.ROOT_CAUSE, StoryKind.TASK_AGAIN, StoryKind.ELASTIC,
        StoryKind.ROUND, StoryKind.NODE_LOST, StoryKind.PREEMPTION_WARNED,
        StoryKind.ALLOCATION_TIMEOUT, StoryKind.CHIEF_DONE, StoryKind.TOKENS,
        StoryKind.PREEMPTION_WITHDRAWN, StoryKind.STALLED, StoryKind.STALL_OVER,
        StoryKind.STALL_LAG,
    )
)  # fmt: skip


class _Startup:
    """The way to a session's (or a stage's) first program."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.launched: Optional[float] = None  # the last container so far
        self.ready: Optional[float] = None
        self.is_requesting = False
        self.text = ""


class JobPhases:
    """Takes the lines of a story; makes the phases, the sessions and the markers."""

    def __init__(
        self, record: JobHistory, begin: float, end: float, is_over: bool, sidecars: Set[str]
    ) -> None:
        self._record, self._begin, self._end, self._is_over = record, begin, end, is_over
        self._sidecars = sidecars
        self._marks: List[Tuple[float, str, int, str]] = [(begin, QUEUED, -1, "")]
        self._session = -1
        self._startup: Optional[_Startup] = None
        self._running: Set[str] = set()
        self._failed: Dict[str, float] = {}
        self._has_stopped = False
        self.sessions: List[Session] = []
        self.markers: List[Marker] = []

    def take(self, line: Line) -> None:
        if line.kind in _MARKERS:
            text = line.text.split("\n", 1)[0]
            self.markers.append(Marker(line.at, line.kind, text, line.task))
        handler = _HANDLERS.get(line.kind)
        if handler is not None:
            handler(self, line)

    def finish(self) -> Tuple[Span, ...]:
        """The phases, from the job's begin to its end."""
        if self._startup is not None:
            self._end_startup(self._end)
        self._end_session(self._end)
        found: List[Span] = []
        ends = [mark[0] for mark in self._marks[1:]] + [self._end]
        for (at, kind, session, text), end in zip(self._marks, ends):
            if end <= at:
                continue
            before = found[-1] if found else None
            if before is not None and (before.kind, before.session) == (kind, session):
                found[-1] = before._replace(end=end, text=text or before.text)
            else:
                found.append(Span(kind, at, end, session, text))
        return tuple(found)

    # -------------------------------------------------------------- marks

    def _mark(self, at: float, kind: str, text: str = "") -> None:
        at = max(at, self._marks[-1][0])
        self._marks.append((at, kind, self._session, text))

    def _end_startup(self, until: float) -> None:
        startup, self._startup = self._startup, None
        assert startup is not None
        at = startup.begin
        if until >= self._end and not self._is_over:
            startup.launched = self._launched_so_far(startup)
        if startup.launched is not None or startup.is_requesting:
            self._mark(at, WAITING, startup.text)
            at = until if startup.launched is None else startup.launched
        if at < until:
            self._mark(at, STAGING)
        if startup.ready is not None and startup.ready < until:
            self._mark(startup.ready, STARTING)

    def _launched_so_far(self, startup: _Startup) -> Optional[float]:
        """When the last container came of a job that still starts; None while one is missing."""
        for task in self._record.tasks:
            if task.get("state") == "requested" and str(task.get("task")) not in self._sidecars:
                startup.is_requesting = True
                return None
        return startup.launched

    def _end_session(self, at: float, text: str = "") -> None:
        if self.sessions and self.sessions[-1].end == self._end:
            last = self.sessions[-1]
            self.sessions[-1] = last._replace(end=max(last.begin, at), text=last.text or text)

    # -------------------------------------------------------------- lines

    def _preprocess(self, line: Line) -> None:
        self._mark(line.at, PREPARING)

    def _begin_session(self, line: Line) -> None:
        if self._startup is not None:
            self._end_startup(line.at)
        self._end_session(line.at)
        self._session = line.session
        self.sessions.append(Session(line.session, line.at, self._end))
        self._running.clear()
        self._failed.clear()
        self._has_stopped = False
        self._startup = _Startup(line.at)

    def _begin_stage(self, line: Line) -> None:
        if self._startup is None and not self._running and not self._has_stopped:
            self._startup = _Startup(line.at)
        if self._startup is not None:
            self._startup.is_requesting = True

    def _wait(self, line: Line) -> None:
        if self._startup is not None:
            self._startup.text = line.text.split("\n", 1)[0]

    def _release_gang(self, line: Line) -> None:
        if self._startup is not None:
            self._startup.launched = self._startup.ready = None
            self._startup.is_requesting = True

    def _move_task(self, line: Line) -> None:
        state = line.fields.get("state")
        if line.task in self._sidecars or not isinstance(state, str):
            return
        if state == "launched":
            if self._startup is not None:
                self._startup.launched = line.at
        elif state == "running":
            self._running.add(line.task)
            if self._startup is not None:
                waited = line.fields.get("ready_s")
                if is_number(waited, LATEST):
                    self._startup.ready = max(self._startup.begin, line.at - max(0.0, waited))
                self._end_startup(line.at)
            if self._marks[-1][1] != RUNNING and not self._has_stopped:
                self._mark(line.at, RUNNING)
        elif state in ENDS:
            self._running.discard(line.task)
            if state in FAILURES:
                self._failed.setdefault(line.task, line.at)

    def _restart_task(self, line: Line) -> None:
        self._failed.pop(line.task, None)
        if self._startup is None and not self._running and line.task not in self._sidecars:
            self._startup = _Startup(line.at)

    def _stop(self, line: Line, since: Optional[float] = None, text: str = "") -> None:
        at = line.at if since is None else since
        if self._startup is not None:
            self._end_startup(at)
        if not self._has_stopped:
            self._mark(at, STOPPING, text)
        self._has_stopped = True

    def _name_cause(self, line: Line) -> None:
        text = line.text.split("\n", 1)[0]
        if self.sessions and self.sessions[-1].end == self._end:
            self.sessions[-1] = self.sessions[-1]._replace(text=text)
        self._stop(line, self._failed.get(line.task), text)

    def _begin_round(self, line: Line) -> None:
        self._stop(line, min(self._failed.values(), default=None))
        text = line.text.split("\n", 1)[0]
        if self.sessions and self.sessions[-1].end == self._end:
            self.sessions[-1] = self.sessions[-1]._replace(text=text)

    def _end_work(self, line: Line) -> None:
        self._stop(line)

    def _pause(self, line: Line) -> None:
        self._stop(line)
        self._mark(line.at, PAUSING)


_HANDLERS = {
    StoryKind.PREPROCESS.value: JobPhases._preprocess,
    StoryKind.SESSION_STARTED.value: JobPhases._begin_session,
    StoryKind.WAVE_BEGUN.value: JobPhases._begin_stage,
    StoryKind.WAITING.value: JobPhases._wait,
    StoryKind.ALLOCATION_TIMEOUT.value: JobPhases._release_gang,
    StoryKind.TASK_STATE.value: JobPhases._move_task,
    StoryKind.TASK_AGAIN.value: JobPhases._restart_task,
    StoryKind.ROOT_CAUSE.value: JobPhases._name_cause,
    StoryKind.RESTARTING.value: JobPhases._end_work,
    StoryKind.ROUND.value: JobPhases._begin_round,
    StoryKind.CHIEF_DONE.value: JobPhases._end_work,
    StoryKind.ENDING.value: JobPhases._end_work,
    StoryKind.BACKOFF.value: JobPhases._pause,
}
