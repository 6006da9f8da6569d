"""From the lines of a story to a bar for each task; see timeline.py. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from tony_core.history.layout import StoryKind
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import (
    ENDS,
    LATEST,
    READY,
    RUNNING,
    STAGING,
    WAITING,
    Bar,
    Line,
    Span,
    seconds,
)
from tony_core.jsontext import is_number


class _Task:
    """What is known of one task so far."""

    def __init__(self, name: str, role: str) -> None:
        self.name, self.role = name, role
        self.spans: List[Span] = []
        self.waits: Optional[float] = None
        self.open: Optional[Span] = None
        self.held: Optional[float] = None  # since when it has its container
        self.held_until = 0.0
        self.held_s = 0.0

    def close(self, at: float, text: str = "") -> None:
        """End the span that is open."""
        if self.open is not None:
            end = max(self.open.begin, at)
            self.spans.append(self.open._replace(end=end, text=text))
            self.open = None
        self.waits = None

    def release(self) -> None:
        """Count the container that it had."""
        if self.held is not None:
            self.held_s += max(0.0, self.held_until - self.held)
        self.held = None


class TaskBars:
    """Takes the lines of a story; makes the bars."""

    def __init__(
        self, record: JobHistory, begin: float, end: float, is_over: bool, sidecars: Set[str]
    ) -> None:
        self._record, self._begin, self._end, self._is_over = record, begin, end, is_over
        self._sidecars = sidecars
        self._began = begin  # the newest session
        self._tasks: Dict[str, _Task] = {}
        self._asked: Dict[str, float] = {}  # role -> when containers for it were last requested
        for task in record.tasks:
            self._task(str(task.get("task")), str(task.get("role") or ""))

    def take(self, line: Line) -> None:
        if line.kind == StoryKind.TASK_STATE.value and line.task:
            self._move(self._task(line.task), line)
        elif line.kind == StoryKind.WAVE_BEGUN.value:
            roles = line.fields.get("roles")
            for role in roles if isinstance(roles, (list, tuple)) else ():
                self._asked[str(role)] = line.at
        elif line.kind == StoryKind.ELASTIC.value and line.fields.get("role"):
            self._asked[str(line.fields["role"])] = line.at
        elif line.kind == StoryKind.TASK_AGAIN.value and line.task:
            task = self._task(line.task)
            task.waits = line.at
        elif line.kind == StoryKind.ALLOCATION_TIMEOUT.value:
            self._release_gang(line.at)
        elif line.kind == StoryKind.SESSION_STARTED.value:
            self._begin_session(line)

    def _task(self, name: str, role: str = "") -> _Task:
        found = self._tasks.get(name)
        if found is None:
            found = self._tasks[name] = _Task(name, role or name.rpartition(":")[0])
        return found

    def _move(self, task: _Task, line: Line) -> None:
        state = line.fields.get("state")
        node = line.fields.get("node")
        node = node if isinstance(node, str) else ""
        at = line.at
        if state == "launched":
            waits = task.waits or 0.0
            task.close(at)  # where no line has its end
            since = max(
                self._asked.get(task.role, at), waits, task.spans[-1].end if task.spans else 0.0
            )
            if since < at:
                task.spans.append(Span(WAITING, since, at, line.session))
            task.release()
            task.held = at
            task.open = Span(STAGING, at, at, line.session, "", node)
        elif state == "running":
            self._run(task, line, node)
        elif state in ENDS:
            task.close(at, str(state))
        task.held_until = at

    def _run(self, task: _Task, line: Line, node: str) -> None:
        if task.open is not None and (task.open.kind, task.open.session) == (RUNNING, line.session):
            return  # taken over by a next master: it went on
        at, waited = line.at, line.fields.get("ready_s")
        if task.open is None and task.held is not None and self._began > task.held_until:
            # In the container of its last session, so nothing was launched.
            task.open = Span(STAGING, self._began, at, line.session, "", node)
        if is_number(waited, LATEST) and task.open is not None:
            ready = max(at - max(0.0, waited), task.open.begin)
            task.close(ready)
            if ready < at:
                task.spans.append(Span(READY, ready, at, line.session, "", node))
        task.close(at)
        task.open = Span(RUNNING, at, at, line.session, "", node)
        if task.held is None:
            task.held = at  # its launch is not in the story

    def _begin_session(self, line: Line) -> None:
        """End what no line ended: its master died before it could write one."""
        self._began = line.at
        for task in self._tasks.values():
            is_old = task.open is not None and task.open.session < line.session
            if is_old and task.name not in self._sidecars:
                task.close(line.at)
                task.held_until = line.at

    def _release_gang(self, at: float) -> None:
        for task in self._tasks.values():
            if task.open is not None and task.open.kind == STAGING:
                task.close(at, "released")
                task.held_until = at
                task.release()

    def finish(self) -> Tuple[Bar, ...]:
        """The bars, in the order of the job's tasks."""
        records = {str(task.get("task")): task for task in self._record.tasks}
        return tuple(
            self._bar(task, records.get(task.name, {}), task.name in self._sidecars)
            for task in self._tasks.values()
        )

    def _bar(self, task: _Task, record: Mapping[str, Any], is_sidecar: bool) -> Bar:
        goes_on = not self._is_over and record.get("state") not in ENDS
        if not task.spans and task.open is None:
            self._use_record(task, record)
        if task.open is not None:
            ended = seconds(record.get("ended"))
            until = self._end if goes_on or not ended else min(ended, self._end)
            task.held_until = max(task.held_until, until)
            state = record.get("state")
            task.close(until, str(state) if state in ENDS else "")
        elif goes_on and record.get("state") == "requested":
            since = max(
                self._asked.get(task.role, self._end), task.spans[-1].end if task.spans else 0.0
            )
            if since < self._end:
                task.spans.append(Span(WAITING, since, self._end))
        task.release()
        spans = tuple(span for span in task.spans if span.end > span.begin or span.text)
        running = sum(span.end - span.begin for span in spans if span.kind == RUNNING)
        return Bar(task.name, task.role, is_sidecar, spans, task.held_s, running)

    def _use_record(self, task: _Task, record: Mapping[str, Any]) -> None:
        """A task of which the story has nothing: its last run, as the summary has it."""
        started = seconds(record.get("started"))
        if started:
            at = min(max(started, self._begin), self._end)
            session = record.get("session")
            number = session if isinstance(session, int) else -1
            task.open = Span(RUNNING, at, at, number, "", str(record.get("node") or ""))
            task.held = at
