"""The state of a job, in a few lines. The exit code is 0 whatever the job's state."""

from __future__ import annotations

import argparse
import sys
import time

from tony_core.cli import outcome
from tony_core.cli.options import NamedJob, add_app, add_places, open_job
from tony_core.cli.output import (
    duration,
    line,
    moment,
    paint_state,
    percent,
    print_json,
    safe,
    warn,
)
from tony_core.schedulers.port import AppState
from tony_core.view import HISTORY, SCHEDULER, JobView

MOST_NAMED = 10  # tasks by name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    with open_job(args) as found:
        view = view_of(found)
        if args.json:
            print_json(view.to_json())
            return 0
        show(view)
        show_advice(found, view)
    return 0


def show(view: JobView) -> None:
    head(view)
    counts = ", ".join(f"{count} {state}" for state, count in view.counts.items())
    if counts:
        line(f"  tasks: {counts}")
    for text in outcome.links(view):
        line(text)
    if view.root_cause.get("task") and view.state is not AppState.SUCCEEDED:
        what = "root cause" if view.state.ended else "the last session failed"
        first, *rest = outcome.root_lines(view.root_cause)
        line(f"  {what}: {first}")
        for text in rest:
            line(f"    {text}")
    elif view.diagnostics:
        line(f"  {safe(view.diagnostics.splitlines()[0])}")


def view_of(found: NamedJob) -> JobView:
    """How an application looks now."""
    from tony_core.client.lookup import explain_unreadable, look_up

    scheduler, app_id, history = found
    view = look_up(scheduler, app_id, history)
    why = explain_unreadable(scheduler, view, history) if view.source == SCHEDULER else ""
    if why:
        warn(f"only the scheduler's answer is shown; the job's history cannot be read: {why}")
    return view


def show_advice(found: NamedJob, view: JobView) -> None:
    """Print in one line that there is advice on a job that has ended."""
    if not view.state.ended or view.source != HISTORY:
        return
    from tony_core.client.advice import FEW_TASKS, advice_lines

    scheduler, app_id, history = found
    for text in advice_lines(scheduler, app_id, history=history, most=1, most_tasks=FEW_TASKS):
        line(f"  {safe(text)}")


def times(count: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def head(view: JobView) -> None:
    """Print which job it is, and how far it got."""
    state = paint_state(view.state.value, sys.stdout)
    line(f"{view.app_id} {safe(view.name)}: {state}, {percent(view.progress)}")
    took = duration(view.duration_s(time.time()))
    line(f"  submitted {moment(view.submitted)} by {safe(view.user) or '?'}, {took}")
    if view.session > 0:
        line(f"  session {view.session} (restarted {times(view.session)})")
    restarted = [f"{task.task} {times(task.restarts)}" for task in view.tasks if task.restarts]
    if restarted:
        rest = f" and {len(restarted) - MOST_NAMED} more" if len(restarted) > MOST_NAMED else ""
        line(f"  tasks restarted: {', '.join(restarted[:MOST_NAMED])}{rest}")
    if view.sizes:
        line(f"  elastic: {safe(view.sizes)}")
    if view.waiting:
        line(f"  waiting: {safe(view.waiting)}")
    if view.trouble:
        line(f"  trouble: {safe(view.trouble)}")
