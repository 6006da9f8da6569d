"""What has changed since a job's summary was written: one line each time.

``{"job": {...}, "tasks": [...], "latest": {task: [time, {metric: value}]}}``, each only where there
is something: the fields of the job that have changed, every task that has, whole, and the newest
values of metrics. Summary and lines together are what the job's page showed last.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping

from tony_core.jsontext import is_number, read_object
from tony_core.measures import PROGRESS, STEP


def encode_changes(
    job: Mapping[str, Any], tasks: List[Mapping[str, Any]], latest: Mapping[str, Any]
) -> bytes:
    """Encode as a line without its end; empty where nothing has changed."""
    found = {"job": job, "tasks": tasks, "latest": latest}
    changed = {name: value for name, value in found.items() if value}
    return json.dumps(changed, separators=(",", ":"), default=str).encode() if changed else b""


class Overlay:
    """A job and its tasks, brought up to date line by line."""

    def __init__(self, job: Mapping[str, Any], tasks: List[Mapping[str, Any]]) -> None:
        self.job: Dict[str, Any] = dict(job)
        self.tasks: Dict[str, Dict[str, Any]] = {
            str(task.get("task")): dict(task) for task in tasks if isinstance(task, dict)
        }
        self.latest: Dict[str, Any] = {}  # as in the lines: of all metrics that have changed

    def apply(self, line: bytes) -> None:
        """Bring up to date by a line; raises ValueError where it is none."""
        changed = read_object(line)
        job, tasks = changed.get("job", {}), changed.get("tasks", [])
        latest = changed.get("latest", {})
        if not (isinstance(job, dict) and isinstance(tasks, list) and isinstance(latest, dict)):
            raise ValueError("no changes")
        self.job.update(job)
        for task in tasks:
            if isinstance(task, dict) and isinstance(task.get("task"), str):
                self.tasks[task["task"]] = task
        for name, found in latest.items():
            if isinstance(found, list) and len(found) == 2 and isinstance(found[1], dict):
                before = self.latest.get(name, [0, {}])
                self.latest[name] = [found[0], {**before[1], **found[1]}]
                if name in self.tasks:
                    _measure(self.tasks[name], found[1])

    def count(self) -> None:
        """Count the tasks by their states, at the end of the lines."""
        counts: Dict[str, int] = {}
        for task in self.tasks.values():
            state = str(task.get("state") or "pending")
            counts[state] = counts.get(state, 0) + 1
        self.job["counts"] = counts


def _measure(task: Dict[str, Any], values: Mapping[str, Any]) -> None:
    """Show newer values, as the page does: what the program reported apart from measures."""
    for name, value in values.items():
        if not is_number(value):
            continue
        reported = task.get("reported")
        kind = "reported" if isinstance(reported, dict) and name in reported else "measures"
        known = task.get(kind)
        task[kind] = {**known, name: value} if isinstance(known, dict) else {name: value}
        if name == PROGRESS:
            task["progress"] = value
        elif name == STEP:
            task["step"] = int(value)
