"""A job's figures as Prometheus reads them: the text exposition format, version 0.0.4. Pure.

One set of families for all who show a job: its own page (``/metrics``) and the portal. Names begin
with ``tony_``, units are base units. What a job's author chose (a name, a metric's name) is the
value of a label only and never the name of a family: so no job can add a family, or give one of
ours another meaning, and names that differ in a slash stay two series. The number of samples is
bounded, and what was left out is a sample itself.

A text of 1,000 tasks takes some 20 ms, so who is asked often keeps it for a second.
"""

from __future__ import annotations

import math
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from tony_core import measures
from tony_core.schedulers.port import AppState
from tony_core.view import MASTER, JobView, TaskView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_TASKS = 5_000  # with samples of their own; the others are counted only
MOST_REPORTED = 20_000  # samples of what programs report, over all tasks
LONGEST = 200  # characters of a label's value
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_MB = float(1 << 20)


class Measure(NamedTuple):
    """How a measure of a task is shown."""

    family: str
    factor: float
    help: str


#: By the names that executors give them (``executor/tony_executor/monitoring``).
MEASURES: Mapping[str, Measure] = {
    measures.RSS_MB: Measure(
        "tony_task_memory_rss_bytes", _MB, "Resident memory of its processes."
    ),
    measures.CPU_PERCENT: Measure(
        "tony_task_cpu_cores", 0.01, "Processor cores that it keeps busy."
    ),
    measures.THREADS: Measure("tony_task_threads", 1.0, "Threads of its processes."),
    measures.PROCESSES: Measure("tony_task_processes", 1.0, "Its processes."),
    measures.GPUS: Measure("tony_task_gpus", 1.0, "GPUs that are measured."),
    measures.GPU_PERCENT: Measure(
        "tony_task_gpu_utilization_ratio", 0.01, "Mean utilization of its GPUs, 0 to 1."
    ),
    measures.GPU_MEMORY_MB: Measure(
        "tony_task_gpu_memory_bytes", _MB, "Memory in use on its GPUs."
    ),
    measures.GPU_MEMORY_TOTAL_MB: Measure(
        "tony_task_gpu_memory_size_bytes", _MB, "Memory that its GPUs have."
    ),
    measures.STEPS_PER_SECOND: Measure(
        "tony_task_steps_per_second", 1.0, "Steps of the last minute."
    ),
    measures.SAVED: Measure("tony_task_checkpoint_step", 1.0, "Step of its last checkpoint."),
}


class Exposition:
    """Samples by family, in the order in which the families came."""

    def __init__(self) -> None:
        self._lines: Dict[str, List[str]] = {}

    def family(self, name: str, help_text: str, kind: str = "gauge") -> List[str]:
        """The lines of a family; samples are added with :func:`sample`."""
        known = self._lines.get(name)
        if known is None:
            known = [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"]
            self._lines[name] = known
        return known

    def one(
        self, name: str, labels: str, value: float, help_text: str, kind: str = "gauge"
    ) -> None:
        """Add a sample to a family."""
        self.family(name, help_text, kind).append(f"{name}{{{labels}}} {number(value)}\n")

    def encode(self) -> bytes:
        """The text; families without a sample are left out."""
        found = ["".join(lines) for lines in self._lines.values() if len(lines) > 1]
        return "".join(found).encode()


def number(value: float) -> str:
    """A value as the format writes it."""
    if isinstance(value, int):
        try:
            value = float(value)
        except OverflowError:
            return "+Inf" if value > 0 else "-Inf"
    if math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def escape(text: str) -> str:
    """A label's value between its quotes: cut, and without halves of surrogates."""
    text = text[:LONGEST]
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.translate(_ESCAPES)


def label(name: str, value: str) -> str:
    """``name="value"``."""
    return f'{name}="{escape(value)}"'


def write_job(view: JobView, now: float, waited_s: Optional[float] = None) -> bytes:
    """The text of a job; ``waited_s``: how long the scheduler let it wait, where that is known."""
    out = Exposition()
    app = label("app_id", view.app_id)
    _write_head(out, app, view, now, waited_s)
    tasks = _distinct(view.tasks)
    _write_counts(out, app, view, tasks)
    shown = tasks[:MOST_TASKS]
    if len(tasks) > len(shown):
        out.one(
            "tony_job_tasks_left_out", app, len(tasks) - len(shown),
            "Tasks without samples of their own: there are too many.",
        )  # fmt: skip
    left_out = 0
    most = max(1, MOST_REPORTED // max(1, len(shown)))
    for task in shown:
        labels = f"{app},{label('role', task.role)},{label('task', task.task)}"
        _write_task(out, labels, task, now)
        left_out += _write_reported(out, labels, task, most)
    if left_out:
        out.one(
            "tony_job_reported_left_out", app, left_out,
            "Metrics of programs that are left out: there are too many.",
        )  # fmt: skip
    return out.encode()


def _write_head(
    out: Exposition, app: str, view: JobView, now: float, waited_s: Optional[float]
) -> None:
    facts = ("name", "user", "queue", "framework", "mode")
    info = ",".join(label(name, str(getattr(view, name))) for name in facts)
    out.one("tony_job_info", f"{app},{info}", 1, "Facts of the job, as labels.")
    for state in AppState:
        out.one(
            "tony_job_state", f"{app},{label('state', state.value)}", int(state is view.state),
            "1 for the state that the job is in, 0 for every other.",
        )  # fmt: skip
    out.one(
        "tony_job_waiting", app, int(bool(view.waiting)), "1 while the job waits for something."
    )
    out.one(
        "tony_job_stalled", app, int(view.stalled > 0), "1 while programs of the job have stalled."
    )
    out.one("tony_job_tasks_stalled", app, view.stalled, "Tasks whose programs have stalled.")
    if waited_s is not None:
        out.one(
            "tony_job_waiting_seconds", app, waited_s,
            "Time that the scheduler let it wait, for its master and for containers.",
        )  # fmt: skip
    out.one("tony_job_session", app, view.session, "The session, from 0; -1 before the first.")
    out.one("tony_job_master_attempt", app, view.attempt, "The attempt of its master.")
    out.one("tony_job_progress_ratio", app, view.progress, "How far the job is, 0 to 1.")
    for word in ("submitted", "started", "finished"):
        at = getattr(view, word)
        if at:
            out.one(
                f"tony_job_{word}_timestamp_seconds", app, at,
                f"When the job {'was ' if word == 'submitted' else ''}{word}.",
            )  # fmt: skip
    duration = view.duration_s(now)
    if duration is not None:
        out.one("tony_job_duration_seconds", app, duration, "Time since it was submitted.")
    for name in ("user", "system"):
        for word, text in (("left", "Restarts that the"), ("limit", "Restarts that a full")):
            value = view.budgets.get(f"{name}_{word}")
            if isinstance(value, (int, float)):
                out.one(
                    f"tony_job_restarts_{word}", f"{app},{label('budget', name)}", value,
                    f"{text} budget for failures of the program (user) or the cluster (system)"
                    " has.",
                )  # fmt: skip


def _write_counts(out: Exposition, app: str, view: JobView, tasks: List[TaskView]) -> None:
    counts: Dict[Tuple[str, str], int] = {}
    for task in tasks:
        key = (escape(task.role), escape(task.state))
        counts[key] = counts.get(key, 0) + 1
    for (role, state), count in counts.items():
        out.one(
            "tony_job_tasks", f'{app},role="{role}",state="{state}"', count,
            "Tasks by role and state.",
        )  # fmt: skip
    requested = {escape(role): asked.get("instances", 0) for role, asked in view.roles.items()}
    for role, count in requested.items():
        out.one(
            "tony_job_tasks_requested", f'{app},role="{role}"', count,
            "Tasks that the job asks for.",
        )  # fmt: skip


def _write_task(out: Exposition, labels: str, task: TaskView, now: float) -> None:
    out.one("tony_task_running", labels, int(task.state == "running"), "1 while its program runs.")
    out.one(
        "tony_task_restarts_total", labels, task.restarts,
        "Restarts of this task within its session.", "counter",
    )  # fmt: skip
    if task.duration_s is not None:
        duration = task.duration_s
        if task.started and not task.has_ended:
            duration = max(duration, now - task.started)
        out.one("tony_task_duration_seconds", labels, duration, "Time since its program started.")
    if task.exit_code is not None:
        out.one("tony_task_exit_code", labels, task.exit_code, "Exit code of its program.")
    if task.step is not None:
        out.one("tony_task_step", labels, task.step, "The step that its program reported.")
    if task.progress is not None:
        out.one("tony_task_progress_ratio", labels, task.progress, "Its own progress, 0 to 1.")
    for name, value in task.measures.items():
        measure = MEASURES.get(name)
        if measure is not None:
            out.one(measure.family, labels, value * measure.factor, measure.help)
    peak = task.usage.get(measures.PEAK_RSS_MB)
    if peak is not None:
        out.one(
            "tony_task_memory_rss_peak_bytes", labels, peak * _MB,
            "The most resident memory, of a program that has ended.",
        )  # fmt: skip


def _write_reported(out: Exposition, labels: str, task: TaskView, most: int) -> int:
    """What the program reported; how many values are left out."""
    if not task.reported:
        return 0
    lines = out.family("tony_task_reported", "What programs give to tony.report(), by name.")
    written: Dict[str, None] = {}
    for name, value in task.reported.items():
        if len(written) >= most:
            break
        text = escape(name)
        if text not in written:
            written[text] = None
            lines.append(f'tony_task_reported{{{labels},name="{text}"}} {number(value)}\n')
    return len(task.reported) - len(written)


def _distinct(tasks: Tuple[TaskView, ...]) -> List[TaskView]:
    """The tasks, each label once: a history may be damaged."""
    found: Dict[str, TaskView] = {}
    for task in tasks:
        if task.task != MASTER:
            found.setdefault(escape(task.task), task)
    return list(found.values())
