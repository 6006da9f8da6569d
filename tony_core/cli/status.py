"""How a job stands, in a few lines. The exit code is 0 whatever the job's state."""

from __future__ import annotations

import argparse
import sys
import time

from tony_core.cli import outcome
from tony_core.cli.options import (
    add_app,
    add_history,
    add_json,
    add_scheduler,
    app_of,
    history_of,
    scheduler_of,
)
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
from tony_core.view import SCHEDULER, JobView

NAME = "status"
HELP = "how a job stands, in a few lines"
MOST_TOLD = 10  # tasks by name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its words."""
    add_app(parser)
    add_scheduler(parser)
    add_history(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    view = view_for(args)
    if args.json:
        print_json(view.to_json())
        return 0
    show(view)
    return 0


def show(view: JobView) -> None:
    """The few lines."""
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


def view_for(args: argparse.Namespace) -> JobView:
    """The application that is meant."""
    from tony_core.client.finalize import look_up
    from tony_core.client.lookup import explain_unreadable

    scheduler = scheduler_of(args, args.app)
    history = history_of(args)
    try:
        view = look_up(scheduler, app_of(args, scheduler), history)
        why = explain_unreadable(scheduler, view, history) if view.source == SCHEDULER else ""
        if why:
            warn(f"only the scheduler was asked: the job's history cannot be read: {why}")
        return view
    finally:
        scheduler.close()


def times(count: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def head(view: JobView) -> None:
    """Which job, and how far."""
    state = paint_state(view.state.value, sys.stdout)
    line(f"{view.app_id} {safe(view.name)}: {state}, {percent(view.progress)}")
    took = duration(view.duration_s(time.time()))
    line(f"  submitted {moment(view.submitted)} by {safe(view.user) or '?'}, {took}")
    if view.session > 0:
        line(f"  session {view.session} (it was started again {times(view.session)})")
    alone = [f"{task.task} {times(task.restarts)}" for task in view.tasks if task.restarts]
    if alone:
        rest = f" and {len(alone) - MOST_TOLD} more" if len(alone) > MOST_TOLD else ""
        line(f"  started again alone: {', '.join(alone[:MOST_TOLD])}{rest}")
    if view.sizes:
        line(f"  elastic: {safe(view.sizes)}")
    if view.waiting:
        line(f"  waiting: {safe(view.waiting)}")
