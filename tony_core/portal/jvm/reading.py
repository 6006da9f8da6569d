"""From a job's files of the JVM TonY to the record that all our readers know. Pure.

The JVM's events are few: application begun and ended, task begun and ended, the latter with a
handful of metrics. Everything else (name, queue, framework, what each role asked for) is in the
configuration, which that TonY keeps as it was submitted: it is masked here.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional

from tony_core.history.layout import StoryKind
from tony_core.history.reader import JobHistory
from tony_core.job.mask import mask_text
from tony_core.job.units import parse_list
from tony_core.measures import PEAK_RSS_MB
from tony_core.portal.jvm.avro import CUT_SHORT, EMPTY, Decoded, FormatError, decode
from tony_core.portal.jvm.config import JvmConfig
from tony_core.portal.jvm.names import JhistName, parse_name
from tony_core.portal.jvm.schema import FINISHED, INITED, TASK_FINISHED, TASK_STARTED
from tony_core.view import TASK_ENDS, JobView, read_job

LONGEST_NAME = 200
LONGEST_TEXT = 64 << 10
MOST_TASKS = 20_000
MOST_METRICS = 64
MOST_RUNS = 64
MEMORY, GPU = "MAX_MEMORY_BYTES", "AVG_GPU_UTILIZATION"

_STATES = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "KILLED": "KILLED", "RUNNING": "RUNNING"}
#: FINISHED is an untracked task that was stopped at the job's end.
_TASK_STATES = {
    "SUCCEEDED": "succeeded",
    "FINISHED": "succeeded",
    "FAILED": "failed",
    "KILLED": "killed",
}
_OPEN_AT_END = "killed"  # a task without an end in a job that has one


def read_jhist(
    app_id: str, name: str, data: bytes, config: JvmConfig = JvmConfig(), owner: str = ""
) -> JobHistory:
    """The record of a job, of its folder ``app_id``.

    Raises ValueError where ``name`` is none of a ``.jhist`` file of that job. ``owner`` is the
    owner of the files; what their name says of a user is shown only where it is not known.
    """
    file = parse_name(name)
    if file is None or file.app_id != app_id:
        raise ValueError(f"{name[:LONGEST_NAME]!r} is not the name of a .jhist file of {app_id}")
    problems = list(config.problems)
    digest = _Digest(app_id, file)
    wrong: List[str] = []
    try:
        for event in decode(data, wrong):
            digest.add(event)
    except FormatError as error:
        wrong.append(str(error))
    if file.is_running:
        wrong = [text for text in wrong if text not in (CUT_SHORT, EMPTY)]  # it is being written
    problems += [f"{name}: {text}" for text in (*wrong, *digest.problems())]
    return JobHistory(
        app_id=app_id,
        job=_job(file, digest, config, owner, problems),
        tasks=tuple(digest.end().values()),
        metrics={"task": {}, "latest": digest.latest},
        events=tuple(digest.story),
        problems=tuple(problems),
    )


class _Digest:
    """The tasks and the story that the events make, one after the other."""

    def __init__(self, app_id: str, file: JhistName) -> None:
        self.tasks: Dict[str, Dict[str, Any]] = {}
        self.latest: Dict[str, Dict[str, float]] = {}
        self.story: List[Dict[str, Any]] = []
        self.session = 0
        self.begun = 0  # how often an application began
        self.others = 0  # events that name another application
        self.unknown = 0
        self.left_out = 0
        self.has_end = False
        self.first_failure: Optional[Dict[str, Any]] = None
        self._app_id = app_id
        self._file = file

    def add(self, event: Decoded) -> None:
        at = event.timestamp / 1000 if abs(event.timestamp) < 1 << 50 else 0.0
        fields = event.fields
        if fields.get("applicationId", self._app_id) != self._app_id:
            self.others += 1
            return
        if event.kind == INITED:
            if self.begun:
                self.session += 1
            self.begun += 1
            where = f", its master on {_name(fields.get('host'))}" if fields.get("host") else ""
            text = f"session {self.session} begins{where}"
            self._line(at, StoryKind.SESSION_STARTED, text, weight="decision")
            count = _count(fields.get("numTasks"))
            self._line(at, StoryKind.WAVE_BEGUN, f"containers for {count} tasks are requested")
        elif event.kind == FINISHED:
            failed, ended = _count(fields.get("failedTasks")), _count(fields.get("finishedTasks"))
            self._ended(at, f"{ended} tasks ended, {failed} failed")
        elif event.kind in (TASK_STARTED, TASK_FINISHED):
            self._task(event.kind, fields, at)
        else:
            self.unknown += 1

    def _task(self, kind: str, fields: Mapping[str, Any], at: float) -> None:
        role, index = _name(fields.get("taskType")), _count(fields.get("taskIndex"))
        name = f"{role}:{index}"
        if name not in self.tasks and len(self.tasks) >= MOST_TASKS:
            self.left_out += 1
            return
        task = self.tasks.setdefault(
            name, {"task": name, "role": role, "index": index, "state": "pending", "runs": []}
        )
        if kind == TASK_STARTED:
            self._begin(task, fields, at)
        else:
            self._finish(task, fields, at)

    def _begin(self, task: Dict[str, Any], fields: Mapping[str, Any], at: float) -> None:
        host, container = _name(fields.get("host")), _name(fields.get("containerID"))
        if task.get("session") == self.session:
            task["restarts"] = task.get("restarts", 0) + 1
        run = {"session": self.session, "container": container, "node": host, "state": "running"}
        if len(task["runs"]) < MOST_RUNS:
            task["runs"].append(run)
        for old in ("ended", "duration_s", "message"):
            task.pop(old, None)
        task.update(run, host=host, started=at)
        text = f"{task['task']} running on {host}"
        self._line(at, StoryKind.TASK_STATE, text, task, state="running", node=host)

    def _finish(self, task: Dict[str, Any], fields: Mapping[str, Any], at: float) -> None:
        status = _name(fields.get("status"))
        state = _TASK_STATES.get(status, "running" if task.get("started") else "pending")
        task.update(state=state, session=task.get("session", self.session))
        if state in TASK_ENDS:
            task["ended"] = at
            if task.get("started") is not None:
                task["duration_s"] = max(0.0, round(at - task["started"], 3))
        if task["runs"]:
            task["runs"][-1]["state"] = state
        measures = _metrics(fields.get("metrics"))
        if measures:
            self.latest[task["task"]] = measures
            task["measures"] = measures
        if measures.get(MEMORY, 0.0) > 0:
            task["usage"] = {PEAK_RSS_MB: round(measures[MEMORY] / (1 << 20), 1)}
        text = str(fields.get("containerDiagnostic") or "")[:LONGEST_TEXT]
        if text and state != "succeeded":
            task["message"] = mask_text(text)
        if state == "failed" and self.first_failure is None:
            self.first_failure = task
        text = f"{task['task']} {state}" + (f": {status}" if status.lower() != state else "")
        loud = "warning" if state == "failed" else "info"
        node = task.get("node", "")
        self._line(at, StoryKind.TASK_STATE, text, task, loud, state=state, node=node)

    def _line(
        self,
        at: float,
        kind: StoryKind,
        text: str,
        task: Optional[Mapping[str, Any]] = None,
        weight: str = "info",
        **fields: Any,
    ) -> None:
        line: Dict[str, Any] = {"n": len(self.story) + 1, "time": at, "kind": kind.value}
        name = task["task"] if task else ""
        line.update(text=text, weight=weight, task=name, session=self.session, fields=fields)
        self.story.append(line)

    def _ended(self, at: float, text: str) -> None:
        self.has_end = True
        status = self._file.status or "RUNNING"
        cause = self.first_failure if status == "FAILED" else None
        if cause is not None:
            self._line(at, StoryKind.ROOT_CAUSE, cause_text(cause), cause, "error")
        loud = "decision" if status in ("SUCCEEDED", "RUNNING") else "error"
        self._line(at, StoryKind.JOB_ENDED, f"{status}: {text}", weight=loud)

    def end(self) -> Dict[str, Dict[str, Any]]:
        """The tasks; where the job has an end, none goes on, and the story's last line says so."""
        if self._file.ended_ms is not None:
            if not self.has_end:
                self._ended(self._file.ended_ms / 1000, "as its file's name says")
            for task in self.tasks.values():
                if task["state"] not in TASK_ENDS:
                    task["state"] = _OPEN_AT_END
                    if task.get("started") is not None:
                        task["ended"] = max(task["started"], self._file.ended_ms / 1000)
                        task["duration_s"] = round(task["ended"] - task["started"], 3)
        return self.tasks

    def problems(self) -> List[str]:
        found = []
        if self.others:
            found.append(f"{self.others} events name another application; left out")
        if self.unknown:
            found.append(f"{self.unknown} events are of a kind that is not known; left out")
        if self.left_out:
            found.append(f"it has more than {MOST_TASKS} tasks; the rest is left out")
        return found


def _job(
    file: JhistName, digest: _Digest, config: JvmConfig, owner: str, problems: List[str]
) -> Dict[str, Any]:
    """The job as ``/api/job`` answers."""
    state = _STATES.get(file.status, "FAILED") if file.ended_ms is not None else "RUNNING"
    if file.ended_ms is not None and file.status not in _STATES:
        problems.append(f"the status {file.status[:40]!r} is not known; shown as {state}")
    started = file.started_ms / 1000
    roles = config.roles()
    cause = digest.first_failure if state == "FAILED" else None
    counts: Dict[str, int] = {}
    for task in digest.end().values():
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    text = cause_text(cause) if cause else ""
    root = {"task": cause["task"], "role": cause["role"], "message": text} if cause else {}
    framework = config.get("tony.application.framework").lower()
    sizes = ", ".join(f"{role['instances']} x {name}" for name, role in roles.items())
    view: JobView = read_job(
        {
            "app_id": file.app_id,
            "state": state,
            "name": config.get("tony.application.name"),
            "user": owner or file.user[:LONGEST_NAME],
            "queue": config.get("tony.yarn.queue"),
            "framework": framework,
            "mode": config.get("tony.application.distributed-mode"),
            "phase": "running" if state == "RUNNING" else "ended",
            "session": digest.session,
            "progress": 1.0 if state == "SUCCEEDED" else 0.0,
            "submitted": started,
            "started": started,
            "finished": None if file.ended_ms is None else file.ended_ms / 1000,
            "diagnostics": text,
            "description": f"{framework}: {sizes}" if sizes else framework,
            "root_cause": root,
            "tags": list(parse_list(config.get("tony.application.tags"))),
        },
        (),
    )
    return {**view.to_page_json(), "counts": counts, "roles": roles}


def cause_text(task: Mapping[str, Any]) -> str:
    """What the first task that failed did, and how it ended."""
    message = task.get("message")
    return f"{task['task']} failed" + (f": {message}" if message else "")


def _metrics(value: Any) -> Dict[str, float]:
    """The metrics of a task; that TonY has -1 for what was not measured."""
    found: Dict[str, float] = {}
    for metric in value or ():
        name, number = _name(metric.get("name")), metric.get("value")
        if isinstance(number, (int, float)) and math.isfinite(number) and number >= 0:
            found[name] = float(number)
        if len(found) >= MOST_METRICS:
            break
    return found


def _name(value: Any) -> str:
    return str(value or "")[:LONGEST_NAME]


def _count(value: Any) -> int:
    return max(0, min(value, 1 << 31)) if isinstance(value, int) else 0
