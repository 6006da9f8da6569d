"""From the record of an ended job to the files that the JVM TonY would have written. Pure.

What reads them: Dr. Elephant (when each task began and ended, its metrics, and what each role asked
for, in the configuration), and that TonY's own portal. Both take the last beginning and end of a
task, so a session that was started again counts from its last start, as it does there.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from tony_core import measures
from tony_core.history.layout import ENDED
from tony_core.history.reader import JobHistory
from tony_core.jsontext import is_number
from tony_core.portal.jvm.avro import encode
from tony_core.portal.jvm.config import CONFIG_NAMES, JvmConfig, read_jvm_config, with_roles
from tony_core.portal.jvm.names import JhistName
from tony_core.portal.jvm.schema import (
    EVENT_TYPES,
    FINISHED,
    INITED,
    TASK_FINISHED,
    TASK_STARTED,
)
from tony_core.view import TASK_ENDS, JobView, TaskView, read_job

LONGEST_DIAGNOSTIC = 8 << 10
_LARGEST_INT = (1 << 31) - 1
#: That TonY knows no job that ran out of time.
_STATES = {"TIMED_OUT": "FAILED"}
#: FINISHED is what a task is that was stopped because the job ended.
_TASK_STATES = {"succeeded": "SUCCEEDED", "failed": "FAILED", "lost": "FAILED"}
_STOPPED = "FINISHED"
_MB = float(1 << 20)
_ROLE = re.compile(r"[a-z][a-z0-9-]{0,100}", re.ASCII)

Event = Tuple[str, str, Mapping[str, Any], int]


class JvmFiles(NamedTuple):
    """The files of one job: their names, and what they hold."""

    app_id: str
    ended_ms: int
    config_name: str
    config: bytes
    jhist_name: str
    jhist: bytes


class NotEnded(ValueError):
    """The job has no end yet; the message says so."""


def jvm_files(record: JobHistory, config: Optional[bytes], owner: str = "") -> JvmFiles:
    """A job's ``.jhist`` file and configuration; raises :class:`NotEnded`.

    ``config`` is the masked configuration as history keeps it; ``owner`` is the owner of its files.
    """
    view = read_job(record.job, record.tasks, app_id=record.app_id)
    if view.state.value not in ENDED or not view.finished:
        raise NotEnded(f"{record.app_id} has not ended; a .jhist file is written of its end")
    started = view.started or view.submitted or view.finished
    name = JhistName(
        app_id=record.app_id,
        started_ms=_ms(started),
        ended_ms=_ms(view.finished),
        user=owner or view.user,
        status=_STATES.get(view.state.value, view.state.value),
    )
    kept = read_jvm_config(config, CONFIG_NAMES[0]) if config else JvmConfig()
    return JvmFiles(
        app_id=record.app_id,
        ended_ms=_ms(view.finished),
        config_name=CONFIG_NAMES[0],
        config=with_roles(kept, _roles(record.job, view.tasks, kept)).to_xml(),
        jhist_name=str(name),
        jhist=encode(_events(view, record, started, view.finished)),
    )


def _events(view: JobView, record: JobHistory, started: float, finished: float) -> Iterable[Event]:
    """Every event, by time; those of the job first and last."""
    series = record.metrics.get("task")
    of_tasks: List[Event] = []
    for task in view.tasks:
        if task.started is None:
            continue  # Dr. Elephant would take its beginning for 1970
        began = min(max(task.started, started), finished)
        ended = finished if task.ended is None else min(max(task.ended, began), finished)
        metrics = series.get(task.task) if isinstance(series, dict) else None
        of_tasks += [_task_started(task, began), _task_finished(task, ended, metrics)]
    of_tasks.sort(key=lambda event: event[3])
    yield _event(
        INITED,
        {"applicationId": view.app_id, "numTasks": len(view.tasks), "host": "", "containerID": ""},
        started,
    )
    yield from of_tasks
    ended_tasks = [task for task in view.tasks if task.state in TASK_ENDS]
    failed = sum(task.state in ("failed", "lost") for task in ended_tasks)
    yield _event(
        FINISHED,
        {
            "applicationId": view.app_id,
            "finishedTasks": len(ended_tasks),
            "failedTasks": failed,
            "metrics": [],
        },
        finished,
    )


def _task_started(task: TaskView, at: float) -> Event:
    fields = {
        **_identity(task),
        "host": _text(task.host or task.node.partition(":")[0]),
        "containerID": _text(task.container),
    }
    return _event(TASK_STARTED, fields, at)


def _task_finished(task: TaskView, at: float, series: Any) -> Event:
    fields = {
        **_identity(task),
        "status": _TASK_STATES.get(task.state, _STOPPED),
        "metrics": [
            {"name": name, "value": value} for name, value in task_metrics(task, series).items()
        ],
        "containerDiagnostic": _text(task.message[:LONGEST_DIAGNOSTIC]) or None,
    }
    return _event(TASK_FINISHED, fields, at)


def _identity(task: TaskView) -> Dict[str, Any]:
    index = task.index if 0 <= task.index <= _LARGEST_INT else 0
    return {"taskType": _text(task.role), "taskIndex": index}


def _event(kind: str, fields: Mapping[str, Any], at: float) -> Event:
    return EVENT_TYPES[kind], kind, fields, _ms(at)


def task_metrics(task: TaskView, series: Any) -> Dict[str, float]:
    """A task's metrics by the JVM's names; what was not measured is left out.

    Utilisation and memory of GPUs are per cent, and here the mean over the task's GPUs, of which
    ``MAX_...`` is the largest; BAR1 memory (``..._GPU_MAIN_MEMORY_USAGE``) is not measured.
    """
    found: Dict[str, float] = {}
    rss = _values(series, measures.RSS_MB, task.measures)
    peak = max([*rss, *_number(task.usage.get(measures.PEAK_RSS_MB))], default=0.0)
    _put(found, "MEMORY_BYTES", [value * _MB for value in rss], peak * _MB)
    _put(found, "GPU_UTILIZATION", _values(series, measures.GPU_PERCENT, task.measures))
    whole = max(_values(series, measures.GPU_MEMORY_TOTAL_MB, task.measures), default=0.0)
    if whole > 0:
        used = _values(series, measures.GPU_MEMORY_MB, task.measures)
        _put(found, "GPU_FB_MEMORY_USAGE", [100.0 * value / whole for value in used])
    return found


def _put(found: Dict[str, float], name: str, values: List[float], peak: float = 0.0) -> None:
    largest = max([*values, peak])
    if values or largest > 0:
        found[f"MAX_{name}"] = largest
        found[f"AVG_{name}"] = sum(values) / len(values) if values else largest


def _values(series: Any, name: str, latest: Mapping[str, float]) -> List[float]:
    """What was measured over time, else what was measured last."""
    points = series.get(name) if isinstance(series, dict) else None
    found: List[float] = []
    for point in points if isinstance(points, (list, tuple)) else ():
        if isinstance(point, (list, tuple)) and len(point) == 2:
            found += _number(point[1])
    return found or _number(latest.get(name))


def _number(value: Any) -> List[float]:
    return [float(value)] if is_number(value) and value >= 0 else []


def _roles(
    job: Mapping[str, Any], tasks: Iterable[TaskView], config: JvmConfig
) -> Dict[str, Dict[str, Any]]:
    """What each role asked for: as the job says, else its configuration, else the defaults."""
    counts: Dict[str, int] = {}
    for task in tasks:
        counts[task.role] = counts.get(task.role, 0) + 1
    defaults = {"memory_mb": 2048, "vcores": 1, "gpus": 0}
    found: Dict[str, Dict[str, Any]] = {
        role: {"instances": count, **defaults}
        for role, count in counts.items()
        if _ROLE.fullmatch(role)
    }
    recorded = job.get("roles")
    for roles in (config.roles(), recorded if isinstance(recorded, dict) else {}):
        for role, asked in roles.items():
            if isinstance(asked, dict) and _ROLE.fullmatch(str(role)):
                found[str(role)] = {**found.get(str(role), {}), **asked}
    return found


def _text(value: str) -> str:
    """What UTF-8 can hold of it."""
    return value.encode("utf-8", "replace").decode()


def _ms(at: float) -> int:
    """Milliseconds since the epoch, within what a file's name can hold."""
    return max(0, min(round(at * 1000), 10**15 - 1))
