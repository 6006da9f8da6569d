"""The job as it looks now: from the session machine's records to the view that all readers share.

Inside the session machine times are on the master's own clock; here they become seconds since the
epoch. What the machine does not know (links, measures, who the user is) is added.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple

from tony_core.job.spec import Job, Mode
from tony_core.master.session.records import ContainerRun, Phase, TaskRecord, TaskState
from tony_core.master.session.stalls import GANG, describe_trouble
from tony_core.schedulers.port import AppState
from tony_core.view import PAGE, JobView, RunView, TaskView

if TYPE_CHECKING:
    from tony_core.master.session.state import State

Clean = Callable[[Any], Any]  # masks what is secret


class JobInfo:
    """Facts about the job that its session machine does not have."""

    def __init__(
        self, app_id: str, attempt: int, user: str, queue: str, submitted: float, started: float
    ) -> None:
        self.app_id = app_id
        self.attempt = attempt
        self.user = user
        self.queue = queue
        self.submitted = submitted
        self.started = started
        self.finished: Optional[float] = None
        self.trouble = ""  # around the job and not in it: its state cannot be stored, for now
        self.links: Dict[str, str] = {}
        #: Exit codes by task, session and container, as executors reported them.
        self.ends: Dict[Tuple[str, int, str], Optional[int]] = {}


def view_job(
    state: State,
    info: JobInfo,
    now: float,
    wall: Callable[[float], float],
    measures: Callable[[str], Mapping[str, float]],
    clean: Clean,
) -> JobView:
    """Take a snapshot; ``wall`` takes the master's clock to seconds since the epoch."""
    tasks = tuple(
        view_task(state, task, info, now, wall, measures(task.name), clean)
        for task in state.tasks.values()
    )
    return view_head(state, info, clean)._replace(tasks=tasks)


def view_head(state: State, info: JobInfo, clean: Clean) -> JobView:
    """Take a snapshot of the job, without its tasks."""
    job, budgets = state.job, state.budgets
    ended = state.phase.value == "ended" and state.outcome is not None
    return JobView(
        app_id=info.app_id,
        state=state.outcome if ended and state.outcome else AppState.RUNNING,
        source=PAGE,
        name=job.name,
        user=info.user or job.user,
        queue=info.queue or job.queue,
        framework=job.framework,
        mode=job.mode.value,
        phase=state.phase.value,
        session=state.session,
        attempt=info.attempt,
        progress=round(progress_of(state), 4),
        submitted=_round(info.submitted),
        started=_round(info.started),
        finished=_round(info.finished),
        waiting=clean(state.waiting),
        trouble=trouble_of(state, info, clean),
        stalled=count_stalled(state),
        diagnostics=clean(state.diagnostics),
        description=describe(job),
        root_cause=clean(dict(state.root_cause)),
        budgets={
            "user_left": budgets.user_left,
            "user_limit": budgets.user_limit,
            "system_left": budgets.system_left,
            "system_limit": budgets.system_limit,
        },
        elastic={
            role.name: {
                "there": there(state, role.name),
                "least": role.least,
                "most": role.instances,
            }
            for role in job.roles
            if role.is_elastic
        },
        links=dict(info.links),
        tags=job.tags,
        roles={
            role.name: {
                "instances": role.instances,
                "memory_mb": role.resources.memory_mb,
                "vcores": role.resources.vcores,
                "gpus": role.resources.gpus,
            }
            for role in job.roles
        },
        view_acl=job.yarn.view_acl or "",
        result=clean(json.loads(state.result)) if state.result else None,
    )


def view_task(
    state: State,
    task: TaskRecord,
    info: JobInfo,
    now: float,
    wall: Callable[[float], float],
    measures: Mapping[str, float],
    clean: Clean,
) -> TaskView:
    """Take a snapshot of one task; ``measures`` are the newest values of its metrics."""
    record = state.containers.get(task.container) if task.container else None
    started, ended = task.started, task.ended
    duration_s = None
    if started is not None:
        duration_s = round((ended if ended is not None else now) - started, 3)
    return TaskView(
        task=task.name,
        role=task.role.name,
        index=task.index,
        tracking=task.role.tracking.value,
        state=task.state.value,
        session=task.session,
        container=task.container or "",
        node=record.container.node if record else "",
        host=task.host,
        ports=dict(task.ports),
        log_url=record.container.log_url if record else "",
        pid=task.pid,
        gpus=task.gpus,
        exit_code=task.exit_code,
        signal=task.signal,
        cause=task.cause,
        message=clean(task.message),
        stderr_tail=tuple(clean(list(task.stderr_tail))),
        started=_round(wall(started)) if started is not None else None,
        ended=_round(wall(ended)) if ended is not None else None,
        duration_s=duration_s,
        usage=dict(task.usage),
        measures={k: v for k, v in measures.items() if k not in task.reported},
        reported=dict(task.reported),
        progress=task.progress,
        step=task.step,
        restarts=task.restarts,
        runs=tuple(_view_run(task, run, info) for run in task.runs),
    )


def _view_run(task: TaskRecord, run: ContainerRun, info: JobInfo) -> RunView:
    state, code = task.state.value, task.exit_code
    if (run.session, run.container) != (task.session, task.container or ""):
        # The machine's word on what the end meant; the executor's, which may come after
        # the task was given up, on what it was.
        state, code = run.state or "killed", run.exit_code
        code = info.ends.get((task.name, run.session, run.container), code)
    offsets = dict(run.offsets)
    return RunView(run.session, run.container, run.node, run.log_url, state, code, offsets)


def describe(job: Job) -> str:
    """``pytorch: 1 x chief, 2..4 x worker``."""
    counts = [
        (f"{role.least}..{role.instances}" if role.is_elastic else f"{role.instances}", role.name)
        for role in job.roles
    ]
    roles = ", ".join(f"{count} x {name}" for count, name in counts)
    return f"{job.framework}: {roles}"


def there(state: State, role: str) -> int:
    """Count an elastic role's tasks that are in this round, or will be in the next one."""
    absent = (TaskState.PENDING, TaskState.REQUESTED, TaskState.LOST)
    return sum(task.state not in absent for task in state.in_round(role))


def progress_of(state: State) -> float:
    """0 to 1: what the chief of a gang reports; else the mean over the tracked tasks."""
    if state.outcome is not None and state.outcome.value == "SUCCEEDED":
        return 1.0
    chief = state.job.chief
    if chief is not None and state.job.mode is Mode.GANG:
        reported = state.by_role[chief[0]][chief[1]].progress
        if reported is not None:
            return reported
    total = 0.0
    number = 0
    for name in state.tracked_roles():
        for task in state.by_role[name]:
            number += 1
            if task.state is TaskState.SUCCEEDED:
                total += 1.0
            elif task.progress is not None:
                total += task.progress
    return total / number if number else 0.0


def trouble_of(state: State, info: JobInfo, clean: Clean) -> str:
    """What is wrong with a job that goes on: around it, and in it; empty without any."""
    return str(clean(". ".join(filter(None, (info.trouble, describe_trouble(state))))))


def count_stalled(state: State) -> int:
    """Count the tasks whose programs stand still, where the story holds that as a stall."""
    stalls = state.stalls
    if state.phase is not Phase.ACTIVE:
        return 0
    if GANG in stalls.episodes:
        return len(stalls.still)
    return sum(name in stalls.still for name in stalls.episodes)


def _round(at: Optional[float]) -> Optional[float]:
    return None if at is None else round(at, 3)
