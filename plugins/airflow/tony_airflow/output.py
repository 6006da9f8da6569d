"""What the job's chief writes, for the task's log, as it comes.

A log of Airflow's is for people and is kept for long: each look tells the last lines of what is
new, and a job as a whole no more than :data:`MOST_LINES`. How far it was read is plain data, which
goes from a trigger to the task that it resumes. A log that cannot be read just now is no trouble:
the last lines of every task are told when the job has ended (:mod:`tony_core.client.tails`).
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from tony_core.client.logs import STREAMS
from tony_core.client.tails import readable
from tony_core.client.view import MASTER, JobView, TaskView
from tony_core.job.mask import KnownSecrets
from tony_core.jsontext import is_number
from tony_core.schedulers.port import LogRef, Scheduler, SchedulerError

CHIEFS = ("chief:0", "worker:0", "master:0")
"""Whose word counts where several tasks have one."""

MOST_LINES = 10_000  # of a job
LOOK_LINES = 100  # of a stream, by one look
LOOK_BYTES = 1 << 16
_LINES = "lines"
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Position = Mapping[str, int]


def chief_of(view: JobView) -> Optional[TaskView]:
    """The task whose output is followed; None while there is none."""
    tasks = {task.task: task for task in view.tasks if task.task != MASTER}
    tracked = [task for task in tasks.values() if task.tracking == "tracked"]
    for name in CHIEFS:
        if name in tasks:
            return tasks[name]
    return next(iter(tracked or tasks.values()), None)


def position_of(told: Any) -> Dict[str, int]:
    """How far was read, as an event of a trigger says it; what is damaged counts as nothing."""
    if not isinstance(told, dict):
        return {}
    return {str(key): int(at) for key, at in told.items() if is_number(at) and at >= 0}


def is_whole(view: JobView, position: Position) -> bool:
    """Whether the chief's output was followed to its end."""
    chief = chief_of(view)
    refs = chief.log_refs() if chief is not None else ()
    seen = refs and any(_key(refs[-1], name) in position for name in STREAMS["both"])
    return bool(seen) and position.get(_LINES, 0) < MOST_LINES


def read_output(
    scheduler: Scheduler,
    view: JobView,
    position: Position,
    last: bool = False,
    secrets: Iterable[str] = (),
) -> Tuple[List[str], Dict[str, int]]:
    """The chief's new lines, and how far is read now; with ``last`` a line without an end too."""
    known = KnownSecrets(secrets)
    found: List[str] = []
    reached = dict(position)
    chief = chief_of(view)
    if chief is None or reached.get(_LINES, 0) >= MOST_LINES:
        return found, reached
    for ref in chief.log_refs():
        for name in STREAMS["both"]:
            try:
                lines = _read(scheduler, view.app_id, ref, name, reached, last, known)
            except (SchedulerError, OSError):
                continue
            mark = chief.task if name == "stdout" else f"{chief.task} {name}"
            found += [f"[{mark}] {line}" for line in lines]
    left = MOST_LINES - reached.get(_LINES, 0)
    reached[_LINES] = reached.get(_LINES, 0) + len(found)
    if len(found) >= left:
        found = found[:left]
        found.append(
            f"[{chief.task}] {MOST_LINES} lines of its output stand here; no more is followed"
        )
    return found, reached


def _read(
    scheduler: Scheduler,
    app_id: str,
    ref: LogRef,
    name: str,
    reached: Dict[str, int],
    last: bool,
    secrets: KnownSecrets,
) -> List[str]:
    key = _key(ref, name)
    begin = reached.get(key, 0)
    size = scheduler.log_reader.log_size(app_id, ref, name)
    skipped = size is not None and size - begin > LOOK_BYTES
    if skipped and size is not None:
        begin = size - LOOK_BYTES
    data = scheduler.log_reader.read_log(app_id, ref, name, begin, LOOK_BYTES)
    if not data:
        return []
    end = data.rfind(b"\n") + 1
    if last or (not end and len(data) >= LOOK_BYTES):  # a progress bar is one endless line
        end = len(data)
    reached[key] = begin + end
    texts = data[:end].decode("utf-8", "replace").split("\n")
    if not texts[-1]:
        texts.pop()
    if skipped:
        del texts[:1]  # most often it has no beginning
    if skipped or len(texts) > LOOK_LINES:
        texts = ["... (lines left out)", *texts[-LOOK_LINES:]]
    return [without_control(readable(text, secrets), secrets) for text in texts]


def without_control(text: str, secrets: KnownSecrets) -> str:
    """A line as a terminal may show it; masked again, since what they parted is whole now."""
    plain = _CONTROL.sub("", text)
    return text if plain == text else secrets.mask(plain)


def _key(ref: LogRef, name: str) -> str:
    return f"{ref.container_id}/{name}"
