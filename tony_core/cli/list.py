"""All jobs the scheduler knows, the newest first."""

from __future__ import annotations

import argparse
import re
import time
from typing import Sequence

from tony_core.cli.options import (
    add_choice,
    add_json,
    add_scheduler,
    chosen,
    count,
    elsewhere,
    scheduler_of,
)
from tony_core.cli.output import duration, line, moment, note, percent, print_json, table
from tony_core.schedulers.port import AppState, AppStatus

# Tags by which a workflow engine's plugin names its job's task.
_ORIGIN = re.compile(r"(?:airflow|azkaban)\.(?:[a-z]+\.)*(?P<name>[a-z]+):(?P<value>.+)", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--running", action="store_true", help="only those that have not ended")
    add_choice(parser)
    parser.add_argument("--limit", metavar="N", type=count, default=50, help="at most [50]; 0: all")
    parser.add_argument("-q", "--quiet", action="store_true", help="ids alone")
    add_scheduler(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    scheduler = scheduler_of(args)
    try:
        found = chosen(scheduler.list(), args)
        for problem in scheduler.cleaner.list_damaged():
            note(problem)
    finally:
        scheduler.close()
    if args.running:
        found = [status for status in found if not status.state.ended]
    shown = found[: args.limit] if args.limit > 0 else found
    if args.json:
        print_json({"applications": [as_data(status) for status in shown]})
        return 0
    if args.quiet:
        for status in shown:
            line(status.app_id)
        return 0
    if not shown:
        what = "no job is running" if args.running else "no jobs"
        note(f"{what} on the scheduler {scheduler.name}")
        elsewhere(args, scheduler)
        return 0
    now = time.time()
    origins = [origin_of(status.tags) for status in shown]
    has_trouble = any(status.trouble for status in shown)
    columns = ("ID", "NAME", "STATE", "PROGRESS", "USER", "QUEUE", "SUBMITTED", "TIME")
    more = ("FROM",) * any(origins) + ("TROUBLE",) * has_trouble
    table(
        (*columns, *more),
        [
            (
                status.app_id,
                status.name,
                status.state.value,
                percent(1.0 if status.state is AppState.SUCCEEDED else status.progress),
                status.user,
                status.queue,
                moment(status.submitted),
                duration(max(0.0, (status.finished or now) - status.submitted)),
                *((origin,) if any(origins) else ()),
                *((status.trouble,) if has_trouble else ()),
            )
            for status, origin in zip(shown, origins, strict=True)
        ],
    )
    if len(shown) < len(found):
        note(f"{len(found) - len(shown)} older ones are not shown (--limit 0 shows all)")
    return 0


def origin_of(tags: Sequence[str]) -> str:
    """The workflow's task that submitted it, by its tags: ``dag=train run=... task=fit``."""
    matches = [_ORIGIN.fullmatch(tag) for tag in tags]
    return " ".join(f"{found['name']}={found['value']}" for found in matches if found)


def as_data(status: AppStatus) -> dict[str, object]:
    data = {**status._asdict(), "state": status.state.value, "tags": list(status.tags)}
    del data["view_refusal"]  # a list shows only what the caller may view
    return data
