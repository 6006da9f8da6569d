"""Everything known of a job: its tasks and their runs, budgets, links, the story."""

from __future__ import annotations

import argparse
from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple

from tony_core.cli import outcome
from tony_core.cli.options import NamedJob, add_app, add_places, open_job
from tony_core.cli.output import (
    duration,
    line,
    moment,
    pairs,
    percent,
    print_json,
    safe,
    table,
    warn,
)
from tony_core.cli.status import head, show_advice
from tony_core.schedulers.port import Scheduler, SchedulerError
from tony_core.view import MASTER, JobView, TaskView

UUID_SHOWN = 12  # characters, which tell the GPUs of a node apart

Story = Sequence[Mapping[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    with open_job(args) as found:
        view, story = _look(found)
        if args.json:
            data = {"job": view.to_json(), "events": [dict(event) for event in story]}
            masters = _masters(found.scheduler, found.app_id)
            print_json({**data, "masters": [one._asdict() for one in masters]})
            return 0
        show(view, story, found.scheduler.log_reader.urls_outlive_job)
        show_advice(found, view)
    return 0


def show(view: JobView, story: Story, pages_last: bool = True) -> None:
    head(view)
    for name, text in (
        ("framework", view.framework),
        ("queue", view.queue),
        ("tags", ", ".join(view.tags)),
        ("description", view.description),
        ("budgets", ", ".join(f"{name} {left}" for name, left in view.budgets.items())),
        ("master", f"attempt {view.attempt}" if view.attempt else ""),
    ):
        if text:
            line(f"  {name}: {safe(text)}")
    for text in outcome.links(view):
        line(text)
    if view.diagnostics:
        line("diagnostics:")
        for text in view.diagnostics.splitlines():
            line(f"  {safe(text)}")
    if view.tasks:
        line()
        tasks(view, pages_last)
    if story:
        line()
        line("story:")
        for event in story:
            first, *more = str(event.get("text", "")).splitlines() or [""]
            line(f"  {moment(event.get('time'))}  {safe(first)}")
            for text in more:
                line(f"{'':23}{safe(text)}")


def gpus(task: TaskView) -> str:
    """`` (GPU 0, GPU 1)``, of UUIDs their beginnings; nothing where it has none."""
    names = [f"GPU {name}" if name.isdecimal() else name[:UUID_SHOWN] for name in task.gpus]
    return f" ({', '.join(names)})" if names else ""


def tasks(view: JobView, pages_last: bool = True) -> None:
    """Print every task and every container that it ran in."""
    rows: List[Tuple[str, ...]] = []
    shown = pages_last or not view.state.ended
    for task in view.tasks:
        rows.append(
            (
                task.task,
                task.state,
                str(task.session) if task.session >= 0 else "-",
                (task.node or "-") + gpus(task),
                "-" if task.exit_code is None else str(task.exit_code),
                "-" if task.progress is None else percent(task.progress),
                duration(task.duration_s),
                pairs({**task.reported, **task.usage}, 4) or "-",
                safe(outcome.task_log(view, task, pages_last)),
            )
        )
        is_master = task.task == MASTER  # of such a job nothing else is known
        rows.extend(
            (
                f"{MASTER} ({number})" if is_master else "",
                run.state or ("-" if is_master else "earlier"),
                "-" if is_master else str(run.session),
                run.node or "-",
                "-" if run.exit_code is None else str(run.exit_code),
                "",
                "",
                "",
                safe(run.log_url if shown and run.log_url else run.container),
            )
            for number, run in enumerate(task.runs, 1)
            if (run.session, run.container) != (task.session, task.container)
        )
    table(("TASK", "STATE", "SESSION", "NODE", "EXIT", "DONE", "TIME", "METRICS", "LOGS"), rows)


class MasterAttempt(NamedTuple):
    """One attempt's container; where its log is, as long as a node serves it."""

    container: str
    node: str
    log_url: str


def _look(found: NamedJob) -> Tuple[JobView, Story]:
    from tony_core.client.lookup import explain_unknown, look_up, whole_story

    scheduler, app_id, history = found
    view = look_up(scheduler, app_id, history)
    story = whole_story(scheduler, app_id, history)
    missing = "" if story else explain_unknown(scheduler, view, history)
    if missing:
        warn(missing)
    return view, story


def _masters(scheduler: Scheduler, app_id: str) -> List[MasterAttempt]:
    """The masters that the scheduler knows, by attempt; it forgets them some time after the end."""
    try:
        found = scheduler.log_reader.list_containers(app_id)
    except SchedulerError:
        return []
    return [
        MasterAttempt(ref.container_id, ref.node, ref.url) for name, ref in found if name == MASTER
    ]
