"""What a job looks like from outside, as frozen data: for the page, history and ``--json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from tony_core.job.spec import Mode
from tony_core.master.session.records import Run, TaskState

if TYPE_CHECKING:
    from tony_core.master.session.state import Board


@dataclass(frozen=True)
class TaskView:
    """One task; times are on the master's own clock."""

    task: str
    role: str
    index: int
    tracking: str
    state: str
    session: int
    container: str
    node: str
    host: str
    ports: Mapping[str, int]
    log_url: str
    pid: int
    gpus: Tuple[str, ...]
    exit_code: Optional[int]
    signal: int
    cause: str
    message: str
    stderr_tail: Tuple[str, ...]
    started: Optional[float]
    ended: Optional[float]
    usage: Mapping[str, float]
    progress: Optional[float]
    step: Optional[int]
    reported: Mapping[str, float]
    restarts: int
    runs: Tuple[Run, ...]


@dataclass(frozen=True)
class JobView:
    """One job."""

    phase: str
    session: int
    progress: float
    waiting: str
    outcome: Optional[str]
    diagnostics: str
    root_cause: Mapping[str, Any]
    budgets: Mapping[str, Any]
    counts: Mapping[str, int]
    elastic: Mapping[str, int]  # role -> how many of its tasks are there
    tasks: Tuple[TaskView, ...]
    result: str  # JSON text, or empty


def view_of(board: Board) -> JobView:
    """A snapshot."""
    tasks = []
    totals: Dict[str, int] = {}
    for task in board.tasks.values():
        record = board.containers.get(task.container) if task.container else None
        totals[task.state.value] = totals.get(task.state.value, 0) + 1
        tasks.append(
            TaskView(
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
                message=task.message,
                stderr_tail=task.stderr_tail,
                started=task.started,
                ended=task.ended,
                usage=dict(task.usage),
                progress=task.progress,
                step=task.step,
                reported=dict(task.reported),
                restarts=task.restarts,
                runs=tuple(task.runs),
            )
        )
    budgets = board.budgets
    return JobView(
        phase=board.phase.value,
        session=board.session,
        progress=progress_of(board),
        waiting=board.waiting,
        outcome=board.outcome.value if board.outcome else None,
        diagnostics=board.diagnostics,
        root_cause=dict(board.root),
        budgets={
            "user_left": budgets.user_left,
            "user_limit": budgets.user_limit,
            "system_left": budgets.system_left,
            "system_limit": budgets.system_limit,
        },
        counts=totals,
        elastic={role.name: there(board, role.name) for role in board.job.roles if role.is_elastic},
        tasks=tuple(tasks),
        result=board.result,
    )


def there(board: Board, role: str) -> int:
    """How many of an elastic role's tasks are in this round, or come for the next one to begin."""
    absent = (TaskState.PENDING, TaskState.REQUESTED, TaskState.LOST)
    return sum(task.state not in absent for task in board.inside(role))


def progress_of(board: Board) -> float:
    """0..1: the chief's word in a gang; else the mean over the tracked tasks."""
    if board.outcome is not None and board.outcome.value == "SUCCEEDED":
        return 1.0
    chief = board.job.chief
    if chief is not None and board.job.mode is Mode.GANG:
        said = board.by_role[chief[0]][chief[1]].progress
        if said is not None:
            return said
    total = 0.0
    number = 0
    for name in board.tracked_roles():
        for task in board.by_role[name]:
            number += 1
            if task.state is TaskState.SUCCEEDED:
                total += 1.0
            elif task.progress is not None:
                total += task.progress
    return total / number if number else 0.0
