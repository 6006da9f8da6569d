"""What a job's tasks write, for the log of the workflow task that waits for the job.

A workflow engine keeps its logs for long, and people read them. So each read takes only the last
lines of what is new, and a job as a whole gets no more than :data:`MOST_LINES`. The position is
plain data, which a trigger passes to the task that it resumes. A log that cannot be read now is no
error: the last lines of every task follow when the job has ended (:mod:`tony_core.client.tails`).
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Tuple

from tony_core.client.errors import ClientError
from tony_core.client.logs import STREAMS, Line
from tony_core.client.tails import Tails, readable
from tony_core.client.workflow.results import CHIEFS, TAIL_LINES, failed_task, failed_task_tail
from tony_core.job.mask import KnownSecrets
from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState, LogReader, LogRef, SchedulerError
from tony_core.view import MASTER, JobView, TaskView

MOST_LINES = 10_000  # of a job
READ_LINES = 100  # of a stream, by one read
READ_BYTES = 1 << 16
_LINES = "lines"
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_ERRORS = (SchedulerError, ClientError, OSError)

Position = Mapping[str, int]
"""The byte up to which each of the chief's logs was read, and the number of lines."""


def chief_of(view: JobView) -> Optional[TaskView]:
    """The task whose output is followed; None while the job has no tasks."""
    tasks = {task.task: task for task in view.tasks if task.task != MASTER}
    tracked = [task for task in tasks.values() if task.tracking == "tracked"]
    for name in CHIEFS:
        if name in tasks:
            return tasks[name]
    return next(iter(tracked or tasks.values()), None)


def parse_position(data: Any) -> Dict[str, int]:
    """The position in a trigger's event; empty for one that is damaged."""
    if not isinstance(data, dict):
        return {}
    return {str(key): int(at) for key, at in data.items() if is_number(at) and at >= 0}


def is_complete(view: JobView, position: Position) -> bool:
    """Whether the chief's output was read to its end."""
    chief = chief_of(view)
    refs = chief.log_refs() if chief is not None else ()
    seen = refs and any(_key(refs[-1], name) in position for name in STREAMS["both"])
    return bool(seen) and position.get(_LINES, 0) < MOST_LINES


def read_output(
    reader: LogReader,
    view: JobView,
    position: Position,
    last: bool = False,
    secrets: Iterable[str] = (),
) -> Tuple[List[str], Dict[str, int]]:
    """Read the chief's new lines; they, and the new position.

    With ``last`` the text after the last line end counts as a line too.
    """
    known = KnownSecrets(secrets)
    found: List[str] = []
    reached = dict(position)
    chief = chief_of(view)
    if chief is None or reached.get(_LINES, 0) >= MOST_LINES:
        return found, reached
    for ref in chief.log_refs():
        for name in STREAMS["both"]:
            try:
                lines = _read(reader, view.app_id, ref, name, reached, last, known)
            except (SchedulerError, OSError):
                continue
            label = chief.task if name == "stdout" else f"{chief.task} {name}"
            found += [f"[{label}] {line}" for line in lines]
    left = MOST_LINES - reached.get(_LINES, 0)
    reached[_LINES] = reached.get(_LINES, 0) + len(found)
    if len(found) >= left:
        found = found[:left]
        found.append(f"[{chief.task}] this log stops here, after {MOST_LINES} lines of its output")
    return found, reached


def _read(
    reader: LogReader,
    app_id: str,
    ref: LogRef,
    name: str,
    reached: Dict[str, int],
    last: bool,
    secrets: KnownSecrets,
) -> List[str]:
    key = _key(ref, name)
    begin = reached.get(key, 0)
    size = reader.log_size(app_id, ref, name)
    skipped = size is not None and size - begin > READ_BYTES
    if skipped and size is not None:
        begin = size - READ_BYTES
    data = reader.read_log(app_id, ref, name, begin, READ_BYTES)
    if not data:
        return []
    end = data.rfind(b"\n") + 1
    if last or (not end and len(data) >= READ_BYTES):  # a progress bar is one endless line
        end = len(data)
    reached[key] = begin + end
    texts = data[:end].decode("utf-8", "replace").split("\n")
    if not texts[-1]:
        texts.pop()
    if skipped:
        del texts[:1]  # most often its beginning was skipped
    if skipped or len(texts) > READ_LINES:
        texts = ["... (lines left out)", *texts[-READ_LINES:]]
    return [without_control(readable(text, secrets), secrets) for text in texts]


def without_control(text: str, secrets: KnownSecrets) -> str:
    """A line without control characters, masked once more: they may have split a secret."""
    plain = _CONTROL.sub("", text)
    return text if plain == text else secrets.mask(plain)


def _key(ref: LogRef, name: str) -> str:
    return f"{ref.container_id}/{name}"


class LogSource(Protocol):
    """A client of the job's scheduler, as far as an :class:`OutputReader` needs it."""

    @property
    def secrets(self) -> Iterable[str]:
        """The texts to mask in all that it reads."""

    def output(
        self, view: JobView, position: Position, last: bool = False
    ) -> Tuple[List[str], Dict[str, int]]:
        """The chief's new lines, and the new position."""

    def tails(self, view: JobView) -> Tails:
        """The last lines of every task."""

    def logs(self, app_id: str, tasks: Any, stream: Any, tail: Any) -> Iterator[Line]:
        """The lines of some tasks' logs."""


class OutputReader:
    """Reads what one job's tasks write; an error of the cluster costs lines and nothing else."""

    def __init__(self, source: LogSource) -> None:
        self.position: Dict[str, int] = {}  # in the chief's output
        self._source = source

    def new_lines(self, view: JobView, last: bool = False) -> List[str]:
        """The chief's lines since the last call; none if they cannot be read now."""
        try:
            lines, self.position = self._source.output(view, self.position, last)
        except _ERRORS:
            return []
        return list(lines)

    def last_lines(self, view: JobView, follow: bool = True) -> List[str]:
        """The rest of the chief's output, and the last lines of every other task.

        Without ``follow`` the chief counts as one of the others, since it is not known how much of
        its output the log already has.
        """
        found = self.new_lines(view, last=True) if follow else []
        chief = chief_of(view)
        if chief is not None and is_complete(view, self.position):
            view = view._replace(tasks=tuple(task for task in view.tasks if task != chief))
        try:
            lines = self._source.tails(view).text(view.app_id)
        except _ERRORS as error:
            lines = [unreadable(view.app_id, error)]
        known = KnownSecrets(self._source.secrets)
        return found + [without_control(line, known) for line in lines]

    def failure_tail(self, view: JobView) -> List[str]:
        """The last lines of the failed task's stderr, where its master did not report them."""
        task = failed_task(view)
        if failed_task_tail(view) or not task or view.state is not AppState.FAILED:
            return []
        try:
            lines = self._source.logs(view.app_id, tasks=[task], stream="stderr", tail=TAIL_LINES)
            return [line.text for line in lines]
        except _ERRORS:
            return []  # the caller reports the failure itself


def unreadable(app_id: str, error: BaseException) -> str:
    """The line for a job whose logs cannot be read."""
    return f"the logs of its tasks cannot be read ({error}): tony logs {app_id}"
