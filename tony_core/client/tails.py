"""The last lines of every task, for a log that others keep: a server's, a scheduler's.

Read when the job has ended, so everything is bounded: lines of a file, bytes of a line and of
a file, tasks, and the time for all of them. The job's own secrets are masked, since such a log has
other readers than the job's. A log that cannot be read gives one line of its own for each task.
"""

from __future__ import annotations

import re
import time
from typing import Callable, Iterable, List, NamedTuple, Tuple

from tony_core.client.logs import STREAMS, LogFile
from tony_core.job.mask import KnownSecrets
from tony_core.schedulers.port import Scheduler
from tony_core.view import MASTER, JobView, LogPart, TaskView

LINES = 10  # of each stream of a task
TASKS = 40
WITHIN_S = 15.0
#: Of a file; a progress bar can be one endless line.
MOST_BYTES = 1 << 16
LONGEST = 1000  # characters of a line
#: Colours, and what moves a cursor or clears a line.
_SEQUENCE = re.compile(r"\x1b\[[0-?]{0,60}[ -/]{0,4}[@-~]")


class Tail(NamedTuple):
    """The end of what a task wrote last to one stream; control characters may be in it."""

    task: str
    stream: str
    lines: Tuple[str, ...] = ()
    problem: str = ""  # why there are no lines


class Tails(NamedTuple):
    """The last log lines of a job's tasks; ``left_out``: tasks beyond the bounds, or for which no
    time was left.
    """

    tails: Tuple[Tail, ...] = ()
    left_out: Tuple[str, ...] = ()

    def text(self, app_id: str) -> List[str]:
        """For a log of lines, each task under a heading; control characters may be in it."""
        out: List[str] = []
        for tail in self.tails:
            if tail.problem:
                out.append(f"the log of {tail.task} could not be read: {tail.problem}")
                continue
            out.append(f"last lines of {tail.task} ({tail.stream}):")
            out += [f"  | {line}" for line in tail.lines]
        if self.left_out:
            named = ", ".join(self.left_out[:3]) + (", ..." if len(self.left_out) > 3 else "")
            out.append(f"no last lines of {len(self.left_out)} more ({named}): tony logs {app_id}")
        return out


def read_tails(
    scheduler: Scheduler,
    view: JobView,
    secrets: Iterable[str] = (),
    *,
    lines: int = LINES,
    tasks: int = TASKS,
    within_s: float = WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
) -> Tails:
    """The last ``lines`` of each stream of each task, failed tasks first where not all fit.

    ``secrets`` are masked, beside what looks like one by itself.
    """
    end = clock() + within_s
    masks = KnownSecrets(secrets)
    known = [task for task in view.tasks if task.task != MASTER]
    ranked = sorted(known, key=lambda task: task.state in ("succeeded", "pending"))
    chosen = {task.task for task in ranked[: max(0, tasks)]}
    found: List[Tail] = []
    left_out: List[str] = []
    for task in known if lines > 0 else ():
        if task.task not in chosen or clock() >= end:
            left_out.append(task.task)
        else:
            found += _of_task(scheduler, view.app_id, task, lines, masks)
    return Tails(tuple(found), tuple(left_out))


def _of_task(
    scheduler: Scheduler, app_id: str, task: TaskView, count: int, secrets: KnownSecrets
) -> List[Tail]:
    """The log tails of the task's last container, last session only."""
    refs = task.log_refs()
    if not refs:
        return []
    ref, found, problem = refs[-1], [], ""
    session = max(task.sessions_in(ref.container_id), default=-1)
    for stream in STREAMS["both"]:
        part = task.part_of(ref.container_id, stream, session) if session >= 0 else LogPart()
        if part is None:
            continue
        file = LogFile(scheduler, app_id, ref, stream, part.begin)
        file.end = part.end
        file.skip_to_last(count, MOST_BYTES)
        texts = [*file.lines(), *file.rest()][-count:]
        problem = problem or file.problem or ""
        if texts:
            shown = tuple(readable(text, secrets) for text in texts)
            found.append(Tail(task.task, stream, shown))
    if problem and not found:
        return [Tail(task.task, "", problem=secrets.mask(problem))]
    return found


def readable(text: str, secrets: KnownSecrets) -> str:
    """A line as such a log has it: masked, cut, without colours, moves and what was overwritten."""
    text = secrets.mask(_SEQUENCE.sub("", text.rstrip("\r").rpartition("\r")[2]))
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."
