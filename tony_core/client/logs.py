"""Every line that the tasks of an application wrote, once each, across restarts.

Theory of operation
===================

A container's log files only grow: a session that reuses the container appends to them, one
that does not brings new containers with files of their own. So what has been read is known
by *(container, file)* and a byte offset, and nothing else: whichever session, master or
task a line came from, it is read once. Containers are found in the tasks' runs, which name
all of them, those of earlier sessions included; one that is found late is read from its
beginning. A line is passed on when its end was read; what has no end of line is passed on when
nothing more can come. When the application has ended, everything is read once more to the
end before that is believed.

Which bytes of a file are which session's stands in the runs too (``offsets``), so that one
session can be shown alone. A later session's run is named before its program may write, so
one that is followed ends where the next begins.

The last lines are found by reading backwards from the file's end; where the scheduler cannot
say how long a file is, its end is searched for first (doubling, then halving).
"""

from __future__ import annotations

import codecs
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tony_core.client.errors import UsageError
from tony_core.client.lookup import (
    await_end,
    explain_unknown,
    final_view,
    require_view,
    view_of,
)
from tony_core.client.page_reader import PollInterval
from tony_core.schedulers.port import LogRef, Scheduler, SchedulerError
from tony_core.view import MASTER, JobView, LogPart, TaskView, names_task

STREAMS = {
    "stdout": ("stdout",),
    "stderr": ("stderr",),
    "both": ("stdout", "stderr"),
    # Its own log, and what its process wrote before it had one, where the scheduler keeps that.
    "executor": ("executor.log", "executor.stdout", "executor.stderr"),
}
CHUNK = 1 << 18
LONGEST_LINE = 1 << 16  # a line without an end is passed on in pieces of this size
LOOKS = 20  # containers whose files the message about an unknown file names
VIEW_S = 1.0  # how often new containers are looked for


class Line(NamedTuple):
    """One line, without its end."""

    task: str
    stream: str
    text: str
    container: str = ""


class LogFile:
    """One file of one container, read forward."""

    def __init__(
        self, scheduler: Scheduler, app_id: str, ref: LogRef, name: str, begin: int = 0
    ) -> None:
        self._scheduler = scheduler
        self._app_id = app_id
        self.ref = ref
        self.name = name
        self.offset = self.begin = begin
        self.end: Optional[int] = None  # what follows is another session's
        self.waits = False  # whose the next bytes are is not known yet
        self.problem: Optional[str] = None
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def lines(self) -> Iterator[str]:
        """The whole lines that are there now; piece by piece, the file may be huge."""
        while not self.done:
            left = CHUNK if self.end is None else self.end - self.offset
            data = self._bytes(self.offset, min(CHUNK, left))
            if not data:
                return
            self.offset += len(data)
            whole = (self._rest + self._decoder.decode(data)).split("\n")
            self._rest = whole.pop()
            for line in whole:
                yield line[:-1] if line.endswith("\r") else line
            while len(self._rest) > LONGEST_LINE:
                yield self._rest[:LONGEST_LINE]
                self._rest = self._rest[LONGEST_LINE:]

    @property
    def done(self) -> bool:
        """Whether it is read to the end of its part."""
        return self.end is not None and self.offset >= self.end

    def rest(self) -> Iterator[str]:
        """What has no end of line, when nothing more can come."""
        text = self._rest + self._decoder.decode(b"", final=True)
        self._rest = ""
        if text:
            yield text

    def skip_to_last(self, count: int, most: Optional[int] = None) -> None:
        """Go to where the last ``count`` lines begin, or ``most`` bytes before the end.

        With ``most`` no more than that is read: a file may grow faster than it is.
        """
        end = self._size() if self.end is None else self.end
        self._skip(count, most, end)
        if most is not None and self.end is None:
            self.end = self.offset + most

    def _skip(self, count: int, most: Optional[int], end: int) -> None:
        least = self.begin if most is None else max(self.begin, end - most)
        begin = end
        newlines = 0
        while begin > least:
            step = min(CHUNK, begin - least)
            data = self._bytes(begin - step, step)
            if not data:
                break
            if begin == end and data.endswith(b"\n"):
                newlines -= 1  # the end of the last line begins none
            at = len(data)
            while newlines < count:
                at = data.rfind(b"\n", 0, at)
                if at < 0:
                    break
                newlines += 1
            if newlines >= count:
                self.offset = begin - step + at + 1
                return
            begin -= step
        self.offset = least if count > 0 else end

    def _size(self) -> int:
        try:
            size = self._scheduler.log_reader.log_size(self._app_id, self.ref, self.name)
        except SchedulerError as error:
            self.problem = str(error)
            return 0
        return self._search_size() if size is None else size

    def _search_size(self) -> int:
        if not self._bytes(0, 1):
            return 0
        known, beyond = 1, 2  # a byte exists before `known`; none at `beyond`, once found
        while self._bytes(beyond - 1, 1):
            known, beyond = beyond, beyond * 2
        while known + 1 < beyond:
            middle = (known + beyond) // 2
            if self._bytes(middle - 1, 1):
                known = middle
            else:
                beyond = middle
        return known

    def _bytes(self, offset: int, limit: int) -> bytes:
        try:
            logs = self._scheduler.log_reader
            data = logs.read_log(self._app_id, self.ref, self.name, offset, limit)
        except SchedulerError as error:
            self.problem = str(error)
            return b""
        self.problem = None
        return data


class TaskLogReader:
    """The chosen files of an application's tasks, as they come to be known."""

    def __init__(
        self,
        scheduler: Scheduler,
        app_id: str,
        *,
        tasks: Sequence[str] = (),
        stream: str = "both",
        session: Optional[int] = None,
        tail: Optional[int] = None,
    ) -> None:
        self._scheduler = scheduler
        self._app_id = app_id
        self._tasks = tuple(tasks)
        self._stream = stream
        self._names = STREAMS.get(stream, (stream,))
        self.session = session
        self._tail = tail
        self._files: Dict[Tuple[str, str], LogFile] = {}
        self._task: Dict[str, str] = {}  # container -> whose it is now
        self._first = True
        self._masters: Optional[str] = None  # why their logs cannot be listed

    def update(self, view: JobView) -> None:
        """Take the tasks and containers of a view; UsageError for an unknown task."""
        if MASTER in self._tasks:
            self._add_master()
        # Where only the scheduler knows them, the masters are tasks too: of a job that has no
        # page yet (its tasks are still to come), or of one that ended without any history.
        hidden = MASTER in self._tasks or not view.state.ended
        tasks = [task for task in view.tasks if not (hidden and task.task == MASTER)]
        if not tasks:
            return
        self._check(tasks)
        for task in tasks:
            if not self._wants(task):
                continue
            for ref in task.log_refs():
                for name in self._names:
                    part: Optional[LogPart] = LogPart()
                    if self.session is not None:
                        part = task.part_of(ref.container_id, name, self.session)
                    if part is not None:
                        self._task[ref.container_id] = task.task
                        self._add(ref, name, part)
        self._first = False

    def read(self, last: bool = False) -> Iterator[Line]:
        """The new lines; ``last``: those without an end too."""
        for (container, name), file in self._files.items():
            task = self._task[container]
            if last or not file.waits:
                for text in file.lines():
                    yield Line(task, name, text, container)
            if last or file.done:
                for text in file.rest():
                    yield Line(task, name, text, container)

    def check_session(self, view: JobView) -> None:
        """Check that the job has had the session that was asked for."""
        known = {run.session for task in view.tasks for run in task.runs}
        known |= {task.session for task in view.tasks}
        known.discard(-1)
        if self.session is None or self.session in known or not known:
            return
        first, last = min(known), max(known)
        there = f"session {first}" if first == last else f"sessions {first} to {last}"
        so_far = "" if view.state.ended else " so far"
        raise UsageError(f"there is no session {self.session}: the job has had {there}{so_far}")

    def check_stream(self, view: JobView) -> None:
        """Check that a file that was asked for by name exists, when nothing of it was read."""
        if self._stream in STREAMS or any(file.offset for file in self._files.values()):
            return
        there = set()
        refs = [ref for task in view.tasks if self._wants(task) for ref in task.log_refs()]
        for ref in refs[:LOOKS]:
            try:
                there.update(self._scheduler.log_reader.list_logs(self._app_id, ref))
            except SchedulerError:
                return  # its files cannot be listed
        if there and self._stream not in there:
            raise UsageError(
                f"there is no stream or file {self._stream!r}; expected {', '.join(STREAMS)}, or"
                f" one of these files: {', '.join(sorted(there))}"
            )

    @property
    def problems(self) -> List[str]:
        """What could not be read just now, and why."""
        found = [
            f"{file.name} of {self._task[container]} ({container}): {file.problem}"
            for (container, _), file in self._files.items()
            if file.problem
        ]
        if self._masters is not None:
            found.append(f"the master's: {self._masters}")
        return list(dict.fromkeys(found))

    def _add_master(self) -> None:
        """The master's own files: one pair of each attempt, in no container of the job's."""
        ref = LogRef("")
        self._task[ref.container_id] = MASTER
        self._masters = None
        try:
            names = self._scheduler.log_reader.list_logs(self._app_id, ref)
        except SchedulerError as error:
            self._masters = str(error)  # it may just be starting
            return
        for name in names:
            if name.rpartition(".")[2] in self._names or name in self._names:
                self._add(ref, name, LogPart())

    def _add(self, ref: LogRef, name: str, part: LogPart) -> None:
        known = self._files.get((ref.container_id, name))
        if known is not None:
            known.end, known.waits = part.end, part.next_is_near
            return
        file = LogFile(self._scheduler, self._app_id, ref, name, part.begin)
        file.end, file.waits = part.end, part.next_is_near
        if self._tail is not None and self._first:
            file.skip_to_last(self._tail)
        self._files[ref.container_id, name] = file

    def _wants(self, task: TaskView) -> bool:
        return not self._tasks or any(names_task(name, task.task) for name in self._tasks)

    def _check(self, tasks: Sequence[TaskView]) -> None:
        for name in self._tasks:
            if name != MASTER and not any(names_task(name, task.task) for task in tasks):
                roles = ", ".join(dict.fromkeys(task.role for task in tasks))
                raise UsageError(
                    f"there is no task {name!r}; expected a role ({roles}), a task such as"
                    f" {tasks[0].task}, or {MASTER} for the job's master"
                )


def read_logs(
    scheduler: Scheduler,
    app_id: str,
    *,
    tasks: Sequence[str] = (),
    stream: str = "both",
    session: Optional[int] = None,
    tail: Optional[int] = None,
    follow: bool = False,
    history: Optional[str] = None,
    problems: Optional[List[str]] = None,
) -> Iterator[Line]:
    """The lines of an application's logs; with ``follow`` until it ends.

    ``problems`` gets what could not be read in the end.
    """
    reader = TaskLogReader(
        scheduler, app_id, tasks=tasks, stream=stream, session=session, tail=tail
    )
    status = scheduler.status(app_id)
    require_view(status)
    if not follow or status.state.ended:
        view = view_of(scheduler, status, history=history)
        reader.update(view)
        reader.check_session(view)
        yield from reader.read(last=True)
        reader.check_stream(view)
        if problems is not None:
            problems.extend(filter(None, [explain_unknown(scheduler, view, history)]))
    else:
        yield from _follow(scheduler, app_id, reader, history)
    if problems is not None:
        problems.extend(reader.problems)


def _follow(
    scheduler: Scheduler, app_id: str, reader: TaskLogReader, history: Optional[str]
) -> Iterator[Line]:
    interval, look = PollInterval(), PollInterval(least_s=VIEW_S / 4, most_s=VIEW_S * 10, share=0.2)
    next_look = 0.0
    while True:
        began = time.monotonic()
        status = scheduler.status(app_id)
        if status.state.ended:
            # What was written since the last reading, and in containers never seen.
            record, _ = await_end(scheduler, app_id, history=history)
            view = final_view(scheduler, status, record)
            reader.update(view)
            yield from reader.read(last=True)
            reader.check_session(view)  # it might have begun
            reader.check_stream(view)
            return
        # Look right before, to know which session wrote the bytes that are read next.
        if began >= next_look or reader.session is not None:
            reader.update(view_of(scheduler, status, history=history))
            look.answered(time.monotonic() - began)
            next_look = time.monotonic() + look.pause_s
        began = time.monotonic()
        yield from reader.read()
        interval.answered(time.monotonic() - began)
        time.sleep(interval.pause_s)
