"""The job as JSON: one set of shapes for the page, history and ``--json``.

Times inside the session machine are on the master's own clock; here they become seconds
since the epoch. What the machine does not know (links, measures, who the user is) is added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tony_core.job.spec import Job
from tony_core.master.view import JobView, TaskView


@dataclass
class JobInfo:
    """What the shell knows of the job."""

    app_id: str
    attempt: int
    user: str
    queue: str
    submitted: float
    started: float
    finished: Optional[float] = None
    trouble: str = ""  # around the job, not in it: its state cannot be kept, for now
    links: Dict[str, str] = field(default_factory=dict)
    ends: Dict[Tuple[str, int, str], Optional[int]] = field(default_factory=dict)


#: The master's clock to seconds since the epoch.
Wall = Callable[[float], float]
Clean = Callable[[Any], Any]


def job_json(job: Job, view: JobView, info: JobInfo, clean: Clean) -> Dict[str, Any]:
    """``/api/job``."""
    return {
        "app_id": info.app_id,
        "name": job.name,
        "user": info.user or job.user,
        "queue": info.queue or job.queue,
        "framework": job.framework,
        "mode": job.mode.value,
        "state": state_of(view),
        "phase": view.phase,
        "session": view.session,
        "attempt": info.attempt,
        "progress": round(view.progress, 4),
        "submitted": _round(info.submitted),
        "started": _round(info.started),
        "finished": _round(info.finished),
        "waiting": clean(view.waiting),
        "trouble": clean(info.trouble),
        "diagnostics": clean(view.diagnostics),
        "root_cause": clean(dict(view.root_cause)),
        "budgets": dict(view.budgets),
        "counts": dict(view.counts),
        "elastic": {
            role.name: {
                "there": view.elastic[role.name],
                "least": role.least,
                "most": role.instances,
            }
            for role in job.roles
            if role.name in view.elastic
        },
        "result": clean(json.loads(view.result)) if view.result else None,
        "links": dict(info.links),
        "tags": list(job.tags),
        "description": describe(job),
    }


def state_of(view: JobView) -> str:
    """In the scheduler port's words."""
    if view.phase == "ended" and view.outcome:
        return view.outcome
    return "RUNNING"


def describe(job: Job) -> str:
    """``pytorch: 1 x chief, 2..4 x worker``."""
    counts = [
        (f"{role.least}..{role.instances}" if role.is_elastic else f"{role.instances}", role.name)
        for role in job.roles
    ]
    roles = ", ".join(f"{count} x {name}" for count, name in counts)
    return f"{job.framework}: {roles}"


def task_json(
    task: TaskView, info: JobInfo, wall: Wall, now: float, latest: Mapping[str, float], clean: Clean
) -> Dict[str, Any]:
    """One entry of ``/api/tasks``."""
    duration = None
    if task.started is not None:
        duration = round((task.ended if task.ended is not None else now) - task.started, 3)
    measures = {k: v for k, v in latest.items() if k not in task.reported}
    return {
        "task": task.task,
        "role": task.role,
        "index": task.index,
        "tracking": task.tracking,
        "state": task.state,
        "session": task.session,
        "container": task.container,
        "node": task.node,
        "host": task.host,
        "ports": dict(task.ports),
        "log_url": task.log_url,
        "pid": task.pid,
        "gpus": list(task.gpus),
        "exit_code": task.exit_code,
        "signal": task.signal,
        "cause": task.cause,
        "message": clean(task.message),
        "stderr_tail": clean(list(task.stderr_tail)),
        "started": _round(wall(task.started)) if task.started is not None else None,
        "ended": _round(wall(task.ended)) if task.ended is not None else None,
        "duration_s": duration,
        "usage": dict(task.usage),
        "measures": measures,
        "reported": dict(task.reported),
        "progress": task.progress,
        "step": task.step,
        "restarts": task.restarts,
        "runs": _runs(task, info),
    }


def _runs(task: TaskView, info: JobInfo) -> List[Dict[str, Any]]:
    """Every container that ran it, so that no session's logs are out of reach."""
    out: List[Dict[str, Any]] = []
    for run in task.runs:
        now = run.session == task.session and run.container == task.container
        state, code = task.state, task.exit_code
        if not now:
            # The machine's word on what the end meant; the executor's, which may come after
            # the task was given up, on what it was.
            state, code = run.state or "killed", run.exit_code
            code = info.ends.get((task.task, run.session, run.container), code)
        out.append(
            {
                "session": run.session,
                "container": run.container,
                "node": run.node,
                "log_url": run.log_url,
                "state": state,
                "exit_code": code,
                "offsets": dict(run.offsets),
            }
        )
    return out


def _round(at: Optional[float]) -> Optional[float]:
    return None if at is None else round(at, 3)
